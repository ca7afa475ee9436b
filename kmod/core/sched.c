// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "turns.h"
#include "pool.h"

#define NEVER UINT64_MAX
#define SLOT_BIT(n) (1ULL << (n))
#define PART_NS (5ULL * CGPU_SCHED_WINDOW_MIN_NS / 4)

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- windows ---- */

/* Debt of a turn at `then_ns`, when the present window will have ended. */
static int64_t debt_at(const struct cgpu_sched *s, uint32_t turn, uint64_t then_ns)
{
	const struct cgpu_sched_turn *t = &s->turn[turn];
	uint64_t ahead = 0, lost = 0;
	int64_t debt;

	if (s->begun && then_ns > s->begin_ns) {
		lost = least(s->paid_ns, then_ns - s->begin_ns);
		ahead = then_ns - s->begin_ns - lost;
	}
	if (!s->whole)
		lost = 0;
	debt = t->debt_ns -
	       (int64_t)cgpu_part(s->clock_ns + ahead + lost - t->mark_ns, t->share_ppm);
	debt += turn == CGPU_SCHED_NOBODY ? (int64_t)lost : 0;
	return s->begun && turn == s->owner ? debt + (int64_t)ahead : debt;
}

/* Of those whose windows may move, the one that is owed most. */
static uint32_t filler(const struct cgpu_sched *s, uint64_t then_ns)
{
	uint32_t i, best = CGPU_SCHED_TURNS;
	int64_t owed, least_owed = 0;

	for (i = 0; i < CGPU_SCHED_TURNS; i++) {
		if (!s->turn[i].share_ppm || !cgpu_turn_elastic(s, i))
			continue;
		owed = debt_at(s, i, then_ns) - cgpu_turn_planned(s, i, then_ns);
		if (best == CGPU_SCHED_TURNS || owed < least_owed) {
			best = i;
			least_owed = owed;
		}
	}
	return best;
}

/*
 * When a window should end that comes too late for its planned end, of a turn that
 * has lost at least half a window by then: it may not lose the next one too, or one
 * that follows those who are slow to stop would never run. Else 0.
 */
static uint64_t overdue(const struct cgpu_sched *s, uint32_t turn, uint64_t then_ns)
{
	const struct cgpu_sched_turn *t = &s->turn[turn];
	int64_t owed = -debt_at(s, turn, then_ns) - cgpu_turn_expected(t);

	if (turn == CGPU_SCHED_NOBODY || owed < (int64_t)t->width_ns / 2)
		return 0;
	return then_ns + t->cost_ns + t->width_ns + least((uint64_t)owed, t->width_ns);
}

/*
 * Chooses whose window follows one that ends at `then_ns`, in the order of the
 * turns, and when it ends.
 */
static uint32_t choose(struct cgpu_sched *s, uint64_t then_ns, uint64_t *end_ns)
{
	uint64_t frame, best_end = 0, planned_ns, end, enough;
	uint32_t k, turn, best = CGPU_SCHED_TURNS;
	int32_t at = s->begun && !s->astray ? s->place[s->owner] : -1;

	if (s->astray)
		s->frame_ns = cgpu_turns_frame(s, then_ns);
	s->astray = false;
	frame = s->frame_ns;
	for (k = 0; k < 2 * s->turns; k++) {
		const struct cgpu_sched_turn *t;

		if (++at == (int32_t)s->turns) {
			at = 0;
			frame += s->period_ns;
		}
		turn = s->order[at];
		t = &s->turn[turn];
		end = cgpu_turn_ends(t, frame, then_ns, t->cost_ns, debt_at(s, turn, then_ns));
		enough = least(CGPU_SCHED_WINDOW_MIN_NS, t->width_ns / 2) + CGPU_SCHED_HANDOVER_NS;
		if (end < then_ns + enough)
			end = overdue(s, turn, then_ns);
		if (end < then_ns + enough) {
			if (best == CGPU_SCHED_TURNS || end > best_end) {
				best = turn;
				best_end = end;
			}
			continue;
		}
		s->frame_ns = frame;
		*end_ns = end;
		planned_ns = frame + t->offset_ns - t->cost_ns - t->width_ns;
		if (cgpu_policy_conserves(s->policy) &&
		    then_ns + CGPU_SCHED_WINDOW_MIN_NS < planned_ns) {
			/* somebody went idle: what is left until then is the others' */
			best = filler(s, then_ns);
			if (best == CGPU_SCHED_TURNS || best == turn)
				return turn;
			if (s->place[best] > at)
				s->frame_ns -= s->period_ns;
			*end_ns = planned_ns;
			return best;
		}
		return turn;
	}
	/* all are ahead of the grid, by whatever delayed us */
	s->frame_ns = cgpu_turns_frame(s, then_ns);
	*end_ns = then_ns + CGPU_SCHED_WINDOW_MIN_NS;
	return best;
}

/* The turn that comes after the owner's if all goes as planned. */
static uint32_t following(const struct cgpu_sched *s)
{
	return s->turns ? s->order[(uint32_t)(s->place[s->owner] + 1) % s->turns] :
			  CGPU_SCHED_NOBODY;
}

/* How long before the window's end the calls must start. */
static uint64_t lead(const struct cgpu_sched *s)
{
	if (!s->begun)
		return 0;
	return (s->owner == CGPU_SCHED_NOBODY ? 0 : s->shut_ns) +
	       (following(s) == CGPU_SCHED_NOBODY ? 0 : s->open_ns);
}

/* Who may have time of a window that its owner leaves: those whose ceilings allow it. */
static uint64_t eligible(const struct cgpu_sched *s, uint32_t turn, uint64_t window_ns)
{
	uint64_t mask = 0;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		const struct cgpu_policy_share *share = &s->share[i];

		if (i == turn || !cgpu_opened(s, i) || s->slot[i].idle || !share->share_ppm ||
		    !cgpu_turn_elastic(s, i))
			continue;
		if (share->pooled ||
		    cgpu_part(s->spread_ns, share->share_ppm) + s->slot[i].guest_ns + window_ns <=
			    cgpu_part(s->spread_ns, share->ceiling_ppm))
			mask |= SLOT_BIT(i);
	}
	return mask;
}

/* Divides such a window by share, if every part is worth its switch, else evenly. */
static void divide(struct cgpu_sched *s, uint64_t could, uint64_t window_ns)
{
	uint64_t sum = 0, smallest = CGPU_PPM;
	uint32_t i;

	s->gifts_ns = 0;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (!(could >> i & 1))
			continue;
		sum += s->share[i].share_ppm;
		smallest = least(smallest, s->share[i].share_ppm);
		s->gifts_ns += s->slot[i].gift_ns;
	}
	s->part_ppm = window_ns * smallest >= PART_NS * sum ? (uint32_t)sum : 0;
	s->part_ns = s->part_ppm ? window_ns : window_ns / most(1, window_ns / PART_NS);
}

/* A guest's part by share, less half of what it got more of than the others so far. */
static uint64_t part_of(const struct cgpu_sched *s, uint32_t guest)
{
	int64_t ns, ahead;

	if (!s->part_ppm)
		return s->part_ns;
	ns = (int64_t)(s->part_ns * s->share[guest].share_ppm / s->part_ppm);
	ahead = s->slot[guest].gift_ns -
		s->gifts_ns / s->part_ppm * s->share[guest].share_ppm;
	if (ahead > 2 * ns)
		ahead = 2 * ns;
	else if (ahead < -ns)
		ahead = -ns;
	return (uint64_t)(ns - ahead / 2);
}

/*
 * Who is next of those in `could`. If everybody gets a part it is the slot before,
 * so that the order is the same in every period, whoever had the last window goes
 * on and whoever has the next one is last. Else it is the one that got least of such
 * time for its share.
 */
static uint32_t pick_guest(const struct cgpu_sched *s, uint32_t turn, uint64_t could)
{
	uint32_t k, i, best = CGPU_SCHED_TURNS;

	for (k = 1; k < CGPU_SCHED_SLOTS; k++) {
		i = (turn + CGPU_SCHED_SLOTS - k) % CGPU_SCHED_SLOTS;
		if (!(could >> i & 1))
			continue;
		if (s->part_ppm)
			return i;
		if (best == CGPU_SCHED_TURNS || cgpu_turn_fewer_gifts(s, i, best))
			best = i;
	}
	return best;
}

/* The window of one that is idle goes to a guest. Return: who; nobody: CGPU_SCHED_TURNS. */
static uint32_t invite(struct cgpu_sched *s, uint32_t turn, uint64_t then_ns, uint64_t window_ns)
{
	uint64_t able = eligible(s, turn, window_ns), could = able, part_ns;
	uint32_t guest;

	if (!could)
		return CGPU_SCHED_TURNS;
	if (!(could & ~s->given_mask))
		s->given_mask = 0;
	could &= ~s->given_mask;
	if (!s->part_ns)
		divide(s, could, window_ns);
	guest = pick_guest(s, turn, could);
	part_ns = part_of(s, guest);
	/* one that is slow to stop had its part, and more, of earlier windows */
	while (part_ns < PART_NS / 2 && could & (could - 1)) {
		s->given_mask |= SLOT_BIT(guest);
		could &= ~SLOT_BIT(guest);
		guest = pick_guest(s, turn, could);
		part_ns = part_of(s, guest);
	}
	if (part_ns < PART_NS / 2 && s->guest < CGPU_SCHED_SLOTS && (able >> s->guest & 1))
		guest = s->guest;
	if (window_ns >= part_ns + PART_NS / 2 && (could & (could - 1) || !s->part_ppm)) {
		window_ns = part_ns;
		s->divide_ns = then_ns + window_ns;
	}
	s->slot[guest].guest_ns += window_ns;
	/* what the switch to it takes is no gift */
	if (guest != (s->guest < CGPU_SCHED_SLOTS ? s->guest : s->owner))
		s->slot[guest].gift_ns -= CGPU_SCHED_HANDOVER_NS;
	s->given_mask |= SLOT_BIT(guest);
	return guest;
}

/* Who may run while it is `turn`'s window, from `then_ns` to `end_ns`. */
static uint64_t allowed(struct cgpu_sched *s, uint32_t turn, uint64_t then_ns,
			uint64_t end_ns, uint64_t now_ns, uint32_t *guest)
{
	uint64_t mask = 0, window_ns = end_ns - then_ns;
	uint32_t i;

	if (now_ns - s->cycle_ns >= s->period_ns) {
		s->cycle_ns = now_ns - now_ns % s->period_ns;
		for (i = 0; i < CGPU_SCHED_SLOTS; i++)
			s->slot[i].guest_ns = 0;
	}
	*guest = CGPU_SCHED_TURNS;
	s->divide_ns = NEVER;
	if (turn == CGPU_SCHED_POOL) {
		mask = cgpu_pool(s) & ~s->sated_mask;
	} else if (turn < CGPU_SCHED_SLOTS) {
		mask = SLOT_BIT(turn);
		if (!s->slot[turn].idle || !cgpu_turn_elastic(s, turn))
			return mask;
		if (s->turn[CGPU_SCHED_POOL].share_ppm) {
			*guest = CGPU_SCHED_POOL;
			i = cgpu_pool_needy(s);
			return mask | (i < CGPU_SCHED_SLOTS ? SLOT_BIT(i) : cgpu_pool(s));
		}
		*guest = invite(s, turn, then_ns, window_ns);
		if (*guest < CGPU_SCHED_SLOTS)
			mask |= SLOT_BIT(*guest);
	}
	return mask;
}

/* Whose work it is that runs in a window. */
static uint32_t runner(uint32_t turn, uint32_t guest)
{
	return guest < CGPU_SCHED_TURNS ? guest : turn;
}

static uint32_t gates(struct cgpu_sched *s, uint64_t mask, uint64_t now_ns,
		      struct cgpu_sched_action *out)
{
	uint32_t runs = runner(s->owner, s->guest);
	/*
	 * Not after one that was seen without work of late, and may be again, nor
	 * after nobody: the next would start before its time.
	 */
	bool overlap = !s->begun ||
		       !(runs == CGPU_SCHED_POOL ? cgpu_pool_paused(s, now_ns) :
						   cgpu_turn_paused(s, runs, now_ns));
	uint64_t open = (s->open_mask | s->stale_mask) & s->shut_mask & mask;
	uint64_t shut = s->open_mask & (~s->shut_mask | s->stale_mask) & ~mask;
	uint32_t n = 0;

	if (s->begun && s->guest == CGPU_SCHED_TURNS && cgpu_turn_quiet(s, s->owner))
		overlap = false;
	s->overlap = overlap && open && shut;
	/* the next first: the hardware's switch then overlaps the second call */
	if (open && overlap)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_OPEN, 0, open };
	if (shut)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_SHUT, 0, shut };
	if (open && !overlap)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_OPEN, 0, open };
	return n;
}

static uint32_t slices(struct cgpu_sched *s, struct cgpu_sched_action *out)
{
	uint64_t seen = 0;
	uint32_t i, j, n = 0;

	if (!s->reslice)
		return 0;
	s->reslice = false;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		struct cgpu_sched_slot *a = &s->slot[i];
		uint64_t mask = 0;

		if (!cgpu_opened(s, i) || !a->wanted_us || a->wanted_us == a->slice_us ||
		    (seen & SLOT_BIT(i)))
			continue;
		for (j = i; j < CGPU_SCHED_SLOTS; j++) {
			struct cgpu_sched_slot *b = &s->slot[j];

			if (cgpu_opened(s, j) && b->groups && b->wanted_us == a->wanted_us &&
			    b->wanted_us != b->slice_us)
				mask |= SLOT_BIT(j);
		}
		seen |= mask;
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_SLICE, a->wanted_us, mask };
	}
	return n;
}

/* The window of `next` begins. */
static void begin(struct cgpu_sched *s, uint64_t now_ns)
{
	bool late = s->begun && now_ns > s->end_ns + CGPU_SCHED_LATE_NS;

	s->windows++;
	s->last_ns = now_ns - s->began_ns - least(s->cost_ns, now_ns - s->began_ns);
	s->last_before = s->before;
	s->last_guest = s->guest;
	s->before = s->moving && s->overlap ? s->owner : CGPU_SCHED_TURNS;
	s->began_ns = now_ns;
	cgpu_turns_charge(s, now_ns);
	if (late && s->owner < CGPU_SCHED_SLOTS)
		s->slot[s->owner].stat.overruns++;
	if (s->next < CGPU_SCHED_SLOTS && (!s->begun || s->next != s->owner))
		s->slot[s->next].stat.switches++;
	s->paid_ns = 0;
	if (!cgpu_turn_quiet(s, s->next) &&
	    !(s->begun && runner(s->next, s->next_guest) == runner(s->owner, s->guest)))
		s->paid_ns = cgpu_turn_entry(s, s->begun ? s->owner : CGPU_SCHED_NOBODY);
	s->owner = s->next;
	if (!cgpu_turn_quiet(s, s->owner))
		s->paid_ns += cgpu_turn_exit(s, following(s)) + cgpu_turn_inner(s, s->owner);
	s->cost_ns = s->paid_ns;
	s->guest = s->next_guest;
	s->begun = true;
	s->moving = false;
	s->begin_ns = now_ns;
	s->end_ns = s->next_end_ns;
	if (late && s->guest == CGPU_SCHED_TURNS)
		s->end_ns = most(s->end_ns, overdue(s, s->owner, now_ns));
	if (cgpu_turn_cap_credit(s, &s->turn[s->owner]))
		cgpu_turns_balance(s);
}

static uint32_t hand_over(struct cgpu_sched *s, uint64_t now_ns, uint64_t then_ns,
			  struct cgpu_sched_action *out)
{
	uint32_t n;

	s->next = choose(s, then_ns, &s->next_end_ns);
	if (s->next == CGPU_SCHED_TURNS) {
		/* nobody has the card open, or those who have are without weight */
		s->begun = false;
		return gates(s, 0, now_ns, out);
	}
	s->part_ns = 0;
	s->given_mask = 0;
	s->sated_mask = 0;
	n = gates(s, allowed(s, s->next, then_ns, s->next_end_ns, now_ns, &s->next_guest),
		  now_ns, out);
	if (n)
		s->moving = true;
	else
		begin(s, now_ns);
	return n;
}

/* The window goes on, for others than until now. */
static uint32_t regate(struct cgpu_sched *s, uint64_t now_ns, uint64_t then_ns,
		       struct cgpu_sched_action *out)
{
	uint32_t n = gates(s, allowed(s, s->owner, then_ns, s->end_ns, now_ns, &s->next_guest),
			   now_ns, out);

	if (n) {
		s->changing = true;
	} else {
		cgpu_turns_charge(s, now_ns);
		s->guest = s->next_guest;
	}
	return n;
}

uint32_t cgpu_sched_tick(struct cgpu_sched *s, uint64_t now_ns,
			 struct cgpu_sched_action *out, uint64_t *wake_ns)
{
	uint64_t early;
	uint32_t n;

	if (s->pending) {
		*wake_ns = s->issued_ns + CGPU_SCHED_WATCHDOG_NS;
		if (now_ns < *wake_ns)
			return 0;
		s->pending = 0;
		s->moving = false;
		s->changing = false;
		s->begun = false;
		s->failures++;
		s->retry_ns = now_ns + CGPU_SCHED_WATCHDOG_NS;
		s->dirty = true;
	}
	if (now_ns < s->hold_ns && !s->suspended) {
		*wake_ns = s->hold_ns;
		return 0;
	}
	if (s->retry_ns && now_ns >= s->retry_ns) {
		s->retry_ns = 0;
		s->dirty = true;
	}
	if (s->dirty || now_ns >= s->review_ns) {
		cgpu_turns_plan(s, now_ns);
		s->regate = true;
	}
	*wake_ns = s->retry_ns ? s->retry_ns : s->review_ns;
	if (s->mode != CGPU_SCHED_WINDOWS) {
		cgpu_turns_grant(s, now_ns);
		n = gates(s, ~0ULL, now_ns, out);
		n += slices(s, out + n);
	} else {
		n = slices(s, out);
		early = lead(s);
		if (!s->begun || now_ns + early >= s->end_ns)
			n += hand_over(s, now_ns, now_ns + early, out + n);
		else if (s->regate || now_ns + early >= s->divide_ns)
			n += regate(s, now_ns, least(now_ns + early, s->end_ns), out + n);
		s->regate = false;
		early = lead(s);
		if (s->begun)
			*wake_ns = least(*wake_ns, most(now_ns + CGPU_SCHED_SOON_NS,
							least(s->end_ns, s->divide_ns) - early));
	}
	if (n) {
		s->pending = n;
		s->issued_ns = now_ns;
		*wake_ns = now_ns + CGPU_SCHED_WATCHDOG_NS;
	}
	return n;
}

static uint64_t average(uint64_t old, uint64_t ns)
{
	/* a stop that took 20 ms says nothing of the next */
	return (old * 7 + least(ns, old + 200000)) / 8;
}

void cgpu_sched_done(struct cgpu_sched *s, const struct cgpu_sched_action *action,
		     uint64_t start_ns, uint64_t end_ns, int status)
{
	uint64_t mask;
	uint32_t i;

	s->calls++;
	for (i = 0, mask = action->mask; mask; i++, mask >>= 1) {
		struct cgpu_sched_slot *slot = &s->slot[i];

		if (!(mask & 1) || !slot->present)
			continue;
		if (action->kind != CGPU_SCHED_SLICE)
			s->stale_mask &= ~SLOT_BIT(i);
		if (action->kind == CGPU_SCHED_SLICE && !status) {
			slot->slice_us = action->slice_us;
		} else if (action->kind == CGPU_SCHED_SHUT) {
			/* even if it failed: then it must be opened */
			s->shut_mask |= SLOT_BIT(i);
			slot->shut_since_ns = end_ns;
		} else if (action->kind == CGPU_SCHED_OPEN && !status &&
			   (s->shut_mask & SLOT_BIT(i))) {
			s->shut_mask &= ~SLOT_BIT(i);
			slot->stat.throttled_ns += end_ns - least(end_ns, slot->shut_since_ns);
		}
	}
	if (action->kind == CGPU_SCHED_OPEN)
		s->open_ns = average(s->open_ns, end_ns - start_ns);
	else if (action->kind == CGPU_SCHED_SHUT)
		s->shut_ns = average(s->shut_ns, end_ns - start_ns);
	if (status) {
		if (action->kind == CGPU_SCHED_OPEN)
			s->hold_ns = end_ns + CGPU_SCHED_HOLD_NS;
		s->failures++;
		s->retry_ns = end_ns + CGPU_SCHED_WATCHDOG_NS;
		s->dirty = true;
		s->moving = false;
	}
	if (!s->pending || --s->pending)
		return;
	if (s->moving) {
		begin(s, end_ns);
	} else if (s->changing) {
		cgpu_turns_charge(s, end_ns);
		s->guest = s->next_guest;
	}
	s->changing = false;
}

/* ---- events ---- */

void cgpu_sched_init(struct cgpu_sched *s, uint64_t now_ns)
{
	memset(s, 0, sizeof(*s));
	s->policy = CGPU_POLICY_NATIVE;
	s->max_inst = 1;
	s->unit_ns = 5000000;
	s->loss_ppm = CGPU_SCHED_LOSS_PPM;
	s->after_ns = s->after_used_ns = CGPU_SCHED_SWITCH_NS;
	s->owner = CGPU_SCHED_NOBODY;
	s->guest = CGPU_SCHED_TURNS;
	s->next_guest = CGPU_SCHED_TURNS;
	s->before = CGPU_SCHED_TURNS;
	s->last_before = CGPU_SCHED_TURNS;
	s->last_guest = CGPU_SCHED_TURNS;
	s->period_ns = CGPU_SCHED_UNITS * s->unit_ns;
	s->spread_ns = s->period_ns;
	s->review_ns = NEVER;
	s->divide_ns = NEVER;
	s->granted_to_ns = now_ns;
	s->cycle_ns = now_ns;
	/* as measured on an H200, until the first calls are */
	s->open_ns = 330000;
	s->shut_ns = 420000;
}

int cgpu_sched_card(struct cgpu_sched *s, uint32_t policy, uint32_t max_inst,
		    uint32_t timeslice_us, uint64_t now_ns)
{
	if (policy >= CGPU_POLICY_END)
		return -EINVAL;
	if (!max_inst || max_inst > CGPU_POLICY_MEMBERS || timeslice_us < 1000 ||
	    timeslice_us > 1000000)
		return -ERANGE;
	if (s->policy == policy && s->max_inst == max_inst &&
	    s->unit_ns == (uint64_t)timeslice_us * 1000)
		return 0;
	cgpu_turns_charge(s, now_ns);
	s->policy = policy;
	s->max_inst = max_inst;
	s->unit_ns = (uint64_t)timeslice_us * 1000;
	s->dirty = true;
	return 0;
}

int cgpu_sched_set(struct cgpu_sched *s, uint32_t slot,
		   const struct cgpu_policy_member *member, uint64_t now_ns)
{
	struct cgpu_policy_share unused;
	struct cgpu_policy_member *old;
	bool open;
	int err;

	if (slot >= CGPU_SCHED_SLOTS)
		return -ERANGE;
	err = cgpu_policy_shares(s->policy, s->max_inst, member, 1, &unused);
	if (err)
		return err;
	old = &s->slot[slot].member;
	if (s->slot[slot].present && old->weight == member->weight &&
	    old->quota == member->quota && old->quota_min == member->quota_min &&
	    old->priority == member->priority)
		return 0;
	cgpu_turns_charge(s, now_ns);
	open = old->open;
	*old = *member;
	old->open = open;
	s->slot[slot].present = true;
	s->dirty = true;
	return 0;
}

void cgpu_sched_remove(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	if (slot >= CGPU_SCHED_SLOTS || !s->slot[slot].present)
		return;
	cgpu_turns_charge(s, now_ns);
	memset(&s->slot[slot], 0, sizeof(s->slot[slot]));
	s->open_mask &= ~SLOT_BIT(slot);
	s->shut_mask &= ~SLOT_BIT(slot);
	cgpu_turn_settle(s, slot);
	s->turn[slot].debt_ns = 0;
	s->dirty = true;
}

void cgpu_sched_reapply(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	struct cgpu_sched_slot *p = &s->slot[slot % CGPU_SCHED_SLOTS];

	if (slot >= CGPU_SCHED_SLOTS || !p->present)
		return;
	cgpu_turns_charge(s, now_ns);
	s->open_mask &= ~SLOT_BIT(slot);
	if (p->member.open && p->groups) {
		s->open_mask |= SLOT_BIT(slot);
		/* some of its channels are shut, new ones may not be */
		s->stale_mask |= s->shut_mask & SLOT_BIT(slot);
	} else {
		if (s->shut_mask & SLOT_BIT(slot))
			p->stat.throttled_ns += now_ns - least(now_ns, p->shut_since_ns);
		s->shut_mask &= ~SLOT_BIT(slot);
		s->stale_mask &= ~SLOT_BIT(slot);
	}
	p->slice_us = 0;
	s->dirty = true;
}

void cgpu_sched_open(struct cgpu_sched *s, uint32_t slot, bool open, uint32_t groups,
		     uint64_t now_ns)
{
	struct cgpu_sched_slot *p = &s->slot[slot % CGPU_SCHED_SLOTS];

	if (slot >= CGPU_SCHED_SLOTS || !p->present ||
	    (p->member.open == open && p->groups == groups))
		return;
	cgpu_turns_charge(s, now_ns);
	/*
	 * Under policy 1 the parts depend on who holds the card open. One that closes
	 * and opens it again and again must not keep the others moving.
	 */
	p->leaves_ns = 0;
	if (p->member.open && !open && s->policy == CGPU_POLICY_PREEMPTIVE &&
	    s->mode == CGPU_SCHED_WINDOWS)
		p->leaves_ns = now_ns + s->period_ns;
	p->member.open = open;
	p->groups = groups;
	cgpu_sched_reapply(s, slot, now_ns);
}

void cgpu_sched_held(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	if (slot >= CGPU_SCHED_SLOTS || !s->slot[slot].present)
		return;
	if (!(s->shut_mask & SLOT_BIT(slot)))
		s->slot[slot].shut_since_ns = now_ns;
	s->shut_mask |= SLOT_BIT(slot);
	s->stale_mask |= SLOT_BIT(slot);
	s->regate = true;
}

bool cgpu_sched_may_run(const struct cgpu_sched *s, uint32_t slot)
{
	if (slot >= CGPU_SCHED_SLOTS || s->mode != CGPU_SCHED_WINDOWS)
		return true;
	/* of those who share the window some may have had their parts */
	return s->begun && (s->owner == slot || s->guest == slot ||
			    ((s->owner == CGPU_SCHED_POOL || s->guest == CGPU_SCHED_POOL) &&
			     s->share[slot].pooled && !(s->shut_mask & SLOT_BIT(slot))));
}

void cgpu_sched_sight(struct cgpu_sched *s, uint64_t late_ns, uint64_t now_ns)
{
	if (s->sight_ns == late_ns)
		return;
	cgpu_turns_charge(s, now_ns);
	s->sight_ns = late_ns;
	s->dirty = true;
}

/* Somebody went idle or woke: does that concern the window that is open, or begins? */
static void news(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	uint32_t owner = s->moving ? s->next : s->owner;
	uint32_t guest = s->moving || s->changing ? s->next_guest : s->guest;
	uint64_t end_ns = s->moving ? s->next_end_ns : s->end_ns;

	if (owner >= CGPU_SCHED_SLOTS)
		return;
	if (owner == slot || guest == slot ||
	    (s->slot[owner].idle && guest == CGPU_SCHED_TURNS)) {
		s->regate = true;
	} else if (guest < CGPU_SCHED_SLOTS && !s->slot[slot].idle &&
		   cgpu_turn_elastic(s, slot) && now_ns + 2 * PART_NS + s->open_ns < end_ns) {
		/* what is left of the window is divided anew: its part is not the guest's */
		s->part_ns = 0;
		s->given_mask &= ~(SLOT_BIT(guest) | SLOT_BIT(slot));
		s->regate = true;
	}
}

void cgpu_sched_idle(struct cgpu_sched *s, uint32_t slot, bool idle, uint64_t now_ns)
{
	struct cgpu_sched_slot *p;

	if (slot >= CGPU_SCHED_SLOTS)
		return;
	p = &s->slot[slot];
	s->dirty |= !s->sighted;
	s->sighted = true;
	if (idle || p->idle)
		p->idle_ns = now_ns;
	if (p->idle == idle)
		return;
	cgpu_turns_charge(s, now_ns);
	p->idle = idle;
	p->idle_since_ns = now_ns;
	if (!idle)
		cgpu_turn_forget_gifts(s, slot);
	if (!idle && s->begun && s->owner == slot && s->guest == CGPU_SCHED_TURNS)
		s->paid_ns = CGPU_SCHED_ENTRY_NS;
	if (idle && (s->mode == CGPU_SCHED_SLICES || s->share[slot].pooled))
		s->review_ns = least(s->review_ns, now_ns + CGPU_SCHED_REST_NS);
	s->dirty |= p->resting;
	p->woke |= p->resting;
	p->resting = false;
	if (s->begun)
		news(s, slot, now_ns);
}

void cgpu_sched_used(struct cgpu_sched *s, uint32_t slot, uint64_t used_ns)
{
	if (slot < CGPU_SCHED_SLOTS)
		s->slot[slot].stat.used_ns += used_ns;
}

void cgpu_sched_suspend(struct cgpu_sched *s, bool suspend, uint64_t now_ns)
{
	if (s->suspended == suspend)
		return;
	cgpu_turns_charge(s, now_ns);
	s->suspended = suspend;
	s->dirty = true;
}

void cgpu_sched_stat(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns,
		     struct cgpu_sched_stat *out)
{
	struct cgpu_sched_slot *p;

	memset(out, 0, sizeof(*out));
	if (slot >= CGPU_SCHED_SLOTS)
		return;
	cgpu_turns_charge(s, now_ns);
	cgpu_turn_settle(s, slot);
	p = &s->slot[slot];
	*out = p->stat;
	out->debt_ns = s->turn[slot].debt_ns;
	if (s->turn[slot].share_ppm)
		out->debt_ns -= cgpu_turn_planned(s, slot, now_ns);
	if ((s->shut_mask & SLOT_BIT(slot)) && p->member.open)
		out->throttled_ns += now_ns - least(now_ns, p->shut_since_ns);
}
