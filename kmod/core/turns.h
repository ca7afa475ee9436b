/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The engine's accounts: who is entitled to how much of the card's time, as
 * turns in a period, and what each has taken beyond it. sched.c decides by
 * them whose window it is, pool.c who gets what of a shared one, and ctxsw.c
 * corrects them by what the card did; nobody else needs this header.
 */
#ifndef CGPU_CORE_TURNS_H
#define CGPU_CORE_TURNS_H

#include "types.h"
#include "sched.h"

/* x × ppm / 1e6; x below 2^43 ns (two hours), which a period and a window are */
uint64_t cgpu_part(uint64_t x, uint64_t ppm);

/* The slot is present and holds the card open. */
bool cgpu_opened(const struct cgpu_sched *s, uint32_t slot);

/* Its window may move when others come and go, and may be handed on. */
bool cgpu_turn_elastic(const struct cgpu_sched *s, uint32_t turn);

/* Nobody will run in a window of that turn, for all we know. */
bool cgpu_turn_quiet(const struct cgpu_sched *s, uint32_t turn);

/* It was seen without work of late, and may have none again when its window ends. */
bool cgpu_turn_paused(const struct cgpu_sched *s, uint32_t turn, uint64_t now_ns);
void cgpu_turn_pause(struct cgpu_sched *s, uint32_t turn, uint64_t now_ns);

/* What a window loses at its beginning, by the one before, and at its end, by the next. */
uint64_t cgpu_turn_entry(const struct cgpu_sched *s, uint32_t before);
uint64_t cgpu_turn_exit(const struct cgpu_sched *s, uint32_t after);

/* What switching among themselves takes of the window of those who share one. */
uint64_t cgpu_turn_inner(const struct cgpu_sched *s, uint32_t turn);

/* Somebody tells who is idle, soon enough for a window to be handed on. */
bool cgpu_turns_sighted(const struct cgpu_sched *s);

/*
 * Debt of a turn when its window ends, if all goes as planned; it begins as much
 * below zero. So all debts together are zero at any time.
 */
int64_t cgpu_turn_expected(const struct cgpu_sched_turn *t);
/* Debt of a turn at this moment of the period, if all goes as planned. */
int64_t cgpu_turn_planned(const struct cgpu_sched *s, uint32_t turn, uint64_t now_ns);

/*
 * When a window should end that begins, or goes on, at `then_ns`, with `cost_ns`
 * still to be lost and with `debt_ns`: as planned, less half of what would then be
 * owed. Half, because the planned ends of the others' windows return the other
 * half by themselves.
 */
uint64_t cgpu_turn_ends(const struct cgpu_sched_turn *t, uint64_t frame_ns, uint64_t then_ns,
			uint64_t cost_ns, int64_t debt_ns);

/* Brings a turn's debt up to the card's clock. */
void cgpu_turn_settle(struct cgpu_sched *s, uint32_t turn);
/* Credit is capped at one period's grant, debt is not. Return: true if it was. */
bool cgpu_turn_cap_credit(const struct cgpu_sched *s, struct cgpu_sched_turn *t);

/*
 * Turns come and go with their debts, and credit is capped. What the debts then
 * add up to is spread by share over those whose windows may move, which leaves
 * them as far behind or ahead of each other as before, and keeps the period at
 * its length.
 */
void cgpu_turns_balance(struct cgpu_sched *s);

/* Of two slots, a has had less than b, each for its share. */
bool cgpu_turn_behind(const struct cgpu_sched *s, uint32_t a, int64_t a_ns, uint32_t b,
		      int64_t b_ns);
/* What slot a would have had, for its share, had it had as much as b. */
int64_t cgpu_turn_level(const struct cgpu_sched *s, uint32_t a, uint32_t b, int64_t b_ns);

/* Slot a got less of others' idle time for its share than slot b. */
bool cgpu_turn_fewer_gifts(const struct cgpu_sched *s, uint32_t a, uint32_t b);
/* One that was away or idle has not saved up gifts: it goes on where the others are. */
void cgpu_turn_forget_gifts(struct cgpu_sched *s, uint32_t slot);

/* Counts what was granted up to `now_ns`; charges the open window for it. */
void cgpu_turns_grant(struct cgpu_sched *s, uint64_t now_ns);
void cgpu_turns_charge(struct cgpu_sched *s, uint64_t now_ns);

/* It ran so much longer than its last window was: in `before`'s, whose gate was open still. */
void cgpu_turn_ran_early(struct cgpu_sched *s, uint32_t turn, uint32_t before, uint64_t ns,
			 uint64_t now_ns);

/*
 * A group of the slot began, and the next one so much later, right after it: if the
 * slice was all used, the rest is what a switch takes.
 */
void cgpu_turn_lasted(struct cgpu_sched *s, uint32_t slot, uint64_t turn_ns);

/* Beginning of the period of the grid that `now_ns` lies in. */
uint64_t cgpu_turns_frame(const struct cgpu_sched *s, uint64_t now_ns);

/* After an event: what everybody is entitled to from now on. */
void cgpu_turns_plan(struct cgpu_sched *s, uint64_t now_ns);

#endif
