/* SPDX-License-Identifier: MIT */
/*
 * hammer HELD_MIB: makes a context, holds so much memory, says `ready` and, from a line on stdin
 * on, allocates, maps, exports, frees and computes as fast as it can. At the next line it frees
 * all but what it held before, and prints one line of JSON: calls, those that failed and the first
 * of them, and the longest ioctl. It ends with stdin.
 */
#define _GNU_SOURCE
#include "simcuda.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned long calls, failed;
static long long longest_ns;
static unsigned long longest_request;
static char first[96] = "";

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, ...);

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Every ioctl of the client library comes here: the linker is told so. */
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	long long begin, took;
	va_list list;
	void *arg;
	int ret;

	va_start(list, request);
	arg = va_arg(list, void *);
	va_end(list);
	begin = now_ns();
	ret = __real_ioctl(fd, request, arg);
	took = now_ns() - begin;
	calls++;
	if (took > longest_ns) {
		longest_ns = took;
		longest_request = request;
	}
	return ret;
}

static void done(const char *what, int status)
{
	if (!status)
		return;
	if (!failed++)
		snprintf(first, sizeof(first), "%s: %d (errno %d)", what, status, errno);
}

static void turn(struct sc *sc, unsigned int number)
{
	struct sc_mem memory = { 0 }, plain = { 0 };
	u64 bytes_free, total;
	int fd = -1;

	done("malloc", sc_malloc(sc, (u64)(1 + number % 4) << 20, &memory));
	done("mem_alloc", sc_mem_alloc(sc, 1 << 20, &plain));
	done("mem_info", sc_mem_info(sc, &bytes_free, &total));
	if (number % 8 == 0) {
		done("export", sc_export(sc, &memory, &fd));
		if (fd >= 0)
			close(fd);
	}
	/* a full queue is no failure: the card is shared */
	if (sc_enqueue(sc, 0, 20000))
		sc_ring(sc, 0);
	done("mem_free", sc_mem_free(sc, &plain));
	done("free", sc_free(sc, &memory));
}

int main(int argc, char **argv)
{
	u64 held_bytes = (u64)(argc > 1 ? atoi(argv[1]) : 1) << 20, before;
	struct pollfd in = { .fd = 0, .events = POLLIN };
	struct sc_options options = { 0 };
	struct sc_mem held = { 0 };
	unsigned int number;
	char line[16];
	struct sc sc;
	int ret;

	ret = sc_open(&sc, 0, &options);
	if (!ret)
		ret = sc_context(&sc);
	if (!ret)
		ret = sc_malloc(&sc, held_bytes, &held);
	if (ret) {
		fprintf(stderr, "hammer: begin: %d\n", ret);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	calls = 0;
	longest_ns = 0;
	before = sc_completed(&sc, 0);
	for (number = 0; poll(&in, 1, 0) == 0; number++)
		turn(&sc, number);
	printf("{\"turns\": %u, \"calls\": %lu, \"failed\": %lu, \"first\": \"%s\","
	       " \"longest_ns\": %lld, \"longest_request\": %lu, \"kernels\": %llu}\n",
	       number, calls, failed, first, longest_ns, longest_request,
	       (unsigned long long)(sc_completed(&sc, 0) - before));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	ret = sc_free(&sc, &held);
	sc_close(&sc);
	return ret != 0;
}
