/* SPDX-License-Identifier: MIT */
/*
 * Calls whose argument a door outside the kernel cannot see, or sees otherwise than
 * the driver. Each command prints what it got; the test compares that with the
 * driver's own figures. HOLD: stays when it is done. HEIR: a child has its files, and
 * makes no call.
 */
#define _GNU_SOURCE
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, SYS_MEMFD_SECRET = 447, FIRST = 0x55000000 };

static struct sc sc;
static atomic_bool stop;

static void die(const char *what, int ret)
{
	fprintf(stderr, "unseen: %s: %d\n", what, ret);
	exit(2);
}

/* A page that other processes cannot read and the driver can, after one that all can. */
static u8 *pages(void)
{
	u8 *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = syscall(SYS_MEMFD_SECRET, 0);

	if (fd < 0 || ftruncate(fd, PAGE))
		die("memfd_secret", errno);
	if (mmap(at + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED)
		die("mmap", errno);
	return at;
}

/* `lead` bytes of the parameters can be read, the rest cannot. */
static void hidden_params(u32 lead, u64 size)
{
	struct nv_memory_alloc *params = (void *)(pages() + PAGE - lead);
	u32 granted = 0, i;
	int status = 0;

	for (i = 0; i < 12; i++) {
		u32 handle = FIRST + i;

		*params = (struct nv_memory_alloc){ .owner = sc.client, .size = size };
		status = sc_rm_alloc_in(&sc, sc.client, sc.device, &handle, 0x40, params,
					sizeof(*params));
		granted += !status;
	}
	printf("granted %u status %d\n", granted, status);
}

static void hidden_control(void)
{
	u8 *params = pages() + PAGE;
	u64 *list = (void *)params;
	struct { u32 count, pad; u64 list; } info = { 1, 0, (u64)(uintptr_t)list };

	params[0] = 1; /* FIFO_DISABLE_CHANNELS of none */
	printf("params %d", sc_rm_control(&sc, sc.subdevice, 0x2080110b, params, 536));
	*list = 8;     /* FB_GET_INFO of TOTAL_RAM_SIZE, by a pointer in its parameters */
	printf(" list %d\n", sc_rm_control(&sc, sc.subdevice, 0x20801301, &info, sizeof(info)));
}

/* Numbers of the driver's on files that are not the driver's, or another of its. */
static void other_files(void)
{
	struct nvos64 args = { 0 };
	struct ifreq lo = { .ifr_name = "lo" };
	u8 uvm[64] = { 0 }, idle[56] = { 0 };
	int ends[2], ret;

	if (pipe(ends))
		die("pipe", errno);
	/* what no list names; the driver looks at the number and the size alone */
	ret = ioctl(ends[0], _IOWR('x', 65, idle), idle);
	printf("idle %d", ret ? errno : 0);
	ret = ioctl(sc.ctl, _IOWR('x', 65, idle), idle);
	printf(" idle on ctl %d", ret ? errno : 0);
	ret = ioctl(ends[0], 79, uvm);
	printf(" counters %d", ret ? errno : 0);
	ret = open("/dev/nvidia-uvm-tools", O_RDWR);
	if (ret < 0)
		die("nvidia-uvm-tools", errno);
	ret = ioctl(ret, 56, uvm);
	printf(" tools %d ", ret ? errno : 0);
	ret = ioctl(ends[0], _IOWR('F', 0x2b, struct nvos64), &args);
	printf("rm %d", ret ? errno : 0);
	ret = ioctl(ends[0], 33, uvm);
	printf(" uvm %d", ret ? errno : 0);
	ret = ioctl(sc.ctl, 33, uvm);
	printf(" uvm on ctl %d", ret ? errno : 0);
	ret = open("/dev/nvidia-uvm", O_RDWR);
	if (ret < 0)
		die("nvidia-uvm", errno);
	ret = ioctl(ret, _IOWR('F', 0x2b, struct nvos64), &args);
	printf(" rm on uvm %d", ret ? errno : 0);
	/* not the driver's, and its low byte is one of the driver's */
	ret = ioctl(socket(AF_INET, SOCK_DGRAM, 0), 0x8927 /* SIOCGIFHWADDR */, &lo);
	printf(" other %d\n", ret ? errno : 0);
}

static void named_client(void)
{
	struct nvos64 args = { .hRoot = 0xc1d0abcd, .hClass = 0x41 };

	if (ioctl(sc.ctl, _IOWR('F', 0x2b, struct nvos64), &args))
		die("client", errno);
	printf("status %u\n", args.status);
}

static int landing;             /* the number that the next descriptor gets */
static int spare;
static atomic_int kept;

/* Another file stands at the dma-buf's number as soon as it is there. */
static void *hide(void *unused)
{
	char path[64], link[256];

	(void)unused;
	while (!atomic_load(&stop)) {
		int copy = dup(landing);
		ssize_t length;

		if (copy < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", copy);
		length = readlink(path, link, sizeof(link) - 1);
		if (length > 0 && (link[length] = '\0', strstr(link, "dmabuf"))) {
			dup2(spare, landing);
			atomic_store(&kept, copy);
			return NULL;
		}
		close(copy);
	}
	return NULL;
}

/* Exports memory and frees it, its dma-buf kept by another number; and asks for as much again. */
static void hide_dmabuf(u64 size)
{
	struct sc_mem mem, more;
	pthread_t thread;
	int fd, ret;

	ret = sc_mem_alloc(&sc, size, &mem);
	spare = open("/dev/null", O_RDWR);
	landing = dup(spare);
	if (ret || landing < 0)
		die("alloc", ret);
	close(landing);
	pthread_create(&thread, NULL, hide, NULL);
	ret = sc_dmabuf(&sc, &mem, &fd);
	if (ret)
		die("export", ret);
	pthread_join(thread, NULL);
	sc_mem_free(&sc, &mem);
	printf("kept %d again %d\n", atomic_load(&kept) > 0, sc_mem_alloc(&sc, size, &more));
}

static int swapped;
static int held[2];

static void *swap_files(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		dup2(held[0], swapped);
		dup2(held[1], swapped);
	}
	return NULL;
}

/* A descriptor is a pipe when the door looks, and the driver's when the kernel does. */
static void swap_descriptor(u64 size, int seconds)
{
	time_t end = time(NULL) + seconds;
	u32 calls = 0, granted = 0;
	pthread_t thread;
	int ends[2];

	if (pipe(ends))
		die("pipe", errno);
	held[0] = ends[0];
	held[1] = sc.ctl;
	swapped = dup(ends[0]);
	pthread_create(&thread, NULL, swap_files, NULL);
	while (time(NULL) < end) {
		struct nv_memory_alloc params = { .owner = sc.client, .size = size };
		struct nvos64 args = { .hRoot = sc.client, .hObjectParent = sc.device,
				       .hObjectNew = FIRST + calls++, .hClass = 0x40,
				       .pAllocParms = (u64)(uintptr_t)&params };

		if (!ioctl(swapped, _IOWR('F', 0x2b, struct nvos64), &args) && !args.status)
			granted++;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	printf("calls %u granted %u\n", calls, granted);
}

static struct nvos64 shared;

static void *swap_classes(void *unused)
{
	volatile u32 *class = &shared.hClass, *root = &shared.hRoot;

	(void)unused;
	while (!atomic_load(&stop)) {
		/* a client, which the tenant allocates itself, and names by no number */
		*root = 0;
		*class = 0x41;
		*root = sc.client;
		*class = 0x40;
	}
	return NULL;
}

/* Memory in the place of a client, until it was granted. */
static void swap_class(u64 size, int seconds)
{
	struct nv_memory_alloc params;
	time_t end = time(NULL) + seconds;
	u32 calls = 0, granted = 0;
	pthread_t thread;

	pthread_create(&thread, NULL, swap_classes, NULL);
	while (!granted && time(NULL) < end) {
		params = (struct nv_memory_alloc){ .owner = sc.client, .size = size };
		shared = (struct nvos64){ .hRoot = sc.client, .hObjectParent = sc.device,
					  .hObjectNew = FIRST + calls++,
					  .pAllocParms = (u64)(uintptr_t)&params };
		/* a client has no parameters: its handle says which it was */
		if (!ioctl(sc.ctl, _IOWR('F', 0x2b, struct nvos64), &shared) && !shared.status &&
		    params.limit)
			granted++;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	printf("calls %u granted %u\n", calls, granted);
}

static struct { u32 id, pad[13]; } device; /* NV0080_ALLOC_PARAMETERS */

static void *swap_ids(void *unused)
{
	volatile u32 *id = &device.id;

	(void)unused;
	while (!atomic_load(&stop)) {
		*id = 1;
		*id = 0;
	}
	return NULL;
}

/* Devices of the first card that become the second's, and memory of each. */
static void swap_card(u64 size, u32 count)
{
	pthread_t thread;
	u32 devices = 0, granted = 0, i;

	if (open("/dev/nvidia1", O_RDWR) < 0)
		die("nvidia1", errno);
	pthread_create(&thread, NULL, swap_ids, NULL);
	for (i = 0; i < count; i++) {
		struct nv_memory_alloc params = { .owner = sc.client, .size = size };
		u32 parent = FIRST + 2 * i, memory = parent + 1;

		if (sc_rm_alloc_in(&sc, sc.client, sc.client, &parent, 0x80, &device,
				   sizeof(device)))
			continue;
		devices++;
		granted += !sc_rm_alloc_in(&sc, sc.client, parent, &memory, 0x40, &params,
					   sizeof(params));
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	printf("devices %u granted %u\n", devices, granted);
}

/* Calls that could go on, were it not for what another thread would make of them. */
static void harmless(u32 count)
{
	u32 params[4] = { 0 }; /* BUS_GET_PCI_INFO */
	struct nv_xfer xfer = { 0x2a, sizeof(struct nvos54), 0 };
	u32 i;

	for (i = 0; i < count; i++) {
		struct nvos54 args = { .hClient = sc.client, .hObject = sc.subdevice,
				       .cmd = 0x20801801, .params = (u64)(uintptr_t)params,
				       .paramsSize = sizeof(params) };

		xfer.ptr = (u64)(uintptr_t)&args;
		if (i & 1)
			ioctl(sc.ctl, _IOWR('F', 0xd3, struct nv_xfer), &xfer);
		else
			ioctl(sc.ctl, _IOWR('F', 0x2a, struct nvos54), &args);
	}
	printf("calls %u\n", count);
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";
	struct sc_options options = { 0 };
	int ret = sc_open(&sc, 0, &options);

	if (ret)
		die("open", ret);
	if (getenv("HEIR") && !fork()) {
		for (ret = 0; ret < 3; ret++)
			close(ret);
		pause();
	}
	if (!strcmp(command, "params") && argc == 4)
		hidden_params(strtoul(argv[2], NULL, 0), strtoull(argv[3], NULL, 0));
	else if (!strcmp(command, "control"))
		hidden_control();
	else if (!strcmp(command, "other-files"))
		other_files();
	else if (!strcmp(command, "swap-descriptor") && argc == 4)
		swap_descriptor(strtoull(argv[2], NULL, 0), atoi(argv[3]));
	else if (!strcmp(command, "named-client"))
		named_client();
	else if (!strcmp(command, "hide-dmabuf") && argc == 3)
		hide_dmabuf(strtoull(argv[2], NULL, 0));
	else if (!strcmp(command, "swap-class") && argc == 4)
		swap_class(strtoull(argv[2], NULL, 0), atoi(argv[3]));
	else if (!strcmp(command, "swap-card") && argc == 4)
		swap_card(strtoull(argv[2], NULL, 0), strtoul(argv[3], NULL, 0));
	else if (!strcmp(command, "harmless") && argc == 3)
		harmless(strtoul(argv[2], NULL, 0));
	else
		die("unknown command", 0);
	fflush(stdout);
	if (getenv("HOLD"))
		pause();
	return 0;
}
