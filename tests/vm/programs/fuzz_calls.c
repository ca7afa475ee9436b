/* SPDX-License-Identifier: MIT */
/*
 * A tenant's calls, valid and broken, from several threads that share files,
 * handles and the arguments themselves. Nothing here may harm the host: that
 * is what the test is about. What comes back is only counted.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CALLS = 8, /* that are judged together */
	FIRST_FD = 3,
	LAST_FD = 40,
	ARGUMENT_BYTES = 16 << 10,
	PARAMS_BYTES = 64 << 10,
	AREAS = 8,
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NUMBER(pointer) ((u64)(uintptr_t)(pointer))

static struct pool *pool;
static struct sc sc;
/* Written by every thread while the kernel reads it. */
static u8 shared_argument[ARGUMENT_BYTES];
static u8 shared_params[PARAMS_BYTES];
static struct { void *at; size_t bytes; } areas[AREAS];
static u32 memories[8]; /* that were had last */
static pid_t tids[THREADS];
static u8 *edge; /* a page, and none behind it */

static const u32 classes[] = {
	0x00, 0x01, 0x02, 0x05, 0x3e, 0x3f, 0x40, 0x41, 0x42, 0x70, 0x71, 0x76, 0x79, 0x80, 0x81,
	0x82, 0x83, 0xc2, 0xf3, 0xda, 0xde, 0x2080, 0x2081, 0x50a0, 0x83de, 0x9067, 0x90f1, 0x90cd,
	0x90ce, 0xa06c, 0xc36f, 0xc46f, 0xc56f, 0xc361, 0xc3c0, 0xc3b5, 0x40, 0x40, 0x40, 0x3e,
};

static const u32 controls[] = {
	0x101, 0x205, 0x214, 0x215, 0x3d05, 0x3d06, 0x3d0b, 0x3d0c, 0xd04, 0x0080170f, 0x00801711,
	0x00801712, 0x00800201, 0x00800292, 0x00410110, 0x2080012c, 0x2080018d, 0x2080018e,
	0x2080110b, 0x20801110, 0x20801115, 0x20801117, 0x20801121, 0x20801210, 0x20801231,
	0x20801238, 0x20801301, 0x20801303, 0x20800110, 0x20800123, 0x2080014a, 0x20801802,
	0x20800101, 0x20801201, 0x90cd0101, 0x90cd0104, 0xa06c0101, 0xa06c0103, 0xa06c0104,
	0xa06c0105, 0xa06c0107, 0xa06c0110, 0xa06f0103, 0xa06f0109, 0xa06f0111, 0xc36f0108,
};

static const u32 control_bytes[] = { 0, 2, 2, 2, 4, 8, 8, 12, 16, 24, 40, 56, 132, 268 };

static const u32 escapes[] = {
	0x27, 0x28, 0x29, 0x2a, 0x2b, 0x34, 0x35, 0x41, 0x4a, 0x4d, 0x4e, 0x4f, 0x52, 0x54, 0x57,
	0x58, 0x59, 0x5c, 0x5d, 0x5e, 200, 201, 206, 207, 209, 210, 211, 212, 213, 214, 215, 216,
	217, 218, 219,
};

static const u32 escape_bytes[] = { 0, 4, 8, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 184, 560,
				    2600, 2608, 4096, 16383 };

/* All that a driver serves (tests/host/test_fuzz_calls.py), and what takes memory twice. */
static const u32 uvm_commands[] = {
	23, 24, 25, 26, 27, 28, 29, 30, 31, 33, 33, 34, 34, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46,
	47, 51, 51, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 68, 69, 70, 71,
	72, 73, 73, 74, 75, 76, 77, 78, 79, 80, 0x30000001, 0x30000002,
};

static const u64 sizes_bytes[] = {
	0, 1, 4096, 65536, 1 << 20, 3 << 20, 64 << 20, 1ull << 32, 1ull << 40, 1ull << 63,
	UINT64_MAX, UINT64_MAX - 4095,
};

#define PICK(random, array) ((array)[below(random, COUNT(array))])

/* ------------------------------------------------------------ ingredients */

static u32 some_client(struct random *random)
{
	u32 other = atomic_load(&pool->client[below(random, POOL_CLIENTS)]);

	return below(random, 8) ? sc.client : other;
}

static u32 some_handle(struct random *random)
{
	const u32 own[] = { sc.client, sc.device, sc.subdevice, sc.vaspace, sc.userd,
			    sc.usermode, sc.group[0], sc.group[1], sc.channel[0], sc.channel[9] };

	switch (below(random, 8)) {
	case 0: return random_u64(random);
	case 1: return 0;
	case 2: return PICK(random, own);
	case 3: case 4: return PICK(random, memories);
	default: return atomic_load(&pool->handle[below(random, POOL_HANDLES)]);
	}
}

static u32 some_parent(struct random *random)
{
	return below(random, 4) ? sc.device : some_handle(random);
}

static void remember(struct random *random, u32 handle)
{
	atomic_store(&pool->handle[below(random, POOL_HANDLES)], handle);
}

static int some_fd(struct random *random)
{
	return FIRST_FD + below(random, LAST_FD - FIRST_FD);
}

static u64 some_size(struct random *random)
{
	return below(random, 4) ? (u64)(1 + below(random, 64)) << 16 : PICK(random, sizes_bytes);
}

static u64 some_address(struct random *random)
{
	u32 index = below(random, AREAS);

	switch (below(random, 8)) {
	case 0: return random_u64(random);
	case 1: return NUMBER(edge) + 4096 - below(random, 64);
	case 2: return 0xffff888000000000ull + (random_u64(random) & 0xfffff000);
	case 3: return sc.next_va - ((u64)below(random, 16) << 20);
	default: return NUMBER(areas[index].at) + (below(random, 3) ? 0 :
			((u64)below(random, 16) << 12));
	}
}

/* A word that is sometimes what the place it stands in expects. */
static u32 some_word(struct random *random)
{
	switch (below(random, 8)) {
	case 0: return sc.client;
	case 1: return some_handle(random);
	case 2: return some_fd(random);
	case 3: return some_size(random);
	case 4: return random_u64(random);
	case 5: return below(random, 8);
	default: return 0;
	}
}

static void *some_params(struct random *random, u32 bytes)
{
	u32 *params = (u32 *)shared_params, index;

	for (index = 0; index < (bytes < 256 ? bytes : 256) / 4; index++)
		params[index] = some_word(random);
	switch (below(random, 12)) {
	case 0: return NULL;
	case 1: return edge + 4096 - below(random, 64);
	case 2: return (void *)some_address(random);
	default: return shared_params;
	}
}

static int throw(int fd, unsigned long request, void *argument)
{
	int ret = ioctl(fd, request, argument);

	atomic_fetch_add(&totals->calls, 1);
	return ret;
}

/*
 * Allocations and mappings: of those that the tenant has to make itself, the driver reads the
 * argument after the door has looked at it.
 */
static bool goes_on(u32 number)
{
	return door_lets_calls_go_on() && (number == 0x27 || number == 0x28 || number == 0x2b ||
					   number == 0x4e);
}

/*
 * From private memory, from memory that is written meanwhile, from the end of
 * what is mapped, or wrapped, which never goes on; with its size, or another.
 */
static void escape(struct random *random, int fd, u32 number, void *argument, u32 bytes,
		   u32 status_at)
{
	u32 told = below(random, 24) ? bytes : PICK(random, escape_bytes);
	bool wraps = !below(random, 6);
	void *from = argument;
	int ret;

	if (!wraps && goes_on(number))
		; /* nobody changes it meanwhile */
	else if (!below(random, 4))
		from = memcpy(shared_argument, argument, bytes);
	else if (!below(random, 32))
		from = (void *)some_address(random);
	else if (bytes <= 4096 && !below(random, 32))
		from = (u8 *)memcpy(edge + 4096 - bytes, argument, bytes) + below(random, 2);
	if (wraps) {
		struct nv_xfer wrapped = { number, told, NUMBER(from) };

		if (!below(random, 8))
			wrapped.cmd = random_u64(random);
		if (!below(random, 8))
			wrapped.size = random_u64(random);
		ret = throw(fd, _IOWR('F', 211, struct nv_xfer), &wrapped);
	} else {
		ret = throw(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', number, told), from);
	}
	if (!ret && from == argument && told == bytes && status_at < bytes &&
	    !*(u32 *)((u8 *)argument + status_at))
		atomic_fetch_add(&totals->granted, 1);
}

/* ------------------------------------------------------------------- calls */

static void fill_memory(struct random *random, struct nv_memory_alloc *memory)
{
	*memory = (struct nv_memory_alloc){ .owner = sc.client, .size = some_size(random) };
	if (!below(random, 4))
		memory->attr = random_u64(random);
	if (!below(random, 8))
		memory->attr2 = random_u64(random);
	if (!below(random, 4))
		memory->hVASpace = sc.vaspace;
	/* where it is to lie: of the driver's flags one or two, an alignment, a range */
	if (!below(random, 4))
		memory->flags = 1u << below(random, 32) | (below(random, 2) ? 0 : 1u << below(random, 32));
	if (!below(random, 4))
		memory->alignment = 1ull << below(random, 40);
	if (!below(random, 8)) {
		memory->offset = some_size(random);
		memory->rangeLo = below(random, 2) ? 0 : some_size(random);
		memory->rangeHi = some_size(random);
	}
}

static void allocate(struct random *random)
{
	u32 class = PICK(random, classes), handle = below(random, 4) ? 0x5d000000 +
		    below(random, 1 << 16) : some_handle(random);
	struct nv_memory_alloc memory;
	struct nvos64 wide = {
		.hRoot = some_client(random), .hObjectParent = some_parent(random),
		.hObjectNew = handle, .hClass = class,
	};

	if (class == 0x40 || class == 0x3e || class == 0x50a0) {
		fill_memory(random, &memory);
		wide.pAllocParms = NUMBER(&memory);
	} else {
		wide.pAllocParms = NUMBER(some_params(random, 512));
	}
	if (!below(random, 16))
		wide.paramsSize = below(random, 1024);
	if (below(random, 4)) {
		escape(random, sc.ctl, 0x2b, &wide, sizeof(wide), offsetof(struct nvos64, status));
		handle = wide.hObjectNew;
	} else {
		struct nvos21 narrow = { wide.hRoot, wide.hObjectParent, handle, class,
					 wide.pAllocParms, wide.paramsSize, 0 };

		escape(random, sc.ctl, 0x2b, &narrow, sizeof(narrow),
		       offsetof(struct nvos21, status));
	}
	if (class == 0x41)
		atomic_store(&pool->client[below(random, POOL_CLIENTS)], wide.hObjectNew);
	remember(random, handle);
}

/* One more of a context's objects, as CUDA makes it, but for its handle and sometimes a word. */
static void one_more(struct random *random)
{
	u32 params[92] = { 0 }, bytes = 4;
	struct nvos64 call = {
		.hRoot = sc.client, .hObjectParent = sc.device, .pAllocParms = NUMBER(params),
		.hObjectNew = below(random, 2) ? 0x5d000000 + below(random, 1 << 16) :
						 some_handle(random),
	};

	switch (below(random, 8)) {
	case 0:
		call.hClass = 0x41;
		call.hRoot = call.hObjectParent = 0;
		break;
	case 1:
		call.hClass = 0x80;
		call.hObjectParent = sc.client;
		params[0] = sc.device_instance;
		params[1] = sc.client;
		params[12] = 2; /* no address space of its own */
		bytes = 56;
		break;
	case 2:
		call.hClass = 0x2080;
		break;
	case 3:
		call.hClass = 0x90f1;
		bytes = 56;
		break;
	case 4:
		call.hClass = 0xa06c;
		params[2] = sc.vaspace;
		params[3] = below(random, 3); /* an engine */
		bytes = 20;
		break;
	case 5:
		call.hClass = 0x9067;
		call.hObjectParent = sc.group[0];
		params[0] = sc.vaspace;
		params[1] = 1;
		bytes = 12;
		break;
	case 6:
		call.hClass = sc.channel_class;
		call.hObjectParent = below(random, 2) ? sc.group[0] : some_handle(random);
		params[4] = 1024;
		params[7] = sc.vaspace;
		params[8] = sc.userd;
		params[32] = 1; /* the engine */
		bytes = sizeof(params);
		break;
	default:
		call.hClass = 0x3e;
		params[0] = sc.client;
		params[6] = 1 << 25; /* pages of the host */
		params[16] = 1 << 16;
		bytes = 128;
	}
	if (!below(random, 4))
		params[below(random, bytes / 4)] = some_word(random);
	escape(random, sc.ctl, 0x2b, &call, sizeof(call), offsetof(struct nvos64, status));
	if (call.hClass == 0x41)
		atomic_store(&pool->client[below(random, POOL_CLIENTS)], call.hObjectNew);
	remember(random, call.hObjectNew);
}

/* The same channel again, by its own handle or another. */
static void renew(struct random *random)
{
	if (sc.rings)
		sc_renew(&sc, below(random, SC_GR_CHANNELS), below(random, 2));
}

static void release(struct random *random)
{
	u32 handle = some_handle(random);
	/* its own client goes seldom, or there is little to free */
	struct nvos00 free = { some_client(random), sc.device, handle, 0 };

	if ((handle == sc.client || handle == sc.device) && below(random, 32))
		return;
	escape(random, sc.ctl, 0x29, &free, sizeof(free), offsetof(struct nvos00, status));
}

static void control(struct random *random)
{
	u32 bytes = below(random, 2) ? PICK(random, control_bytes) :
		    below(random, 4) ? below(random, 600) : below(random, PARAMS_BYTES);
	struct nvos54 call = {
		.hClient = some_client(random), .hObject = some_handle(random),
		.cmd = below(random, 16) ? PICK(random, controls) : (u32)random_u64(random),
		.flags = below(random, 8) ? 0 : below(random, 16),
		.params = NUMBER(some_params(random, bytes)), .paramsSize = bytes,
	};

	switch (call.cmd >> 16) {
	case 0: call.hObject = sc.client; break;
	case 0x0080: call.hObject = sc.device; break;
	case 0x2080: call.hObject = sc.subdevice; break;
	case 0xa06c: call.hObject = sc.group[below(random, 2)]; break;
	case 0xa06f: case 0xc36f: call.hObject = sc.channel[below(random, SC_CHANNELS)]; break;
	}
	if (call.cmd == 0x20801303)
		call.paramsSize = below(random, 2) ? 444 : 1028;
	escape(random, sc.ctl, 0x2a, &call, sizeof(call), offsetof(struct nvos54, status));
}

static void duplicate(struct random *random)
{
	u32 handle = 0x5e000000 + below(random, 1 << 16);
	struct nvos55 call = { sc.client, some_parent(random), handle, some_client(random),
			       some_handle(random), below(random, 4), 0 };

	escape(random, sc.ctl, 0x34, &call, sizeof(call), offsetof(struct nvos55, status));
	remember(random, handle);
}

static void share(struct random *random)
{
	struct nvos57 call = { .hClient = some_client(random), .hObject = some_handle(random),
			       .target = some_client(random), .accessMask = below(random, 4),
			       .type = below(random, 9), .action = below(random, 3) };

	escape(random, sc.ctl, 0x35, &call, sizeof(call), offsetof(struct nvos57, status));
}

static void heap(struct random *random)
{
	static const u32 functions[] = { 2, 3, 5, 6, 11, 14, 18, 19, 20, 27 };
	struct nvos32 call = { .hRoot = some_client(random), .hObjectParent = some_parent(random),
			       .function = below(random, 8) ? PICK(random, functions) :
							      (u32)random_u64(random) };
	u32 index;

	for (index = 0; index < sizeof(call.data) / 4; index++)
		if (!below(random, 4))
			((u32 *)call.data)[index] = some_word(random);
	escape(random, sc.ctl, 0x4a, &call, sizeof(call), offsetof(struct nvos32, status));
}

static void map_memory(struct random *random)
{
	struct nvos33_fd call = { .hClient = some_client(random), .hDevice = sc.device,
				  .hMemory = some_handle(random), .length = some_size(random),
				  .offset = below(random, 4) ? 0 : some_size(random),
				  .flags = below(random, 4), .fd = some_fd(random) };
	u32 index = below(random, AREAS);
	void *at;

	escape(random, sc.ctl, 0x4e, &call, sizeof(call), offsetof(struct nvos33_fd, status));
	at = mmap(NULL, call.length, PROT_READ | PROT_WRITE, MAP_SHARED, call.fd, 0);
	if (at == MAP_FAILED)
		return;
	atomic_fetch_add(&totals->maps, 1);
	*(volatile u8 *)at = 1;
	areas[index].at = at;
	areas[index].bytes = call.length;
}

static void old_memory(struct random *random)
{
	struct nvos02_fd call = { .hRoot = some_client(random),
				  .hObjectParent = some_parent(random),
				  .hObjectNew = 0x5f000000 + below(random, 4096),
				  .hClass = PICK(random, classes), .flags = random_u64(random),
				  .pMemory = some_address(random), .limit = some_size(random),
				  .fd = some_fd(random) };

	escape(random, sc.gpu, 0x27, &call, sizeof(call), offsetof(struct nvos02_fd, status));
	remember(random, call.hObjectNew);
}

/* Any number, of any size. */
static void any_escape(struct random *random)
{
	u8 argument[16384];
	u32 bytes = PICK(random, escape_bytes), index;
	u32 number = below(random, 3) ? PICK(random, escapes) : below(random, 256);

	for (index = 0; index < sizeof(argument) / 4; index++)
		((u32 *)argument)[index] = index < 64 ? some_word(random) : 0;
	escape(random, below(random, 2) ? sc.gpu : some_fd(random), number, argument, bytes, ~0u);
}

static void uvm(struct random *random)
{
	static _Thread_local u64 argument[9264 / 8 + 64];
	u32 command = below(random, 32) ? PICK(random, uvm_commands) : (u32)random_u64(random);
	u32 index, tail = 24 + (below(random, 2) ? 32 : 256) * 36;

	memset(argument, 0, sizeof(argument));
	if (below(random, 2)) {
		argument[0] = some_address(random);
		argument[1] = some_size(random);
		memcpy(&argument[below(random, 2) + 2], sc.uuid, 16);
	} else {
		memcpy(argument, sc.uuid, 16);
		for (index = 4; index < 16; index++)
			((u32 *)argument)[index] = some_word(random);
	}
	if (command == 33) {
		memcpy(&argument[3], sc.uuid, 16);
		argument[tail / 8] = 1;
		((u32 *)argument)[tail / 4 + 2] = sc.ctl;
		((u32 *)argument)[tail / 4 + 3] = sc.client;
		((u32 *)argument)[tail / 4 + 4] = some_handle(random);
	}
	throw(sc.uvm, command, below(random, 16) ? argument : (void *)some_address(random));
}

/* As CUDA does it, and in this order: what the rest is thrown at. */
static void as_cuda(struct random *random)
{
	u64 bytes = (u64)(1 + below(random, 48)) << 16, bytes_free, total;
	int channel = below(random, SC_CHANNELS), fd = -1;
	struct sc_mem memory = { 0 }, twin = { 0 };

	if (sc_malloc(&sc, bytes, &memory))
		return;
	remember(random, memory.handle);
	PICK(random, memories) = memory.handle;
	sc_mem_info(&sc, &bytes_free, &total);
	if (!below(random, 4) && !sc_export(&sc, &memory, &fd)) {
		sc_import(&sc, fd, &twin);
		close(fd);
	}
	if (!below(random, 4) && !sc_dmabuf(&sc, &memory, &fd) && fd > LAST_FD)
		close(fd);
	if (sc.rings && sc_enqueue(&sc, channel, 1000 * (1 + below(random, 2000))))
		sc_ring(&sc, channel);
	if (below(random, 4))
		sc_free(&sc, &memory);
}

static void managed(struct random *random)
{
	size_t bytes = (1 + below(random, 64)) << 16;
	u32 index = below(random, AREAS);
	u8 *at = sc_managed(&sc, bytes);

	if (!at)
		return;
	atomic_fetch_add(&totals->maps, 1);
	at[below(random, bytes)] = 1;
	sc_prefetch(&sc, at, bytes, below(random, 2));
	areas[index].at = at;
	areas[index].bytes = bytes;
	/* what is mapped keeps the file open */
	if (!below(random, 16))
		close(sc.uvm);
}

/* Cuts, moves or takes away what some thread has mapped. */
static void unmap(struct random *random)
{
	u32 index = below(random, AREAS);
	u8 *at = areas[index].at;
	size_t bytes = areas[index].bytes & ~4095ul, part;

	if (!at || !bytes)
		return;
	part = (1 + random_u64(random) % (bytes >> 12)) << 12;
	switch (below(random, 6)) {
	case 0: munmap(at, bytes); break;
	case 1: munmap(at + bytes - part, part); break;
	case 2: mremap(at, bytes, part, MREMAP_MAYMOVE); break;
	case 3: madvise(at, part, below(random, 2) ? MADV_DONTNEED : MADV_DONTFORK); break;
	case 4: mprotect(at, part, below(random, 4)); break;
	default:
		mmap(at, part, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
		     -1, 0);
	}
}

static void files(struct random *random)
{
	static const char *const paths[] = { "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1",
					     "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools" };
	int fd = some_fd(random), other = some_fd(random), opened;
	u32 words[2] = { other, 0 };

	switch (below(random, 8)) {
	case 0: close(fd); break;
	case 1: dup2(fd, other); break;
	case 2: throw(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', 201, 4), words); break;
	case 3: throw(fd, 75, words); break;
	default:
		opened = open(PICK(random, paths), O_RDWR | (below(random, 2) ? O_CLOEXEC : 0));
		if (opened > LAST_FD) {
			dup2(opened, fd);
			close(opened);
		}
	}
}

/* A sibling's file, whatever it is: as a descriptor that came by a socket. */
static void borrow(struct random *random)
{
	int pidfd = syscall(SYS_pidfd_open, 2 + below(random, 20), 0);
	int got = pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, some_fd(random), 0);

	if (got >= 0)
		dup2(got, some_fd(random));
	if (got > LAST_FD)
		close(got);
	if (pidfd >= 0)
		close(pidfd);
}

/* Some thread's call, or a page fault, ends early, or begins again. */
static void interrupt(struct random *random)
{
	syscall(SYS_tgkill, getpid(), tids[below(random, THREADS)], SIGUSR1);
}

static void scribble(struct random *random)
{
	u32 count = 1 + below(random, 200);

	while (count--) {
		((volatile u32 *)shared_argument)[below(random, 64)] = some_word(random);
		((volatile u32 *)shared_params)[below(random, 256)] = some_word(random);
	}
}

static void one_call(struct random *random)
{
	static void (*const calls[])(struct random *) = {
		allocate, allocate, allocate, one_more, one_more, one_more, renew, release, release, control, control,
		control, duplicate, share, heap, heap, map_memory, old_memory, any_escape,
		any_escape, uvm, uvm, as_cuda, as_cuda, as_cuda, managed, unmap, unmap, files,
		borrow, interrupt, scribble,
	};

	PICK(random, calls)(random);
}

/* ----------------------------------------------------------------- threads */

/* A child shares files and what is mapped; it inherits no mapping of ours. */
static void child(struct random *random)
{
	pid_t pid = fork();
	int count;

	if (!pid) {
		struct random own = seeded(random_u64(random));

		for (count = below(&own, 20); count; count--)
			one_call(&own);
		if (!below(&own, 4))
			execl("/proc/self/exe", "fuzz", (char *)NULL);
		_exit(0);
	}
	if (pid > 0 && below(random, 2))
		kill(pid, SIGKILL);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static void hear(int signal)
{
	(void)signal;
}

struct thread {
	u64 seed;
	u32 index;
};

static void *run(void *data)
{
	const struct thread *thread = data;
	struct random random = seeded(thread->seed);

	coverage_thread(thread->index);
	tids[thread->index % THREADS] = gettid();
	for (;;) {
		u64 bytes_free, total;
		u32 round, count;

		for (round = 0; round < 25; round++) {
			coverage_begin(&random);
			for (count = 0; count < CALLS; count++)
				one_call(&random);
			coverage_end(&random);
		}
		child(&random);
		/* it has its descriptors for itself; or is gone, the first one, too */
		if (!below(&random, 16))
			unshare(CLONE_FILES);
		if (!below(&random, 16))
			pthread_exit(NULL);
		/* its client or its files are gone: another process has them */
		if (sc_mem_info(&sc, &bytes_free, &total))
			_exit(0);
	}
	return NULL;
}

void fuzz_tenant(u64 seed, struct pool *of_container, u32 first_thread)
{
	static struct thread threads[THREADS];
	struct random random = seeded(seed);
	static const int heaps[] = { 0, 0, 0, 2, 6, 14 };
	struct sc_options options = {
		.old_alloc = !below(&random, 4), .xfer = !below(&random, 4),
		.by_channel = !below(&random, 2), .any_engine = !below(&random, 8),
		.video_userd = !below(&random, 2), .free_userd = !below(&random, 8),
		.heap = PICK(&random, heaps),
	};
	struct sigaction heard = { .sa_handler = hear };
	pthread_t thread;
	u32 number;

	pool = of_container;
	sigaction(SIGUSR1, &heard, NULL);
	edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(edge + 4096, 4096, PROT_NONE);
	/* whatever of this the container does not get, the calls are thrown all the same */
	if (!sc_open(&sc, below(&random, 2), &options)) {
		if (below(&random, 4))
			sc_context(&sc);
		atomic_store(&pool->client[below(&random, POOL_CLIENTS)], sc.client);
	}
	for (number = 0; number < THREADS; number++) {
		threads[number].seed = random_u64(&random);
		threads[number].index = first_thread + number;
		if (number)
			pthread_create(&thread, NULL, run, &threads[number]);
	}
	run(&threads[0]);
	_exit(0);
}
