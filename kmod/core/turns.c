// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "turns.h"
#include "pool.h"

#define NEVER UINT64_MAX
#define DEEP_NS (5ULL * CGPU_SCHED_REST_AGAIN_NS)

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
	uint64_t rest = s->clock_ns - t->mark_ns;

	t->debt_ns -= (int64_t)cgpu_part(rest, t->share_ppm);
	t->mark_ns = s->clock_ns;
}

bool cgpu_turn_quiet(const struct cgpu_sched *s, uint32_t turn)
{
	uint32_t i;

	if (turn >= CGPU_SCHED_SLOTS)
		return turn == CGPU_SCHED_NOBODY;
	if (!cgpu_opened(s, turn))
		return true;
	for (i = 0; s->slot[turn].idle && cgpu_turn_elastic(s, turn) && i < CGPU_SCHED_SLOTS; i++)
		if (cgpu_opened(s, i) && !s->slot[i].idle && s->share[i].share_ppm &&
		    cgpu_turn_elastic(s, i))
			return false;
	return s->slot[turn].idle;
}

bool cgpu_turn_paused(const struct cgpu_sched *s, uint32_t turn, uint64_t now_ns)
{
	const struct cgpu_sched_slot *slot = &s->slot[turn % CGPU_SCHED_SLOTS];

	return turn < CGPU_SCHED_SLOTS &&
	       (slot->idle || (slot->idle_ns && now_ns - slot->idle_ns <= 4 * s->period_ns));
}

void cgpu_turn_pause(struct cgpu_sched *s, uint32_t turn, uint64_t now_ns)
{
	if (turn < CGPU_SCHED_SLOTS)
		s->slot[turn].idle_ns = now_ns;
}

static uint64_t entry(bool from_rest)
{
	return from_rest ? CGPU_SCHED_ENTRY_NS : CGPU_SCHED_HANDOVER_NS;
}

static uint64_t leave(bool to_rest)
{
	return to_rest ? CGPU_SCHED_EXIT_NS : 0;
}

uint64_t cgpu_turn_entry(const struct cgpu_sched *s, uint32_t before)
{
	return entry(cgpu_turn_quiet(s, before));
}

uint64_t cgpu_turn_exit(const struct cgpu_sched *s, uint32_t after)
{
	return leave(cgpu_turn_quiet(s, after));
}

uint64_t cgpu_turn_inner(const struct cgpu_sched *s, uint32_t turn)
{
	uint32_t i, members = 0;

	if (turn != CGPU_SCHED_POOL)
		return 0;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		members += cgpu_opened(s, i) && s->share[i].pooled && s->share[i].share_ppm;
	return members ? (members - 1) * (uint64_t)CGPU_SCHED_SWITCH_NS : 0;
}

int64_t cgpu_turn_expected(const struct cgpu_sched_turn *t)
{
	return (int64_t)cgpu_part(t->width_ns, CGPU_PPM - t->share_ppm) / 2;
}

int64_t cgpu_turn_planned(const struct cgpu_sched *s, uint32_t turn, uint64_t now_ns)
{
	const struct cgpu_sched_turn *t = &s->turn[turn];
	uint64_t width = t->width_ns + t->cost_ns;
	uint64_t at = (now_ns + s->period_ns - s->frame_ns) % s->period_ns, since;

	if (at < t->offset_ns && at + width >= t->offset_ns) {
		since = at + width - t->offset_ns;
		since -= least(since, t->cost_ns);
		return (int64_t)cgpu_part(since, CGPU_PPM - t->share_ppm) - cgpu_turn_expected(t);
	}
	since = (at + s->period_ns - t->offset_ns) % s->period_ns;
	/* while others have the card, the debt falls from the one value to the other */
	return cgpu_turn_expected(t) -
	       (int64_t)(2 * cgpu_turn_expected(t) * (int64_t)(since / 1000) /
			 (int64_t)((s->period_ns - width) / 1000 + 1));
}

uint64_t cgpu_turn_ends(const struct cgpu_sched_turn *t, uint64_t frame_ns, uint64_t then_ns,
			uint64_t cost_ns, int64_t debt_ns)
{
	int64_t ns = (int64_t)(frame_ns + t->offset_ns - then_ns - cost_ns);

	ns -= (debt_ns + ns * (int64_t)(CGPU_PPM - t->share_ppm) / CGPU_PPM -
	       cgpu_turn_expected(t)) / 2;
	if (ns < 0)
		return then_ns;
	return then_ns + cost_ns + least((uint64_t)ns, 2 * t->width_ns);
}

bool cgpu_turn_cap_credit(const struct cgpu_sched *s, struct cgpu_sched_turn *t)
{
	int64_t lowest = -cgpu_turn_expected(t) -
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
	i = s->guest < CGPU_SCHED_TURNS ? s->guest : s->owner;
	if (s->mode == CGPU_SCHED_WINDOWS && (!s->begun || i == CGPU_SCHED_NOBODY))
		return;
	if (s->mode == CGPU_SCHED_WINDOWS && i < CGPU_SCHED_SLOTS) {
		s->slot[i].stat.granted_ns += passed;
		s->slot[i].gift_ns += i == s->guest ? (int64_t)passed : 0;
		return;
	}
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
	s->clock_ns += passed;
	if (s->whole) {
		s->clock_ns += lost;
		s->turn[CGPU_SCHED_NOBODY].debt_ns += (int64_t)lost;
	}
	cgpu_turn_settle(s, s->owner);
	s->turn[s->owner].debt_ns += (int64_t)passed;
}

void cgpu_turn_ran_early(struct cgpu_sched *s, uint32_t turn, uint32_t before, uint64_t ns,
			 uint64_t now_ns)
{
	if (turn >= CGPU_SCHED_TURNS || before >= CGPU_SCHED_TURNS ||
	    !s->turn[turn].share_ppm || !s->turn[before].share_ppm)
		return;
	cgpu_turns_charge(s, now_ns);
	ns = least(ns, s->turn[turn].width_ns);
	s->turn[turn].debt_ns += (int64_t)ns;
	s->turn[before].debt_ns -= (int64_t)ns;
}

bool cgpu_turn_behind(const struct cgpu_sched *s, uint32_t a, int64_t a_ns, uint32_t b,
		      int64_t b_ns)
{
	return a_ns / 1024 * s->share[b].share_ppm < b_ns / 1024 * s->share[a].share_ppm;
}

int64_t cgpu_turn_level(const struct cgpu_sched *s, uint32_t a, uint32_t b, int64_t b_ns)
{
	return b_ns / s->share[b].share_ppm * s->share[a].share_ppm;
}

bool cgpu_turn_fewer_gifts(const struct cgpu_sched *s, uint32_t a, uint32_t b)
{
	return cgpu_turn_behind(s, a, s->slot[a].gift_ns, b, s->slot[b].gift_ns);
}

void cgpu_turn_forget_gifts(struct cgpu_sched *s, uint32_t slot)
{
	uint32_t i, top = CGPU_SCHED_TURNS;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (i != slot && cgpu_opened(s, i) && !s->slot[i].idle && s->share[i].share_ppm &&
		    (top == CGPU_SCHED_TURNS || cgpu_turn_fewer_gifts(s, top, i)))
			top = i;
	if (top < CGPU_SCHED_TURNS && s->share[slot].share_ppm &&
	    cgpu_turn_fewer_gifts(s, slot, top))
		s->slot[slot].gift_ns = cgpu_turn_level(s, slot, top, s->slot[top].gift_ns);
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

/* `without`: slots that compete for nothing, though they hold the card open. */
static void shares(struct cgpu_sched *s, uint64_t without)
{
	struct cgpu_policy_member *members = s->scratch;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		members[i] = s->slot[i].member;
		if (!s->slot[i].present)
			members[i].weight = 0;
		members[i].open = counted(s, i);
		members[i].active = members[i].open && !(without >> i & 1);
	}
	/* the bounds were checked when the numbers came */
	(void)cgpu_policy_shares(s->policy, s->max_inst, members, CGPU_SCHED_SLOTS, s->share);
}

bool cgpu_turns_sighted(const struct cgpu_sched *s)
{
	return s->sighted && s->sight_ns <= CGPU_SCHED_PROMPT_NS;
}

/* It has no window of its own. */
static bool shares_window(const struct cgpu_sched *s, uint32_t i)
{
	return s->share[i].pooled && !cgpu_turns_sighted(s);
}

/*
 * Who has been without work for so long that the runlist's round is made up
 * without him. One that wakes is back at once, and rests less easily from then on:
 * each change of mind programs everybody's slice anew. Windows are not moved for
 * it: to move one by x costs up to x in the second that sees it. Return: those who
 * rest; `*deep`: those of them that have for so long that it no longer matters
 * what their waking costs the others.
 */
static uint64_t find_resting(struct cgpu_sched *s, uint64_t now_ns, uint64_t *deep)
{
	uint64_t rest = 0, at, next;
	uint32_t i;

	*deep = 0;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		struct cgpu_sched_slot *slot = &s->slot[i];

		slot->resting = false;
		if (!slot->present || !slot->idle ||
		    (s->mode == CGPU_SCHED_WINDOWS && !shares_window(s, i)))
			continue;
		at = slot->idle_since_ns +
		     (slot->woke ? CGPU_SCHED_REST_AGAIN_NS : CGPU_SCHED_REST_NS);
		next = slot->idle_since_ns + DEEP_NS;
		slot->resting = now_ns >= at;
		if (slot->resting)
			rest |= 1ULL << i;
		if (now_ns >= next)
			*deep |= 1ULL << i;
		else
			s->review_ns = least(s->review_ns, slot->resting ? next : at);
	}
	return rest;
}

/* Longest round of the runlist in which no share strays too far. */
static uint64_t longest_round(const struct cgpu_sched *s, uint32_t open)
{
	uint64_t stray = 1, a;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		a = s->share[i].share_ppm;
		stray = most(stray, cgpu_part(a, CGPU_PPM - a));
	}
	if (open > CGPU_SCHED_UNITS)
		return CGPU_SCHED_STRAY_MANY_NS * (uint64_t)CGPU_PPM / stray;
	return most(CGPU_SCHED_STRAY_NS * (uint64_t)CGPU_PPM / stray,
		    least(open * (uint64_t)CGPU_SCHED_ROUND_EACH_NS, CGPU_SCHED_ROUND_NS));
}

/* Whole periods in a second: a second then sees whole windows, whatever its phase. */
static uint64_t on_grid(uint64_t ns)
{
	return CGPU_SCHED_PERIOD_MAX_NS / most(1, CGPU_SCHED_PERIOD_MAX_NS / ns);
}

/* The round of those who have a share now; `most_ns`: of what they divide, at most. */
static void set_round(struct cgpu_sched *s, uint64_t most_ns)
{
	uint64_t ns = CGPU_SCHED_UNITS * s->unit_ns, lost;
	uint32_t i, open = 0;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		open += cgpu_opened(s, i) && s->share[i].share_ppm;
	lost = open * CGPU_SCHED_SWITCH_NS;
	ns = most(ns, lost * CGPU_PPM / s->loss_ppm);
	ns = least(least(ns, longest_round(s, open)), most_ns + lost);
	ns = most(ns, most(2 * lost, 1));
	s->period_ns = on_grid(ns);
	if ((open > CGPU_SCHED_UNITS || ns == most_ns + lost) && s->period_ns > ns)
		s->period_ns = CGPU_SCHED_PERIOD_MAX_NS / (CGPU_SCHED_PERIOD_MAX_NS / ns + 1);
	s->spread_ns = s->period_ns - least(s->period_ns / 2, open * s->after_used_ns);
}

/*
 * The round is made up without those who rest. The others' slices become longer by
 * it, and when one wakes, everybody may have had such a longer one before the next
 * of his own begins: so the round may not be longer than by what that may cost.
 */
static void set_round_resting(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t deep, rest = find_resting(s, now_ns, &deep), part = 0;
	uint32_t i;

	if (!rest) {
		set_round(s, CGPU_SCHED_PERIOD_MAX_NS);
		return;
	}
	shares(s, deep);
	set_round(s, CGPU_SCHED_PERIOD_MAX_NS);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		part += rest >> i & 1 ? s->share[i].share_ppm : 0;
	shares(s, rest);
	if (rest != deep)
		set_round(s, cgpu_part(s->spread_ns, CGPU_PPM - part) + CGPU_SCHED_WAKE_NS);
	else
		set_round(s, CGPU_SCHED_PERIOD_MAX_NS);
}

/* Return: what hand-overs take of a period. */
static uint64_t lost_ns(const struct cgpu_sched *s)
{
	uint64_t lost = 0;
	uint32_t k;

	for (k = 0; k < s->turns; k++)
		lost += s->turn[s->order[k]].cost_ns;
	return lost;
}

/*
 * How far a tenth of a second may stray from a share, less how far it does at its
 * worst phase because it does not hold whole windows only: it may see one window
 * more than its due, or one less.
 */
static uint64_t room_ns(uint64_t share_ppm, uint64_t period_ns)
{
	uint64_t rest = CGPU_SCHED_SHORT_NS % period_ns, others = CGPU_PPM - share_ppm;
	uint64_t more = least(cgpu_part(rest, others), cgpu_part(period_ns - rest, share_ppm));
	uint64_t less = least(cgpu_part(rest, share_ppm), cgpu_part(period_ns - rest, others));

	return cgpu_part(cgpu_part(period_ns, share_ppm), others) -
	       least(cgpu_part(cgpu_part(period_ns, share_ppm), others), most(more, less));
}

static bool roomy(const struct cgpu_sched *s, uint64_t period_ns)
{
	uint64_t share;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		share = s->turn[i].share_ppm ? s->turn[i].share_ppm : s->share[i].share_ppm;
		if (share && share < CGPU_PPM && room_ns(share, period_ns) < CGPU_SCHED_ROOM_NS)
			return false;
	}
	return true;
}

/*
 * A period of the grid, near to `ns` and not below `floor_ns`, that leaves room for a
 * call that takes long now and then.
 */
static uint64_t with_room(const struct cgpu_sched *s, uint64_t ns, uint64_t floor_ns)
{
	uint64_t count = CGPU_SCHED_PERIOD_MAX_NS / on_grid(ns), k, shorter, longer;

	for (k = 0; k <= CGPU_SCHED_ROOM_STEPS && k < count; k++) {
		shorter = CGPU_SCHED_PERIOD_MAX_NS / (count + k);
		longer = CGPU_SCHED_PERIOD_MAX_NS / (count - k);
		if ((!k || shorter >= floor_ns) && roomy(s, shorter))
			return shorter;
		if (roomy(s, longer))
			return longer;
	}
	return on_grid(ns);
}

static uint64_t windows_period(const struct cgpu_sched *s)
{
	uint64_t base = CGPU_SCHED_UNITS * s->unit_ns, lost = lost_ns(s), ns = base, floor;
	uint64_t weights = 0, smallest = CGPU_PPM;
	uint32_t nobody = s->turn[CGPU_SCHED_NOBODY].share_ppm;
	uint32_t i, windows = 0;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		weights += s->slot[i].present ? s->slot[i].member.weight : 0;
	for (i = 0; i <= CGPU_SCHED_POOL; i++) {
		if (!s->turn[i].share_ppm)
			continue;
		windows++;
		smallest = (uint32_t)least(smallest, s->turn[i].share_ppm);
	}
	/* a moment that is nobody's must be longer than the calls that make it */
	floor = nobody ? least(base, (CGPU_SCHED_WINDOW_MIN_NS + lost) * CGPU_PPM / nobody) : 0;
	floor = most(floor, CGPU_SCHED_WINDOW_MIN_NS * (uint64_t)CGPU_PPM / smallest + lost);
	floor = most(floor, 2 * lost);
	if (s->policy == CGPU_POLICY_WEIGHTED && windows > 1)
		ns = weights * s->unit_ns;
	else
		floor = most(floor, lost * CGPU_PPM / s->loss_ppm);
	return with_room(s, most(ns, floor), floor);
}

void cgpu_turn_lasted(struct cgpu_sched *s, uint32_t slot, uint64_t turn_ns)
{
	const struct cgpu_sched_slot *p;
	uint64_t slice_ns, ns;

	if (slot >= CGPU_SCHED_SLOTS || s->mode == CGPU_SCHED_FREE)
		return;
	p = &s->slot[slot];
	slice_ns = (uint64_t)p->slice_us * 1000;
	/* of several groups nobody knows whose turn it was; less: no work, or a shut gate */
	if (!p->present || p->groups != 1 || !slice_ns || p->slice_us != p->wanted_us ||
	    turn_ns <= slice_ns || turn_ns - slice_ns > CGPU_SCHED_AFTER_MAX_NS)
		return;
	/* one whose work ended with its slice must not count for more than others */
	ns = turn_ns - slice_ns;
	if (ns > s->after_ns)
		s->after_ns += least((ns - s->after_ns) / CGPU_SCHED_AFTER_SHARE,
				     CGPU_SCHED_AFTER_PACE_NS);
	else
		s->after_ns -= least((s->after_ns - ns) / CGPU_SCHED_AFTER_SHARE,
				     CGPU_SCHED_AFTER_PACE_NS);
	if (most(s->after_ns, s->after_used_ns) - least(s->after_ns, s->after_used_ns) <
	    CGPU_SCHED_AFTER_STEP_NS)
		return;
	s->after_used_ns = s->after_ns;
	s->dirty = true;
}

/* Slice of each of `groups`, if they shall have `ns` together with their switches. */
static uint64_t slice_us(uint64_t ns, uint32_t groups)
{
	uint64_t lost = (groups - 1) * (uint64_t)CGPU_SCHED_SWITCH_NS;

	return (ns - least(ns / 2, lost)) / groups / 1000;
}

/*
 * Slice of each of several groups that share a window of their own. All must fit,
 * for a gate that opens starts them from the first again (seen on an H200: of eight
 * processes in windows of 5 ms, with longer slices, one to four ran). No slice may
 * end between the opening of the next gate and the shutting of this one: so the
 * last ends a moment before, and what follows is the first's again.
 */
static uint64_t cut_slice_us(uint64_t ns, uint32_t groups)
{
	uint64_t each = (ns - least(ns / 2, CGPU_SCHED_OVERLAP_NS)) / groups;
	uint64_t spare = each - least(each, CGPU_SCHED_OVERLAP_NS);

	each -= least(each / 2, least(spare, CGPU_SCHED_OVERLAP_NS) / 2 / groups);
	return (each - least(each / 2, CGPU_SCHED_SWITCH_NS)) / 1000;
}

/*
 * What slices may divide of the window of all that share one. Each window starts from
 * the first, and the gate ends the last one's slice: it has its part if about half of
 * a switch is left for what the others still do in theirs.
 */
static uint64_t pool_ns(const struct cgpu_sched *s)
{
	uint64_t groups = 0, ns = s->turn[CGPU_SCHED_POOL].width_ns;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (cgpu_opened(s, i) && s->share[i].pooled)
			groups += s->slot[i].groups;
	if (groups < 2)
		return ns;
	ns += cgpu_turn_inner(s, CGPU_SCHED_POOL);
	return ns - least(ns / 2, (2 * groups - 1) * s->after_used_ns / 2);
}

static void want_slices(struct cgpu_sched *s)
{
	uint64_t pool = s->turn[CGPU_SCHED_POOL].share_ppm, window = pool_ns(s), us;
	uint64_t resting_ppm = cgpu_pool_resting_ppm(s);
	uint32_t i;

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
			us = cgpu_pool_part(s, i, window, resting_ppm) / slot->groups / 1000;
		} else if (slot->groups == 1) {
			/* not to be switched off while the next gate is already open */
			us = 2 * s->period_ns / 1000;
		} else {
			us = cut_slice_us(s->turn[i].width_ns, slot->groups);
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

	if (!s->slot[i].present || shares_window(s, i))
		return 0;
	if (s->policy == CGPU_POLICY_MIXED && !share->pooled)
		return share->floor_ppm;
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
		if (s->mode == CGPU_SCHED_WINDOWS && shares_window(s, i))
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
	uint32_t i, pass, k;

	s->turns = 0;
	/* when somebody opens or closes the card, windows behind all fixed ones move */
	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < CGPU_SCHED_TURNS; i++) {
			struct cgpu_sched_turn *t = &s->turn[i];

			if (cgpu_turn_elastic(s, i) != (pass == 1))
				continue;
			s->place[i] = (int8_t)(s->turns - !t->share_ppm);
			t->width_ns = t->cost_ns = t->offset_ns = 0;
			if (t->share_ppm)
				s->order[s->turns++] = (uint8_t)i;
		}
	}
	/* of those who do not hold the card open too: a plan must not hang on who does */
	for (k = 0; s->turns > 1 && k < s->turns; k++) {
		uint32_t before = s->order[(k + s->turns - 1) % s->turns];
		uint32_t after = s->order[(k + 1) % s->turns];

		if (s->order[k] != CGPU_SCHED_NOBODY)
			s->turn[s->order[k]].cost_ns = entry(before == CGPU_SCHED_NOBODY) +
						       leave(after == CGPU_SCHED_NOBODY) +
						       cgpu_turn_inner(s, s->order[k]);
	}
}

static void set_windows(struct cgpu_sched *s)
{
	uint64_t end = 0, sum;
	uint32_t k, i;

	s->period_ns = windows_period(s);
	sum = CGPU_PPM - s->turn[CGPU_SCHED_NOBODY].share_ppm;
	s->whole = sum < CGPU_PPM &&
		   cgpu_part(s->period_ns, CGPU_PPM - sum) > lost_ns(s);
	if (!s->whole && sum && sum < CGPU_PPM) {
		/* what is nobody's does not even pay for the hand-overs */
		for (i = 0; i < CGPU_SCHED_TURNS; i++)
			set_turn(s, i, i == CGPU_SCHED_NOBODY ? 0 : (uint32_t)
				 ((uint64_t)s->turn[i].share_ppm * CGPU_PPM / sum));
		set_order(s);
	}
	s->spread_ns = s->period_ns - (s->whole ? 0 : lost_ns(s));
	for (k = 0; k < s->turns; k++) {
		struct cgpu_sched_turn *t = &s->turn[s->order[k]];

		t->width_ns = cgpu_part(s->spread_ns, t->share_ppm);
		if (s->order[k] == CGPU_SCHED_NOBODY)
			t->width_ns -= lost_ns(s);
		end += t->width_ns + t->cost_ns;
		t->offset_ns = end;
	}
}

uint64_t cgpu_turns_frame(const struct cgpu_sched *s, uint64_t now_ns)
{
	return now_ns - (now_ns + s->period_ns - s->phase_ns % s->period_ns) % s->period_ns;
}

/*
 * The open window goes on under the new plan. One that keeps its place may have
 * been lengthened for what its owner is due, and still is.
 */
static void resume(struct cgpu_sched *s, uint64_t now_ns, bool in_place)
{
	const struct cgpu_sched_turn *t = &s->turn[s->owner];
	uint64_t end_ns = cgpu_turn_ends(t, s->frame_ns, now_ns, s->paid_ns, t->debt_ns);

	s->end_ns = in_place ? end_ns : least(s->end_ns, end_ns);
}

void cgpu_turns_plan(struct cgpu_sched *s, uint64_t now_ns)
{
	int64_t owed[CGPU_SCHED_TURNS];
	bool had[CGPU_SCHED_TURNS], in_place, notional;
	uint64_t was, offset_ns, deep;
	uint32_t i;

	cgpu_turns_charge(s, now_ns);
	for (i = 0; i < CGPU_SCHED_TURNS; i++) {
		cgpu_turn_settle(s, i);
		owed[i] = s->turn[i].debt_ns;
		had[i] = s->turn[i].share_ppm != 0;
		if (had[i])
			owed[i] -= cgpu_turn_planned(s, i, now_ns);
	}
	s->review_ns = NEVER;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (s->slot[i].leaves_ns && now_ns >= s->slot[i].leaves_ns)
			s->slot[i].leaves_ns = 0;
		if (s->slot[i].leaves_ns)
			s->review_ns = least(s->review_ns, s->slot[i].leaves_ns);
	}
	shares(s, 0);
	if (s->suspended || s->retry_ns || s->policy == CGPU_POLICY_NATIVE)
		s->mode = CGPU_SCHED_FREE;
	else if (!windows_needed(s))
		s->mode = CGPU_SCHED_SLICES;
	else
		s->mode = CGPU_SCHED_WINDOWS;
	was = s->period_ns;
	offset_ns = s->turn[s->owner].offset_ns;
	if (s->mode == CGPU_SCHED_SLICES)
		set_round_resting(s, now_ns);
	else if (s->mode == CGPU_SCHED_WINDOWS)
		(void)find_resting(s, now_ns, &deep);
	set_turns(s);
	set_order(s);
	s->whole = false;
	if (s->mode == CGPU_SCHED_WINDOWS)
		set_windows(s);
	else if (s->mode == CGPU_SCHED_FREE)
		set_round(s, CGPU_SCHED_PERIOD_MAX_NS);
	in_place = s->period_ns == was && s->turn[s->owner].offset_ns == offset_ns;
	s->astray |= !in_place;
	/* of several that come together: no time has passed in which anybody used anything */
	notional = s->clock_ns - s->plan_clock_ns < CGPU_SCHED_WINDOW_MIN_NS;
	s->plan_clock_ns = s->clock_ns;
	/* the grid is the same in every second */
	if (!s->begun || s->period_ns != was)
		s->frame_ns = cgpu_turns_frame(s, now_ns);
	for (i = 0; i < CGPU_SCHED_TURNS; i++) {
		struct cgpu_sched_turn *t = &s->turn[i];

		/* nobody hoards credit while away, and nobody's debt is forgotten */
		if (!t->share_ppm)
			t->debt_ns = owed[i] > 0 ? owed[i] : 0;
		else if (!had[i] || (notional && s->period_ns != was))
			t->debt_ns = owed[i] + cgpu_turn_planned(s, i, now_ns);
		if (t->share_ppm)
			cgpu_turn_cap_credit(s, t);
	}
	cgpu_turns_balance(s);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (!had[i] && s->turn[i].share_ppm)
			cgpu_turn_forget_gifts(s, i);
	if (s->mode != CGPU_SCHED_WINDOWS)
		s->begun = false;
	else if (s->begun)
		resume(s, now_ns, in_place);
	want_slices(s);
	s->dirty = false;
}
