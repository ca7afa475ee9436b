/* SPDX-License-Identifier: MIT */
/*
 * What happens when the kernel finds no memory, or a page is not there: each call has its
 * first allocation or copy fail, then its second, and so on until none is left to fail
 * (/proc/thread-self/fail-nth, of a kernel with CONFIG_FAULT_INJECTION).
 *
 * After each it is asked what the simulated driver holds and what the module has charged.
 * A line each of what was called: which number failed first and last, and how often the
 * call failed. Exit status 1: something else came of one; standard error says what.
 */
#define _GNU_SOURCE
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum {
	NV_ESC_RM_MAP_MEMORY_DMA = 87,
	NV_ESC_REGISTER_FD = 201,
	NV_ESC_ALLOC_OS_EVENT = 206,
	NV_ESC_FREE_OS_EVENT = 207,
	UVM_REGISTER_GPU = 37,
	UVM_MM_INITIALIZE = 75,
	UVM_INITIALIZE = 0x30000001,
	GRAPHICS = 1,
	COPY_ENGINE = 9,
	ENGINE_TYPE = 128,         /* in NV_CHANNEL_ALLOC_PARAMS */
	BYTES = 3 << 20,
	MOST = 5000,
	WITHIN_S = 20,
	OF_INIT = 200,             /* no module of ours allocates more when it is loaded */
};

static struct sc sc;
static const char *stat_path;     /* of the container; NULL: none is asked */
static bool watch_gates;
static int nth = -1;
static int wrong;

static void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "starve: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	wrong = 1;
}

static void die(const char *what, int ret)
{
	fprintf(stderr, "starve: %s: %d (%s)\n", what, ret, strerror(errno));
	exit(2);
}

/* ------------------------------------------------------------------ failures */

/* By whoever will call: a thread's own. */
static void find_nth(void)
{
	nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (nth < 0)
		die("fail-nth", errno);
}

static void arm(int number)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%d", number);

	if (pwrite(nth, text, length, 0) != length)
		die("fail-nth", errno);
}

/* Return: true: something has failed. What tells it copies, and may be what fails. */
static bool disarm(void)
{
	char text[16] = "";
	bool failed = pread(nth, text, sizeof(text) - 1, 0) > 0 && !atoi(text);

	while (pwrite(nth, "0", 1, 0) != 1)
		;
	return failed;
}

/* -------------------------------------------------------------------- figures */

static size_t read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got;

	if (fd < 0)
		die(path, errno);
	while (length < size - 1 && (got = read(fd, text + length, size - 1 - length)) > 0)
		length += got;
	close(fd);
	text[length] = '\0';
	return length;
}

static char text[64 << 10];

/* Video memory that the simulated driver counts as taken. */
static long long used_bytes(void)
{
	long long total, free;
	char *line;

	read_file("/proc/driver/nvidia-sim", text, sizeof(text));
	line = strstr(text, "card 0 ");
	if (!line || sscanf(line, "card 0 model %*s total %lld free %lld", &total, &free) != 2)
		die("nvidia-sim", 0);
	return total - free;
}

static long long charged_bytes(void)
{
	long long bytes;
	char *line;

	read_file(stat_path, text, sizeof(text));
	line = strstr(text, "current_bytes ");
	if (!line || sscanf(line, "current_bytes %lld", &bytes) != 1)
		die("current_bytes", 0);
	return bytes;
}

/* What the driver holds and nobody is charged for: it may not grow. */
static long long uncharged_bytes(void)
{
	/* first: what goes in between was charged as long as it was there */
	long long charged = stat_path ? charged_bytes() : 0;

	return stat_path ? used_bytes() - charged : 0;
}

/* Channels that may compute: of those that are scheduled, who is not shut. */
static int ungated(void)
{
	unsigned int engine, scheduled, shut;
	int count = 0;
	char *line;

	read_file("/proc/driver/nvidia-sim", text, sizeof(text));
	for (line = text; (line = strstr(line, "\n group ")); line++) {
		if (sscanf(line, "\n group %*u slice_us %*u busy_ns %*u channels %*u interleave %*u "
			   "engine %u scheduled %u shut %u", &engine, &scheduled, &shut) != 3)
			die("nvidia-sim", 1);
		if (engine < COPY_ENGINE)
			count += scheduled - shut;
	}
	return count;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Of a container that is kept shut but for a moment a minute. */
static bool gated_soon(void)
{
	double end_s = seconds() + WITHIN_S;

	while (ungated()) {
		if (seconds() > end_s)
			return false;
		usleep(20000);
	}
	return true;
}

/* --------------------------------------------------------------------- calls */

/* One kind. What is prepared, and undone, has all the memory that it wants. */
struct call {
	const char *name;
	int (*call)(void);              /* 0: done */
	void (*undo)(void);             /* also of what failed */
	int (*prepare)(void);
	void (*check)(void);            /* of what did not fail */
};

/* So much is not charged before the call, and while what it made is there. */
static long long without, with;

/* Return: true: nothing was left to fail. */
static bool try(const struct call *call, int number, int *failures)
{
	bool failed;
	int ret = call->prepare ? call->prepare() : 0;

	if (ret) {
		complain("%s, %d: cannot be prepared any more: %d", call->name, number, ret);
		return true;
	}
	arm(number);
	ret = call->call();
	failed = disarm();
	*failures += !!ret;
	if (!ret && call->check)
		call->check();
	if (!failed && ret)
		complain("%s, %d: nothing failed, but it does not work: %d", call->name, number,
			 ret);
	if (uncharged_bytes() > with)
		complain("%s, %d: %lld bytes are not charged, of %lld: %d", call->name, number,
			 uncharged_bytes(), with, ret);
	if (watch_gates && !gated_soon())
		complain("%s, %d: %d channels may run: %d", call->name, number, ungated(), ret);
	if (call->undo)
		call->undo();
	if (uncharged_bytes() > without)
		complain("%s, %d: %lld bytes are left, of %lld: %d", call->name, number,
			 uncharged_bytes(), without, ret);
	return !failed;
}

/* How much can fail: it is not known beforehand, and the same every time but for some. */
static int count_of(const struct call *call)
{
	int none = 0, all = 1, middle, failures;

	for (; !try(call, all, &failures); all *= 2)
		none = all;
	while (all - none > 1) {
		middle = (none + all) / 2;
		*(try(call, middle, &failures) ? &all : &none) = middle;
	}
	return none;
}

/* `last`: of what can fail, that much; 0: all. */
static void starve_last(const struct call *call, int last)
{
	int number, first = 1, failures = 0, ret;

	without = uncharged_bytes();
	/* what the driver takes for it unseen is taken without a failure too */
	ret = call->prepare ? call->prepare() : 0;
	if (!ret)
		ret = call->call();
	if (ret)
		die(call->name, ret);
	with = uncharged_bytes();
	if (call->undo)
		call->undo();
	with = with > without ? with : without;
	if (last)
		first = count_of(call) - last + 1;
	number = first = first > 1 ? first : 1;
	while (!try(call, number, &failures) && number++ < MOST)
		;
	printf("%s from %d to %d failed %d\n", call->name, first, number, failures);
	fflush(stdout);
}

static void starve(const struct call *call)
{
	starve_last(call, 0);
}

/* -------------------------------------------------------------- what is called */

static int fd = -1, other_fd = -1;
static u32 handle, client, device;
static struct sc_mem memory, twin;
static void *at;

static void close_fd(void)
{
	if (fd >= 0)
		close(fd);
	if (other_fd >= 0)
		close(other_fd);
	fd = other_fd = -1;
}

static int open_at(const char *path)
{
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : 0;
}

static int open_control(void)
{
	return open_at("/dev/nvidiactl");
}

static int open_card(void)
{
	return open_at("/dev/nvidia0");
}

static int open_uvm(void)
{
	return open_at("/dev/nvidia-uvm");
}

static int close_it(void)
{
	int ret = close(fd);

	fd = -1;
	return ret;
}

static int open_files(void)
{
	other_fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	return open_card();
}

static int register_fd(void)
{
	return ioctl(fd, _IOC(3, 'F', NV_ESC_REGISTER_FD, 4), &other_fd) ? -errno : 0;
}

static int make_client(void)
{
	client = 0;
	return sc_rm_alloc_client(&sc, &client);
}

static void free_client(void)
{
	if (client)
		sc_rm_free(&sc, client, client);
	client = 0;
}

static int make_device(void)
{
	struct { u32 deviceId, rest[13]; } params = { .deviceId = sc.device_instance };

	device = 0x5d000001;
	return sc_rm_alloc_in(&sc, client, client, &device, 0x80, &params, sizeof(params));
}

static int make_client_and_device(void)
{
	return make_client() ?: make_device();
}

static int make_subdevice(void)
{
	u32 zero = 0;

	handle = 0x5d000002;
	return sc_rm_alloc_in(&sc, client, device, &handle, 0x2080, &zero, sizeof(zero));
}

static int fresh_handle(void)
{
	handle = sc.next_handle++;
	return 0;
}

/* A name of the caller's choice is freed whatever came of it. */
static void free_handle(void)
{
	sc_rm_free(&sc, sc.client, handle);
}

static int make_vaspace(void)
{
	struct { u32 index, flags; u64 rest[6]; } params = { 0 };

	return sc_rm_alloc(&sc, sc.device, &handle, 0x90f1, &params, sizeof(params));
}

static int make_usermode(void)
{
	return sc_rm_alloc(&sc, sc.subdevice, &handle, sc.usermode_class, NULL, 0);
}

static int make_memory(void)
{
	return sc_mem_alloc(&sc, BYTES, &memory);
}

static void free_memory(void)
{
	sc_mem_free(&sc, &memory);
	memset(&memory, 0, sizeof(memory));
}

static int make_memory_by(int function)
{
	int ret;

	sc.opt.heap = function;
	ret = make_memory();
	sc.opt.heap = 0;
	return ret;
}

static int make_memory_by_heap(void)
{
	return make_memory_by(2);
}

static int make_memory_tiled(void)
{
	return make_memory_by(6);
}

static int make_memory_wrapped(void)
{
	int ret;

	sc.opt.xfer = true;
	ret = make_memory();
	sc.opt.xfer = false;
	return ret;
}

static int make_memory_old(void)
{
	int ret;

	sc.opt.old_alloc = true;
	ret = make_memory();
	sc.opt.old_alloc = false;
	return ret;
}

static int make_system_memory(void)
{
	struct nv_memory_alloc params = { .owner = sc.client, .attr = 1u << 25,
					  .size = BYTES };

	return sc_rm_alloc(&sc, sc.device, &handle, 0x3e, &params, sizeof(params));
}

static int release_memory(void)
{
	return sc_mem_free(&sc, &memory);
}

static int duplicate(void)
{
	return sc_rm_dup(&sc, sc.client, sc.device, &handle, sc.client, memory.handle);
}

static int prepare_duplicate(void)
{
	return make_memory() ?: fresh_handle();
}

static void undo_duplicate(void)
{
	free_handle();
	free_memory();
}

static int share(void)
{
	return sc_rm_share(&sc, memory.handle, 3);
}

static int map_for_processor(void)
{
	at = sc_mem_mmap(&sc, &memory);
	return at ? 0 : -EIO;
}

static void undo_map(void)
{
	if (at)
		munmap(at, memory.size);
	at = NULL;
	free_memory();
}

static int map_for_card(void)
{
	u32 size = sc.branch >= 580 ? 64 : 56, status;
	u32 names[4] = { sc.client, sc.device, sc.vaspace, memory.handle };
	const u64 page = 4096; /* NVOS46.length */
	u8 args[64] = { 0 };

	memcpy(args, names, sizeof(names));
	memcpy(args + 24, &page, sizeof(page));
	if (ioctl(sc.ctl, _IOC(3, 'F', NV_ESC_RM_MAP_MEMORY_DMA, size), args))
		return -errno;
	memcpy(&status, args + size - 8, sizeof(status));
	return (int)status;
}

static int export_dmabuf(void)
{
	return sc_dmabuf(&sc, &memory, &fd);
}

static void undo_export(void)
{
	if (fd >= 0)
		close(fd);
	fd = -1;
	free_memory();
}

static int export_object(void)
{
	return sc_export(&sc, &memory, &fd);
}

static int prepare_import(void)
{
	return make_memory() ?: sc_export(&sc, &memory, &other_fd);
}

static int import_object(void)
{
	return sc_import(&sc, other_fd, &twin);
}

static void undo_import(void)
{
	sc_mem_free(&sc, &twin);
	close_fd();
	free_memory();
}

static int event(unsigned int escape)
{
	u32 args[4] = { sc.client, sc.device, (u32)sc.gpu, 0 };

	return ioctl(sc.ctl, _IOC(3, 'F', escape, sizeof(args)), args) ? -errno : (int)args[3];
}

static int make_event(void)
{
	return event(NV_ESC_ALLOC_OS_EVENT);
}

static int free_event(void)
{
	return event(NV_ESC_FREE_OS_EVENT);
}

static void undo_event(void)
{
	free_event();
}

/* A control whose answer the module changes. */
static int ask_memory(void)
{
	u64 free, total;

	return sc_mem_info(&sc, &free, &total);
}

/* FB_GET_INFO: with a list behind its parameters. */
static int ask_by_list(void)
{
	u32 list[2] = { 9, 0 };
	struct { u32 count, pad; u64 list; } params = { 1, 0, (u64)(uintptr_t)list };

	return sc_rm_control(&sc, sc.subdevice, 0x20801301, &params, sizeof(params));
}

static int ask_heap(void)
{
	u64 free, total;

	return sc_vid_heap_info(&sc, &total, &free);
}

/* --------------------------------------------------- channels, which may run */

static u32 group, channel, engine = COPY_ENGINE;

static int make_group(void)
{
	struct { u32 err, ecc, vaspace, engine; u8 vgpu, pad[3]; } params = {
		.vaspace = sc.vaspace, .engine = engine };

	return sc_rm_alloc(&sc, sc.device, &group, 0xa06c, &params, sizeof(params));
}

static int fresh_group(void)
{
	group = sc.next_handle++;
	return 0;
}

static void free_group(void)
{
	sc_rm_free(&sc, sc.client, group);
}

static int make_channel_in(u32 parent)
{
	u8 params[368] = { 0 };

	*(u32 *)(params + 16) = 1024;
	*(u32 *)(params + 28) = sc.vaspace;
	*(u32 *)(params + 32) = sc.userd;
	*(u32 *)(params + ENGINE_TYPE) = engine;
	return sc_rm_alloc(&sc, parent, &channel, sc.channel_class, params, sizeof(params));
}

static int make_channel(void)
{
	return make_channel_in(group);
}

static int prepare_channel(void)
{
	channel = sc.next_handle++;
	return fresh_group() ?: make_group();
}

static int make_object(void)
{
	u32 params[4] = { 0 };

	return sc_rm_alloc(&sc, channel, &handle,
			   engine == COPY_ENGINE ? sc.copy_class : sc.compute_class, params,
			   sizeof(params));
}

static int prepare_object(void)
{
	return prepare_channel() ?: make_channel() ?: fresh_handle();
}

static u32 schedule_bytes(void)
{
	return sc.branch >= 580 ? 3 : 2;
}

static int schedule_group(void)
{
	u8 enable[3] = { 1, 0, 0 };

	return sc_rm_control(&sc, group, 0xa06c0101, enable, schedule_bytes());
}

static int schedule_by_channel(void)
{
	u8 enable[3] = { 1, 0, 0 };

	return sc_rm_control(&sc, channel, 0xa06f0103, enable, schedule_bytes());
}

static int set_timeslice(void)
{
	u64 slice_us = 1000;

	return sc_rm_control(&sc, group, 0xa06c0103, &slice_us, sizeof(slice_us));
}

/* One more of a group that runs: nothing schedules it any more. */
static int make_running_channel(void)
{
	return make_channel_in(sc.group[engine == COPY_ENGINE]);
}

static int fresh_channel(void)
{
	channel = sc.next_handle++;
	return 0;
}

static void free_channel(void)
{
	sc_rm_free(&sc, sc.client, channel);
}

static int make_groupless_channel(void)
{
	return make_channel_in(sc.device);
}

/* ------------------------------------------------------------ unified memory */

static int uvm_call(int file, u32 command, void *params, const s32 *status)
{
	return ioctl(file, command, params) ? -errno : *status;
}

static int initialize(void)
{
	struct { u64 flags; s32 status; u32 pad; } params = { 0 };

	return uvm_call(fd, UVM_INITIALIZE, &params, &params.status);
}

static int prepare_mm(void)
{
	other_fd = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	return open_uvm() ?: initialize();
}

static int initialize_mm(void)
{
	struct { s32 fd, status; } params = { fd, 0 };

	return uvm_call(other_fd, UVM_MM_INITIALIZE, &params, &params.status);
}

static int register_card(void)
{
	struct { u8 uuid[16]; u8 numa, pad[3]; s32 node, fd; u32 client, smc; s32 status; }
		params = { .fd = sc.ctl, .client = sc.client };

	memcpy(params.uuid, sc.uuid, sizeof(params.uuid));
	return uvm_call(fd, UVM_REGISTER_GPU, &params, &params.status);
}

static int map_external(void)
{
	return sc_mem_map(&sc, &memory);
}

static void undo_external(void)
{
	if (memory.va)
		sc_mem_unmap(&sc, &memory);
	free_memory();
}

static int make_external(void)
{
	return make_memory() ?: map_external();
}

/* The address is lost with the call, and the driver's to keep. */
static u64 external;

static int prepare_unmap(void)
{
	int ret = make_external();

	external = memory.va;
	return ret;
}

static int unmap_external(void)
{
	return sc_mem_unmap(&sc, &memory);
}

static void undo_unmap(void)
{
	memory.va = external;
	undo_external();
}

static int make_managed(void)
{
	at = sc_managed(&sc, BYTES);
	return at ? sc_prefetch(&sc, at, BYTES, true) : -errno;
}

static void undo_managed(void)
{
	if (at)
		munmap(at, BYTES);
	at = NULL;
}

static int unmap_managed(void)
{
	return munmap(at, BYTES) ? -errno : 0;
}

/* ------------------------------------------------------------------- processes */

/* Return: as waitpid() has it, or -errno. */
static int child(int (*body)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(body ? body() : 0);
	return pid < 0 ? -errno : waitpid(pid, &status, 0) == pid ? status : -ECHILD;
}

static int fork_once(void)
{
	return child(NULL);
}

/* ------------------------------------------------------------------- the lists */

static const struct call of_a_card[] = {
	{ "open-control", open_control, close_fd, NULL, NULL },
	{ "open-card", open_card, close_fd, NULL, NULL },
	{ "open-uvm", open_uvm, close_fd, NULL, NULL },
	{ "close", close_it, close_fd, open_card, NULL },
	{ "register-fd", register_fd, close_fd, open_files, NULL },
	{ "client", make_client, free_client, NULL, NULL },
	{ "device", make_device, free_client, make_client, NULL },
	{ "subdevice", make_subdevice, free_client, make_client_and_device, NULL },
	{ "vaspace", make_vaspace, free_handle, fresh_handle, NULL },
	{ "usermode", make_usermode, free_handle, fresh_handle, NULL },
	{ "memory", make_memory, free_memory, NULL, NULL },
	{ "memory-heap", make_memory_by_heap, free_memory, NULL, NULL },
	{ "memory-tiled", make_memory_tiled, free_memory, NULL, NULL },
	{ "memory-wrapped", make_memory_wrapped, free_memory, NULL, NULL },
	{ "memory-old", make_memory_old, free_memory, NULL, NULL },
	{ "memory-system", make_system_memory, free_handle, fresh_handle, NULL },
	{ "free", release_memory, free_memory, make_memory, NULL },
	{ "duplicate", duplicate, undo_duplicate, prepare_duplicate, NULL },
	{ "share", share, free_memory, make_memory, NULL },
	{ "map", map_for_processor, undo_map, make_memory, NULL },
	{ "dmabuf", export_dmabuf, undo_export, make_memory, NULL },
	{ "export", export_object, undo_export, make_memory, NULL },
	{ "import", import_object, undo_import, prepare_import, NULL },
	{ "event", make_event, undo_event, NULL, NULL },
	{ "event-free", free_event, undo_event, make_event, NULL },
	{ "control", ask_memory, NULL, NULL, NULL },
	{ "control-list", ask_by_list, NULL, NULL, NULL },
	{ "heap-info", ask_heap, NULL, NULL, NULL },
	{ "fork", fork_once, NULL, NULL, NULL },
};

static const struct call of_a_context[] = {
	{ "group", make_group, free_group, fresh_group, NULL },
	{ "channel", make_channel, free_group, prepare_channel, NULL },
	{ "channel-groupless", make_groupless_channel, free_channel, fresh_channel, NULL },
	{ "object", make_object, free_group, prepare_object, NULL },
	{ "schedule", schedule_group, free_group, prepare_object, NULL },
	{ "schedule-channel", schedule_by_channel, free_group, prepare_object, NULL },
	{ "timeslice", set_timeslice, free_group, prepare_object, NULL },
	{ "channel-running", make_running_channel, free_channel, fresh_channel, NULL },
	{ "map-dma", map_for_card, free_memory, make_memory, NULL },
	{ "uvm-initialize", initialize, close_fd, open_uvm, NULL },
	{ "uvm-mm", initialize_mm, close_fd, prepare_mm, NULL },
	{ "uvm-register", register_card, close_fd, prepare_mm, NULL },
	{ "uvm-map", map_external, undo_external, make_memory, NULL },
	{ "uvm-free", unmap_external, undo_unmap, prepare_unmap, NULL },
	{ "managed", make_managed, undo_managed, NULL, NULL },
	{ "managed-unmap", unmap_managed, undo_managed, make_managed, NULL },
	{ "uvm-close", close_it, close_fd, prepare_mm, NULL },
	{ "fork-context", fork_once, NULL, NULL, NULL },
};

/* What makes a channel run while the container is shut. */
static const struct call of_a_gate[] = {
	{ "channel-running", make_running_channel, free_channel, fresh_channel, NULL },
	{ "schedule", schedule_group, free_group, prepare_object, NULL },
	{ "schedule-channel", schedule_by_channel, free_group, prepare_object, NULL },
};

/* ------------------------------------------------------- whole lives of a process */

/* Nothing of a process is left when it has ended. */
static void run_child(const char *name, int number, int (*body)(void), bool may_be_killed)
{
	long long used = used_bytes(), charged = charged_bytes();
	int status = child(body);
	double end_s = seconds() + WITHIN_S;

	if (WIFSIGNALED(status) ? !may_be_killed : status)
		complain("%s, %d: ended by %#x", name, number, status);
	/* of dma-bufs it is looked four times a second whether they are still there */
	while ((used_bytes() > used || charged_bytes() > charged) && seconds() < end_s)
		usleep(10000);
	if (used_bytes() > used || charged_bytes() > charged)
		complain("%s, %d: %lld bytes used, %lld before; %lld charged, %lld before", name,
			 number, used_bytes(), used, charged_bytes(), charged);
}

/* Shared with the child: the allocation that fails; whether it did. */
static struct { int number; bool failed; } *task;

static int begin(void)
{
	struct sc_options options = { 0 };

	find_nth();
	arm(task->number);
	sc_open(&sc, 0, &options);
	task->failed = disarm();
	return 0;
}

static int use(void)
{
	struct sc_options options = { 0 };
	int ret = sc_open(&sc, 0, &options) ?: sc_context(&sc) ?: make_external() ?: make_managed();

	find_nth();
	return ret;
}

static int end_by_exit(void)
{
	if (use())
		return 1;
	arm(task->number);
	_exit(0);
}

static int become_another(void)
{
	char *const arguments[] = { "starve", NULL };

	if (use())
		return 1;
	arm(task->number);
	execv("/proc/self/exe", arguments);
	disarm();
	return 0;
}

/* Nobody is left to ask whether there was anything to fail. */
static void end_by(const char *name, int (*body)(void), int last, bool may_be_killed)
{
	for (task->number = 1; task->number <= last; task->number++)
		run_child(name, task->number, body, may_be_killed);
	printf("%s from 1 to %d\n", name, last);
	fflush(stdout);
}

static void lives(int last)
{
	task = mmap(NULL, sizeof(*task), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (task == MAP_FAILED)
		die("mmap", errno);
	do {
		task->number++;
		task->failed = false;
		run_child("begin", task->number, begin, false);
	} while (task->failed && task->number < MOST);
	printf("begin from 1 to %d\n", task->number);
	end_by("exit", end_by_exit, last, false);
	/* the kernel kills whom it finds no memory to make another program of */
	end_by("exec", become_another, last, true);
}

/* ------------------------------------------------------------------------ runs */

static const struct call *list;
static size_t list_count;
static bool with_context;

static int run_list(void)
{
	struct sc_options options = { 0 };
	size_t i;
	int ret = sc_open(&sc, 0, &options) ?: (with_context ? sc_context(&sc) : 0);

	wrong = 0; /* of this list alone */
	if (ret)
		die("open", ret);
	if (watch_gates) {
		engine = GRAPHICS;
		sc_enqueue(&sc, 0, 1000000000000ull);
		sc_ring(&sc, 0);
		if (!gated_soon())
			die("it is not shut", ungated());
	}
	find_nth();
	for (i = 0; i < list_count; i++)
		starve(&list[i]);
	return wrong;
}

static void run(const struct call *calls, size_t count, bool context)
{
	list = calls;
	list_count = count;
	with_context = context;
	run_child("list", 0, run_list, false);
}

/* ------------------------------------------------------------------------ tree */

static const char *node, *content, *back_node, *back_content;

static int write_to(const char *path, const char *what)
{
	int file = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (file < 0)
		return -errno;
	if (write(file, what, strlen(what)) < 0)
		err = -errno;
	close(file);
	return err;
}

static int write_there(void)
{
	return write_to(node, content);
}

static int write_back(void)
{
	return write_to(back_node, back_content);
}

static void undo_write(void)
{
	write_back();
}

/* What is written, and what undoes it. */
static void write_both(const char *there, const char *what, const char *back, const char *former)
{
	const struct call one = { there, write_there, undo_write, NULL, NULL };
	const struct call other = { back, write_back, undo_write, write_there, NULL };

	node = there, content = what, back_node = back, back_content = former;
	find_nth();
	starve(&one);
	starve(&other);
}

static int read_there(void)
{
	static char some[4096];
	int file = open(node, O_RDONLY | O_NONBLOCK | O_CLOEXEC), err = 0;

	if (file < 0)
		return -errno;
	if (read(file, some, sizeof(some)) < 0)
		err = -errno;
	close(file);
	return err;
}

static void read_one(const char *path)
{
	const struct call one = { path, read_there, NULL, NULL, NULL };

	node = path;
	find_nth();
	starve(&one);
}

/* --------------------------------------------------------------------- modules */

/* What is loaded one after the other, each but the first with the one before it. */
static struct { const char *path, *name; } *modules;
static int module_count, loaded_before;

static int load(int index)
{
	int file = open(modules[index].path, O_RDONLY | O_CLOEXEC);
	int ret = file < 0 || syscall(SYS_finit_module, file, "", 0) ? -errno : 0;

	if (file >= 0)
		close(file);
	return ret;
}

static int unload(int index)
{
	return syscall(SYS_delete_module, modules[index].name, O_NONBLOCK) ? -errno : 0;
}

/* The driver works with each of them and without: its table points to nobody who is gone. */
static void check_driver(void)
{
	int file = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);

	if (file < 0)
		complain("the driver cannot be opened: %d", errno);
	else
		close(file);
}

/* Whoever has asked for the cards holds nothing that holds cgpu_km. */
static void check_unmapped(void)
{
	read_file("/proc/self/maps", text, sizeof(text));
	if (strstr(text, "[cgpu]"))
		complain("a private copy is mapped after its call");
}

static void unload_all(void)
{
	double end_s = seconds() + WITHIN_S;
	int index, ret;

	check_unmapped();
	for (index = module_count - 1; index >= 0; index--) {
		while ((ret = unload(index)) && ret != -ENOENT && seconds() < end_s)
			usleep(1000);
		if (ret && ret != -ENOENT)
			die(modules[index].name, ret);
	}
	check_driver();
}

static int load_before(void)
{
	int index, ret = 0;

	for (index = 0; index < loaded_before && !ret; index++)
		ret = load(index);
	return ret;
}

static int load_next(void)
{
	return load(loaded_before);
}

/* The first process of a pid namespace, which is a container. */
static pid_t begin_container(void)
{
	pid_t pid = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);

	if (pid < 0)
		die("clone", errno);
	while (!pid)
		pause();
	return pid;
}

/* The second decides: its first container finds the card known; with the third, governed. */
static void check_card(void)
{
	char create[64];
	pid_t pid;
	int ret;

	check_driver();
	if (!loaded_before)
		return;
	pid = begin_container();
	snprintf(create, sizeof(create), "create one pid=%d gpu=0,mem=%d", (int)pid, BYTES);
	ret = write_to("/proc/cgpu_km/inst_ctl", create);
	if (ret) {
		complain("it is loaded, and takes no container: %d", ret);
	} else {
		read_file("/proc/cgpu_km/0/memory", text, sizeof(text));
		if (!strncmp(text, "total 0\n", 8))
			complain("it is loaded, and does not know the card's size");
		read_file("/proc/cgpu_km/0/one/stat", text, sizeof(text));
		if (loaded_before > 1 && !strstr(text, "granted_ns "))
			complain("it is loaded, and nobody governs the card");
		ret = write_to("/proc/cgpu_km/inst_ctl", "destroy one");
		if (ret)
			complain("the container is not destroyed: %d", ret);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int unload_last(void)
{
	return unload(loaded_before - 1);
}

/* The second has been there, and the driver is hooked. */
static int load_and_hook(void)
{
	return load(0) ?: load(1) ?: unload(1);
}

static int unload_first(void)
{
	return unload(0);
}

static void run_modules(void)
{
	static const struct call unhooking = { "unload-hooked", unload_first, unload_all,
					       load_and_hook, NULL };
	struct call loading = { NULL, load_next, unload_all, load_before, check_card };
	struct call unloading = { NULL, unload_last, unload_all, load_before, NULL };
	char name[64];
	int index;

	starve(&unhooking);
	for (index = 0; index < module_count; index++) {
		loaded_before = index;
		loading.name = name;
		snprintf(name, sizeof(name), "load-%s", modules[index].name);
		/* before that it is the kernel's own work */
		starve_last(&loading, OF_INIT);
		loaded_before = index + 1;
		unloading.name = name;
		snprintf(name, sizeof(name), "unload-%s", modules[index].name);
		starve(&unloading);
	}
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	if (argc == 1)
		return 0; /* what a process becomes by exec() */
	if (!strcmp(command, "calls") && argc == 3) {
		stat_path = argv[2];
		run(of_a_card, COUNT(of_a_card), false);
		run(of_a_context, COUNT(of_a_context), true);
	} else if (!strcmp(command, "shut") && argc == 3) {
		stat_path = argv[2];
		watch_gates = true;
		run(of_a_gate, COUNT(of_a_gate), true);
	} else if (!strcmp(command, "lives") && argc == 4) {
		stat_path = argv[2];
		lives(atoi(argv[3]));
	} else if (!strcmp(command, "write") && argc == 6) {
		write_both(argv[2], argv[3], argv[4], argv[5]);
	} else if (!strcmp(command, "read") && argc == 3) {
		read_one(argv[2]);
	} else if (!strcmp(command, "modules") && argc > 3) {
		modules = (void *)(argv + 2);
		module_count = (argc - 2) / 2;
		find_nth();
		run_modules();
	} else {
		fprintf(stderr, "starve: calls STAT, shut STAT, lives STAT LAST, "
				"write NODE TEXT NODE TEXT, read NODE, modules PATH NAME…\n");
		return 2;
	}
	return wrong;
}
