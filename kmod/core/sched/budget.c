// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A ceiling holds over any second: what was used within the last one, to within a sixty-fourth, is
 * no more than the ceiling. A container with a claim spends its budget as fast as it wants. One
 * without a claim is paced. Its entity's lag, which under windows by the clock is behind the share,
 * is behind the ceiling here. The container waits while it is ahead by half a window, until it is
 * behind by as much.
 */
#include "core/sched/budget.h"
#include "core/sched/account.h"

#define BIN_NS (CGPU_SCHED_SECOND_NS / CGPU_SCHED_BUDGET_BINS)

bool cgpu_budget_is_capped(const struct cgpu_sched *s, uint32_t slot)
{
	return s->share[slot].ceiling_ppm < CGPU_PPM;
}

bool cgpu_budget_is_needed(const struct cgpu_sched *s)
{
	uint32_t i;

	for (i = 0; i < s->slot_end; i++)
		if (cgpu_opened(s, i) && cgpu_budget_is_capped(s, i))
			return true;
	return false;
}

bool cgpu_budget_paces(const struct cgpu_sched *s, uint32_t slot)
{
	return s->plan.mode == CGPU_SCHED_DEMAND && cgpu_opened(s, slot) &&
	       cgpu_budget_is_capped(s, slot);
}

bool cgpu_budget_is_used(const struct cgpu_sched *s)
{
	return cgpu_policy_conserves(s->config.policy) && cgpu_budget_is_needed(s);
}

/*
 * Adds @ns to what is due by the ceiling. The bounds keep a container from saving up much. They
 * also keep it from paying twice for a claim spent at once: the second's sum remembers that.
 */
static void pace(struct cgpu_sched *s, uint32_t slot, int64_t ns)
{
	int64_t lag_ns = s->entity[slot].lag_ns + ns;

	if (!cgpu_budget_paces(s, slot))
		return;
	if (lag_ns > CGPU_SCHED_BUDGET_SAVED_NS)
		lag_ns = CGPU_SCHED_BUDGET_SAVED_NS;
	if (lag_ns < -CGPU_SCHED_BUDGET_SAVED_NS)
		lag_ns = -CGPU_SCHED_BUDGET_SAVED_NS;
	cgpu_entity_set_lag(s, slot, lag_ns);
}

void cgpu_budgets_fill(struct cgpu_sched *s, uint64_t passed_ns, uint64_t now_ns)
{
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		pace(s, i, (int64_t)cgpu_part(passed_ns, s->share[i].ceiling_ppm));
		cgpu_second_move(&s->slot[i].budget.used, CGPU_SCHED_BUDGET_BINS, now_ns);
	}
}

void cgpu_budget_use(struct cgpu_sched *s, uint32_t slot, int64_t ns)
{
	if (!cgpu_budget_is_capped(s, slot))
		return;
	pace(s, slot, -ns);
	cgpu_second_add(&s->slot[slot].budget.used, CGPU_SCHED_BUDGET_BINS, ns);
}

/* The @k-th oldest part: the oldest leave the second first. */
static uint32_t oldest_ns(struct cgpu_sched_second *used, uint64_t k)
{
	return *cgpu_second_part(used, CGPU_SCHED_BUDGET_BINS, CGPU_SCHED_BUDGET_BINS - k);
}

/* What was used within the last second. */
static uint64_t used_ns(struct cgpu_sched_second *used, uint64_t now_ns)
{
	/* the oldest part counts as far as it is within the second */
	return used->sum_ns - oldest_ns(used, 0) * (now_ns % BIN_NS) / BIN_NS;
}

/* When no more than @most_ns will have been used within the last second. */
static uint64_t until_ns(struct cgpu_sched_second *used, uint64_t most_ns)
{
	uint64_t sum = used->sum_ns, oldest, k;

	for (k = 0; k < CGPU_SCHED_BUDGET_BINS && sum > most_ns; k++) {
		oldest = oldest_ns(used, k);
		if (sum - oldest <= most_ns)
			return (used->bin + k) * BIN_NS + (sum - most_ns) * BIN_NS / oldest;
		sum -= oldest;
	}
	return (used->bin + k + 1) * BIN_NS;
}

static uint64_t window_ns(const struct cgpu_sched *s, uint32_t slot)
{
	uint64_t ppm = s->share[slot].ceiling_ppm;

	return cgpu_max(cgpu_part(cgpu_part(s->plan.period_ns, ppm), CGPU_PPM - ppm),
			CGPU_SCHED_WINDOW_MIN_NS);
}

uint64_t cgpu_budget_update(struct cgpu_sched *s, uint32_t slot, bool paced, bool runs,
			    uint64_t now_ns)
{
	struct cgpu_sched_budget *b = &s->slot[slot].budget;
	uint64_t ppm = s->share[slot].ceiling_ppm, most, again, used, at_ns;
	int64_t half = (int64_t)window_ns(s, slot) / 2, lag_ns;
	bool was;

	if (!cgpu_budget_is_capped(s, slot))
		return NEVER;
	most = cgpu_part(CGPU_SCHED_SECOND_NS, ppm) + CGPU_SCHED_WINDOW_MIN_NS;
	used = used_ns(&b->used, now_ns);
	/* the log tells late what a sleeper runs */
	if (s->slot[slot].fair.asleep)
		most -= cgpu_min(most / 2, (CGPU_SWITCH_LOG_DEMAND_NS / 2));
	again = most - cgpu_min(2 * (uint64_t)half, most / 2);
	was = cgpu_budget_is_spent(s, slot);
	b->is_spent = b->is_spent ? used > again : used >= most;
	lag_ns = s->entity[slot].lag_ns;
	b->is_ahead = paced && (b->is_ahead ? lag_ns < half : lag_ns <= -half);
	/* it waited for its budget, so it is not charged for the entry to an idle card */
	if (was && !cgpu_budget_is_spent(s, slot) && s->fair.curr >= CGPU_SCHED_SLOTS)
		cgpu_budget_use(s, slot, -CGPU_SCHED_BUDGET_ENTRY_NS);
	lag_ns = s->entity[slot].lag_ns;
	at_ns = now_ns;
	if (!b->is_spent && !b->is_ahead) {
		if (!runs)
			return NEVER;
		at_ns += most - used;
		if (paced)
			at_ns = cgpu_min(at_ns, now_ns + (uint64_t)(lag_ns + half) *
							CGPU_PPM / (CGPU_PPM - ppm));
		return at_ns;
	}
	if (b->is_ahead)
		at_ns += (uint64_t)(half - lag_ns) * CGPU_PPM / cgpu_max(ppm, 1);
	if (b->is_spent)
		at_ns = cgpu_max(at_ns, until_ns(&b->used, again));
	return at_ns;
}

bool cgpu_budget_is_spent(const struct cgpu_sched *s, uint32_t slot)
{
	const struct cgpu_sched_budget *b = &s->slot[slot].budget;

	return cgpu_budget_is_capped(s, slot) && (b->is_spent || b->is_ahead);
}
