/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every number of the scheduler by recent use. The end of a name is its unit. A comment says where
 * the number comes from, and what is traded when it is changed; constants that follow without a
 * comment belong to the one above. "Model" means the sweep of tests/core/test_recent.py.
 */
#ifndef CGPU_SIMULATE_RECENT_CONSTANTS_H
#define CGPU_SIMULATE_RECENT_CONSTANTS_H

enum cgpu_recent_constant {
	/* Promises are for a second. Traded: shorter is sharper; a sleeper saves less. */
	CGPU_RECENT_SPAN_NS = 1000000000,
	/* 100 bins and the one that is filled. Traded: shorter bins need more memory. */
	CGPU_RECENT_BIN_NS = 10000000,
	CGPU_RECENT_BINS = 101,
	/* Bins that pace a ceiling (model). Traded: fewer are smoother and cost calls. */
	CGPU_RECENT_PACE_BINS = 10,

	/* A channel is read in 7 us (H100). Traded: shorter looks see wakeups sooner. */
	CGPU_RECENT_LOOK_NS = 1000000,
	/*
	 * The same while nobody pauses. It divides no usual period, or a look would fall into the
	 * same window each time. Traded: shorter looks find pauses sooner.
	 */
	CGPU_RECENT_REST_LOOK_NS = 7000000,
	/* Reading takes 13 to 40 us (H200). Traded: longer, and more is estimated. */
	CGPU_RECENT_LOG_NS = 10000000,
	/*
	 * Between two tokens a server submits nothing for 0.04 to 1.5 ms (H100). Traded: less
	 * patience leaves less time idle, and hands the card on in gaps.
	 */
	CGPU_RECENT_PATIENCE_NS = 2000000,
	/* Of one that works unseen (model). Traded: more leaves fewer doubts, more idle. */
	CGPU_RECENT_PATIENCE_MAX_NS = 8000000,
	/*
	 * A hand-over there and back costs 0.5 to 1 ms, so that a longer gap is a pause. Patience
	 * needs so many short gaps of 256 (model). Traded: more gaps leave less time idle.
	 */
	CGPU_RECENT_GAP_NS = 4000000,
	CGPU_RECENT_SHORTS = 160,
	/* Looks in a row that make work (model). Traded: fewer move gates in vain. */
	CGPU_RECENT_MOVES = 3,
	/* A sleeper pauses so long (model). Traded: shorter ends turns too soon. */
	CGPU_RECENT_PAUSE_NS = 2000000000,
	/* CUDA makes 20 channels, moves two. Traded: more looks for all cost less. */
	CGPU_RECENT_OTHERS = 4,

	/* Calls take 0.8 ms and may be late. Traded: less uses, and exceeds, more. */
	CGPU_RECENT_MARGIN_NS = 2000000,
	/* 5 % of a turn is lost. Traded: shorter turns are fairer and lose more. */
	CGPU_RECENT_TURN_NS = 4000000,
	/* A shorter sleep preempts nobody (model). Traded: shorter, and gaps preempt. */
	CGPU_RECENT_SLEPT_NS = 3000000,

	/* Lost between two, from nobody, to nobody (H200). Traded: nothing. */
	CGPU_RECENT_HANDOVER_NS = 220000,
	CGPU_RECENT_ENTRY_NS = 230000,
	CGPU_RECENT_EXIT_NS = 60000,
	/* A preemption costs so much more (H200), charged to its cause. Traded: nothing. */
	CGPU_RECENT_PREEMPT_NS = 300000,
	/* A call, until calls were measured (H200: 0.33 and 0.42 ms). Traded: nothing. */
	CGPU_RECENT_CALL_NS = 400000,
	/* Unit windows in a period. Traded: more lose less, and everybody waits for longer. */
	CGPU_RECENT_UNITS = 8,
	/* Of a(1 - a) periods (model). Traded: more loses less; shares deviate more. */
	CGPU_RECENT_DEVIATION_NS = 6000000,
	/* For hand-overs, before the period grows. Traded: more is lost, waits shorten. */
	CGPU_RECENT_LOSS_PPM = 29000,
	/* A window holds two calls of 0.4 ms. Traded: shorter windows are skipped more often. */
	CGPU_RECENT_WINDOW_MIN_NS = 1000000,
	/* Slices beside open gates, and CUDA's. Traded: shorter lose more. */
	CGPU_RECENT_SLICE_US = 1000,
	CGPU_RECENT_LONG_SLICE_US = 2048,
	/* From a gate's opening to the end of the other's shutting (H200). Traded: nothing. */
	CGPU_RECENT_OVERLAP_NS = 600000,
	/* All gates stay open after a failed call. Traded: shorter retries sooner. */
	CGPU_RECENT_RETRY_NS = 1000000000
};

#endif
