// SPDX-License-Identifier: GPL-2.0-only
/*
 * On a card that promises more than it has, room may be wanted that an idle container can give.
 * The call that needs it waits here: pycgpu/parking parks who is idle, or says that nobody is.
 *
 * An agent after this one judges the call anew.
 */
#include "agent.h"
#include "card/card.h"

enum { LOOK_MS = 50, WAIT_S = 60 };

/* Context: door.lock, released meanwhile. */
static void pause_a_look(void)
{
	uint64_t until_ns = now_ns() + LOOK_MS * 1000000ULL;

	while (now_ns() < until_ns)
		cond_wait_until(&door.leaves, until_ns);
}

/* Context: door.lock. */
static bool has_room(struct container *c, uint32_t card, uint64_t bytes)
{
	bool has;

	change_begin(c, NULL);
	parking_limit(c);
	has = c->tenant.ledger.account[card].room_bytes >= bytes;
	if (has)
		cgpu_parking_want_no_more(&c->tenant);
	else
		cgpu_parking_want(&c->tenant, card, bytes);
	change_end();
	return has;
}

bool room_wait(struct container *c, uint32_t card, uint64_t bytes, bool (*waits)(const void *),
	       const void *caller)
{
	uint64_t end_ns = now_ns() + WAIT_S * 1000000000ULL;
	bool has = false, goes_on = true;
	uint32_t told;

	pthread_mutex_lock(&door.lock);
	told = c->tenant.parking.no_room;
	while (goes_on && told == c->tenant.parking.no_room && !c->ending && now_ns() < end_ns) {
		has = has_room(c, card, bytes);
		if (has)
			break;
		pause_a_look();
		/* this asks the kernel, and waits for nobody */
		goes_on = waits(caller);
	}
	if (!has) {
		change_begin(c, NULL);
		cgpu_parking_want_no_more(&c->tenant);
		change_end();
	}
	pthread_mutex_unlock(&door.lock);
	return has;
}
