// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The state machine of a card. A tick looks at the time, makes the plan if something changed, and
 * answers with calls: gates to shut or open, slices to program. Nothing else is decided until the
 * caller has reported them all; then the window begins. The next gate opens before the present one
 * shuts, so the hardware's switch overlaps the second call. If the present owner was idle, the gate
 * opens after: otherwise the next would start early.
 *
 * A failure fails open: every gate opens, and after a second the engine tries again.
 */
#include "core/sched/account.h"
#include "core/sched/expiry.h"
#include "core/sched/fair.h"
#include "core/sched/gates.h"
#include "core/sched/plan.h"
#include "core/sched/slices.h"
#include "core/sched/window.h"

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
	 * No overlap after an entity that paused recently and may pause again, nor after time that
	 * is nobody's: the next one would start early.
	 */
	bool overlap = !s->cur.begun || !(cgpu_entity_paused(s, s->cur.owner, now_ns) ||
					  cgpu_entity_quiet(s, s->cur.owner));
	uint32_t n = cgpu_sched_gates_move(s, mask, overlap, out);

	s->overlap = overlap && n > 1;
	return n;
}

/* The slots that run in an entity's window. */
static uint64_t runs_in(uint32_t entity)
{
	return entity < CGPU_SCHED_SLOTS ? SLOT_BIT(entity) : 0;
}

/* The window of `next` begins. */
static void begin(struct cgpu_sched *s, uint64_t now_ns)
{
	bool late = s->cur.begun && now_ns > s->cur.end_ns + CGPU_SCHED_WINDOW_MIN_NS;
	uint64_t cost_ns = 0;
	bool shareless;

	s->windows++;
	s->last = s->cur;
	s->last.ran_ns =
		now_ns - s->cur.began_ns - cgpu_min(s->cur.cost_ns, now_ns - s->cur.began_ns);
	s->cur.before = s->moving && s->overlap ? s->cur.owner : CGPU_SCHED_NONE;
	s->cur.began_ns = now_ns;
	cgpu_sched_charge(s, now_ns);
	if (late && s->cur.owner < CGPU_SCHED_SLOTS)
		s->slot[s->cur.owner].stat.overruns++;
	if (!s->cur.begun || s->next.owner != s->cur.owner)
		cgpu_entity_switched(s, s->next.owner);
	if (!cgpu_entity_quiet(s, s->next.owner) &&
	    !(s->cur.begun && s->next.owner == s->cur.owner))
		cost_ns = cgpu_entry_ns(!s->cur.begun || cgpu_entity_quiet(s, s->cur.owner));
	/*
	 * a plan may have taken the share of the open window, which was nobody's: no entity is owed
	 * the rest
	 */
	shareless = s->cur.begun && s->cur.owner == CGPU_SCHED_NOBODY &&
		    !s->entity[s->cur.owner].share_ppm;
	s->cur.owner = s->next.owner;
	if (!cgpu_entity_quiet(s, s->cur.owner))
		cost_ns += cgpu_exit_ns(cgpu_entity_quiet(s, cgpu_window_following(s)));
	s->cur.cost_ns = cost_ns;
	s->cur.begun = true;
	s->moving = false;
	cgpu_entities_begin_window(s, cost_ns, now_ns);
	s->cur.end_ns = s->next.end_ns;
	if (late)
		s->cur.end_ns =
			cgpu_max(s->cur.end_ns, cgpu_window_overdue(s, s->cur.owner, now_ns));
	if (cgpu_entity_cap_lag(s, &s->entity[s->cur.owner]) || shareless)
		cgpu_entities_balance(s);
}

static uint32_t hand_over(struct cgpu_sched *s, uint64_t now_ns, uint64_t then_ns,
			  struct cgpu_sched_action *out)
{
	uint32_t n;

	s->next.owner = cgpu_window_choose(s, then_ns, &s->next.end_ns);
	if (s->next.owner == CGPU_SCHED_NONE) {
		/* no container with a weight holds the card open */
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

/*
 * The open window goes on under the new plan. If it keeps its place, its end may also move back,
 * because it may have been lengthened for the owner's lag.
 */
static void resume(struct cgpu_sched *s, uint64_t now_ns, bool in_place)
{
	const struct cgpu_sched_entity *e = &s->entity[s->cur.owner];
	uint64_t end_ns =
		cgpu_entity_window_end(e, s->plan.frame_ns, now_ns, s->cur.unpaid_ns, e->lag_ns);

	s->cur.end_ns = in_place ? end_ns : cgpu_min(s->cur.end_ns, end_ns);
}

uint32_t cgpu_sched_tick(struct cgpu_sched *s, uint64_t now_ns, struct cgpu_sched_action *out,
			 uint64_t *wake_ns)
{
	uint64_t early, pick_ns;
	bool in_place;
	uint32_t n;

	if (s->calls.pending) {
		*wake_ns = s->calls.issued_ns + CGPU_SCHED_SECOND_NS;
		if (now_ns < *wake_ns)
			return 0;
		s->calls.pending = 0;
		cgpu_sched_gates_all_done(s);
		s->moving = false;
		s->cur.begun = false;
		s->calls.failures++;
		s->calls.retry_ns = now_ns + CGPU_SCHED_SECOND_NS;
		cgpu_plan_outdate(s, true);
	}
	if (now_ns < s->calls.hold_ns && !s->suspended) {
		*wake_ns = s->calls.hold_ns;
		return 0;
	}
	if (s->calls.retry_ns && now_ns >= s->calls.retry_ns) {
		s->calls.retry_ns = 0;
		cgpu_plan_outdate(s, true);
	}
	if (cgpu_plan_is_outdated(s, now_ns)) {
		in_place = cgpu_plan_make(s, now_ns);
		if (s->plan.mode != CGPU_SCHED_WINDOWS)
			s->cur.begun = false;
		else if (s->cur.begun)
			resume(s, now_ns, in_place);
		cgpu_sched_gates_regate(s, true);
	}
	*wake_ns = s->calls.retry_ns ? s->calls.retry_ns : s->plan.review_ns;
	if (s->plan.mode == CGPU_SCHED_DEMAND) {
		cgpu_entities_grant(s, now_ns);
		n = gates(s, cgpu_fair_pick(s, now_ns, &pick_ns), now_ns, out);
		n += cgpu_slices_set(s, out + n);
		if (!n)
			cgpu_fair_begin(s, now_ns);
		if (pick_ns != NEVER)
			*wake_ns = cgpu_min(*wake_ns,
					    cgpu_max(now_ns + CGPU_SCHED_SOON_NS, pick_ns));
	} else if (s->plan.mode != CGPU_SCHED_WINDOWS) {
		cgpu_entities_grant(s, now_ns);
		n = gates(s, ~0ULL, now_ns, out);
		n += cgpu_slices_set(s, out + n);
	} else {
		n = cgpu_slices_set(s, out);
		early = lead(s);
		if (!s->cur.begun || now_ns + early >= s->cur.end_ns)
			n += hand_over(s, now_ns, now_ns + early, out + n);
		else if (s->regate)
			n += gates(s, runs_in(s->cur.owner), now_ns, out + n);
		cgpu_sched_gates_regate(s, false);
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

void cgpu_sched_done(struct cgpu_sched *s, const struct cgpu_sched_action *action,
		     uint64_t start_ns, uint64_t end_ns, int status)
{
	s->calls.count++;
	/* up to now the gates were in their old state */
	cgpu_entities_grant(s, end_ns);
	cgpu_sched_gates_done(s, action, start_ns, end_ns, status);
	if (status) {
		if (action->kind == CGPU_SCHED_OPEN)
			s->calls.hold_ns = end_ns + CGPU_SCHED_HOLD_NS;
		s->calls.failures++;
		s->calls.retry_ns = end_ns + CGPU_SCHED_SECOND_NS;
		cgpu_plan_outdate(s, true);
		s->moving = false;
	}
	if (!s->calls.pending || --s->calls.pending)
		return;
	cgpu_sched_gates_all_done(s);
	if (s->plan.mode == CGPU_SCHED_DEMAND)
		cgpu_fair_begin(s, end_ns);
	else if (s->moving)
		begin(s, end_ns);
}
