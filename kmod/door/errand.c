// SPDX-License-Identifier: GPL-2.0-only
/*
 * Setting a probe waits for the kernel's probes, and they, while jumps are put in place, for tasks
 * that exit (before 6.9, rcu_tasks). The first process of a pid namespace exits when all others
 * have. If one of these waited for the probes, and could not be killed, it would wait for itself.
 * Then no probe could be set on the host any more, and no module loaded.
 */
#include <linux/errno.h>
#include <linux/sched.h>

#include "errand.h"

void cgpu_errand_work(struct work_struct *work)
{
	struct cgpu_errand *errand = container_of(work, struct cgpu_errand, work);

	WRITE_ONCE(errand->result, errand->run());
	/* a task that sees that it was run also sees what it did */
	smp_store_release(&errand->runs, errand->runs + 1);
	wake_up_all(&errand->back);
}

int cgpu_errand_send(struct cgpu_errand *errand)
{
	unsigned long runs = READ_ONCE(errand->runs);

	queue_work(system_unbound_wq, &errand->work);
	if (wait_event_killable(errand->back, READ_ONCE(errand->runs) != runs))
		return -EINTR;
	smp_rmb(); /* with cgpu_errand_work() */
	return READ_ONCE(errand->result);
}

void cgpu_errand_end(struct cgpu_errand *errand)
{
	cancel_work_sync(&errand->work);
}
