// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/sched/loop.h"
#include "core/sched/tuning.h"

enum cgpu_loop_step cgpu_loop_next(struct cgpu_loop *loop, uint64_t now_ns)
{
	uint64_t log_ns = UINT64_MAX, look_ns = UINT64_MAX;

	if (loop->taken < loop->count)
		return CGPU_LOOP_MOVE;
	loop->taken = 0;
	loop->count = cgpu_sched_tick(loop->sched, now_ns, loop->action, &loop->wake_ns);
	if (loop->count)
		return CGPU_LOOP_MOVE;
	if (loop->log)
		log_ns = cgpu_switch_log_due(loop->log, loop->sched, now_ns);
	if (log_ns < loop->retry_ns)
		log_ns = loop->retry_ns;
	if (loop->demand)
		look_ns = cgpu_demand_due(loop->demand, loop->sched, now_ns, &loop->mask);
	loop->due_ns = log_ns < look_ns ? log_ns : look_ns;
	if (now_ns < loop->due_ns)
		return CGPU_LOOP_WAIT;
	return look_ns <= log_ns ? CGPU_LOOP_LOOK : CGPU_LOOP_READ;
}

void cgpu_loop_done(struct cgpu_loop *loop, enum cgpu_loop_step step, uint64_t start_ns,
		    uint64_t end_ns, int status)
{
	if (step == CGPU_LOOP_MOVE) {
		cgpu_sched_done(loop->sched, &loop->action[loop->taken++], start_ns, end_ns,
				status);
	} else if (step == CGPU_LOOP_READ && status) {
		loop->retry_ns = end_ns + CGPU_DEMAND_LOOK_NS;
	} else if (step == CGPU_LOOP_READ) {
		cgpu_switch_log_judge(loop->log, loop->sched, end_ns);
	} else if (step == CGPU_LOOP_LOOK) {
		cgpu_demand_judge(loop->demand, loop->sched, loop->mask, start_ns, end_ns);
	}
}
