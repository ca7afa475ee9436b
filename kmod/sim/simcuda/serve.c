// SPDX-License-Identifier: GPL-2.0-only
/* See serve.h. */
#define _GNU_SOURCE
#include "serve.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define POLL_US	100

struct latencies { u32 *us; size_t count, room; };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int note(struct latencies *l, double seconds)
{
	size_t room = l->room ? 2 * l->room : 1024;
	u32 *more;

	if (l->count == l->room) {
		more = realloc(l->us, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->us = more;
		l->room = room;
	}
	l->us[l->count++] = (u32)(seconds * 1e6);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

static u32 percentile(struct latencies *l, unsigned int percent)
{
	if (!l->count)
		return 0;
	qsort(l->us, l->count, sizeof(*l->us), by_value);
	return l->us[l->count * percent / 100];
}

int sc_serve(struct sc *sc, const struct serve_load *load, volatile sig_atomic_t *stop,
	     struct serve_found *found)
{
	struct latencies token = { 0 }, request = { 0 };
	double t0 = now(), arrival = t0, last, done;
	u64 count = sc_completed(sc, 0);
	long i;
	int ret = 0;

	srand48(1);
	while (!ret && !*stop && now() - t0 < load->seconds) {
		if (load->rate > 0) {
			arrival -= log(1 - drand48()) / load->rate;
			if (arrival > t0 + load->seconds)
				break;
			while (!*stop && (last = arrival - now()) > 0)
				usleep((useconds_t)(last * 1e6) + 1);
		} else {
			arrival = now();
		}
		last = now();
		for (i = 0; i < load->tokens && !ret; i++) {
			sc_enqueue(sc, 0, load->token_ns);
			sc_ring(sc, 0);
			count++;
			while (sc_completed(sc, 0) < count && !*stop)
				usleep(POLL_US);
			if (*stop)
				break;
			done = now();
			ret = note(&token, done - last);
			last = done;
		}
		if (!ret && i == load->tokens)
			ret = note(&request, last - arrival);
	}
	*found = (struct serve_found){
		.requests = request.count,
		.tokens = token.count,
		.wall_us = (u64)((now() - t0) * 1e6),
		.token_p50_us = percentile(&token, 50),
		.token_p99_us = percentile(&token, 99),
		.request_p50_us = percentile(&request, 50),
		.request_p99_us = percentile(&request, 99),
	};
	free(token.us);
	free(request.us);
	return ret;
}
