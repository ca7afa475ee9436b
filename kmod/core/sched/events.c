// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Events: settings change; containers come, go or open the card. An event charges the open window
 * up to now and notes what changed. The next tick does what follows from it.
 */
#include "core/sched/account.h"
#include "core/sched/expiry.h"
#include "core/sched/fair.h"
#include "core/sched/gates.h"
#include "core/sched/plan.h"

void cgpu_sched_init(struct cgpu_sched *s, uint64_t now_ns)
{
	memset(s, 0, sizeof(*s));
	s->config.policy = CGPU_POLICY_NATIVE;
	s->config.max_inst = 1;
	s->config.unit_ns = 5000000;
	s->config.loss_ppm = CGPU_SCHED_LOSS_PPM;
	s->after_ns = s->after_used_ns = CGPU_SCHED_SWITCH_NS;
	s->cur.owner = CGPU_SCHED_NOBODY;
	s->fair.curr = s->fair.next = CGPU_SCHED_NONE;
	s->cur.before = CGPU_SCHED_NONE;
	s->last.before = CGPU_SCHED_NONE;
	s->plan.period_ns = CGPU_SCHED_UNITS * s->config.unit_ns;
	s->plan.spread_ns = s->plan.period_ns;
	s->plan.review_ns = NEVER;
	s->granted_to_ns = now_ns;
	/* measured on an H200; used until this card's first calls are measured */
	s->gates.open_ns = 330000;
	s->gates.shut_ns = 420000;
}

int cgpu_sched_card(struct cgpu_sched *s, uint32_t policy, uint32_t max_inst, uint32_t timeslice_us,
		    uint64_t now_ns)
{
	if (policy >= CGPU_POLICY_END)
		return -EINVAL;
	if (!max_inst || max_inst > CGPU_POLICY_MEMBERS || timeslice_us < 1000 ||
	    timeslice_us > 1000000)
		return -ERANGE;
	if (s->config.policy == policy && s->config.max_inst == max_inst &&
	    s->config.unit_ns == (uint64_t)timeslice_us * 1000)
		return 0;
	cgpu_sched_charge(s, now_ns);
	s->config.policy = policy;
	s->config.max_inst = max_inst;
	s->config.unit_ns = (uint64_t)timeslice_us * 1000;
	cgpu_plan_outdate(s, true);
	return 0;
}

int cgpu_sched_set(struct cgpu_sched *s, uint32_t slot, const struct cgpu_policy_member *member,
		   uint64_t now_ns)
{
	struct cgpu_policy_share unused;
	struct cgpu_policy_member *old;
	bool open;
	int err;

	if (slot >= CGPU_SCHED_SLOTS)
		return -ERANGE;
	err = cgpu_policy_shares(s->config.policy, s->config.max_inst, member, 1, &unused);
	if (err)
		return err;
	old = &s->slot[slot].member;
	if (s->slot[slot].present && old->weight == member->weight && old->quota == member->quota &&
	    old->quota_min == member->quota_min && old->priority == member->priority &&
	    old->own_ppm == member->own_ppm && old->least_ppm == member->least_ppm &&
	    old->own_weight == member->own_weight)
		return 0;
	cgpu_sched_charge(s, now_ns);
	/* forget what was told late about the container that had the slot before */
	if (!s->slot[slot].present)
		memset(&s->slot[slot], 0, sizeof(s->slot[slot]));
	open = old->open;
	*old = *member;
	old->open = open;
	s->slot[slot].present = true;
	s->slot_end = cgpu_max(s->slot_end, slot + 1);
	cgpu_plan_outdate(s, true);
	return 0;
}

void cgpu_sched_remove(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	if (slot >= CGPU_SCHED_SLOTS || !s->slot[slot].present)
		return;
	cgpu_sched_charge(s, now_ns);
	memset(&s->slot[slot], 0, sizeof(s->slot[slot]));
	while (s->slot_end && !s->slot[s->slot_end - 1].present)
		s->slot_end--;
	cgpu_sched_gate_remove(s, slot);
	cgpu_entity_settle(s, slot);
	cgpu_entity_set_lag(s, slot, 0);
	cgpu_plan_outdate(s, true);
}

void cgpu_sched_renewed(struct cgpu_sched *s, uint32_t slot)
{
	if (slot >= CGPU_SCHED_SLOTS || !s->slot[slot].present)
		return;
	cgpu_sched_gate_renewed(s, slot);
}

void cgpu_sched_reapply(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	struct cgpu_sched_slot *p = &s->slot[slot % CGPU_SCHED_SLOTS];

	if (slot >= CGPU_SCHED_SLOTS || !p->present)
		return;
	cgpu_sched_charge(s, now_ns);
	if (p->member.open && p->groups)
		cgpu_sched_gate_add(s, slot);
	else
		cgpu_sched_gate_remove(s, slot);
	cgpu_plan_outdate(s, true);
}

void cgpu_sched_gang(struct cgpu_sched *s, uint32_t slot, uint32_t gang, uint64_t now_ns)
{
	if (slot >= CGPU_SCHED_SLOTS || !s->slot[slot].present || s->slot[slot].gang == gang)
		return;
	cgpu_sched_charge(s, now_ns);
	s->slot[slot].gang = gang;
	cgpu_plan_outdate(s, true);
}

void cgpu_sched_open(struct cgpu_sched *s, uint32_t slot, bool open, uint32_t groups,
		     uint64_t now_ns)
{
	struct cgpu_sched_slot *p = &s->slot[slot % CGPU_SCHED_SLOTS];

	if (slot >= CGPU_SCHED_SLOTS || !p->present ||
	    (p->member.open == open && p->groups == groups))
		return;
	cgpu_sched_charge(s, now_ns);
	/*
	 * Shares may depend on which containers hold the card open. A container that closes and
	 * opens it repeatedly must not keep moving the others.
	 */
	cgpu_plan_keep_place(s, slot, p->member.open && !open, now_ns);
	p->member.open = open;
	p->groups = groups;
	cgpu_sched_reapply(s, slot, now_ns);
}

void cgpu_sched_held(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns)
{
	if (slot >= CGPU_SCHED_SLOTS || !s->slot[slot].present)
		return;
	cgpu_entities_grant(s, now_ns);
	cgpu_sched_gate_held(s, slot);
}

bool cgpu_sched_may_run(const struct cgpu_sched *s, uint32_t slot)
{
	/* a container that comes, or comes back, must not run until it is picked */
	if (slot < CGPU_SCHED_SLOTS && s->plan.mode == CGPU_SCHED_DEMAND)
		return s->gates.open_mask & ~s->gates.shut_mask & SLOT_BIT(slot);
	if (slot >= CGPU_SCHED_SLOTS || s->plan.mode != CGPU_SCHED_WINDOWS)
		return true;
	return s->cur.begun && s->cur.owner == slot;
}

void cgpu_sched_suspend(struct cgpu_sched *s, bool suspend, uint64_t now_ns)
{
	if (s->suspended == suspend)
		return;
	cgpu_sched_charge(s, now_ns);
	s->suspended = suspend;
	cgpu_plan_outdate(s, true);
}

void cgpu_sched_stat(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns,
		     struct cgpu_sched_stat *out)
{
	struct cgpu_sched_stat stat = { .used_ns = s->used_ns };
	struct cgpu_sched_slot *p;

	*out = stat;
	if (slot >= CGPU_SCHED_SLOTS)
		return;
	cgpu_sched_charge(s, now_ns);
	cgpu_entity_settle(s, slot);
	p = &s->slot[slot];
	/* use is told late, but a total never falls */
	if (s->used_ns && p->awake_ns > p->awake_used_ns)
		p->stat.waited_ns = cgpu_max(p->stat.waited_ns, p->awake_ns - p->awake_used_ns);
	stat = p->stat;
	stat.lag_ns = s->plan.mode == CGPU_SCHED_DEMAND ? p->fair.lag_ns : s->entity[slot].lag_ns;
	if (s->entity[slot].share_ppm)
		stat.lag_ns -= cgpu_entity_planned_lag(s, slot, now_ns);
	*out = stat;
}
