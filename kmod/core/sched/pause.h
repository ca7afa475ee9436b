/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who pauses, who rests, who is held up by its processor; and whether windows are made
 * on demand. Private to core/sched.
 */
#ifndef CGPU_CORE_SCHED_PAUSE_H
#define CGPU_CORE_SCHED_PAUSE_H

#include "core/types.h"
#include "core/sched/sched.h"

/* The slot competes, has a share, and work. */
bool cgpu_is_awake(const struct cgpu_sched *s, uint32_t slot);
/* Its class: its priority where priorities are classes. */
uint32_t cgpu_class(const struct cgpu_sched *s, uint32_t slot);
/* Those who compete are of more than one. */
bool cgpu_has_classes(const struct cgpu_sched *s);

/* The log of context switches is read; else only the channels tell who pauses. */
bool cgpu_pause_is_logged(const struct cgpu_sched *s, uint64_t now_ns);

bool cgpu_pauses(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* Somebody who holds the card open pauses beside somebody who does not rest. */
bool cgpu_pause_wants_demand(const struct cgpu_sched *s, uint64_t now_ns);
/* Somebody may pause, and the log has still to tell. */
bool cgpu_pause_is_unclear(const struct cgpu_sched *s);

/* It has slept for long. */
bool cgpu_pause_rests(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* By the clock: it is not known to have no work, and keeps its windows though it sleeps. */
bool cgpu_pause_is_unproven(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* Slots that have slept for so long that the others' shares are made without them. */
uint64_t cgpu_pause_resting(const struct cgpu_sched *s, uint64_t now_ns);
/* One works at most, and all others have slept for long. */
bool cgpu_pause_is_quiet(const struct cgpu_sched *s, uint64_t now_ns);
/* All others than the one that has the card sleep, and submitted nothing; their gates are open. */
bool cgpu_pause_was_alone(const struct cgpu_sched *s, uint64_t since_ns);

/* It wakes now from what was a sleep: long enough, and it ran little meanwhile. */
bool cgpu_pause_is_over(const struct cgpu_sched_fair_slot *f, uint64_t now_ns);
/* It has slept for long enough to tell, by the log: it ran little meanwhile. */
bool cgpu_pause_slept(const struct cgpu_sched *s, uint32_t slot);

/* Its processor holds it up, as far as is known; and the card is not to be held for it. */
bool cgpu_is_kept(const struct cgpu_sched *s, uint32_t slot);
bool cgpu_divides(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* One is nearly as fast beside others as alone: the runlist divides the card. */
bool cgpu_pause_divides(const struct cgpu_sched *s);

/*
 * Under slices the log was read: what they gave the slot, and what it made of them.
 * @missed_ns: its share of what all ran since the last reading, less what it ran.
 */
void cgpu_pause_judge_use(struct cgpu_sched *s, uint32_t slot, int64_t missed_ns, uint64_t now_ns);
/* Somebody slept: slices are not tried again for a while. */
void cgpu_pause_found(struct cgpu_sched *s, uint64_t now_ns);
/* Under slices it was seen with nothing queued, if @empty. */
void cgpu_pause_note_empty(struct cgpu_sched *s, uint32_t slot, bool empty);
/* A plan was made whose mode may not be @was. */
void cgpu_pause_change_mode(struct cgpu_sched *s, uint32_t was, uint64_t now_ns);

#endif
