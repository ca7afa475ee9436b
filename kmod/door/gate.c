// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two counters a CPU, as in SRCU: who has entered and who has left. A caller
 * may leave on another CPU than it entered on, so only the sums mean anything.
 * Reading all that left before all that entered, their sums can only be equal
 * if nobody was inside at some moment between.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/errno.h>
#include <linux/ktime.h>

#include "gate.h"

enum { POLL_US = 20 };

void cgpu_gate_enter(struct cgpu_gate *gate)
{
	for (;;) {
		this_cpu_inc(gate->count->entered);
		smp_mb(); /* with cgpu_gate_close(): either it sees us, or we see it */
		if (likely(!READ_ONCE(gate->closed)))
			return;
		cgpu_gate_leave(gate);
		wait_event(gate->opened, !READ_ONCE(gate->closed));
	}
}

void cgpu_gate_leave(struct cgpu_gate *gate)
{
	smp_mb(); /* all that was done inside is done before it counts as left */
	this_cpu_inc(gate->count->left);
}

static bool is_empty(struct cgpu_gate *gate)
{
	unsigned long entered = 0, left = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		left += READ_ONCE(per_cpu_ptr(gate->count, cpu)->left);
	smp_mb(); /* pairs with both above */
	for_each_possible_cpu(cpu)
		entered += READ_ONCE(per_cpu_ptr(gate->count, cpu)->entered);
	return entered == left;
}

int cgpu_gate_close(struct cgpu_gate *gate, u64 limit_ns)
{
	u64 start_ns = ktime_get_ns();

	WRITE_ONCE(gate->closed, true);
	smp_mb(); /* with cgpu_gate_enter() */
	while (!is_empty(gate)) {
		if (ktime_get_ns() - start_ns > limit_ns) {
			cgpu_gate_open(gate);
			return -EBUSY;
		}
		usleep_range(POLL_US, 2 * POLL_US);
	}
	return 0;
}

void cgpu_gate_open(struct cgpu_gate *gate)
{
	/* what was changed behind it is seen by whoever enters */
	smp_store_release(&gate->closed, false);
	wake_up_all(&gate->opened);
}
