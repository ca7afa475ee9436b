// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The state machine of a card. A tick looks at the time, makes the plan if something
 * changed, and answers with calls: gates to shut or open, slices to program. Until the
 * caller has reported them all, nothing else is decided; then the window begins. The
 * next gate opens before the present one shuts, so that the hardware's switch overlaps
 * the second call, unless the one before was idle: then the next would start early.
 *
 * A failure fails open: every gate opens, and after a second it tries again.
 */
#include "core/sched/account.h"
#include "core/sched/fair.h"
#include "core/sched/plan.h"
#include "core/sched/window.h"

#define NEVER UINT64_MAX
#define SLOT_BIT(n) (1ULL << (n))

/* How long before the window's end the calls must start. */
static uint64_t lead(const struct cgpu_sched *s)
{
	if (!s->cur.begun)
		return 0;
	return (s->cur.owner == CGPU_SCHED_NOBODY ? 0 : s->gates.shut_ns) +
	       (cgpu_window_following(s) == CGPU_SCHED_NOBODY ? 0 : s->gates.open_ns);
}

static uint32_t gates(struct cgpu_sched *s, uint64_t mask, uint64_t now_ns,
		      struct cgpu_sched_action *out)
{
	/*
	 * Not after an entity that paused recently and may pause again, nor after
	 * nobody: the next one would start early.
	 */
	bool overlap = !s->cur.begun || !(cgpu_entity_paused(s, s->cur.owner, now_ns) ||
					  cgpu_entity_quiet(s, s->cur.owner));
	uint64_t open = (s->gates.open_mask | s->gates.stale_mask) & s->gates.shut_mask & mask;
	uint64_t shut = s->gates.open_mask & (~s->gates.shut_mask | s->gates.stale_mask) & ~mask;
	uint32_t n = 0;

	s->overlap = overlap && open && shut;
	/* the hardware's switch overlaps the second call */
	if (open && overlap)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_OPEN, 0, open };
	if (shut)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_SHUT, 0, shut };
	if (open && !overlap)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_OPEN, 0, open };
	return n;
}

/* The slots that run in an entity's window. */
static uint64_t runs_in(uint32_t entity)
{
	return entity < CGPU_SCHED_SLOTS ? SLOT_BIT(entity) : 0;
}

static uint32_t slices(struct cgpu_sched *s, struct cgpu_sched_action *out)
{
	uint64_t seen = 0;
	uint32_t i, j, n = 0;

	if (!s->plan.reslice)
		return 0;
	s->plan.reslice = false;
	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_slot *a = &s->slot[i];
		uint64_t mask = 0;

		if (!cgpu_opened(s, i) || !a->wanted_us || a->wanted_us == a->slice_us ||
		    (seen & SLOT_BIT(i)))
			continue;
		for (j = i; j < s->slot_end; j++) {
			struct cgpu_sched_slot *b = &s->slot[j];

			if (cgpu_opened(s, j) && b->groups && b->wanted_us == a->wanted_us &&
			    b->wanted_us != b->slice_us)
				mask |= SLOT_BIT(j);
		}
		seen |= mask;
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_SLICE, a->wanted_us, mask };
	}
	return n;
}

/* The window of `next` begins. */
static void begin(struct cgpu_sched *s, uint64_t now_ns)
{
	bool late = s->cur.begun && now_ns > s->cur.end_ns + CGPU_SCHED_WINDOW_MIN_NS;

	s->windows++;
	s->last = s->cur;
	s->last.ran_ns =
		now_ns - s->cur.began_ns - cgpu_min(s->cur.cost_ns, now_ns - s->cur.began_ns);
	s->cur.before = s->moving && s->overlap ? s->cur.owner : CGPU_SCHED_NONE;
	s->cur.began_ns = now_ns;
	cgpu_sched_charge(s, now_ns);
	if (late && s->cur.owner < CGPU_SCHED_SLOTS)
		s->slot[s->cur.owner].stat.overruns++;
	if (s->next.owner < CGPU_SCHED_SLOTS && (!s->cur.begun || s->next.owner != s->cur.owner))
		s->slot[s->next.owner].stat.switches++;
	s->cur.unpaid_ns = 0;
	if (!cgpu_entity_quiet(s, s->next.owner) &&
	    !(s->cur.begun && s->next.owner == s->cur.owner))
		s->cur.unpaid_ns =
			cgpu_entity_entry(s, s->cur.begun ? s->cur.owner : CGPU_SCHED_NOBODY);
	s->cur.owner = s->next.owner;
	if (!cgpu_entity_quiet(s, s->cur.owner))
		s->cur.unpaid_ns += cgpu_entity_exit(s, cgpu_window_following(s));
	s->cur.cost_ns = s->cur.unpaid_ns;
	s->cur.begun = true;
	s->moving = false;
	s->cur.charged_to_ns = now_ns;
	s->cur.end_ns = s->next.end_ns;
	if (late)
		s->cur.end_ns =
			cgpu_max(s->cur.end_ns, cgpu_window_overdue(s, s->cur.owner, now_ns));
	if (cgpu_entity_cap_lag(s, &s->entity[s->cur.owner]))
		cgpu_entities_balance(s);
}

static uint32_t hand_over(struct cgpu_sched *s, uint64_t now_ns, uint64_t then_ns,
			  struct cgpu_sched_action *out)
{
	uint32_t n;

	s->next.owner = cgpu_window_choose(s, then_ns, &s->next.end_ns);
	if (s->next.owner == CGPU_SCHED_NONE) {
		/* nobody holds the card open, or nobody with a weight does */
		s->cur.begun = false;
		return gates(s, 0, now_ns, out);
	}
	n = gates(s, runs_in(s->next.owner), now_ns, out);
	if (n)
		s->moving = true;
	else
		begin(s, now_ns);
	return n;
}

uint32_t cgpu_sched_tick(struct cgpu_sched *s, uint64_t now_ns, struct cgpu_sched_action *out,
			 uint64_t *wake_ns)
{
	uint64_t early, pick_ns;
	uint32_t n;

	if (s->calls.pending) {
		*wake_ns = s->calls.issued_ns + CGPU_SCHED_SECOND_NS;
		if (now_ns < *wake_ns)
			return 0;
		s->calls.pending = 0;
		s->gates.missed_mask = 0;
		s->moving = false;
		s->cur.begun = false;
		s->calls.failures++;
		s->calls.retry_ns = now_ns + CGPU_SCHED_SECOND_NS;
		s->plan.dirty = true;
	}
	if (now_ns < s->calls.hold_ns && !s->suspended) {
		*wake_ns = s->calls.hold_ns;
		return 0;
	}
	if (s->calls.retry_ns && now_ns >= s->calls.retry_ns) {
		s->calls.retry_ns = 0;
		s->plan.dirty = true;
	}
	if (s->plan.dirty || now_ns >= s->plan.review_ns) {
		cgpu_plan_make(s, now_ns);
		s->regate = true;
	}
	*wake_ns = s->calls.retry_ns ? s->calls.retry_ns : s->plan.review_ns;
	if (s->plan.mode == CGPU_SCHED_DEMAND) {
		cgpu_entities_grant(s, now_ns);
		n = gates(s, cgpu_fair_pick(s, now_ns, &pick_ns), now_ns, out);
		n += slices(s, out + n);
		if (!n)
			cgpu_fair_begin(s, now_ns);
		if (pick_ns != NEVER)
			*wake_ns = cgpu_min(*wake_ns,
					    cgpu_max(now_ns + CGPU_SCHED_SOON_NS, pick_ns));
	} else if (s->plan.mode != CGPU_SCHED_WINDOWS) {
		cgpu_entities_grant(s, now_ns);
		n = gates(s, ~0ULL, now_ns, out);
		n += slices(s, out + n);
	} else {
		n = slices(s, out);
		early = lead(s);
		if (!s->cur.begun || now_ns + early >= s->cur.end_ns)
			n += hand_over(s, now_ns, now_ns + early, out + n);
		else if (s->regate)
			n += gates(s, runs_in(s->cur.owner), now_ns, out + n);
		s->regate = false;
		early = lead(s);
		if (s->cur.begun)
			*wake_ns = cgpu_min(*wake_ns, cgpu_max(now_ns + CGPU_SCHED_SOON_NS,
							       s->cur.end_ns - early));
	}
	if (n) {
		s->calls.pending = n;
		s->calls.issued_ns = now_ns;
		*wake_ns = now_ns + CGPU_SCHED_SECOND_NS;
	}
	return n;
}

static uint64_t average(uint64_t old, uint64_t ns)
{
	/* one stop of 20 ms does not predict the next */
	return (old * 7 + cgpu_min(ns, old + 200000)) / 8;
}

void cgpu_sched_done(struct cgpu_sched *s, const struct cgpu_sched_action *action,
		     uint64_t start_ns, uint64_t end_ns, int status)
{
	uint64_t mask;
	uint32_t i;
	bool missed;

	s->calls.count++;
	/* up to now the gates were as they were */
	cgpu_entities_grant(s, end_ns);
	for (i = 0, mask = action->mask; mask; i++, mask >>= 1) {
		struct cgpu_sched_slot *slot = &s->slot[i];

		if (!(mask & 1) || !slot->present)
			continue;
		missed = s->gates.missed_mask >> i & 1;
		if (action->kind != CGPU_SCHED_SLICE && !status && !missed)
			s->gates.stale_mask &= ~SLOT_BIT(i);
		if (action->kind == CGPU_SCHED_SLICE && !status) {
			slot->slice_us = action->slice_us;
		} else if (action->kind == CGPU_SCHED_SHUT) {
			/* even if it failed: then it must be opened */
			s->gates.shut_mask |= SLOT_BIT(i);
			s->gates.stale_mask |= missed ? SLOT_BIT(i) : 0;
		} else if (action->kind == CGPU_SCHED_OPEN && !status && !missed &&
			   (s->gates.shut_mask & SLOT_BIT(i))) {
			s->gates.shut_mask &= ~SLOT_BIT(i);
			slot->open_since_ns = end_ns;
			slot->open_used_ns = slot->stat.used_ns;
		}
	}
	if (action->kind == CGPU_SCHED_OPEN)
		s->gates.open_ns = average(s->gates.open_ns, end_ns - start_ns);
	else if (action->kind == CGPU_SCHED_SHUT)
		s->gates.shut_ns = average(s->gates.shut_ns, end_ns - start_ns);
	if (status) {
		if (action->kind == CGPU_SCHED_OPEN)
			s->calls.hold_ns = end_ns + CGPU_SCHED_HOLD_NS;
		s->calls.failures++;
		s->calls.retry_ns = end_ns + CGPU_SCHED_SECOND_NS;
		s->plan.dirty = true;
		s->moving = false;
	}
	if (!s->calls.pending || --s->calls.pending)
		return;
	s->gates.missed_mask = 0;
	if (s->plan.mode == CGPU_SCHED_DEMAND)
		cgpu_fair_begin(s, end_ns);
	else if (s->moving)
		begin(s, end_ns);
}
