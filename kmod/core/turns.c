// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "turns.h"

#define NEVER UINT64_MAX

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

bool cgpu_opened(const struct cgpu_sched *s, uint32_t i)
{
	return s->slot[i].present && s->slot[i].member.open;
}

uint64_t cgpu_part(uint64_t x, uint64_t ppm)
{
	return x * ppm / CGPU_PPM;
}

/* ---- accounts ---- */

void cgpu_turn_settle(struct cgpu_sched *s, uint32_t turn)
{
	struct cgpu_sched_turn *t = &s->turn[turn];
	uint64_t rest = s->useful_ns - t->mark_ns;

	t->debt_ns -= (int64_t)cgpu_part(rest, t->share_ppm);
	t->mark_ns = s->useful_ns;
}

int64_t cgpu_turn_expected(const struct cgpu_sched *s, uint32_t share_ppm)
{
	return (int64_t)cgpu_part(cgpu_part(s->spread_ns, share_ppm), CGPU_PPM - share_ppm) / 2;
}

uint64_t cgpu_turn_cost(uint32_t turn)
{
	return turn == CGPU_SCHED_NOBODY ? 0 : CGPU_SCHED_HANDOVER_NS;
}

int64_t cgpu_turn_planned(const struct cgpu_sched *s, uint32_t turn, uint64_t now_ns)
{
	const struct cgpu_sched_turn *t = &s->turn[turn];
	uint64_t width = cgpu_part(s->spread_ns, t->share_ppm) + cgpu_turn_cost(turn);
	uint64_t at = (now_ns + s->period_ns - s->frame_ns) % s->period_ns, since;

	if (at < t->offset_ns && at + width >= t->offset_ns) {
		since = at + width - t->offset_ns;
		since -= least(since, cgpu_turn_cost(turn));
		return (int64_t)cgpu_part(since, CGPU_PPM - t->share_ppm) -
		       cgpu_turn_expected(s, t->share_ppm);
	}
	since = (at + s->period_ns - t->offset_ns) % s->period_ns;
	/* while others have the card, the debt falls from the one value to the other */
	return cgpu_turn_expected(s, t->share_ppm) -
	       (int64_t)(2 * cgpu_turn_expected(s, t->share_ppm) * (int64_t)(since / 1000) /
			 (int64_t)((s->period_ns - width) / 1000 + 1));
}

bool cgpu_turn_cap_credit(const struct cgpu_sched *s, struct cgpu_sched_turn *t)
{
	int64_t lowest = -cgpu_turn_expected(s, t->share_ppm) -
			 (int64_t)cgpu_part(s->spread_ns, t->share_ppm);

	if (t->debt_ns >= lowest)
		return false;
	t->debt_ns = lowest;
	return true;
}

bool cgpu_turn_elastic(const struct cgpu_sched *s, uint32_t turn)
{
	return turn >= CGPU_SCHED_SLOTS ||
	       (cgpu_policy_conserves(s->policy) &&
		(s->policy != CGPU_POLICY_MIXED || s->share[turn].pooled));
}

void cgpu_turns_balance(struct cgpu_sched *s)
{
	int64_t sum = 0, shares = 0;
	bool all;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_TURNS; i++) {
		cgpu_turn_settle(s, i);
		if (!s->turn[i].share_ppm)
			continue;
		sum += s->turn[i].debt_ns;
		if (cgpu_turn_elastic(s, i))
			shares += s->turn[i].share_ppm;
	}
	all = !shares;
	if (all)
		shares = CGPU_PPM;
	for (i = 0; i < CGPU_SCHED_TURNS; i++)
		if (s->turn[i].share_ppm && (all || cgpu_turn_elastic(s, i)))
			s->turn[i].debt_ns -= sum / 1000 * s->turn[i].share_ppm /
					      shares * 1000;
}

void cgpu_turns_grant(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t passed = now_ns - s->granted_to_ns, whole;
	uint32_t i;

	if (now_ns <= s->granted_to_ns)
		return;
	s->granted_to_ns = now_ns;
	if (s->mode == CGPU_SCHED_WINDOWS && s->begun && s->owner < CGPU_SCHED_SLOTS) {
		i = s->guest < CGPU_SCHED_SLOTS ? s->guest : s->owner;
		s->slot[i].stat.granted_ns += passed;
		s->slot[i].gift_ns += i == s->guest ? (int64_t)passed : 0;
		return;
	}
	if (s->mode == CGPU_SCHED_WINDOWS && (!s->begun || s->owner == CGPU_SCHED_NOBODY))
		return;
	whole = s->mode == CGPU_SCHED_WINDOWS ? s->turn[CGPU_SCHED_POOL].share_ppm : CGPU_PPM;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (cgpu_opened(s, i) && whole &&
		    (s->mode == CGPU_SCHED_SLICES || s->share[i].pooled))
			s->slot[i].stat.granted_ns += passed * s->share[i].share_ppm / whole;
}

/* Charges the open window up to `now_ns`. */
void cgpu_turns_charge(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t passed, lost;

	cgpu_turns_grant(s, now_ns);
	if (!s->begun || now_ns <= s->begin_ns)
		return;
	passed = now_ns - s->begin_ns;
	lost = least(passed, s->paid_ns);
	s->paid_ns -= lost;
	passed -= lost;
	s->begin_ns = now_ns;
	cgpu_turn_settle(s, s->owner);
	s->useful_ns += passed;
	cgpu_turn_settle(s, s->owner);
	s->turn[s->owner].debt_ns += (int64_t)passed;
}

/* ---- entitlements ---- */

/* Holds the card open, or did a moment ago and is not done with its part. */
static bool counted(const struct cgpu_sched *s, uint32_t i)
{
	return cgpu_opened(s, i) || (s->slot[i].present && s->slot[i].leaves_ns);
}

static bool windows_needed(const struct cgpu_sched *s)
{
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (cgpu_opened(s, i) && s->share[i].ceiling_ppm < CGPU_PPM)
			return true;
	return false;
}

static void shares(struct cgpu_sched *s)
{
	struct cgpu_policy_member *members = s->scratch;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		members[i] = s->slot[i].member;
		if (!s->slot[i].present)
			members[i].weight = 0;
		members[i].open = counted(s, i);
		members[i].active = members[i].open;
	}
	/* the bounds were checked when the numbers came */
	(void)cgpu_policy_shares(s->policy, s->max_inst, members, CGPU_SCHED_SLOTS, s->share);
}

/* Longest round of the runlist in which no share strays too far. */
static uint64_t longest_round(const struct cgpu_sched *s)
{
	uint64_t stray = 1, a;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		a = s->share[i].share_ppm;
		stray = most(stray, cgpu_part(a, CGPU_PPM - a));
	}
	return CGPU_SCHED_STRAY_NS * (uint64_t)CGPU_PPM / stray;
}

static void set_period(struct cgpu_sched *s)
{
	uint64_t ns = CGPU_SCHED_UNITS * s->unit_ns, weights = 0, smallest = CGPU_PPM, lost;
	uint64_t base, pool;
	uint32_t i, windows = 0, open = 0;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (s->slot[i].present)
			weights += s->slot[i].member.weight;
		open += cgpu_opened(s, i) && s->share[i].share_ppm;
	}
	if (s->mode != CGPU_SCHED_WINDOWS) {
		ns = least(most(ns, open * s->unit_ns), longest_round(s));
		lost = open * CGPU_SCHED_SWITCH_NS;
		s->period_ns = most(ns, 2 * lost);
		s->spread_ns = s->period_ns - lost;
		return;
	}
	for (i = 0; i <= CGPU_SCHED_POOL; i++) {
		if (!s->turn[i].share_ppm)
			continue;
		windows++;
		smallest = least(smallest, s->turn[i].share_ppm);
	}
	lost = windows * CGPU_SCHED_HANDOVER_NS;
	pool = s->turn[CGPU_SCHED_POOL].share_ppm ? open - (windows - 1) : 0;
	base = ns;
	if (s->policy == CGPU_POLICY_WEIGHTED && windows > 1)
		ns = weights * s->unit_ns;
	else
		ns = most(ns, (lost + pool * CGPU_SCHED_SWITCH_NS) * CGPU_PPM / s->loss_ppm);
	/* a moment that is nobody's must be longer than the calls that make it */
	if (s->turn[CGPU_SCHED_NOBODY].share_ppm)
		ns = most(ns, least(base, CGPU_SCHED_WINDOW_MIN_NS * (uint64_t)CGPU_PPM /
						  s->turn[CGPU_SCHED_NOBODY].share_ppm));
	ns = most(ns, CGPU_SCHED_WINDOW_MIN_NS * (uint64_t)CGPU_PPM / smallest + lost);
	/* whole periods in a second */
	ns = CGPU_SCHED_PERIOD_MAX_NS / most(1, CGPU_SCHED_PERIOD_MAX_NS / most(ns, 2 * lost));
	s->period_ns = ns;
	s->spread_ns = ns - lost;
}

/* Slice of each of `groups`, if they shall have `ns` together with their switches. */
static uint64_t slice_us(uint64_t ns, uint32_t groups)
{
	uint64_t lost = (groups - 1) * (uint64_t)CGPU_SCHED_SWITCH_NS;

	return (ns - least(ns / 2, lost)) / groups / 1000;
}

/*
 * Slice of each of several groups that share a window of their own: half a slice
 * more than fits. When the next gate opens, just before this one shuts, a slice
 * must not be about to end. The groups take turns at being cut.
 */
static uint64_t cut_slice_us(uint64_t ns, uint32_t groups)
{
	uint64_t turns = most(1, least(groups, ns / 1000 / CGPU_SCHED_SLICE_US_CUDA));

	ns -= least(ns / 2, turns * CGPU_SCHED_SWITCH_NS);
	return 2 * ns / (2 * turns + 1) / 1000;
}

static void want_slices(struct cgpu_sched *s)
{
	uint64_t pool = s->turn[CGPU_SCHED_POOL].share_ppm, window, us;
	uint32_t members = 0, i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		members += cgpu_opened(s, i) && s->share[i].pooled && s->share[i].share_ppm;
	/* a little less than fits: then it is another's turn to be cut short each time */
	window = cgpu_part(s->spread_ns, pool) * 15 / 16;
	window -= least(window / 2, members * (uint64_t)CGPU_SCHED_SWITCH_NS);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		struct cgpu_sched_slot *slot = &s->slot[i];
		uint64_t share = s->share[i].share_ppm;

		slot->wanted_us = 0;
		if (!cgpu_opened(s, i) || !slot->groups || (!share && s->mode == CGPU_SCHED_SLICES))
			continue;
		if (s->mode == CGPU_SCHED_FREE) {
			/* untouched slices stay untouched */
			us = slot->slice_us ? CGPU_SCHED_SLICE_US_CUDA : 0;
		} else if (s->mode == CGPU_SCHED_SLICES) {
			us = slice_us(cgpu_part(s->spread_ns, share), slot->groups);
		} else if (s->share[i].pooled && pool) {
			us = slice_us(window * share / pool, slot->groups);
		} else if (slot->groups == 1) {
			/* not to be switched off while the next gate is already open */
			us = 2 * s->period_ns / 1000;
		} else {
			us = cut_slice_us(cgpu_part(s->spread_ns, share), slot->groups);
		}
		if (us)
			us = most(us, CGPU_SCHED_SLICE_US_MIN);
		slot->wanted_us = (uint32_t)us;
		s->reslice |= us && us != slot->slice_us;
	}
}

static void set_turn(struct cgpu_sched *s, uint32_t turn, uint32_t share_ppm)
{
	struct cgpu_sched_turn *t = &s->turn[turn];

	cgpu_turn_settle(s, turn);
	t->share_ppm = share_ppm;
}

/*
 * Share of the period that is a slot's own window. Policies whose parts do not
 * depend on who holds the card open keep the place of those who do not, so that
 * opening and closing it moves nobody else.
 */
static uint32_t own(const struct cgpu_sched *s, uint32_t i)
{
	const struct cgpu_policy_share *share = &s->share[i];

	if (!s->slot[i].present || (share->pooled && !s->sighted))
		return 0;
	if (cgpu_policy_conserves(s->policy) || s->policy == CGPU_POLICY_PREEMPTIVE)
		return counted(s, i) ? share->share_ppm : 0;
	return share->ceiling_ppm;
}

static void set_turns(struct cgpu_sched *s)
{
	uint32_t i, sum = 0, pool = 0, share;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		share = s->mode == CGPU_SCHED_WINDOWS ? own(s, i) : 0;
		set_turn(s, i, share);
		sum += share;
		if (s->mode == CGPU_SCHED_WINDOWS && s->share[i].pooled && !s->sighted)
			pool += s->share[i].share_ppm;
	}
	set_turn(s, CGPU_SCHED_POOL, pool);
	sum = CGPU_PPM - pool - sum;
	/* millionths that rounding left are nobody's window */
	set_turn(s, CGPU_SCHED_NOBODY,
		 s->mode == CGPU_SCHED_WINDOWS && sum > CGPU_SCHED_SLOTS ? sum : 0);
}

static void set_order(struct cgpu_sched *s)
{
	uint64_t end = 0;
	uint32_t i, pass;

	s->turns = 0;
	/* when somebody opens or closes the card, windows behind all fixed ones move */
	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < CGPU_SCHED_TURNS; i++) {
			struct cgpu_sched_turn *t = &s->turn[i];

			if (cgpu_turn_elastic(s, i) != (pass == 1))
				continue;
			s->place[i] = (int8_t)(s->turns - !t->share_ppm);
			t->offset_ns = 0;
			if (!t->share_ppm)
				continue;
			s->order[s->turns++] = (uint8_t)i;
			end += cgpu_part(s->spread_ns, t->share_ppm) + cgpu_turn_cost(i);
			t->offset_ns = end;
		}
	}
}

uint64_t cgpu_turns_frame(const struct cgpu_sched *s, uint64_t now_ns)
{
	return now_ns - (now_ns + s->period_ns - s->phase_ns % s->period_ns) % s->period_ns;
}

void cgpu_turns_plan(struct cgpu_sched *s, uint64_t now_ns)
{
	int64_t owed[CGPU_SCHED_TURNS];
	uint64_t was;
	uint32_t i;

	cgpu_turns_charge(s, now_ns);
	for (i = 0; i < CGPU_SCHED_TURNS; i++) {
		cgpu_turn_settle(s, i);
		owed[i] = s->turn[i].debt_ns;
		if (s->turn[i].share_ppm)
			owed[i] -= cgpu_turn_planned(s, i, now_ns);
	}
	s->review_ns = NEVER;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (s->slot[i].leaves_ns && now_ns >= s->slot[i].leaves_ns)
			s->slot[i].leaves_ns = 0;
		if (s->slot[i].leaves_ns)
			s->review_ns = least(s->review_ns, s->slot[i].leaves_ns);
	}
	shares(s);
	if (s->suspended || s->retry_ns || s->policy == CGPU_POLICY_NATIVE)
		s->mode = CGPU_SCHED_FREE;
	else if (!windows_needed(s))
		s->mode = CGPU_SCHED_SLICES;
	else
		s->mode = CGPU_SCHED_WINDOWS;
	set_turns(s);
	was = s->period_ns;
	set_period(s);
	set_order(s);
	/* the grid is the same in every second */
	if (!s->begun || s->period_ns != was)
		s->frame_ns = cgpu_turns_frame(s, now_ns);
	for (i = 0; i < CGPU_SCHED_TURNS; i++) {
		struct cgpu_sched_turn *t = &s->turn[i];

		/* nobody hoards credit while away, and nobody's debt is forgotten */
		t->debt_ns = owed[i];
		if (!t->share_ppm && t->debt_ns < 0)
			t->debt_ns = 0;
		if (!t->share_ppm)
			continue;
		t->debt_ns += cgpu_turn_planned(s, i, now_ns);
		cgpu_turn_cap_credit(s, t);
	}
	cgpu_turns_balance(s);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		s->slot[i].gift_ns = 0;
	if (s->mode != CGPU_SCHED_WINDOWS)
		s->begun = false;
	else if (s->begun)
		s->end_ns = s->turn[s->owner].share_ppm ?
			least(s->end_ns, s->frame_ns + s->turn[s->owner].offset_ns) : now_ns;
	want_slices(s);
	s->dirty = false;
}
