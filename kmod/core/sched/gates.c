// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * No gate is forgotten shut: whenever channels come, or a call fails, the gate counts as stale
 * and is moved again, whatever its state was believed to be.
 */
#include "core/sched/gates.h"
#include "core/sched/bounds.h"

/* A call under way does not know of channels that came after it was decided. */
static void miss(struct cgpu_sched *s, uint32_t slot)
{
	if (s->calls.pending)
		s->gates.missed_mask |= SLOT_BIT(slot);
	s->regate = true;
}

void cgpu_sched_gate_add(struct cgpu_sched *s, uint32_t slot)
{
	s->gates.open_mask |= SLOT_BIT(slot);
	s->slot[slot].slice_us = 0;
	/* some of its channels are shut, new ones may not be */
	cgpu_sched_gate_renewed(s, slot);
}

void cgpu_sched_gate_remove(struct cgpu_sched *s, uint32_t slot)
{
	s->gates.open_mask &= ~SLOT_BIT(slot);
	s->gates.shut_mask &= ~SLOT_BIT(slot);
	s->gates.stale_mask &= ~SLOT_BIT(slot);
	s->slot[slot].slice_us = 0;
}

void cgpu_sched_gate_held(struct cgpu_sched *s, uint32_t slot)
{
	s->gates.shut_mask |= SLOT_BIT(slot);
	s->gates.stale_mask |= SLOT_BIT(slot);
	miss(s, slot);
}

void cgpu_sched_gate_renewed(struct cgpu_sched *s, uint32_t slot)
{
	s->gates.stale_mask |= s->gates.shut_mask & SLOT_BIT(slot);
	miss(s, slot);
}

uint32_t cgpu_sched_gates_move(struct cgpu_sched *s, uint64_t mask, bool overlap,
			       struct cgpu_sched_action *out)
{
	uint64_t open = (s->gates.open_mask | s->gates.stale_mask) & s->gates.shut_mask & mask;
	uint64_t shut = s->gates.open_mask & (~s->gates.shut_mask | s->gates.stale_mask) & ~mask;
	uint32_t n = 0;

	/* the hardware's switch overlaps the second call */
	if (open && overlap)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_OPEN, 0, open };
	if (shut)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_SHUT, 0, shut };
	if (open && !overlap)
		out[n++] = (struct cgpu_sched_action){ CGPU_SCHED_OPEN, 0, open };
	return n;
}

static uint64_t average(uint64_t old, uint64_t ns)
{
	/* one stop of 20 ms does not predict the next */
	return (old * 7 + cgpu_min(ns, old + 200000)) / 8;
}

void cgpu_sched_gates_done(struct cgpu_sched *s, const struct cgpu_sched_action *action,
			   uint64_t start_ns, uint64_t end_ns, int status)
{
	uint64_t mask;
	uint32_t i;
	bool missed;

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
			/* also if the call failed: then the gate must be opened */
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
}

void cgpu_sched_gates_regate(struct cgpu_sched *s, bool regate)
{
	s->regate = regate;
}

void cgpu_sched_gates_all_done(struct cgpu_sched *s)
{
	s->gates.missed_mask = 0;
}
