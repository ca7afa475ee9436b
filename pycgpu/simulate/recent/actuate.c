// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "recent/actuate.h"
#include "core/sched/bounds.h"

#define PPM ((uint64_t)CGPU_PPM)
#define NOBODY CGPU_SCHED_NOBODY
#define NONE CGPU_SCHED_NONE

static uint64_t part(uint64_t ns, uint64_t ppm)
{
	return ns * ppm / PPM;
}

/* A second holds a whole number of them. */
static uint64_t on_grid(uint64_t ns)
{
	return CGPU_RECENT_SPAN_NS / cgpu_max(1, CGPU_RECENT_SPAN_NS / ns);
}

static uint64_t widest(const struct cgpu_recent *r)
{
	uint64_t most = 1, a;
	uint32_t i;

	for (i = 0; i < r->slot_end; i++) {
		a = r->due_ppm[i];
		most = cgpu_max(most, part(a, PPM - a));
	}
	return most;
}

static void set_costs(struct cgpu_recent *r, uint32_t nobody_ppm)
{
	uint32_t k, n = r->count;

	for (k = 0; k < n; k++) {
		uint32_t i = r->order[k];
		uint32_t before = r->order[(k + n - 1) % n], after = r->order[(k + 1) % n];

		if (i == NOBODY)
			continue;
		r->slot[i].cost_ns = 0;
		if (n == 1 && !nobody_ppm)
			continue;
		r->slot[i].cost_ns = (before == NOBODY ? CGPU_RECENT_ENTRY_NS :
							 CGPU_RECENT_HANDOVER_NS) +
				     (after == NOBODY ? CGPU_RECENT_EXIT_NS : 0);
	}
}

static uint64_t lost_ns(const struct cgpu_recent *r)
{
	uint64_t lost = 0;
	uint32_t k;

	for (k = 0; k < r->count; k++)
		lost += r->order[k] == NOBODY ? 0 : r->slot[r->order[k]].cost_ns;
	return lost;
}

static uint64_t period_ns(const struct cgpu_recent *r, uint32_t nobody_ppm)
{
	uint64_t lost = lost_ns(r), ns = CGPU_RECENT_UNITS * r->unit_ns, floor = 2 * lost;
	uint64_t smallest = PPM, weights = 0;
	uint32_t i, windows = 0;

	for (i = 0; i < r->slot_end; i++) {
		weights += r->slot[i].present ? r->slot[i].member.weight : 0;
		if (r->due_ppm[i]) {
			windows++;
			smallest = cgpu_min(smallest, r->due_ppm[i]);
		}
	}
	floor = cgpu_max(floor, CGPU_RECENT_WINDOW_MIN_NS * PPM / smallest + lost);
	if (nobody_ppm)
		floor = cgpu_max(floor, cgpu_min(ns, (CGPU_RECENT_WINDOW_MIN_NS + lost) * PPM /
							     nobody_ppm));
	if (r->policy == CGPU_POLICY_WEIGHTED && windows > 1)
		ns = weights * r->unit_ns;
	else
		floor = cgpu_max(floor, lost * PPM / CGPU_RECENT_LOSS_PPM);
	return on_grid(cgpu_max(ns, floor));
}

static void lay_out(struct cgpu_recent *r, uint32_t nobody_ppm)
{
	uint64_t end = 0, lost = lost_ns(r);
	uint32_t k;

	r->spread_ns = r->period_ns - (r->whole ? 0 : lost);
	for (k = 0; k < r->count; k++) {
		uint32_t i = r->order[k];

		if (i == NOBODY) {
			r->nobodys_ns = part(r->spread_ns, nobody_ppm) - lost;
			end += r->nobodys_ns;
			r->nobodys_offset_ns = end;
			continue;
		}
		r->slot[i].width_ns = part(r->spread_ns, r->due_ppm[i]);
		end += r->slot[i].width_ns + r->slot[i].cost_ns;
		r->slot[i].offset_ns = end;
	}
}

static uint64_t frame(const struct cgpu_recent *r, uint64_t now_ns)
{
	return now_ns - (now_ns + r->period_ns - r->phase_ns % r->period_ns) % r->period_ns;
}

void cgpu_actuate_period(struct cgpu_recent *r, uint64_t now_ns)
{
	uint32_t i, sum = 0, nobody_ppm;
	uint64_t was = r->period_ns, offset_ns = r->curr == NONE ? r->nobodys_offset_ns :
								   r->slot[r->curr].offset_ns;

	r->count = 0;
	for (i = 0; i < r->slot_end; i++) {
		if (!r->due_ppm[i])
			continue;
		r->order[r->count++] = (uint8_t)i;
		sum += r->due_ppm[i];
	}
	nobody_ppm = r->by_clock && CGPU_PPM - sum > CGPU_SCHED_SLOTS ? CGPU_PPM - sum : 0;
	if (nobody_ppm)
		r->order[r->count++] = NOBODY;
	set_costs(r, nobody_ppm);
	r->period_ns = period_ns(r, nobody_ppm);
	r->whole = nobody_ppm && part(r->period_ns, nobody_ppm) > lost_ns(r);
	if (nobody_ppm && !r->whole) {
		/* nobody's part does not cover the hand-overs */
		r->count--;
		for (i = 0; i < r->slot_end; i++)
			r->due_ppm[i] = (uint32_t)(r->due_ppm[i] * PPM / sum);
		nobody_ppm = 0;
		set_costs(r, 0);
		r->period_ns = period_ns(r, 0);
	}
	if (!r->by_clock)
		r->period_ns = cgpu_min(r->period_ns, CGPU_RECENT_DEVIATION_NS * PPM / widest(r));
	lay_out(r, nobody_ppm);
	if (r->period_ns != was ||
	    offset_ns != (r->curr == NONE ? r->nobodys_offset_ns : r->slot[r->curr].offset_ns))
		r->begun = false;
	if (!r->begun)
		r->frame_ns = frame(r, now_ns);
}

/* Of a slot's windows from the grid's beginning to @at_ns. */
static uint64_t planned_ns(const struct cgpu_recent *r, uint32_t i, uint64_t at_ns)
{
	const struct cgpu_recent_slot *p = &r->slot[i];
	uint64_t since = at_ns + r->period_ns - r->phase_ns % r->period_ns;
	uint64_t in = since % r->period_ns, begin = p->offset_ns - p->width_ns;

	in = in > begin ? cgpu_min(in - begin, p->width_ns) : 0;
	return since / r->period_ns * p->width_ns + in;
}

void cgpu_actuate_due(struct cgpu_recent *r, uint64_t now_ns)
{
	uint64_t from_ns = cgpu_min(r->due_to_ns, now_ns);
	uint32_t i;

	r->due_to_ns = now_ns;
	for (i = 0; r->by_clock && i < r->slot_end; i++)
		if (r->due_ppm[i])
			cgpu_book_due(&r->book, i,
				      planned_ns(r, i, now_ns) - planned_ns(r, i, from_ns));
}

/* When a window that begins at @then_ns is to end: on the grid, but for half of what is due. */
static uint64_t end_of(const struct cgpu_recent *r, uint32_t i, uint64_t frame_ns,
		       uint64_t then_ns)
{
	int64_t behind, width, ns;
	uint64_t planned;

	if (i == NOBODY)
		return frame_ns + r->nobodys_offset_ns;
	planned = frame_ns + r->slot[i].offset_ns;
	width = (int64_t)r->slot[i].width_ns;
	behind = cgpu_book_behind(&r->book, i) / 2;
	if (behind > width)
		behind = width;
	if (behind < -width)
		behind = -width;
	ns = (int64_t)planned + behind;
	if (ns > (int64_t)(then_ns + r->slot[i].cost_ns + 2 * r->slot[i].width_ns))
		ns = (int64_t)(then_ns + r->slot[i].cost_ns + 2 * r->slot[i].width_ns);
	return ns > (int64_t)then_ns ? (uint64_t)ns : then_ns;
}

/* One that has lost half a window is not skipped. Return: when its window ends, 0: skip it. */
static uint64_t overdue(const struct cgpu_recent *r, uint32_t i, uint64_t then_ns)
{
	const struct cgpu_recent_slot *p = &r->slot[i];
	int64_t behind_ns = cgpu_book_behind(&r->book, i);

	if (behind_ns <= (int64_t)p->width_ns / 2)
		return 0;
	return then_ns + p->cost_ns + p->width_ns + cgpu_min((uint64_t)behind_ns, p->width_ns);
}

void cgpu_actuate_window(struct cgpu_recent *r, uint64_t then_ns)
{
	uint32_t k, at = r->begun ? r->place + 1 : 0, i;
	uint64_t end, enough, frame_ns = r->begun ? r->frame_ns : frame(r, then_ns);

	for (k = 0; k < 2 * r->count; k++, at++) {
		if (at >= r->count) {
			at = 0;
			frame_ns += r->period_ns;
		}
		i = r->order[at];
		end = end_of(r, i, frame_ns, then_ns);
		enough = i == NOBODY ? r->nobodys_ns : r->slot[i].width_ns;
		enough = cgpu_min(CGPU_RECENT_WINDOW_MIN_NS, enough / 2) + CGPU_RECENT_HANDOVER_NS;
		if (end < then_ns + enough && i != NOBODY)
			end = cgpu_max(end, overdue(r, i, then_ns));
		if (end < then_ns + enough)
			continue;
		r->place = (uint8_t)at;
		r->frame_ns = frame_ns;
		r->next = i == NOBODY ? NONE : i;
		r->next_end_ns = end;
		return;
	}
	r->frame_ns = frame(r, then_ns);
	r->place = 0;
	r->next = !r->count || r->order[0] == NOBODY ? NONE : r->order[0];
	r->next_end_ns = then_ns + CGPU_RECENT_WINDOW_MIN_NS;
}

uint64_t cgpu_actuate_turn_ns(const struct cgpu_recent *r, uint32_t slot)
{
	return cgpu_max(part(r->period_ns, r->due_ppm[slot]), CGPU_RECENT_TURN_NS);
}

/* All groups must fit a turn: an opening gate starts them from the first. */
static uint64_t cut_us(uint64_t ns, uint32_t groups)
{
	uint64_t each = (ns - cgpu_min(ns / 2, CGPU_RECENT_OVERLAP_NS)) / groups;
	uint64_t spare = each - cgpu_min(each, CGPU_RECENT_OVERLAP_NS);

	each -= cgpu_min(each / 2, cgpu_min(spare, CGPU_RECENT_OVERLAP_NS) / 2 / groups);
	return (each - cgpu_min(each / 2, CGPU_RECENT_HANDOVER_NS)) / 1000;
}

void cgpu_actuate_slices(struct cgpu_recent *r)
{
	uint64_t us;
	uint32_t i;

	for (i = 0; i < r->slot_end; i++) {
		struct cgpu_recent_slot *p = &r->slot[i];

		p->wanted_us = 0;
		if (!p->present || !p->member.open || !p->groups || !r->due_ppm[i])
			continue;
		if (r->by_clock)
			us = p->groups == 1 ? 2 * r->period_ns / 1000 :
					      cut_us(p->width_ns, p->groups);
		else
			us = p->groups == 1 ? (p->pauses ? CGPU_RECENT_LONG_SLICE_US :
							   CGPU_RECENT_SLICE_US) :
					      cut_us(cgpu_actuate_turn_ns(r, i), p->groups);
		p->wanted_us = (uint32_t)cgpu_max(us, CGPU_SCHED_SLICE_US_MIN);
	}
}
