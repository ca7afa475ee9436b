/* SPDX-License-Identifier: GPL-2.0-only */
/* Work that a tenant's call needs and must not do itself: a worker sets probes. */
#ifndef CGPU_DOOR_ERRAND_H
#define CGPU_DOOR_ERRAND_H

#include <linux/wait.h>
#include <linux/workqueue.h>

struct cgpu_errand {
	struct work_struct work;
	wait_queue_head_t back;
	int (*run)(void); /* may be run again, when all is done */
	unsigned long runs;
	int result; /* of the last */
};

void cgpu_errand_work(struct work_struct *work);

#define DEFINE_CGPU_ERRAND(name, fn)                                  \
	struct cgpu_errand name = {                                   \
		.work = __WORK_INITIALIZER(name.work, cgpu_errand_work), \
		.back = __WAIT_QUEUE_HEAD_INITIALIZER(name.back),     \
		.run = fn,                                            \
	}

/**
 * cgpu_errand_send() - have a worker do it, and wait for that
 * @errand: by any number of tasks at a time
 *
 * Context: sleeps, until a deadly signal at most; no lock that the errand takes.
 * Return: what its function returned, or -EINTR: the task is killed.
 */
int cgpu_errand_send(struct cgpu_errand *errand);

/**
 * cgpu_errand_end() - it is not sent any more, and is not under way on return
 * @errand: which
 */
void cgpu_errand_end(struct cgpu_errand *errand);

#endif
