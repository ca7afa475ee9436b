/* SPDX-License-Identifier: MIT */
/*
 * renew same|new SECONDS MS: always at work with kernels of MS milliseconds, on a channel that
 * it frees and makes anew, below its group, ten times a second: by the same handle, or by
 * another. So what holds its channels off the card has others to hold each time. Prints one line
 * of JSON: channels made, and the part of the time that kernels ran in thousandths.
 *
 * renew kept: makes one channel anew when nobody else wants the processor, which a child of its
 * wants all the time. Prints how many milliseconds that took.
 */
#define _GNU_SOURCE
#include "ring.h"
#include "simcuda.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int renew_when_idle(struct sc *sc)
{
	struct sched_param idle = { 0 };
	cpu_set_t here;
	double start;
	pid_t busy;
	int ret;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	if (sched_setaffinity(0, sizeof(here), &here))
		return -1;
	busy = fork();
	while (!busy)
		;
	if (busy < 0 || sched_setscheduler(0, SCHED_IDLE, &idle))
		return -1;
	start = now();
	ret = sc_renew(sc, 0, false);
	printf("{\"took_ms\": %d}\n", (int)((now() - start) * 1e3));
	kill(busy, SIGKILL);
	waitpid(busy, NULL, 0);
	return ret;
}

int main(int argc, char **argv)
{
	static struct sc sc;
	struct sc_options options = { 0 };
	unsigned int made = 0;
	u64 ns, ran_ns = 0;
	double start, turn;
	int ret;

	if (argc != 4 && argc != 2)
		return 1;
	ret = sc_open(&sc, 0, &options);
	if (!ret)
		ret = sc_context(&sc);
	if (argc == 2)
		return ret || renew_when_idle(&sc) ? 2 : 0;
	ns = (u64)(atof(argv[3]) * 1e6);
	for (start = now(); !ret && now() - start < atof(argv[2]); made++) {
		for (turn = now(); now() - turn < 0.1; usleep(500)) {
			while (sc_queued(&sc, 0) < 8 && sc_enqueue(&sc, 0, ns))
				;
			sc_ring(&sc, 0);
		}
		ran_ns += sc_busy_ns(&sc, 0);
		ret = sc_renew(&sc, 0, !strcmp(argv[1], "same"));
	}
	if (ret) {
		fprintf(stderr, "renew: status %#x after %u channels\n", ret, made);
		return 2;
	}
	printf("{\"made\": %u, \"share_permille\": %d}\n", made,
	       (int)(ran_ns / ((now() - start) * 1e6)));
	return 0;
}
