// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * In the shared window the runlist passes on idle time by its own rule: once every
 * member had its slice, it starts over with the first, which gets all that the others
 * left. So what each member ran is accounted for. When the members that always have
 * work are about to have had their parts, all but the most lagging one are throttled
 * for the rest of the window.
 */
#include "core/sched/shared.h"

#include "core/sched/account.h"

uint64_t cgpu_shared_slots(const struct cgpu_sched *s)
{
	uint64_t mask = 0;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++)
		if (cgpu_opened(s, i) && s->share[i].shared && s->slot[i].member.weight)
			mask |= 1ULL << i;
	return mask;
}

bool cgpu_shared_paused(const struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t mask = cgpu_shared_slots(s);
	uint32_t i;

	for (i = 0; i < s->slot_end; i++)
		if (mask >> i & 1 && !cgpu_entity_paused(s, i, now_ns))
			return false;
	return true;
}

uint64_t cgpu_shared_resting_ppm(const struct cgpu_sched *s)
{
	uint64_t ppm = 0;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++)
		if (s->slot[i].resting && s->share[i].shared)
			ppm += s->share[i].share_ppm;
	return ppm;
}

uint64_t cgpu_shared_part(const struct cgpu_sched *s, uint32_t slot, uint64_t window_ns,
			  uint64_t resting_ppm)
{
	uint64_t whole = s->entity[CGPU_SCHED_SHARED].share_ppm;

	if (resting_ppm && resting_ppm < whole && !s->slot[slot].resting) {
		whole -= resting_ppm;
		window_ns -= cgpu_min(window_ns / 2, CGPU_SCHED_SEEN_NS);
	}
	return window_ns * s->share[slot].share_ppm / cgpu_max(whole, 1);
}

/* It had its part of a window, short of a switch or two. */
static bool had_part(uint64_t ran_ns, uint64_t part_ns)
{
	return ran_ns >= part_ns / 4 * 3;
}

static bool is_steady(const struct cgpu_sched *s, uint32_t slot)
{
	return s->slot[slot].busy >= CGPU_SCHED_STEADY;
}

/* Slot a got less of others' time in shared windows than slot b, each by its share. */
static bool less_spare(const struct cgpu_sched *s, uint32_t a, uint32_t b)
{
	return cgpu_entity_behind(s, a, s->slot[a].spare_ns, b, s->slot[b].spare_ns);
}

uint32_t cgpu_shared_most_lagging(const struct cgpu_sched *s)
{
	uint32_t i, steady = 0, low = CGPU_SCHED_NONE;
	uint64_t mask = cgpu_shared_slots(s);

	for (i = 0; i < s->slot_end; i++) {
		if (!(mask >> i & 1) || !is_steady(s, i))
			continue;
		steady++;
		if (low == CGPU_SCHED_NONE || less_spare(s, i, low))
			low = i;
	}
	return steady > 1 ? low : CGPU_SCHED_NONE;
}

void cgpu_shared_account(struct cgpu_sched *s, const uint64_t *ran_ns)
{
	uint64_t mask = cgpu_shared_slots(s), resting_ppm = cgpu_shared_resting_ppm(s), busy = 0,
		 part_ns;
	uint32_t i, top = CGPU_SCHED_NONE;

	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_slot *slot = &s->slot[i];

		part_ns = cgpu_shared_part(s, i, s->last.ran_ns, resting_ppm);
		if (!(mask >> i & 1) || !s->share[i].share_ppm || !had_part(ran_ns[i], part_ns)) {
			slot->busy = 0;
			continue;
		}
		slot->busy += slot->busy < CGPU_SCHED_STEADY;
		busy |= 1ULL << i;
		slot->spare_ns += (int64_t)ran_ns[i] - (int64_t)part_ns;
		if (top == CGPU_SCHED_NONE || less_spare(s, top, i))
			top = i;
	}
	/* one that pauses saves up nothing */
	for (i = 0; i < s->slot_end && top < CGPU_SCHED_SLOTS; i++)
		if (!(busy >> i & 1))
			s->slot[i].spare_ns = cgpu_entity_level(s, i, top, s->slot[top].spare_ns);
}

static bool is_open(const struct cgpu_sched *s)
{
	return s->cur.begun && s->cur.owner == CGPU_SCHED_SHARED &&
	       s->cur.borrower == CGPU_SCHED_NONE;
}

uint64_t cgpu_shared_surplus_at(const struct cgpu_sched *s)
{
	uint64_t width_ns = s->entity[CGPU_SCHED_SHARED].width_ns, mask = cgpu_shared_slots(s),
		 taken = 0;
	uint64_t resting_ppm;
	uint32_t i;

	if (!is_open(s) || cgpu_shared_most_lagging(s) == CGPU_SCHED_NONE)
		return UINT64_MAX;
	resting_ppm = cgpu_shared_resting_ppm(s);
	for (i = 0; i < s->slot_end; i++)
		if (mask >> i & 1 && is_steady(s, i))
			taken += cgpu_shared_part(s, i, width_ns, resting_ppm);
	taken += s->cur.began_ns + s->cur.cost_ns;
	/* less is not worth a call */
	if (taken + CGPU_SCHED_PART_NS > s->cur.end_ns)
		return UINT64_MAX;
	return taken - CGPU_SCHED_THROTTLE_NS;
}

void cgpu_shared_throttle(struct cgpu_sched *s, const uint64_t *ran_ns, uint32_t loaded)
{
	uint64_t width_ns = s->entity[CGPU_SCHED_SHARED].width_ns, members = cgpu_shared_slots(s),
		 mask = 0;
	uint64_t resting_ppm = cgpu_shared_resting_ppm(s);
	uint32_t i, low = CGPU_SCHED_NONE;

	if (!is_open(s))
		return;
	for (i = 0; i < s->slot_end; i++) {
		/* one that has not come up so far may have no work */
		if (!(members >> i & 1) || (!ran_ns[i] && i != loaded))
			continue;
		if (s->slot[i].busy && (low == CGPU_SCHED_NONE || less_spare(s, i, low)))
			low = i;
		/* the slice of the one that runs is not over */
		if (i != loaded &&
		    had_part(ran_ns[i], cgpu_shared_part(s, i, width_ns, resting_ppm)))
			mask |= 1ULL << i;
	}
	if (low == CGPU_SCHED_NONE)
		return;
	s->throttled_mask = mask & ~(1ULL << low);
	s->regate |= s->throttled_mask != 0;
}
