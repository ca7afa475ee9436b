// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/sched/expiry.h"
#include "core/sched/bounds.h"

void cgpu_plan_outdate(struct cgpu_sched *s, bool changed)
{
	s->plan.dirty |= changed;
}

void cgpu_plan_outdate_at(struct cgpu_sched *s, uint64_t at_ns)
{
	s->plan.review_ns = cgpu_min(s->plan.review_ns, at_ns);
}

bool cgpu_plan_is_outdated(const struct cgpu_sched *s, uint64_t now_ns)
{
	return s->plan.dirty || now_ns >= s->plan.review_ns;
}

void cgpu_plan_begin(struct cgpu_sched *s)
{
	s->plan.review_ns = UINT64_MAX;
	s->plan.dirty = false;
}
