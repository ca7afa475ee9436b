/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Budgets: what a ceiling allows over a second while windows are made on demand. Private to
 * core/sched.
 */
#ifndef CGPU_CORE_SCHED_BUDGET_H
#define CGPU_CORE_SCHED_BUDGET_H

#include "core/types.h"
#include "core/sched/sched.h"

/* The slot's ceiling is below the whole card. */
bool cgpu_budget_is_capped(const struct cgpu_sched *s, uint32_t slot);

/* A slot that holds the card open is capped. */
bool cgpu_budget_is_needed(const struct cgpu_sched *s);

/* The slot is capped and windows are made on demand: its entity's lag is behind the ceiling. */
bool cgpu_budget_paces(const struct cgpu_sched *s, uint32_t slot);

/*
 * A capped slot holds the card open, and ceilings are budgets, not fixed parts as under policies 0
 * to 3.
 */
bool cgpu_budget_is_used(const struct cgpu_sched *s);

/* Fills budgets for the time passed, and forgets what was used a second ago. */
void cgpu_budgets_fill(struct cgpu_sched *s, uint64_t passed_ns, uint64_t now_ns);

/* Charges the slot for use of the card. @ns below zero takes a charge back. */
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
