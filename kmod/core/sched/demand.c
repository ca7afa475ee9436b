// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Whether a container has work is estimated from samples of its channels' submission
 * indices. One sample says little: equal indices may be the gap between two submissions
 * or the beginning of a pause. So a container counts as asleep only after its patience,
 * the average of its gaps (exponentially weighted) and a quarter, within bounds; and
 * only those whose gaps are mostly short are waited for, as a hand-over costs less than
 * waiting does for the rest.
 *
 * Samples cost processor time: the pace is bounded by their measured cost, slow while
 * nobody's answer would move a gate, and of each container the channels in use are read
 * first, the others round robin.
 *
 * The indices are the tenant's to write. What a container runs in its sleep by the log
 * of context switches fills a leaky bucket; when that is full it works, whatever the
 * indices say.
 */
#include "core/sched/demand.h"
#include "core/sched/account.h"
#include "core/sched/budget.h"
#include "core/sched/fair.h"
#include "core/sched/pause.h"

void cgpu_demand_init(struct cgpu_demand *demand)
{
	memset(demand, 0, sizeof(*demand));
}

void cgpu_demand_forget(struct cgpu_demand *demand, uint32_t slot)
{
	if (slot < CGPU_SCHED_SLOTS)
		memset(&demand->slot[slot], 0, sizeof(demand->slot[slot]));
}

/* Its next submission usually comes before the card could be handed on and back. */
static bool waits_for_results(const struct cgpu_demand_slot *d)
{
	return d->shorts >= CGPU_DEMAND_SHORT;
}

/* Looks until each channel that moves has been read. */
static uint32_t looks_for_all(const struct cgpu_demand_slot *d)
{
	return 1 + (d->hots - (d->hots > 0)) / CGPU_DEMAND_READS;
}

/*
 * A submission is seen so much later than where one look reads all that move. Bounded: how many
 * channels move is the tenant's affair.
 */
static uint64_t late_ns(const struct cgpu_demand *demand, const struct cgpu_demand_slot *d)
{
	return cgpu_min((looks_for_all(d) - 1) * demand->pace_ns, CGPU_DEMAND_SILENT_MAX_NS);
}

uint64_t cgpu_demand_patience_ns(const struct cgpu_demand *demand, uint32_t slot)
{
	const struct cgpu_demand_slot *d = &demand->slot[slot];
	uint64_t ns = 0;

	if (waits_for_results(d) && !d->gap_ns)
		ns = CGPU_DEMAND_PATIENCE_NS;
	else if (waits_for_results(d))
		ns = cgpu_max(cgpu_min(d->gap_ns * 5 / 4, CGPU_DEMAND_PATIENCE_MAX_NS),
			      CGPU_DEMAND_LOOK_NS);
	else if (d->moves >= CGPU_DEMAND_MOVES)
		ns = CGPU_DEMAND_PATIENCE_MAX_NS;
	if (ns)
		ns += late_ns(demand, d);
	ns = cgpu_max(ns, cgpu_min(d->piece.ns * 5 / 4, CGPU_DEMAND_SILENT_MAX_NS));
	return cgpu_max(ns, d->silent_ns);
}

bool cgpu_demand_pauses(const struct cgpu_demand *demand, uint32_t slot, uint64_t now_ns)
{
	const struct cgpu_demand_slot *d = &demand->slot[slot];

	return d->empty_ns && now_ns - d->empty_ns < CGPU_SCHED_FAIR_FULL_NS;
}

/* ---- when, and at whom ---- */

/* Somebody's pause is worth knowing of: there are others whom it concerns. */
static bool matters(const struct cgpu_sched *s)
{
	uint32_t i, count = 0;

	if (s->suspended || s->config.policy == CGPU_POLICY_NATIVE ||
	    !cgpu_policy_conserves(s->config.policy))
		return false;
	for_each_competing(s, i)
		count++;
	return count > 1 || (count && cgpu_budget_is_used(s));
}

/* It has work, and nothing moves behind a shut gate. */
static bool is_held(const struct cgpu_demand *demand, const struct cgpu_sched *s, uint32_t slot)
{
	return (s->gates.shut_mask & SLOT_BIT(slot)) &&
	       demand->slot[slot].state != CGPU_DEMAND_SLEEPS;
}

/*
 * Two or more who seem to sleep submitted a moment ago and nobody has the card: they may take
 * turns at it by the runlist, which nobody is charged for. Looks follow one another then, until
 * the gaps between their submissions are known to be short or are too long to be waited for.
 */
static bool take_turns(const struct cgpu_demand *demand, const struct cgpu_sched *s,
		       uint64_t now_ns)
{
	uint32_t i, count = 0;

	if (s->plan.mode != CGPU_SCHED_DEMAND || s->fair.curr < CGPU_SCHED_SLOTS)
		return false;
	for_each_competing(s, i)
		count += demand->slot[i].state == CGPU_DEMAND_SLEEPS &&
			 now_ns - demand->slot[i].moved_ns <= CGPU_DEMAND_GAP_MAX_NS;
	return count > 1;
}

/* Something was found of one that sleeps, which the next looks are to confirm. */
static bool stirs(const struct cgpu_demand_slot *d, bool taking_turns, uint64_t now_ns)
{
	return d->state == CGPU_DEMAND_SLEEPS &&
	       (d->waits || d->moves || taking_turns || now_ns < d->stirs_to_ns);
}

/* Another has work, and, if @open, its gate is open. */
static bool others_work(const struct cgpu_demand *demand, const struct cgpu_sched *s,
			uint32_t slot, bool open)
{
	uint32_t i;

	for_each_competing(s, i)
		if (i != slot &&
		    demand->slot[i].state != CGPU_DEMAND_SLEEPS &&
		    !(open && (s->gates.shut_mask & SLOT_BIT(i))))
			return true;
	return false;
}

/* It works for long without a submission, as was seen. */
static bool is_silent(const struct cgpu_demand_slot *d)
{
	return d->silent_ns >= CGPU_DEMAND_SILENT_MAX_NS;
}

/*
 * It sleeps by its channels, as it does at work that lasts, and nobody displaced its context:
 * done or not, it seems to run. It is not to be in the way of who wakes until that is known.
 */
static bool lingers(const struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot)
{
	return d->state == CGPU_DEMAND_SLEEPS && is_silent(d) && s->fair.loaded == slot &&
	       s->fair.curr >= CGPU_SCHED_SLOTS && s->plan.mode == CGPU_SCHED_DEMAND;
}

/*
 * The longer one has slept the rarer it wakes, and meanwhile the runlist's slices carry it
 * until it is seen. What one with a ceiling holds beyond its work is charged to its budget,
 * and those of a lower class are to be interrupted sooner than by the runlist.
 */
static uint64_t back_off(const struct cgpu_demand *demand, const struct cgpu_sched *s,
			 uint32_t slot, bool classes, bool taking_turns, uint64_t now_ns)
{
	const struct cgpu_demand_slot *d = &demand->slot[slot];
	uint64_t since_ns = s->slot[slot].fair.since_ns;

	if (classes || !cgpu_fair_carries(s))
		return cgpu_pause_rests(s, slot, now_ns) && !d->waits && !d->moves ?
			       CGPU_DEMAND_RESTING_NS : 0;
	if (d->state != CGPU_DEMAND_SLEEPS || stirs(d, taking_turns, now_ns) ||
	    (lingers(d, s, slot) && others_work(demand, s, slot, false)) ||
	    !s->slot[slot].fair.asleep || (s->gates.shut_mask & SLOT_BIT(slot)) ||
	    (cgpu_budget_is_used(s) && !cgpu_pause_rests(s, slot, now_ns)))
		return 0;
	/* as of its last look: else a look that is due would be put off by the wait for it */
	return cgpu_min(cgpu_beyond(d->looked_ns, since_ns) / CGPU_DEMAND_BACK_OFF,
			CGPU_DEMAND_BACK_OFF_MAX_NS);
}

/*
 * Slices divide the card among the same few, and for a while no look found one of them without
 * something queued: it costs little if one that begins to pause now is found a look later.
 */
static bool is_steady(struct cgpu_demand *demand, uint64_t mask, uint64_t now_ns)
{
	if (!mask || mask != demand->steady_mask) {
		demand->steady_mask = mask;
		demand->steady_ns = now_ns;
	}
	return mask && now_ns - demand->steady_ns >= CGPU_SCHED_FAIR_FULL_NS;
}

uint64_t cgpu_demand_due(struct cgpu_demand *demand, const struct cgpu_sched *s,
			 uint64_t now_ns, uint64_t *mask)
{
	uint64_t due_ns = UINT64_MAX, at_ns, pace_ns, awake = 0, pausing = 0, dozing = 0;
	uint64_t quiet_ns, early_ns;
	bool rest, sliced, classes, stirring = false, taking_turns = take_turns(demand, s, now_ns);
	uint32_t i;

	*mask = 0;
	if (!matters(s))
		return UINT64_MAX;
	for_each_competing(s, i) {
		if (demand->slot[i].state != CGPU_DEMAND_SLEEPS)
			awake |= SLOT_BIT(i);
		if (demand->slot[i].state == CGPU_DEMAND_SLEEPS ||
		    cgpu_demand_pauses(demand, i, now_ns))
			pausing |= SLOT_BIT(i);
		/* what it holds beyond its work is charged to its budget */
		if (cgpu_budget_is_used(s) && cgpu_budget_is_capped(s, i) &&
		    !cgpu_pause_rests(s, i, now_ns))
			dozing |= SLOT_BIT(i);
		stirring |= stirs(&demand->slot[i], taking_turns, now_ns);
	}
	classes = cgpu_has_classes(s);
	/* there is nobody whom it would matter to that one begins to sleep */
	quiet_ns = CGPU_DEMAND_GAP_MAX_NS;
	if (classes)
		quiet_ns = cgpu_pause_is_quiet(s, now_ns) ? CGPU_DEMAND_REST_NS : quiet_ns;
	else if (!(awake & (awake - 1)) && !stirring)
		quiet_ns = CGPU_DEMAND_BACK_OFF_MAX_NS;
	/* nobody to take the card from, or nobody to give it to, or the log tells who pauses */
	sliced = s->plan.mode == CGPU_SCHED_SLICES && cgpu_pause_is_logged(s, now_ns);
	rest = !pausing || !(awake | dozing | stirring) ||
	       (pausing == awake && !(awake & (awake - 1)) && !dozing) || sliced;
	pace_ns = demand->cost_ns * (rest ? CGPU_DEMAND_COST_REST : CGPU_DEMAND_COST);
	pace_ns = cgpu_max(pace_ns, rest ? CGPU_DEMAND_REST_NS : CGPU_DEMAND_LOOK_NS);
	if (is_steady(demand, sliced && !pausing ? awake : 0, now_ns))
		pace_ns = cgpu_max(pace_ns, CGPU_DEMAND_STEADY_NS);
	demand->pace_ns = pace_ns;
	for_each_competing(s, i) {
		if (is_held(demand, s, i))
			continue;
		at_ns = demand->look_ns + pace_ns;
		at_ns = cgpu_max(at_ns, demand->slot[i].looked_ns +
					back_off(demand, s, i, classes, taking_turns, now_ns));
		if (!rest && !(pausing & SLOT_BIT(i)))
			at_ns = cgpu_max(at_ns, demand->slot[i].looked_ns + quiet_ns);
		demand->slot[i].due_ns = at_ns;
		due_ns = cgpu_min(due_ns, at_ns);
	}
	/* whoever would be due a moment later is looked at too; where all rest, a longer one */
	early_ns = cgpu_pause_is_quiet(s, now_ns) && !cgpu_budget_is_used(s) ?
			   cgpu_max(pace_ns, CGPU_DEMAND_BACK_OFF_MAX_NS) :
			   pace_ns;
	for (i = 0; i < s->slot_end && due_ns != UINT64_MAX; i++)
		if (cgpu_competes(s, i) && !is_held(demand, s, i) &&
		    demand->slot[i].due_ns <= cgpu_max(due_ns, now_ns) + early_ns / 4)
			*mask |= SLOT_BIT(i);
	return due_ns;
}

/* ---- a look ---- */

/* Of more that move than a look reads, the next ones are read in the next look. */
static bool is_in_turn(const struct cgpu_demand_slot *d, uint32_t hot)
{
	return d->hots <= CGPU_DEMAND_READS ?
		       hot < CGPU_DEMAND_READS :
		       (hot + d->hots - d->hot_from) % d->hots < CGPU_DEMAND_READS;
}

/* A look that found work before its last channel has not counted all. */
static void count_hot(struct cgpu_demand_slot *d)
{
	d->hots = d->moved && d->queued ? (uint32_t)cgpu_max(d->hots, d->hot) : d->hot;
	d->hot_from = d->hots > CGPU_DEMAND_READS ? (d->hot_from + CGPU_DEMAND_READS) % d->hots :
						    0;
}

bool cgpu_demand_wants(struct cgpu_demand *demand, uint32_t slot,
		       const struct cgpu_demand_channel *channel)
{
	struct cgpu_demand_slot *d = &demand->slot[slot % CGPU_SCHED_SLOTS];
	uint32_t at = d->at++;
	bool in_turn = channel->heat && is_in_turn(d, d->hot++);

	return in_turn || !channel->known || d->searches || (at == d->cursor && !d->skips);
}

bool cgpu_demand_sample(struct cgpu_demand *demand, uint32_t slot,
			struct cgpu_demand_channel *channel, uint32_t get, uint32_t put)
{
	struct cgpu_demand_slot *d = &demand->slot[slot % CGPU_SCHED_SLOTS];

	if (channel->known && channel->put != put) {
		d->moved = true;
		/* how long the ring is, is not known: of one that begins anew, the beginning */
		d->submits += put > channel->put ? put - channel->put : put;
	}
	d->queued |= get != put;
	if (get != put || (channel->known && channel->put != put))
		/* one that moved once, when its context was made, is not in use for that */
		channel->heat = (uint8_t)cgpu_min(2 * channel->heat + CGPU_DEMAND_HEAT_ONCE,
						  CGPU_DEMAND_HEAT);
	else if (d->moves || d->looked_ns - d->moved_ns < late_ns(demand, d))
		/* of many each is read so much rarer, and those that move among them */
		channel->heat -= (uint8_t)cgpu_min(channel->heat, looks_for_all(d));
	channel->known = true;
	channel->get = get;
	channel->put = put;
	return d->moved && d->queued;
}

/* A submission came so long after the one before: is it worth waiting for the next? */
static void learn_gap(struct cgpu_demand_slot *d, uint64_t gap_ns, uint64_t pace_ns)
{
	bool is_short = gap_ns <= CGPU_DEMAND_GAP_MAX_NS + pace_ns - CGPU_DEMAND_LOOK_NS;

	if (is_short)
		d->gap_ns = d->gap_ns ? (d->gap_ns * 7 + gap_ns) / 8 : gap_ns;
	/* of those that come with every look nothing is to be waited for */
	if (gap_ns > pace_ns * 5 / 4)
		d->shorts = (d->shorts * 7 + (is_short ? 256 : 0)) / 8;
}

/*
 * All sleep, by GP_PUT. It was loaded without a submission: it had work left. Return: what it
 * ran, by the log; @turns: it was loaded again after another who was, too: both have work.
 */
static uint64_t resumed_ns(struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot,
			   bool *turns)
{
	*turns = false;
	if (d->state != CGPU_DEMAND_SLEEPS || d->told_ns == s->fair.settled_ns)
		return 0;
	*turns = s->slot[slot].fair.takes_turns;
	if (!*turns && (d->moved || d->queued || d->moved_ns >= s->fair.settled_from_ns))
		return 0;
	d->told_ns = s->fair.settled_ns;
	return s->slot[slot].fair.resumed_ns;
}

/* What one may run in its sleep for good: of many who take turns each has little. */
static uint32_t leak_ppm(const struct cgpu_sched *s, uint32_t slot)
{
	uint32_t ppm = s->slot[slot].fair.full_ppm / CGPU_DEMAND_BUSY_SHARE;

	return (uint32_t)cgpu_min(ppm, CGPU_PPM / CGPU_DEMAND_BUSY_LEAK);
}

/* The state of one changed: a sleep begins, or ends. */
static void note_nap(struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot,
		     uint64_t now_ns)
{
	if (d->state == CGPU_DEMAND_SLEEPS) {
		d->nap = (struct cgpu_demand_nap){
			.from_ns = now_ns,
			.told_ns = cgpu_min(s->fair.settled_ns, now_ns),
			.used_ns = s->slot[slot].stat.used_ns,
			.loads = s->slot[slot].fair.loads_ever,
		};
	} else if (now_ns - d->nap.from_ns < CGPU_SCHED_SECOND_NS && !is_silent(d) &&
		   !cgpu_fair_carries(s)) {
		d->nap.to_ns = now_ns;
	}
}

/*
 * Where a round of the runlist is long, who has work runs little in its sleep, too, and its next
 * submission comes with that. So once the log tells of all of the sleep, what was run in it is
 * compared with the slices for which it was loaded. Before and after it had the card.
 */
static bool ran_its_slices(const struct cgpu_demand_slot *d, const struct cgpu_sched *s,
			   uint32_t slot)
{
	const struct cgpu_demand_nap *nap = &d->nap;
	uint64_t turn_ns = s->fair.curr == slot ? s->fair.began_ns : s->fair.settled_ns;
	uint64_t ran_ns = s->slot[slot].stat.used_ns - nap->used_ns;
	uint64_t own_ns = nap->from_ns - nap->told_ns;
	uint64_t slices_ns = 1000ULL * s->slot[slot].slice_us *
			     (s->slot[slot].fair.loads_ever - nap->loads);

	turn_ns = cgpu_max(turn_ns, nap->to_ns);
	own_ns += cgpu_beyond(s->fair.settled_ns, turn_ns);
	own_ns = cgpu_beyond(own_ns, CGPU_SCHED_HANDOVER_NS);
	ran_ns = cgpu_beyond(ran_ns, own_ns);
	/* but for what it ran until a look saw it wake */
	return ran_ns > CGPU_SCHED_FAIR_WAKEUP_NS &&
	       2 * ran_ns - CGPU_SCHED_FAIR_WAKEUP_NS >= slices_ns;
}

/* Whoever really slept need not be waited for as long next time. Return: it did not. */
static bool judge_sleep(struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot)
{
	bool slept = d->state == CGPU_DEMAND_SLEEPS && d->moved && cgpu_pause_slept(s, slot) &&
		     (is_silent(d) || cgpu_fair_carries(s)), works = false;

	if (d->nap.to_ns && s->fair.settled_ns > d->nap.to_ns) {
		works = ran_its_slices(d, s, slot);
		slept = !works;
		d->nap.to_ns = 0;
	}
	if (slept)
		d->silent_ns = d->silent_ns * 3 / 4;
	return works;
}

/*
 * One that sleeps by GP_PUT and runs beside others who have work is at something long:
 * the log of context switches tells. Return: it was found so now.
 */
static bool learn_silence(struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot,
			  uint64_t now_ns)
{
	uint64_t ran_ns = s->slot[slot].fair.asleep_ran_ns - d->asleep_ran_ns;
	uint64_t leaked_ns = cgpu_part(cgpu_beyond(now_ns, d->looked_ns), leak_ppm(s, slot));
	uint64_t again_ns;
	bool works, turns;

	again_ns = resumed_ns(d, s, slot, &turns);
	d->busy_ns = d->state == CGPU_DEMAND_SLEEPS ? d->busy_ns + ran_ns + again_ns : 0;
	/* what it submitted a moment ago is no work that was silent */
	if (d->moved)
		d->busy_ns /= 2;
	works = turns || d->busy_ns >= CGPU_DEMAND_BUSY_NS;
	d->busy_ns = cgpu_beyond(d->busy_ns, leaked_ns);
	d->asleep_ran_ns += ran_ns;
	works |= judge_sleep(d, s, slot);
	if (works)
		d->silent_ns = cgpu_min(cgpu_max(2 * d->silent_ns, CGPU_DEMAND_BUSY_NS),
					CGPU_DEMAND_SILENT_MAX_NS);
	return works;
}

/*
 * In long rounds one that is not waited for to the end of its work has the rest of it a round
 * later. A context that is done stays loaded while others' gates are shut, and seems to run; but
 * who was loaded again in its sleep without a submission had work all the while since its last.
 */
static void learn_piece(struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot)
{
	const struct cgpu_sched_slot *p = &s->slot[slot];
	uint32_t loads = p->fair.asleep_loads - d->piece.loads;

	d->piece.loads += loads;
	if (d->moved) {
		d->piece.from_ns = p->stat.used_ns;
		if (d->state == CGPU_DEMAND_SLEEPS && cgpu_pause_slept(s, slot))
			d->piece.ns -= d->piece.ns / CGPU_SCHED_SLOW;
	} else if (loads && d->state == CGPU_DEMAND_SLEEPS && !d->queued &&
		   s->fair.settled_from_ns >= p->fair.since_ns &&
		   s->fair.settled_from_ns > d->moved_ns && !cgpu_fair_carries(s)) {
		d->piece.ns = cgpu_max(d->piece.ns, p->stat.used_ns - d->piece.from_ns);
	}
}

static bool has_rate(struct cgpu_demand_rate *rate, uint64_t ns, uint32_t submits)
{
	uint64_t per_second;

	rate->ns += ns;
	rate->submits += submits;
	if (rate->ns < CGPU_DEMAND_RATE_NS)
		return false;
	per_second = rate->submits * 1000000000 / rate->ns;
	rate->per_second = rate->per_second ? (rate->per_second * 7 + per_second) / 8 : per_second;
	rate->ns = rate->submits = 0;
	return true;
}

static void forget_rates(struct cgpu_demand_slot *d)
{
	memset(&d->alone, 0, sizeof(d->alone));
	memset(&d->beside, 0, sizeof(d->beside));
	d->compared_ns = 0;
	d->kept_ppm = 0;
}

/*
 * Alone, the card takes what a program submits at once if that is what holds it up, and is
 * behind if the program does not wait for it: on an H100 something was queued in 6 to 24 % of
 * the looks at PyTorch without a graph, and in all at ResNet-50, three steps ahead.
 */
static bool is_ahead(struct cgpu_demand_slot *d)
{
	uint32_t full = d->queued ? 256 : 0;

	d->fulls = d->is_tried ? (d->fulls * 15 + full) / 16 : full;
	d->is_tried = true;
	return d->fulls >= 128;
}

/*
 * One that submits many small pieces of work may be as fast beside another as alone: then
 * its processor holds it up, and the card is not to be held for it. What it submits in
 * either case tells. Until the second is known it is let run beside others.
 */
static void learn_rates(const struct cgpu_demand *demand, struct cgpu_demand_slot *d,
			const struct cgpu_sched *s, uint32_t slot, bool beside, uint64_t now_ns)
{
	uint64_t ns = now_ns - d->looked_ns;
	bool steady = d->was_beside == beside && d->looked_ns > s->slot[slot].open_since_ns;

	d->was_beside = beside;
	if (d->compared_ns && now_ns - d->compared_ns > CGPU_DEMAND_COMPARED_S * 1000000000ULL)
		forget_rates(d);
	d->quiet_ns = steady ? d->quiet_ns + ns : 0;
	if (!steady || !d->moved)
		return;
	ns = d->quiet_ns;
	d->quiet_ns = 0;
	/* it slept in between */
	if (ns > CGPU_DEMAND_SILENT_MAX_NS + late_ns(demand, d) +
			 (beside && !cgpu_fair_carries(s) ? cgpu_fair_round_ns(s) : 0))
		return;
	if (!beside) {
		if (is_ahead(d))
			forget_rates(d);
		else
			(void)has_rate(&d->alone, ns, d->submits);
	} else if (d->kept_ppm && s->plan.mode == CGPU_SCHED_DEMAND &&
		   has_rate(&d->beside, ns, d->submits)) {
		if (!d->compared_ns)
			d->compared_ns = now_ns;
	}
	/* nor if it did so for a while and now waits for the card */
	if (d->alone.per_second < CGPU_DEMAND_OFTEN)
		d->kept_ppm = 0;
	else if (d->compared_ns)
		d->kept_ppm = (uint32_t)cgpu_min(d->beside.per_second * CGPU_PPM /
						 d->alone.per_second, CGPU_PPM);
	else
		d->kept_ppm = CGPU_PPM;
}

/*
 * It sleeps by the channels that were read, and was loaded all the same. Where that was often,
 * looks follow one another until its gaps are known: rare looks make them seem long. And if none
 * of these channels moved, all are read next time; of one that hides what it submits not always.
 */
static bool is_missed(struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot,
		      uint64_t now_ns)
{
	uint32_t loads = s->slot[slot].fair.asleep_loads - d->asleep_loads;

	d->asleep_loads += loads;
	if (loads > 1 && loads * (uint64_t)CGPU_DEMAND_GAP_MAX_NS >=
				 s->fair.settled_ns - s->fair.settled_from_ns)
		d->stirs_to_ns = now_ns + CGPU_DEMAND_STIRS_NS;
	if (!loads || d->state != CGPU_DEMAND_SLEEPS || d->moved || d->queued ||
	    d->moved_ns >= s->fair.settled_from_ns ||
	    now_ns - d->searched_ns < CGPU_DEMAND_SEARCH_NS)
		return false;
	d->searched_ns = now_ns;
	return true;
}

/*
 * It has a ceiling, and no other wants the card: its context stays loaded when its work
 * is done, and seems to run. To be charged for its work alone it must be seen to sleep.
 */
static bool is_unwatched(const struct cgpu_sched *s, uint32_t slot)
{
	return cgpu_budget_is_capped(s, slot) && s->plan.mode == CGPU_SCHED_DEMAND &&
	       s->fair.curr >= CGPU_SCHED_SLOTS;
}

/* It submitted in its sleep, and the runlist is with others for long, as of several processes. */
static bool is_left_waiting(const struct cgpu_sched *s, const struct cgpu_demand_slot *d)
{
	return d->state == CGPU_DEMAND_SLEEPS && !cgpu_fair_carries(s);
}

/*
 * It is silent at times, and its last submission was long ago. It has its turns as one that
 * works, but others run beside it, until the log has told: who runs again after they could
 * has work, and who did not in a round of the runlist has none. Return: it may be at work.
 */
static bool doubt(const struct cgpu_demand *demand, struct cgpu_demand_slot *d,
		  const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	uint64_t open_ns = cgpu_max(d->doubt_ns, s->slot[slot].open_since_ns);
	uint64_t told_ns = s->fair.settled_ns, used_ns = s->slot[slot].stat.used_ns;

	if (d->state == CGPU_DEMAND_SLEEPS || !is_silent(d) || !cgpu_pause_is_logged(s, now_ns) ||
	    !others_work(demand, s, slot, false))
		return false;
	if (!d->doubt_ns) {
		d->doubt_ns = now_ns;
		d->told_ns = 0;
		d->round_ns = 0;
		return true;
	}
	/* it has its window alone, and seems to run: but had it work when that began? */
	if (s->plan.mode == CGPU_SCHED_WINDOWS)
		return s->slot[slot].idle_ns < d->doubt_ns;
	/* nothing tells of one whose gate is shut; it had work when that was */
	if (s->gates.shut_mask & SLOT_BIT(slot) ||
	    told_ns < open_ns + s->gates.open_ns + CGPU_SCHED_FAIR_LOADED_NS)
		return true;
	/* a gate may shut meanwhile, and what is left of the round is shorter */
	d->round_ns = cgpu_max(d->round_ns, cgpu_fair_round_ns(s));
	if (d->told_ns <= open_ns) {
		d->told_ns = told_ns;
		d->used_ns = used_ns;
	} else if (used_ns - d->used_ns > CGPU_SCHED_SWITCH_NS) {
		d->moved_ns = now_ns;
	} else if (told_ns - d->told_ns > d->round_ns) {
		return false;
	}
	return true;
}

/* Who is loaded, if anybody, does not seem to work: it would be unloaded for who does. */
static bool leaves_it_to(const struct cgpu_demand *demand, const struct cgpu_sched *s,
			 uint32_t loaded)
{
	const struct cgpu_demand_slot *other;

	if (loaded >= CGPU_SCHED_SLOTS)
		return true;
	other = &demand->slot[loaded];
	return other->state == CGPU_DEMAND_SLEEPS &&
	       other->moved_ns + CGPU_DEMAND_PATIENCE_MAX_NS <= s->fair.settled_ns;
}

/*
 * It has a turn, and by the log of context switches it had no work when that began; nor was
 * any found since. It may wait for another who seems to sleep and submitted a moment ago.
 */
static bool was_empty(const struct cgpu_demand *demand, const struct cgpu_sched *s, uint32_t slot)
{
	if (!cgpu_fair_was_empty(s, slot) || demand->slot[slot].moved_ns > s->fair.settled_ns)
		return false;
	/* within its slice nothing tells */
	return s->fair.loaded >= CGPU_SCHED_SLOTS ||
	       (s->fair.settled_ns >= s->fair.began_ns + CGPU_DEMAND_PATIENCE_NS &&
		leaves_it_to(demand, s, s->fair.loaded));
}

/*
 * It seems to work, whatever it writes to its channels, had the card for a round of the runlist
 * and more, and was not loaded: until it is, it has no work. Else the context of whoever ran last
 * would stay loaded, and be charged, in its turns.
 */
static bool feigns(const struct cgpu_demand *demand, struct cgpu_demand_slot *d,
		   const struct cgpu_sched *s, uint32_t slot)
{
	uint64_t used_ns = s->slot[slot].stat.used_ns;

	if (cgpu_fair_was_empty(s, slot) &&
	    s->fair.settled_ns >= s->fair.began_ns + cgpu_fair_round_ns(s) +
				  CGPU_DEMAND_PATIENCE_NS &&
	    leaves_it_to(demand, s, s->fair.loaded))
		d->feigned_ns = used_ns + 1;
	else if (d->feigned_ns != used_ns + 1)
		d->feigned_ns = 0;
	return d->feigned_ns;
}

/* Somebody has several processes: among those one at work has little, and seems to sleep. */
static bool are_several(const struct cgpu_sched *s)
{
	uint32_t i;

	for_each_competing(s, i)
		if (s->slot[i].groups > 1)
			return true;
	return false;
}

/* What its channels said in this look. */
static void conclude(struct cgpu_demand *demand, const struct cgpu_sched *s, uint32_t slot,
		     uint64_t now_ns)
{
	struct cgpu_demand_slot *d = &demand->slot[slot];
	bool slept = d->state == CGPU_DEMAND_SLEEPS;
	bool works = learn_silence(d, s, slot, now_ns);
	bool beside = others_work(demand, s, slot, true);
	bool counts = d->moved && (is_unwatched(s, slot) || is_left_waiting(s, d)), patient, empty,
	     doubted, feigned;

	learn_piece(d, s, slot);
	learn_rates(demand, d, s, slot, beside, now_ns);
	d->searches = (works && !d->moved) || is_missed(d, s, slot, now_ns);

	if (!d->at) {
		d->state = CGPU_DEMAND_UNKNOWN;
		d->empty_ns = d->doubt_ns = 0;
		d->moved_ns = now_ns;
		return;
	}
	if (!d->looked_ns) {
		d->shorts = CGPU_DEMAND_SHORT;
		d->state = CGPU_DEMAND_SLEEPS;
	}
	if (!d->queued)
		d->empty_ns = now_ns;
	d->waits = d->queued ? d->waits + 1 : 0;
	if (d->moved)
		d->moves++;
	else if (d->state == CGPU_DEMAND_SLEEPS || d->moves < CGPU_DEMAND_MOVES)
		d->moves = 0;
	/* queued before and after, or its gate shut, or mostly others ran: that is no gap */
	if (d->moved && d->waits < 2 && d->moved_ns &&
	    s->slot[slot].open_since_ns <= d->looked_ns &&
	    d->behind_ns <= d->moved_ns + (now_ns - d->moved_ns) / 2)
		learn_gap(d, now_ns - d->moved_ns, cgpu_max(demand->pace_ns, CGPU_DEMAND_LOOK_NS));
	works |= lingers(d, s, slot) && others_work(demand, s, slot, false);
	d->is_found = works && !d->moved && !d->queued && is_silent(d) &&
		      (s->fair.curr >= CGPU_SCHED_SLOTS || !are_several(s));
	if (d->moved || d->queued || works)
		d->moved_ns = now_ns;
	if (!works && !waits_for_results(d) && d->state == CGPU_DEMAND_SLEEPS && d->waits < 2 &&
	    d->moves < CGPU_DEMAND_MOVES && !counts)
		/* by the time that gates had moved it would have been done */
		return;
	/* nothing moves either while it waits for the runlist, all of its work fetched */
	if (!d->moved && d->state != CGPU_DEMAND_SLEEPS && beside && !d->doubt_ns &&
	    now_ns - d->moved_ns < 2 * s->plan.period_ns)
		d->behind_ns = now_ns;
	patient = counts || now_ns - d->moved_ns < cgpu_demand_patience_ns(demand, slot) ||
		  now_ns - d->behind_ns < CGPU_DEMAND_PATIENCE_NS;
	feigned = feigns(demand, d, s, slot);
	empty = feigned || (!d->moved && !d->queued && was_empty(demand, s, slot));
	if (empty)
		patient = false;
	doubted = !empty && !d->queued && !patient && doubt(demand, d, s, slot, now_ns);
	/* the log told: its patience begins anew */
	if (!doubted || d->moved_ns == now_ns)
		d->doubt_ns = 0;
	if (d->queued && !feigned)
		d->state = CGPU_DEMAND_QUEUED;
	else if (patient || doubted)
		d->state = CGPU_DEMAND_WORKS;
	else
		/* of one that pauses for long the others follow while its last work runs */
		d->state = CGPU_DEMAND_SLEEPS;
	if (d->state == CGPU_DEMAND_SLEEPS)
		d->moves = 0;
	if (slept != (d->state == CGPU_DEMAND_SLEEPS))
		note_nap(d, s, slot, now_ns);
}

/*
 * Behind a shut gate nothing was to be seen of it. Half of its silence counts on: were it to
 * begin anew, one whose turns are shorter than its patience would never sleep; were all to
 * count, one at a long piece of work would seem to sleep in its second turn.
 */
static void skip_shut(struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot)
{
	uint64_t open_ns = s->slot[slot].open_since_ns;
	uint64_t silent_ns = cgpu_beyond(d->looked_ns, d->moved_ns);

	if (d->state == CGPU_DEMAND_SLEEPS && cgpu_budget_is_used(s))
		return;
	if (d->state == CGPU_DEMAND_SLEEPS || s->plan.mode != CGPU_SCHED_DEMAND)
		silent_ns = 0;
	if (open_ns > d->looked_ns || !silent_ns)
		d->moved_ns = cgpu_max(d->moved_ns, cgpu_beyond(open_ns, silent_ns / 2));
}

void cgpu_demand_judge(struct cgpu_demand *demand, struct cgpu_sched *s, uint64_t mask,
		       uint64_t start_ns, uint64_t end_ns)
{
	uint64_t cost_ns = cgpu_beyond(end_ns, start_ns);
	struct cgpu_sched_seen seen;
	uint32_t i, n;

	demand->looks++;
	demand->cost_ns = demand->cost_ns ? (demand->cost_ns * 7 + cost_ns) / 8 : cost_ns;
	/* those that moved first: the others may have waited for them */
	for (n = 0; n < 2 * s->slot_end; n++) {
		struct cgpu_demand_slot *d = &demand->slot[i = n % s->slot_end];

		if (!(mask & SLOT_BIT(i)) || d->moved != (n < s->slot_end))
			continue;
		mask &= ~SLOT_BIT(i);
		skip_shut(d, s, i);
		conclude(demand, s, i, end_ns);
		seen = (struct cgpu_sched_seen){
			.asleep = d->state == CGPU_DEMAND_SLEEPS,
			.empties = cgpu_demand_pauses(demand, i, end_ns),
			.moved = d->moved,
			.is_silent = is_silent(d),
			.is_doubted = d->doubt_ns != 0,
			.is_found = d->is_found,
			.kept_ppm = d->kept_ppm,
		};
		cgpu_sched_demand(s, i, &seen, end_ns);
		d->looked_ns = end_ns;
		if (!d->skips)
			d->cursor = d->at ? (d->cursor + 1) % d->at : 0;
		d->skips = !d->hot || s->gates.shut_mask & SLOT_BIT(i) ? 0 :
			   (d->skips + 1) % CGPU_DEMAND_OTHERS;
		count_hot(d);
		d->at = d->hot = d->submits = 0;
		d->moved = d->queued = false;
	}
	demand->look_ns = end_ns;
}
