// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "ctxsw.h"

#include "rm_abi.h"
#include "rm_decode.h"

#define SLOT_BIT(n) (1ULL << (n))

void cgpu_ctxsw_init(struct cgpu_ctxsw *log)
{
	memset(log, 0, sizeof(*log));
	log->owner = CGPU_SCHED_TURNS;
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
	log->read_ns = now_ns;
	return count;
}

void cgpu_ctxsw_used(struct cgpu_ctxsw *log, struct cgpu_sched *s, uint32_t slot,
		     const struct cgpu_ctxsw_use *use)
{
	if (slot >= CGPU_SCHED_SLOTS)
		return;
	log->seen_mask |= SLOT_BIT(slot);
	cgpu_sched_used(s, slot, use->ns);
	if (use->turn_ns)
		cgpu_sched_turned(s, slot, use->turn_ns);
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

/* News of who is idle moves windows. */
static bool is_useful(const struct cgpu_sched *s)
{
	return s->mode == CGPU_SCHED_WINDOWS && s->begun && cgpu_policy_conserves(s->policy);
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
	if (is_useful(s) && (s->owner != log->owner || s->end_ns != log->end_ns)) {
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
	return s->owner != slot && s->guest == CGPU_SCHED_TURNS &&
	       (log->idle_windows[slot] < CGPU_CTXSW_PATIENCE ||
		since_ns > s->period_ns);
}

void cgpu_ctxsw_judge(struct cgpu_ctxsw *log, struct cgpu_sched *s, uint64_t now_ns)
{
	bool useful = is_useful(s);
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (!s->slot[i].present) {
			log->idle_windows[i] = 0;
		} else if (!useful || log->seen_mask & SLOT_BIT(i)) {
			log->idle_windows[i] = 0;
			if (s->slot[i].idle)
				cgpu_sched_idle(s, i, false, now_ns);
		} else if (is_idle(log, s, i)) {
			log->idle_windows[i] += log->idle_windows[i] < CGPU_CTXSW_PATIENCE;
			if (log->idle_windows[i] < CGPU_CTXSW_TWICE)
				continue;
			cgpu_sched_sight(s, CGPU_CTXSW_LATE_NS, now_ns);
			cgpu_sched_idle(s, i, true, now_ns);
		} else if (s->slot[i].idle && is_asked_again(log, s, i, now_ns)) {
			cgpu_sched_idle(s, i, false, now_ns);
		}
	}
	log->looked = true;
	log->seen_mask = 0;
	log->look_ns = now_ns + CGPU_CTXSW_REST_NS;
}
