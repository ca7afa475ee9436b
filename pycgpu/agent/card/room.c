// SPDX-License-Identifier: GPL-2.0-only
/*
 * A card that promises more than it has may run out of room that an idle container can give. The
 * call that needs the room waits here. pycgpu/parking parks idle containers, or says that none is
 * idle.
 *
 * An agent after this one judges the call anew.
 */
#include "agent.h"
#include "card/card.h"

enum { LOOK_MS = 50 };

/* Context: door.lock, released meanwhile. */
static void pause_a_look(void)
{
	uint64_t until_ns = now_ns() + LOOK_MS * 1000000ULL;

	while (now_ns() < until_ns)
		cond_wait_until(&door.leaves, until_ns);
}

static bool begins(struct container *c, const struct cgpu_shortage *shortage,
		   struct cgpu_wait *wait)
{
	bool waits;

	change_begin(c, NULL);
	waits = cgpu_wait_begin(wait, &c->tenant, shortage, now_ns());
	change_end();
	return waits;
}

static bool goes_on(struct container *c, struct cgpu_wait *wait)
{
	bool waits;

	change_begin(c, NULL);
	parking_limit(c);
	waits = cgpu_wait_goes_on(wait, &c->tenant, now_ns());
	change_end();
	return waits;
}

static void end(struct container *c, struct cgpu_wait *wait)
{
	change_begin(c, NULL);
	cgpu_wait_end(wait, &c->tenant);
	change_end();
}

bool room_wait(struct container *c, const struct cgpu_shortage *shortage, struct cgpu_wait *wait,
	       bool (*is_there)(const void *), const void *caller)
{
	bool waits, there = true;

	pthread_mutex_lock(&door.lock);
	waits = begins(c, shortage, wait);
	if (!waits) {
		pthread_mutex_unlock(&door.lock);
		return false;
	}
	while (goes_on(c, wait) && there && !c->ending) {
		pause_a_look();
		/* this asks the kernel, and does not block */
		there = is_there(caller);
	}
	end(c, wait);
	pthread_mutex_unlock(&door.lock);
	return there;
}
