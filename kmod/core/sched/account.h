/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The accounts of the scheduler's entities: how far each is behind or ahead of its share. plan and
 * window decide by them; switch_log corrects them by what the card did. Private to core/sched.
 */
#ifndef CGPU_CORE_SCHED_ACCOUNT_H
#define CGPU_CORE_SCHED_ACCOUNT_H

#include "core/types.h"
#include "core/sched/bounds.h"
#include "core/sched/sched.h"

/* x × ppm / 1e6; x must stay below 2^43 ns (two hours), as periods and windows do */
uint64_t cgpu_part(uint64_t x, uint64_t ppm);

/* The slot is present and holds the card open. */
bool cgpu_opened(const struct cgpu_sched *s, uint32_t slot);
/* The slot holds the card open, computes and may have a share. */
bool cgpu_competes(const struct cgpu_sched *s, uint32_t slot);
/* The first competing slot from @slot on; slot_end: there is none. */
uint32_t cgpu_competing_from(const struct cgpu_sched *s, uint32_t slot);
#define for_each_competing(s, i) \
	for (i = cgpu_competing_from(s, 0); i < (s)->slot_end; i = cgpu_competing_from(s, i + 1))

/* The entity's share depends on the others': its window moves when they come and go. */
bool cgpu_entity_is_elastic(const struct cgpu_sched *s, uint32_t entity);

/* As far as is known, no container will run in the entity's window. */
bool cgpu_entity_quiet(const struct cgpu_sched *s, uint32_t entity);

/* The entity was without work recently, and may be again when its window ends. */
bool cgpu_entity_paused(const struct cgpu_sched *s, uint32_t entity, uint64_t now_ns);
void cgpu_entity_pause(struct cgpu_sched *s, uint32_t entity, uint64_t now_ns);

/* What a hand-over takes of the window that begins, and of the one that ends. */
uint64_t cgpu_entry_ns(bool from_rest);
uint64_t cgpu_exit_ns(bool to_rest);

/**
 * cgpu_entity_swing() - the planned lag of an entity when its window begins
 * @e: the entity
 *
 * Its lag at the window's end is as much below zero, so that all planned lags
 * add up to zero at any time.
 */
int64_t cgpu_entity_swing(const struct cgpu_sched_entity *e);

/* The planned lag of an entity at this moment of the period. */
int64_t cgpu_entity_planned_lag(const struct cgpu_sched *s, uint32_t entity, uint64_t now_ns);

/**
 * cgpu_entity_window_end() - when a window should end
 * @e: the entity that has the window
 * @frame_ns: beginning of its period
 * @then_ns: when it begins, or goes on
 * @cost_ns: of it, still to be lost to the hand-over
 * @lag_ns: the entity's lag at @then_ns
 *
 * Return: the planned end, moved by half of the lag that would remain. Half,
 * because the planned ends of the others' windows return the other half.
 */
uint64_t cgpu_entity_window_end(const struct cgpu_sched_entity *e, uint64_t frame_ns,
				uint64_t then_ns, uint64_t cost_ns, int64_t lag_ns);

/* Brings an entity's lag up to the card's clock. */
void cgpu_entity_settle(struct cgpu_sched *s, uint32_t entity);
/* Caps lag above zero at one period's grant. Return: true if it was above. */
bool cgpu_entity_cap_lag(const struct cgpu_sched *s, struct cgpu_sched_entity *e);

/* Sets an entity's lag, from which it begins anew. */
void cgpu_entity_set_lag(struct cgpu_sched *s, uint32_t entity, int64_t lag_ns);

/*
 * Makes the lags add up to zero again after an entity came, went or was capped. The difference is
 * spread by share over entities whose windows may move. Their order and the period's length stay.
 */
void cgpu_entities_balance(struct cgpu_sched *s);

/* Forgets what was had more than a second ago; a second is counted in @parts. */
void cgpu_second_move(struct cgpu_sched_second *of, uint64_t parts, uint64_t now_ns);
/* The part that was filled @back parts ago; 0: the one that is filled now. */
uint32_t *cgpu_second_part(struct cgpu_sched_second *of, uint64_t parts, uint64_t back);
/*
 * Adds to the part that is filled. A negative @ns may also be taken from earlier parts, within a
 * sixteenth of a second. A log that was read late may hold more than a second at once. It counts as
 * one second, after which nothing of any share is left.
 */
void cgpu_second_add(struct cgpu_sched_second *of, uint64_t parts, int64_t ns);

/*
 * Counts what was granted, and spent at shut gates, up to @now_ns. charge() also charges the open
 * window for it.
 */
void cgpu_entities_grant(struct cgpu_sched *s, uint64_t now_ns);
void cgpu_entities_charge(struct cgpu_sched *s, uint64_t now_ns);

/* A window was opened; @unpaid_ns of it will be lost to hand-overs. */
void cgpu_entities_begin_window(struct cgpu_sched *s, uint64_t unpaid_ns, uint64_t now_ns);

/* For stat: the slot ran for @used_ns; the card was handed to the entity. */
void cgpu_entity_used(struct cgpu_sched *s, uint32_t slot, uint64_t used_ns);
void cgpu_entity_switched(struct cgpu_sched *s, uint32_t entity);

/**
 * cgpu_entity_ran_early() - charge a start before the window
 * @s: the scheduler
 * @entity: the one that started early
 * @before: the one in whose window it started: that one was idle, its gate still open
 * @ns: for how long
 * @now_ns: the time
 *
 * The time is moved from one account to the other.
 */
void cgpu_entity_ran_early(struct cgpu_sched *s, uint32_t entity, uint32_t before, uint64_t ns,
			   uint64_t now_ns);

#endif
