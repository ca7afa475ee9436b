/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reads the driver's log of context switches: which process's context had the graphics engine, and
 * how long. That is what a container used. In the engine's windows it shows which containers have
 * no work.
 *
 * Seen on an H200 (580.159.04): a context is loaded when its group first runs. It stays loaded
 * until another is wanted, or its channels are taken off the hardware, however long it idles. So if
 * the owner's context is never loaded in a window, the container has no work. A container that goes
 * idle in the middle of its window is found in its next one. If a container has the card to itself,
 * all time counts as its use.
 */
#ifndef CGPU_CORE_SCHED_SWITCH_LOG_H
#define CGPU_CORE_SCHED_SWITCH_LOG_H

#include "core/types.h"
#include "core/rm/abi.h"
#include "core/sched/sched.h"

enum cgpu_switch_log_limit {
	/*
	 * The driver moves records into the ring when asked to; newer branches also do 30 times a
	 * second. The ring has room for more switches than a card makes between two looks.
	 */
	CGPU_SWITCH_LOG_RECORDS = 8192,
	CGPU_SWITCH_LOG_RECORD_BYTES = 32,
	CGPU_SWITCH_LOG_RING_BYTES = 262144,
	CGPU_SWITCH_LOG_HEADER_BYTES = 4096,
	CGPU_SWITCH_LOG_USES = 64,
	CGPU_SWITCH_LOG_KNOWN = 256
};

/* What a process had of the engine since the last reading. */
struct cgpu_switch_log_use {
	uint32_t pid; /* host's number */
	uint64_t ns;  /* may be 0: loaded a moment ago */
	uint32_t turns; /* turns after which another context was loaded at once */
	uint64_t shortest_ns; /* the shortest of them, from loading to loading */
	uint32_t loads; /* times it was loaded since that reading */
	uint64_t switched_ns; /* loading took this, after another process of its container */
};

/*
 * Entry at the process's number modulo CGPU_SWITCH_LOG_KNOWN; a later process replaces an earlier.
 */
struct cgpu_switch_log_known {
	uint32_t pid;
	uint32_t slot;
	uint64_t used_ns; /* the slot's total use when it was told; 0: not told yet */
};

struct cgpu_switch_log {
	uint32_t get;         /* record to read next */
	uint32_t seqno;       /* the number that record should have */
	bool begun;           /* a record has been read */
	uint32_t pid;         /* process whose context is loaded; 0: none */
	uint64_t start_ns;    /* when it was loaded, on the card's clock */
	uint64_t counted_ns;  /* time counted of it by the host's clock */
	uint64_t read_ns;     /* when the ring was last read */
	uint64_t still_ns;    /* the reading before, if no context moved since; otherwise 0 */
	uint64_t newest_ns;   /* of the record read last, on the card's clock; 0: none is new */
	uint64_t behind_ns;   /* by how much the card's clock is behind the host's, at most, */
	uint64_t behind_now_ns; /* as seen in the span under way, */
	uint64_t behind_before_ns; /* and in the one before */
	uint64_t span_ns;     /* when the present span began; 0: no record was read */
	uint32_t last_pid;    /* process whose context was saved last, */
	uint64_t last_start_ns; /* when it had been loaded, */
	uint64_t last_end_ns; /* and when it was saved */
	uint64_t lost;        /* records that were overwritten before they were read */
	struct cgpu_switch_log_known known[256]; /* CGPU_SWITCH_LOG_KNOWN: the slots of processes */

	uint64_t seen_mask;   /* slots that had the engine since the last look */
	uint64_t look_ns;     /* when the next look is due */
	bool slow;            /* it is due after CGPU_SWITCH_LOG_STILL_NS */
	uint32_t owner;       /* owner of the window that is looked into, */
	uint64_t end_ns;      /* the window's end by the engine's plan, */
	bool looked;          /* and whether the look was made */
	uint64_t windows;     /* the engine's count of windows at the last look into one */
	uint32_t loaded;      /* slot whose use was told last: the loaded one, if any is */
	uint32_t last;        /* owner of the window at the last look into one */
	uint64_t ran_ns[64];  /* CGPU_SCHED_SLOTS: run in the open window, and the one before */
	int32_t usual_ns[64]; /* how much it exceeds its window when it cannot begin early */
	uint8_t early_ends[64]; /* windows in a row into which the next one's work cut */
};

/* The calls by which a client has the driver keep the log, in this order. */
struct cgpu_switch_log_request {
	struct nv_event_buffer_alloc buffer; /* of class NV_EVENT_BUFFER */
	struct nv_fecs_bind_evtbuf bind;     /* NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2 */
	struct nv_event_buffer_enable enable; /* NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS */
};

/*
 * Fills the calls for two memories of the client's and the processes of all users; the newest
 * records are kept. The handles are the client's.
 */
void cgpu_switch_log_request(uint32_t hSubDevice, uint32_t hHeader, uint32_t hRing,
			     uint32_t hBuffer, struct cgpu_switch_log_request *request);

/* A client has bound a ring that is empty. */
void cgpu_switch_log_init(struct cgpu_switch_log *log);

/*
 * Reads what is new in a ring of CGPU_SWITCH_LOG_RECORDS; the driver writes `header` and `ring`.
 * `now_ns`: the time before the driver was asked for its records; a context loaded by them was
 * loaded then. Context: the caller's lock. Return: entries of `use`, one a process; the loaded
 * process comes last. If CGPU_SWITCH_LOG_USES do not suffice, the next call reads the rest.
 */
uint32_t cgpu_switch_log_read(struct cgpu_switch_log *log, const void *header, const void *ring,
			      uint64_t now_ns, struct cgpu_switch_log_use *use);

/* A reading under way. The caller gives room for CGPU_SWITCH_LOG_USES, and zeroes the rest. */
struct cgpu_switch_log_batch {
	struct cgpu_switch_log_use *use;
	uint32_t count, next;
	bool begun;
};

/* Return: the next use of a reading, however many there are; NULL: that was all. */
const struct cgpu_switch_log_use *cgpu_switch_log_next(struct cgpu_switch_log *log,
						       const void *header, const void *ring,
						       uint64_t now_ns,
						       struct cgpu_switch_log_batch *batch);

/*
 * The process of a use belongs to the container in `slot`; CGPU_SCHED_NONE: to none that is there.
 * Several containers have its number if its process ended and left others its client, by which they
 * may compute still. Call this for each then, because the log does not tell them apart.
 */
void cgpu_switch_log_used(struct cgpu_switch_log *log, struct cgpu_sched *s, uint32_t slot,
			  const struct cgpu_switch_log_use *use);

/* Records that the process of a use is in @slot, so that switches within a container are known. */
void cgpu_switch_log_tell(struct cgpu_switch_log *log, const struct cgpu_switch_log_use *use,
			  uint32_t slot);

/*
 * Call after each tick that asks for nothing. Return: when to read the ring and call
 * cgpu_switch_log_judge(), after the driver has been asked for its records; UINT64_MAX: no
 * container is there to learn about.
 */
uint64_t cgpu_switch_log_due(struct cgpu_switch_log *log, const struct cgpu_sched *s,
			     uint64_t now_ns);
/* Reports to the scheduler which containers have work. */
void cgpu_switch_log_judge(struct cgpu_switch_log *log, struct cgpu_sched *s, uint64_t now_ns);

#endif
