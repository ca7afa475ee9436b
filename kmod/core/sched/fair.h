/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Windows on demand: which container has the card while some work and some pause. Private to
 * core/sched.
 */
#ifndef CGPU_CORE_SCHED_FAIR_H
#define CGPU_CORE_SCHED_FAIR_H

#include "core/types.h"
#include "core/sched/sched.h"

/*
 * Call after the plan's shares are made; @was is the mode before. A container that is new or rested
 * starts level.
 */
void cgpu_fair_plan(struct cgpu_sched *s, uint32_t was, uint64_t now_ns);

/* Brings all accounts up to @now_ns: those of windows by the clock, and those on demand. */
void cgpu_sched_charge(struct cgpu_sched *s, uint64_t now_ns);

/**
 * cgpu_fair_pick() - choose who has the card
 * @s: the scheduler
 * @now_ns: the time
 * @wake_ns: when to choose again at the latest
 *
 * Return: slots whose gates may be open. The choice is in fair.next.
 */
uint64_t cgpu_fair_pick(struct cgpu_sched *s, uint64_t now_ns, uint64_t *wake_ns);

/* Call when the gates are as cgpu_fair_pick() wanted them. */
void cgpu_fair_begin(struct cgpu_sched *s, uint64_t now_ns);

/*
 * When to read the log, to learn whether the turn's owner had work when the turn began. 0: the log
 * has told, or the owner never pauses.
 */
uint64_t cgpu_fair_asks_ns(const struct cgpu_sched *s);
/* The turn's owner had no work: its gate opened, and its context was not loaded. */
bool cgpu_fair_was_empty(const struct cgpu_sched *s, uint32_t slot);

/* The time in which the runlist comes to each slot whose gate is open. */
uint64_t cgpu_fair_round_ns(const struct cgpu_sched *s);

/* A wakeup gets its turn by the runlist about as soon as gates would move for it. */
bool cgpu_fair_carries(const struct cgpu_sched *s);

/* Tells from the log how often the slot was loaded, and for how long its own processes switched. */
void cgpu_fair_loaded(struct cgpu_sched *s, uint32_t slot, uint32_t loads, uint64_t switched_ns);

/*
 * Tells that the log was read up to now: containers that ran in others' time are charged. @loaded:
 * the slot whose context is loaded, or NONE.
 */
void cgpu_fair_settle(struct cgpu_sched *s, uint32_t loaded, uint64_t now_ns);

#endif
