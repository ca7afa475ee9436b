/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The length of the period. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_PERIOD_H
#define CGPU_CORE_SCHED_PERIOD_H

#include "core/types.h"
#include "core/sched/sched.h"

/* Sets the runlist's round for slots with a share, which divide @most_ns at most. */
void cgpu_period_set_round(struct cgpu_sched *s, uint64_t most_ns);

/* Sets the period of windows on demand: only the deviation from shares bounds it. */
void cgpu_period_set_demand(struct cgpu_sched *s);

/* Sets the period of the windows in the plan. */
void cgpu_period_set_windows(struct cgpu_sched *s);

/* Sets the part of the period that windows or slices divide: all but @lost_ns. */
void cgpu_period_spread(struct cgpu_sched *s, uint64_t lost_ns);

/* Return: what hand-overs take of a period. */
uint64_t cgpu_period_lost_ns(const struct cgpu_sched *s);

#endif
