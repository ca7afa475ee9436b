// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Periods divide the second: a second then holds whole windows, whatever its phase, and errors over
 * a second stay at hundredths of a point. The period is as short as the loss to hand-overs allows
 * (config.loss_ppm). It is no longer than the deviation a(1 − a)P of a share a over a short time
 * allows. Over a tenth of a second one window too many or too few counts. So the engine takes a
 * period nearby that leaves room for a slow call.
 */
#include "core/sched/period.h"
#include "core/sched/account.h"
#include "core/sched/budget.h"
#include "core/sched/gang.h"

/* The greatest a(1 − a), in millionths. */
static uint64_t greatest_deviation(const struct cgpu_sched *s)
{
	uint64_t deviation = 1, a;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		a = s->share[i].share_ppm;
		deviation = cgpu_max(deviation, cgpu_part(a, CGPU_PPM - a));
	}
	return deviation;
}

/* The longest round of the runlist in which every share stays close enough. */
static uint64_t longest_round(const struct cgpu_sched *s, uint32_t open)
{
	uint64_t deviation = greatest_deviation(s);

	if (open > CGPU_SCHED_UNITS)
		return CGPU_SCHED_DEVIATION_MANY_NS * (uint64_t)CGPU_PPM / deviation;
	return cgpu_max(CGPU_SCHED_DEVIATION_NS * (uint64_t)CGPU_PPM / deviation,
			cgpu_min(open * (uint64_t)CGPU_SCHED_ROUND_EACH_NS, CGPU_SCHED_ROUND_NS));
}

/* The next period of the grid: a second holds a whole number of them. */
static uint64_t on_grid(uint64_t ns)
{
	return CGPU_SCHED_SECOND_NS / cgpu_max(1, CGPU_SCHED_SECOND_NS / ns);
}

void cgpu_period_set_round(struct cgpu_sched *s, uint64_t most_ns)
{
	uint64_t ns = CGPU_SCHED_UNITS * s->config.unit_ns, lost;
	uint32_t i, open = 0;

	for (i = 0; i < s->slot_end; i++)
		open += cgpu_opened(s, i) && s->share[i].share_ppm;
	lost = open * CGPU_SCHED_SWITCH_NS;
	ns = cgpu_max(ns, lost * CGPU_PPM / s->config.loss_ppm);
	ns = cgpu_min(cgpu_min(ns, longest_round(s, open)), most_ns + lost);
	ns = cgpu_max(ns, cgpu_max(2 * lost, 1));
	s->plan.period_ns = on_grid(ns);
	if ((open > CGPU_SCHED_UNITS && s->plan.period_ns > ns) ||
	    s->plan.period_ns > most_ns + lost)
		s->plan.period_ns = CGPU_SCHED_SECOND_NS / (CGPU_SCHED_SECOND_NS / ns + 1);
	s->plan.spread_ns =
		s->plan.period_ns - cgpu_min(s->plan.period_ns / 2, open * s->after_used_ns);
}

void cgpu_period_set_demand(struct cgpu_sched *s)
{
	uint64_t deviation = greatest_deviation(s);
	uint64_t longest_ns = CGPU_SCHED_DEVIATION_NS * (uint64_t)CGPU_PPM / deviation;

	cgpu_period_set_round(s, CGPU_SCHED_SECOND_NS);
	s->plan.period_ns = cgpu_min(s->plan.period_ns, longest_ns);
}

uint64_t cgpu_period_lost_ns(const struct cgpu_sched *s)
{
	uint64_t lost = 0;
	uint32_t k;

	for (k = 0; k < s->plan.count; k++)
		lost += s->entity[s->plan.order[k]].cost_ns;
	return lost;
}

/*
 * The part left of the deviation promised over a tenth of a second. It is taken at the phase where
 * that time holds a window more, or one less, than the share.
 */
static uint64_t room_ns(uint64_t share_ppm, uint64_t period_ns)
{
	uint64_t rest = (CGPU_SCHED_SECOND_NS / 10) % period_ns, others = CGPU_PPM - share_ppm;
	uint64_t more = cgpu_min(cgpu_part(rest, others), cgpu_part(period_ns - rest, share_ppm));
	uint64_t less = cgpu_min(cgpu_part(rest, share_ppm), cgpu_part(period_ns - rest, others));

	return cgpu_part(cgpu_part(period_ns, share_ppm), others) -
	       cgpu_min(cgpu_part(cgpu_part(period_ns, share_ppm), others), cgpu_max(more, less));
}

static bool roomy(const struct cgpu_sched *s, uint64_t period_ns)
{
	uint64_t share;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		share = s->entity[i].share_ppm ? s->entity[i].share_ppm : s->share[i].share_ppm;
		if (share && share < CGPU_PPM && room_ns(share, period_ns) < CGPU_SCHED_ROOM_NS)
			return false;
	}
	return true;
}

/*
 * The period of the grid nearest to @ns, and not below @floor_ns, that leaves room for
 * an occasional slow call.
 */
static uint64_t with_room(const struct cgpu_sched *s, uint64_t ns, uint64_t floor_ns)
{
	uint64_t count = CGPU_SCHED_SECOND_NS / on_grid(ns), k, shorter, longer;

	for (k = 0; k <= CGPU_SCHED_ROOM_STEPS && k < count; k++) {
		shorter = CGPU_SCHED_SECOND_NS / (count + k);
		longer = CGPU_SCHED_SECOND_NS / (count - k);
		if ((!k || shorter >= floor_ns) && roomy(s, shorter))
			return shorter;
		if (roomy(s, longer))
			return longer;
	}
	return on_grid(ns);
}

/*
 * A period as long as on the other cards, whose gates may be slower or faster: the next of few
 * lengths. A tenth of a second holds a whole number of each.
 */
static uint64_t in_step(uint64_t ns)
{
	uint64_t longest_ns = CGPU_SCHED_SECOND_NS / 10, length_ns = longest_ns;

	while (length_ns / 2 >= ns)
		length_ns /= 2;
	return ns > longest_ns ? on_grid(ns) : length_ns;
}

void cgpu_period_set_windows(struct cgpu_sched *s)
{
	uint64_t base = CGPU_SCHED_UNITS * s->config.unit_ns, lost = cgpu_period_lost_ns(s),
		 ns = base, floor;
	uint64_t weights = 0, smallest = CGPU_PPM;
	uint32_t nobody = s->entity[CGPU_SCHED_NOBODY].share_ppm;
	uint32_t i, windows = 0;

	for (i = 0; i < s->slot_end; i++)
		weights += s->slot[i].present ? s->slot[i].member.weight : 0;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (!s->entity[i].share_ppm)
			continue;
		windows++;
		smallest = (uint32_t)cgpu_min(smallest, s->entity[i].share_ppm);
	}
	/* a window that is nobody's must be longer than the calls that make it */
	floor = nobody ? cgpu_min(base, (CGPU_SCHED_WINDOW_MIN_NS + lost) * CGPU_PPM / nobody) : 0;
	floor = cgpu_max(floor, CGPU_SCHED_WINDOW_MIN_NS * (uint64_t)CGPU_PPM / smallest + lost);
	floor = cgpu_max(floor, 2 * lost);
	if (nobody && windows == 1 && cgpu_budget_is_used(s))
		ns = CGPU_SCHED_UNITS_LONE * s->config.unit_ns;
	if (s->config.policy == CGPU_POLICY_WEIGHTED && windows > 1)
		ns = weights * s->config.unit_ns;
	else
		floor = cgpu_max(floor, lost * CGPU_PPM / s->config.loss_ppm);
	s->plan.period_ns = cgpu_gangs_compete(s) ? in_step(cgpu_max(ns, floor)) :
						    with_room(s, cgpu_max(ns, floor), floor);
}

void cgpu_period_spread(struct cgpu_sched *s, uint64_t lost_ns)
{
	s->plan.spread_ns = s->plan.period_ns - lost_ns;
}
