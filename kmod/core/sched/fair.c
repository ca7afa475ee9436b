// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Each slot is an entity with a lag: what it was due by its share less what it held of the card.
 * What a sleeper leaves is due to those who are awake; all lags add up to zero. A sleeper's lag
 * returns to zero and no further, however long it has slept. A container that ran in its sleep, by
 * the log of context switches, had work and keeps its lag. A container that wakes has a claim to
 * what it has not held of its share of the last second. So a container that pauses gets its share
 * of a second when it wants it, and no more.
 *
 * Containers with a claim run first. Among equals the one with the most lag divided by its share
 * has the card, alone. It keeps the card until another is ahead of it by half a period, or one
 * wakes that is ahead of it. If more than two are runnable, a third of a period is enough; of eight
 * and more each has it for 4 ms. Gates of sleepers stay open. The runlist starts a sleeper's first
 * work at once, and the look that sees it shuts the other gates.
 *
 * Under policy online priorities are classes. While a container of a higher class is awake, those
 * below are due nothing, and the others get what they do not. A container that has not held its
 * floor of the last second joins the highest class until it has, without a claim.
 *
 * A container that has spent its ceiling's budget counts as one without work: its gate is shut
 * (budget).
 *
 * This is EEVDF with slices in proportion to weights, so the deadline's order is the lag's. As
 * there, lag keeps a sleeper's place. There is no virtual clock, because shares have floors and
 * come from the policy, not from weights alone.
 */
#include "core/sched/fair.h"
#include "core/sched/account.h"
#include "core/sched/expiry.h"
#include "core/sched/budget.h"
#include "core/sched/pause.h"

#define CLAIM_NS (CGPU_SCHED_FAIR_CLAIM_S * 1000000000LL)
#define PART_NS (CGPU_SCHED_SECOND_NS / CGPU_SCHED_FAIR_BINS)

/* The runlist served others during this turn and has not yet come to the turn's owner. */
static bool went_on(const struct cgpu_sched *s)
{
	return s->fair.went_on_ns > s->fair.began_ns &&
	       s->fair.settled_ns < s->fair.began_ns + cgpu_fair_round_ns(s);
}

uint64_t cgpu_fair_asks_ns(const struct cgpu_sched *s)
{
	uint64_t at_ns = s->fair.began_ns + CGPU_SCHED_FAIR_LOADED_NS;

	if (s->plan.mode != CGPU_SCHED_DEMAND || s->fair.curr >= CGPU_SCHED_SLOTS ||
	    !s->slot[s->fair.curr].fair.empties)
		return 0;
	if (s->fair.settled_ns < at_ns)
		return at_ns;
	if (s->slot[s->fair.curr].fair.is_doubted)
		return s->fair.settled_ns + CGPU_DEMAND_LOOK_NS;
	/* the loaded container sleeps by its channels, and may be at work */
	if (went_on(s) ||
	    (s->fair.loaded < CGPU_SCHED_SLOTS && s->fair.loaded != s->fair.curr &&
	     s->slot[s->fair.loaded].fair.asleep &&
	     !(s->gates.shut_mask & SLOT_BIT(s->fair.loaded))))
		return s->fair.settled_ns + CGPU_DEMAND_LOOK_NS;
	return 0;
}

bool cgpu_fair_was_empty(const struct cgpu_sched *s, uint32_t slot)
{
	const struct cgpu_sched_slot *p = &s->slot[slot];

	return s->plan.mode == CGPU_SCHED_DEMAND && s->fair.curr == slot &&
	       s->fair.settled_ns >= s->fair.began_ns + CGPU_SCHED_FAIR_LOADED_NS &&
	       p->open_since_ns && p->stat.used_ns == p->open_used_ns && !went_on(s);
}

static uint64_t share(const struct cgpu_sched *s, uint32_t slot)
{
	return s->share[slot].share_ppm;
}

/* The container is awake and has budget left. */
static bool runnable(const struct cgpu_sched *s, uint32_t slot)
{
	return cgpu_is_awake(s, slot) && !cgpu_budget_is_spent(s, slot);
}

/* A runnable container of a higher class exists. */
static bool is_below(const struct cgpu_sched *s, uint32_t slot)
{
	uint32_t i;

	if (s->config.policy != CGPU_POLICY_ONLINE)
		return false;
	for (i = 0; i < s->slot_end; i++)
		if (cgpu_class(s, i) > cgpu_class(s, slot) && runnable(s, i))
			return true;
	return false;
}

/* A share of the time that the bins cover: a second and up to one bin more. */
static uint64_t part_of_bins(uint64_t ppm)
{
	return cgpu_part(PART_NS * (CGPU_SCHED_FAIR_BINS + 1), ppm);
}

/* The container is below another's class, and has held its floor of the last second. */
static bool is_outranked(const struct cgpu_sched *s, uint32_t slot)
{
	uint64_t floor_ns = part_of_bins(s->share[slot].floor_ppm);

	/* an allowance, because it may have to wait for its turn */
	floor_ns += floor_ns ? s->plan.period_ns / 4 : 0;
	return is_below(s, slot) && s->slot[slot].fair.held.sum_ns >= floor_ns;
}


/* How far a slot is behind, in virtual time: as if its share were all of the card. */
static int64_t vlag(const struct cgpu_sched *s, uint32_t slot)
{
	int64_t ppm = (int64_t)share(s, slot);

	return ppm ? s->slot[slot].fair.lag_ns * (int64_t)CGPU_PPM / ppm : 0;
}

static bool has_claim(const struct cgpu_sched *s, uint32_t slot)
{
	return s->slot[slot].fair.claims && !is_below(s, slot);
}

/* By how much `a` goes before `b`, in virtual time. */
static int64_t ahead(const struct cgpu_sched *s, uint32_t a, uint32_t b)
{
	int64_t claims = is_outranked(s, b) - is_outranked(s, a);

	if (!claims)
		claims = s->slot[a].fair.is_urgent - s->slot[b].fair.is_urgent;
	if (!claims)
		claims = has_claim(s, a) - has_claim(s, b);
	return claims ? claims * CLAIM_NS : vlag(s, a) - vlag(s, b);
}

/* The lead that another needs to take the card: the length of a window. */
static int64_t granularity(const struct cgpu_sched *s)
{
	uint32_t i, count = 0;
	bool several = false;
	uint64_t ns;

	for (i = 0; i < s->slot_end; i++) {
		count += runnable(s, i);
		several |= runnable(s, i) && s->slot[i].groups > 1;
	}
	/* the more there are, the more each one's window moves the others */
	if (count <= 2)
		return (int64_t)s->plan.period_ns / 2;
	ns = s->plan.period_ns / 3;
	/* with many, hand-overs must not take too much of the time */
	if (count >= CGPU_SCHED_UNITS)
		ns = cgpu_max(ns, count * CGPU_SCHED_FAIR_TURN_NS);
	/*
	 * Slices of several groups are cut for the share of a period, and with this lead a turn is
	 * as long. In a shorter turn the runlist, which begins with the first group each time,
	 * would not come to the last.
	 */
	if (several)
		ns = cgpu_max(ns, s->plan.period_ns * (count - 1) / count);
	return (int64_t)ns;
}

/* What the slot has not held of its share of the last second, less a window of @window_ns. */
static uint64_t unheld_ns(const struct cgpu_sched *s, uint32_t slot, int64_t window_ns)
{
	uint64_t room_ns = cgpu_min((uint64_t)window_ns, CGPU_SCHED_SECOND_NS);
	uint64_t part = cgpu_part(CGPU_SCHED_SECOND_NS - room_ns, share(s, slot));

	return cgpu_beyond(part, s->slot[slot].fair.held.sum_ns);
}

/*
 * A container that is nearly as fast beside others is served better beside them for the rest of its
 * share. If it got the rest at once, it would wait afterwards.
 */
static uint64_t beside_ns(const struct cgpu_sched *s, uint32_t slot)
{
	uint64_t share_ns = cgpu_part(CGPU_SCHED_SECOND_NS, share(s, slot));

	return cgpu_is_kept(s, slot) ? cgpu_part(share_ns, CGPU_SCHED_FAIR_BESIDE_PPM) : 0;
}

/* The slot is ahead of its share by more than a window: it would run in others' time. */
static bool is_ineligible(const struct cgpu_sched *s, uint32_t slot, int64_t window_ns)
{
	return s->slot[slot].fair.lag_ns < -window_ns;
}

static bool is_due(const struct cgpu_sched *s, uint32_t slot)
{
	return cgpu_is_awake(s, slot) && !is_outranked(s, slot);
}

/* Divides a lag of either sign by share among those that are due. Return: what was divided. */
static int64_t divide(struct cgpu_sched *s, int64_t ns, uint32_t without)
{
	uint64_t shares = 0;
	int64_t sum = 0, part;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++)
		if (i != without && is_due(s, i))
			shares += share(s, i);
	for (i = 0; i < s->slot_end && shares; i++) {
		if (i == without || !is_due(s, i))
			continue;
		part = ns * (int64_t)share(s, i) / (int64_t)shares;
		s->slot[i].fair.lag_ns += part;
		sum += part;
	}
	return sum;
}

static void note_held(struct cgpu_sched *s, uint32_t slot, int64_t ns)
{
	cgpu_second_add(&s->slot[slot].fair.held, CGPU_SCHED_FAIR_BINS, ns);
}

/* Charges a slot that held the card, or seemed to. */
static void take(struct cgpu_sched *s, uint32_t slot, int64_t ns)
{
	s->slot[slot].fair.lag_ns -= ns;
	note_held(s, slot, ns);
}

/*
 * Gives lag to those that are due. If none is, nobody waits for what those in debt took, so that
 * part of their debts is forgiven. Otherwise the container that wakes first would be due all of it.
 * Return: what was given.
 */
static int64_t give(struct cgpu_sched *s, int64_t ns)
{
	int64_t given = divide(s, ns, CGPU_SCHED_NONE), debts = 0, part;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		if (is_due(s, i))
			return given;
		if (cgpu_competes(s, i) && s->slot[i].fair.lag_ns < 0)
			debts -= s->slot[i].fair.lag_ns;
	}
	if (ns > debts)
		ns = debts;
	for_each_competing(s, i) {
		if (ns <= 0 || s->slot[i].fair.lag_ns >= 0)
			continue;
		part = -s->slot[i].fair.lag_ns / 1000 * ns / debts * 1000;
		s->slot[i].fair.lag_ns += part;
		given += part;
	}
	return given;
}

/* What it ran while all seemed to sleep: no container had the card or was charged. */
static uint64_t uncharged_ns(const struct cgpu_sched *s, const struct cgpu_sched_fair_slot *f)
{
	return f->asleep && s->fair.curr >= CGPU_SCHED_SLOTS ?
		       cgpu_beyond(f->ran_ns, f->held_ns) : 0;
}

/*
 * Lag of these passes to the rest: sleepers that did not run, those that could not use more, and
 * those that are outranked. A container that was loaded while nobody was charged passes on what it
 * ran, less its share of that. It was at work and has had it, or is done and due nothing.
 */
static void pass_on(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t part, loaded;
	int64_t left = 0;
	uint32_t i;

	for_each_competing(s, i) {
		struct cgpu_sched_fair_slot *f = &s->slot[i].fair;

		if (f->lag_ns <= 0)
			continue;
		part = (uint64_t)f->lag_ns;
		loaded = uncharged_ns(s, f);
		if (!((f->asleep && !f->ran_ns) || is_outranked(s, i) ||
		      cgpu_budget_is_spent(s, i) ||
		      /* below another's class it runs alone, and gets its floor by turns */
		      (cgpu_divides(s, i, now_ns) && !is_below(s, i))))
			part = cgpu_min(part, loaded - cgpu_part(loaded, f->full_ppm));
		left += (int64_t)part;
		f->lag_ns -= (int64_t)part;
	}
	left -= give(s, left);
	if (s->fair.curr < CGPU_SCHED_SLOTS)
		s->slot[s->fair.curr].fair.lag_ns += left;
}

/*
 * The slot that pays: the one that has the card. While the runlist divides the card, it is the slot
 * that made it do so. The log tells what the others ran; what switches take is left to that slot.
 */
static uint32_t payer(const struct cgpu_sched *s, uint64_t now_ns)
{
	uint32_t i;

	for (i = 0; i < s->slot_end; i++)
		if (i != s->fair.curr && cgpu_is_awake(s, i) && cgpu_divides(s, i, now_ns) &&
		    !(s->gates.shut_mask & SLOT_BIT(i)))
			return i;
	return s->fair.curr;
}

static void charge(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t passed = cgpu_beyond(now_ns, s->fair.charged_to_ns), part, given = 0;
	uint32_t i, curr = payer(s, now_ns);

	if (now_ns > s->fair.charged_to_ns)
		s->fair.charged_to_ns = now_ns;
	for (i = 0; i < s->slot_end; i++)
		cgpu_second_move(&s->slot[i].fair.held, CGPU_SCHED_FAIR_BINS, now_ns);
	/* a gap longer than a second counts as one */
	passed = cgpu_min(passed, CGPU_SCHED_SECOND_NS);
	cgpu_budgets_fill(s, passed, now_ns);
	/* what slices gave is held: it is no claim afterwards */
	for (i = 0; s->plan.mode != CGPU_SCHED_DEMAND && i < s->slot_end; i++)
		if (cgpu_is_awake(s, i))
			note_held(s, i, (int64_t)cgpu_part(passed, share(s, i)));
	if (s->plan.mode != CGPU_SCHED_DEMAND || curr >= CGPU_SCHED_SLOTS || !passed ||
	    !cgpu_is_awake(s, curr))
		return;
	s->slot[curr].fair.held_ns += passed;
	for_each_competing(s, i) {
		/* also for one that rests: the log charges what it runs until a look sees it */
		part = cgpu_part(passed, s->slot[i].fair.full_ppm);
		s->slot[i].fair.lag_ns += (int64_t)part;
		given += part;
	}
	take(s, curr, (int64_t)passed);
	cgpu_budget_use(s, curr, (int64_t)passed);
	/* the remainder of rounding */
	s->slot[curr].fair.lag_ns += (int64_t)passed - (int64_t)given;
	if (now_ns - s->fair.settled_ns > CGPU_SWITCH_LOG_STILL_NS)
		pass_on(s, now_ns);
}

void cgpu_sched_charge(struct cgpu_sched *s, uint64_t now_ns)
{
	cgpu_entities_charge(s, now_ns);
	charge(s, now_ns);
}

/* The slot had a claim within the last second, and may be ahead by what it held for it. */
static bool had_claim(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	const struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;

	return f->slept_ns && now_ns - f->slept_ns < CGPU_SCHED_SECOND_NS;
}

/*
 * A container that takes more than its share beside others gets its share by windows for a while.
 * One that had a claim runs beside them until it has held its share of the second.
 */
static void judge_dividers(struct cgpu_sched *s, uint64_t now_ns)
{
	int64_t window_ns = granularity(s);
	uint32_t i, j;

	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_fair_slot *f = &s->slot[i].fair;
		bool judged = cgpu_is_awake(s, i) && cgpu_is_kept(s, i) && !is_below(s, i);
		bool claimed = had_claim(s, i, now_ns), more = false;

		for (j = 0; judged && !more && j < s->slot_end; j++)
			more = is_due(s, j) && ahead(s, j, i) > window_ns;
		if (more && !claimed && cgpu_divides(s, i, now_ns))
			f->overdrew_ns = now_ns;
		f->is_overdrawn = more && claimed && !unheld_ns(s, i, window_ns);
	}
}

/* A ceiling limits what was run, by the log; the slot does not pay for hand-overs. */
static void settle_budget(struct cgpu_sched *s, uint32_t slot)
{
	struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;
	int64_t more = (int64_t)cgpu_min(f->ran_ns, CGPU_SCHED_SECOND_NS) -
		       (int64_t)cgpu_min(f->held_ns, CGPU_SCHED_SECOND_NS);

	cgpu_budget_use(s, slot, more);
	/* its gate shut when it fell asleep, which unloads an idle context: this was work */
	if (f->asleep && more > 0 && s->plan.mode == CGPU_SCHED_DEMAND &&
	    cgpu_budget_is_capped(s, slot))
		f->asleep_ran_ns += (uint64_t)more;
}

uint64_t cgpu_fair_round_ns(const struct cgpu_sched *s)
{
	uint64_t ns = 0;
	uint32_t i;

	for_each_competing(s, i)
		if (!(s->gates.shut_mask & SLOT_BIT(i)))
			ns += 1000ULL * s->slot[i].slice_us * s->slot[i].groups +
			      CGPU_SCHED_SWITCH_NS;
	return ns;
}

bool cgpu_fair_carries(const struct cgpu_sched *s)
{
	uint64_t ns = 0;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++)
		/* all may seem to sleep, while they keep the card busy by turns */
		if ((cgpu_is_awake(s, i) || s->slot[i].fair.resumed_ns) &&
		    !(s->gates.shut_mask & SLOT_BIT(i)))
			ns += s->slot[i].groups *
			      (1000ULL * s->slot[i].slice_us + CGPU_SCHED_SWITCH_NS);
	return s->plan.mode != CGPU_SCHED_DEMAND || ns <= CGPU_SCHED_FAIR_CARRIES_NS;
}

/*
 * No container has the card, because all seem to sleep. If the runlist loads two or more of them
 * again within about a round, those had work.
 */
static void judge_turns(struct cgpu_sched *s, bool all_sleep, uint64_t now_ns)
{
	bool over = now_ns - s->fair.turns_from_ns >= cgpu_fair_round_ns(s);
	uint32_t i, returned = 0;

	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_fair_slot *f = &s->slot[i].fair;

		f->turns = all_sleep ? f->turns + f->loads : 0;
		f->resumed_ns = all_sleep && f->loads ? f->ran_ns : 0;
		returned += f->turns > 1;
	}
	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_fair_slot *f = &s->slot[i].fair;

		f->takes_turns = over && returned > 1 && f->turns > 1;
		f->turns = over ? 0 : f->turns;
	}
	if (over || !all_sleep)
		s->fair.turns_from_ns = now_ns;
}

/* What a slot had by the log: its run, and switches among its own processes. */
static uint64_t had_ns(const struct cgpu_sched_fair_slot *f)
{
	return f->ran_ns + f->switched_ns;
}

void cgpu_fair_settle(struct cgpu_sched *s, uint32_t loaded, uint64_t now_ns)
{
	uint64_t over = 0, under = 0, had = 0, shares = 0, left, given = 0, more, less;
	/* what was run under slices is not charged on demand */
	bool on_demand = s->plan.mode == CGPU_SCHED_DEMAND &&
			 s->fair.changed_ns <= s->fair.settled_ns;
	/* set if a container with work ran: it leaves the card only to others with work */
	bool contended = false;
	uint32_t i;

	charge(s, now_ns);
	/* also without a share: a resting container has none, and may run */
	for_each_competing(s, i) {
		const struct cgpu_sched_fair_slot *f = &s->slot[i].fair;

		contended |= !f->asleep && f->ran_ns;
		had += share(s, i) ? had_ns(f) : 0;
		shares += share(s, i);
		over += cgpu_beyond(had_ns(f), f->held_ns);
		under += cgpu_beyond(f->held_ns, had_ns(f));
	}
	/* time that was held but not run stays charged */
	left = over = on_demand ? cgpu_min(over, under) : 0;
	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_fair_slot *f = &s->slot[i].fair;

		if (on_demand && cgpu_competes(s, i) && under) {
			more = cgpu_min(cgpu_beyond(had_ns(f), f->held_ns), left);
			less = cgpu_beyond(f->held_ns, had_ns(f)) * over / under;
			left -= more;
			given += less;
			take(s, i, (int64_t)more - (int64_t)less);
			f->asleep_ran_ns += f->asleep && !cgpu_budget_is_capped(s, i) ? more : 0;
		}
		/* silent work: what it ran was part of its share of this second */
		if (on_demand && f->is_silent)
			note_held(s, i, (int64_t)uncharged_ns(s, f));
		if (s->plan.mode == CGPU_SCHED_SLICES && f->asleep && contended)
			f->asleep_ran_ns += f->ran_ns;
		if (cgpu_competes(s, i))
			settle_budget(s, i);
		if (s->plan.mode == CGPU_SCHED_SLICES && cgpu_competes(s, i)) {
			/* what it ran here while it seemed to sleep gives it no claim */
			if (f->asleep)
				note_held(s, i, (int64_t)f->ran_ns);
			cgpu_pause_judge_use(s, i,
					     (int64_t)(had * share(s, i) / cgpu_max(shares, 1)) -
						     (int64_t)had_ns(f),
					     now_ns);
		}
	}
	/* the remainder of rounding */
	if (s->fair.curr < CGPU_SCHED_SLOTS)
		s->slot[s->fair.curr].fair.lag_ns += (int64_t)(over - left) - (int64_t)given;
	s->fair.settled_from_ns = s->fair.settled_ns;
	s->fair.settled_ns = now_ns;
	s->fair.loaded = loaded;
	if (s->plan.mode == CGPU_SCHED_DEMAND) {
		pass_on(s, now_ns);
		judge_dividers(s, now_ns);
	}
	judge_turns(s, on_demand && s->fair.curr >= CGPU_SCHED_SLOTS, now_ns);
	for (i = 0; i < s->slot_end; i++) {
		if (s->slot[i].fair.loads && i != s->fair.curr &&
		    s->fair.settled_from_ns >= s->fair.began_ns)
			s->fair.went_on_ns = now_ns;
		if (s->slot[i].fair.asleep)
			s->slot[i].fair.asleep_loads += s->slot[i].fair.loads;
		s->slot[i].fair.ran_ns = s->slot[i].fair.switched_ns = s->slot[i].fair.held_ns = 0;
		s->slot[i].fair.loads = 0;
	}
}

void cgpu_sched_took(struct cgpu_sched *s, uint32_t slot, uint64_t ns, uint64_t now_ns)
{
	if (slot >= CGPU_SCHED_SLOTS || !s->slot[slot].present)
		return;
	cgpu_sched_charge(s, now_ns);
	note_held(s, slot, (int64_t)cgpu_min(ns, CGPU_SCHED_SECOND_NS));
}

void cgpu_sched_used(struct cgpu_sched *s, uint32_t slot, uint64_t used_ns)
{
	if (slot >= CGPU_SCHED_SLOTS)
		return;
	cgpu_entity_used(s, slot, used_ns);
	s->slot[slot].fair.ran_ns += used_ns;
}

void cgpu_fair_loaded(struct cgpu_sched *s, uint32_t slot, uint32_t loads, uint64_t switched_ns)
{
	s->slot[slot].fair.loads += loads;
	s->slot[slot].fair.loads_ever += loads;
	s->slot[slot].fair.switched_ns += switched_ns;
}

/* A container pays for what its wakeup costs the others. */
static void charge_wakeup(struct cgpu_sched *s, uint32_t slot)
{
	take(s, slot, divide(s, CGPU_SCHED_FAIR_WAKEUP_NS, slot));
}

/* No container has the card, or none had it for a while since this one fell asleep. */
static bool was_free(const struct cgpu_sched *s, const struct cgpu_sched_fair_slot *f)
{
	return s->fair.curr >= CGPU_SCHED_SLOTS || s->fair.taken_ns > f->since_ns;
}

/* The container fell asleep, or woke. */
static void turn(struct cgpu_sched *s, uint32_t slot, bool asleep, uint64_t now_ns)
{
	struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;
	bool on_demand = s->plan.mode == CGPU_SCHED_DEMAND;
	bool slept = (on_demand || s->plan.mode == CGPU_SCHED_WINDOWS) &&
		     cgpu_pause_is_over(f, now_ns);

	cgpu_sched_charge(s, now_ns);
	/* an old claim ends, too, if nobody was charged for what it ran meanwhile */
	f->claims = slept || (f->claims && !(f->is_found && was_free(s, f)));
	if (slept) {
		f->slept_ns = now_ns;
		cgpu_pause_found(s, now_ns);
	}
	f->asleep = asleep;
	f->fell_ran_ns = f->asleep_ran_ns;
	/* a context stays loaded while no other wants the card, and seems to run */
	f->is_probed = asleep && on_demand && cgpu_budget_is_capped(s, slot);
	f->since_ns = now_ns;
	f->woke = !asleep;
	f->worked |= !asleep;
	if (!asleep && on_demand && share(s, slot))
		charge_wakeup(s, slot);
	cgpu_plan_outdate(s, s->fair.resting_mask & SLOT_BIT(slot));
}

void cgpu_sched_demand(struct cgpu_sched *s, uint32_t slot, const struct cgpu_sched_seen *seen,
		       uint64_t now_ns)
{
	struct cgpu_sched_fair_slot *f;
	bool on_demand = s->plan.mode == CGPU_SCHED_DEMAND, was_kept;

	if (slot >= CGPU_SCHED_SLOTS || !s->slot[slot].present)
		return;
	f = &s->slot[slot].fair;
	was_kept = cgpu_is_kept(s, slot);
	f->kept_ppm = seen->kept_ppm;
	cgpu_plan_outdate(s, was_kept != cgpu_is_kept(s, slot));
	if (seen->moved)
		f->moved_ns = now_ns;
	cgpu_plan_outdate(s, f->is_silent != seen->is_silent && on_demand);
	f->is_silent = seen->is_silent;
	f->is_doubted = seen->is_doubted;
	f->is_found = seen->is_found;
	if (f->asleep != seen->asleep)
		turn(s, slot, seen->asleep, now_ns);
	f->empties = seen->empties;
	cgpu_pause_note_empty(s, slot, seen->asleep || seen->empties);
	if (on_demand)
		cgpu_plan_outdate(s, f->pauses != cgpu_pauses(s, slot, now_ns));
	if (s->plan.mode != CGPU_SCHED_FREE)
		cgpu_plan_outdate(s, cgpu_pause_wants_demand(s, now_ns) != on_demand);
}

/*
 * A trial of slices failed. Those that had work all the while get back what the trial kept from
 * them, from those that ran more than their slices.
 */
static void repay(struct cgpu_sched *s)
{
	int64_t ns, more = 0, less = 0, moved;
	uint32_t i, pass;

	for (pass = 0; pass < 2; pass++) {
		moved = more < less ? more : less;
		/* so that no second misses more than a point */
		if (moved > CGPU_SCHED_FAIR_REPAY_NS)
			moved = CGPU_SCHED_FAIR_REPAY_NS;
		for (i = 0; i < s->slot_end; i++) {
			struct cgpu_sched_fair_slot *f = &s->slot[i].fair;

			if (!cgpu_is_awake(s, i) || !f->use_from_ns || f->since_ns > f->use_from_ns)
				continue;
			ns = (int64_t)f->use_ran_ns - (int64_t)f->use_due_ns;
			if (!pass && ns > 0)
				more += ns;
			else if (!pass)
				less -= ns;
			else if (moved)
				f->lag_ns -= ns / 1000 * moved / (ns > 0 ? more : less) * 1000;
		}
	}
}

void cgpu_fair_plan(struct cgpu_sched *s, uint32_t was, uint64_t now_ns)
{
	int64_t sum = 0;
	uint32_t i;

	if (s->plan.mode == CGPU_SCHED_DEMAND && was == CGPU_SCHED_SLICES)
		repay(s);
	cgpu_pause_change_mode(s, was, now_ns);

	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_fair_slot *f = &s->slot[i].fair;

		if (!cgpu_competes(s, i) || !share(s, i)) {
			/* leaving saves up no lag, and forgives no debt */
			f->lag_ns = f->lag_ns < 0 && s->slot[i].present ? f->lag_ns : 0;
			continue;
		}
		f->pauses = cgpu_pauses(s, i, now_ns);
		sum += f->lag_ns;
		/* make a plan when a sleeper has slept long enough to be left out */
		if (f->asleep && now_ns < f->since_ns + CGPU_SCHED_FAIR_REST_NS)
			cgpu_plan_outdate_at(s, f->since_ns + CGPU_SCHED_FAIR_REST_NS);
	}
	(void)give(s, -sum);
	s->fair.charged_to_ns = now_ns;
	s->fair.planned_ns = now_ns;
	if (s->plan.mode != CGPU_SCHED_DEMAND)
		s->fair.curr = CGPU_SCHED_NONE;
}

/* When `second` will be ahead of the one that has the card by the granularity. */
static uint64_t until_ns(const struct cgpu_sched *s, uint32_t second, int64_t window_ns,
			 uint64_t now_ns)
{
	uint64_t shares = 0;
	int64_t left = window_ns - ahead(s, second, s->fair.next);
	uint32_t i;

	if (left < 0)
		return now_ns;
	/* a floor falls due as held time expires */
	if (is_outranked(s, second))
		return now_ns + PART_NS;
	if (left >= CLAIM_NS)
		return now_ns + unheld_ns(s, s->fair.next, window_ns);
	for (i = 0; i < s->slot_end; i++)
		shares += runnable(s, i) ? share(s, i) : 0;
	return now_ns + (uint64_t)left * share(s, s->fair.next) / cgpu_max(shares, 1);
}

/* The slot's gate may be open beside that of the slot that has the card: the runlist divides it. */
static bool runs_beside(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	uint32_t next = s->fair.next;

	if (cgpu_class(s, slot) != cgpu_class(s, next))
		return false;
	return cgpu_divides(s, next, now_ns) || s->slot[next].fair.is_doubted ||
	       (cgpu_divides(s, slot, now_ns) &&
		s->slot[slot].fair.claims >= s->slot[next].fair.claims);
}

/* The container never pauses; or it has no claim, and did not hold its share of the last second. */
static bool may_be_urgent(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	const struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;

	return !f->pauses || (!f->claims && !cgpu_divides(s, slot, now_ns) &&
			      f->held.sum_ns < part_of_bins(share(s, slot)));
}

/*
 * A container that never pauses could not run ahead of its ceiling while the others slept. So
 * another's claim keeps it waiting for a part of its length only. Return: when to ask again.
 */
static uint64_t update_urgency(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	struct cgpu_sched_fair_slot *f = &s->slot[slot].fair;
	int64_t most_ns = CGPU_SCHED_BUDGET_BEHIND_NS, behind_ns = s->entity[slot].lag_ns;

	if (f->lag_ns < behind_ns)
		behind_ns = f->lag_ns;
	if (f->is_urgent)
		most_ns -= CGPU_SCHED_BUDGET_URGENT_NS;
	f->is_urgent = runnable(s, slot) && may_be_urgent(s, slot, now_ns) &&
		       behind_ns > most_ns;
	if (f->is_urgent)
		return now_ns + CGPU_SCHED_BUDGET_URGENT_NS;
	if (!runnable(s, slot))
		return NEVER;
	if (f->pauses)
		return now_ns + PART_NS;
	return now_ns + (uint64_t)(CGPU_SCHED_BUDGET_BEHIND_NS + 1 - behind_ns);
}

/* Finds slots that must wait for budget, or have waited too long. Return: when to ask again. */
static uint64_t update_budgets(struct cgpu_sched *s, int64_t window_ns, uint64_t now_ns)
{
	uint64_t wake_ns = NEVER;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_fair_slot *f = &s->slot[i].fair;

		if (f->claims)
			f->claims = unheld_ns(s, i, window_ns) > beside_ns(s, i);
		if (!cgpu_competes(s, i) || !cgpu_budget_is_capped(s, i)) {
			f->is_urgent = f->is_probed = false;
			continue;
		}
		wake_ns = cgpu_min(wake_ns, cgpu_budget_update(s, i, !f->claims,
							       i == s->fair.curr, now_ns));
		wake_ns = cgpu_min(wake_ns, update_urgency(s, i, now_ns));
	}
	return wake_ns;
}

uint64_t cgpu_fair_pick(struct cgpu_sched *s, uint64_t now_ns, uint64_t *wake_ns)
{
	uint32_t i, best = CGPU_SCHED_NONE, second = CGPU_SCHED_NONE, curr = s->fair.curr;
	int64_t margin, window_ns = granularity(s);
	uint64_t mask = ~0ULL;

	charge(s, now_ns);
	*wake_ns = update_budgets(s, window_ns, now_ns);
	for (i = 0; i < s->slot_end; i++) {
		if (runnable(s, i) && (best == CGPU_SCHED_NONE || ahead(s, i, best) > 0))
			best = i;
	}
	s->fair.next = best;
	if (curr < CGPU_SCHED_SLOTS && runnable(s, curr) && curr != best) {
		/* a wakeup preempts one that never pauses; one that pauses keeps its window */
		margin = s->slot[best].fair.woke && !s->slot[curr].fair.pauses ? 0 : window_ns;
		if (ahead(s, best, curr) <= margin)
			s->fair.next = curr;
	}
	for (i = 0; i < s->slot_end; i++) {
		if (!s->slot[i].member.weight)
			mask &= ~SLOT_BIT(i);
		if (!cgpu_competes(s, i) || i == s->fair.next)
			continue;
		s->slot[i].fair.woke = false;
		if (cgpu_budget_is_spent(s, i) || s->slot[i].fair.is_probed) {
			mask &= ~SLOT_BIT(i);
		} else if (best == CGPU_SCHED_NONE) {
			continue;
		} else if (!s->slot[i].fair.full_ppm) {
			/* a container without a share gets only what the others do not want */
			mask &= ~SLOT_BIT(i);
		} else if (cgpu_is_awake(s, i)) {
			if ((is_ineligible(s, i, window_ns) &&
			     !(had_claim(s, i, now_ns) && cgpu_divides(s, i, now_ns))) ||
			    !runs_beside(s, i, now_ns))
				mask &= ~SLOT_BIT(i);
			if (second == CGPU_SCHED_NONE || ahead(s, i, second) > 0)
				second = i;
		} else if (is_outranked(s, i) ||
			   (share(s, i) && !unheld_ns(s, i, window_ns) &&
			    is_ineligible(s, i, window_ns) &&
			    cgpu_class(s, i) <= cgpu_class(s, s->fair.next))) {
			/* until a look sees it awake, it would run in others' time */
			mask &= ~SLOT_BIT(i);
		}
	}
	if (second != CGPU_SCHED_NONE)
		*wake_ns = cgpu_min(*wake_ns, until_ns(s, second, window_ns, now_ns));
	return mask;
}

void cgpu_fair_begin(struct cgpu_sched *s, uint64_t now_ns)
{
	uint32_t i;

	cgpu_entities_grant(s, now_ns);
	charge(s, now_ns);
	for (i = 0; i < s->slot_end; i++)
		if (s->gates.shut_mask & SLOT_BIT(i))
			s->slot[i].fair.is_probed = false;
	if (s->fair.next == s->fair.curr)
		return;
	if (s->fair.curr >= CGPU_SCHED_SLOTS)
		s->fair.taken_ns = now_ns;
	s->fair.curr = s->fair.next;
	s->fair.began_ns = now_ns;
	if (s->fair.curr < CGPU_SCHED_SLOTS) {
		s->slot[s->fair.curr].fair.woke = false;
		cgpu_entity_switched(s, s->fair.curr);
	}
}
