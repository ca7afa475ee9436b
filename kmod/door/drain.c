// SPDX-License-Identifier: GPL-2.0-only
/*
 * As in SRCU, each CPU counts callers that have entered and that have left. A caller may leave on
 * another CPU than it entered on, so only the sums mean anything. All `left` are read before all
 * `entered`: the sums can then be equal only if no caller was inside at some moment in between.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/errno.h>
#include <linux/ktime.h>
#include <linux/sched.h>

#include "drain.h"

enum { POLL_US = 20 };

#ifdef CONFIG_DEBUG_LOCK_ALLOC
#define dep_map_of(drain) (&(drain)->dep_map)
#else
#define dep_map_of(drain) ((struct lockdep_map *)NULL)
#endif

static void count_left(struct cgpu_drain *drain)
{
	smp_mb(); /* all that was done inside is done before it counts as left */
	this_cpu_inc(drain->count->left);
}

void cgpu_drain_enter(struct cgpu_drain *drain)
{
	/* recursive: asking the driver from behind the drain opens hooked files */
	lock_map_acquire_read(dep_map_of(drain));
	for (;;) {
		this_cpu_inc(drain->count->entered);
		smp_mb(); /* with cgpu_drain_close(): either it sees us, or we see it */
		if (likely(!READ_ONCE(drain->closed)))
			return;
		count_left(drain);
		wait_event(drain->opened, !READ_ONCE(drain->closed));
	}
}

void cgpu_drain_leave(struct cgpu_drain *drain)
{
	lock_map_release(dep_map_of(drain));
	count_left(drain);
}

static bool is_empty(struct cgpu_drain *drain)
{
	unsigned long entered = 0, left = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		left += READ_ONCE(per_cpu_ptr(drain->count, cpu)->left);
	smp_mb(); /* pairs with both above */
	for_each_possible_cpu(cpu)
		entered += READ_ONCE(per_cpu_ptr(drain->count, cpu)->entered);
	return entered == left;
}

int cgpu_drain_close(struct cgpu_drain *drain, u64 limit_ns)
{
	u64 start_ns = ktime_get_ns();

	lock_map_acquire(dep_map_of(drain));
	WRITE_ONCE(drain->closed, true);
	smp_mb(); /* with cgpu_drain_enter() */
	while (!is_empty(drain)) {
		if (ktime_get_ns() - start_ns > limit_ns) {
			cgpu_drain_open(drain);
			return -EBUSY;
		}
		usleep_range(POLL_US, 2 * POLL_US);
	}
	return 0;
}

void cgpu_drain_open(struct cgpu_drain *drain)
{
	/* a caller that enters sees what was changed behind the drain */
	smp_store_release(&drain->closed, false);
	wake_up_all(&drain->opened);
	lock_map_release(dep_map_of(drain));
}
