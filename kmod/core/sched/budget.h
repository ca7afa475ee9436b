/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a ceiling allows while windows are made on demand: a budget over a second, spent
 * when it is wanted. Private to core/sched.
 */
#ifndef CGPU_CORE_SCHED_BUDGET_H
#define CGPU_CORE_SCHED_BUDGET_H

#include "core/types.h"
#include "core/sched/sched.h"

/* The slot may not have the whole card. */
bool cgpu_budget_is_capped(const struct cgpu_sched *s, uint32_t slot);

/* Somebody who holds the card open may not. */
bool cgpu_budget_is_needed(const struct cgpu_sched *s);

/* The entity's lag is behind the ceiling: windows are made on demand. */
bool cgpu_budget_paces(const struct cgpu_sched *s, uint32_t slot);

/* And ceilings are budgets, not parts of the card as under 0 to 3. */
bool cgpu_budget_is_used(const struct cgpu_sched *s);

/* Time passed: budgets fill, and what was used a second ago is forgotten. */
void cgpu_budgets_fill(struct cgpu_sched *s, uint64_t passed_ns, uint64_t now_ns);

/* The slot used the card, or, below zero, it turned out that it did not. */
void cgpu_budget_use(struct cgpu_sched *s, uint32_t slot, int64_t ns);

/**
 * cgpu_budget_update() - find whether a slot has to wait for its budget
 * @s: the scheduler
 * @slot: the slot
 * @paced: it may not be ahead of its ceiling by more than a window
 * @runs: it has the card
 * @now_ns: the time
 *
 * Return: when that will change, if nothing happens meanwhile; UINT64_MAX: it will not.
 */
uint64_t cgpu_budget_update(struct cgpu_sched *s, uint32_t slot, bool paced, bool runs,
			    uint64_t now_ns);
bool cgpu_budget_is_spent(const struct cgpu_sched *s, uint32_t slot);

#endif
