/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* When the plan is to be made again. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_EXPIRY_H
#define CGPU_CORE_SCHED_EXPIRY_H

#include "core/types.h"
#include "core/sched/sched.h"

/* If @changed, something that the plan depends on has changed. */
void cgpu_plan_outdate(struct cgpu_sched *s, bool changed);
/* Something that the plan depends on will change by @at_ns. */
void cgpu_plan_outdate_at(struct cgpu_sched *s, uint64_t at_ns);
bool cgpu_plan_is_outdated(const struct cgpu_sched *s, uint64_t now_ns);

/* Call when a plan is made: it counts all changes so far, and tells later expiries anew. */
void cgpu_plan_begin(struct cgpu_sched *s);

#endif
