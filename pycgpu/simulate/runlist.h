/* SPDX-License-Identifier: MIT */
/*
 * A model of a card's compute engine in virtual time: a runlist with slices,
 * context switches that cost, gates that take a call to move, and tenants. The
 * engine under test is the one of kmod/core.
 */
#ifndef CGPU_SIMULATE_RUNLIST_H
#define CGPU_SIMULATE_RUNLIST_H

#include "core/types.h"

enum cgpu_model_limit {
	MODEL_TENANTS = 64,  /* on all cards together */
	MODEL_GROUPS = 16,   /* of one tenant */
	MODEL_CHANNELS = 128, /* of one group */
	MODEL_CARDS = 8,
	MODEL_JOBS = 8
};

enum cgpu_model_kind {
	MODEL_BACKLOGGED, /* always has work */
	MODEL_BURSTY,     /* work for on_ns (mean), then a pause of off_ns (mean) */
	MODEL_IDLE,       /* holds the card open and does nothing */
	MODEL_CLOSER,     /* backlogged; closes the card just before its window ends */
	MODEL_WAKING,     /* nothing until on_ns, then backlogged for off_ns, then nothing */
	/*
	 * Waits for results: requests of `steps` pieces of work of step_ns, submitted one
	 * after the other, host_ns after the one before was done. A request comes off_ns
	 * after the one before on average (Poisson); 0: there always is one.
	 */
	MODEL_SERVER,
	MODEL_SPINNER,    /* no work, and GP_PUT moves all the time */
	MODEL_FROZEN      /* no work, and GP_PUT stands beside GP_GET */
};

enum cgpu_model_controller {
	MODEL_ENGINE,       /* kmod/core/sched */
	MODEL_RECENT,       /* pycgpu/simulate/recent */
	MODEL_SLICES,       /* each tenant's slice_us, once */
	MODEL_WINDOWS,      /* each tenant's window_ns round robin, open first, then shut */
	MODEL_WINDOWS_SHUT, /* the same, shut first */
	MODEL_SLEEPER,      /* gate: open, sleep window_ns, shut, sleep pause_ns */
	/* gates of all but servers shut while a server says that it has a request; */
	MODEL_REQUESTS,
	/* the same, while its GP_PUT moved less than pause_ns ago; a look every window_ns */
	MODEL_SUBMISSIONS
};

/* What the engine learns who has work from. */
enum cgpu_model_reports {
	MODEL_LOG,  /* kmod/core/sched/switch_log and demand, as in both doors */
	MODEL_NONE
};

struct cgpu_model_tenant {
	uint32_t card;
	uint32_t kind;
	uint32_t groups;
	uint32_t weight, quota, quota_min, priority;
	bool uncapped;        /* may take all that is idle: it waits if it cannot */
	uint32_t slice_us;
	uint64_t window_ns, pause_ns;
	uint64_t on_ns, off_ns;
	uint32_t steps;
	uint64_t step_ns, host_ns;
	/*
	 * Servers with the same number, each on a card of its own, are one job: at the end of a
	 * step's work each waits on its card for the others, in a kernel that polls, and they
	 * reduce for reduce_ns of the time in which all of them are on their engines. 0: none.
	 */
	uint32_t job;
	uint64_t reduce_ns;
	/* a step is submitted in so many pieces, launch_ns apart */
	uint32_t pieces;
	uint64_t launch_ns;
	/*
	 * Of one that is backlogged: a few kernels are queued, the card has fetched all of
	 * them, and GP_PUT moves when so much more is done. 0: something is always to fetch.
	 * Of a server, not 0: what it submits is fetched while it still waits for its turn.
	 */
	uint64_t fetched_ns;
	const uint64_t *arrivals; /* when requests come, instead of Poisson */
	uint32_t arrivals_count;
	uint32_t channels;    /* of each group; one of them moves, */
	uint64_t made_ns;     /* and for so long at first all of them */
	uint64_t switch_ns;   /* loading its context when the runlist comes to it */
	uint64_t gate_ns;     /* the same when another's gate has just shut; 0: switch_ns */
	uint64_t rest_ns;     /* the same after the engine has rested; 0: switch_ns */
	uint64_t early_ns;    /* of that, by the log of context switches it ran so much */
	uint64_t stubborn_ns; /* a shut takes that long, as under a kernel that polls host memory */
	uint64_t open_ns, close_ns; /* holds the card open in between */
	uint64_t again_ns;    /* opens it again so long after, for close_ns each time; 0: never */
};

/* At `at_ns` a card's policy and one tenant's weight change. */
struct cgpu_model_change {
	uint64_t at_ns;
	uint32_t policy;
	uint32_t tenant, weight, quota;
};

struct cgpu_model_config {
	uint32_t cards;
	uint32_t controller;
	uint32_t policy, max_inst, timeslice_us;
	uint64_t loss_ppm;    /* 0: the engine's default */
	uint32_t reports;
	uint64_t open_call_ns, shut_call_ns; /* 0: as on an H200 */
	int32_t card_clock_ppm; /* faster than the host's */
	uint64_t fail_ns;     /* from then on every call fails for 50 ms; 0: none does */
	uint64_t duration_ns, bin_ns, seed;
	uint32_t changes;
	struct cgpu_model_change change[8];
};

/* Totals of a card. */
struct cgpu_model_result {
	uint64_t lost_ns;         /* switching, or stopped by a call */
	uint64_t idle_ns;
	uint64_t idle_waiting_ns; /* idle, and an uncapped tenant had work */
	uint64_t gate_calls, slice_calls, late_slice_calls;
	uint64_t call_ns;         /* holding the driver's lock */
	uint64_t period_ns;
	uint64_t ticks;
	uint64_t looks;           /* into the log, */
	uint64_t demand_looks;    /* and at channels: */
	uint64_t reads;           /* of a channel's USERD each, */
	uint64_t read_ns;         /* and what they took of a processor */
	uint32_t samples;         /* of servers, that had room */
	uint64_t failures;
	bool shut_at_end;
};

enum cgpu_model_sample_kind {
	MODEL_STEP,    /* from the step before, or the request's beginning, to its end */
	MODEL_REQUEST, /* from its coming to its end */
	MODEL_WAIT     /* from the submission of a request's first step until it ran */
};

/* What a server saw. */
struct cgpu_model_sample {
	uint32_t tenant, kind;
	uint64_t at_ns, ns;
};

/*
 * Runs `count` tenants. `useful`, `held` and `backlog` hold count × bins ns, `lost`
 * cards × bins ns, bins = duration_ns / bin_ns. A tenant holds the engine while it
 * does useful work and while it switches among its own groups. `used` holds what the
 * engine's `stat` says of each tenant, ns, `slowest` the useful work of that of its groups
 * which did least, ns; `samples` has room for `room`. Return: 0,
 * -EINVAL, -ENOMEM.
 */
int cgpu_model_run(const struct cgpu_model_config *config,
		   const struct cgpu_model_tenant *tenants, uint32_t count,
		   uint32_t *useful, uint32_t *held, uint32_t *backlog, uint32_t *lost,
		   uint64_t *used, uint64_t *slowest, struct cgpu_model_result *results,
		   struct cgpu_model_sample *samples, uint32_t room);

/* Return: processor time of a period's decisions for `count` tenants, ns. */
uint64_t cgpu_model_decision_ns(uint32_t count, uint32_t periods);

#endif
