/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The plan: shares, mode, the period and the windows in it. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_PLAN_H
#define CGPU_CORE_SCHED_PLAN_H

#include "core/types.h"
#include "core/sched/sched.h"

/* The beginning of the period of the grid that @now_ns lies in. */
uint64_t cgpu_plan_frame(const struct cgpu_sched *s, uint64_t now_ns);

/*
 * Makes the plan anew, after an event; the open window goes on under it. Return: true if that
 * window kept its place, in a period as long as before.
 */
bool cgpu_plan_make(struct cgpu_sched *s, uint64_t now_ns);

/* From now on windows are those of the period that begins at @frame_ns. */
void cgpu_plan_enter(struct cgpu_sched *s, uint64_t frame_ns);

/* The slot opened the card, or @closes it: then its place is kept for one more period. */
void cgpu_plan_keep_place(struct cgpu_sched *s, uint32_t slot, bool closes, uint64_t now_ns);

#endif
