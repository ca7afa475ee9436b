// SPDX-License-Identifier: GPL-2.0-only
/*
 * simcuda: what a CUDA program does to the driver, one subcommand each.
 * Exit status: 0 done, 1 bad usage, 2 the driver refused (its status is
 * printed), 3 something behaved as it should not.
 */
#define _GNU_SOURCE
#include "serve.h"
#include "simcuda.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sc_options opt;
static int minor_number;
static bool json, hold, with_context, announce, wait_for_start, leave_card;
static double hold_seconds = -1;

static const char usage[] =
"usage: simcuda [options] command [arguments]\n"
"  --gpu N          card of /dev/nvidiaN (0)\n"
"  --json           one JSON object a line\n"
"  --old-alloc      RM_ALLOC in its 32-byte form\n"
"  --xfer           every command inside IOCTL_XFER_CMD\n"
"  --heap 2|6|14    allocate by this VID_HEAP_CONTROL function\n"
"  --by-channel     let groups run channel by channel\n"
"  --by-duplicate   let groups run by the name of a duplicate of theirs\n"
"  --duplicates     have the address space, context share and doorbell by duplicates alone\n"
"  --any-engine     the group that computes names no engine\n"
"  --free-userd     free the memory that channels are driven by, and go on\n"
"  --early MS       have a kernel of this length wait for its channel to be scheduled\n"
"  --leave-card     launch closes the card's files once its work is queued, and waits for it\n"
"  --context        make a whole CUDA context first\n"
"  --serves         contexts are an MPS server's, who is told of as CLIENT:GROUP:MEMORY:MEMORY\n"
"  --server WHO     contexts are those of a client of that server's\n"
"  --announce       launch names its client and channels on standard error first\n"
"  --wait           launch says 'ready' once it has its context, begins when stdin has input\n"
"  --hold[=S]       keep everything and wait for a signal, or S seconds\n"
"commands:\n"
"  info                     the card's name, uuid, memory as cuMemGetInfo and nvidia-smi count it\n"
"  query                    the same of every answer that shows memory: V2, heap, old ALLOC_MEMORY\n"
"  context                  a CUDA context\n"
"  alloc SIZE [COUNT]       COUNT allocations (1)\n"
"  fill [CHUNK]             allocate until nothing fits; CHUNK (64M) is halved down to 64K\n"
"  free SIZE                allocate and free\n"
"  dup SIZE                 allocate, duplicate into a second client, free the original, the copy\n"
"  map SIZE [TIMES]         allocate, UVM map, RM_FREE; TIMES over, addresses kept\n"
"  export SIZE [TIMES]      allocate, export to a descriptor, RM_FREE; TIMES over\n"
"  import SIZE              export, RM_FREE, import in a child process\n"
"  pool SIZE COUNT          COUNT allocations put one by one into a descriptor of 64 places, and\n"
"                           RM_FREE; a child imports what is there; one place is emptied\n"
"  dmabuf SIZE              allocate, export as dma-buf, RM_FREE\n"
"  managed SIZE             managed memory, touched by the host, moved to the card\n"
"  launch S MS [SLICE_US]   work for S seconds with kernels of MS milliseconds\n"
"  serve S MS TOKENS RATE   requests by Poisson, RATE a second (0: always one), of TOKENS kernels\n"
"                           of MS milliseconds, each waited for; latencies at the end\n"
"  threads N SIZE           N threads race to allocate SIZE until refused\n"
"  processes N SIZE         N processes likewise\n"
"  class HEX                try to allocate an object of this class\n"
"  gate on|off|drain CLIENT:CHANNEL[,...]   FIFO_DISABLE_CHANNELS on anyone's channels (hex)\n"
"  slice US                 set the timeslice of a new context's group, print what it became\n";

static void fail(const char *what, int ret)
{
	if (ret < 0)
		fprintf(stderr, "simcuda: %s: %s\n", what, strerror(-ret));
	else
		fprintf(stderr, "simcuda: %s: status 0x%x\n", what, ret);
	if (json)
		printf("{\"error\": \"%s\", \"status\": %d}\n", what, ret);
	fflush(stdout);
	exit(2);
}

static u64 size_of(const char *s)
{
	char *end;
	double v = strtod(s, &end);

	switch (*end) {
	case 'k': case 'K': v *= 1024; end++; break;
	case 'm': case 'M': v *= 1048576; end++; break;
	case 'g': case 'G': v *= 1073741824; end++; break;
	}
	if (*end || v < 0 || end == s) {
		fprintf(stderr, "simcuda: not a size: %s\n", s);
		exit(1);
	}
	return (u64)v;
}

static long number(const char *s)
{
	char *end;
	long v = strtol(s, &end, 0);

	if (*end || end == s) {
		fprintf(stderr, "simcuda: not a number: %s\n", s);
		exit(1);
	}
	return v;
}

/* key value pairs, as text lines or as one JSON object */
static void put(const char *key, u64 value, bool first, bool last)
{
	if (json)
		printf("%s\"%s\": %llu%s", first ? "{" : ", ", key, (unsigned long long)value,
		       last ? "}\n" : "");
	else
		printf("%s %llu\n", key, (unsigned long long)value);
	if (last)
		fflush(stdout);
}

static void put_text(const char *key, const char *value, bool first)
{
	if (json)
		printf("%s\"%s\": \"%s\"", first ? "{" : ", ", key, value);
	else
		printf("%s %s\n", key, value);
}

static void tell_server(const struct sc_server *server)
{
	printf("%x:%x:%x:%x\n", server->client, server->group, server->memory[0],
	       server->memory[1]);
	fflush(stdout);
}

static void read_server(const char *who)
{
	struct sc_server *server = &opt.server;

	if (sscanf(who, "%x:%x:%x:%x", &server->client, &server->group, &server->memory[0],
		   &server->memory[1]) == 4)
		return;
	fprintf(stderr, "simcuda: not a server: %s\n", who);
	exit(1);
}

static void start(struct sc *sc)
{
	int ret = sc_open(sc, minor_number, &opt);

	if (ret)
		fail("open", ret);
	if (with_context) {
		ret = sc_context(sc);
		if (ret)
			fail("context", ret);
		if (opt.serves)
			tell_server(&sc->server);
	}
}

static void start_context(struct sc *sc)
{
	with_context = true;
	start(sc);
}

static u64 free_bytes(struct sc *sc)
{
	u64 free, total;
	int ret = sc_mem_info(sc, &free, &total);

	if (ret)
		fail("memory info", ret);
	return free;
}

static void keep(void)
{
	struct timespec ts = { (time_t)hold_seconds,
			       (long)((hold_seconds - (time_t)hold_seconds) * 1e9) };

	fflush(stdout);
	if (!hold)
		return;
	if (hold_seconds >= 0)
		nanosleep(&ts, NULL);
	else
		pause();
}

static void uuid_text(const u8 *u, char *out)
{
	sprintf(out, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
		u[13], u[14], u[15]);
}

static int cmd_info(struct sc *sc)
{
	const u32 index[] = { 0x08 };
	u64 free, total;
	char uuid[64];
	u32 board;
	int ret;

	start(sc);
	ret = sc_mem_info(sc, &free, &total) ?: sc_fb_info(sc, index, &board, 1);
	if (ret)
		fail("memory info", ret);
	uuid_text(sc->uuid, uuid);
	put_text("name", sc->name, true);
	put_text("uuid", uuid, false);
	put_text("version", sc->version, false);
	put("board", (u64)board << 10, false, false);	/* what nvidia-smi prints as total */
	put("total", total, false, false);		/* what cuMemGetInfo says */
	put("free", free, false, false);
	put("used", total - free, false, true);
	keep();
	return 0;
}

static int cmd_query(struct sc *sc)
{
	static const u32 index[] = { 0x07, 0x08, 0x09, 0x0a, 0x12, 0x16, 0x20 };
	static const char *const names[] = { "ram_size", "total_ram_size", "heap_size",
		"mappable_heap_size", "largest_free", "heap_free", "usable_ram_size" };
	struct { u32 n, pad; u64 list; } v1 = { 2, 0, 0 };
	struct { u32 index, data; } pairs[2] = { { 0x09, 0 }, { 0x16, 0 } };
	struct { u32 type, id, count, pids[950]; } pids = { 0, 0x2080, 0, { 0 } };
	u64 total, free, limit = 0;
	u32 kib[7];
	int ret, i;

	start(sc);
	ret = sc_fb_info(sc, index, kib, 7);
	if (ret)
		fail("FB_GET_INFO_V2", ret);
	for (i = 0; i < 7; i++)
		put(names[i], (u64)kib[i] << 10, !i, false);
	v1.list = (u64)(uintptr_t)pairs;
	ret = sc_rm_control(sc, sc->subdevice, 0x20801301, &v1, sizeof(v1));
	put("v1_status", ret, false, false);
	put("v1_heap_size", (u64)pairs[0].data << 10, false, false);
	put("v1_heap_free", (u64)pairs[1].data << 10, false, false);
	ret = sc_vid_heap_info(sc, &total, &free);
	put("heap_info_status", ret, false, false);
	put("heap_info_total", total, false, false);
	put("heap_info_free", free, false, false);
	ret = sc_rm_alloc_memory(sc, 0x40, &limit);
	put("alloc_memory_status", ret, false, false);
	put("alloc_memory_limit", limit, false, false);
	ret = sc_rm_control(sc, sc->subdevice, 0x2080018d, &pids, sizeof(pids));
	put("pids_status", ret, false, false);
	put("pids", pids.count, false, true);
	return 0;
}

static int cmd_context(struct sc *sc)
{
	u64 before = 0;

	start(sc);
	before = free_bytes(sc);
	if (!with_context) {
		int ret = sc_context(sc);

		if (ret)
			fail("context", ret);
	}
	put("client", sc->client, true, false);
	put("subdevice", sc->subdevice, false, false);
	put("group", sc->group[0], false, false);
	put("channel", sc->channel[0], false, false);
	put("channels", SC_CHANNELS, false, false);
	put("hidden", before - free_bytes(sc), false, true);
	keep();
	return 0;
}

static int cmd_alloc(struct sc *sc, char **arg)
{
	u64 size = size_of(arg[0]), sum = 0;
	long n = arg[1] ? number(arg[1]) : 1, i;
	struct sc_mem mem;
	int ret = 0;

	start(sc);
	for (i = 0; i < n; i++) {
		ret = with_context ? sc_malloc(sc, size, &mem) : sc_mem_alloc(sc, size, &mem);
		if (ret)
			break;
		sum += mem.size;
	}
	put("allocations", i, true, false);
	put("bytes", sum, false, false);
	put("status", ret, false, false);
	put("free", free_bytes(sc), false, true);
	keep();
	return ret ? 2 : 0;
}

static u64 fill(struct sc *sc, u64 chunk, int *last)
{
	struct sc_mem mem;
	u64 sum = 0;

	while (chunk >= 65536) {
		*last = with_context ? sc_malloc(sc, chunk, &mem) : sc_mem_alloc(sc, chunk, &mem);
		if (*last == 0)
			sum += mem.size;
		else if (*last == 0x51)
			chunk /= 2;
		else
			break;
	}
	return sum;
}

static int cmd_fill(struct sc *sc, char **arg)
{
	u64 chunk = arg[0] ? size_of(arg[0]) : 64 << 20, sum;
	int last = 0;

	start(sc);
	sum = fill(sc, chunk, &last);
	put("bytes", sum, true, false);
	put("mib", sum >> 20, false, false);
	put("status", last, false, false);
	put("free", free_bytes(sc), false, true);
	keep();
	return last == 0x51 ? 0 : 3;
}

static int cmd_free(struct sc *sc, char **arg)
{
	struct sc_mem mem;
	u64 before, during;
	int ret;

	start(sc);
	before = free_bytes(sc);
	ret = sc_mem_alloc(sc, size_of(arg[0]), &mem);
	if (ret)
		fail("alloc", ret);
	during = free_bytes(sc);
	ret = sc_mem_free(sc, &mem);
	if (ret)
		fail("free", ret);
	put("bytes", mem.size, true, false);
	put("taken", before - during, false, false);
	put("left", before - free_bytes(sc), false, true);
	return 0;
}

static int cmd_dup(struct sc *sc, char **arg)
{
	struct { u32 deviceId, rest[13]; } dev = { 0, { 0 } };
	u32 client, device = 0x5d000001, copy = 0x5d000002;
	struct sc_mem mem;
	u64 before, both, one;
	int ret;

	start(sc);
	ret = sc_rm_alloc_client(sc, &client);
	if (ret)
		fail("client", ret);
	dev.deviceId = sc->device_instance;
	ret = sc_rm_alloc_in(sc, client, client, &device, 0x80, &dev, sizeof(dev));
	if (ret)
		fail("device", ret);
	before = free_bytes(sc);
	ret = sc_mem_alloc(sc, size_of(arg[0]), &mem);
	if (ret)
		fail("alloc", ret);
	ret = sc_rm_dup(sc, client, device, &copy, sc->client, mem.handle);
	if (ret)
		fail("dup", ret);
	both = before - free_bytes(sc);
	sc_mem_free(sc, &mem);
	one = before - free_bytes(sc);
	put("bytes", mem.size, true, false);
	put("with_both", both, false, false);
	put("with_copy", one, false, hold);
	keep();
	sc_rm_free(sc, client, copy);
	if (!hold)
		put("with_none", before - free_bytes(sc), false, true);
	return 0;
}

/* What a command tells that takes memory and drops its handle. Return: `all`. */
static bool told(struct sc *sc, long times, u64 bytes, int status, u64 before, bool all)
{
	put("times", times, true, false);
	put("bytes", bytes, false, false);
	put("status", status, false, false);
	put("taken", before - free_bytes(sc), false, all);
	keep();
	return all;
}

static int cmd_map(struct sc *sc, char **arg)
{
	u64 size = size_of(arg[0]), before, sum = 0;
	long n = arg[1] ? number(arg[1]) : 1, i;
	struct sc_mem mem;
	int ret = 0;

	start_context(sc);
	before = free_bytes(sc);
	for (i = 0; i < n; i++) {
		ret = sc_malloc(sc, size, &mem);
		if (ret)
			break;
		sum += mem.size;
		sc_mem_free(sc, &mem);
	}
	if (told(sc, i, sum, ret, before, n > 1 || hold))
		return 0;
	sc_mem_unmap(sc, &mem);
	put("after_unmap", before - free_bytes(sc), false, true);
	return 0;
}

static int cmd_export(struct sc *sc, char **arg)
{
	u64 size = size_of(arg[0]), before, sum = 0;
	long n = arg[1] ? number(arg[1]) : 1, i;
	struct sc_mem mem;
	int ret = 0, fd = -1;

	start(sc);
	before = free_bytes(sc);
	for (i = 0; i < n; i++) {
		ret = sc_mem_alloc(sc, size, &mem);
		if (!ret)
			ret = sc_export(sc, &mem, &fd);
		if (ret)
			break;
		sum += mem.size;
		sc_mem_free(sc, &mem);
	}
	if (told(sc, i, sum, ret, before, n > 1 || hold))
		return 0;
	close(fd);
	put("after_close", before - free_bytes(sc), false, true);
	return 0;
}

static int cmd_import(struct sc *sc, char **arg)
{
	struct sc_mem mem, copy;
	struct sc child;
	u64 before;
	int ret, fd, status;
	pid_t pid;

	start(sc);
	before = free_bytes(sc);
	ret = sc_mem_alloc(sc, size_of(arg[0]), &mem);
	if (!ret)
		ret = sc_export(sc, &mem, &fd);
	if (ret)
		fail("export", ret);
	sc_mem_free(sc, &mem);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		ret = sc_open(&child, minor_number, &opt) ?: sc_import(&child, fd, &copy);
		_exit(ret ? 3 : 0);
	}
	waitpid(pid, &status, 0);
	put("bytes", mem.size, true, false);
	put("child", WEXITSTATUS(status), false, false);
	put("taken", before - free_bytes(sc), false, false);
	close(fd);
	put("after_close", before - free_bytes(sc), false, true);
	return status ? 3 : 0;
}

#define POOL_PLACES 64

static int cmd_pool(struct sc *sc, char **arg)
{
	long count = number(arg[1]), i;
	unsigned int found = 0;
	struct sc_mem mem;
	struct sc child;
	u64 before, sum = 0;
	int ret, fd, status;
	pid_t pid;

	start(sc);
	before = free_bytes(sc);
	ret = sc_carrier(sc, POOL_PLACES, &fd);
	if (ret)
		fail("pool", ret);
	for (i = 0; i < count && 2 * i < POOL_PLACES; i++) {
		ret = sc_mem_alloc(sc, size_of(arg[0]), &mem) ?:
			sc_carry(sc, fd, 2 * i, mem.handle);
		if (ret)
			break;
		sum += mem.size;
		sc_mem_free(sc, &mem);
	}
	if (told(sc, i, sum, ret, before, hold))
		return 0;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		ret = sc_open(&child, minor_number, &opt) ?:
			sc_carried(&child, fd, POOL_PLACES, &found);
		_exit(ret ? 255 : found);
	}
	waitpid(pid, &status, 0);
	put("child", WEXITSTATUS(status), false, false);
	ret = sc_carry(sc, fd, 0, 0);
	if (ret)
		fail("emptying a place", ret);
	put("without_one", before - free_bytes(sc), false, false);
	close(fd);
	put("after_close", before - free_bytes(sc), false, true);
	return 0;
}

static int cmd_dmabuf(struct sc *sc, char **arg)
{
	struct sc_mem mem;
	u64 before;
	int ret, fd;

	start(sc);
	before = free_bytes(sc);
	ret = sc_mem_alloc(sc, size_of(arg[0]), &mem);
	if (!ret)
		ret = sc_dmabuf(sc, &mem, &fd);
	if (ret)
		fail("dma-buf", ret);
	sc_mem_free(sc, &mem);
	put("bytes", mem.size, true, false);
	put("taken", before - free_bytes(sc), false, hold);
	keep();
	if (hold)
		return 0;
	close(fd);
	put("after_close", before - free_bytes(sc), false, true);
	return 0;
}

static int cmd_managed(struct sc *sc, char **arg)
{
	u64 size = size_of(arg[0]), before, mapped, moved, touched, i;
	volatile u8 *p;
	int ret;

	start_context(sc);
	before = free_bytes(sc);
	p = sc_managed(sc, size);
	if (!p)
		fail("managed mmap", -errno);
	/* A page in each 2 MiB: enough to see where it lies. */
	for (i = 0; i < size; i += 2 << 20)
		p[i] = 1;
	mapped = before - free_bytes(sc);
	ret = sc_prefetch(sc, (void *)p, size, true);
	moved = before - free_bytes(sc);
	put("bytes", size, true, false);
	put("mapped", mapped, false, false);
	put("status", ret, false, false);
	put("on_card", moved, false, hold);
	keep();
	if (hold)
		return 0;
	p[0] = 2;
	touched = before - free_bytes(sc);
	put("after_touch", touched, false, false);
	sc_managed_free((void *)p, size);
	put("after_free", before - free_bytes(sc), false, true);
	return ret ? 2 : 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static volatile sig_atomic_t stop;

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

/* Input is looked at and not taken: one line starts all who share a pipe. */
static void await_start(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };

	puts("ready");
	fflush(stdout);
	while (!stop && poll(&input, 1, -1) < 0 && errno == EINTR)
		;
}

static int cmd_launch(struct sc *sc, char **arg)
{
	double seconds = atof(arg[0]), ms = atof(arg[1]), t0, t1;
	u64 ns = (u64)(ms * 1e6), depth, busy, slice = arg[2] ? (u64)number(arg[2]) : 0;
	int ret;

	start_context(sc);
	if (slice) {
		ret = sc_rm_control(sc, sc->group[0], 0xa06c0103, &slice, 8);
		if (ret)
			fail("SET_TIMESLICE", ret);
	}
	if (announce) {
		int i;

		fprintf(stderr, "subdevice %x group %x channels ", sc->subdevice, sc->group[0]);
		for (i = 0; i < SC_GR_CHANNELS; i++)
			fprintf(stderr, "%s%x:%x", i ? "," : "", sc->client, sc->channel[i]);
		fputs("\n", stderr);
	}
	signal(SIGTERM, on_term);
	signal(SIGINT, on_term);
	/* As deep as CUDA's queue, but not longer than five seconds of work. */
	depth = ns ? 5000000000 / ns : 250;
	depth = depth < 2 ? 2 : depth > 250 ? 250 : depth;
	if (!json)
		setvbuf(stdout, NULL, _IOLBF, 0);
	if (wait_for_start)
		await_start();
	t0 = now();
	while (!stop && now() - t0 < seconds) {
		bool more = false;

		while (sc->doorbell && sc_queued(sc, 0) < depth && sc_enqueue(sc, 0, ns))
			more = true;
		if (more)
			sc_ring(sc, 0);
		if (leave_card && sc->doorbell)
			sc_leave_card(sc);
		usleep(ns > 4000000 ? 2000 : 500);
	}
	t1 = now();
	busy = sc_busy_ns(sc, 0);
	put("kernels", sc_completed(sc, 0), true, false);
	put("busy_us", busy / 1000, false, false);
	put("wall_us", (u64)((t1 - t0) * 1e6), false, false);
	put("share_permille", (u64)(busy / ((t1 - t0) * 1e9) * 1000 + 0.5), false, true);
	keep();
	return 0;
}

static int cmd_serve(struct sc *sc, char **arg)
{
	struct serve_load load = { atof(arg[0]), atof(arg[3]), (u64)(atof(arg[1]) * 1e6),
				   number(arg[2]) };
	struct serve_found found;

	start_context(sc);
	signal(SIGTERM, on_term);
	signal(SIGINT, on_term);
	if (wait_for_start)
		await_start();
	if (sc_serve(sc, &load, &stop, &found))
		fail("serve", -ENOMEM);
	put("requests", found.requests, true, false);
	put("tokens", found.tokens, false, false);
	put("token_p50_us", found.token_p50_us, false, false);
	put("token_p99_us", found.token_p99_us, false, false);
	put("request_p50_us", found.request_p50_us, false, false);
	put("request_p99_us", found.request_p99_us, false, false);
	put("busy_us", sc_busy_ns(sc, 0) / 1000, false, false);
	put("wall_us", found.wall_us, false, true);
	keep();
	return 0;
}

struct racer { struct sc *sc; u64 size, sum; int last; pthread_t thread; };

static void *race(void *arg)
{
	struct racer *r = arg;
	struct sc_mem mem;

	while (!(r->last = with_context ? sc_malloc(r->sc, r->size, &mem)
					: sc_mem_alloc(r->sc, r->size, &mem)))
		r->sum += mem.size;
	return NULL;
}

static int cmd_threads(struct sc *sc, char **arg)
{
	long n = number(arg[0]), i;
	struct racer *r = calloc(n, sizeof(*r));
	u64 sum = 0;
	int other = 0;

	start(sc);
	for (i = 0; i < n; i++) {
		r[i].sc = sc;
		r[i].size = size_of(arg[1]);
		pthread_create(&r[i].thread, NULL, race, &r[i]);
	}
	for (i = 0; i < n; i++) {
		pthread_join(r[i].thread, NULL);
		sum += r[i].sum;
		other += r[i].last != 0x51;
	}
	put("bytes", sum, true, false);
	put("other_errors", other, false, false);
	put("free", free_bytes(sc), false, true);
	keep();
	return other ? 3 : 0;
}

/* Every child fills and then waits for all, so that the sum is held at one time. */
static int cmd_processes(struct sc *sc, char **arg)
{
	long n = number(arg[0]), i;
	u64 sum = 0, part;
	int up[2], down[2], failed = 0, status;
	char go;

	if (pipe(up) || pipe(down))
		fail("pipe", -errno);
	for (i = 0; i < n; i++) {
		if (fork())
			continue;
		close(down[1]);
		start(sc);
		part = fill(sc, size_of(arg[1]), &failed);
		if (write(up[1], &part, sizeof(part)) != sizeof(part))
			_exit(3);
		_exit(read(down[0], &go, 1) ? 3 : failed == 0x51 ? 0 : 3);
	}
	close(up[1]);
	while (read(up[0], &part, sizeof(part)) == sizeof(part)) {
		sum += part;
		if (--n == 0)
			break;
	}
	put("bytes", sum, true, true);
	keep();
	close(down[1]);
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 3 : 0;
}

static int cmd_class(struct sc *sc, char **arg)
{
	u32 class = strtoul(arg[0], NULL, 16), handle = 0;
	u64 params[16] = { 0 };
	int ret;

	start(sc);
	ret = sc_rm_alloc(sc, sc->device, &handle, class, params, sizeof(params));
	put("class", class, true, false);
	put("status", ret, false, true);
	keep();
	return ret ? 2 : 0;
}

static int cmd_gate(struct sc *sc, char **arg)
{
	struct { u8 disable, pad[3]; u32 n; u8 only, rewind, pad2[6]; u64 event;
		 u32 client[64], channel[64]; } p = { 0 };
	char *list = arg[1], *item, *save = NULL;
	int ret;

	start(sc);
	if (strcmp(arg[0], "on") && strcmp(arg[0], "off") && strcmp(arg[0], "drain")) {
		fputs(usage, stderr);
		return 1;
	}
	p.disable = strcmp(arg[0], "on") != 0;
	p.only = !strcmp(arg[0], "drain");
	for (item = strtok_r(list, ",", &save); item && p.n < 64;
	     item = strtok_r(NULL, ",", &save)) {
		if (sscanf(item, "%x:%x", &p.client[p.n], &p.channel[p.n]) != 2) {
			fprintf(stderr, "simcuda: not CLIENT:CHANNEL: %s\n", item);
			return 1;
		}
		p.n++;
	}
	ret = sc_rm_control(sc, sc->subdevice, 0x2080110b, &p, sizeof(p));
	put("status", ret, true, true);
	keep();
	return ret ? 2 : 0;
}

static int cmd_slice(struct sc *sc, char **arg)
{
	u64 slice = number(arg[0]), back = 0;
	int ret;

	start_context(sc);
	ret = sc_rm_control(sc, sc->group[0], 0xa06c0103, &slice, 8);
	sc_rm_control(sc, sc->group[0], 0xa06c0104, &back, 8);
	put("status", ret, true, false);
	put("slice_us", back, false, true);
	keep();
	return ret ? 2 : 0;
}

static const struct {
	const char *name;
	int min, max;
	int (*plain)(struct sc *sc);
	int (*args)(struct sc *sc, char **arg);
} commands[] = {
	{ "info", 0, 0, cmd_info, NULL }, { "query", 0, 0, cmd_query, NULL },
	{ "context", 0, 0, cmd_context, NULL }, { "alloc", 1, 2, NULL, cmd_alloc },
	{ "fill", 0, 1, NULL, cmd_fill }, { "free", 1, 1, NULL, cmd_free },
	{ "dup", 1, 1, NULL, cmd_dup }, { "map", 1, 2, NULL, cmd_map },
	{ "export", 1, 2, NULL, cmd_export }, { "import", 1, 1, NULL, cmd_import },
	{ "pool", 2, 2, NULL, cmd_pool },
	{ "dmabuf", 1, 1, NULL, cmd_dmabuf }, { "managed", 1, 1, NULL, cmd_managed },
	{ "launch", 2, 3, NULL, cmd_launch }, { "threads", 2, 2, NULL, cmd_threads },
	{ "processes", 2, 2, NULL, cmd_processes }, { "class", 1, 1, NULL, cmd_class },
	{ "gate", 2, 2, NULL, cmd_gate }, { "slice", 1, 1, NULL, cmd_slice },
	{ "serve", 4, 4, NULL, cmd_serve },
};

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "gpu", 1, NULL, 'g' }, { "json", 0, NULL, 'j' }, { "old-alloc", 0, NULL, 'o' },
		{ "xfer", 0, NULL, 'x' }, { "heap", 1, NULL, 'H' }, { "by-channel", 0, NULL, 's' },
		{ "any-engine", 0, NULL, 'e' }, { "free-userd", 0, NULL, 'f' },
		{ "early", 1, NULL, 'E' },
		{ "leave-card", 0, NULL, 'l' }, { "by-duplicate", 0, NULL, 'd' },
		{ "duplicates", 0, NULL, 'D' }, { "context", 0, NULL, 'c' },
		{ "serves", 0, NULL, 'm' }, { "server", 1, NULL, 'M' },
		{ "announce", 0, NULL, 'a' }, { "wait", 0, NULL, 'w' },
		{ "hold", 2, NULL, 'h' }, { "help", 0, NULL, '?' }, { NULL, 0, NULL, 0 } };
	static struct sc sc;
	unsigned int i;
	int c, n;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'g': minor_number = number(optarg); break;
		case 'j': json = true; break;
		case 'o': opt.old_alloc = true; break;
		case 'x': opt.xfer = true; break;
		case 'H': opt.heap = number(optarg); break;
		case 's': opt.by_channel = true; break;
		case 'd': opt.by_duplicate = true; break;
		case 'D': opt.duplicates = true; break;
		case 'e': opt.any_engine = true; break;
		case 'f': opt.free_userd = true; break;
		case 'E': opt.early_ns = number(optarg) * 1000000ull; break;
		case 'l': leave_card = true; break;
		case 'c': with_context = true; break;
		case 'a': announce = true; break;
		case 'w': wait_for_start = true; break;
		case 'm': opt.serves = true; break;
		case 'M': read_server(optarg); break;
		case 'h':
			hold = true;
			if (optarg)
				hold_seconds = atof(optarg);
			break;
		default: fputs(usage, stderr); return 1;
		}
	}
	n = argc - optind - 1;
	for (i = 0; n >= 0 && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, argv[optind]))
			continue;
		if (n < commands[i].min || n > commands[i].max)
			break;
		if (commands[i].plain)
			return commands[i].plain(&sc);
		return commands[i].args(&sc, argv + optind + 1);
	}
	fputs(usage, stderr);
	return 1;
}
