/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The steps of a card's governor. It asks the scheduler, carries out what that decided, and tells
 * the outcome. If nothing was decided, it reads the log of context switches or looks at channels,
 * whichever is due, and asks again.
 *
 * The module, the agent and the simulator call cgpu_loop_next() under the scheduler's lock. They do
 * the step without the lock, and report by cgpu_loop_done(), again under it.
 */
#ifndef CGPU_CORE_SCHED_LOOP_H
#define CGPU_CORE_SCHED_LOOP_H

#include "core/types.h"
#include "core/sched/demand.h"
#include "core/sched/sched.h"
#include "core/sched/switch_log.h"

enum cgpu_loop_step {
	CGPU_LOOP_MOVE, /* carry out each of action[taken] to action[count - 1] */
	CGPU_LOOP_READ, /* have the driver write its log, and read that */
	CGPU_LOOP_LOOK, /* look at the channels of the slots in `mask` */
	CGPU_LOOP_WAIT  /* wait until wake_ns, due_ns or an event */
};

struct cgpu_loop {
	struct cgpu_sched *sched;
	struct cgpu_switch_log *log; /* NULL: the driver keeps none */
	struct cgpu_demand *demand;  /* NULL: channels are not looked at here */
	struct cgpu_sched_action *action; /* room for CGPU_SCHED_ACTIONS */
	uint32_t count, taken;
	uint64_t mask;
	uint64_t wake_ns;    /* when to ask the scheduler again, */
	uint64_t due_ns;     /* and when there is something to read; UINT64_MAX: at an event */
	uint64_t retry_ns;   /* after a failure, when to read the log again */
};

/* Context: the scheduler's lock. */
enum cgpu_loop_step cgpu_loop_next(struct cgpu_loop *loop, uint64_t now_ns);

/*
 * A step, or one of its actions, was done. `status`: 0, or an error. A log that could not be read
 * is read again a little later. Context: the scheduler's lock.
 */
void cgpu_loop_done(struct cgpu_loop *loop, enum cgpu_loop_step step, uint64_t start_ns,
		    uint64_t end_ns, int status);

#endif
