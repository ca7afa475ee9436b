// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "recent/observe.h"

#define SLOTS 64

static void enter(struct cgpu_observe_slot *s, uint32_t state, uint64_t now_ns)
{
	s->worked |= state == CGPU_OBSERVE_AWAKE;
	if (s->state == CGPU_OBSERVE_ASLEEP) {
		if (now_ns - s->moved_ns >= CGPU_RECENT_SLEPT_NS)
			s->woke_ns = now_ns;
		s->slept_ns = now_ns;
	}
	if (state == CGPU_OBSERVE_ASLEEP && s->worked)
		s->slept_ns = now_ns;
	s->state = state;
	s->since_ns = now_ns;
	s->others_ran = s->unloaded = false;
}

void cgpu_observe_reset(struct cgpu_observe *o, uint32_t slot, uint64_t now_ns)
{
	struct cgpu_observe_slot *s = &o->slot[slot];

	memset(s, 0, sizeof(*s));
	s->since_ns = s->moved_ns = now_ns;
	s->shorts = 256;
}

bool cgpu_observe_wants(struct cgpu_observe *o, uint32_t slot,
			const struct cgpu_observe_channel *channel)
{
	struct cgpu_observe_slot *s = &o->slot[slot];
	bool turn = s->at % CGPU_RECENT_OTHERS == o->looks % CGPU_RECENT_OTHERS;

	s->at++;
	return channel->moves || !channel->known || turn || s->state != CGPU_OBSERVE_AWAKE;
}

void cgpu_observe_sample(struct cgpu_observe *o, uint32_t slot,
			 struct cgpu_observe_channel *channel, uint32_t get, uint32_t put)
{
	struct cgpu_observe_slot *s = &o->slot[slot];

	if (channel->known && channel->put != put) {
		s->moved = true;
		channel->moves = true;
	}
	s->queued |= get != put;
	channel->put = put;
	channel->known = true;
}

/* Its next submission usually comes before the card could be handed on and back. */
static uint64_t patience_ns(const struct cgpu_observe_slot *s)
{
	uint64_t ns = s->shorts >= CGPU_RECENT_SHORTS ? CGPU_RECENT_PATIENCE_NS : 0;

	return ns > s->silent_ns ? ns : s->silent_ns;
}

/* It mostly pauses, and what it submitted now may be done by the next look. */
static bool is_brief(const struct cgpu_observe_slot *s)
{
	return s->shorts < CGPU_RECENT_SHORTS && s->waits < 2 && s->moves < CGPU_RECENT_MOVES;
}

static void learn_gap(struct cgpu_observe_slot *s, uint64_t gap_ns)
{
	uint32_t is_short = gap_ns <= CGPU_RECENT_GAP_NS ? 256 : 0;

	s->shorts = (s->shorts * 7 + is_short + 4) / 8;
}

bool cgpu_observe_looked(struct cgpu_observe *o, uint32_t slot, bool open, uint64_t open_ns,
			 uint64_t now_ns)
{
	struct cgpu_observe_slot *s = &o->slot[slot];
	uint32_t was = s->state;
	uint64_t from_ns = s->moved_ns > open_ns ? s->moved_ns : open_ns;

	if (s->found && !s->moved && !s->queued) {
		s->silent_ns = s->silent_ns ? s->silent_ns * 2 : CGPU_RECENT_PATIENCE_NS;
		if (s->silent_ns > CGPU_RECENT_PATIENCE_MAX_NS)
			s->silent_ns = CGPU_RECENT_PATIENCE_MAX_NS;
	}
	s->found = false;
	if (open && now_ns - open_ns > CGPU_RECENT_LOOK_NS)
		s->empties = !s->moved && !s->queued;
	s->waits = s->queued ? s->waits + 1 : 0;
	s->moves = s->moved ? s->moves + 1 : 0;
	if (s->moved || s->queued) {
		/* behind a shut gate it could not submit more, if it had work */
		if (s->moved && (s->state != CGPU_OBSERVE_AWAKE ||
				 (open && open_ns < s->moved_ns)))
			learn_gap(s, now_ns - s->moved_ns);
		/* done before gates had moved for it, and if not, the log tells */
		if (s->state != CGPU_OBSERVE_AWAKE)
			enter(s, open && is_brief(s) ? CGPU_OBSERVE_UNKNOWN : CGPU_OBSERVE_AWAKE,
			      now_ns);
		s->moved_ns = now_ns;
	} else if (open && s->state == CGPU_OBSERVE_AWAKE && now_ns - from_ns > patience_ns(s)) {
		enter(s, CGPU_OBSERVE_UNKNOWN, now_ns);
	}
	s->at = 0;
	s->moved = s->queued = false;
	return s->state != was;
}

void cgpu_observe_opened(struct cgpu_observe *o, uint32_t slot)
{
	o->slot[slot].others_ran = o->slot[slot].unloaded = false;
}

bool cgpu_observe_doubt(struct cgpu_observe *o, uint32_t slot, uint64_t now_ns)
{
	struct cgpu_observe_slot *s = &o->slot[slot];
	uint64_t slept_ns = s->slept_ns, woke_ns = s->woke_ns;

	if (s->state != CGPU_OBSERVE_ASLEEP || now_ns - s->since_ns < CGPU_RECENT_PAUSE_NS)
		return false;
	enter(s, CGPU_OBSERVE_UNKNOWN, now_ns);
	s->slept_ns = slept_ns;
	s->woke_ns = woke_ns;
	return true;
}

void cgpu_observe_unloaded(struct cgpu_observe *o, uint32_t slot, bool open, uint64_t now_ns)
{
	struct cgpu_observe_slot *s = &o->slot[slot];

	if (s->state != CGPU_OBSERVE_UNKNOWN)
		return;
	if (!open)
		s->unloaded = true;
	s->others_ns = now_ns;
}

/* Others could run beside it: whoever is loaded again is at work. */
static bool resolve(struct cgpu_observe_slot *s, uint32_t loads, bool others_loaded,
		    uint64_t round_ns, uint64_t still_ns, uint64_t now_ns)
{
	uint64_t from_ns = s->others_ns > still_ns ? s->others_ns : still_ns;

	if (s->unloaded && !s->others_ran) {
		/* what was loaded until now was so before */
		s->others_ran = true;
		s->others_ns = now_ns;
		return false;
	}
	if (s->unloaded)
		round_ns = CGPU_RECENT_LOOK_NS;
	if (s->others_ran && loads) {
		s->found = now_ns - s->moved_ns > CGPU_RECENT_PATIENCE_NS;
		s->moved_ns = now_ns;
		enter(s, CGPU_OBSERVE_AWAKE, now_ns);
		return true;
	}
	if (others_loaded && !s->others_ran) {
		s->others_ran = true;
		s->others_ns = now_ns;
	} else if (s->others_ran && now_ns - from_ns > round_ns) {
		s->silent_ns -= s->silent_ns / 16;
		enter(s, CGPU_OBSERVE_ASLEEP, now_ns);
		return true;
	}
	return false;
}

bool cgpu_observe_logged(struct cgpu_observe *o, uint64_t open, uint64_t round_ns,
			 uint64_t still_ns, uint64_t now_ns)
{
	bool changed = false, others;
	uint32_t i, j;

	for (i = 0; i < SLOTS; i++) {
		struct cgpu_observe_slot *s = &o->slot[i];

		/* seen asleep, and loaded again and again: it works without submissions */
		if (s->state == CGPU_OBSERVE_ASLEEP && o->loads[i] > 1) {
			enter(s, CGPU_OBSERVE_UNKNOWN, now_ns);
			changed = true;
		}
		if (s->state != CGPU_OBSERVE_UNKNOWN ||
		    (!(open >> i & 1) && (!s->unloaded || s->others_ran)))
			continue;
		others = false;
		for (j = 0; j < SLOTS && !others; j++)
			others = j != i && o->loads[j];
		changed |= resolve(s, o->loads[i], others, round_ns, still_ns, now_ns);
	}
	memset(o->loads, 0, sizeof(o->loads));
	return changed;
}

bool cgpu_observe_pauses(const struct cgpu_observe *o, uint32_t slot, uint64_t now_ns)
{
	const struct cgpu_observe_slot *s = &o->slot[slot];

	if (s->state == CGPU_OBSERVE_UNKNOWN)
		return true;
	return s->slept_ns && now_ns - s->slept_ns < CGPU_RECENT_PAUSE_NS;
}
