/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reads the driver's log of context switches: whose context had the graphics
 * engine, and how long. That is what a container used, and in the engine's
 * windows it shows who has no work.
 *
 * Seen on an H200 (580.159.04): a context is loaded when its group first runs
 * and stays loaded until another is wanted, or its channels are taken off the
 * hardware, however long it idles meanwhile. So a window in which its owner's
 * context is never loaded is one of a container without work; one that goes idle
 * in the middle of its window is found in its next one; and of a container that
 * has the card to itself this counts all time.
 */
#ifndef CGPU_CORE_SCHED_SWITCH_LOG_H
#define CGPU_CORE_SCHED_SWITCH_LOG_H

#include "core/types.h"
#include "core/rm/abi.h"
#include "core/sched/sched.h"

enum cgpu_switch_log_limit {
	/*
	 * The driver moves records into the ring when asked to, and newer branches 30
	 * times a second: room for more switches than a card makes between two looks.
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
	uint32_t turns; /* after which another was loaded at once */
	uint64_t shortest_ns; /* of them, from loading to loading */
	uint32_t loads; /* since then */
	uint64_t switched_ns; /* and what those took that followed another of its container */
};

/* By its number, modulo CGPU_SWITCH_LOG_KNOWN: one in another's place is not known. */
struct cgpu_switch_log_known {
	uint32_t pid;
	uint32_t slot;
	uint64_t used_ns; /* of the slot, ever, when it was told; 0: nothing yet */
};

struct cgpu_switch_log {
	uint32_t get;         /* record to read next */
	uint32_t seqno;       /* that it should have */
	bool begun;           /* a record has been read */
	uint32_t pid;         /* whose context is loaded; 0: nobody's */
	uint64_t start_ns;    /* when that was, on the card's clock */
	uint64_t counted_ns;  /* of it, by the host's clock */
	uint64_t read_ns;     /* up to then */
	uint64_t still_ns;    /* the reading before, if none was loaded or saved since; or 0 */
	uint64_t newest_ns;   /* of the record read last, on the card's clock; 0: none is new */
	uint64_t behind_ns;   /* so much the card's clock is behind the host's, */
	uint64_t behind_now_ns; /* as seen in the span under way, */
	uint64_t behind_before_ns; /* and in the one before */
	uint64_t span_ns;     /* when that began; 0: no record was read */
	uint32_t last_pid;    /* whose context was saved last, */
	uint64_t last_start_ns; /* when it had been loaded, */
	uint64_t last_end_ns; /* and when it was saved */
	uint64_t lost;        /* records that were overwritten before they were read */
	struct cgpu_switch_log_known known[256]; /* CGPU_SWITCH_LOG_KNOWN: whose a process is */

	uint64_t seen_mask;   /* slots that had the engine since the last look */
	uint64_t look_ns;     /* no look before */
	bool slow;            /* that is after CGPU_SWITCH_LOG_STILL_NS */
	uint32_t owner;       /* the window that is looked into: whose, */
	uint64_t end_ns;      /* its end by the engine's plan, */
	bool looked;          /* and whether that has been done */
	uint64_t windows;     /* of the engine, when it was looked into one last */
	uint32_t loaded;      /* whose use was told last: of the loaded one, if there is any */
	uint32_t last;        /* whose that was */
	uint64_t ran_ns[64];  /* CGPU_SCHED_SLOTS: of the window that is open, and the one before */
	int32_t usual_ns[64]; /* what it runs more than its window when it cannot begin early */
	uint8_t early_ends[64]; /* windows in a row that the next one's work cut into */
};

/* How a client has the driver keep the log: to be asked for in this order. */
struct cgpu_switch_log_request {
	struct nv_event_buffer_alloc buffer; /* of class NV_EVENT_BUFFER */
	struct nv_fecs_bind_evtbuf bind;     /* NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2 */
	struct nv_event_buffer_enable enable; /* NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS */
};

/*
 * Over two pieces of memory of the client's, for the processes of all users; the newest
 * records are kept. The handles are the client's.
 */
void cgpu_switch_log_request(uint32_t hSubDevice, uint32_t hHeader, uint32_t hRing,
			     uint32_t hBuffer, struct cgpu_switch_log_request *request);

/* A client has bound a ring that is empty. */
void cgpu_switch_log_init(struct cgpu_switch_log *log);

/*
 * Reads what is new in a ring of CGPU_SWITCH_LOG_RECORDS; `header` and `ring` are
 * memory that the driver writes. `now_ns`: before the driver was asked for its
 * records; what is loaded by them was loaded then. Context: the caller's lock.
 * Return: entries of `use`, one a process; the rest waits for the next call if
 * CGPU_SWITCH_LOG_USES do not do. Who is loaded comes last.
 */
uint32_t cgpu_switch_log_read(struct cgpu_switch_log *log, const void *header, const void *ring,
			      uint64_t now_ns, struct cgpu_switch_log_use *use);

/* A reading under way: the caller's room for CGPU_SWITCH_LOG_USES, and nothing else at first. */
struct cgpu_switch_log_batch {
	struct cgpu_switch_log_use *use;
	uint32_t count, next;
	bool begun;
};

/* The uses of a reading, one after another, however many. Return: NULL: that was all. */
const struct cgpu_switch_log_use *cgpu_switch_log_next(struct cgpu_switch_log *log,
						       const void *header, const void *ring,
						       uint64_t now_ns,
						       struct cgpu_switch_log_batch *batch);

/*
 * The process of a use belongs to the container in `slot`, or, CGPU_SCHED_NONE, to none that
 * is there. Two have its number if one's process ended and left others its client, by which
 * they may compute still: to be called for each, for the log does not tell them apart.
 */
void cgpu_switch_log_used(struct cgpu_switch_log *log, struct cgpu_sched *s, uint32_t slot,
			  const struct cgpu_switch_log_use *use);

/* As far as @slot goes: whose the process of a use is, so that switches among one's are known. */
void cgpu_switch_log_tell(struct cgpu_switch_log *log, const struct cgpu_switch_log_use *use,
			  uint32_t slot);

/*
 * Call after each tick that asks for nothing. Return: when to read the ring and call
 * cgpu_switch_log_judge(), after the driver has been asked for its records; UINT64_MAX:
 * there is nobody to be told of.
 */
uint64_t cgpu_switch_log_due(struct cgpu_switch_log *log, const struct cgpu_sched *s,
			     uint64_t now_ns);
/* Reports to the scheduler who has work and who has not. */
void cgpu_switch_log_judge(struct cgpu_switch_log *log, struct cgpu_sched *s, uint64_t now_ns);

#endif
