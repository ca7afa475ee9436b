/* SPDX-License-Identifier: MIT */
/*
 * bench N: the median over 21 rounds of N RM controls, in nanoseconds a call, which
 * are instructions where the machine counts them. The control is one that the core
 * does not look into, so what is measured beside the driver is the hook itself.
 */
#include "simcuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 21, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS = 0x201 };

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 2000, i;
	struct sc_options options = { 0 };
	double rounds[ROUNDS];
	struct sc sc;
	u32 ids[32];
	int round, ret = sc_open(&sc, 0, &options);

	if (ret) {
		fprintf(stderr, "bench: open: %d\n", ret);
		return 2;
	}
	for (round = 0; round < ROUNDS; round++) {
		double begin = now_ns();

		for (i = 0; i < calls; i++) {
			ret = sc_rm_control(&sc, sc.client, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS,
					    ids, sizeof(ids));
			if (ret) {
				fprintf(stderr, "bench: control: %d\n", ret);
				return 2;
			}
		}
		rounds[round] = (now_ns() - begin) / calls;
	}
	qsort(rounds, ROUNDS, sizeof(*rounds), ascending);
	printf("%.0f\n", rounds[ROUNDS / 2]);
	return 0;
}
