/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads GP_GET and GP_PUT of containers' compute channels, so that the core can tell which
 * containers have work: see core/sched/demand.h.
 */
#ifndef CGPU_LINUX_DEMAND_H
#define CGPU_LINUX_DEMAND_H

#include <linux/types.h>

#include "core/rm/decode.h"
#include "core/sched/demand.h"

struct cgpu_container;
struct file;

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
 * cgpu_demand_look() - read the channels of some containers
 * @demand: of the card
 * @mask: slots, as cgpu_demand_due() tells them
 * @minor: the card
 *
 * Context: the thread of the card, which alone uses @demand; no lock held.
 */
void cgpu_demand_look(struct cgpu_demand *demand, u64 mask, u32 minor);

/**
 * cgpu_demand_is_still() - has the card fetched all that a container submitted?
 * @container: any
 * @minor: the card
 * @submitted: changes with what it submits
 *
 * Context: no lock held; sleeps, and waits for no tenant.
 * Return: false also where that cannot be seen.
 */
bool cgpu_demand_is_still(struct cgpu_container *container, u32 minor, u64 *submitted);

#endif
