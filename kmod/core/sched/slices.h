/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The timeslice of each channel group. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_SLICES_H
#define CGPU_CORE_SCHED_SLICES_H

#include "core/types.h"
#include "core/sched/sched.h"

/* Sets every slot's wanted_us by the plan. */
void cgpu_slices_want(struct cgpu_sched *s);
/* Writes calls to @out that set slices which differ from the wanted ones. Return: how many. */
uint32_t cgpu_slices_set(struct cgpu_sched *s, struct cgpu_sched_action *out);

/**
 * cgpu_slices_lasted() - learn what a switch of the runlist costs
 * @s: the scheduler
 * @slot: the slot whose group was loaded
 * @turns: times it was loaded, with another's right after it; not 0
 * @shortest_ns: the shortest of them, from its loading to the other's
 *
 * If the group used its whole slice, the rest is the switch. Longer turns tell less: a call that
 * sets a slice lengthens the one that runs by up to 5 ms (seen on an H100).
 */
void cgpu_slices_lasted(struct cgpu_sched *s, uint32_t slot, uint32_t turns, uint64_t shortest_ns);

#endif
