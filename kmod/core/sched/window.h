/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Chooses the next window's owner and its end. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_WINDOW_H
#define CGPU_CORE_SCHED_WINDOW_H

#include "core/types.h"
#include "core/sched/sched.h"

/**
 * cgpu_window_choose() - choose the next window's owner
 * @s: the scheduler
 * @then_ns: when the present window ends
 * @end_ns: when the chosen window ends
 *
 * Return: the entity, in the plan's order; CGPU_SCHED_NONE: nobody has a window.
 */
uint32_t cgpu_window_choose(struct cgpu_sched *s, uint64_t then_ns, uint64_t *end_ns);

/* The entity whose window follows the owner's by the plan. */
uint32_t cgpu_window_following(const struct cgpu_sched *s);

/**
 * cgpu_window_overdue() - end of a window that begins after its planned end
 * @s: the scheduler
 * @entity: the window's owner
 * @then_ns: when it begins
 *
 * Return: the end, or 0: skip the window. An entity that has lost half a window is not skipped.
 * Otherwise an entity behind others that stop slowly would never run.
 */
uint64_t cgpu_window_overdue(const struct cgpu_sched *s, uint32_t entity, uint64_t then_ns);

#endif
