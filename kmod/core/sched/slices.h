/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* How long each channel group's timeslice is. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_SLICES_H
#define CGPU_CORE_SCHED_SLICES_H

#include "core/types.h"
#include "core/sched/sched.h"

/* Sets every slot's wanted_us by the plan. */
void cgpu_slices_want(struct cgpu_sched *s);

/**
 * cgpu_slice_lasted() - learn what a switch of the runlist costs
 * @s: the scheduler
 * @slot: whose group was loaded
 * @lasted_ns: from then until the next group was loaded, right after it
 *
 * If the group used its whole slice, the rest is the switch.
 */
void cgpu_slice_lasted(struct cgpu_sched *s, uint32_t slot, uint64_t lasted_ns);

#endif
