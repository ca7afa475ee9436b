// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Whether a container has work is estimated from samples of its channels' submission indices. One
 * sample says little: equal indices may be the gap between two submissions or the beginning of a
 * pause. So a container counts as asleep only after its patience. Patience is the weighted average
 * of its gaps and a quarter, within bounds. Only containers whose gaps are mostly short are waited
 * for: for the others a hand-over costs less than waiting.
 *
 * Samples cost processor time, so their measured cost bounds the pace. The pace is slow while no
 * answer would move a gate. Of each container, channels in use are read first, the others round
 * robin.
 *
 * The tenant can write the indices. So work that a container runs in its sleep, by the log of
 * context switches, fills a leaky bucket. A container whose bucket is full counts as working,
 * whatever the indices say.
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

/* The next submission usually comes before the card could be handed on and back. */
static bool waits_for_results(const struct cgpu_demand_slot *d)
{
	return d->shorts >= CGPU_DEMAND_SHORT;
}

/* The number of looks that read each moving channel once. */
static uint32_t looks_for_all(const struct cgpu_demand_slot *d)
{
	return 1 + (d->hots - (d->hots > 0)) / CGPU_DEMAND_READS;
}

/*
 * How much later a submission is seen than if one look read all moving channels. The delay is
 * bounded, because the tenant decides how many channels move.
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

/* A pause matters only if another container, or a budget, gains from it. */
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

/* The container has work, and its gate is shut, so its indices do not move. */
static bool is_held(const struct cgpu_demand *demand, const struct cgpu_sched *s, uint32_t slot)
{
	return (s->gates.shut_mask & SLOT_BIT(slot)) &&
	       demand->slot[slot].state != CGPU_DEMAND_SLEEPS;
}

/*
 * Two or more containers seem to sleep, submitted a moment ago, and none has the card. They may
 * take turns by the runlist, and nobody is charged for that. Looks then follow one another until
 * the gaps between submissions are known to be short, or are too long to wait for.
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

/* A look found a sign of work of a sleeper, which the next looks are to confirm. */
static bool stirs(const struct cgpu_demand_slot *d, bool taking_turns, uint64_t now_ns)
{
	return d->state == CGPU_DEMAND_SLEEPS &&
	       (d->waits || d->moves || taking_turns || now_ns < d->stirs_to_ns);
}

/* Another container has work and, if @open, an open gate. */
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

/* The container was seen to work for long without a submission. */
static bool is_silent(const struct cgpu_demand_slot *d)
{
	return d->silent_ns >= CGPU_DEMAND_SILENT_MAX_NS;
}

/*
 * A silent container sleeps by its channels, and no other context displaced its own: it may still
 * run. It must not delay a container that wakes until that is known.
 */
static bool lingers(const struct cgpu_demand_slot *d, const struct cgpu_sched *s, uint32_t slot)
{
	return d->state == CGPU_DEMAND_SLEEPS && is_silent(d) && s->fair.loaded == slot &&
	       s->fair.curr >= CGPU_SCHED_SLOTS && s->plan.mode == CGPU_SCHED_DEMAND;
}

/*
 * The longer a container has slept, the rarer it wakes, so looks at it become rarer. Until a look
 * sees it wake, the runlist's slices carry it. Budgets limit this: a capped container is charged
 * for what it holds beyond its work. Classes do too: lower classes must be interrupted sooner than
 * by the runlist.
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
	/* relative to its last look: otherwise waiting would postpone a look that is due */
	return cgpu_min(cgpu_beyond(d->looked_ns, since_ns) / CGPU_DEMAND_BACK_OFF,
			CGPU_DEMAND_BACK_OFF_MAX_NS);
}

/*
 * Slices divide the card among the same few, and no look of late found one with nothing queued. So
 * it costs little to find a pause a look later.
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
		/* a capped container is charged for what it holds beyond its work */
		if (cgpu_budget_is_used(s) && cgpu_budget_is_capped(s, i) &&
		    !cgpu_pause_rests(s, i, now_ns))
			dozing |= SLOT_BIT(i);
		stirring |= stirs(&demand->slot[i], taking_turns, now_ns);
	}
	classes = cgpu_has_classes(s);
	/* if one falls asleep, this concerns no other container */
	quiet_ns = CGPU_DEMAND_GAP_MAX_NS;
	if (classes)
		quiet_ns = cgpu_pause_is_quiet(s, now_ns) ? CGPU_DEMAND_REST_NS : quiet_ns;
	else if (!(awake & (awake - 1)) && !stirring)
		quiet_ns = CGPU_DEMAND_BACK_OFF_MAX_NS;
	/* no container to take the card from or give it to, or the log tells which one pauses */
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
	/* look also at containers that are due soon; the margin is longer while all others rest */
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

/* If more channels move than one look reads, the next look continues with the next ones. */
static bool is_in_turn(const struct cgpu_demand_slot *d, uint32_t hot)
{
	return d->hots <= CGPU_DEMAND_READS ?
		       hot < CGPU_DEMAND_READS :
		       (hot + d->hots - d->hot_from) % d->hots < CGPU_DEMAND_READS;
}

/* A look that found work before the last channel has not counted all moving channels. */
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
		/* the ring's length is unknown: after a wrap count from its beginning */
		d->submits += put > channel->put ? put - channel->put : put;
	}
	d->queued |= get != put;
	if (get != put || (channel->known && channel->put != put))
		/* a channel that moved once, when its context was made, is not yet in use */
		channel->heat = (uint8_t)cgpu_min(2 * channel->heat + CGPU_DEMAND_HEAT_ONCE,
						  CGPU_DEMAND_HEAT);
	else if (d->moves || d->looked_ns - d->moved_ns < late_ns(demand, d))
		/* of many channels each is read in fewer looks: cool in proportion */
		channel->heat -= (uint8_t)cgpu_min(channel->heat, looks_for_all(d));
	channel->known = true;
	channel->get = get;
	channel->put = put;
	return d->moved && d->queued;
}

/* Learns from the gap between two submissions whether the next one is worth waiting for. */
static void learn_gap(struct cgpu_demand_slot *d, uint64_t gap_ns, uint64_t pace_ns)
{
	bool is_short = gap_ns <= CGPU_DEMAND_GAP_MAX_NS + pace_ns - CGPU_DEMAND_LOOK_NS;

	if (is_short)
		d->gap_ns = d->gap_ns ? (d->gap_ns * 7 + gap_ns) / 8 : gap_ns;
	/* if submissions come with every look, there is no gap to wait for */
	if (gap_ns > pace_ns * 5 / 4)
		d->shorts = (d->shorts * 7 + (is_short ? 256 : 0)) / 8;
}

/*
 * All containers sleep, by GP_PUT. A container that was loaded without a submission had work left.
 * If @turns, it was loaded again after another was, too: both have work. Return: what it ran, by
 * the log.
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

/* A sleep begins or ends. */
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
 * In a long round of the runlist even a container with work runs little in its sleep. Its next
 * submission comes only with that run. So once the log covers the whole sleep, what was run in it
 * is compared with the slices it was loaded for. Before and after the sleep the container had the
 * card; that time is subtracted.
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
	/* less what it ran between waking and the look that saw it */
	return ran_ns > CGPU_SCHED_FAIR_WAKEUP_NS &&
	       2 * ran_ns - CGPU_SCHED_FAIR_WAKEUP_NS >= slices_ns;
}

/* A container that really slept is waited for less next time. Return: it did not sleep. */
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
 * A container that sleeps by GP_PUT, but runs while others work, is at a long piece of work: the
 * log of context switches shows it. Return: this was found now.
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
	/* work submitted a moment ago is not silent work */
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
 * In long rounds a container that is not waited for to the end of its work gets the rest a round
 * later. A context that is done stays loaded while others' gates are shut, and seems to run. But a
 * container that was loaded again in its sleep without a submission had work all that time.
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
 * While a container runs alone, the queue tells what limits it. If the processor is the limit, the
 * card takes submissions at once. If the program does not wait for the card, the card falls behind.
 * On an H100 PyTorch without a graph had something queued in 6 to 24 % of the looks. ResNet-50,
 * three steps ahead, had in all.
 */
static bool is_ahead(struct cgpu_demand_slot *d)
{
	uint32_t full = d->queued ? 256 : 0;

	d->fulls = d->is_tried ? (d->fulls * 15 + full) / 16 : full;
	d->is_tried = true;
	return d->fulls >= 128;
}

/*
 * A container that submits many small pieces of work may be as fast beside others as alone. Then
 * its processor limits it, and the card need not be held for it. Its rates of submission, alone and
 * beside others, show this. Until the second is known the container runs beside others.
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
	/* the container slept in between */
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
	/* if its rate alone has fallen, the container waits for the card by now */
	if (d->alone.per_second < CGPU_DEMAND_OFTEN)
		d->kept_ppm = 0;
	else if (d->compared_ns)
		d->kept_ppm = (uint32_t)cgpu_min(d->beside.per_second * CGPU_PPM /
						 d->alone.per_second, CGPU_PPM);
	else
		d->kept_ppm = CGPU_PPM;
}

/*
 * The container sleeps by the channels that were read, but was loaded. If that was often, looks
 * follow one another until its gaps are known: rare looks make gaps seem long. If none of the
 * channels read moved, all are read next time. Such searches are rare, because a tenant may hide
 * its submissions.
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
 * The container has a ceiling, and no other wants the card. Its context stays loaded after its work
 * and seems to run. It must be seen to sleep, to be charged for its work alone.
 */
static bool is_unwatched(const struct cgpu_sched *s, uint32_t slot)
{
	return cgpu_budget_is_capped(s, slot) && s->plan.mode == CGPU_SCHED_DEMAND &&
	       s->fair.curr >= CGPU_SCHED_SLOTS;
}

/* The container submitted in its sleep, and the runlist serves others for long first. */
static bool is_left_waiting(const struct cgpu_sched *s, const struct cgpu_demand_slot *d)
{
	return d->state == CGPU_DEMAND_SLEEPS && !cgpu_fair_carries(s);
}

/*
 * The container is silent at times, and its last submission was long ago. It keeps its turns as if
 * it worked, but others run beside it until the log tells. If it runs again after the others could,
 * it has work. If it does not in a round of the runlist, it has none. Return: it may be at work.
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
	/* alone in its window it seems to run: doubt lasts until a window began without work */
	if (s->plan.mode == CGPU_SCHED_WINDOWS)
		return s->slot[slot].idle_ns < d->doubt_ns;
	/* the log tells nothing while the gate is shut; the container had work when it shut */
	if (s->gates.shut_mask & SLOT_BIT(slot) ||
	    told_ns < open_ns + s->gates.open_ns + CGPU_SCHED_FAIR_LOADED_NS)
		return true;
	/* keep the longest round: a gate that shuts meanwhile makes the rest shorter */
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

/* The loaded container, if any, seems to sleep: one with work would displace it. */
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
 * The container has a turn, and by the log had no work when the turn began; no look found any
 * since. It may wait for a container that seems to sleep but submitted a moment ago.
 */
static bool was_empty(const struct cgpu_demand *demand, const struct cgpu_sched *s, uint32_t slot)
{
	if (!cgpu_fair_was_empty(s, slot) || demand->slot[slot].moved_ns > s->fair.settled_ns)
		return false;
	/* until the loaded context's slice ends, the log tells nothing */
	return s->fair.loaded >= CGPU_SCHED_SLOTS ||
	       (s->fair.settled_ns >= s->fair.began_ns + CGPU_DEMAND_PATIENCE_NS &&
		leaves_it_to(demand, s, s->fair.loaded));
}

/*
 * The container seems to work by its channels, but was not loaded in a turn longer than a round of
 * the runlist. It has no work until it is loaded. Otherwise the context that ran last would stay
 * loaded, and be charged, in these turns.
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

/* A container has several processes: another one at work runs little then, and seems to sleep. */
static bool are_several(const struct cgpu_sched *s)
{
	uint32_t i;

	for_each_competing(s, i)
		if (s->slot[i].groups > 1)
			return true;
	return false;
}

/* Concludes the container's state from what this look found. */
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
	/* no gap: queued in both looks, gate shut meanwhile, or others ran for most of it */
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
		/* such a container would be done before gates had moved for it */
		return;
	/* a container that waits for the runlist, all its work fetched, does not move either */
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
	/* the doubt is over, or the log showed work: patience begins anew */
	if (!doubted || d->moved_ns == now_ns)
		d->doubt_ns = 0;
	if (d->queued && !feigned)
		d->state = CGPU_DEMAND_QUEUED;
	else if (patient || doubted)
		d->state = CGPU_DEMAND_WORKS;
	else
		/* the others may begin while the last work of this one still runs */
		d->state = CGPU_DEMAND_SLEEPS;
	if (d->state == CGPU_DEMAND_SLEEPS)
		d->moves = 0;
	if (slept != (d->state == CGPU_DEMAND_SLEEPS))
		note_nap(d, s, slot, now_ns);
}

/*
 * Behind a shut gate nothing of the container was to be seen. Half of its silence counts on. If
 * none counted, a container whose turns are shorter than its patience would never sleep. If all
 * counted, one at a long piece of work would seem to sleep in its second turn.
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
	/* containers that moved are judged first: the others may have waited for them */
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
