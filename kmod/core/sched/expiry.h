/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* When the plan is to be made again. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_EXPIRY_H
#define CGPU_CORE_SCHED_EXPIRY_H

#include "core/types.h"
#include "core/sched/sched.h"

/* Something that the plan depends on changed, if @changed. */
void cgpu_plan_outdate(struct cgpu_sched *s, bool changed);
/* It will, by then. */
void cgpu_plan_outdate_at(struct cgpu_sched *s, uint64_t at_ns);
bool cgpu_plan_is_outdated(const struct cgpu_sched *s, uint64_t now_ns);

/* A plan is made: what it depends on in time is told while it is, the rest is heeded. */
void cgpu_plan_begin(struct cgpu_sched *s);

#endif
