/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which containers pause, rest, or are held up by their processor; and whether windows are made on
 * demand. Private to core/sched.
 */
#ifndef CGPU_CORE_SCHED_PAUSE_H
#define CGPU_CORE_SCHED_PAUSE_H

#include "core/types.h"
#include "core/sched/sched.h"

/* The slot competes, has a share, and has work. */
bool cgpu_is_awake(const struct cgpu_sched *s, uint32_t slot);
/* The slot's class: its priority where priorities are classes, otherwise 0. */
uint32_t cgpu_class(const struct cgpu_sched *s, uint32_t slot);
/* The competing slots are of more than one class. */
bool cgpu_has_classes(const struct cgpu_sched *s);

/* The log of context switches is read. Otherwise only the channels tell which slots pause. */
bool cgpu_pause_is_logged(const struct cgpu_sched *s, uint64_t now_ns);

bool cgpu_pauses(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* Windows are to be on demand: a slot pauses, one works beside resting ones, or classes differ. */
bool cgpu_pause_wants_demand(const struct cgpu_sched *s, uint64_t now_ns);
/* A slot under slices may pause, and the log has still to tell. */
bool cgpu_pause_is_unclear(const struct cgpu_sched *s);

/* The slot has slept for CGPU_SCHED_FAIR_REST_NS. */
bool cgpu_pause_rests(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* By the clock, the slot is not known to have no work, and keeps its windows though it sleeps. */
bool cgpu_pause_is_unproven(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* Returns the slots that slept for so long that the others' shares are made without them. */
uint64_t cgpu_pause_resting(const struct cgpu_sched *s, uint64_t now_ns);
/* At most one slot works, and all others have slept for long. */
bool cgpu_pause_is_quiet(const struct cgpu_sched *s, uint64_t now_ns);
/*
 * Since @since_ns all slots but the one that has the card slept with open gates, and submitted
 * nothing.
 */
bool cgpu_pause_was_alone(const struct cgpu_sched *s, uint64_t since_ns);

/* The slot's sleep, which ends now, was long enough, and the slot ran little in it. */
bool cgpu_pause_is_over(const struct cgpu_sched_fair_slot *f, uint64_t now_ns);
/* The slot has slept for long enough to tell by the log that it ran little in its sleep. */
bool cgpu_pause_slept(const struct cgpu_sched *s, uint32_t slot);

/* The slot's processor holds it up, as far as is known; and the card is not to be held for it. */
bool cgpu_is_kept(const struct cgpu_sched *s, uint32_t slot);
bool cgpu_divides(const struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* A slot is nearly as fast beside others as alone: the runlist may divide the card. */
bool cgpu_pause_divides(const struct cgpu_sched *s);

/*
 * Tells from the log, under slices, what they gave the slot and what it ran. @missed_ns: its share
 * of what all ran since the last reading, less what it ran.
 */
void cgpu_pause_judge_use(struct cgpu_sched *s, uint32_t slot, int64_t missed_ns, uint64_t now_ns);
/* A slot slept: slices are not tried again for a while. */
void cgpu_pause_found(struct cgpu_sched *s, uint64_t now_ns);
/* If @empty, the slot was seen with nothing queued. */
void cgpu_pause_note_empty(struct cgpu_sched *s, uint32_t slot, bool empty);
/* A plan was made; @was is the mode before it. */
void cgpu_pause_change_mode(struct cgpu_sched *s, uint32_t was, uint64_t now_ns);

#endif
