// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Lag, as in EEVDF: an entity's share of the card's clock less what it used. The clock runs while
 * some container's work does, and stands still during a hand-over. So all entities lose in
 * proportion, unless part of the card is nobody's: then hand-overs come out of that part
 * (plan.whole). The lag of an entity with one window a period swings around zero. It grows while
 * others run and falls while the entity itself does. Only the difference from that planned swing is
 * an error, and the next window is longer or shorter by half of it.
 *
 * Lag above zero is capped at one period's grant. Lag below zero is kept while the entity is away
 * and when the plan changes. So nothing is gained by pausing, or by closing the card just before
 * the tick.
 */
#include "core/sched/account.h"

bool cgpu_opened(const struct cgpu_sched *s, uint32_t i)
{
	return s->slot[i].present && s->slot[i].member.open;
}

bool cgpu_competes(const struct cgpu_sched *s, uint32_t slot)
{
	return cgpu_opened(s, slot) && s->slot[slot].groups && s->slot[slot].member.weight;
}

uint32_t cgpu_competing_from(const struct cgpu_sched *s, uint32_t slot)
{
	while (slot < s->slot_end && !cgpu_competes(s, slot))
		slot++;
	return slot;
}

uint64_t cgpu_part(uint64_t x, uint64_t ppm)
{
	return x * ppm / CGPU_PPM;
}

void cgpu_entity_settle(struct cgpu_sched *s, uint32_t entity)
{
	struct cgpu_sched_entity *e = &s->entity[entity];
	uint64_t rest = s->clock_ns - e->mark_ns;

	e->lag_ns += (int64_t)cgpu_part(rest, e->share_ppm);
	e->mark_ns = s->clock_ns;
}

bool cgpu_entity_quiet(const struct cgpu_sched *s, uint32_t entity)
{
	return entity >= CGPU_SCHED_SLOTS || !cgpu_opened(s, entity) ||
	       s->slot[entity].idle_windows >= CGPU_SCHED_TWICE;
}

bool cgpu_entity_paused(const struct cgpu_sched *s, uint32_t entity, uint64_t now_ns)
{
	uint64_t at_ns = entity < CGPU_SCHED_SLOTS ? s->slot[entity].idle_ns : 0;

	return at_ns && now_ns - at_ns <= 4 * s->plan.period_ns;
}

void cgpu_entity_pause(struct cgpu_sched *s, uint32_t entity, uint64_t now_ns)
{
	if (entity < CGPU_SCHED_SLOTS)
		s->slot[entity].idle_ns = now_ns;
}

uint64_t cgpu_entry_ns(bool from_rest)
{
	return from_rest ? CGPU_SCHED_ENTRY_NS : CGPU_SCHED_HANDOVER_NS;
}

uint64_t cgpu_exit_ns(bool to_rest)
{
	return to_rest ? CGPU_SCHED_EXIT_NS : 0;
}

int64_t cgpu_entity_swing(const struct cgpu_sched_entity *e)
{
	return (int64_t)cgpu_part(e->width_ns, CGPU_PPM - e->share_ppm) / 2;
}

int64_t cgpu_entity_planned_lag(const struct cgpu_sched *s, uint32_t entity, uint64_t now_ns)
{
	const struct cgpu_sched_entity *e = &s->entity[entity];
	uint64_t width = e->width_ns + e->cost_ns;
	uint64_t at = (now_ns + s->plan.period_ns - s->plan.frame_ns) % s->plan.period_ns, since;

	if (at < e->offset_ns && at + width >= e->offset_ns) {
		since = at + width - e->offset_ns;
		since = cgpu_beyond(since, e->cost_ns);
		return cgpu_entity_swing(e) - (int64_t)cgpu_part(since, CGPU_PPM - e->share_ppm);
	}
	since = (at + s->plan.period_ns - e->offset_ns) % s->plan.period_ns;
	/* while others have the card, the lag grows from the lower value to the upper */
	return 2 * cgpu_entity_swing(e) * (int64_t)(since / 1000) /
		       (int64_t)((s->plan.period_ns - width) / 1000 + 1) -
	       cgpu_entity_swing(e);
}

uint64_t cgpu_entity_window_end(const struct cgpu_sched_entity *e, uint64_t frame_ns,
				uint64_t then_ns, uint64_t cost_ns, int64_t lag_ns)
{
	int64_t ns = (int64_t)(frame_ns + e->offset_ns - then_ns - cost_ns);

	ns += (lag_ns - ns * (int64_t)(CGPU_PPM - e->share_ppm) / CGPU_PPM + cgpu_entity_swing(e)) /
	      2;
	if (ns < 0)
		return then_ns;
	return then_ns + cost_ns + cgpu_min((uint64_t)ns, 2 * e->width_ns);
}

bool cgpu_entity_cap_lag(const struct cgpu_sched *s, struct cgpu_sched_entity *e)
{
	int64_t most_ns =
		cgpu_entity_swing(e) + (int64_t)cgpu_part(s->plan.spread_ns, e->share_ppm);

	if (e->lag_ns <= most_ns)
		return false;
	e->lag_ns = most_ns;
	return true;
}

bool cgpu_entity_is_elastic(const struct cgpu_sched *s, uint32_t entity)
{
	return entity >= CGPU_SCHED_SLOTS ||
	       s->share[entity].share_ppm < s->share[entity].ceiling_ppm;
}

void cgpu_entities_balance(struct cgpu_sched *s)
{
	int64_t sum = 0, shares = 0;
	bool all;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_ENTITIES; i++) {
		cgpu_entity_settle(s, i);
		if (!s->entity[i].share_ppm)
			continue;
		sum += s->entity[i].lag_ns;
		if (cgpu_entity_is_elastic(s, i))
			shares += s->entity[i].share_ppm;
	}
	all = !shares;
	if (all)
		shares = CGPU_PPM;
	for (i = 0; i < CGPU_SCHED_ENTITIES; i++)
		if (s->entity[i].share_ppm && (all || cgpu_entity_is_elastic(s, i)))
			s->entity[i].lag_ns -= sum / 1000 * s->entity[i].share_ppm / shares * 1000;
}

uint32_t *cgpu_second_part(struct cgpu_sched_second *of, uint64_t parts, uint64_t back)
{
	return &of->bin_ns[(of->bin + parts + 1 - back) % (parts + 1)];
}

void cgpu_second_move(struct cgpu_sched_second *of, uint64_t parts, uint64_t now_ns)
{
	uint64_t bin = now_ns / (CGPU_SCHED_SECOND_NS / parts);
	uint32_t *oldest;
	uint64_t k;

	for (k = 0; k <= parts && of->bin < bin; k++) {
		oldest = cgpu_second_part(of, parts, parts);
		of->sum_ns -= *oldest;
		*oldest = 0;
		of->bin++;
	}
	of->bin = cgpu_max(of->bin, bin);
}

void cgpu_second_add(struct cgpu_sched_second *of, uint64_t parts, int64_t ns)
{
	int64_t most = CGPU_SCHED_SECOND_NS, more;
	uint64_t back;
	uint32_t *part;

	for (back = 0; !back || (ns < 0 && back < parts / 16); back++) {
		part = cgpu_second_part(of, parts, back);
		more = ns < -(int64_t)*part ? -(int64_t)*part : ns;
		if (more > most - *part)
			more = most - *part;
		*part += (uint32_t)more;
		of->sum_ns += (uint64_t)more;
		ns -= more;
	}
}

/* Counts time awake and time throttled for the slots that opened the card. */
static void count_opened(struct cgpu_sched *s, uint64_t passed_ns)
{
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		if (!cgpu_opened(s, i))
			continue;
		if (!s->slot[i].fair.asleep)
			s->slot[i].awake_ns += passed_ns;
		if (s->gates.shut_mask >> i & 1)
			s->slot[i].stat.throttled_ns += passed_ns;
	}
}

void cgpu_entities_grant(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t passed = now_ns - s->granted_to_ns;
	uint32_t i;

	if (now_ns <= s->granted_to_ns)
		return;
	s->granted_to_ns = now_ns;
	count_opened(s, passed);
	if (s->plan.mode == CGPU_SCHED_WINDOWS || s->plan.mode == CGPU_SCHED_DEMAND) {
		i = s->fair.curr;
		if (s->plan.mode == CGPU_SCHED_WINDOWS)
			i = s->cur.begun ? s->cur.owner : CGPU_SCHED_NONE;
		if (i < CGPU_SCHED_SLOTS)
			s->slot[i].stat.granted_ns += passed;
		return;
	}
	for (i = 0; i < s->slot_end; i++)
		if (cgpu_opened(s, i))
			s->slot[i].stat.granted_ns += cgpu_part(passed, s->share[i].share_ppm);
}

void cgpu_entities_charge(struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t passed, lost;

	cgpu_entities_grant(s, now_ns);
	if (!s->cur.begun || now_ns <= s->cur.charged_to_ns)
		return;
	passed = now_ns - s->cur.charged_to_ns;
	lost = cgpu_min(passed, s->cur.unpaid_ns);
	s->cur.unpaid_ns -= lost;
	passed -= lost;
	s->cur.charged_to_ns = now_ns;
	cgpu_entity_settle(s, s->cur.owner);
	s->clock_ns += passed;
	if (s->plan.whole) {
		s->clock_ns += lost;
		s->entity[CGPU_SCHED_NOBODY].lag_ns -= (int64_t)lost;
	}
	cgpu_entity_settle(s, s->cur.owner);
	s->entity[s->cur.owner].lag_ns -= (int64_t)passed;
}

void cgpu_entity_ran_early(struct cgpu_sched *s, uint32_t entity, uint32_t before, uint64_t ns,
			   uint64_t now_ns)
{
	if (entity >= CGPU_SCHED_ENTITIES || before >= CGPU_SCHED_ENTITIES ||
	    !s->entity[entity].share_ppm || !s->entity[before].share_ppm)
		return;
	cgpu_entities_charge(s, now_ns);
	ns = cgpu_min(ns, s->entity[entity].width_ns);
	s->entity[entity].lag_ns -= (int64_t)ns;
	s->entity[before].lag_ns += (int64_t)ns;
}

void cgpu_entity_set_lag(struct cgpu_sched *s, uint32_t entity, int64_t lag_ns)
{
	s->entity[entity].lag_ns = lag_ns;
}

void cgpu_entities_begin_window(struct cgpu_sched *s, uint64_t unpaid_ns, uint64_t now_ns)
{
	s->cur.unpaid_ns = unpaid_ns;
	s->cur.charged_to_ns = now_ns;
}

void cgpu_entity_used(struct cgpu_sched *s, uint32_t slot, uint64_t used_ns)
{
	s->used_ns += used_ns;
	s->slot[slot].stat.used_ns += used_ns;
	/* a sleeper's context may stay on the engine: that is no use while awake */
	if (!s->slot[slot].fair.asleep)
		s->slot[slot].awake_used_ns += used_ns;
}

void cgpu_entity_switched(struct cgpu_sched *s, uint32_t entity)
{
	if (entity < CGPU_SCHED_SLOTS)
		s->slot[entity].stat.switches++;
}
