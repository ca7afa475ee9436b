// SPDX-License-Identifier: GPL-2.0-only
/* As of any process that is killed for want of memory, nothing but the log says why it ended. */
#include <linux/sched/signal.h>

#include "shortage.h"
#include "door/events.h"

void cgpu_shortage_report(struct cgpu_container *container, const struct cgpu_shortage *shortage)
{
	/* a tenant must not be able to push everybody else's lines out of `events` */
	if (__ratelimit(&container->refusals)) {
		if (shortage->card == CGPU_HOST)
			cgpu_event("oom_host id=%s pid=%d bytes=%llu", container->id,
				   task_tgid_nr(current), shortage->bytes);
		else
			cgpu_event("oom id=%s gpu=%u pid=%d bytes=%llu", container->id,
				   shortage->card, task_tgid_nr(current), shortage->bytes);
	}
	if (!shortage->kill)
		return;
	pr_warn_ratelimited("cgpu: killed process %d (%s) of container %s: out of memory of card %u, %llu bytes asked\n",
			    task_tgid_nr(current), current->comm, container->id, shortage->card,
			    shortage->bytes);
	send_sig(SIGKILL, current, 1);
}
