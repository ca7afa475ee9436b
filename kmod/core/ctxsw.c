// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "ctxsw.h"

#include "pool.h"
#include "rm_abi.h"
#include "rm_decode.h"
#include "turns.h"

#define SLOT_BIT(n) (1ULL << (n))

void cgpu_ctxsw_init(struct cgpu_ctxsw *log)
{
	memset(log, 0, sizeof(*log));
	log->owner = CGPU_SCHED_TURNS;
	log->last = CGPU_SCHED_TURNS;
}

/* Return: room for it, NULL: all are taken. */
static struct cgpu_ctxsw_use *use_of(struct cgpu_ctxsw_use *use, uint32_t *count, uint32_t pid)
{
	uint32_t i;

	for (i = 0; i < *count; i++)
		if (use[i].pid == pid)
			return &use[i];
	if (i == CGPU_CTXSW_USES)
		return NULL;
	use[i] = (struct cgpu_ctxsw_use){ .pid = pid };
	++*count;
	return &use[i];
}

static void load(struct cgpu_ctxsw *log, uint32_t pid, uint64_t at_ns)
{
	log->pid = pid;
	log->start_ns = at_ns;
	log->counted_ns = 0;
}

/* Takes one record. Return: false if there is no room for its process. */
static bool take(struct cgpu_ctxsw *log, const uint8_t *record, struct cgpu_ctxsw_use *use,
		 uint32_t *count)
{
	uint32_t tag = record[NV_EVENT_BUFFER_FECS_TAG];
	uint32_t pid = cgpu_get32(record, NV_EVENT_BUFFER_FECS_PID);
	uint32_t seqno = record[NV_EVENT_BUFFER_FECS_SEQNO] |
			 record[NV_EVENT_BUFFER_FECS_SEQNO + 1] << 8;
	uint64_t at_ns = cgpu_get64(record, NV_EVENT_BUFFER_FECS_TIMESTAMP), ns;
	struct cgpu_ctxsw_use *of = use_of(use, count, pid), *last;

	if (!of)
		return false;
	if (log->begun && seqno != log->seqno) {
		/* whose time it was in between nobody knows */
		log->lost += (seqno - log->seqno) & 0xffff;
		log->pid = 0;
		log->last_pid = 0;
	}
	log->begun = true;
	log->seqno = (seqno + 1) & 0xffff;
	if (tag == NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START ||
	    tag == NV_EVENT_BUFFER_FECS_CTXSWTAG_CONTEXT_START) {
		load(log, pid, at_ns);
		last = log->last_pid && log->last_pid != pid &&
		       at_ns - log->last_end_ns < CGPU_CTXSW_NEXT_NS ?
		       use_of(use, count, log->last_pid) : NULL;
		if (last)
			last->turn_ns = at_ns - log->last_start_ns;
		log->last_pid = 0;
	} else if (tag == NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END ||
		   tag == NV_EVENT_BUFFER_FECS_CTXSWTAG_SAVE_END) {
		ns = log->pid == pid && at_ns > log->start_ns ? at_ns - log->start_ns : 0;
		of->ns += ns > log->counted_ns ? ns - log->counted_ns : 0;
		log->last_pid = ns ? pid : 0;
		log->last_start_ns = log->start_ns;
		log->last_end_ns = at_ns;
		log->pid = 0;
	}
	return true;
}

uint32_t cgpu_ctxsw_read(struct cgpu_ctxsw *log, const void *header, const void *ring,
			 uint64_t now_ns, struct cgpu_ctxsw_use *use)
{
	/* the driver moves it after the records are written */
	uint32_t put = __atomic_load_n((const uint32_t *)header +
				       NV_EVENT_BUFFER_HEADER_RECORD_PUT / 4, __ATOMIC_ACQUIRE);
	uint32_t count = 0;
	uint64_t start_ns = log->start_ns;
	struct cgpu_ctxsw_use *of;

	if (put >= CGPU_CTXSW_RECORDS)
		return 0;
	while (log->get != put) {
		if (!take(log, (const uint8_t *)ring + log->get * CGPU_CTXSW_RECORD_BYTES, use,
			  &count))
			return count;
		log->get = (log->get + 1) % CGPU_CTXSW_RECORDS;
	}
	of = log->pid ? use_of(use, &count, log->pid) : NULL;
	/* what stayed loaded is counted by our clock until its end tells all of it */
	if (of && start_ns == log->start_ns && now_ns > log->read_ns) {
		of->ns += now_ns - log->read_ns;
		log->counted_ns += now_ns - log->read_ns;
	}
	if (of) {
		struct cgpu_ctxsw_use loaded = *of;

		*of = use[count - 1];
		use[count - 1] = loaded;
	}
	/* of two who asked at once the later one may have read first */
	if (now_ns > log->read_ns)
		log->read_ns = now_ns;
	return count;
}

void cgpu_ctxsw_used(struct cgpu_ctxsw *log, struct cgpu_sched *s, uint32_t slot,
		     const struct cgpu_ctxsw_use *use)
{
	log->loaded = slot;
	if (slot >= CGPU_SCHED_SLOTS)
		return;
	log->seen_mask |= SLOT_BIT(slot);
	log->ran_ns[slot] += use->ns;
	cgpu_sched_used(s, slot, use->ns);
	if (use->turn_ns)
		cgpu_turn_lasted(s, slot, use->turn_ns);
}

bool cgpu_tenant_has_process(const struct cgpu_tenant *tenant, uint32_t pid)
{
	uint32_t i;

	for (i = 1; i < tenant->objects.slots.touched; i++) {
		const struct cgpu_object *o = cgpu_object_at(&tenant->objects, i);

		if (o->hClient && o->hObject == o->hClient && o->pid == pid)
			return true;
	}
	return false;
}

static bool has_windows(const struct cgpu_sched *s)
{
	return s->mode == CGPU_SCHED_WINDOWS && s->begun;
}

static bool is_empty(const struct cgpu_sched *s)
{
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (s->slot[i].present)
			return false;
	return true;
}

uint64_t cgpu_ctxsw_due(struct cgpu_ctxsw *log, const struct cgpu_sched *s,
			uint64_t now_ns)
{
	if (is_empty(s))
		return UINT64_MAX;
	if (has_windows(s) && (s->owner != log->owner || s->end_ns != log->end_ns)) {
		log->owner = s->owner;
		log->end_ns = s->end_ns;
		log->looked = s->end_ns < now_ns + 2 * CGPU_CTXSW_LOOK_NS;
		if (!log->looked)
			log->look_ns = now_ns + CGPU_CTXSW_LOOK_NS;
	}
	return log->look_ns;
}

/* Its window was begun for it alone; it has not run, else it would have been seen. */
static bool is_idle(const struct cgpu_ctxsw *log, const struct cgpu_sched *s, uint32_t slot)
{
	return !log->looked && s->owner == slot && s->owner == log->owner &&
	       s->end_ns == log->end_ns && s->guest == CGPU_SCHED_TURNS &&
	       s->slot[slot].member.open;
}

/* It lost a window for having no work not long ago: it will not be taken by surprise. */
static bool is_known_to_pause(const struct cgpu_ctxsw *log, uint32_t slot, uint64_t now_ns)
{
	return log->gave_ns[slot] && now_ns - log->gave_ns[slot] < CGPU_CTXSW_KNOWN_NS;
}

/* Where the runlist shares the card, or a window, out: whoever has work comes up each time. */
static bool is_resting(const struct cgpu_ctxsw *log, const struct cgpu_sched *s, uint32_t slot,
		       uint64_t now_ns)
{
	return (s->mode == CGPU_SCHED_SLICES || s->turn[CGPU_SCHED_POOL].share_ppm) &&
	       !s->turn[slot].share_ppm && s->slot[slot].member.open &&
	       now_ns - log->seen_ns[slot] > 2 * s->period_ns;
}

/*
 * One that is idle gets the first millisecond of its next window to itself again:
 * beside a guest that never pauses it might not be loaded for a long time. After
 * some windows without work, of every second window only.
 */
static bool is_asked_again(const struct cgpu_ctxsw *log, const struct cgpu_sched *s,
			   uint32_t slot, uint64_t now_ns)
{
	uint64_t since_ns = now_ns - s->slot[slot].idle_since_ns;

	/* in a guest's window it would be given part of that one */
	return has_windows(s) && cgpu_policy_conserves(s->policy) &&
	       s->turn[slot].share_ppm && s->owner != slot && s->guest == CGPU_SCHED_TURNS &&
	       (log->idle_windows[slot] < CGPU_CTXSW_PATIENCE ||
		since_ns > s->period_ns);
}

static int64_t within(int64_t ns, int64_t most_ns)
{
	return ns > most_ns ? most_ns : ns < -most_ns ? -most_ns : ns;
}

/*
 * That a container ran for longer than its window was is how one shows that has no
 * work at its window's end: the next began while its gate was still open.
 */
static void judge_end(struct cgpu_ctxsw *log, struct cgpu_sched *s, uint32_t last,
		      uint64_t now_ns)
{
	uint32_t before = s->last_before;
	int64_t more = (int64_t)log->ran_ns[last] - (int64_t)s->last_ns - log->usual_ns[last];

	if (before > CGPU_SCHED_POOL) {
		/* its gate opened when nobody's was: what it runs more then is not early */
		log->usual_ns[last] += (int32_t)(within(more, CGPU_CTXSW_EARLY_NS) / 4);
		if (log->usual_ns[last] < 0)
			log->usual_ns[last] = 0;
		return;
	}
	if (more <= CGPU_CTXSW_EARLY_NS) {
		log->early_ends[before] = 0;
		return;
	}
	cgpu_turn_ran_early(s, last, before, (uint64_t)more, now_ns);
	if (++log->early_ends[before] >= CGPU_CTXSW_TWICE)
		cgpu_turn_pause(s, before, now_ns);
}

/* What became of the window before this one. */
static void judge_last(struct cgpu_ctxsw *log, struct cgpu_sched *s, uint64_t now_ns)
{
	bool next = s->windows == log->windows + 1, shared = log->last == CGPU_SCHED_POOL;
	uint32_t i;

	shared &= s->windows != log->windows;
	if (next && log->last < CGPU_SCHED_SLOTS && s->last_guest == CGPU_SCHED_TURNS)
		judge_end(log, s, log->last, now_ns);
	else if (next && shared)
		cgpu_pool_account(s, log->ran_ns);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (i != s->owner && (shared || s->turn[i].share_ppm))
			log->ran_ns[i] = 0;
	log->windows = s->windows;
	log->last = s->owner;
}

static void judge_slot(struct cgpu_ctxsw *log, struct cgpu_sched *s, uint32_t slot,
		       uint64_t now_ns)
{
	if (log->seen_mask & SLOT_BIT(slot))
		log->seen_ns[slot] = now_ns;
	if (s->mode == CGPU_SCHED_FREE || log->seen_mask & SLOT_BIT(slot)) {
		log->idle_windows[slot] = 0;
		if (s->slot[slot].idle)
			cgpu_sched_idle(s, slot, false, now_ns);
	} else if (is_idle(log, s, slot)) {
		cgpu_turn_pause(s, slot, now_ns);
		log->idle_windows[slot] += log->idle_windows[slot] < CGPU_CTXSW_PATIENCE;
		if (log->idle_windows[slot] < CGPU_CTXSW_TWICE &&
		    !is_known_to_pause(log, slot, now_ns))
			return;
		log->gave_ns[slot] = now_ns;
		cgpu_sched_sight(s, CGPU_CTXSW_LATE_NS, now_ns);
		cgpu_sched_idle(s, slot, true, now_ns);
	} else if (is_resting(log, s, slot, now_ns)) {
		cgpu_sched_sight(s, CGPU_CTXSW_LATE_NS, now_ns);
		cgpu_sched_idle(s, slot, true, now_ns);
	} else if (s->slot[slot].idle && is_asked_again(log, s, slot, now_ns)) {
		cgpu_sched_idle(s, slot, false, now_ns);
	}
}

void cgpu_ctxsw_judge(struct cgpu_ctxsw *log, struct cgpu_sched *s, uint64_t now_ns)
{
	bool rests = false;
	uint64_t spare_ns;
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (s->slot[i].present)
			judge_slot(log, s, i, now_ns);
		else
			log->idle_windows[i] = log->usual_ns[i] = 0;
		rests |= s->slot[i].resting;
	}
	if (has_windows(s))
		judge_last(log, s, now_ns);
	log->looked = true;
	log->seen_mask = 0;
	log->look_ns = now_ns + (rests ? CGPU_CTXSW_WAKE_NS : CGPU_CTXSW_REST_NS);
	if (!has_windows(s))
		return;
	spare_ns = cgpu_pool_spare(s);
	if (now_ns >= spare_ns)
		cgpu_pool_sated(s, log->ran_ns, log->pid ? log->loaded : CGPU_SCHED_SLOTS);
	else if (spare_ns < log->look_ns)
		log->look_ns = spare_ns;
}
