// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "recent/recent.h"
#include "recent/actuate.h"
#include "core/sched/bounds.h"

#define NEVER UINT64_MAX
#define NONE CGPU_SCHED_NONE
#define SLOT_BIT(n) (1ULL << (n))

static bool competes(const struct cgpu_recent *r, uint32_t i)
{
	return r->slot[i].present && r->slot[i].member.open && r->slot[i].groups &&
	       r->slot[i].member.weight;
}

static bool is_asleep(const struct cgpu_recent *r, uint32_t i)
{
	return r->observe.slot[i].state == CGPU_OBSERVE_ASLEEP;
}

static bool is_capped(const struct cgpu_recent *r, uint32_t i)
{
	return r->share[i].ceiling_ppm < CGPU_PPM;
}

/* ---- events ---- */

void cgpu_recent_init(struct cgpu_recent *r, uint64_t now_ns)
{
	uint32_t i;

	memset(r, 0, sizeof(*r));
	r->policy = CGPU_POLICY_NATIVE;
	r->max_inst = 1;
	r->unit_ns = 5000000;
	r->period_ns = CGPU_RECENT_UNITS * r->unit_ns;
	r->curr = r->next = NONE;
	r->open_call_ns = r->shut_call_ns = CGPU_RECENT_CALL_NS;
	r->review_ns = NEVER;
	cgpu_book_init(&r->book, now_ns);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		cgpu_observe_reset(&r->observe, i, now_ns);
}

int cgpu_recent_card(struct cgpu_recent *r, uint32_t policy, uint32_t max_inst,
		     uint32_t timeslice_us, uint64_t now_ns)
{
	(void)now_ns;
	if (policy >= CGPU_POLICY_END)
		return -EINVAL;
	if (!max_inst || max_inst > CGPU_POLICY_MEMBERS || timeslice_us < 1000 ||
	    timeslice_us > 1000000)
		return -ERANGE;
	r->policy = policy;
	r->max_inst = max_inst;
	r->unit_ns = (uint64_t)timeslice_us * 1000;
	r->dirty = true;
	return 0;
}

int cgpu_recent_set(struct cgpu_recent *r, uint32_t slot, const struct cgpu_policy_member *member,
		    uint64_t now_ns)
{
	struct cgpu_recent_slot *p = &r->slot[slot];
	struct cgpu_policy_share unused;
	bool open = p->member.open;
	int err = cgpu_policy_shares(r->policy, r->max_inst, member, 1, &unused);

	if (err)
		return err;
	if (!p->present) {
		cgpu_book_forget(&r->book, slot);
		cgpu_observe_reset(&r->observe, slot, now_ns);
	}
	p->member = *member;
	p->member.open = open;
	p->present = true;
	r->slot_end = (uint32_t)cgpu_max(r->slot_end, slot + 1);
	r->dirty = true;
	return 0;
}

void cgpu_recent_open(struct cgpu_recent *r, uint32_t slot, bool open, uint32_t groups,
		      uint64_t now_ns)
{
	struct cgpu_recent_slot *p = &r->slot[slot];

	if (!p->present || (p->member.open == open && p->groups == groups))
		return;
	p->member.open = open;
	p->groups = groups;
	p->slice_us = 0;
	p->came_ns = now_ns;
	cgpu_observe_reset(&r->observe, slot, now_ns);
	r->open_mask &= ~SLOT_BIT(slot);
	if (open && groups) {
		r->open_mask |= SLOT_BIT(slot);
		r->stale_mask |= r->shut_mask & SLOT_BIT(slot);
		if (r->pending)
			r->missed_mask |= SLOT_BIT(slot);
	} else {
		r->shut_mask &= ~SLOT_BIT(slot);
		r->stale_mask &= ~SLOT_BIT(slot);
	}
	r->dirty = true;
}

void cgpu_recent_held(struct cgpu_recent *r, uint32_t slot)
{
	r->shut_mask |= SLOT_BIT(slot);
	r->stale_mask |= SLOT_BIT(slot);
	if (r->pending)
		r->missed_mask |= SLOT_BIT(slot);
}

static bool is_free(const struct cgpu_recent *r)
{
	return r->policy == CGPU_POLICY_NATIVE || r->retry_ns;
}

bool cgpu_recent_may_run(const struct cgpu_recent *r, uint32_t slot)
{
	return is_free(r) || r->curr == slot;
}

/* ---- account ---- */

static void charge(struct cgpu_recent *r, uint64_t now_ns)
{
	uint64_t passed = now_ns - cgpu_min(now_ns, r->book.at_ns), lost;

	cgpu_book_turn(&r->book, now_ns);
	lost = cgpu_min(passed, r->unpaid_ns);
	r->unpaid_ns -= lost;
	if (r->curr < CGPU_SCHED_SLOTS)
		cgpu_book_hold(&r->book, r->curr, passed - lost);
	cgpu_actuate_due(r, now_ns);
}

static void settle(struct cgpu_recent *r, uint64_t now_ns)
{
	uint64_t nobodys = 0;
	uint32_t i;

	charge(r, now_ns);
	/* while all sleep nobody waits for what an idle context is loaded for */
	for (i = 0; i < r->slot_end && !r->by_clock && r->curr == NONE; i++)
		if (!is_capped(r, i))
			nobodys |= SLOT_BIT(i);
	cgpu_book_settle(&r->book, r->by_clock, nobodys, now_ns);
	for (i = 0; i < r->slot_end; i++)
		cgpu_book_cap(&r->book, i, INT64_MIN / 2, 4 * (int64_t)r->slot[i].width_ns);
	if (r->by_clock && !r->whole)
		cgpu_book_balance(&r->book, r->due_ppm);
}

void cgpu_recent_used(struct cgpu_recent *r, uint32_t slot, uint64_t ns,
		      uint64_t switched_ns, uint32_t loads)
{
	cgpu_book_ran(&r->book, slot, ns + switched_ns);
	r->observe.loads[slot] += loads;
}

static uint64_t round_ns(const struct cgpu_recent *r)
{
	uint64_t ns = CGPU_RECENT_LOOK_NS;
	uint32_t i;

	for (i = 0; i < r->slot_end; i++)
		if (competes(r, i) && !(r->shut_mask & SLOT_BIT(i)))
			ns += 1000ULL * r->slot[i].slice_us * r->slot[i].groups +
			      CGPU_RECENT_HANDOVER_NS;
	return ns;
}

void cgpu_recent_logged(struct cgpu_recent *r, uint64_t now_ns)
{
	uint32_t i;

	r->dirty |= !r->is_logged;
	r->is_logged = true;
	for (i = 0; i < r->slot_end; i++) {
		if (r->book.entry[i].ran_ns)
			r->slot[i].quiet = false;
		else if (i == r->curr && now_ns - r->began_ns > CGPU_RECENT_WINDOW_MIN_NS)
			r->slot[i].quiet = true;
	}
	settle(r, now_ns);
	/* windows by the clock say nothing of who had work in others' */
	r->dirty |= cgpu_observe_logged(&r->observe,
					r->by_clock ? 0 : r->open_mask & ~r->shut_mask,
					round_ns(r), r->still_ns, now_ns);
	r->log_ns = now_ns + CGPU_RECENT_LOG_NS;
}

/* ---- observe ---- */

static bool is_doubted(const struct cgpu_recent *r, uint32_t i)
{
	return competes(r, i) && r->observe.slot[i].state == CGPU_OBSERVE_UNKNOWN;
}

uint64_t cgpu_recent_due(struct cgpu_recent *r, uint64_t now_ns, uint64_t *mask)
{
	uint64_t log_ns = r->log_ns, at_ns = NEVER;
	uint32_t i, count = 0;
	bool fast = false;

	*mask = 0;
	if (!r->slot_end)
		return NEVER;
	for (i = 0; i < r->slot_end; i++) {
		if (is_doubted(r, i) && !r->by_clock &&
		    (r->curr != NONE ? !(r->shut_mask & SLOT_BIT(i)) : is_capped(r, i)))
			log_ns = cgpu_min(log_ns, r->book.settled_ns + CGPU_RECENT_LOOK_NS);
		count += competes(r, i);
		fast |= competes(r, i) && (cgpu_observe_pauses(&r->observe, i, now_ns) ||
					   r->observe.slot[i].empties);
	}
	if (cgpu_policy_conserves(r->policy) && count && !is_free(r))
		at_ns = r->look_ns + (fast ? CGPU_RECENT_LOOK_NS : CGPU_RECENT_REST_LOOK_NS);
	if (log_ns <= at_ns)
		return log_ns;
	for (i = 0; i < r->slot_end; i++)
		/* behind a shut gate nothing more is to be learnt of one that has work */
		if (competes(r, i) && (is_asleep(r, i) || is_doubted(r, i) ||
				       !(r->shut_mask & SLOT_BIT(i))))
			*mask |= SLOT_BIT(i);
	if (!*mask)
		return log_ns;
	return at_ns;
}

void cgpu_recent_looked(struct cgpu_recent *r, uint64_t mask, uint64_t now_ns)
{
	uint32_t i;

	r->observe.looks++;
	r->look_ns = now_ns;
	for (i = 0; i < r->slot_end; i++)
		if (competes(r, i) && (r->shut_mask & SLOT_BIT(i)))
			r->dirty |= cgpu_observe_doubt(&r->observe, i, now_ns);
	for (i = 0; i < r->slot_end; i++)
		if (mask & SLOT_BIT(i))
			r->dirty |= cgpu_observe_looked(&r->observe, i,
							!(r->shut_mask & SLOT_BIT(i)),
							r->slot[i].open_ns, now_ns);
}

/* ---- bounds ---- */

static bool has_classes(const struct cgpu_recent *r)
{
	uint32_t i, first = NONE;

	for (i = 0; i < r->slot_end && r->policy == CGPU_POLICY_ONLINE; i++) {
		if (!competes(r, i))
			continue;
		if (first != NONE && r->slot[i].member.priority != r->slot[first].member.priority)
			return true;
		first = i;
	}
	return false;
}

static bool is_by_clock(const struct cgpu_recent *r, uint64_t now_ns)
{
	uint32_t i;

	if (!cgpu_policy_conserves(r->policy) || !r->is_logged)
		return true;
	if (has_classes(r))
		return false;
	for (i = 0; i < r->slot_end; i++)
		if (competes(r, i) && cgpu_observe_pauses(&r->observe, i, now_ns))
			return false;
	return true;
}

/* Somebody came less than a second ago: of what was used of it little is to be told. */
static bool is_new(const struct cgpu_recent *r, uint64_t now_ns)
{
	uint32_t i;

	for (i = 0; i < r->slot_end; i++)
		if (competes(r, i) && now_ns - r->slot[i].came_ns < CGPU_RECENT_SPAN_NS)
			return true;
	return false;
}

static void plan(struct cgpu_recent *r, uint64_t now_ns)
{
	bool was = r->by_clock;
	uint32_t i, ppm;

	charge(r, now_ns);
	r->dirty = false;
	r->review_ns = NEVER;
	for (i = 0; i < r->slot_end; i++) {
		struct cgpu_policy_member *m = &r->scratch[i];
		const struct cgpu_observe_slot *o = &r->observe.slot[i];
		uint64_t rest_ns = o->since_ns + CGPU_RECENT_SPAN_NS / 2;
		bool rests = is_asleep(r, i) && (!o->worked || now_ns >= rest_ns);

		*m = r->slot[i].member;
		m->weight = r->slot[i].present ? m->weight : 0;
		m->open = competes(r, i);
		m->active = m->open && !(rests && cgpu_policy_conserves(r->policy));
		if (!competes(r, i))
			continue;
		if (is_asleep(r, i) && !rests)
			r->review_ns = cgpu_min(r->review_ns, rest_ns);
		if (o->slept_ns && now_ns - o->slept_ns < CGPU_RECENT_PAUSE_NS)
			r->review_ns = cgpu_min(r->review_ns, o->slept_ns + CGPU_RECENT_PAUSE_NS);
	}
	memset(r->share, 0, sizeof(r->share));
	(void)cgpu_policy_shares(r->policy, r->max_inst, r->scratch, r->slot_end, r->share);
	r->by_clock = is_by_clock(r, now_ns);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		ppm = 0;
		if (i < r->slot_end && r->slot[i].present && r->slot[i].member.weight) {
			if (r->by_clock && cgpu_policy_fixes(r->policy, &r->slot[i].member))
				ppm = r->share[i].floor_ppm;
			else if (r->scratch[i].active)
				ppm = r->share[i].share_ppm;
		}
		r->due_ppm[i] = ppm;
	}
	if (r->by_clock != was) {
		r->begun = false;
		cgpu_book_level(&r->book, r->due_ppm, is_new(r, now_ns));
	}
	for (i = 0; i < r->slot_end; i++)
		r->slot[i].pauses = cgpu_observe_pauses(&r->observe, i, now_ns);
	cgpu_actuate_period(r, now_ns);
	for (i = 0; r->by_clock != was && i < r->slot_end; i++)
		cgpu_book_cap(&r->book, i, -(int64_t)r->slot[i].width_ns,
			      (int64_t)r->slot[i].width_ns);
	cgpu_actuate_slices(r);
}

/* ---- pick ---- */

/*
 * One that never pauses does not use its ceiling in one piece. What it is behind it may catch up by
 * a quarter more.
 */
static bool is_paced(const struct cgpu_recent *r, uint32_t i, uint64_t used_ns)
{
	uint64_t ppm = r->share[i].ceiling_ppm;
	uint64_t span_ns = cgpu_min(CGPU_RECENT_SPAN_NS, r->book.at_ns - r->slot[i].came_ns);
	uint64_t most_ns = ppm * (span_ns / 1000) / 1000;
	uint64_t lately_ns = ppm * CGPU_RECENT_PACE_BINS * (CGPU_RECENT_BIN_NS / 1000) / 1000;
	uint64_t more_ns = cgpu_min((most_ns - cgpu_min(most_ns, used_ns)) / 2, lately_ns / 4);

	if (r->slot[i].throttled)
		lately_ns -= cgpu_min(lately_ns / 4, CGPU_RECENT_TURN_NS);
	return ppm < CGPU_PPM && cgpu_book_lately(&r->book, i) >= lately_ns + more_ns;
}

/* Return: who has the card, and in @wake_ns when to ask again. */
static uint32_t pick(struct cgpu_recent *r, uint64_t now_ns, uint64_t *wake_ns)
{
	uint64_t lead = r->open_call_ns + r->shut_call_ns, second, used;
	bool over;
	uint32_t i;

	*wake_ns = NEVER;
	for (i = 0; i < r->slot_end; i++) {
		struct cgpu_recent_slot *p = &r->slot[i];
		struct cgpu_observe_slot *o = &r->observe.slot[i];
		struct cgpu_pick_entity *e = &r->entity[i];

		used = cgpu_book_used(&r->book, i);
		p->throttled = competes(r, i) &&
			       (cgpu_pick_throttled(r->share[i].ceiling_ppm, used, p->throttled) ||
				(!p->pauses && is_paced(r, i, used)));
		if (p->throttled)
			*wake_ns = cgpu_min(*wake_ns, now_ns + CGPU_RECENT_MARGIN_NS);
		p->pauses = o->woke_ns && now_ns - o->woke_ns < CGPU_RECENT_SPAN_NS;
		e->runnable = competes(r, i) && r->share[i].share_ppm && !p->throttled &&
			      r->observe.slot[i].state == CGPU_OBSERVE_AWAKE;
		e->pauses = p->pauses;
		e->ran_ns = p->ran_ns;
		e->share_ppm = r->share[i].share_ppm;
		e->floor_ppm = r->share[i].floor_ppm;
		e->priority = r->policy == CGPU_POLICY_ONLINE ? p->member.priority : 0;
		e->used_ns = used;
	}
	over = now_ns + lead >= r->end_ns;
	i = cgpu_pick(r->entity, r->slot_end, r->curr, over);
	if (i >= CGPU_SCHED_SLOTS)
		return NONE;
	if (i == r->curr && over)
		r->end_ns = now_ns + lead + cgpu_actuate_turn_ns(r, i);
	if (i == r->curr)
		*wake_ns = cgpu_min(*wake_ns, r->end_ns - lead);
	second = (uint64_t)r->share[i].share_ppm * (CGPU_RECENT_SPAN_NS / CGPU_PPM);
	if (r->entity[i].pauses && r->entity[i].used_ns < second)
		*wake_ns = cgpu_min(*wake_ns, now_ns + second - r->entity[i].used_ns);
	if (is_capped(r, i)) {
		second = (uint64_t)r->share[i].ceiling_ppm * (CGPU_RECENT_SPAN_NS / CGPU_PPM);
		second -= cgpu_min(second, r->entity[i].used_ns + CGPU_RECENT_MARGIN_NS);
		*wake_ns = cgpu_min(*wake_ns, now_ns + second);
	}
	return i;
}

/* ---- actuate ---- */

static uint32_t gates(struct cgpu_recent *r, uint64_t mask, bool overlap,
		      struct cgpu_sched_action *out)
{
	uint64_t open = (r->open_mask | r->stale_mask) & r->shut_mask & mask;
	uint64_t shut = r->open_mask & (~r->shut_mask | r->stale_mask) & ~mask;
	uint32_t n = 0;

	if (open && overlap)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_OPEN, 0, open };
	if (shut)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_SHUT, 0, shut };
	if (open && !overlap)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_OPEN, 0, open };
	return n;
}

static uint32_t slices(struct cgpu_recent *r, struct cgpu_sched_action *out)
{
	uint64_t seen = 0, mask;
	uint32_t i, j, n = 0;

	for (i = 0; i < r->slot_end; i++) {
		const struct cgpu_recent_slot *a = &r->slot[i];

		if (!competes(r, i) || !a->wanted_us || a->wanted_us == a->slice_us ||
		    seen & SLOT_BIT(i))
			continue;
		for (mask = 0, j = i; j < r->slot_end; j++)
			if (competes(r, j) && r->slot[j].wanted_us == a->wanted_us &&
			    r->slot[j].slice_us != a->wanted_us)
				mask |= SLOT_BIT(j);
		seen |= mask;
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_SLICE, a->wanted_us, mask };
	}
	return n;
}

static void begin(struct cgpu_recent *r, uint64_t now_ns)
{
	bool same = r->begun && r->next == r->curr;
	uint64_t was_end_ns = r->end_ns;

	charge(r, now_ns);
	r->moving = false;
	r->unpaid_ns = 0;
	if (!same && r->next != NONE)
		r->unpaid_ns = r->curr == NONE ? CGPU_RECENT_ENTRY_NS : CGPU_RECENT_HANDOVER_NS;
	if (r->by_clock) {
		r->end_ns = r->next_end_ns;
	} else if (!same && r->next != NONE) {
		r->end_ns = now_ns + cgpu_actuate_turn_ns(r, r->next);
		if (r->slot[r->next].pauses && r->curr != NONE && now_ns < was_end_ns)
			cgpu_book_cost(&r->book, r->next,
				       CGPU_RECENT_PREEMPT_NS + 2 * CGPU_RECENT_HANDOVER_NS);
	}
	if (!same)
		r->began_ns = now_ns;
	if (r->curr < CGPU_SCHED_SLOTS)
		r->slot[r->curr].ran_ns = now_ns;
	r->curr = r->next;
	r->begun = true;
}

static uint64_t lead(const struct cgpu_recent *r)
{
	uint64_t ns = r->begun && r->curr != NONE ? r->shut_call_ns : 0;

	return r->begun ? ns + r->open_call_ns : 0;
}

static uint32_t tick_clock(struct cgpu_recent *r, uint64_t now_ns, struct cgpu_sched_action *out,
			   uint64_t *wake_ns)
{
	uint64_t early = lead(r);
	uint32_t n = 0;

	charge(r, now_ns);
	if (!r->count) {
		r->begun = false;
		r->curr = NONE;
		return gates(r, 0, true, out);
	}
	if (!r->begun || now_ns + early >= r->end_ns) {
		cgpu_actuate_window(r, r->begun ? now_ns + early : now_ns);
		n = gates(r, r->next == NONE ? 0 : SLOT_BIT(r->next),
			  r->begun && r->curr != NONE && !r->slot[r->curr].quiet, out);
		r->moving = n != 0;
		if (!n)
			begin(r, now_ns);
	} else {
		n = gates(r, r->curr == NONE ? 0 : SLOT_BIT(r->curr), true, out);
		r->moving = false;
	}
	*wake_ns = cgpu_min(*wake_ns, cgpu_max(now_ns + CGPU_SCHED_SOON_NS, r->end_ns - lead(r)));
	return n;
}

/* The runlist comes to it when it wakes: it has budget left, and is of the class that runs. */
static bool may_wake(const struct cgpu_recent *r, uint32_t i)
{
	const struct cgpu_pick_entity *e = &r->entity[i], *next = &r->entity[r->next];

	return e->priority >= next->priority &&
	       e->used_ns < (uint64_t)e->share_ppm * (CGPU_RECENT_SPAN_NS / CGPU_PPM);
}

static uint32_t tick_pick(struct cgpu_recent *r, uint64_t now_ns, struct cgpu_sched_action *out,
			  uint64_t *wake_ns)
{
	uint64_t mask, again_ns;
	uint32_t i, n;

	charge(r, now_ns);
	r->next = pick(r, now_ns, &again_ns);
	mask = r->next == NONE ? 0 : SLOT_BIT(r->next);
	for (i = 0; i < r->slot_end; i++) {
		if (!competes(r, i) || r->slot[i].throttled || !r->share[i].share_ppm)
			continue;
		/* an idle context seems to use its ceiling: shut for a moment */
		if (is_doubted(r, i) && r->next == NONE && is_capped(r, i) &&
		    !r->observe.slot[i].others_ran)
			continue;
		if (is_doubted(r, i) && r->next != NONE && !may_wake(r, i))
			continue;
		if (is_doubted(r, i) ||
		    (is_asleep(r, i) && (r->next == NONE ? !is_capped(r, i) : may_wake(r, i))))
			mask |= SLOT_BIT(i);
	}
	n = gates(r, mask, r->curr != NONE, out);
	r->moving = n != 0;
	if (!n)
		begin(r, now_ns);
	if (again_ns != NEVER)
		*wake_ns = cgpu_min(*wake_ns, cgpu_max(now_ns + CGPU_SCHED_SOON_NS, again_ns));
	return n;
}

static void fail(struct cgpu_recent *r, uint64_t now_ns)
{
	r->failures++;
	r->retry_ns = now_ns + CGPU_RECENT_RETRY_NS;
	r->moving = false;
	r->begun = false;
}

uint32_t cgpu_recent_tick(struct cgpu_recent *r, uint64_t now_ns, struct cgpu_sched_action *out,
			  uint64_t *wake_ns)
{
	uint32_t n;

	if (r->pending) {
		*wake_ns = r->issued_ns + CGPU_SCHED_SECOND_NS;
		if (now_ns < *wake_ns)
			return 0;
		r->pending = 0;
		r->missed_mask = 0;
		fail(r, now_ns);
	}
	if (r->retry_ns && now_ns >= r->retry_ns) {
		r->retry_ns = 0;
		r->dirty = true;
	}
	if (r->dirty || now_ns >= r->review_ns)
		plan(r, now_ns);
	*wake_ns = r->retry_ns ? r->retry_ns : r->review_ns;
	if (is_free(r)) {
		r->curr = NONE;
		n = gates(r, ~0ULL, true, out);
	} else {
		n = slices(r, out);
		n += r->by_clock ? tick_clock(r, now_ns, out + n, wake_ns) :
				   tick_pick(r, now_ns, out + n, wake_ns);
	}
	if (n) {
		r->pending = n;
		r->issued_ns = now_ns;
		*wake_ns = now_ns + CGPU_SCHED_SECOND_NS;
	}
	return n;
}

static uint64_t average(uint64_t old, uint64_t ns)
{
	return (old * 7 + cgpu_min(ns, old + 200000)) / 8;
}

void cgpu_recent_done(struct cgpu_recent *r, const struct cgpu_sched_action *action,
		      uint64_t start_ns, uint64_t end_ns, int status)
{
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		bool missed = r->missed_mask >> i & 1;

		if (!(action->mask >> i & 1) || !r->slot[i].present)
			continue;
		if (action->kind == CGPU_SCHED_SLICE) {
			r->slot[i].slice_us = status ? r->slot[i].slice_us : action->slice_us;
			continue;
		}
		if (!status && !missed)
			r->stale_mask &= ~SLOT_BIT(i);
		if (action->kind == CGPU_SCHED_SHUT) {
			r->shut_mask |= SLOT_BIT(i);
			if (r->next == NONE && is_capped(r, i))
				cgpu_observe_unloaded(&r->observe, i, false, end_ns);
			r->stale_mask |= missed ? SLOT_BIT(i) : 0;
		} else if (!status && !missed) {
			r->shut_mask &= ~SLOT_BIT(i);
			r->slot[i].open_ns = end_ns;
			if (r->next == NONE && is_capped(r, i))
				cgpu_observe_unloaded(&r->observe, i, true, end_ns);
			else
				cgpu_observe_opened(&r->observe, i);
		}
	}
	if (action->kind != CGPU_SCHED_SLICE)
		r->still_ns = end_ns;
	if (action->kind == CGPU_SCHED_OPEN)
		r->open_call_ns = average(r->open_call_ns, end_ns - start_ns);
	else if (action->kind == CGPU_SCHED_SHUT)
		r->shut_call_ns = average(r->shut_call_ns, end_ns - start_ns);
	if (status)
		fail(r, end_ns);
	if (!r->pending || --r->pending)
		return;
	r->missed_mask = 0;
	if (r->moving)
		begin(r, end_ns);
}
