/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who has work, by what each compute channel's USERD says: GP_PUT moves with every
 * submission, GP_GET when the card fetches it. Different: the channel waits for the
 * card. Equal, and GP_PUT still for longer than it usually is: the container sleeps.
 *
 * A door reads, and this says whom to look at and when. Both words are the tenant's
 * to write. They move gates and never accounts: who seems to work is charged for the
 * card as if it did.
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

/* A sleep, and of the log what is needed to tell what was run in it. */
struct cgpu_demand_nap {
	uint64_t from_ns, to_ns; /* 0: not judged later */
	uint64_t told_ns;     /* the log had been read when it began, */
	uint64_t used_ns;     /* and told of so much, */
	uint32_t loads;       /* and of so many loads */
};

/* What one runs for a submission. */
struct cgpu_demand_piece {
	uint64_t ns;          /* as was seen, less by each sleep; 0: never */
	uint64_t from_ns;     /* it had used so much when it submitted last */
	uint32_t loads;       /* in its sleep, when it was looked at last */
};

/* What a door keeps beside each compute channel; zeroed when the channel comes. */
struct cgpu_demand_channel {
	uint32_t get, put;  /* as read last */
	bool known;         /* it has been read */
	uint8_t heat;       /* looks at others that moved until this one is not read each time */
};

struct cgpu_demand_slot {
	uint32_t state;
	uint64_t looked_ns;   /* last */
	uint64_t busy_ns;     /* what it ran of late while it seemed to sleep */
	uint64_t moved_ns;    /* its last look that found work */
	uint64_t behind_ns;   /* its last look that did not while another may have run */
	uint64_t empty_ns;    /* last seen with nothing queued; 0: never */
	uint64_t gap_ns;      /* between looks that found a submission, averaged; 0: unknown */
	uint32_t shorts;      /* of 256 gaps that were worth waiting for, averaged */
	uint32_t waits;       /* looks in a row that found something queued, */
	uint32_t moves;       /* and a submission */
	uint64_t silent_ns;   /* it works so long without a submission, as was seen */
	uint64_t round_ns;    /* the longest round of the runlist since doubt began */
	uint64_t feigned_ns;  /* it only seems to work until it has run so much; 0: it may work */
	bool is_found;        /* it submitted nothing, and is or may be at work all the same */
	uint64_t doubt_ns;    /* since then it may be at something longer, or sleep; 0: neither */
	uint64_t told_ns;     /* when the log was read that was heeded last, */
	uint64_t used_ns;     /* and it had used so much, ever */
	struct cgpu_demand_nap nap;
	struct cgpu_demand_piece piece;
	uint64_t asleep_ran_ns; /* run in its sleep, when it was looked at last */
	uint32_t asleep_loads; /* loaded in its sleep, when it was looked at last; for that */
	uint64_t searched_ns; /* all its channels were read then, */
	uint64_t stirs_to_ns; /* and looks at it are not put off until then */
	uint64_t due_ns;      /* of the next look at it */
	struct cgpu_demand_rate alone, beside; /* others' gates shut; not all shut */
	uint64_t compared_ns; /* when both were known; 0: they are not */
	uint32_t kept_ppm;    /* of its rate alone it has so much beside others; 0: unknown */
	uint32_t fulls;       /* /256: looks alone that found a submission and others waiting */
	bool is_tried;        /* such a look was made */
	bool was_beside;      /* another's gate was open at its last look */
	uint64_t quiet_ns;    /* since the look that found a submission, all others as now */
	/* of the look under way */
	uint32_t at, cursor;  /* channel; and which is read next of those that never move, */
	uint32_t skips;       /* unless this is not 0 */
	bool searches;        /* all are read */
	uint32_t hot;         /* channels so far of those that move, */
	uint32_t hots, hot_from; /* all in the last look; and which of them is read first */
	uint32_t submits;
	bool moved, queued;
};

struct cgpu_demand {
	struct cgpu_demand_slot slot[64]; /* CGPU_SCHED_SLOTS */
	uint64_t cost_ns;     /* of a look, averaged */
	uint64_t pace_ns;     /* from a look to the next */
	uint64_t look_ns;     /* the last ended */
	uint64_t looks;
	uint64_t steady_ns;   /* since when nobody pauses whom slices keep apart, */
	uint64_t steady_mask; /* and who those are */
};

void cgpu_demand_init(struct cgpu_demand *demand);

/*
 * Return: when to look, UINT64_MAX: at the next event at the earliest; `*mask`: at
 * whom. A door that cannot read a slot's channels samples none of them.
 */
uint64_t cgpu_demand_due(struct cgpu_demand *demand, const struct cgpu_sched *s,
			 uint64_t now_ns, uint64_t *mask);

/* Whether that channel is to be read in this look; to be asked once for each. */
bool cgpu_demand_wants(struct cgpu_demand *demand, uint32_t slot,
		       const struct cgpu_demand_channel *channel);
/* Return: true: the slot has work, its other channels do not matter. */
bool cgpu_demand_sample(struct cgpu_demand *demand, uint32_t slot,
			struct cgpu_demand_channel *channel, uint32_t get, uint32_t put);
/* All slots of `mask` were looked at; tells the engine. */
void cgpu_demand_judge(struct cgpu_demand *demand, struct cgpu_sched *s, uint64_t mask,
		       uint64_t start_ns, uint64_t end_ns);

/* The slot's container has gone, or another has come. */
void cgpu_demand_forget(struct cgpu_demand *demand, uint32_t slot);

/* Without work for so long a container sleeps. */
uint64_t cgpu_demand_patience_ns(const struct cgpu_demand *demand, uint32_t slot);
/* It was seen with nothing queued of late. */
bool cgpu_demand_pauses(const struct cgpu_demand *demand, uint32_t slot, uint64_t now_ns);

#endif
