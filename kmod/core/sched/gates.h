/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What is known of each container's gate and slice. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_GATES_H
#define CGPU_CORE_SCHED_GATES_H

#include "core/types.h"
#include "core/sched/sched.h"

/* The slot's channels are now moved by its gate, or no longer: it closed the card. */
void cgpu_sched_gate_add(struct cgpu_sched *s, uint32_t slot);
void cgpu_sched_gate_remove(struct cgpu_sched *s, uint32_t slot);
/* Channels of it came that the caller shut. */
void cgpu_sched_gate_held(struct cgpu_sched *s, uint32_t slot);
/* Channels of it came that may not be as its gate is. */
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
/* The gates may not be as the open window wants them; or they were found to be, or moved. */
void cgpu_sched_gates_regate(struct cgpu_sched *s, bool regate);
/* All calls under way did, or are given up: later ones know of all channels. */
void cgpu_sched_gates_all_done(struct cgpu_sched *s);

#endif
