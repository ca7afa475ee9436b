/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Windows on demand: who has the card while somebody pauses beside somebody who works.
 * Private to core/sched.
 */
#ifndef CGPU_CORE_SCHED_FAIR_H
#define CGPU_CORE_SCHED_FAIR_H

#include "core/types.h"
#include "core/sched/sched.h"

/* The mode was @was before this plan. After its shares: who is new, or rested, starts level. */
void cgpu_fair_plan(struct cgpu_sched *s, uint32_t was, uint64_t now_ns);

/* Brings all accounts up to @now_ns: those of windows by the clock, and these. */
void cgpu_sched_charge(struct cgpu_sched *s, uint64_t now_ns);

/**
 * cgpu_fair_pick() - choose who has the card
 * @s: the scheduler
 * @now_ns: the time
 * @wake_ns: when to choose again at the latest
 *
 * Return: slots whose gates may be open; who it is, is fair.next.
 */
uint64_t cgpu_fair_pick(struct cgpu_sched *s, uint64_t now_ns, uint64_t *wake_ns);

/* The gates are as cgpu_fair_pick() wanted them. */
void cgpu_fair_begin(struct cgpu_sched *s, uint64_t now_ns);

/*
 * When the log is to tell whether the owner of the present turn had work when it began; 0:
 * it has told, or need not: that one never pauses.
 */
uint64_t cgpu_fair_asks_ns(const struct cgpu_sched *s);
/* It had none: its gate opened, and its context was not loaded. */
bool cgpu_fair_was_empty(const struct cgpu_sched *s, uint32_t slot);

/* The runlist has come to each whose gate is open by then. */
uint64_t cgpu_fair_round_ns(const struct cgpu_sched *s);

/* One that wakes has its turn by the runlist about as soon as gates would move for it. */
bool cgpu_fair_carries(const struct cgpu_sched *s);

/* The log: the slot was loaded so often, and so long switched among its own processes. */
void cgpu_fair_loaded(struct cgpu_sched *s, uint32_t slot, uint32_t loads, uint64_t switched_ns);

/*
 * The log of context switches was read, up to now: who ran in others' time is charged.
 * @loaded: the slot whose context is loaded, or NONE.
 */
void cgpu_fair_settle(struct cgpu_sched *s, uint32_t loaded, uint64_t now_ns);

#endif
