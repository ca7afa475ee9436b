/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What is known of each container's gate and slice. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_GATES_H
#define CGPU_CORE_SCHED_GATES_H

#include "core/types.h"
#include "core/sched/sched.h"

/*
 * The gate moves the slot's channels from now on; or no longer, because the slot closed the card.
 */
void cgpu_sched_gate_add(struct cgpu_sched *s, uint32_t slot);
void cgpu_sched_gate_remove(struct cgpu_sched *s, uint32_t slot);
/* The slot got channels that the caller shut. */
void cgpu_sched_gate_held(struct cgpu_sched *s, uint32_t slot);
/* The slot got channels that may not be in its gate's state. */
void cgpu_sched_gate_renewed(struct cgpu_sched *s, uint32_t slot);

/**
 * cgpu_sched_gates_move() - find the calls that leave the gates of @mask open, and no others
 * @s: the scheduler
 * @mask: the slots
 * @overlap: the next may open before the present one shuts
 * @out: the calls
 *
 * Return: how many.
 */
uint32_t cgpu_sched_gates_move(struct cgpu_sched *s, uint64_t mask, bool overlap,
			       struct cgpu_sched_action *out);
/* A call ended. */
void cgpu_sched_gates_done(struct cgpu_sched *s, const struct cgpu_sched_action *action,
			   uint64_t start_ns, uint64_t end_ns, int status);
/* If @regate, gates may differ from what the open window wants; otherwise they do not. */
void cgpu_sched_gates_regate(struct cgpu_sched *s, bool regate);
/* All calls under way ended or are given up: later calls know of all channels. */
void cgpu_sched_gates_all_done(struct cgpu_sched *s);

#endif
