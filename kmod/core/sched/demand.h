/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which containers have work, by each compute channel's USERD. GP_PUT moves with every submission,
 * GP_GET when the card fetches it. If they differ, the channel waits for the card. If they are
 * equal, and GP_PUT has stood still for longer than usual, the container sleeps.
 *
 * The caller reads; this module says which containers to look at, and when. The tenant can write
 * both words. They move gates, never accounts: a container that seems to work is charged for the
 * card as if it worked.
 *
 *     due = cgpu_demand_due(demand, sched, now, &mask);     after each tick without actions
 *     at `due`, for each slot of `mask`, for each of its compute channels:
 *         if (cgpu_demand_wants(demand, slot, &channel->demand))
 *             read GP_GET and GP_PUT at once
 *             if (cgpu_demand_sample(demand, slot, &channel->demand, get, put))
 *                 go on with the next slot
 *     cgpu_demand_judge(demand, sched, mask, started, now);   and tick
 */
#ifndef CGPU_CORE_SCHED_DEMAND_H
#define CGPU_CORE_SCHED_DEMAND_H

#include "core/types.h"
#include "core/sched/sched.h"

enum cgpu_demand_limit {
	CGPU_USERD_GP_GET = 0x88
};

enum cgpu_demand_state {
	CGPU_DEMAND_UNKNOWN, /* not looked at, or its channels cannot be read: counts as work */
	CGPU_DEMAND_QUEUED,  /* waits for the card */
	CGPU_DEMAND_WORKS,   /* the card has fetched all it submitted a moment ago */
	CGPU_DEMAND_SLEEPS
};

/* What a container submits, measured while it is awake. */
struct cgpu_demand_rate {
	uint64_t ns;
	uint64_t submits;
	uint64_t per_second;  /* averaged; 0: not measured for long enough yet */
};

/* A sleep, and the log's totals at its beginning: they tell later what was run in it. */
struct cgpu_demand_nap {
	uint64_t from_ns, to_ns; /* to_ns 0: not judged later */
	uint64_t told_ns;     /* when the log had last been read at its beginning, */
	uint64_t used_ns;     /* the use it told of by then, */
	uint32_t loads;       /* and the loads */
};

/* What a container runs for one submission. */
struct cgpu_demand_piece {
	uint64_t ns;          /* longest seen, less by each sleep; 0: never */
	uint64_t from_ns;     /* use up to its last submission */
	uint32_t loads;       /* asleep_loads at the last look */
};

/* State that the caller keeps for each compute channel; zeroed when the channel comes. */
struct cgpu_demand_channel {
	uint32_t get, put;  /* as read last */
	bool known;         /* it has been read */
	uint8_t heat;       /* falls with looks that find others moving; 0: rarely read */
};

struct cgpu_demand_slot {
	uint32_t state;
	uint64_t looked_ns;   /* last */
	uint64_t busy_ns;     /* what it ran of late while it seemed to sleep */
	uint64_t moved_ns;    /* its last look that found work */
	uint64_t behind_ns;   /* last look without work, while another may have run */
	uint64_t empty_ns;    /* last seen with nothing queued; 0: never */
	uint64_t gap_ns;      /* between looks that found a submission, averaged; 0: unknown */
	uint32_t shorts;      /* of 256 gaps, how many were worth waiting for, averaged */
	uint32_t waits;       /* looks in a row that found something queued, */
	uint32_t moves;       /* and a submission */
	uint64_t silent_ns;   /* learnt: how long it works without a submission */
	uint64_t round_ns;    /* the longest round of the runlist since doubt began */
	uint64_t feigned_ns;  /* used_ns + 1 until which it only seems to work; 0: it may work */
	bool is_found;        /* it submitted nothing, but is or may be at work */
	uint64_t doubt_ns;    /* since when it may be at long work, or asleep; 0: no doubt */
	uint64_t told_ns;     /* the last reading of the log that counted, */
	uint64_t used_ns;     /* and the slot's total use by then */
	struct cgpu_demand_nap nap;
	struct cgpu_demand_piece piece;
	uint64_t asleep_ran_ns; /* fair.asleep_ran_ns at the last look */
	uint32_t asleep_loads; /* fair.asleep_loads at the last look, for is_missed() */
	uint64_t searched_ns; /* when a look was last to read all its channels, */
	uint64_t stirs_to_ns; /* and until when looks at it are not put off */
	uint64_t due_ns;      /* of the next look at it */
	struct cgpu_demand_rate alone, beside; /* with all others' gates shut; with some open */
	uint64_t compared_ns; /* when both were known; 0: they are not */
	uint32_t kept_ppm;    /* its rate beside others, as part of its rate alone; 0: unknown */
	uint32_t fulls;       /* /256: looks alone with a submission that found work queued */
	bool is_tried;        /* such a look was made */
	bool was_beside;      /* another's gate was open at its last look */
	uint64_t quiet_ns;    /* since the last submission seen, with the others unchanged */
	/* of the look under way */
	uint32_t at, cursor;  /* the channel; the next one to read of those that never move, */
	uint32_t skips;       /* unless this is not 0 */
	bool searches;        /* all are read */
	uint32_t hot;         /* channels that move, so far, */
	uint32_t hots, hot_from; /* all in the last look; the first of them to read */
	uint32_t submits;
	bool moved, queued;
};

struct cgpu_demand {
	struct cgpu_demand_slot slot[64]; /* CGPU_SCHED_SLOTS */
	uint64_t cost_ns;     /* of a look, averaged */
	uint64_t pace_ns;     /* from a look to the next */
	uint64_t look_ns;     /* the last ended */
	uint64_t looks;
	uint64_t steady_ns;   /* since when no container pauses under slices, */
	uint64_t steady_mask; /* and the slots of those containers */
};

void cgpu_demand_init(struct cgpu_demand *demand);

/*
 * Sets `*mask` to the slots to look at. Return: when to look; UINT64_MAX: not before the next
 * event. A caller that cannot read a slot's channels samples none of them.
 */
uint64_t cgpu_demand_due(struct cgpu_demand *demand, const struct cgpu_sched *s,
			 uint64_t now_ns, uint64_t *mask);

/* Whether to read the channel in this look; call once for each channel. */
bool cgpu_demand_wants(struct cgpu_demand *demand, uint32_t slot,
		       const struct cgpu_demand_channel *channel);
/* Return: true if the slot has work: its other channels need not be read. */
bool cgpu_demand_sample(struct cgpu_demand *demand, uint32_t slot,
			struct cgpu_demand_channel *channel, uint32_t get, uint32_t put);
/* All slots of `mask` were looked at; tells the engine. */
void cgpu_demand_judge(struct cgpu_demand *demand, struct cgpu_sched *s, uint64_t mask,
		       uint64_t start_ns, uint64_t end_ns);

/* The slot's container has gone, or another has come. */
void cgpu_demand_forget(struct cgpu_demand *demand, uint32_t slot);

/* How long a container must be without work until it counts as asleep. */
uint64_t cgpu_demand_patience_ns(const struct cgpu_demand *demand, uint32_t slot);
/* The container was seen with nothing queued within CGPU_SCHED_FAIR_FULL_NS. */
bool cgpu_demand_pauses(const struct cgpu_demand *demand, uint32_t slot, uint64_t now_ns);

#endif
