/* SPDX-License-Identifier: GPL-2.0-only */
/* Where the USERD of a container's channels is mapped: see core/memory/userd.h. */
#ifndef CGPU_LINUX_USERD_H
#define CGPU_LINUX_USERD_H

#include <linux/types.h>

#include "core/memory/userd.h"
#include "core/sched/demand.h"

struct file;
struct mm_struct;

/* Under container->lock; handed from core to core. */
struct cgpu_userd_table {
	struct cgpu_userds core;
	struct cgpu_demand_channel demand[CGPU_USERD_CHANNELS];
	struct {
		struct mm_struct *mm;    /* its structure is held, not its memory */
		const struct file *file; /* compared, never used */
		u64 at;                  /* 0: not found yet */
	} map[CGPU_USERD_MAPS];
	unsigned long silent;            /* jiffies: not read before then; 0: it may be */
};

/**
 * cgpu_userds_free() - free a container's table
 * @table: the caller has the only pointer; NULL is allowed
 *
 * Context: process.
 */
void cgpu_userds_free(struct cgpu_userd_table *table);
u64 cgpu_userds_digest(u64 digest);

#endif
