// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "pool.h"

#include "turns.h"

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t cgpu_pool(const struct cgpu_sched *s)
{
	uint64_t mask = 0;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (cgpu_opened(s, i) && s->share[i].pooled && s->slot[i].member.weight)
			mask |= 1ULL << i;
	return mask;
}

bool cgpu_pool_paused(const struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t mask = cgpu_pool(s);
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (mask >> i & 1 && !cgpu_turn_paused(s, i, now_ns))
			return false;
	return true;
}

uint64_t cgpu_pool_resting_ppm(const struct cgpu_sched *s)
{
	uint64_t ppm = 0;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (s->slot[i].resting && s->share[i].pooled)
			ppm += s->share[i].share_ppm;
	return ppm;
}

uint64_t cgpu_pool_part(const struct cgpu_sched *s, uint32_t slot, uint64_t window_ns,
			uint64_t resting_ppm)
{
	uint64_t whole = s->turn[CGPU_SCHED_POOL].share_ppm;

	if (resting_ppm && resting_ppm < whole && !s->slot[slot].resting) {
		whole -= resting_ppm;
		window_ns -= least(window_ns / 2, CGPU_SCHED_SEEN_NS);
	}
	return window_ns * s->share[slot].share_ppm / most(whole, 1);
}

/* It had its part of a window, but for what a switch or two take. */
static bool had_part(uint64_t ran_ns, uint64_t part_ns)
{
	return ran_ns >= part_ns / 4 * 3;
}

static bool is_steady(const struct cgpu_sched *s, uint32_t slot)
{
	return s->slot[slot].busy >= CGPU_SCHED_STEADY;
}

/* Slot a has less to spare of shared windows for its share than slot b. */
static bool less_spare(const struct cgpu_sched *s, uint32_t a, uint32_t b)
{
	return cgpu_turn_behind(s, a, s->slot[a].spare_ns, b, s->slot[b].spare_ns);
}

uint32_t cgpu_pool_needy(const struct cgpu_sched *s)
{
	uint32_t i, steady = 0, low = CGPU_SCHED_SLOTS;
	uint64_t mask = cgpu_pool(s);

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (!(mask >> i & 1) || !is_steady(s, i))
			continue;
		steady++;
		if (low == CGPU_SCHED_SLOTS || less_spare(s, i, low))
			low = i;
	}
	return steady > 1 ? low : CGPU_SCHED_SLOTS;
}

void cgpu_pool_account(struct cgpu_sched *s, const uint64_t *ran_ns)
{
	uint64_t mask = cgpu_pool(s), resting_ppm = cgpu_pool_resting_ppm(s), busy = 0, part_ns;
	uint32_t i, top = CGPU_SCHED_SLOTS;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		struct cgpu_sched_slot *slot = &s->slot[i];

		part_ns = cgpu_pool_part(s, i, s->last_ns, resting_ppm);
		if (!(mask >> i & 1) || !s->share[i].share_ppm || !had_part(ran_ns[i], part_ns)) {
			slot->busy = 0;
			continue;
		}
		slot->busy += slot->busy < CGPU_SCHED_STEADY;
		busy |= 1ULL << i;
		slot->spare_ns += (int64_t)ran_ns[i] - (int64_t)part_ns;
		if (top == CGPU_SCHED_SLOTS || less_spare(s, top, i))
			top = i;
	}
	/* one that pauses saves up nothing */
	for (i = 0; i < CGPU_SCHED_SLOTS && top < CGPU_SCHED_SLOTS; i++)
		if (!(busy >> i & 1))
			s->slot[i].spare_ns = cgpu_turn_level(s, i, top, s->slot[top].spare_ns);
}

static bool is_open(const struct cgpu_sched *s)
{
	return s->begun && s->owner == CGPU_SCHED_POOL && s->guest == CGPU_SCHED_TURNS;
}

uint64_t cgpu_pool_spare(const struct cgpu_sched *s)
{
	uint64_t width_ns = s->turn[CGPU_SCHED_POOL].width_ns, mask = cgpu_pool(s), taken = 0;
	uint64_t resting_ppm;
	uint32_t i;

	if (!is_open(s) || cgpu_pool_needy(s) == CGPU_SCHED_SLOTS)
		return UINT64_MAX;
	resting_ppm = cgpu_pool_resting_ppm(s);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (mask >> i & 1 && is_steady(s, i))
			taken += cgpu_pool_part(s, i, width_ns, resting_ppm);
	taken += s->began_ns + s->cost_ns;
	/* less is not worth a call */
	if (taken + 5 * CGPU_SCHED_WINDOW_MIN_NS / 4 > s->end_ns)
		return UINT64_MAX;
	return taken - CGPU_SCHED_SATED_NS;
}

void cgpu_pool_sated(struct cgpu_sched *s, const uint64_t *ran_ns, uint32_t loaded)
{
	uint64_t width_ns = s->turn[CGPU_SCHED_POOL].width_ns, pool = cgpu_pool(s), mask = 0;
	uint64_t resting_ppm = cgpu_pool_resting_ppm(s);
	uint32_t i, low = CGPU_SCHED_SLOTS;

	if (!is_open(s))
		return;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		/* one that has not come up so far may have no work */
		if (!(pool >> i & 1) || (!ran_ns[i] && i != loaded))
			continue;
		if (s->slot[i].busy && (low == CGPU_SCHED_SLOTS || less_spare(s, i, low)))
			low = i;
		/* the slice of the one that runs is not over */
		if (i != loaded && had_part(ran_ns[i], cgpu_pool_part(s, i, width_ns, resting_ppm)))
			mask |= 1ULL << i;
	}
	if (low == CGPU_SCHED_SLOTS)
		return;
	s->sated_mask = mask & ~(1ULL << low);
	s->regate |= s->sated_mask != 0;
}
