// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Windows follow in the plan's order. Each has a planned end on the grid, which its owner's lag
 * moves. A window whose end has passed by the time it would begin is skipped: that makes up for
 * lost time. After a change that moved windows, the order restarts from the clock.
 */
#include "core/sched/window.h"
#include "core/sched/account.h"
#include "core/sched/plan.h"

/* Lag of an entity at `then_ns`, when the open window will have ended. */
static int64_t lag_at(const struct cgpu_sched *s, uint32_t entity, uint64_t then_ns)
{
	const struct cgpu_sched_entity *e = &s->entity[entity];
	uint64_t ahead = 0, lost = 0;
	int64_t lag;

	if (s->cur.begun && then_ns > s->cur.charged_to_ns) {
		lost = cgpu_min(s->cur.unpaid_ns, then_ns - s->cur.charged_to_ns);
		ahead = then_ns - s->cur.charged_to_ns - lost;
	}
	if (!s->plan.whole)
		lost = 0;
	lag = e->lag_ns + (int64_t)cgpu_part(s->clock_ns + ahead + lost - e->mark_ns, e->share_ppm);
	lag -= entity == CGPU_SCHED_NOBODY ? (int64_t)lost : 0;
	return s->cur.begun && entity == s->cur.owner ? lag - (int64_t)ahead : lag;
}

uint64_t cgpu_window_overdue(const struct cgpu_sched *s, uint32_t entity, uint64_t then_ns)
{
	const struct cgpu_sched_entity *e = &s->entity[entity];
	int64_t lag_ns = lag_at(s, entity, then_ns) - cgpu_entity_swing(e);

	if (entity == CGPU_SCHED_NOBODY || lag_ns < (int64_t)e->width_ns / 2)
		return 0;
	return then_ns + e->cost_ns + e->width_ns + cgpu_min((uint64_t)lag_ns, e->width_ns);
}

uint32_t cgpu_window_choose(struct cgpu_sched *s, uint64_t then_ns, uint64_t *end_ns)
{
	uint64_t frame, best_end = 0, end, enough;
	uint32_t k, entity, best = CGPU_SCHED_NONE;
	int32_t at = s->cur.begun && !s->plan.moved ? s->plan.place[s->cur.owner] : -1;

	frame = s->plan.moved ? cgpu_plan_frame(s, then_ns) : s->plan.frame_ns;
	cgpu_plan_enter(s, frame);
	for (k = 0; k < 2 * s->plan.count; k++) {
		const struct cgpu_sched_entity *e;

		if (++at == (int32_t)s->plan.count) {
			at = 0;
			frame += s->plan.period_ns;
		}
		entity = s->plan.order[at];
		e = &s->entity[entity];
		end = cgpu_entity_window_end(e, frame, then_ns, e->cost_ns,
					     lag_at(s, entity, then_ns));
		enough = cgpu_min(CGPU_SCHED_WINDOW_MIN_NS, e->width_ns / 2) +
			 CGPU_SCHED_HANDOVER_NS;
		if (end < then_ns + enough)
			end = cgpu_window_overdue(s, entity, then_ns);
		if (end < then_ns + enough) {
			if (best == CGPU_SCHED_NONE || end > best_end) {
				best = entity;
				best_end = end;
			}
			continue;
		}
		cgpu_plan_enter(s, frame);
		*end_ns = end;
		return entity;
	}
	/* every entity is ahead of the grid: something delayed the engine */
	cgpu_plan_enter(s, cgpu_plan_frame(s, then_ns));
	*end_ns = then_ns + CGPU_SCHED_WINDOW_MIN_NS;
	return best;
}

uint32_t cgpu_window_following(const struct cgpu_sched *s)
{
	return s->plan.count
		       ? s->plan.order[(uint32_t)(s->plan.place[s->cur.owner] + 1) % s->plan.count]
		       : CGPU_SCHED_NOBODY;
}
