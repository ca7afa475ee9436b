// SPDX-License-Identifier: GPL-2.0-only
/* A process that is killed for lack of memory sees no status: log and standard error say why. */
#include <linux/sched/signal.h>

#include "shortage.h"
#include "door/events.h"
#include "door/notice.h"

void cgpu_shortage_report(struct cgpu_container *container, const struct cgpu_shortage *shortage)
{
	/* a tenant must not push all other lines out of `events` */
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
	cgpu_notice("cgpu: killed process %d (%s): out of memory of card %u: %llu bytes asked beyond what its container may have; ask for more memory when the container is created",
		    task_tgid_vnr(current), current->comm, shortage->card, shortage->bytes);
	send_sig(SIGKILL, current, 1);
}
