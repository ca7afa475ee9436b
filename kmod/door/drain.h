/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A drain before code that can be replaced. Callers pass at the cost of a per-CPU counter while it
 * is open and wait while it is closed; closing it waits until no caller is left behind it. To
 * lockdep it is a lock that callers hold for reading and the closer for writing.
 */
#ifndef CGPU_DOOR_DRAIN_H
#define CGPU_DOOR_DRAIN_H

#include <linux/lockdep.h>
#include <linux/percpu.h>
#include <linux/wait.h>

struct cgpu_drain_count {
	unsigned long entered, left;
};

struct cgpu_drain {
	bool closed;
	struct cgpu_drain_count __percpu *count;
	wait_queue_head_t opened;
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	struct lockdep_map dep_map;
#endif
};

#ifdef CONFIG_DEBUG_LOCK_ALLOC
#define CGPU_DRAIN_DEP_MAP(name) .dep_map = STATIC_LOCKDEP_MAP_INIT(#name, &(name)),
#else
#define CGPU_DRAIN_DEP_MAP(name)
#endif

#define CGPU_DRAIN_INIT(name, counts) {						\
	.count = &(counts),							\
	.opened = __WAIT_QUEUE_HEAD_INITIALIZER((name).opened),			\
	CGPU_DRAIN_DEP_MAP(name)						\
}

/**
 * cgpu_drain_enter() - pass the drain, or wait until it is open
 * @drain: may be entered again by a caller that is behind it already
 *
 * Context: sleeps while the drain is closed.
 */
void cgpu_drain_enter(struct cgpu_drain *drain);

/**
 * cgpu_drain_leave() - end what cgpu_drain_enter() began, in the same task
 * @drain: the one that was entered
 */
void cgpu_drain_leave(struct cgpu_drain *drain);

/**
 * cgpu_drain_close() - let no caller in and wait until all have left
 * @drain: one closer at a time
 * @limit_ns: how long to wait
 *
 * Return: 0: no caller is behind it; -EBUSY: one still was after @limit_ns,
 * and it is open again.
 */
int cgpu_drain_close(struct cgpu_drain *drain, u64 limit_ns);

/**
 * cgpu_drain_open() - undo cgpu_drain_close()
 * @drain: one that is closed
 */
void cgpu_drain_open(struct cgpu_drain *drain);

#endif
