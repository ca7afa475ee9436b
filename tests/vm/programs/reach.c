/* SPDX-License-Identifier: MIT */
/* What a tenant may name that is not its own, or that nobody has read. */
#define _GNU_SOURCE
#include "descriptor.h"
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	NV_ESC_RM_ACCESS_REGISTRY = 77,
	NV_ESC_RM_MAP_MEMORY = 78,
	NV_ESC_RM_UNMAP_MEMORY = 79,
	NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO = 94,
	NV_ESC_RM_MAP_MEMORY_DMA = 87,
	NV_ESC_ALLOC_OS_EVENT = 206,
	NV_ESC_FREE_OS_EVENT = 207,
	NV_ESC_IOCTL_XFER_CMD = 211,
	UVM_REGISTER_CHANNEL = 27,
	UVM_UNREGISTER_CHANNEL = 28,
	UVM_FREE = 34,
	UVM_REGISTER_GPU = 37,
	UVM_TOOLS_READ_PROCESS_MEMORY = 62,
	UVM_UNMAP_EXTERNAL = 66,
	UVM_CREATE_EXTERNAL_RANGE = 73,
	UVM_MAP_EXTERNAL_SPARSE = 74,
	UVM_INITIALIZE = 0x30000001,
	NV2080_CTRL_CMD_GPU_EXEC_REG_OPS = 0x20800122,
	NV2080_CTRL_CMD_FB_GET_INFO = 0x20801301,
	ENGINE_TYPE = 128, /* in NV_CHANNEL_ALLOC_PARAMS */
	FIRST_CHANNEL = 0x70000000, /* a handle, as are those after it */
};

static struct sc sc;

static int escape(int fd, unsigned int nr, void *arg, unsigned int size)
{
	return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg) ? -errno : 0;
}

static void open_card(void)
{
	struct sc_options options = { 0 };
	int ret = sc_open(&sc, 0, &options);

	if (ret) {
		fprintf(stderr, "reach: open: %d\n", ret);
		exit(2);
	}
}

/* A line each: what was asked, and the status or -errno. */
static int unlisted(void)
{
	u8 args[128] = { 0 };
	struct nv_xfer wrapped = { NV_ESC_RM_ACCESS_REGISTRY, 72, (u64)(uintptr_t)args };
	u32 handle = 0;
	int uvm = open("/dev/nvidia-uvm", O_RDWR);

	open_card();
	printf("escape %d\n", escape(sc.ctl, NV_ESC_RM_ACCESS_REGISTRY, args, 72));
	printf("wrapped %d\n", escape(sc.ctl, NV_ESC_IOCTL_XFER_CMD, &wrapped, sizeof(wrapped)));
	printf("uvm %d\n", ioctl(uvm, UVM_TOOLS_READ_PROCESS_MEMORY, args) ? -errno : 0);
	printf("control %d\n", sc_rm_control(&sc, sc.subdevice, 0x2080ffff, args, 4));
	printf("gss %d\n", sc_rm_control(&sc, sc.subdevice, 0x2080b0ff, args, 4));
	printf("class %d\n", sc_rm_alloc(&sc, sc.device, &handle, 0xffff, NULL, 0));
	printf("registers %d\n", sc_rm_control(&sc, sc.subdevice,
					      NV2080_CTRL_CMD_GPU_EXEC_REG_OPS, args, 48));
	return 0;
}

static int event_through(int file, unsigned int nr, u32 client, u32 fd)
{
	u32 args[4] = { client, sc.device, fd, 0 };
	int ret = escape(file, nr, args, sizeof(args));

	return ret ? ret : (int)args[3];
}

static int event(unsigned int nr, u32 client, u32 fd)
{
	return event_through(sc.ctl, nr, client, fd);
}

/* Holds an event until a line comes, and says what became of it. */
static int hold_event(void)
{
	open_card();
	printf("event %u %d %d\n", sc.client, sc.gpu, event(NV_ESC_ALLOC_OS_EVENT, sc.client,
							    (u32)sc.gpu));
	fflush(stdout);
	getchar();
	printf("freed %d\n", event(NV_ESC_FREE_OS_EVENT, sc.client, (u32)sc.gpu));
	return 0;
}

static int take_event(u32 client, u32 fd)
{
	open_card();
	printf("free %d\n", event(NV_ESC_FREE_OS_EVENT, client, fd));
	printf("squat %d\n", event(NV_ESC_ALLOC_OS_EVENT, client, (u32)sc.gpu));
	return 0;
}

/* Through a file that the client goes before, and through one that keeps it. */
static int orphan_event(void)
{
	int other = open("/dev/nvidiactl", O_RDWR);

	open_card();
	printf("orphan %d\n", event_through(other, NV_ESC_ALLOC_OS_EVENT, sc.client, 5));
	printf("kept %d\n", event_through(sc.gpu, NV_ESC_ALLOC_OS_EVENT, sc.client, 5));
	return 0;
}

/*
 * As many as there can be, by numbers of descriptors that are closed again: the file that
 * asks for them stays open, and nobody frees one.
 */
static int hoard_events(int most)
{
	int named, made = 0, status = 0, fd;
	u32 client;

	open_card();
	named = open("/dev/nvidiactl", O_RDWR);
	while (!status && made < most && !sc_rm_alloc_client(&sc, &client)) {
		for (fd = 100; !status && fd < 1000; fd++) {
			dup2(named, fd);
			status = event(NV_ESC_ALLOC_OS_EVENT, client, (u32)fd);
			made += !status;
		}
		for (fd = 100; fd < 1000; fd++)
			close(fd);
		close(named);
		named = open("/dev/nvidiactl", O_RDWR);
	}
	printf("made %d status %d\n", made, status);
	return 0;
}

/* Channels without a group, on an engine: how many there can be, and the last status. */
static int groupless(u32 engine, u32 most)
{
	u8 params[368] = { 0 };
	u32 made = 0, handle;
	int status = 0;

	open_card();
	status = sc_context(&sc);
	memcpy(params + ENGINE_TYPE, &engine, sizeof(engine));
	while (!status && made < most) {
		handle = 0;
		status = sc_rm_alloc(&sc, sc.device, &handle, sc.channel_class, params,
				     sc.branch >= 570 ? 368 : 360);
		made += !status;
	}
	printf("made %u status %d\n", made, status);
	fflush(stdout);
	getchar();
	return 0;
}

/* Groups whose handles are freed while UVM has a channel of each. Return: how many. */
static u32 retain(u32 engine, u32 most, int *status)
{
	struct { u32 err, ecc, vaspace, engine; u8 vgpu, pad[3]; } group = {
		.vaspace = sc.vaspace, .engine = engine };
	struct { u8 uuid[16]; s32 fd; u32 client, channel, pad; u64 base, length;
		 u32 status, pad2; } enters = {
		.fd = sc.ctl, .client = sc.client, .base = 32ull << 40, .length = 2 << 20 };
	u8 params[368] = { 0 };
	u32 made, handle;

	memcpy(params + ENGINE_TYPE, &engine, sizeof(engine));
	memcpy(enters.uuid, sc.uuid, sizeof(enters.uuid));
	for (made = 0; made < most; made++, enters.base += enters.length) {
		handle = 0;
		enters.channel = FIRST_CHANNEL + made;
		*status = sc_rm_alloc(&sc, sc.device, &handle, 0xa06c, &group, sizeof(group));
		if (!*status)
			*status = sc_rm_alloc(&sc, handle, &enters.channel, sc.channel_class,
					      params, sc.branch >= 570 ? 368 : 360);
		if (!*status)
			*status = sc_uvm(&sc, UVM_REGISTER_CHANNEL, &enters, 48);
		sc_rm_free(&sc, sc.client, handle);
		if (*status)
			break;
	}
	return made;
}

/* The same, and until a line comes; then UVM forgets them, and after another all over again. */
static int retained(u32 engine, u32 most)
{
	struct { u8 uuid[16]; u32 client, channel, status; } leaves = { 0 };
	u32 made, gone;
	int status;

	open_card();
	status = sc_context(&sc);
	made = status ? 0 : retain(engine, most, &status);
	printf("made %u status %d\n", made, status);
	fflush(stdout);
	getchar();
	memcpy(leaves.uuid, sc.uuid, sizeof(leaves.uuid));
	leaves.client = sc.client;
	for (gone = 0; gone < made; gone++) {
		leaves.channel = FIRST_CHANNEL + gone;
		sc_uvm(&sc, UVM_UNREGISTER_CHANNEL, &leaves, 24);
	}
	printf("gone %u\n", gone);
	fflush(stdout);
	getchar();
	printf("again %u\n", retain(engine, most, &status));
	return 0;
}

/* Unified memory, with HMM: the flags that it has got. */
static int hmm(void)
{
	struct { u64 flags; u32 status; u32 pad; } args = { 0 };
	int uvm = open("/dev/nvidia-uvm", O_RDWR);

	if (uvm < 0 || ioctl(uvm, UVM_INITIALIZE, &args))
		return 2;
	printf("status %u flags %llu\n", args.status, (unsigned long long)args.flags);
	return 0;
}

/* A new address space of unified memory, in the place of the program's. Return: the status. */
static int initialize_new(u64 flags)
{
	struct { u64 flags; u32 status, pad; } args = { .flags = flags };

	sc.uvm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	return sc_uvm(&sc, UVM_INITIALIZE, &args, 8);
}

/* What is answered for one with these flags. */
static int initialised(u64 flags)
{
	open_card();
	printf("initialize %d\n", initialize_new(flags));
	return 0;
}

static volatile struct { u64 flags; u32 status; u32 pad; } initialize;

/* Takes back, once, what the door has put there. */
static void *take_back(void *unused)
{
	while (!initialize.flags)
		;
	initialize.flags = 0;
	printf("back 0\n");
	fflush(stdout);
	return unused;
}

static int register_card(void)
{
	struct { u8 uuid[16]; u32 numa, node; s32 fd; u32 client, part, status; } card = {
		.fd = sc.ctl, .client = sc.client };

	memcpy(card.uuid, sc.uuid, sizeof(card.uuid));
	return sc_uvm(&sc, UVM_REGISTER_GPU, &card, 36);
}

/*
 * Managed memory of a second file of the process, which has the card, too; and whether so much can
 * be had beside it once all files have been looked at. Until then nothing is taken: it would end
 * the process, being too much when they are.
 */
static int second(u64 bytes, u64 beside)
{
	struct sc_mem memory;
	u64 free, total;
	int tries = 0;

	open_card();
	if (sc_context(&sc) || initialize_new(0))
		return 2;
	printf("register %d\n", register_card());
	printf("mapped %d\n", sc_managed(&sc, bytes) ? 0 : errno);
	while (!sc_mem_info(&sc, &free, &total) && free >= beside && tries++ < 300)
		usleep(100000);
	printf("beside %d\n", sc_mem_alloc(&sc, beside, &memory));
	return 0;
}

static void *close_soon(void *unused)
{
	usleep(2000);
	close(sc.uvm);
	return unused;
}

/*
 * Asks for the card of an address space with more memory than fits, through a file of which the
 * only descriptor is closed meanwhile, and a message has another.
 */
static int late(u64 bytes, int times)
{
	pthread_t thread;
	int pair[2], status = -1, given = 0;

	open_card();
	if (initialize_new(0) || !sc_managed(&sc, bytes) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 2;
	while (times-- > 0) {
		/* the door waits a moment for what was mapped just now */
		if (!sc_managed(&sc, 4096) || !send_fd(pair[0], sc.uvm) ||
		    pthread_create(&thread, NULL, close_soon, NULL))
			break;
		status = register_card();
		given += !status;
		pthread_join(thread, NULL);
		sc.uvm = receive_fd(pair[1]);
	}
	printf("given %d status %d\n", given, status);
	return 0;
}

/* Managed memory at an offset that is where the kernel will map it, and not where it is asked. */
static int unasked(u64 bytes)
{
	void *at, *got;
	int i;

	open_card();
	if (sc_context(&sc))
		return 2;
	for (i = 0; i < 2; i++) {
		at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			  0);
		munmap(at, bytes);
		got = mmap64(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, sc.uvm,
			     (off64_t)(uintptr_t)at);
		printf("mapped %d\n", got == MAP_FAILED ? errno : 0);
	}
	return 0;
}

/* Exports to a dma-buf that is there, by all numbers that may be one of the door's own. */
static int staged(int most)
{
	struct sc_mem memory;
	int fd, first = 0, other = 0, i;
	u32 size, handles;
	u8 args[2608];

	open_card();
	size = sc.branch >= 570 ? 2608 : 2600;
	handles = sc.branch >= 570 ? 36 : 32;
	if (sc_mem_alloc(&sc, 2 << 20, &memory) || sc_dmabuf(&sc, &memory, &fd))
		return 2;
	for (i = 3; i < most; i++) {
		u32 status;

		if (fcntl(i, F_GETFD) < 0 && dup2(fd, i) < 0)
			return 2;
		memset(args, 0, sizeof(args));
		*(s32 *)args = i;
		*(u32 *)(args + 4) = sc.client;
		*(u32 *)(args + 8) = 2;
		*(u32 *)(args + 12) = 1;
		*(u32 *)(args + 16) = 1;
		*(u64 *)(args + 24) = memory.size;
		*(u32 *)(args + handles) = memory.handle;
		*(u64 *)(args + (sc.branch >= 570 ? 1576 : 1568)) = memory.size;
		if (escape(sc.gpu, 217, args, size))
			return 2;
		status = *(u32 *)(args + size - 8);
		first = i == 3 ? (int)status : first;
		other += (int)status != first || *(s32 *)args != i;
	}
	printf("first %d other %d\n", first, other);
	return 0;
}

/* What is answered for a card when HMM is on all the same. */
static int hmm_back(void)
{
	pthread_t thread;

	open_card();
	sc.uvm = open("/dev/nvidia-uvm", O_RDWR);
	if (sc.uvm < 0 || pthread_create(&thread, NULL, take_back, NULL) ||
	    ioctl(sc.uvm, UVM_INITIALIZE, &initialize))
		return 2;
	pthread_join(thread, NULL);
	printf("initialize %u\n", initialize.status);
	printf("register %d\n", register_card());
	return 0;
}

/* So many pieces of 64 KiB where, or aligned as, the program likes. */
static int place(u32 flags, u64 alignment, u32 count)
{
	u32 made = 0, handle;
	int status = 0;

	open_card();
	while (made < count && !status) {
		struct nv_memory_alloc memory = {
			.owner = sc.client, .flags = flags, .size = 65536,
			.alignment = alignment, .offset = made * alignment,
		};

		handle = sc.next_handle++;
		status = sc_rm_alloc(&sc, sc.device, &handle, 0x40, &memory, sizeof(memory));
		made += !status;
	}
	printf("made %u status %d\n", made, status);
	fflush(stdout);
	getchar();
	return 0;
}

/* A device whose address space is the card's, another client's, its own. */
static int device(void)
{
	u32 other = 0, client, handle, way;

	open_card();
	if (sc_rm_alloc_client(&sc, &other))
		return 2;
	for (way = 0; way < 3; way++) {
		u32 params[14] = { sc.device_instance }; /* NV0080_ALLOC_PARAMETERS */
		int status;

		if (sc_rm_alloc_client(&sc, &client))
			return 2;
		params[1] = way == 0 ? 0 : way == 1 ? other : client; /* hClientShare */
		handle = sc.next_handle++;
		status = sc_rm_alloc_in(&sc, client, client, &handle, 0x80, params,
					sizeof(params));
		printf("%u ", (u32)status);
	}
	puts("");
	return 0;
}

/*
 * Address spaces of which a duplicate alone is left, in another client: how many there can be,
 * and the last status. When that client has gone, all over again.
 */
static int duplicates(u32 most)
{
	struct { u32 index, flags; u64 rest[6]; } params = { 0 };
	u32 device[14] = { 0 }; /* NV0080_ALLOC_PARAMETERS */
	u32 client, below, space, copy, made, turn;
	int status;

	open_card();
	device[0] = sc.device_instance;
	for (turn = 0; turn < 2; turn++) {
		client = 0;
		if (sc_rm_alloc_client(&sc, &client))
			return 2;
		device[1] = client; /* hClientShare */
		below = sc.next_handle++;
		status = sc_rm_alloc_in(&sc, client, client, &below, 0x80, device, sizeof(device));
		for (made = 0; !status && made < most; made++) {
			space = sc.next_handle++;
			status = sc_rm_alloc(&sc, sc.device, &space, 0x90f1, &params,
					     sizeof(params));
			if (status)
				break;
			copy = sc.next_handle++;
			status = sc_rm_dup(&sc, client, below, &copy, sc.client, space);
			if (status)
				break;
			sc_rm_free(&sc, sc.client, space);
		}
		printf("made %u status %d\n", made, status);
		sc_rm_free(&sc, client, client);
	}
	return 0;
}

/*
 * Groups that run in an address space below another device than their own: how many there can
 * be, and the last status. When that device is freed, all over again.
 */
static int elsewhere(u32 most)
{
	struct { u32 err, ecc, vaspace, engine; u8 vgpu, pad[3]; } group = { .engine = 1 };
	struct { u32 index, flags; u64 rest[6]; } space = { 0 };
	u32 device[14] = { 0 }; /* NV0080_ALLOC_PARAMETERS */
	u32 other, handle, made, turn;
	int status;

	open_card();
	device[0] = sc.device_instance;
	device[1] = sc.client; /* hClientShare */
	for (turn = 0; turn < 2; turn++) {
		other = sc.next_handle++;
		group.vaspace = sc.next_handle++;
		status = sc_rm_alloc(&sc, sc.client, &other, 0x80, device, sizeof(device));
		if (!status)
			status = sc_rm_alloc(&sc, other, &group.vaspace, 0x90f1, &space,
					     sizeof(space));
		for (made = 0; !status && made < most; made += !status) {
			handle = sc.next_handle++;
			status = sc_rm_alloc(&sc, sc.device, &handle, 0xa06c, &group,
					     sizeof(group));
		}
		printf("made %u status %d\n", made, status);
		sc_rm_free(&sc, sc.client, other);
	}
	return 0;
}

/* Of each kind so many, with parameters that the driver cannot write back. */
static int read_only(u32 count)
{
	static const u32 kinds[] = { 0x90f1, 0x3e }; /* address spaces; the host's memory */
	struct nv_memory_alloc memory = { .attr = 1u << 25, .size = 4096 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	u32 kind, i, handles[512];
	u8 *pages, *params;
	int status = 0;

	open_card();
	memory.owner = sc.client;
	/* at the end of what there is, too */
	pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || 2 * count > sizeof(handles) / sizeof(handles[0]))
		return 2;
	munmap(pages + page, page);
	params = pages + page - sizeof(memory);
	for (kind = 0; kind < 2; kind++) {
		u32 *handle = handles + kind * count;
		u32 failed = 0;

		mprotect(pages, page, PROT_READ | PROT_WRITE);
		memset(params, 0, sizeof(memory));
		if (kind)
			memcpy(params, &memory, sizeof(memory));
		mprotect(pages, page, PROT_READ);
		for (i = 0; i < count; i++) {
			handle[i] = sc.next_handle++;
			status = sc_rm_alloc(&sc, sc.device, &handle[i], kinds[kind], params,
					     sizeof(memory));
			failed += !!status;
		}
		printf("%x failed %u status %d\n", kinds[kind], failed, status);
	}
	fflush(stdout);
	getchar();
	for (i = 0; i < 2 * count; i++)
		sc_rm_free(&sc, sc.client, handles[i]);
	puts("freed");
	fflush(stdout);
	getchar();
	return 0;
}

/* Pieces of the driver's own memory of the host until one is refused, and once more without one. */
static int host_memory(u64 piece, u32 most)
{
	struct nv_memory_alloc memory;
	u32 *handles = calloc(most, sizeof(*handles));
	u32 made = 0;
	int status = 0, again = 0;

	open_card();
	while (handles && !status && made < most) {
		memory = (struct nv_memory_alloc){ .owner = sc.client, .attr = 1u << 25,
						   .size = piece };
		handles[made] = sc.next_handle++;
		status = sc_rm_alloc(&sc, sc.device, &handles[made], 0x3e, &memory,
				     sizeof(memory));
		made += !status;
	}
	if (made && status) {
		memory = (struct nv_memory_alloc){ .owner = sc.client, .attr = 1u << 25,
						   .size = piece };
		sc_rm_free(&sc, sc.client, handles[0]);
		again = sc_rm_alloc(&sc, sc.device, &handles[0], 0x3e, &memory, sizeof(memory));
	}
	printf("made %u status %d again %d\n", made, status, again);
	free(handles);
	return 0;
}

static int map_for_processor(struct nvos33_fd *map, u32 handle, u64 bytes)
{
	int err;

	*map = (struct nvos33_fd){ .hClient = sc.client, .hDevice = sc.device,
				   .hMemory = handle, .length = bytes };
	map->fd = open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
	err = escape(sc.ctl, NV_ESC_RM_MAP_MEMORY, map, sizeof(*map));
	close(map->fd);
	return err ? err : (int)map->status;
}

/*
 * Maps the same memory for the processor until that is refused; once more when one mapping is
 * gone. Then waits for the end of its input, if it is to hold what it has.
 */
static int window(u64 bytes, u32 most, bool hold)
{
	struct { u32 hClient, hDevice, hMemory, pad; u64 pOldCpuAddress, pNewCpuAddress;
		 u32 status, pad2; } moved;
	struct { u32 hClient, hDevice, hMemory, pad; u64 pLinearAddress; u32 status, flags; } gone;
	struct nv_memory_alloc memory;
	struct nvos33_fd map;
	u32 handle, made = 0;
	int status, again = -1;

	open_card();
	memory = (struct nv_memory_alloc){ .owner = sc.client, .size = bytes };
	handle = sc.next_handle++;
	status = sc_rm_alloc(&sc, sc.device, &handle, 0x40, &memory, sizeof(memory));
	memset(&gone, 0, sizeof(gone));
	for (; !status && made < most; made += !status) {
		status = map_for_processor(&map, handle, bytes);
		if (status)
			break;
		/* each by an address of its own, as CUDA has them */
		memset(&moved, 0, sizeof(moved));
		moved.hClient = gone.hClient = sc.client;
		moved.hDevice = gone.hDevice = sc.device;
		moved.hMemory = gone.hMemory = handle;
		moved.pOldCpuAddress = map.pLinearAddress;
		moved.pNewCpuAddress = gone.pLinearAddress = ((u64)made + 1) << 32;
		escape(sc.ctl, NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO, &moved, sizeof(moved));
	}
	if (made && status) {
		escape(sc.ctl, NV_ESC_RM_UNMAP_MEMORY, &gone, sizeof(gone));
		again = map_for_processor(&map, handle, bytes);
	}
	printf("mapped %u status %d unmap %u again %d\n", made, status, gone.status, again);
	fflush(stdout);
	while (hold && getchar() != EOF)
		;
	return 0;
}

/* Mappings of one address space, then address spaces, until one is refused. */
static int page_tables(u32 mappings, u32 vaspaces)
{
	const u64 page = 4096; /* NVOS46.length */
	u32 size, made = 0, spaces = 0, handle;
	struct { u32 index, flags; u64 rest[6]; } params = { 0 };
	struct sc_mem memory;
	u8 args[64];
	int status = 0;

	open_card();
	size = sc.branch >= 580 ? 64 : 56;
	status = sc_mem_alloc(&sc, 2 << 20, &memory);
	handle = 0;
	if (!status)
		status = sc_rm_alloc(&sc, sc.device, &handle, 0x90f1, &params, sizeof(params));
	while (!status && made < mappings) {
		u32 names[4] = { sc.client, sc.device, handle, memory.handle };

		memset(args, 0, sizeof(args));
		memcpy(args, names, sizeof(names));
		memcpy(args + 24, &page, sizeof(page));
		status = escape(sc.ctl, NV_ESC_RM_MAP_MEMORY_DMA, args, size);
		if (!status)
			memcpy(&status, args + size - 8, sizeof(status));
		made += !status;
	}
	printf("mapped %u status %d\n", made, status);
	for (status = 0; !status && spaces < vaspaces; spaces += !status) {
		handle = 0;
		status = sc_rm_alloc(&sc, sc.device, &handle, 0x90f1, &params, sizeof(params));
	}
	printf("spaces %u status %d\n", spaces, status);
	fflush(stdout);
	getchar();
	return 0;
}

/* Page tables without memory: all of a range of addresses at once, then in pieces. */
static int sparse(u64 bytes, u64 piece)
{
	const u64 base = 16ull << 40;
	struct { u64 base, length; u32 status, pad; } range = { base, bytes, 0, 0 };
	struct { u64 base, length; u8 uuid[16]; u32 status, pad; } part = { base, bytes };
	u32 made = 0;
	int status;

	open_card();
	if (sc_context(&sc) || sc_uvm(&sc, UVM_CREATE_EXTERNAL_RANGE, &range, 16))
		return 2;
	memcpy(part.uuid, sc.uuid, sizeof(part.uuid));
	printf("whole %d\n", sc_uvm(&sc, UVM_MAP_EXTERNAL_SPARSE, &part, 32));
	part.length = piece;
	for (status = 0; !status && part.base < base + bytes; part.base += piece) {
		part.status = 0;
		status = sc_uvm(&sc, UVM_MAP_EXTERNAL_SPARSE, &part, 32);
		made += !status;
	}
	printf("made %u status %d\n", made, status);
	fflush(stdout);
	getchar();
	return 0;
}

/*
 * Unmaps what it mapped in ways that the driver refuses, gives the handle back all the
 * same, and takes the next.
 */
static int keep_mapped(u64 bytes, u32 times)
{
	u32 made = 0, refused = 0;
	int status = 0;

	open_card();
	if (sc_context(&sc))
		return 2;
	while (!status && made < times) {
		struct { u64 base, length; u32 status, pad; } range = { 0 };
		struct { u64 base, length; u8 uuid[16]; u32 status, pad; } part = { 0 };
		struct sc_mem mem;

		status = sc_malloc(&sc, bytes, &mem);
		if (status)
			break;
		made++;
		range.base = part.base = mem.va;
		range.length = mem.size + 0x10000;
		refused += !!sc_uvm(&sc, UVM_FREE, &range, 16);
		range.length = mem.size / 2;
		refused += !!sc_uvm(&sc, UVM_FREE, &range, 16);
		part.length = mem.size + 0x10000;
		memcpy(part.uuid, sc.uuid, sizeof(part.uuid));
		refused += !!sc_uvm(&sc, UVM_UNMAP_EXTERNAL, &part, 32);
		sc_mem_free(&sc, &mem);
	}
	printf("made %u refused %u status %d\n", made, refused, status);
	return 0;
}

/* Says that it is there, and waits for the end of the other pipe. */
static int hold(int there, int end)
{
	char byte = 0;

	return write(there, &byte, 1) != 1 || read(end, &byte, 1) ? 2 : 0;
}

struct apart {
	pthread_t first;
	pthread_barrier_t both;
	int there, end;
	bool own; /* a table of descriptors */
};

/* What the process's first thread has no descriptors of any more. */
static void *hold_apart(void *data)
{
	struct apart *apart = data;

	if (!apart->own) {
		pthread_join(apart->first, NULL);
	} else {
		if (unshare(CLONE_FILES))
			_exit(2);
		pthread_barrier_wait(&apart->both);
		pthread_barrier_wait(&apart->both);
	}
	_exit(hold(apart->there, apart->end));
}

/* A thread has all files, and the first has ended, or has closed them. */
static int lose_apart(const char *way, int there, int end)
{
	struct apart apart = { .first = pthread_self(), .there = there, .end = end };
	pthread_t thread;

	apart.own = !strcmp(way, "table");
	pthread_barrier_init(&apart.both, NULL, 2);
	if (pthread_create(&thread, NULL, hold_apart, &apart))
		return 2;
	if (!apart.own)
		syscall(SYS_exit, 0);
	pthread_barrier_wait(&apart.both);
	close(sc.ctl);
	close(sc.uvm);
	close(sc.uvm_mm);
	pthread_barrier_wait(&apart.both);
	pthread_join(thread, NULL);
	return 2;
}

/* Managed memory that is moved to the card; NULL: not to be had. */
static void *managed_on_card(u64 bytes)
{
	void *at = sc_managed(&sc, bytes);

	return at && !sc_prefetch(&sc, at, bytes, true) ? at : NULL;
}

/* Ends in a process that holds all files of an address space with managed memory in it. */
static int lose(const char *way, u64 bytes, int there, int end)
{
	struct { u64 base, length; u8 uuid[16]; u32 status, pad; } none = { 0 };
	char numbers[2][16];
	pid_t first;

	if (sc_context(&sc))
		return 2;
	if (!managed_on_card(bytes))
		return 3;
	snprintf(numbers[0], sizeof(numbers[0]), "%d", there);
	snprintf(numbers[1], sizeof(numbers[1]), "%d", end);
	if (!strcmp(way, "exec")) {
		fcntl(sc.ctl, F_SETFD, 0);
		fcntl(sc.uvm, F_SETFD, 0);
		fcntl(sc.uvm_mm, F_SETFD, 0);
		execl("/proc/self/exe", "reach", "hold", numbers[0], numbers[1], NULL);
		return 2;
	}
	if (!strcmp(way, "leader") || !strcmp(way, "table"))
		return lose_apart(way, there, end);
	first = getpid();
	if (!strcmp(way, "exit")) {
		if (fork())
			_exit(0);
		while (getppid() == first)
			usleep(1000);
	} else if (fork()) {
		return read(end, numbers, 1) ? 2 : 0;
	} else {
		/* the driver refuses it; but the file was used by this process last */
		sc_uvm(&sc, UVM_UNMAP_EXTERNAL, &none, 32);
	}
	return hold(there, end);
}

/* What can be had beside managed memory of a process that ended, whose files another one has. */
static int survive(u32 flags, u64 bytes, u64 more)
{
	struct sc_mem memory;
	int there[2], end[2], tries = 0, status;
	char byte = 0;
	pid_t first;

	if (pipe(there) || pipe(end))
		return 2;
	first = fork();
	if (!first) {
		open_card();
		sc.opt.uvm_flags = flags;
		if (sc_context(&sc))
			exit(2);
		if (!managed_on_card(bytes))
			exit(3);
		if (!fork()) {
			/* it keeps the address space */
			close(sc.uvm_mm);
			close(end[1]);
			exit(hold(there[1], end[0]));
		}
		if (read(there[0], &byte, 1) != 1)
			exit(2);
		exit(0);
	}
	if (waitpid(first, &status, 0) != first || status)
		return 3;
	open_card();
	printf("beside %d\n", sc_mem_alloc(&sc, more, &memory));
	close(end[1]);
	while ((status = sc_mem_alloc(&sc, more, &memory)) == 0x51 && tries++ < 1000)
		usleep(10000);
	printf("after %d\n", status);
	return 0;
}

/*
 * Begins a process that loses its memory in this way, to a holder that keeps it until `end[1]` is
 * closed. Return: it, when there is one; 0: there is none.
 */
static pid_t begin_loser(const char *way, u64 bytes, int end[2])
{
	int there[2];
	char byte;
	pid_t first;

	if (pipe(there) || pipe(end))
		return 0;
	first = fork();
	if (!first) {
		close(end[1]);
		open_card();
		exit(lose(way, bytes, there[1], end[0]));
	}
	close(there[1]);
	return read(there[0], &byte, 1) == 1 ? first : 0;
}

/*
 * Managed memory that lives where /proc/PID/maps of whoever used its file last does not
 * show it: what can be had beside it, and after it.
 */
static int outlive(const char *way, u64 bytes, u64 more)
{
	struct sc_mem memory;
	int end[2], status, tries = 0;

	if (!begin_loser(way, bytes, end))
		return 3;
	open_card();
	printf("beside %d\n", sc_mem_alloc(&sc, more, &memory));
	close(end[1]);
	while ((status = sc_mem_alloc(&sc, more, &memory)) == 0x51 && tries++ < 1000)
		usleep(10000);
	printf("after %d\n", status);
	return 0;
}

/* What can be had when the address space of a process that ended has lived on for some time. */
static int unwatched(u64 bytes)
{
	struct sc_mem memory;
	int end[2], status, tries = 0;
	pid_t first = begin_loser("exit", bytes, end);

	/* as long as it is a zombie its mappings are seen */
	if (!first || waitpid(first, NULL, 0) != first)
		return 3;
	open_card();
	printf("beside %d\n", sc_mem_alloc(&sc, bytes, &memory));
	while ((status = sc_mem_alloc(&sc, bytes, &memory)) == 0x51 && tries++ < 600)
		usleep(100000);
	printf("later %d\n", status);
	return 0;
}

/* What is answered for a file that was in a message until the door had forgotten it. */
static int forgotten(u64 bytes)
{
	struct { u64 flags; u32 status, pad; } init = { 0 };
	struct sc_mem memory;
	int pair[2];

	open_card();
	if (sc_context(&sc))
		return 2;
	if (!managed_on_card(bytes) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
	    !send_fd(pair[0], sc.uvm))
		return 3;
	close(sc.uvm);
	close(sc.uvm_mm);
	/* whoever refuses looks first at what is gone */
	if (sc_mem_alloc(&sc, 64 * bytes, &memory) != 0x51)
		return 3;
	sc.uvm = receive_fd(pair[1]);
	printf("initialize %d\n", sc_uvm(&sc, UVM_INITIALIZE, &init, 8));
	printf("register %d\n", register_card());
	printf("mapped %d\n", sc_managed(&sc, bytes) ? 0 : errno);
	return 0;
}

/*
 * Memory that UVM alone has, of a file that nobody has a descriptor of: it is mapped, or in a
 * message. What is given beside it; then all is kept.
 */
static int undescribed(const char *way, u64 bytes)
{
	struct sc_mem memory, more;
	int pair[2];

	open_card();
	if (sc_context(&sc))
		return 2;
	if (!strcmp(way, "sent")) {
		if (sc_malloc(&sc, bytes, &memory) || sc_mem_free(&sc, &memory) ||
		    socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || !send_fd(pair[0], sc.uvm))
			return 3;
	} else if (!managed_on_card(bytes)) {
		return 3;
	}
	close(sc.uvm);
	close(sc.uvm_mm);
	printf("beside %d\n", sc_mem_alloc(&sc, bytes, &more));
	fflush(stdout);
	pause();
	return 0;
}

/* Managed memory on the card, whose file has another descriptor after SIGUSR1; then all is kept. */
static int moved(u64 bytes)
{
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	open_card();
	if (sc_context(&sc))
		return 2;
	if (!managed_on_card(bytes))
		return 3;
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (sigwait(&set, &sig) || dup(sc.uvm) < 0)
		return 2;
	close(sc.uvm);
	printf("moved\n");
	fflush(stdout);
	pause();
	return 0;
}

/* Managed memory on the card, of which a page in each 2 MiB is left, and as much once more. */
static int pieces(u64 bytes)
{
	const u64 block = 2 << 20, page = 4096;
	u8 *first;
	u64 at;

	open_card();
	if (sc_context(&sc))
		return 2;
	first = managed_on_card(bytes);
	if (!first)
		return 3;
	for (at = 0; at < bytes; at += block)
		if (munmap(first + at + page, block - page))
			return 2;
	/* the agent looks before it refuses; what it forgets it has forgotten by then */
	usleep(100000);
	printf("second %d\n", sc_managed(&sc, bytes) ? 0 : errno);
	return 0;
}

/* What a process holds of the card, as the driver tells this one. */
static int pid_info(u32 pid)
{
	static u8 params[14408];
	u32 count = 1, result;
	u64 bytes;
	int status;

	open_card();
	memcpy(params, &count, sizeof(count));
	memcpy(params + 8, &pid, sizeof(pid));
	status = sc_rm_control(&sc, sc.subdevice, 0x2080018e, params, sizeof(params));
	memcpy(&result, params + 16, sizeof(result));
	memcpy(&bytes, params + 24, sizeof(bytes));
	printf("status %d result %u bytes %llu\n", status, result, (unsigned long long)bytes);
	return 0;
}

/*
 * A line for each address that is nobody's or the kernel's: what a call answers whose parameters
 * lie there, of RM (bare and in a wrapper) and of UVM, and two controls, of which the second has
 * its list there.
 */
static int nowhere(void)
{
	static const u64 places[] = {
		0x971b12e9b5be2e00, 0xffff888000100000, 0xffffffff81000000, 0x00007ffffffffff0, 16,
	};
	static const struct { unsigned int nr, bytes; } calls[] = {
		{ 41, 16 }, { 42, 32 }, { 43, 48 }, { 78, 56 },
	};
	int uvm = open("/dev/nvidia-uvm", O_RDWR);
	size_t i, j;

	open_card();
	for (i = 0; i < sizeof(places) / sizeof(*places); i++) {
		void *place = (void *)(uintptr_t)places[i];
		struct { u32 entries, pad; u64 at; } list = { 3, 0, places[i] };

		for (j = 0; j < sizeof(calls) / sizeof(*calls); j++) {
			struct nv_xfer wrapped = { calls[j].nr, calls[j].bytes, places[i] };

			printf("%d ", escape(sc.ctl, calls[j].nr, place, calls[j].bytes));
			printf("%d ", escape(sc.ctl, NV_ESC_IOCTL_XFER_CMD, &wrapped,
					     sizeof(wrapped)));
		}
		printf("%d ", ioctl(uvm, UVM_INITIALIZE, place) ? -errno : 0);
		printf("%d ", sc_rm_control(&sc, sc.subdevice, NV2080_CTRL_CMD_FB_GET_INFO,
					    place, sizeof(list)));
		printf("%d\n", sc_rm_control(&sc, sc.subdevice, NV2080_CTRL_CMD_FB_GET_INFO, &list,
					     sizeof(list)));
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "unlisted"))
		return unlisted();
	if (argc == 2 && !strcmp(argv[1], "nowhere"))
		return nowhere();
	if (argc == 2 && !strcmp(argv[1], "hmm"))
		return hmm();
	if (argc == 4 && !strcmp(argv[1], "host-memory"))
		return host_memory(strtoull(argv[2], NULL, 10), (u32)atoi(argv[3]));
	if (argc == 4 && !strncmp(argv[1], "window", 6))
		return window(strtoull(argv[2], NULL, 10), (u32)atoi(argv[3]),
			      !strcmp(argv[1], "window-hold"));
	if (argc == 4 && !strcmp(argv[1], "page-tables"))
		return page_tables((u32)atoi(argv[2]), (u32)atoi(argv[3]));
	if (argc == 5 && !strcmp(argv[1], "place"))
		return place((u32)strtoul(argv[2], NULL, 0), strtoull(argv[3], NULL, 0),
			     (u32)atoi(argv[4]));
	if (argc == 3 && !strcmp(argv[1], "pieces"))
		return pieces(strtoull(argv[2], NULL, 0));
	if (argc == 2 && !strcmp(argv[1], "device"))
		return device();
	if (argc == 3 && !strcmp(argv[1], "duplicates"))
		return duplicates((u32)atoi(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "elsewhere"))
		return elsewhere((u32)atoi(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "read-only"))
		return read_only((u32)atoi(argv[2]));
	if (argc == 2 && !strcmp(argv[1], "hold-event"))
		return hold_event();
	if (argc == 2 && !strcmp(argv[1], "orphan-event"))
		return orphan_event();
	if (argc == 3 && !strcmp(argv[1], "hoard-events"))
		return hoard_events(atoi(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "take-event"))
		return take_event((u32)strtoul(argv[2], NULL, 10), (u32)strtoul(argv[3], NULL, 10));
	if (argc == 4 && !strcmp(argv[1], "groupless"))
		return groupless((u32)atoi(argv[2]), (u32)atoi(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "retained"))
		return retained((u32)atoi(argv[2]), (u32)atoi(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "sparse"))
		return sparse(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
	if (argc == 4 && !strcmp(argv[1], "keep-mapped"))
		return keep_mapped(strtoull(argv[2], NULL, 10), (u32)atoi(argv[3]));
	if (argc == 5 && !strcmp(argv[1], "outlive"))
		return outlive(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "forgotten"))
		return forgotten(strtoull(argv[2], NULL, 10));
	if (argc == 2 && !strcmp(argv[1], "hmm-back"))
		return hmm_back();
	if (argc == 4 && !strcmp(argv[1], "undescribed"))
		return undescribed(argv[2], strtoull(argv[3], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "initialise"))
		return initialised(strtoull(argv[2], NULL, 0));
	if (argc == 4 && !strcmp(argv[1], "second"))
		return second(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
	if (argc == 4 && !strcmp(argv[1], "late"))
		return late(strtoull(argv[2], NULL, 10), atoi(argv[3]));
	if (argc == 3 && !strcmp(argv[1], "unasked"))
		return unasked(strtoull(argv[2], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "staged"))
		return staged(atoi(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "unwatched"))
		return unwatched(strtoull(argv[2], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "moved"))
		return moved(strtoull(argv[2], NULL, 10));
	if (argc == 5 && !strcmp(argv[1], "survive"))
		return survive((u32)atoi(argv[2]), strtoull(argv[3], NULL, 0),
			       strtoull(argv[4], NULL, 0));
	if (argc == 4 && !strcmp(argv[1], "hold"))
		return hold(atoi(argv[2]), atoi(argv[3]));
	if (argc == 3 && !strcmp(argv[1], "pid-info"))
		return pid_info((u32)strtoul(argv[2], NULL, 10));
	fprintf(stderr, "reach: unlisted, nowhere, hold-event, take-event CLIENT FD, orphan-event, "
			"hoard-events MOST, groupless ENGINE N, "
			"retained ENGINE N, hmm, hmm-back, place FLAGS ALIGNMENT COUNT, device, "
			"page-tables MAPPINGS SPACES, read-only COUNT, duplicates MOST, elsewhere MOST, "
			"sparse BYTES PIECE, "
			"keep-mapped BYTES TIMES, "
			"outlive exit|touch|exec|leader|table BYTES MORE, "
			"undescribed mapped|sent BYTES, moved BYTES, initialise FLAGS, "
			"second BYTES BESIDE, late BYTES TIMES, unasked BYTES, staged MOST, "
			"unwatched BYTES, forgotten BYTES, pid-info PID\n");
	return 2;
}
