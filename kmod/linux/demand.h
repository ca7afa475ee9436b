/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Looks at GP_GET and GP_PUT of containers' compute channels, for the core to tell
 * who has work: see core/sched/demand.h.
 */
#ifndef CGPU_LINUX_DEMAND_H
#define CGPU_LINUX_DEMAND_H

#include <linux/types.h>

#include "core/rm/decode.h"
#include "core/sched/demand.h"

struct cgpu_container;
struct file;
struct rt_mutex;

/**
 * cgpu_userds_note() - a call has come back from the driver: is it about a USERD?
 * @container: whose process called
 * @req: the call
 * @args: its argument
 * @params: the call's own copy of its parameters
 * @named: a mapping of memory happens by the next mmap of this file
 *
 * Context: the process that called; no lock held.
 */
void cgpu_userds_note(struct cgpu_container *container, const struct cgpu_request *req,
		      const void *args, const void *params, struct file *named);

/**
 * cgpu_demand_follow() - look who has work, if it is time
 * @demand: of the card
 * @sched: of the card
 * @sched_lock: guards @sched; not held
 * @minor: the card
 *
 * Context: the thread of the card, which alone uses @demand.
 * Return: when it is time again, 0: the scheduler was told something new.
 */
u64 cgpu_demand_follow(struct cgpu_demand *demand, struct cgpu_sched *sched,
		       struct rt_mutex *sched_lock, u32 minor);

#endif
