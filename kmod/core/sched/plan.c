// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * After any event the plan is made anew. Policy turns members into shares. The mode follows from
 * the ceilings and from which containers pause. If none has a ceiling below 100 % and none pauses,
 * the runlist's slices make the shares. Otherwise gates make windows, on demand or by the clock.
 * Gangs that compete have windows by the clock, unless a container that is no gang pauses. By the
 * clock each entity with a share has a window, and the time left over is nobody's. Entities whose
 * share does not depend on the others' come first.
 *
 * A change of plan must move no account. Each entity keeps its lag relative to where the old plan
 * wanted it. The open window goes on with an end of the new plan.
 */
#include "core/sched/plan.h"
#include "core/sched/account.h"
#include "core/sched/budget.h"
#include "core/sched/expiry.h"
#include "core/sched/fair.h"
#include "core/sched/gang.h"
#include "core/sched/pause.h"
#include "core/sched/period.h"
#include "core/sched/slices.h"

/* The slot holds the card open, or closed it so recently that its part is kept for it. */
static bool counted(const struct cgpu_sched *s, uint32_t i)
{
	return cgpu_opened(s, i) || (s->slot[i].present && s->slot[i].leaves_ns);
}

/* Whether windows are made on demand. Also finds resting containers, which the plan leaves out. */
static bool fair_wanted(struct cgpu_sched *s, uint64_t now_ns)
{
	s->fair.resting_mask = 0;
	if (cgpu_policy_conserves(s->config.policy) || !cgpu_budget_is_needed(s))
		s->fair.resting_mask = cgpu_pause_resting(s, now_ns);
	return cgpu_pause_wants_demand(s, now_ns);
}

/* @without: slots that get nothing, though they hold the card open. */
static void shares(struct cgpu_sched *s, uint64_t without)
{
	struct cgpu_policy_member *members = s->scratch, member;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		member = s->slot[i].member;
		if (!s->slot[i].present)
			member.weight = 0;
		member.open = counted(s, i);
		member.active = member.open && !(without >> i & 1);
		members[i] = member;
	}
	/* the bounds were checked when the numbers came */
	(void)cgpu_policy_shares(s->config.policy, s->config.max_inst, members, CGPU_SCHED_SLOTS,
				 s->share);
}

/*
 * The round leaves resting containers out, which makes the others' slices longer. A container that
 * wakes may have to wait for all of them. So the round grows by no more than CGPU_SCHED_WAKE_NS,
 * unless all resting containers slept for so long that this no longer counts.
 */
static void set_round(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t rest = s->fair.resting_mask, deep = 0, part = 0, at_ns;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		if (!(rest >> i & 1))
			continue;
		part += s->share[i].share_ppm;
		at_ns = s->slot[i].fair.since_ns + CGPU_SCHED_DEEP_S * 1000000000ULL;
		if (now_ns >= at_ns)
			deep |= 1ULL << i;
		else
			cgpu_plan_outdate_at(s, at_ns);
	}
	shares(s, deep);
	cgpu_period_set_round(s, CGPU_SCHED_SECOND_NS);
	if (rest == deep)
		return;
	shares(s, rest);
	cgpu_period_set_round(s, cgpu_part(s->plan.spread_ns, CGPU_PPM - part) +
					 CGPU_SCHED_WAKE_NS);
}

/* Sets when the next resting container must show again that it has no work. */
static void review_proofs(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t at_ns;
	uint32_t i;

	if (!cgpu_pause_is_logged(s, now_ns))
		return;
	for (i = 0; i < s->slot_end; i++) {
		if (!(s->fair.resting_mask >> i & 1))
			continue;
		at_ns = cgpu_max(s->slot[i].idle_ns + CGPU_SCHED_FAIR_FULL_NS, now_ns);
		cgpu_plan_outdate_at(s, at_ns);
	}
}

static void set_entity(struct cgpu_sched *s, uint32_t entity, uint32_t share_ppm)
{
	struct cgpu_sched_entity *e = &s->entity[entity];

	cgpu_entity_settle(s, entity);
	e->share_ppm = share_ppm;
}

/*
 * The share of the period that is a slot's window. Where shares do not depend on which slots hold
 * the card open, a slot that does not hold it keeps its place. So opening and closing the card
 * moves no other.
 */
static uint32_t window_ppm(const struct cgpu_sched *s, uint32_t i)
{
	if (!s->slot[i].present || s->plan.mode != CGPU_SCHED_WINDOWS)
		return 0;
	if (cgpu_policy_fixes(s->config.policy, &s->slot[i].member))
		return s->share[i].floor_ppm;
	return counted(s, i) ? s->share[i].share_ppm : 0;
}

static void set_entities(struct cgpu_sched *s)
{
	uint32_t i, left = s->plan.mode == CGPU_SCHED_WINDOWS ? CGPU_PPM : 0, share;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		share = window_ppm(s, i);
		set_entity(s, i, share);
		left -= share;
	}
	/* the millionths that rounding leaves are no window */
	set_entity(s, CGPU_SCHED_NOBODY, left > CGPU_SCHED_SLOTS ? left : 0);
}

/* All entities, by slot; the gangs before them where they compete. */
static void sort(const struct cgpu_sched *s, uint8_t sorted[CGPU_SCHED_ENTITIES])
{
	bool gangs = cgpu_gangs_compete(s);
	uint32_t i, at;

	for (i = 0; i < CGPU_SCHED_ENTITIES; i++) {
		for (at = i; gangs && at && cgpu_gang_precedes(s, i, sorted[at - 1]); at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = (uint8_t)i;
	}
}

static void set_order(struct cgpu_sched *s)
{
	uint8_t sorted[CGPU_SCHED_ENTITIES];
	uint32_t i, pass, k;

	sort(s, sorted);
	s->plan.count = 0;
	/* entities placed behind elastic ones would move when a slot opens or closes the card */
	for (pass = 0; pass < 2; pass++) {
		for (k = 0; k < CGPU_SCHED_ENTITIES; k++) {
			struct cgpu_sched_entity *e = &s->entity[i = sorted[k]];

			if (cgpu_entity_is_elastic(s, i) != (pass == 1))
				continue;
			s->plan.place[i] = (int8_t)(s->plan.count - !e->share_ppm);
			e->width_ns = e->cost_ns = e->offset_ns = 0;
			if (e->share_ppm)
				s->plan.order[s->plan.count++] = (uint8_t)i;
		}
	}
	/* also for slots that do not hold the card open: the plan must not depend on that */
	for (k = 0; s->plan.count > 1 && k < s->plan.count; k++) {
		uint32_t before = s->plan.order[(k + s->plan.count - 1) % s->plan.count];
		uint32_t after = s->plan.order[(k + 1) % s->plan.count];

		if (s->plan.order[k] != CGPU_SCHED_NOBODY)
			s->entity[s->plan.order[k]].cost_ns =
				cgpu_entry_ns(before == CGPU_SCHED_NOBODY) +
				cgpu_exit_ns(after == CGPU_SCHED_NOBODY);
	}
}

static void set_windows(struct cgpu_sched *s)
{
	uint64_t end = 0, sum;
	uint32_t k, i;

	cgpu_period_set_windows(s);
	sum = CGPU_PPM - s->entity[CGPU_SCHED_NOBODY].share_ppm;
	s->plan.whole = sum < CGPU_PPM &&
			cgpu_part(s->plan.period_ns, CGPU_PPM - sum) > cgpu_period_lost_ns(s);
	if (!s->plan.whole && sum && sum < CGPU_PPM) {
		/* the time that is nobody's does not cover the hand-overs */
		for (i = 0; i < CGPU_SCHED_ENTITIES; i++)
			set_entity(s, i,
				   i == CGPU_SCHED_NOBODY
					   ? 0
					   : (uint32_t)((uint64_t)s->entity[i].share_ppm *
							CGPU_PPM / sum));
		set_order(s);
	}
	cgpu_period_spread(s, s->plan.whole ? 0 : cgpu_period_lost_ns(s));
	for (k = 0; k < s->plan.count; k++) {
		struct cgpu_sched_entity *e = &s->entity[s->plan.order[k]];

		e->width_ns = cgpu_part(s->plan.spread_ns, e->share_ppm);
		if (s->plan.order[k] == CGPU_SCHED_NOBODY)
			e->width_ns -= cgpu_period_lost_ns(s);
		end += e->width_ns + e->cost_ns;
		e->offset_ns = end;
	}
}

uint64_t cgpu_plan_frame(const struct cgpu_sched *s, uint64_t now_ns)
{
	/* windows in step begin at once, though their calls then wait for each other */
	uint64_t phase_ns = cgpu_gangs_compete(s) ? 0 : s->config.phase_ns % s->plan.period_ns;

	return now_ns - (now_ns + s->plan.period_ns - phase_ns) % s->plan.period_ns;
}

void cgpu_plan_enter(struct cgpu_sched *s, uint64_t frame_ns)
{
	s->plan.frame_ns = frame_ns;
	s->plan.moved = false;
}

void cgpu_plan_keep_place(struct cgpu_sched *s, uint32_t slot, bool closes, uint64_t now_ns)
{
	s->slot[slot].leaves_ns = closes && s->plan.mode == CGPU_SCHED_WINDOWS ?
					  now_ns + s->plan.period_ns : 0;
}

static bool is_paced(const struct cgpu_sched *s, uint32_t entity)
{
	return entity < CGPU_SCHED_SLOTS && cgpu_budget_paces(s, entity);
}

bool cgpu_plan_make(struct cgpu_sched *s, uint64_t now_ns)
{
	int64_t lag[CGPU_SCHED_ENTITIES]; /* relative to the plan */
	bool had[CGPU_SCHED_ENTITIES], in_place, notional;
	uint64_t was, offset_ns;
	uint32_t i, mode = s->plan.mode;

	cgpu_sched_charge(s, now_ns);
	for (i = 0; i < CGPU_SCHED_ENTITIES; i++) {
		cgpu_entity_settle(s, i);
		lag[i] = s->entity[i].lag_ns;
		had[i] = s->entity[i].share_ppm != 0;
		if (had[i])
			lag[i] -= cgpu_entity_planned_lag(s, i, now_ns);
	}
	cgpu_plan_begin(s);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (s->slot[i].leaves_ns && now_ns >= s->slot[i].leaves_ns)
			s->slot[i].leaves_ns = 0;
		if (s->slot[i].leaves_ns)
			cgpu_plan_outdate_at(s, s->slot[i].leaves_ns);
	}
	shares(s, 0);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		s->slot[i].fair.full_ppm = s->share[i].share_ppm;
	if (s->suspended || s->calls.retry_ns || s->config.policy == CGPU_POLICY_NATIVE)
		s->plan.mode = CGPU_SCHED_FREE;
	else if (fair_wanted(s, now_ns))
		s->plan.mode = CGPU_SCHED_DEMAND;
	else
		s->plan.mode = cgpu_budget_is_needed(s) || cgpu_gangs_compete(s) ?
				       CGPU_SCHED_WINDOWS : CGPU_SCHED_SLICES;
	was = s->plan.period_ns;
	offset_ns = s->entity[s->cur.owner].offset_ns;
	if (s->plan.mode == CGPU_SCHED_SLICES)
		set_round(s, now_ns);
	else
		shares(s, s->fair.resting_mask);
	if (s->plan.mode == CGPU_SCHED_DEMAND)
		cgpu_period_set_demand(s);
	set_entities(s);
	set_order(s);
	s->plan.whole = false;
	if (s->plan.mode == CGPU_SCHED_WINDOWS) {
		set_windows(s);
		review_proofs(s, now_ns);
	} else if (s->plan.mode == CGPU_SCHED_FREE) {
		cgpu_period_set_round(s, CGPU_SCHED_SECOND_NS);
	}
	in_place = s->plan.period_ns == was && s->entity[s->cur.owner].offset_ns == offset_ns;
	s->plan.moved |= !in_place;
	/* several events came at once: no container used the card in between */
	notional = s->clock_ns - s->plan.clock_ns < CGPU_SCHED_WINDOW_MIN_NS;
	s->plan.clock_ns = s->clock_ns;
	/* the grid is the same in every second */
	if (!s->cur.begun || s->plan.period_ns != was)
		s->plan.frame_ns = cgpu_plan_frame(s, now_ns);
	for (i = 0; i < CGPU_SCHED_ENTITIES; i++) {
		struct cgpu_sched_entity *e = &s->entity[i];

		/* an absent entity keeps a negative lag and loses a positive one */
		if (!e->share_ppm)
			cgpu_entity_set_lag(s, i, lag[i] < 0 || is_paced(s, i) ? lag[i] : 0);
		else if (!had[i] || (notional && s->plan.period_ns != was))
			cgpu_entity_set_lag(s, i, lag[i] + cgpu_entity_planned_lag(s, i, now_ns));
		if (e->share_ppm)
			cgpu_entity_cap_lag(s, e);
	}
	cgpu_entities_balance(s);
	cgpu_fair_plan(s, mode, now_ns);
	cgpu_slices_want(s);
	return in_place;
}
