/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One card's engine: who may run now. It is told the time and what happened,
 * and answers with timeslices to program and gates to open or shut.
 *
 * The caller holds its lock around every function here and releases it while it
 * carries out the actions, in the order given; then it reports each by
 * cgpu_sched_done(). After any event, and at *wake_ns, it calls
 * cgpu_sched_tick(). How this works and why: docs/scheduler.md.
 */
#ifndef CGPU_CORE_SCHED_SCHED_H
#define CGPU_CORE_SCHED_SCHED_H

#include "core/types.h"
#include "core/sched/policy.h"
#include "core/sched/tuning.h"

enum cgpu_sched_limit {
	CGPU_SCHED_SLOTS = 64,
	/* entities: one a slot, and one for time that is nobody's */
	CGPU_SCHED_NOBODY = 64,
	CGPU_SCHED_ENTITIES = 65,
	CGPU_SCHED_NONE = 255,   /* no slot, no entity */
	CGPU_SCHED_ACTIONS = 66, /* enough for any answer of a tick */
	CGPU_SCHED_FAIR_CLAIM_S = 1000000000, /* more than any lag */
	/* what was held of a second is known to within one of so many parts of it, */
	CGPU_SCHED_FAIR_BINS = 15,
	/* what was used, to which a ceiling is held, to within one of more */
	CGPU_SCHED_BUDGET_BINS = 64
};

enum cgpu_sched_mode {
	CGPU_SCHED_FREE,   /* every gate open, CUDA's own slices */
	CGPU_SCHED_SLICES, /* every gate open, the runlist's slices make the shares */
	CGPU_SCHED_WINDOWS, /* gates make the shares, by the clock */
	CGPU_SCHED_DEMAND  /* gates make them, by who has work */
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
	uint64_t used_ns;      /* as told by cgpu_sched_used(); 0: nobody told */
	uint64_t throttled_ns; /* the GPU open, and its gate shut */
	uint64_t waited_ns;    /* had work, as far as is known, and did not run; 0 as used_ns */
	uint64_t switches;     /* windows begun */
	uint64_t overruns;     /* windows that ended late */
	int64_t lag_ns;        /* due to it; below 0: taken beyond the entitlement */
};

/* What a container had of the last second. */
struct cgpu_sched_second {
	uint64_t sum_ns;       /* of */
	uint32_t bin_ns[65];   /* parts, as many as it has, and the one that is filled: */
	uint64_t bin;
};

/* What a ceiling allows while windows are made on demand. */
struct cgpu_sched_budget {
	struct cgpu_sched_second used; /* CGPU_SCHED_BUDGET_BINS */
	bool is_spent;         /* of this second nothing is left */
	bool is_ahead;         /* it is paced */
};

/* What GP_PUT and GP_GET say of a container (demand.h). */
struct cgpu_sched_seen {
	bool asleep;           /* it sleeps, or has work */
	bool empties;          /* now and then it has nothing queued */
	bool moved;            /* it submitted something: no proof that it has work still */
	bool is_silent;        /* it is known to work for long without a submission, */
	bool is_doubted;       /* and does so now, or sleeps; */
	bool is_found;         /* or seemed to sleep, and was found so at work */
	uint32_t kept_ppm;     /* of its rate alone, beside others; 0: unknown, or it is low */
};

/* A slot's entity while windows are made on demand. */
struct cgpu_sched_fair_slot {
	bool asleep;           /* told by cgpu_sched_demand(), */
	uint64_t since_ns;     /* and since when it has been so, or awake */
	uint64_t moved_ns;     /* told too: when a look found a submission last */
	bool empties;          /* told too: now and then it has nothing queued; */
	uint32_t kept_ppm;     /* it is so fast beside others, by what it is alone */
	bool is_silent;        /* it works for long without a submission; */
	bool is_doubted;       /* or sleeps now: others run beside it until that is known */
	bool is_found;         /* it woke without a submission: it did not sleep */
	bool is_overdrawn;     /* it slept within a second, and has held its share of it */
	uint64_t overdrew_ns;  /* beside others it took more than its share; 0: never */
	uint64_t slept_ns;     /* when it last woke from a sleep, on demand; 0: never */
	bool pauses;           /* by these, and by the log */
	bool woke;             /* since the last choice */
	bool claims;           /* it slept, and has not held its share of a second since */
	bool worked;           /* it has been awake since it opened the card */
	bool is_probed;        /* it fell asleep: its gate shuts once, to unload its context */
	bool is_urgent;        /* behind its ceiling by so much that it goes before a claim */
	uint32_t full_ppm;     /* its share while all have work */
	int64_t lag_ns;        /* due to it; below 0: held beyond its share */
	struct cgpu_sched_second held; /* CGPU_SCHED_FAIR_BINS */
	uint64_t held_ns;      /* charged, and run by the log, since the log was read last */
	uint64_t ran_ns;
	uint64_t switched_ns;  /* from one of its processes to another, since then */
	uint32_t loads;        /* since then, too, */
	uint32_t loads_ever;   /* and ever */
	uint32_t asleep_loads; /* in its sleep, ever */
	uint64_t resumed_ns;   /* run before, if it was loaded then and nobody had the card; */
	uint32_t turns;        /* loads since fair.turns_from_ns */
	bool takes_turns;      /* they were more than one, as another's were */
	uint64_t asleep_ran_ns; /* run beyond what it held while it slept, ever */
	uint64_t fell_ran_ns;  /* as it was when it fell asleep */
	/* under slices, since use_from_ns: what they gave it, and what it ran */
	uint64_t use_from_ns, use_due_ns, use_ran_ns;
	int64_t use_missed_ns; /* of its share of what all ran, beyond what it may */
	bool use_emptied;      /* and it was seen with nothing queued */
	bool is_judged;        /* it was found to run what they give it, or less: */
	bool is_short;         /* for lack of work */
};

struct cgpu_sched_slot {
	struct cgpu_sched_fair_slot fair;
	struct cgpu_sched_budget budget;
	bool present;
	uint64_t idle_ns;      /* when a window of its was last seen without work; 0: never */
	uint8_t idle_windows;  /* in a row, up to TWICE */
	struct cgpu_policy_member member;
	uint32_t groups;       /* channel groups that compute */
	uint32_t gang;         /* the same on all cards that it computes on; 0: it is none */
	uint32_t slice_us;     /* programmed; 0: not known */
	uint32_t wanted_us;
	uint64_t open_since_ns;
	uint64_t open_used_ns; /* stat.used_ns then */
	uint64_t leaves_ns;    /* closed, and counted as open until then */
	uint64_t awake_ns;     /* the GPU open, and not known to be without work, ever */
	uint64_t awake_used_ns; /* of stat.used_ns, while it was awake */
	struct cgpu_sched_stat stat;
};

struct cgpu_sched_entity {
	uint32_t share_ppm;
	/* as of mark_ns; without a share: what it had in advance, or behind its ceiling (budget) */
	int64_t lag_ns;
	uint64_t mark_ns;      /* on the card's clock */
	uint64_t width_ns;     /* of its window, if all goes as planned */
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

/* The period, and who follows whom in it: made anew after each event. */
struct cgpu_sched_plan {
	uint32_t mode;         /* enum cgpu_sched_mode */
	bool dirty;            /* something changed that the plan depends on */
	bool moved;            /* windows moved: time, not order, tells who is next */
	bool whole;            /* hand-overs take from nobody's time, not from the shares */
	bool reslice;          /* some slot's slice is not the wanted one */
	uint64_t period_ns;
	uint64_t spread_ns;    /* of the period: what windows or slices divide */
	uint64_t frame_ns;     /* beginning of the period */
	uint64_t clock_ns;     /* the card's clock when the plan was made */
	uint64_t review_ns;    /* when the plan expires by itself */
	uint32_t count;        /* entities that have a share */
	uint8_t order[65];     /* those, as they follow each other; CGPU_SCHED_ENTITIES */
	int8_t place[65];      /* of an entity in that order; without a share: before the next */
};

/* The window that is open (cur), the one that calls under way begin (next), the last. */
struct cgpu_sched_window {
	bool begun;            /* cur: a window is open */
	uint32_t owner;        /* entity whose window it is */
	uint32_t before;       /* entity whose gate was still open when its own opened, or NONE */
	uint64_t began_ns;
	uint64_t end_ns;
	uint64_t cost_ns;      /* lost to hand-overs, */
	uint64_t unpaid_ns;    /* and what of that is still to be charged */
	uint64_t charged_to_ns;
	uint64_t ran_ns;       /* last: work in it, if nothing went wrong */
};

struct cgpu_sched_gates {
	uint64_t open_mask;    /* slots whose channels the gates move */
	uint64_t shut_mask;
	uint64_t stale_mask;   /* shut, and not all of it: must be opened, or shut again */
	uint64_t missed_mask;  /* have channels that the calls under way do not know of */
	uint64_t open_ns;      /* latency of a call, averaged */
	uint64_t shut_ns;
};

struct cgpu_sched_calls {
	uint32_t pending;      /* actions not reported yet */
	uint64_t issued_ns;
	uint64_t count;        /* actions reported */
	uint64_t failures;
	uint64_t retry_ns;     /* all gates open until then, after a failure; 0: no failure */
	uint64_t hold_ns;      /* a gate that would not open is tried again then */
};

struct cgpu_sched_fair {
	uint32_t curr;         /* slot that has the card, or NONE */
	uint32_t next;         /* slot that calls under way give it to */
	uint64_t began_ns;     /* curr has it since */
	uint64_t taken_ns;     /* and it was nobody's before, last */
	uint64_t charged_to_ns;
	uint64_t settled_ns;   /* the log was read, */
	uint64_t settled_from_ns; /* and before that; */
	uint64_t went_on_ns;   /* by it one was loaded in another's turn */
	uint64_t turns_from_ns; /* nobody has had the card since */
	uint32_t loaded;       /* the context of this slot was loaded, or NONE */
	uint64_t resting_mask; /* slots that the plan leaves out */
	uint64_t kept_ns;      /* windows on demand are not given up before, */
	uint64_t keep_ns;      /* that long after somebody slept; */
	uint64_t given_up_ns;  /* and when they were given up last */
	uint64_t changed_ns;   /* the mode did */
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
	uint32_t slot_end;     /* no slot from it on has a container: ticks pass them by */
	struct cgpu_policy_share share[64];
	struct cgpu_policy_member scratch[64]; /* the kernel's stack has no room for it */
	struct cgpu_sched_entity entity[65];    /* CGPU_SCHED_ENTITIES */

	bool suspended;
	uint64_t after_ns;     /* from a slice's end to the next group's beginning, averaged */
	uint64_t after_used_ns; /* what slices are made for */

	bool regate;           /* the gates may not be as the open window wants them */
	bool moving;           /* towards the window of `next` */
	bool overlap;          /* the hand-over under way opens before it shuts */
	uint64_t clock_ns;     /* of time that shares are of */
	uint64_t windows;      /* begun, ever */
	uint64_t used_ns;      /* by all slots, those that went included */
	uint64_t granted_to_ns; /* up to when slots were granted their shares */
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
 * Whether a process of the container holds the GPU open, and how many channel
 * groups compute. Telling the same again is free. New groups of a container
 * whose gate is shut must start stopped (cgpu_sched_may_run()).
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
/* Channels came or went: a gate that is shut is shut again, for those that came. */
void cgpu_sched_renewed(struct cgpu_sched *s, uint32_t slot);
/* A group took another's place, number unchanged: slices and gates are set again. */
void cgpu_sched_reapply(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns);

/* A look at the container's channels found this. */
void cgpu_sched_demand(struct cgpu_sched *s, uint32_t slot, const struct cgpu_sched_seen *seen,
		       uint64_t now_ns);
/*
 * Its memory was moved for so long, up to now: of its share of the last second so much was had,
 * and it has no claim to that.
 */
void cgpu_sched_took(struct cgpu_sched *s, uint32_t slot, uint64_t ns, uint64_t now_ns);
/* Card time that the container really used, for `stat`. */
void cgpu_sched_used(struct cgpu_sched *s, uint32_t slot, uint64_t used_ns);

/* Opens every gate and leaves them open, or goes on. */
void cgpu_sched_suspend(struct cgpu_sched *s, bool suspend, uint64_t now_ns);

/*
 * Return: number of actions in `out` (room for CGPU_SCHED_ACTIONS), and when to
 * call again at the latest (UINT64_MAX: at the next event).
 */
uint32_t cgpu_sched_tick(struct cgpu_sched *s, uint64_t now_ns,
			 struct cgpu_sched_action *out, uint64_t *wake_ns);
/* `status`: 0, or what went wrong: then every gate opens and it tries again later. */
void cgpu_sched_done(struct cgpu_sched *s, const struct cgpu_sched_action *action,
		     uint64_t start_ns, uint64_t end_ns, int status);

/* The container's totals as of now; of CGPU_SCHED_NONE: the card's used_ns, no more. */
void cgpu_sched_stat(struct cgpu_sched *s, uint32_t slot, uint64_t now_ns,
		     struct cgpu_sched_stat *out);

#endif
