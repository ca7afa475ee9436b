/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One card's engine: which containers may run now. It is told the time and what happened. It
 * answers with timeslices to program and gates to open or shut.
 *
 * The caller holds its lock around every function here. It releases the lock while it carries out
 * the actions, in the order given, and then reports each by cgpu_sched_done(). After any event, and
 * at *wake_ns, it calls cgpu_sched_tick(). How this works and why: docs/scheduler.md.
 */
#ifndef CGPU_CORE_SCHED_SCHED_H
#define CGPU_CORE_SCHED_SCHED_H

#include "core/types.h"
#include "core/sched/policy.h"
#include "core/sched/tuning.h"

enum cgpu_sched_limit {
	CGPU_SCHED_SLOTS = 64,
	/* entities: one for each slot, and one for time that is nobody's */
	CGPU_SCHED_NOBODY = 64,
	CGPU_SCHED_ENTITIES = 65,
	CGPU_SCHED_NONE = 255,   /* no slot, no entity */
	CGPU_SCHED_ACTIONS = 66, /* enough for any answer of a tick */
	CGPU_SCHED_FAIR_CLAIM_S = 1000000000, /* more than any lag */
	/* the held time of a second is known to within one of so many parts, */
	CGPU_SCHED_FAIR_BINS = 15,
	/* and the used time, which a ceiling limits, to within one of so many */
	CGPU_SCHED_BUDGET_BINS = 64
};

enum cgpu_sched_mode {
	CGPU_SCHED_FREE,   /* every gate open, CUDA's own slices */
	CGPU_SCHED_SLICES, /* every gate open, the runlist's slices make the shares */
	CGPU_SCHED_WINDOWS, /* gates make the shares, by the clock */
	CGPU_SCHED_DEMAND  /* gates make them, by which slots have work */
};

enum cgpu_sched_kind {
	CGPU_SCHED_OPEN,  /* let the slots of `mask` run */
	CGPU_SCHED_SHUT,  /* take the slots of `mask` off the hardware */
	CGPU_SCHED_SLICE  /* program `slice_us` on each channel group of the slots */
};

struct cgpu_sched_action {
	uint32_t kind;
	uint32_t slice_us;
	uint64_t mask; /* bit n: slot n */
};

/* Totals since the container came. */
struct cgpu_sched_stat {
	uint64_t granted_ns;   /* card time that was its to use */
	uint64_t used_ns;      /* as told by cgpu_sched_used(); 0: nothing was told */
	uint64_t throttled_ns; /* had the GPU open while its gate was shut */
	uint64_t waited_ns;    /* had work, as far as is known, and did not run; 0: as used_ns */
	uint64_t switches;     /* windows begun */
	uint64_t overruns;     /* windows that ended late */
	int64_t lag_ns;        /* due to it; below 0: it took more than its entitlement */
};

/* What a container had of the last second. */
struct cgpu_sched_second {
	uint64_t sum_ns;       /* of bin_ns */
	uint32_t bin_ns[65];   /* the parts that it is divided into, and the one being filled */
	uint64_t bin;
};

/* What a ceiling allows while windows are made on demand. */
struct cgpu_sched_budget {
	struct cgpu_sched_second used; /* CGPU_SCHED_BUDGET_BINS */
	bool is_spent;         /* the last second's use has reached the ceiling */
	bool is_ahead;         /* it is paced */
};

/* What GP_PUT and GP_GET say about a container (demand.h). */
struct cgpu_sched_seen {
	bool asleep;           /* it sleeps, or has work */
	bool empties;          /* now and then it has nothing queued */
	bool moved;            /* it submitted work, which may be done by now */
	bool is_silent;        /* it is known to work for long without a submission, */
	bool is_doubted;       /* and does so now, or sleeps: not known yet; */
	bool is_found;         /* it seemed to sleep, and was found at work */
	uint32_t kept_ppm;     /* its rate beside others, of its rate alone; 0: unknown or low */
};

/* A slot's entity while windows are made on demand. */
struct cgpu_sched_fair_slot {
	bool asleep;           /* told by cgpu_sched_demand(), */
	uint64_t since_ns;     /* since when it has been asleep, or awake */
	uint64_t moved_ns;     /* told too: when a look last found a submission */
	bool empties;          /* told too: now and then it has nothing queued; */
	uint32_t kept_ppm;     /* its rate beside others, of its rate alone */
	bool is_silent;        /* it works for long without a submission; */
	bool is_doubted;       /* that, or it sleeps: others run beside it until that is known */
	bool is_found;         /* it woke without a submission: it did not sleep */
	bool is_overdrawn;     /* it had a claim within a second, and has held its share of it */
	uint64_t overdrew_ns;  /* when it last took more than its share beside others; 0: never */
	uint64_t slept_ns;     /* when it last woke from a sleep, on demand; 0: never */
	bool pauses;           /* by the fields above, and by the log */
	bool woke;             /* since cgpu_fair_pick() last chose */
	bool claims;           /* it slept, and has not held its share of a second since */
	bool worked;           /* it has been awake since it opened the card */
	bool is_probed;        /* it fell asleep: its gate shuts once, to unload its context */
	bool is_urgent;        /* so far behind its ceiling that it goes before a claim */
	uint32_t full_ppm;     /* its share while all have work */
	int64_t lag_ns;        /* due to it; below 0: held beyond its share */
	struct cgpu_sched_second held; /* CGPU_SCHED_FAIR_BINS */
	uint64_t held_ns;      /* charged since the log was last read; ran_ns: run by the log */
	uint64_t ran_ns;
	uint64_t switched_ns;  /* its own processes switched for so long, since then */
	uint32_t loads;        /* loads since then, */
	uint32_t loads_ever;   /* and ever */
	uint32_t asleep_loads; /* in its sleep, ever */
	uint64_t resumed_ns;   /* run up to that reading, if loaded while no slot had the card */
	uint32_t turns;        /* loads since fair.turns_from_ns */
	bool takes_turns;      /* it had more than one, and so had another slot */
	uint64_t asleep_ran_ns; /* run beyond what it held while it slept, ever */
	uint64_t fell_ran_ns;  /* asleep_ran_ns when it fell asleep */
	/* under slices, since use_from_ns: what they gave the slot, and what it ran */
	uint64_t use_from_ns, use_due_ns, use_ran_ns;
	int64_t use_missed_ns; /* what it missed of its share of what all ran, beyond a tolerance */
	bool use_emptied;      /* it was seen with nothing queued */
	bool is_judged;        /* the log has told whether it runs what they give it, */
	bool is_short;         /* and it runs less, for lack of work */
};

struct cgpu_sched_slot {
	struct cgpu_sched_fair_slot fair;
	struct cgpu_sched_budget budget;
	bool present;
	uint64_t idle_ns;      /* when one of its windows last passed without work; 0: never */
	uint8_t idle_windows;  /* such windows in a row, up to CGPU_SCHED_TWICE */
	struct cgpu_policy_member member;
	uint32_t groups;       /* channel groups that compute */
	uint32_t gang;         /* the same number on all its cards; 0: it computes on one at most */
	uint32_t slice_us;     /* programmed; 0: not known */
	uint32_t wanted_us;
	uint64_t open_since_ns;
	uint64_t open_used_ns; /* stat.used_ns then */
	uint64_t leaves_ns;    /* it closed the card, but counts as open until then */
	uint64_t awake_ns;     /* total time with the GPU open, and not known to be without work */
	uint64_t awake_used_ns; /* part of stat.used_ns while it was awake */
	struct cgpu_sched_stat stat;
};

struct cgpu_sched_entity {
	uint32_t share_ppm;
	/* at mark_ns; without a share: what it had in advance, or is behind its ceiling (budget) */
	int64_t lag_ns;
	uint64_t mark_ns;      /* on the card's clock */
	uint64_t width_ns;     /* of its window, as planned */
	uint64_t cost_ns;      /* lost on top, at its hand-over */
	uint64_t offset_ns;    /* end of its window, from the period's beginning */
};

/* What the administrator set. */
struct cgpu_sched_config {
	uint32_t policy;
	uint32_t max_inst;
	uint64_t unit_ns;
	uint64_t loss_ppm;     /* CGPU_SCHED_LOSS_PPM; CGPU_PPM: never lengthen the period */
	uint64_t phase_ns;     /* a period begins this long after each whole second */
};

/* The period, and the order of windows in it: made anew after each event. */
struct cgpu_sched_plan {
	uint32_t mode;         /* enum cgpu_sched_mode */
	bool dirty;            /* something changed that the plan depends on */
	bool moved;            /* windows moved: the time, not the order, decides the next one */
	bool whole;            /* hand-overs take the time that is nobody's, not from shares */
	bool reslice;          /* some slot's slice is not the wanted one */
	uint64_t period_ns;
	uint64_t spread_ns;    /* the part of the period that windows or slices divide */
	uint64_t frame_ns;     /* beginning of the period */
	uint64_t clock_ns;     /* the card's clock when the plan was made */
	uint64_t review_ns;    /* when the plan expires by itself */
	uint32_t count;        /* entities that have a share */
	uint8_t order[65];     /* these, in order; CGPU_SCHED_ENTITIES */
	int8_t place[65];      /* place of an entity in it; without a share: before the next */
};

/* The open window (cur), the one that calls under way begin (next), the last one. */
struct cgpu_sched_window {
	bool begun;            /* cur: a window is open */
	uint32_t owner;        /* entity that has the window */
	uint32_t before;       /* entity whose gate was still open when its own opened, or NONE */
	uint64_t began_ns;
	uint64_t end_ns;
	uint64_t cost_ns;      /* lost to hand-overs, */
	uint64_t unpaid_ns;    /* the part of it that is still to be charged */
	uint64_t charged_to_ns;
	uint64_t ran_ns;       /* last: work in it, if nothing went wrong */
};

struct cgpu_sched_gates {
	uint64_t open_mask;    /* slots whose channels the gates move */
	uint64_t shut_mask;
	uint64_t stale_mask;   /* shut in part: must be opened, or shut again */
	uint64_t missed_mask;  /* slots with channels that the calls under way do not know */
	uint64_t open_ns;      /* latency of a call, averaged */
	uint64_t shut_ns;
};

struct cgpu_sched_calls {
	uint32_t pending;      /* actions not reported yet */
	uint64_t issued_ns;
	uint64_t count;        /* actions reported */
	uint64_t failures;
	uint64_t retry_ns;     /* after a failure all gates are open until then; 0: no failure */
	uint64_t hold_ns;      /* when a gate that would not open is tried again */
};

struct cgpu_sched_fair {
	uint32_t curr;         /* slot that has the card, or NONE */
	uint32_t next;         /* slot to which calls under way give it */
	uint64_t began_ns;     /* since when curr has it */
	uint64_t taken_ns;     /* when it last went to a slot after none had it */
	uint64_t charged_to_ns;
	uint64_t settled_ns;   /* when the log was last read, */
	uint64_t settled_from_ns; /* and the time before that */
	uint64_t went_on_ns;   /* when the log showed a slot loaded in another's turn */
	uint64_t turns_from_ns; /* judge_turns() counts loads since then */
	uint32_t loaded;       /* slot whose context was loaded, or NONE */
	uint64_t resting_mask; /* slots that the plan leaves out */
	uint64_t kept_ns;      /* windows on demand stay until then; */
	uint64_t keep_ns;      /* they stay for so long after a sleep; */
	uint64_t given_up_ns;  /* when they were last given up */
	uint64_t changed_ns;   /* when the mode changed */
	uint64_t planned_ns;   /* when shares may have changed */
};

struct cgpu_sched {
	struct cgpu_sched_fair fair;
	struct cgpu_sched_config config;
	struct cgpu_sched_plan plan;
	struct cgpu_sched_window cur, next, last;
	struct cgpu_sched_gates gates;
	struct cgpu_sched_calls calls;

	struct cgpu_sched_slot slot[64];    /* CGPU_SCHED_SLOTS */
	uint32_t slot_end;     /* no container in this slot or above: ticks skip them */
	struct cgpu_policy_share share[64];
	struct cgpu_policy_member scratch[64]; /* the kernel's stack has no room for it */
	struct cgpu_sched_entity entity[65];    /* CGPU_SCHED_ENTITIES */

	bool suspended;
	uint64_t after_ns;     /* from a slice's end to the next group's beginning, averaged */
	uint64_t after_used_ns; /* the value of after_ns for which slices are cut */

	bool regate;           /* the gates may not be as the open window wants them */
	bool moving;           /* towards the window of `next` */
	bool overlap;          /* the hand-over under way opens before it shuts */
	uint64_t clock_ns;     /* of the time that shares divide */
	uint64_t windows;      /* begun in total */
	uint64_t used_ns;      /* by all slots, including those that went */
	uint64_t granted_to_ns; /* until when slots were granted their shares */
};

/*
 * Starts with no container, policy native. Calls of all cards take one lock of the
 * driver: `phase_ns` keeps their periods apart.
 */
void cgpu_sched_init(struct cgpu_sched *s, uint64_t now_ns);

/*
 * The card's numbers; telling the same again is free. Return: 0, -EINVAL: no such
 * policy, -ERANGE: another number out of bounds.
 */
int cgpu_sched_card(struct cgpu_sched *s, uint32_t policy, uint32_t max_inst,
		    uint32_t timeslice_us, uint64_t now_ns);

/*
 * A container came, or its numbers changed (`open` and `active` of `member` are
 * ignored); telling the same again is free. Return: 0, -ERANGE: a number out of
 * bounds, or no such slot.
 */
int cgpu_sched_set(struct cgpu_sched *s, uint32_t slot,
		   const struct cgpu_policy_member *member, uint64_t now_ns);
void cgpu_sched_remove(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);

/*
 * Whether a process of the container holds the GPU open, and how many channel groups compute.
 * Telling the same again is free. New groups of a container whose gate is shut must start stopped
 * (cgpu_sched_may_run()).
 */
void cgpu_sched_open(struct cgpu_sched *s, uint32_t slot, bool open, uint32_t groups,
		     uint64_t now_ns);
/*
 * The container computes on several cards and has this number on each; 0: on one at most
 * (gang.h). Telling the same again is free.
 */
void cgpu_sched_gang(struct cgpu_sched *s, uint32_t slot, uint32_t gang, uint64_t now_ns);
bool cgpu_sched_may_run(const struct cgpu_sched *s, uint32_t slot);
/* The caller stopped new channels of the slot by itself: the engine will open them. */
void cgpu_sched_held(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);
/* Channels came or went: a shut gate is shut again, for the new ones. */
void cgpu_sched_renewed(struct cgpu_sched *s, uint32_t slot);
/* A group replaced another, their number unchanged: slices and gates are set again. */
void cgpu_sched_reapply(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);

/* Tells what a look at the container's channels found. */
void cgpu_sched_demand(struct cgpu_sched *s, uint32_t slot, const struct cgpu_sched_seen *seen,
		       uint64_t now_ns);
/*
 * The container's memory was moved for @ns, up to now. That counts as held of its share of the last
 * second, so it has no claim to it.
 */
void cgpu_sched_took(struct cgpu_sched *s, uint32_t slot, uint64_t ns, uint64_t now_ns);
/* Tells card time that the container really used, for `stat`. */
void cgpu_sched_used(struct cgpu_sched *s, uint32_t slot, uint64_t used_ns);

/* Opens every gate and leaves them open, or goes on scheduling. */
void cgpu_sched_suspend(struct cgpu_sched *s, bool suspend, uint64_t now_ns);

/*
 * Return: number of actions in `out` (room for CGPU_SCHED_ACTIONS), and when to
 * call again at the latest (UINT64_MAX: at the next event).
 */
uint32_t cgpu_sched_tick(struct cgpu_sched *s, uint64_t now_ns,
			 struct cgpu_sched_action *out, uint64_t *wake_ns);
/* `status`: 0, or an error: then every gate opens, and the engine tries again later. */
void cgpu_sched_done(struct cgpu_sched *s, const struct cgpu_sched_action *action,
		     uint64_t start_ns, uint64_t end_ns, int status);

/* The container's totals as of now; for CGPU_SCHED_NONE only the card's used_ns. */
void cgpu_sched_stat(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns,
		     struct cgpu_sched_stat *out);

#endif
