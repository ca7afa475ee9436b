// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Each card has an engine of its own, and engines tell each other nothing. Windows by the clock are
 * in step on all cards nevertheless, if periods begin together and gangs follow each other in the
 * same order. Slices of the runlist are not in step: two jobs with short steps lose most of their
 * overlap by that (H200, docs/measurements.md).
 */
#include "core/sched/gang.h"
#include "core/sched/account.h"

uint32_t cgpu_gang_number(const char *id, uint32_t cards)
{
	uint32_t hash = 2166136261u; /* FNV-1a: nothing but an order comes of it */

	if (cards < 2)
		return 0;
	for (; *id; id++)
		hash = (hash ^ (uint8_t)*id) * 16777619u;
	return hash ? hash : 1;
}

bool cgpu_gangs_compete(const struct cgpu_sched *s)
{
	uint32_t i, count = 0;

	for_each_competing(s, i)
		count += s->slot[i].gang != 0;
	return count > 1;
}

bool cgpu_gang_precedes(const struct cgpu_sched *s, uint32_t entity, uint32_t other)
{
	uint32_t a = entity < CGPU_SCHED_SLOTS ? s->slot[entity].gang : 0;
	uint32_t b = other < CGPU_SCHED_SLOTS ? s->slot[other].gang : 0;

	return a && (!b || a < b);
}
