/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A gate before the core: callers pass in no time while it is open, and wait
 * while it is closed. Closing waits until nobody is behind it, so that the
 * core can be replaced.
 */
#ifndef CGPU_DOOR_GATE_H
#define CGPU_DOOR_GATE_H

#include <linux/percpu.h>
#include <linux/wait.h>

struct cgpu_gate_count {
	unsigned long entered, left;
};

struct cgpu_gate {
	bool closed;
	struct cgpu_gate_count __percpu *count;
	wait_queue_head_t opened;
};

#define CGPU_GATE_INIT(name, counts) {						\
	.count = &(counts),							\
	.opened = __WAIT_QUEUE_HEAD_INITIALIZER((name).opened),			\
}

/* Context: sleeps while the gate is closed. */
void cgpu_gate_enter(struct cgpu_gate *gate);
void cgpu_gate_leave(struct cgpu_gate *gate);

/*
 * One closer at a time. Return: 0: nobody is behind it; -EBUSY: somebody still
 * was after `limit_ns`, and it is open again.
 */
int cgpu_gate_close(struct cgpu_gate *gate, u64 limit_ns);
void cgpu_gate_open(struct cgpu_gate *gate);

#endif
