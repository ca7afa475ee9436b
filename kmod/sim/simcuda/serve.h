/* SPDX-License-Identifier: GPL-2.0-only */
/* A server that waits for every token, and how long each took. */
#ifndef SIMCUDA_SERVE_H
#define SIMCUDA_SERVE_H

#include <signal.h>
#include "simcuda.h"

struct serve_load {
	double seconds;
	double rate;		/* requests a second, by Poisson; 0: the next when one is done */
	u64 token_ns;
	long tokens;		/* of a request */
};

struct serve_found {
	u64 requests, tokens, wall_us;
	u32 token_p50_us, token_p99_us;
	u32 request_p50_us, request_p99_us;	/* from its arrival on */
};

/* Return: 0 or -ENOMEM. */
int sc_serve(struct sc *sc, const struct serve_load *load, volatile sig_atomic_t *stop,
	     struct serve_found *found);

#endif
