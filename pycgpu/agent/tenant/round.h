/* SPDX-License-Identifier: GPL-2.0-only */
/* Private to tenant: a look at descriptors, of which a process may have millions. */
#ifndef CGPU_AGENT_ROUND_H
#define CGPU_AGENT_ROUND_H

#include "tenant/tenant.h"

/* Called for each descriptor that is one of the driver's. Return: true: stop looking. */
typedef bool (*found_fn)(struct container *c, int pid, int tid, int fd, int device,
			 uint32_t minor, void *data);

struct round {
	struct container *c;
	found_fn found;
	void *data;
	uint64_t end_ns;         /* 0: none */
	bool ran_out;            /* the time was up */
};

/* Asks every process but this one. Return: what `found` did last; true: the look is incomplete. */
bool round_everybody(struct round *r);
/* The same for the container's processes that use the driver. */
bool round_own(struct round *r);

#endif
