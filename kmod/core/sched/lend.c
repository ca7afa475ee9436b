// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The window of an idle owner is lent, where the policy conserves work. If some share
 * one window they have it, the most lagging first. Else it is divided by share among
 * those whose ceilings allow it, in an order that is the same in every period; each
 * part is corrected by half of the surplus that its borrower has over the others.
 * Parts too small to be worth a switch are not made. The owner's gate stays open, so
 * that it runs at once when it wakes.
 */
#include "core/sched/window.h"
#include "core/sched/account.h"
#include "core/sched/shared.h"

#define NEVER UINT64_MAX
#define SLOT_BIT(n) (1ULL << (n))

/* The slots whose ceilings allow them to borrow @window_ns. */
static uint64_t eligible(const struct cgpu_sched *s, uint32_t entity, uint64_t window_ns)
{
	uint64_t mask = 0;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		const struct cgpu_policy_share *share = &s->share[i];

		if (i == entity || !cgpu_opened(s, i) || s->slot[i].idle || !share->share_ppm ||
		    !cgpu_entity_elastic(s, i))
			continue;
		if (share->shared || cgpu_part(s->plan.spread_ns, share->share_ppm) +
						     s->slot[i].borrowed_ns + window_ns <=
					     cgpu_part(s->plan.spread_ns, share->ceiling_ppm))
			mask |= SLOT_BIT(i);
	}
	return mask;
}

/* Divides a lent window by share, or evenly if a part would not be worth its switch. */
static void divide(struct cgpu_sched *s, uint64_t could, uint64_t window_ns)
{
	uint64_t sum = 0, smallest = CGPU_PPM;
	uint32_t i;

	s->lent.surplus_ns = 0;
	for (i = 0; i < s->slot_end; i++) {
		if (!(could >> i & 1))
			continue;
		sum += s->share[i].share_ppm;
		smallest = cgpu_min(smallest, s->share[i].share_ppm);
		s->lent.surplus_ns += s->slot[i].surplus_ns;
	}
	s->lent.part_ppm = window_ns * smallest >= CGPU_SCHED_PART_NS * sum ? (uint32_t)sum : 0;
	s->lent.part_ns = s->lent.part_ppm
				  ? window_ns
				  : window_ns / cgpu_max(1, window_ns / CGPU_SCHED_PART_NS);
}

/* A borrower's part by share, less half of the surplus that it has over the others. */
static uint64_t part_of(const struct cgpu_sched *s, uint32_t borrower)
{
	int64_t ns, ahead;

	if (!s->lent.part_ppm)
		return s->lent.part_ns;
	ns = (int64_t)(s->lent.part_ns * s->share[borrower].share_ppm / s->lent.part_ppm);
	ahead = s->slot[borrower].surplus_ns -
		s->lent.surplus_ns / s->lent.part_ppm * s->share[borrower].share_ppm;
	if (ahead > 2 * ns)
		ahead = 2 * ns;
	else if (ahead < -ns)
		ahead = -ns;
	return (uint64_t)(ns - ahead / 2);
}

/*
 * The next borrower of those in @could. If all of them get a part, slots go downwards
 * from the owner: the order is the same in every period, the slot whose window was
 * before goes on, and the one whose window is next comes last. Else it is the one with
 * the least surplus by its share.
 */
static uint32_t pick_borrower(const struct cgpu_sched *s, uint32_t entity, uint64_t could)
{
	uint32_t k, i, best = CGPU_SCHED_NONE;

	for (k = 1; k < CGPU_SCHED_SLOTS; k++) {
		i = (entity + CGPU_SCHED_SLOTS - k) % CGPU_SCHED_SLOTS;
		if (!(could >> i & 1))
			continue;
		if (s->lent.part_ppm)
			return i;
		if (best == CGPU_SCHED_NONE || cgpu_entity_less_surplus(s, i, best))
			best = i;
	}
	return best;
}

/* Lends the window of an idle owner. Return: the borrower, or CGPU_SCHED_NONE. */
static uint32_t lend(struct cgpu_sched *s, uint32_t entity, uint64_t then_ns, uint64_t window_ns)
{
	uint64_t able = eligible(s, entity, window_ns), could = able, part_ns;
	uint32_t borrower;

	if (!could)
		return CGPU_SCHED_NONE;
	if (!(could & ~s->lent.mask))
		s->lent.mask = 0;
	could &= ~s->lent.mask;
	if (!s->lent.part_ns)
		divide(s, could, window_ns);
	borrower = pick_borrower(s, entity, could);
	part_ns = part_of(s, borrower);
	/* a slot that is slow to stop had its part, and more, in earlier windows */
	while (part_ns < CGPU_SCHED_PART_NS / 2 && could & (could - 1)) {
		s->lent.mask |= SLOT_BIT(borrower);
		could &= ~SLOT_BIT(borrower);
		borrower = pick_borrower(s, entity, could);
		part_ns = part_of(s, borrower);
	}
	if (part_ns < CGPU_SCHED_PART_NS / 2 && s->cur.borrower < CGPU_SCHED_SLOTS &&
	    (able >> s->cur.borrower & 1))
		borrower = s->cur.borrower;
	if (window_ns >= part_ns + CGPU_SCHED_PART_NS / 2 &&
	    (could & (could - 1) || !s->lent.part_ppm)) {
		window_ns = part_ns;
		s->lent.until_ns = then_ns + window_ns;
	}
	s->slot[borrower].borrowed_ns += window_ns;
	/* the switch to it is no surplus */
	if (borrower != (s->cur.borrower < CGPU_SCHED_SLOTS ? s->cur.borrower : s->cur.owner))
		s->slot[borrower].surplus_ns -= CGPU_SCHED_HANDOVER_NS;
	s->lent.mask |= SLOT_BIT(borrower);
	return borrower;
}

uint64_t cgpu_window_allowed(struct cgpu_sched *s, uint32_t entity, uint64_t then_ns,
			     uint64_t end_ns, uint64_t now_ns, uint32_t *borrower)
{
	uint64_t mask = 0, window_ns = end_ns - then_ns;
	uint32_t i;

	if (now_ns - s->lent.cycle_ns >= s->plan.period_ns) {
		s->lent.cycle_ns = now_ns - now_ns % s->plan.period_ns;
		for (i = 0; i < s->slot_end; i++)
			s->slot[i].borrowed_ns = 0;
	}
	*borrower = CGPU_SCHED_NONE;
	s->lent.until_ns = NEVER;
	if (entity == CGPU_SCHED_SHARED) {
		mask = cgpu_shared_slots(s) & ~s->throttled_mask;
	} else if (entity < CGPU_SCHED_SLOTS) {
		mask = SLOT_BIT(entity);
		if (!s->slot[entity].idle || !cgpu_entity_elastic(s, entity))
			return mask;
		if (s->entity[CGPU_SCHED_SHARED].share_ppm) {
			*borrower = CGPU_SCHED_SHARED;
			i = cgpu_shared_most_lagging(s);
			return mask | (i < CGPU_SCHED_SLOTS ? SLOT_BIT(i) : cgpu_shared_slots(s));
		}
		*borrower = lend(s, entity, then_ns, window_ns);
		if (*borrower < CGPU_SCHED_SLOTS)
			mask |= SLOT_BIT(*borrower);
	}
	return mask;
}
