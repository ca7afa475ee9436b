// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The runlist serves the channel groups round robin, a timeslice each. A container's part is
 * divided among its groups, less what the switches take. The log of context switches tells what a
 * switch takes (after_ns). In a window a single group's slice is longer than the window, and the
 * slices of several end away from the hand-over. Otherwise the runlist would start the next
 * container while both gates are open.
 */
#include "core/sched/slices.h"
#include "core/sched/account.h"
#include "core/sched/expiry.h"
#include "core/sched/pause.h"

static uint64_t apart(uint64_t a, uint64_t b)
{
	return cgpu_max(a, b) - cgpu_min(a, b);
}

void cgpu_slices_lasted(struct cgpu_sched *s, uint32_t slot, uint32_t turns, uint64_t shortest_ns)
{
	const struct cgpu_sched_slot *p;
	uint64_t slice_ns, ns, change_ns;

	if (slot >= CGPU_SCHED_SLOTS || s->plan.mode == CGPU_SCHED_FREE)
		return;
	p = &s->slot[slot];
	slice_ns = (uint64_t)p->slice_us * 1000;
	/*
	 * with several groups it is unknown which ran; a shorter turn means no work, or a shut gate
	 */
	if (!p->present || p->groups != 1 || !slice_ns || p->slice_us != p->wanted_us ||
	    shortest_ns <= slice_ns || shortest_ns - slice_ns > CGPU_SCHED_AFTER_MAX_NS)
		return;
	ns = shortest_ns - slice_ns;
	change_ns = apart(ns, s->after_ns) * turns / (turns + CGPU_SCHED_SLOW - 1);
	/* a group whose work ended with its slice must not outweigh the others */
	change_ns = cgpu_min(change_ns, turns * (uint64_t)CGPU_SCHED_AFTER_PACE_NS);
	s->after_ns = ns > s->after_ns ? s->after_ns + change_ns : s->after_ns - change_ns;
	/*
	 * Slices are cut anew only once the average has settled, because each new slice disturbs a
	 * round. And with other slices it differs, as work of fixed pieces ends elsewhere in them.
	 */
	if (apart(s->after_ns, s->after_used_ns) < CGPU_SCHED_AFTER_STEP_NS ||
	    apart(ns, s->after_ns) >= CGPU_SCHED_AFTER_STEP_NS / 2)
		return;
	s->after_used_ns = s->after_ns;
	cgpu_plan_outdate(s, true);
}

/* The slice of each of @groups that have @ns together, switches included. */
static uint64_t slice_us(uint64_t ns, uint32_t groups)
{
	uint64_t lost = (groups - 1) * (uint64_t)CGPU_SCHED_SWITCH_NS;

	return (ns - cgpu_min(ns / 2, lost)) / groups / 1000;
}

/*
 * The slice of each of several groups in one window. All must fit, because an opening gate starts
 * them from the first. On an H200, of eight processes in windows of 5 ms one to four ran with
 * longer slices. No slice may end while the next gate is open and this one not yet shut. So the
 * last slice ends a moment earlier, and the first follows again.
 */
static uint64_t cut_slice_us(uint64_t ns, uint32_t groups)
{
	uint64_t each = (ns - cgpu_min(ns / 2, CGPU_SCHED_OVERLAP_NS)) / groups;
	uint64_t spare = cgpu_beyond(each, CGPU_SCHED_OVERLAP_NS);

	each -= cgpu_min(each / 2, cgpu_min(spare, CGPU_SCHED_OVERLAP_NS) / 2 / groups);
	return (each - cgpu_min(each / 2, CGPU_SCHED_SWITCH_NS)) / 1000;
}

/*
 * While several gates are open, a container that wakes must not wait for long, and submissions must
 * be seen soon. If slices are long, all containers whose work ends within the first slice seem to
 * sleep. Only a container that never pauses runs several groups alone, and loses by every switch.
 */
static uint64_t demand_slice_us(const struct cgpu_sched *s, uint32_t slot)
{
	const struct cgpu_sched_slot *of = &s->slot[slot];
	uint64_t part_ns = cgpu_part(s->plan.period_ns, s->share[slot].share_ppm), us;
	bool pauses = of->fair.pauses || of->fair.is_silent;

	if (of->groups == 1 && (pauses || cgpu_pause_divides(s)))
		return CGPU_SCHED_SLICE_US_CUDA;
	if (of->groups == 1)
		return cgpu_has_classes(s) ? CGPU_SCHED_CLASS_SLICE_US : CGPU_SCHED_FAIR_SLICE_US;
	us = cut_slice_us(part_ns, of->groups);
	return pauses ? cgpu_min(us, CGPU_SCHED_SLICE_US_CUDA) : us;
}

void cgpu_slices_want(struct cgpu_sched *s)
{
	uint64_t us;
	uint32_t i;

	for (i = 0; i < s->slot_end; i++) {
		struct cgpu_sched_slot *slot = &s->slot[i];
		uint64_t share = s->share[i].share_ppm;

		slot->wanted_us = 0;
		if (!cgpu_opened(s, i) || !slot->groups ||
		    (!share && s->plan.mode != CGPU_SCHED_WINDOWS &&
		     s->plan.mode != CGPU_SCHED_FREE))
			continue;
		if (s->plan.mode == CGPU_SCHED_FREE) {
			/* a slice that was never set stays as CUDA set it */
			us = slot->slice_us ? CGPU_SCHED_SLICE_US_CUDA : 0;
		} else if (s->plan.mode == CGPU_SCHED_DEMAND) {
			us = demand_slice_us(s, i);
		} else if (s->plan.mode == CGPU_SCHED_SLICES) {
			us = slice_us(cgpu_part(s->plan.spread_ns, share), slot->groups);
		} else if (slot->groups == 1) {
			/* the slice must not end while the next gate is already open */
			us = 2 * s->plan.period_ns / 1000;
		} else {
			us = cut_slice_us(s->entity[i].width_ns, slot->groups);
		}
		if (us)
			us = cgpu_max(us, CGPU_SCHED_SLICE_US_MIN);
		slot->wanted_us = (uint32_t)us;
		s->plan.reslice |= us && us != slot->slice_us;
	}
}

uint32_t cgpu_slices_set(struct cgpu_sched *s, struct cgpu_sched_action *out)
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
