// SPDX-License-Identifier: GPL-2.0-only
/* A container's own thread is told to look at it: lifecycle.c has what it does then. */
#include "tenant/tenant.h"

void keeper_call(struct container *c)
{
	c->wanted = true;
	pthread_cond_signal(&c->keeper);
}

void worker_left(struct container *c)
{
	if (!--c->workers) {
		keeper_call(c);
		pthread_cond_broadcast(&door.leaves);
	}
}
