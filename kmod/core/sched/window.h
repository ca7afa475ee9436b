/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Whose window is next, and when it ends. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_WINDOW_H
#define CGPU_CORE_SCHED_WINDOW_H

#include "core/types.h"
#include "core/sched/sched.h"

/**
 * cgpu_window_choose() - choose whose window is next
 * @s: the scheduler
 * @then_ns: when the present window ends
 * @end_ns: when the chosen one ends
 *
 * Return: the entity, in the plan's order; CGPU_SCHED_NONE: nobody has a window.
 */
uint32_t cgpu_window_choose(struct cgpu_sched *s, uint64_t then_ns, uint64_t *end_ns);

/* The entity that follows the owner by the plan. */
uint32_t cgpu_window_following(const struct cgpu_sched *s);

/**
 * cgpu_window_overdue() - end of a window that begins after its planned end
 * @s: the scheduler
 * @entity: whose window it is
 * @then_ns: when it begins
 *
 * Return: 0: skip it. One that has lost half a window already is not skipped, or an
 * entity behind those that stop slowly would never run.
 */
uint64_t cgpu_window_overdue(const struct cgpu_sched *s, uint32_t entity, uint64_t then_ns);

#endif
