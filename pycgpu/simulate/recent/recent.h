/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A scheduler that decides by one number: what each entity used of the last second (book). It
 * observes who has work, takes bounds from the policy, picks by comparison, and actuates by gates.
 * Each of these parts knows only those before it. So far the simulator alone runs it, beside
 * core/sched: docs/recent.md.
 *
 * The caller holds its lock around every function here and releases it while it carries out the
 * actions, as for core/sched/sched.h.
 */
#ifndef CGPU_SIMULATE_RECENT_RECENT_H
#define CGPU_SIMULATE_RECENT_RECENT_H

#include "core/types.h"
#include "recent/book.h"
#include "recent/observe.h"
#include "recent/pick.h"
#include "core/sched/policy.h"
#include "core/sched/sched.h"

struct cgpu_recent_slot {
	bool present;
	bool throttled;
	bool pauses;           /* it slept of late */
	bool quiet;            /* by the log it did not run in its last turn */
	uint64_t ran_ns;       /* its last turn began */
	uint32_t groups;
	uint32_t slice_us, wanted_us;
	uint64_t open_ns;      /* its gate opened */
	uint64_t came_ns;      /* it opened the card */
	struct cgpu_policy_member member;
	/* windows by the clock: */
	uint64_t width_ns, cost_ns, offset_ns;
};

struct cgpu_recent {
	uint32_t policy, max_inst;
	uint64_t unit_ns, phase_ns;
	bool dirty, by_clock, whole, is_logged;
	uint64_t review_ns;
	uint64_t period_ns, spread_ns, frame_ns;
	uint32_t count;        /* of windows by the clock */
	uint8_t order[65];
	uint8_t place;         /* of the window that is open */
	uint64_t nobodys_ns;   /* nobody's window: its width, */
	uint64_t nobodys_offset_ns;

	uint32_t curr, next;   /* slot that has the card, or NONE */
	bool begun;            /* by the clock: a window is open, nobody's perhaps */
	bool moving;           /* calls under way begin `next` */
	uint64_t began_ns, end_ns, next_end_ns, unpaid_ns;

	uint64_t open_mask, shut_mask, stale_mask, missed_mask;
	uint64_t open_call_ns, shut_call_ns;
	uint32_t pending;
	uint64_t issued_ns, retry_ns, failures;
	uint64_t still_ns;     /* no gate has moved since */

	uint64_t look_ns, log_ns; /* the next ones are due */
	uint32_t slot_end;
	struct cgpu_recent_slot slot[64];
	struct cgpu_policy_share share[64];
	struct cgpu_policy_member scratch[64];
	struct cgpu_pick_entity entity[64];
	uint32_t due_ppm[64];
	uint64_t due_to_ns;    /* windows up to then are in the book */
	struct cgpu_book book;
	struct cgpu_observe observe;
};

void cgpu_recent_init(struct cgpu_recent *r, uint64_t now_ns);
int cgpu_recent_card(struct cgpu_recent *r, uint32_t policy, uint32_t max_inst,
		     uint32_t timeslice_us, uint64_t now_ns);
int cgpu_recent_set(struct cgpu_recent *r, uint32_t slot, const struct cgpu_policy_member *member,
		    uint64_t now_ns);
void cgpu_recent_open(struct cgpu_recent *r, uint32_t slot, bool open, uint32_t groups,
		      uint64_t now_ns);
bool cgpu_recent_may_run(const struct cgpu_recent *r, uint32_t slot);
void cgpu_recent_held(struct cgpu_recent *r, uint32_t slot);

/* By the log the slot ran for so long, switched among its processes, and was loaded so often. */
void cgpu_recent_used(struct cgpu_recent *r, uint32_t slot, uint64_t ns,
		      uint64_t switched_ns, uint32_t loads);
/* All that the log tells until now was told. */
void cgpu_recent_logged(struct cgpu_recent *r, uint64_t now_ns);

/*
 * Call after a tick that asks for nothing. Return: when to look; `*mask`: at whose channels; 0:
 * into the log.
 */
uint64_t cgpu_recent_due(struct cgpu_recent *r, uint64_t now_ns, uint64_t *mask);
/* The channels of all slots of `mask` were read. */
void cgpu_recent_looked(struct cgpu_recent *r, uint64_t mask, uint64_t now_ns);

uint32_t cgpu_recent_tick(struct cgpu_recent *r, uint64_t now_ns, struct cgpu_sched_action *out,
			  uint64_t *wake_ns);
void cgpu_recent_done(struct cgpu_recent *r, const struct cgpu_sched_action *action,
		      uint64_t start_ns, uint64_t end_ns, int status);

#endif
