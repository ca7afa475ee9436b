// SPDX-License-Identifier: GPL-2.0-only
/* Wakes a container's own thread to look at it; lifecycle.c has what that thread does. */
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
