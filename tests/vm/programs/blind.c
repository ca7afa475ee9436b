/* SPDX-License-Identifier: MIT */
/*
 * Calls that the driver refuses after a door outside the kernel has let them go on, so that
 * it never hears of it. Each command prints statuses, or errnos of mmap.
 */
#define _GNU_SOURCE
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	NV01_DEVICE_0 = 0x80,
	NV01_MEMORY_LOCAL_USER = 0x40,
	NV01_MEMORY_SYSTEM_OS_DESCRIPTOR = 0x71,
	NV01_ROOT_CLIENT = 0x41,
	NVOS02_FLAGS_MAPPING_NO_MAP = 1 << 30,
	NV_ESC_RM_ALLOC_MEMORY = 39,
	NV_ESC_RM_ALLOC = 43,
	UVM_FREE = 34,
	UVM_ALLOC_SEMAPHORE_POOL = 68,
	UVM_CREATE_EXTERNAL_RANGE = 73,
	MIB = 1 << 20,
	/* handles */
	DEVICE = 0x60000001,
	MEMORY = 0x61000000,
};

#define PLACE (32ull << 40)

static struct sc sc;

static void open_card(void)
{
	struct sc_options options = { 0 };
	int ret = sc_open(&sc, 0, &options);

	if (ret) {
		fprintf(stderr, "blind: open: %d\n", ret);
		exit(2);
	}
}

static void open_context(void)
{
	open_card();
	if (sc_context(&sc)) {
		fprintf(stderr, "blind: context\n");
		exit(2);
	}
}

static int alloc(int ctl, u32 client, u32 parent, u32 handle, u32 class, void *params)
{
	struct nvos64 args = { .hRoot = client, .hObjectParent = parent, .hObjectNew = handle,
			       .hClass = class, .pAllocParms = (u64)(uintptr_t)params };

	return ioctl(ctl, _IOC(_IOC_READ | _IOC_WRITE, 'F', NV_ESC_RM_ALLOC, sizeof(args)),
		     &args) ? -errno : (int)args.status;
}

static int device(int ctl, u32 client, u32 parent, u32 handle, u32 instance)
{
	u8 params[56] = { 0 };

	memcpy(params, &instance, sizeof(instance));
	return alloc(ctl, client, parent, handle, NV01_DEVICE_0, params);
}

static int memory(int ctl, u32 client, u32 parent, u32 handle, u64 bytes)
{
	struct nv_memory_alloc params = { .owner = client, .size = bytes };

	return alloc(ctl, client, parent, handle, NV01_MEMORY_LOCAL_USER, &params);
}

/* A page of the process's own; the driver refuses it without its flag. */
static int descriptor(u32 handle, u32 flags)
{
	static u8 page[4096] __attribute__((aligned(4096)));
	struct nvos02_fd args = { .hRoot = sc.client, .hObjectParent = sc.device,
				  .hObjectNew = handle, .pMemory = (u64)(uintptr_t)page,
				  .hClass = NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, .flags = flags,
				  .limit = sizeof(page) - 1, .fd = -1 };

	return ioctl(sc.gpu, _IOC(_IOC_READ | _IOC_WRITE, 'F', NV_ESC_RM_ALLOC_MEMORY,
				  sizeof(args)), &args) ? -errno : (int)args.status;
}

/* What the driver refuses, by the handle of memory: how much there can be after it. */
static void over(const char *what, u64 bytes)
{
	open_card();
	printf("first %d", memory(sc.ctl, sc.client, sc.device, MEMORY, bytes));
	printf(" full %d", memory(sc.ctl, sc.client, sc.device, MEMORY + 1, bytes));
	printf(" over %d", !strcmp(what, "device") ?
		device(sc.ctl, sc.client, sc.client, MEMORY, sc.device_instance) :
		descriptor(MEMORY, NVOS02_FLAGS_MAPPING_NO_MAP));
	printf(" second %d\n", memory(sc.ctl, sc.client, sc.device, MEMORY + 1, bytes));
}

/* A device of one card by the handle of another's: whose memory is then had below it. */
static void swap(u32 instance, u64 bytes)
{
	open_card();
	printf("device %d", device(sc.ctl, sc.client, sc.client, DEVICE, sc.device_instance));
	printf(" other %d", device(sc.ctl, sc.client, sc.client, DEVICE, instance));
	printf(" memory %d\n", memory(sc.ctl, sc.client, DEVICE, MEMORY, bytes));
}

/* What the driver refused for another reason, asked for again by the same handle. */
static void again(void)
{
	open_card();
	printf("refused %d", !!device(sc.ctl, sc.client, sc.device, DEVICE, sc.device_instance));
	printf(" device %d", device(sc.ctl, sc.client, sc.client, DEVICE, sc.device_instance));
	printf(" memory %d", memory(sc.ctl, sc.client, DEVICE, MEMORY, MIB));
	printf(" twice %d", device(sc.ctl, sc.client, sc.client, DEVICE, sc.device_instance));
	printf(" more %d", memory(sc.ctl, sc.client, DEVICE, MEMORY + 1, MIB));
	printf(" freed %d", sc_rm_free(&sc, sc.client, DEVICE));
	printf(" refused %d", !!descriptor(DEVICE, 0));
	printf(" descriptor %d\n", descriptor(DEVICE, NVOS02_FLAGS_MAPPING_NO_MAP));
}

/* Return: the handle that the driver chose. */
static u32 client(int ctl)
{
	struct nvos64 args = { .hClass = NV01_ROOT_CLIENT };
	int err = ioctl(ctl, _IOC(_IOC_READ | _IOC_WRITE, 'F', NV_ESC_RM_ALLOC, sizeof(args)),
			&args);

	printf("client %d ", err ? -errno : (int)args.status);
	return args.hObjectNew;
}

/*
 * A client by the number of one whose file was closed, where the driver gives out the lowest
 * that is free: its memory, beside as much again.
 */
static void reopen(u64 bytes)
{
	int ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	u32 handle, former;

	open_card();
	former = client(ctl);
	printf("device %d ", device(ctl, former, former, DEVICE, sc.device_instance));
	close(ctl);
	ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	handle = client(ctl);
	printf("device %d ", device(ctl, handle, handle, DEVICE + 1, sc.device_instance));
	printf("same %d ", handle == former);
	printf("first %d ", memory(ctl, handle, DEVICE + 1, MEMORY, bytes));
	fflush(stdout);
	/* what was closed is noticed meanwhile */
	sleep(3);
	device(ctl, handle, handle, DEVICE + 2, sc.device_instance);
	printf("second %d\n", memory(ctl, handle, DEVICE + 2, MEMORY + 1, bytes));
}

static int create(u32 cmd, u64 base, u64 length)
{
	u32 size = cmd == UVM_CREATE_EXTERNAL_RANGE ? 24 : sc.branch == 535 ? 1184 : 9248;
	u8 args[9248] = { 0 };

	memcpy(args, &base, sizeof(base));
	memcpy(args + 8, &length, sizeof(length));
	return sc_uvm(&sc, cmd, args, size - 8);
}

static int release(u64 base, u64 length)
{
	struct { u64 base, length; u32 status, pad; } range = { base, length, 0, 0 };
	struct { u64 base; u32 status, pad; } by_base = { base, 0, 0 };

	return sc.branch >= 590 ? sc_uvm(&sc, UVM_FREE, &by_base, 8) :
				  sc_uvm(&sc, UVM_FREE, &range, 16);
}

static int map(u64 base, u64 length)
{
	void *at = mmap64((void *)(uintptr_t)base, length, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_FIXED_NOREPLACE, sc.uvm, (off64_t)base);

	return at == MAP_FAILED ? errno : 0;
}

/* Where a longer pool than there is was refused, managed memory beyond the limit. */
static void pool(u64 bytes)
{
	const u64 place = 0x300000000, length = 2 * MIB;

	open_context();
	printf("before %d", map(2 * place, bytes));
	printf(" pool %d", create(UVM_ALLOC_SEMAPHORE_POOL, place, length));
	printf(" again %d", create(UVM_ALLOC_SEMAPHORE_POOL, place, length + bytes));
	printf(" mapped %d", map(place, length));
	*(volatile u8 *)(uintptr_t)place = 1;
	munmap((void *)(uintptr_t)place, length);
	printf(" free %d", release(place, length));
	printf(" after %d\n", map(place + length, bytes));
}

/* What every program that computes maps of the device, and what it may be denied. */
static void denied(void)
{
	const u64 place = 0x300000000, length = 2 * MIB;

	open_context();
	printf("pool %d", create(UVM_ALLOC_SEMAPHORE_POOL, place, length));
	printf(" mapped %d", map(place, length));
	printf(" managed %d\n", map(2 * place, length));
}

/* Page tables of pools that are freed again: how many there can be one after the other. */
static void pools(u64 bytes, u32 count)
{
	u32 made = 0;
	int status = 0;

	open_context();
	while (!status && made < count) {
		status = create(UVM_ALLOC_SEMAPHORE_POOL, PLACE, bytes);
		if (!status)
			status = release(PLACE, bytes);
		made += !status;
	}
	printf("made %u status %d\n", made, status);
}

/*
 * What is mapped in one range, and kept by nothing else, is not freed with another, for which
 * a length was said that the driver refused.
 */
static void ranges(u64 bytes, u64 more)
{
	const u64 far = 1 << 30, near = 4 * MIB;
	struct sc_mem mem;

	open_context();
	printf("near %d", create(UVM_CREATE_EXTERNAL_RANGE, PLACE + near, 2 * MIB));
	sc.next_va = PLACE + far;
	printf(" far %d", sc_malloc(&sc, bytes, &mem));
	sc_mem_free(&sc, &mem);
	printf(" over %d", create(UVM_CREATE_EXTERNAL_RANGE, PLACE, 4 * far));
	release(PLACE, 4 * far);
	printf(" over %d", create(UVM_CREATE_EXTERNAL_RANGE, PLACE + near, 4 * far));
	printf(" free %d", release(PLACE + near, 2 * MIB));
	printf(" beside %d", memory(sc.ctl, sc.client, sc.device, MEMORY, more));
	printf(" free %d", release(PLACE + far, bytes));
	printf(" after %d\n", memory(sc.ctl, sc.client, sc.device, MEMORY, more));
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";
	u64 bytes = argc > 2 ? strtoull(argv[argc - 1], NULL, 10) : 0;

	if (argc == 4 && !strcmp(command, "over"))
		over(argv[2], bytes);
	else if (argc == 4 && !strcmp(command, "swap"))
		swap((u32)atoi(argv[2]), bytes);
	else if (argc == 2 && !strcmp(command, "again"))
		again();
	else if (argc == 3 && !strcmp(command, "reopen"))
		reopen(bytes);
	else if (argc == 2 && !strcmp(command, "denied"))
		denied();
	else if (argc == 3 && !strcmp(command, "pool"))
		pool(bytes);
	else if (argc == 4 && !strcmp(command, "pools"))
		pools(bytes, (u32)atoi(argv[2]));
	else if (argc == 4 && !strcmp(command, "ranges"))
		ranges(strtoull(argv[2], NULL, 10), bytes);
	else {
		fprintf(stderr, "blind: over device|descriptor BYTES, swap INSTANCE BYTES, again, "
				"reopen BYTES, denied, pool BYTES, pools COUNT BYTES, ranges BYTES MORE\n");
		return 2;
	}
	return 0;
}
