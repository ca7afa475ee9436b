// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The ring holds one record for each context that was loaded or saved. The time between the two is
 * what its process used. In windows by the clock two judgements follow. An owner that is not loaded
 * early in its window pauses. An owner that ran longer than its window started early, because the
 * one before had no work when its own window ended. Then the time is charged to the right account.
 */
#include "core/sched/switch_log.h"

#include "core/rm/decode.h"
#include "core/sched/account.h"
#include "core/sched/expiry.h"
#include "core/sched/budget.h"
#include "core/sched/fair.h"
#include "core/sched/pause.h"
#include "core/sched/slices.h"

void cgpu_switch_log_request(uint32_t hSubDevice, uint32_t hHeader, uint32_t hRing,
			     uint32_t hBuffer, struct cgpu_switch_log_request *request)
{
	*request = (struct cgpu_switch_log_request){
		.buffer = {
			.recordSize = CGPU_SWITCH_LOG_RECORD_BYTES,
			.recordCount = CGPU_SWITCH_LOG_RECORDS,
			.hSubDevice = hSubDevice,
			.hBufferHeader = hHeader,
			.hRecordBuffer = hRing,
		},
		.bind = {
			.hEventBuffer = hBuffer,
			.recordSize = CGPU_SWITCH_LOG_RECORD_BYTES,
			.levelOfDetail = NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_SIMPLE,
			.bAllUsers = true,
		},
		.enable = {
			.enable = true,
			.flags = NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_NEWEST,
		},
	};
}

void cgpu_switch_log_init(struct cgpu_switch_log *log)
{
	memset(log, 0, sizeof(*log));
	log->owner = CGPU_SCHED_NONE;
	log->last = CGPU_SCHED_NONE;
}

/* Return: the entry of @pid, which may be new; NULL: all are taken. */
static struct cgpu_switch_log_use *use_of(struct cgpu_switch_log_use *use, uint32_t *count,
					  uint32_t pid)
{
	uint32_t i;

	for (i = 0; i < *count; i++)
		if (use[i].pid == pid)
			return &use[i];
	if (i == CGPU_SWITCH_LOG_USES)
		return NULL;
	use[i] = (struct cgpu_switch_log_use){ .pid = pid };
	++*count;
	return &use[i];
}

static void load(struct cgpu_switch_log *log, uint32_t pid, uint64_t at_ns)
{
	log->pid = pid;
	log->start_ns = at_ns;
	log->counted_ns = 0;
}

/* Both processes are known to be one container's, so a switch between them is its own. */
static bool are_of_one(const struct cgpu_switch_log *log, uint32_t a, uint32_t b)
{
	const struct cgpu_switch_log_known *of_a = &log->known[a % CGPU_SWITCH_LOG_KNOWN];
	const struct cgpu_switch_log_known *of_b = &log->known[b % CGPU_SWITCH_LOG_KNOWN];

	return of_a->pid == a && of_b->pid == b && of_a->slot == of_b->slot;
}

static void take_turn(struct cgpu_switch_log_use *of, uint64_t ns)
{
	of->shortest_ns = of->turns ? cgpu_min(of->shortest_ns, ns) : ns;
	of->turns++;
}

/* Takes one record. Return: false if there is no room for its process. */
static bool take(struct cgpu_switch_log *log, const uint8_t *record,
		 struct cgpu_switch_log_use *use, uint32_t *count)
{
	uint32_t tag = record[NV_EVENT_BUFFER_FECS_TAG];
	uint32_t pid = cgpu_get32(record, NV_EVENT_BUFFER_FECS_PID);
	uint32_t seqno = record[NV_EVENT_BUFFER_FECS_SEQNO] | record[NV_EVENT_BUFFER_FECS_SEQNO + 1]
								      << 8;
	uint64_t at_ns = cgpu_get64(record, NV_EVENT_BUFFER_FECS_TIMESTAMP), ns;
	struct cgpu_switch_log_use *of = use_of(use, count, pid), *last;
	bool follows;

	if (!of)
		return false;
	if (log->begun && seqno != log->seqno) {
		/* the lost records would tell who ran in between */
		log->lost += (seqno - log->seqno) & 0xffff;
		log->pid = 0;
		log->last_pid = 0;
	}
	log->begun = true;
	log->newest_ns = at_ns;
	log->seqno = (seqno + 1) & 0xffff;
	if (tag == NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START ||
	    tag == NV_EVENT_BUFFER_FECS_CTXSWTAG_CONTEXT_START) {
		load(log, pid, at_ns);
		of->loads++;
		follows = log->last_pid && log->last_pid != pid &&
			  at_ns - log->last_end_ns < CGPU_SWITCH_LOG_NEXT_NS;
		if (follows && are_of_one(log, log->last_pid, pid))
			of->switched_ns += at_ns - log->last_end_ns;
		last = follows ? use_of(use, count, log->last_pid) : NULL;
		if (last)
			take_turn(last, at_ns - log->last_start_ns);
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

/*
 * The card's clock drifts against the host's. It is behind by at most the least age that a record
 * had when it was read of late. What was known before the last two spans no longer counts.
 */
static void learn_behind(struct cgpu_switch_log *log, uint64_t now_ns)
{
	uint64_t old_ns = now_ns - log->newest_ns;

	if (!log->newest_ns)
		return;
	log->newest_ns = 0;
	if (now_ns - log->span_ns >= CGPU_SCHED_SECOND_NS) {
		log->behind_before_ns =
			now_ns - log->span_ns < 2 * CGPU_SCHED_SECOND_NS ? log->behind_now_ns :
									      old_ns;
		log->behind_now_ns = old_ns;
		log->span_ns = now_ns;
	}
	/* either clock may be ahead, so differences are compared by their sign */
	if ((int64_t)(old_ns - log->behind_now_ns) < 0)
		log->behind_now_ns = old_ns;
	log->behind_ns = (int64_t)(log->behind_before_ns - log->behind_now_ns) < 0 ?
				 log->behind_before_ns :
				 log->behind_now_ns;
}

uint32_t cgpu_switch_log_read(struct cgpu_switch_log *log, const void *header, const void *ring,
			      uint64_t now_ns, struct cgpu_switch_log_use *use)
{
	/* the driver moves it after the records are written */
	uint32_t put = __atomic_load_n(
		(const uint32_t *)header + NV_EVENT_BUFFER_HEADER_RECORD_PUT / 4, __ATOMIC_ACQUIRE);
	uint32_t count = 0;
	uint64_t start_ns = log->start_ns;
	struct cgpu_switch_log_use *of;

	if (put >= CGPU_SWITCH_LOG_RECORDS)
		return 0;
	if (log->get != put)
		log->still_ns = 0;
	else if (now_ns > log->read_ns)
		log->still_ns = log->read_ns;
	while (log->get != put) {
		if (!take(log, (const uint8_t *)ring + log->get * CGPU_SWITCH_LOG_RECORD_BYTES, use,
			  &count))
			return count;
		log->get = (log->get + 1) % CGPU_SWITCH_LOG_RECORDS;
	}
	of = log->pid ? use_of(use, &count, log->pid) : NULL;
	learn_behind(log, now_ns);
	/* the host's clock counts a context that stays loaded, until its end is known */
	if (of && now_ns > log->read_ns) {
		int64_t loaded_ns = (int64_t)(now_ns - log->behind_ns - log->start_ns);
		uint64_t ns = now_ns - log->read_ns;

		if (start_ns != log->start_ns)
			ns = loaded_ns > 0 ? cgpu_min(ns, (uint64_t)loaded_ns) : 0;
		of->ns += ns;
		log->counted_ns += ns;
	}
	if (of) {
		struct cgpu_switch_log_use loaded = *of;

		*of = use[count - 1];
		use[count - 1] = loaded;
	}
	/* if two callers asked at once, the later one may have read first */
	if (now_ns > log->read_ns)
		log->read_ns = now_ns;
	return count;
}

const struct cgpu_switch_log_use *cgpu_switch_log_next(struct cgpu_switch_log *log,
						       const void *header, const void *ring,
						       uint64_t now_ns,
						       struct cgpu_switch_log_batch *batch)
{
	if (batch->next == batch->count) {
		/* what did not fit is in the ring still */
		if (batch->begun && batch->count < CGPU_SWITCH_LOG_USES)
			return NULL;
		batch->begun = true;
		batch->next = 0;
		batch->count = cgpu_switch_log_read(log, header, ring, now_ns, batch->use);
	}
	return batch->next < batch->count ? &batch->use[batch->next++] : NULL;
}

/*
 * Finds the slot of a process that ended between its work and this reading. It answers once:
 * afterwards the process is recorded as in no slot. A container that took the slot since has used
 * less, and is not charged.
 */
static uint32_t last_known(const struct cgpu_switch_log_known *known, const struct cgpu_sched *s,
			   uint32_t pid)
{
	/* process 0 is in no container, and marks an entry without knowledge */
	if (!pid || known->pid != pid || known->slot >= CGPU_SCHED_SLOTS ||
	    !known->used_ns || s->slot[known->slot].stat.used_ns < known->used_ns)
		return CGPU_SCHED_NONE;
	return known->slot;
}

void cgpu_switch_log_tell(struct cgpu_switch_log *log, const struct cgpu_switch_log_use *use,
			  uint32_t slot)
{
	log->known[use->pid % CGPU_SWITCH_LOG_KNOWN] =
		(struct cgpu_switch_log_known){ use->pid, slot, 0 };
}

void cgpu_switch_log_used(struct cgpu_switch_log *log, struct cgpu_sched *s, uint32_t slot,
			  const struct cgpu_switch_log_use *use)
{
	struct cgpu_switch_log_known *known = &log->known[use->pid % CGPU_SWITCH_LOG_KNOWN];
	uint32_t told = slot;

	if (slot >= CGPU_SCHED_SLOTS)
		slot = last_known(known, s, use->pid);
	cgpu_switch_log_tell(log, use, told);
	log->loaded = slot;
	if (slot >= CGPU_SCHED_SLOTS)
		return;
	log->seen_mask |= SLOT_BIT(slot);
	log->ran_ns[slot] += use->ns;
	cgpu_sched_used(s, slot, use->ns);
	known->used_ns = s->slot[slot].stat.used_ns;
	cgpu_fair_loaded(s, slot, use->loads, use->switched_ns);
	if (use->turns)
		cgpu_slices_lasted(s, slot, use->turns, use->shortest_ns);
}

static bool has_windows(const struct cgpu_sched *s)
{
	return s->plan.mode == CGPU_SCHED_WINDOWS && s->cur.begun;
}

/* On demand a sleeper's gate is open, and the log is read to charge what it runs. */
static uint64_t pace_ns(const struct cgpu_switch_log *log, const struct cgpu_sched *s,
			uint64_t now_ns)
{
	/* only the log tells what is spent of a budget */
	if (cgpu_budget_is_used(s))
		return CGPU_SWITCH_LOG_DEMAND_NS;
	if (cgpu_pause_is_quiet(s, now_ns))
		return CGPU_SWITCH_LOG_RESTING_NS;
	if (log->still_ns && log->pid && log->loaded == s->fair.curr &&
	    cgpu_pause_was_alone(s, log->still_ns))
		return CGPU_SWITCH_LOG_STILL_NS;
	return CGPU_SWITCH_LOG_DEMAND_NS;
}

/* A container stirs. Readings keep their step, because one right now would find nothing yet. */
static void hurry(struct cgpu_switch_log *log, uint64_t now_ns)
{
	uint64_t passed_ns = now_ns > log->read_ns ? now_ns - log->read_ns : 0;
	uint64_t steps = passed_ns / CGPU_SWITCH_LOG_DEMAND_NS + 1;

	log->slow = false;
	log->look_ns = cgpu_min(log->look_ns, log->read_ns + steps * CGPU_SWITCH_LOG_DEMAND_NS);
}

uint64_t cgpu_switch_log_due(struct cgpu_switch_log *log, const struct cgpu_sched *s,
			     uint64_t now_ns)
{
	if (!s->slot_end)
		return UINT64_MAX;
	if (has_windows(s) && (s->cur.owner != log->owner || s->cur.end_ns != log->end_ns)) {
		log->owner = s->cur.owner;
		log->end_ns = s->cur.end_ns;
		log->looked = s->cur.end_ns < now_ns + 2 * CGPU_DEMAND_LOOK_NS;
		if (!log->looked)
			log->look_ns = now_ns + CGPU_DEMAND_LOOK_NS;
	}
	if (s->plan.mode == CGPU_SCHED_DEMAND && !log->slow)
		log->look_ns = cgpu_min(log->look_ns, log->read_ns + pace_ns(log, s, now_ns));
	else if (log->slow && pace_ns(log, s, now_ns) < CGPU_SWITCH_LOG_STILL_NS)
		hurry(log, now_ns);
	if (cgpu_fair_asks_ns(s))
		log->look_ns = cgpu_min(log->look_ns, cgpu_fair_asks_ns(s));
	if (cgpu_pause_is_unclear(s))
		log->look_ns = cgpu_min(log->look_ns, log->read_ns + CGPU_SWITCH_LOG_WAKE_NS);
	return log->look_ns;
}

/* Judges a slot whose window has begun: if it had run, the log would show it. */
static void judge_beginning(const struct cgpu_switch_log *log, struct cgpu_sched *s,
			    uint32_t slot, uint64_t now_ns)
{
	struct cgpu_sched_slot *p = &s->slot[slot];

	if (log->seen_mask & SLOT_BIT(slot)) {
		cgpu_plan_outdate(s, p->idle_windows && s->fair.resting_mask & SLOT_BIT(slot));
		p->idle_windows = 0;
	} else if (!log->looked && s->cur.owner == slot && s->cur.owner == log->owner &&
		   s->cur.end_ns == log->end_ns && p->member.open) {
		/* it kept its windows until now, although it sleeps */
		cgpu_plan_outdate(s, p->fair.asleep && cgpu_pause_is_unproven(s, slot, now_ns));
		p->idle_windows += p->idle_windows < CGPU_SCHED_TWICE;
		cgpu_entity_pause(s, slot, now_ns);
	}
}

static int64_t within(int64_t ns, int64_t most_ns)
{
	return ns > most_ns ? most_ns : ns < -most_ns ? -most_ns : ns;
}

/*
 * If a container ran longer than its window, the one before it had no work at its end: the
 * container began while that one's gate was still open.
 */
static void judge_end(struct cgpu_switch_log *log, struct cgpu_sched *s, uint32_t last,
		      uint64_t now_ns)
{
	uint32_t before = s->last.before;
	int64_t more = (int64_t)log->ran_ns[last] - (int64_t)s->last.ran_ns - log->usual_ns[last];

	if (before >= CGPU_SCHED_SLOTS) {
		/* no gate was open before its own: a longer run is no early start */
		log->usual_ns[last] += (int32_t)(within(more, CGPU_SWITCH_LOG_EARLY_NS) / 4);
		if (log->usual_ns[last] < 0)
			log->usual_ns[last] = 0;
		return;
	}
	if (more <= CGPU_SWITCH_LOG_EARLY_NS) {
		log->early_ends[before] = 0;
		return;
	}
	cgpu_entity_ran_early(s, last, before, (uint64_t)more, now_ns);
	if (++log->early_ends[before] >= CGPU_SCHED_TWICE)
		cgpu_entity_pause(s, before, now_ns);
}

/* Judges the window before this one. */
static void judge_last(struct cgpu_switch_log *log, struct cgpu_sched *s, uint64_t now_ns)
{
	uint32_t i;

	if (s->windows == log->windows + 1 && log->last < CGPU_SCHED_SLOTS)
		judge_end(log, s, log->last, now_ns);
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (i != s->cur.owner)
			log->ran_ns[i] = 0;
	log->windows = s->windows;
	log->last = s->cur.owner;
}

static void forget_slot(struct cgpu_switch_log *log, uint32_t slot)
{
	log->early_ends[slot] = 0;
	log->ran_ns[slot] = 0;
	log->usual_ns[slot] = 0;
}

void cgpu_switch_log_judge(struct cgpu_switch_log *log, struct cgpu_sched *s, uint64_t now_ns)
{
	uint64_t next_ns = (CGPU_SCHED_SECOND_NS / 10);
	uint32_t i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++) {
		if (i >= s->slot_end || !s->slot[i].present)
			forget_slot(log, i);
		else if (has_windows(s))
			judge_beginning(log, s, i, now_ns);
	}
	if (has_windows(s))
		judge_last(log, s, now_ns);
	cgpu_fair_settle(s, log->pid ? log->loaded : CGPU_SCHED_NONE, now_ns);
	log->looked = true;
	log->seen_mask = 0;
	if (s->plan.mode == CGPU_SCHED_DEMAND)
		next_ns = pace_ns(log, s, now_ns);
	log->slow = next_ns == CGPU_SWITCH_LOG_STILL_NS;
	log->look_ns = now_ns + next_ns;
}
