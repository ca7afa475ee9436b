// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which containers pause, and so whether windows are made on demand. A channel with nothing queued
 * proves little: the card may have fetched all that waits for it. On demand, a container pauses if
 * it slept of late. Under slices it pauses if it used less than they gave it, by the log of context
 * switches. Slices are tried again when none has slept for a while; after a trial that failed it
 * takes longer until the next.
 *
 * A container that its processor holds up is nearly as fast beside others as alone, so the card is
 * not held for it.
 */
#include "core/sched/pause.h"
#include "core/sched/account.h"
#include "core/sched/expiry.h"
#include "core/sched/budget.h"
#include "core/sched/gang.h"

uint32_t cgpu_class(const struct cgpu_sched *s, uint32_t slot)
{
	return s->config.policy == CGPU_POLICY_ONLINE ? s->slot[slot].member.priority : 0;
}

bool cgpu_has_classes(const struct cgpu_sched *s)
{
	uint32_t i, first = CGPU_SCHED_NONE;

	for_each_competing(s, i) {
		if (first == CGPU_SCHED_NONE)
			first = i;
		else if (cgpu_class(s, i) != cgpu_class(s, first))
			return true;
	}
	return false;
}

bool cgpu_pause_rests(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	const struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;

	return f->asleep && now_ns - f->since_ns >= CGPU_SCHED_FAIR_REST_NS;
}

/*
 * By the clock the gate of a resting container is shut for good. What it submits then is seen, but
 * not what the card had fetched before: its work may be one long kernel. So it rests only when one
 * of its windows went by without work, and gets another window now and then.
 */
bool cgpu_pause_is_unproven(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	const struct cgpu_sched_slot *p = &s->slot[slot];

	return s->plan.mode == CGPU_SCHED_WINDOWS && cgpu_pause_is_logged(s, now_ns) &&
	       (!p->idle_windows || now_ns - p->idle_ns >= CGPU_SCHED_FAIR_FULL_NS);
}

/* The container has slept for long, or ever since it opened the card. */
static bool has_rest(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	return s->slot[slot].fair.asleep &&
	       (!s->slot[slot].fair.worked || cgpu_pause_rests(s, slot, now_ns));
}

uint64_t cgpu_pause_resting(const struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t mask = 0;
	uint32_t i;

	for_each_competing(s, i)
		if (has_rest(s, i, now_ns) &&
		    !cgpu_pause_is_unproven(s, i, now_ns))
			mask |= SLOT_BIT(i);
	return mask;
}

bool cgpu_pause_is_quiet(const struct cgpu_sched *s, uint64_t now_ns)
{
	uint32_t i, count = 0;

	for_each_competing(s, i) {
		if (!s->slot[i].fair.asleep)
			count++;
		else if (!cgpu_pause_rests(s, i, now_ns))
			return false;
	}
	return count <= 1;
}

bool cgpu_pause_was_alone(const struct cgpu_sched *s, uint64_t since_ns)
{
	uint32_t i;

	for_each_competing(s, i) {
		const struct cgpu_sched_slot *p = &s->slot[i];

		if (i == s->fair.curr)
			continue;
		if (!p->fair.asleep || p->fair.since_ns > since_ns || p->fair.moved_ns > since_ns ||
		    s->gates.shut_mask & SLOT_BIT(i) || p->open_since_ns > since_ns)
			return false;
	}
	return true;
}

bool cgpu_pause_is_logged(const struct cgpu_sched *s, uint64_t now_ns)
{
	return s->fair.settled_ns && now_ns - s->fair.settled_ns < CGPU_SCHED_SECOND_NS;
}

bool cgpu_is_awake(const struct cgpu_sched *s, uint32_t slot)
{
	return cgpu_competes(s, slot) && s->share[slot].share_ppm && !s->slot[slot].fair.asleep;
}

static bool is_asleep(const struct cgpu_sched_fair_slot *f, uint64_t now_ns)
{
	return f->asleep && now_ns - f->since_ns >= CGPU_DEMAND_PATIENCE_MAX_NS;
}

/* By the log the container ran little in its sleep, less what it ran until a look saw it wake. */
static bool really_slept(const struct cgpu_sched_fair_slot *f, uint64_t now_ns)
{
	uint64_t ran_ns = f->asleep_ran_ns - f->fell_ran_ns;

	ran_ns = cgpu_beyond(ran_ns, CGPU_SCHED_FAIR_WAKEUP_NS);
	return ran_ns * CGPU_SCHED_FAIR_SLEPT_PART <= now_ns - f->since_ns;
}

bool cgpu_pause_is_over(const struct cgpu_sched_fair_slot *f, uint64_t now_ns)
{
	return is_asleep(f, now_ns) && !f->is_found && really_slept(f, now_ns);
}

bool cgpu_pause_slept(const struct cgpu_sched *s, uint32_t slot)
{
	const struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;

	/* while no slot has the card, the loaded one may be at work */
	return s->fair.settled_ns >= f->since_ns + CGPU_DEMAND_PATIENCE_MAX_NS &&
	       (s->fair.curr < CGPU_SCHED_SLOTS || s->fair.loaded != slot) &&
	       really_slept(f, s->fair.settled_ns);
}

bool cgpu_is_kept(const struct cgpu_sched *s, uint32_t slot)
{
	uint64_t kept = s->slot[slot].fair.kept_ppm;

	return kept && kept * 10 >= (uint64_t)s->share[slot].share_ppm * 9;
}

/*
 * To hold the card for this container would gain less than it costs. It is nearly as fast beside
 * others, because its processor holds it up. Without a claim it gets its share of the time at most,
 * and must be faster than that beside others.
 */
bool cgpu_divides(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	const struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;

	if (!cgpu_is_kept(s, slot) || (f->claims && f->kept_ppm < CGPU_SCHED_FAIR_KEPT_PPM))
		return false;
	/* only the log charges what each ran; one that took more than its share so is excluded */
	return cgpu_pause_is_logged(s, now_ns) && !f->is_overdrawn &&
	       (!f->overdrew_ns || now_ns - f->overdrew_ns >= CGPU_SCHED_SECOND_NS);
}

bool cgpu_pauses(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	const struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;

	if (!cgpu_pause_is_logged(s, now_ns))
		return f->asleep || f->empties;
	if (s->plan.mode == CGPU_SCHED_SLICES)
		return f->is_short;
	return is_asleep(f, now_ns) || cgpu_divides(s, slot, now_ns) ||
	       (f->slept_ns && now_ns - f->slept_ns < CGPU_SCHED_FAIR_FULL_NS);
}

bool cgpu_pause_wants_demand(const struct cgpu_sched *s, uint64_t now_ns)
{
	bool is_capped = cgpu_budget_is_used(s), gangs = cgpu_gangs_compete(s);
	uint32_t i, awake = 0, pausing = 0, resting = 0;

	for_each_competing(s, i) {
		if (s->fair.resting_mask & SLOT_BIT(i))
			resting++;
		else if (has_rest(s, i, now_ns) && cgpu_pause_is_unproven(s, i, now_ns))
			awake++;
		/* a gang that pauses on this card waits for its part of another one */
		else if (!(gangs && s->slot[i].gang) && cgpu_pauses(s, i, now_ns))
			pausing++;
		else
			awake++;
	}
	/* fixed parts need windows by the clock; only the log charges budgets */
	if (is_capped ? !cgpu_pause_is_logged(s, now_ns) : cgpu_budget_is_needed(s))
		return false;
	/* neither slices nor windows by the clock know classes */
	if (cgpu_has_classes(s))
		return true;
	/* a gang pauses because windows are on demand: that must not keep them */
	if (s->plan.mode == CGPU_SCHED_DEMAND && now_ns < s->fair.kept_ns && !gangs)
		pausing++;
	/* a container that works beside resting ones has the card, but they must not wait long */
	if (is_capped)
		return pausing || (awake <= 1 && resting);
	return pausing ? pausing + awake + resting > 1 : awake == 1 && resting;
}

bool cgpu_pause_divides(const struct cgpu_sched *s)
{
	uint32_t i;

	for_each_competing(s, i)
		if (cgpu_is_kept(s, i))
			return true;
	return false;
}

/*
 * A container that loses little in each round is found once its loss exceeds the difference that
 * two readings of the log may have. The less it uses of its slice, the shorter the round is, so
 * shares of what all ran are compared. Return: it misses more than it may.
 */
static bool misses_share(struct cgpu_sched_fair_slot *f, int64_t missed_ns, uint64_t passed_ns,
			 uint64_t slice_ns)
{
	int64_t most_ns = (int64_t)(2 * slice_ns + CGPU_DEMAND_PATIENCE_MAX_NS);

	missed_ns -= (int64_t)cgpu_part(passed_ns, CGPU_SCHED_FAIR_USE_MISS_PPM);
	f->use_missed_ns += missed_ns;
	if (f->use_missed_ns < 0)
		f->use_missed_ns = 0;
	if (f->use_missed_ns > 2 * most_ns)
		f->use_missed_ns = 2 * most_ns;
	return f->use_missed_ns > most_ns;
}

/*
 * Compares what slices gave a container with what it ran. If its pieces of work are shorter than
 * its slice, it loses the rest of each slice.
 */
void cgpu_pause_judge_use(struct cgpu_sched *s, uint32_t slot, int64_t missed_ns, uint64_t now_ns)
{
	struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;
	uint64_t passed = now_ns - s->fair.settled_ns, length = now_ns - f->use_from_ns, rounds;
	uint64_t slice_ns = 1000ULL * s->slot[slot].slice_us * s->slot[slot].groups;
	bool was = f->is_short, over, misses;

	if (passed > CGPU_SCHED_SECOND_NS)
		f->use_from_ns = 0;
	/* the first slices after windows are as long as two periods of those */
	if (passed > CGPU_SCHED_SECOND_NS ||
	    now_ns - s->fair.planned_ns < 2 * CGPU_SCHED_TWICE * s->plan.period_ns)
		f->use_missed_ns = missed_ns = 0;
	misses = misses_share(f, missed_ns, passed, slice_ns);
	if (!f->use_from_ns || f->use_from_ns > s->fair.settled_ns) {
		f->use_from_ns = now_ns;
		f->use_due_ns = f->use_ran_ns = 0;
		f->use_emptied = false;
		return;
	}
	f->use_due_ns += passed * (slice_ns / 1000) / (s->plan.period_ns / 1000);
	f->use_ran_ns += f->ran_ns;
	rounds = length / s->plan.period_ns;
	over = length >= CGPU_SCHED_FAIR_REST_NS && rounds >= CGPU_SCHED_FAIR_USE_ROUNDS;
	if (over)
		/* with several processes, all channels are hardly ever empty at once */
		f->is_short = (f->use_emptied || f->use_ran_ns) &&
			      f->use_ran_ns * 10 < f->use_due_ns * 9;
	else if (!f->is_judged && rounds >= CGPU_SCHED_TWICE)
		/* within a round it may be a slice behind, and still get that slice */
		f->is_short |= f->use_emptied &&
			       (f->use_ran_ns * 3 < f->use_due_ns ||
				f->use_ran_ns + slice_ns + CGPU_DEMAND_PATIENCE_MAX_NS <
					f->use_due_ns);
	f->is_short |= misses && f->use_emptied;
	f->is_judged |= over;
	if (over)
		f->use_from_ns = 0;
	cgpu_plan_outdate(s, f->is_short != was);
}

void cgpu_pause_found(struct cgpu_sched *s, uint64_t now_ns)
{
	s->fair.kept_ns = cgpu_max(s->fair.kept_ns, now_ns + s->fair.keep_ns);
}

void cgpu_pause_note_empty(struct cgpu_sched *s, uint32_t slot, bool empty)
{
	s->slot[slot].fair.use_emptied |= empty;
}

bool cgpu_pause_is_unclear(const struct cgpu_sched *s)
{
	uint32_t i;

	for (i = 0; i < s->slot_end && s->plan.mode == CGPU_SCHED_SLICES; i++)
		if (cgpu_competes(s, i) && s->slot[i].fair.use_emptied &&
		    !s->slot[i].fair.is_judged)
			return true;
	return false;
}

/* Slices are tried again after a while, and after a longer one if a trial failed. */
void cgpu_pause_change_mode(struct cgpu_sched *s, uint32_t was, uint64_t now_ns)
{
	uint32_t i;

	if (s->plan.mode == CGPU_SCHED_DEMAND && was != CGPU_SCHED_DEMAND) {
		s->fair.keep_ns *= 2;
		if (!s->fair.given_up_ns ||
		    now_ns - s->fair.given_up_ns > 2 * CGPU_SCHED_SECOND_NS)
			s->fair.keep_ns = CGPU_SCHED_FAIR_KEEP_S * 1000000000ULL;
		s->fair.keep_ns = cgpu_min(s->fair.keep_ns,
					   CGPU_SCHED_FAIR_KEEP_MAX_S * 1000000000ULL);
		s->fair.kept_ns = now_ns + s->fair.keep_ns;
	} else if (s->plan.mode != CGPU_SCHED_DEMAND && was == CGPU_SCHED_DEMAND) {
		s->fair.given_up_ns = now_ns;
	}
	if (s->plan.mode != was)
		s->fair.changed_ns = now_ns;
	for (i = 0; i < s->slot_end && s->plan.mode != was; i++) {
		s->slot[i].fair.is_short = false;
		/* the first slices after windows tell little */
		s->slot[i].fair.is_judged = was == CGPU_SCHED_WINDOWS;
		s->slot[i].fair.use_from_ns = 0;
	}
}
