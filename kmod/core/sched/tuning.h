/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every number by which the scheduler is tuned. The name ends in the unit. A comment says where the
 * number was measured, and what a change trades.
 *
 *     card     a property of the card or of its driver. The simulator takes it for granted, so
 *              its promises cannot tell whether a change is right: measure it on a card.
 *     promise  follows from docs/policies.md#what-is-promised: a change is a change of promise.
 *     model    chosen in the simulator: `python3 -m pycgpu.simulate check` or a test of
 *              tests/core/test_serving.py fails if it is changed far enough.
 *     cost     processor time of the host against how late something is known.
 *
 * A number that follows from another is written so, and is not tuned by itself. Sizes of tables and
 * names of states are no tuning; they stand next to what they size.
 */
#ifndef CGPU_CORE_SCHED_TUNING_H
#define CGPU_CORE_SCHED_TUNING_H

enum cgpu_sched_tuning {
	/*
	 * promise: shares and ceilings hold over any second, and periods divide it. A call that is
	 * not reported within a second has failed
	 */
	CGPU_SCHED_SECOND_NS = 1000000000,

	/* ---- what a card does by itself ---- */

	/*
	 * card: the slice that CUDA sets. A container that pauses keeps it: a shorter one costs
	 * switches
	 */
	CGPU_SCHED_SLICE_US_CUDA = 2048,
	/* card: the shortest slice that RM takes */
	CGPU_SCHED_SLICE_US_MIN = 50,
	/*
	 * card: work that is lost when gates hand the card on. H200: 0.19 to 0.23 ms from one
	 * container to the next; 0.29 ms from rest to a container and back, of which 0.06 at the
	 * end. If it is too small, each window is short by the difference. If it is too large, the
	 * others lose that.
	 */
	CGPU_SCHED_HANDOVER_NS = 220000,
	CGPU_SCHED_ENTRY_NS = 230000,
	CGPU_SCHED_EXIT_NS = 60000,
	/*
	 * card: from when the next gate is open to the end of the call that shuts this one, H200.
	 * If it is too small, the runlist starts the next container early. If it is too large,
	 * several processes get short slices
	 */
	CGPU_SCHED_OVERLAP_NS = 600000,
	/*
	 * card: a switch by the runlist, H200: 0.14 to 0.21 ms. Sizes rounds before
	 * after_ns is learnt
	 */
	CGPU_SCHED_SWITCH_NS = 200000,
	/*
	 * card: from a slice's end to the next group's beginning: 0.36 ms on an H200, 0.39 to 0.47
	 * on an H100 (kernels of 1 ms). A gap above MAX is no switch. Slices are cut anew once the
	 * average has moved by STEP. A smaller STEP disturbs rounds more often; a larger one leaves
	 * shares off by that in each round. One reading counts for 1/SLOW and moves the average by
	 * PACE a slice at most. A larger PACE follows work that ends with its slice by chance.
	 */
	CGPU_SCHED_AFTER_MAX_NS = 3 * CGPU_SCHED_SWITCH_NS,
	CGPU_SCHED_AFTER_STEP_NS = CGPU_SCHED_SWITCH_NS / 4,
	CGPU_SCHED_AFTER_PACE_NS = 8000,
	/*
	 * model: the part that one reading makes up of a slow average, and the part by which each
	 * sleep shortens a learnt wait. A larger part follows chance
	 */
	CGPU_SCHED_SLOW = 16,
	/*
	 * card: when a context is loaded from rest, the log counts 0.14 to 0.20 ms as run (H100,
	 * 580.159.04)
	 */
	CGPU_SCHED_BUDGET_ENTRY_NS = 170000,
	/* card: a context that is loaded so soon after another's end waited for it */
	CGPU_SWITCH_LOG_NEXT_NS = 300000,
	/*
	 * card: a container that begins in the window before runs 0.4 ms longer than its own
	 * (H200). With less, jitter counts as an early start; with more, early starts are not
	 * charged
	 */
	CGPU_SWITCH_LOG_EARLY_NS = 290000,
	/* card: no caller is woken sooner, because a timer of the host is not more exact */
	CGPU_SCHED_SOON_NS = 20000,
	/* cost: a gate that did not open is tried again after so long */
	CGPU_SCHED_HOLD_NS = CGPU_SCHED_SECOND_NS / 100,

	/* ---- periods and slices ---- */

	/* promise: a period is 8 units, 40 ms by default. More: fewer hand-overs, later shares */
	CGPU_SCHED_UNITS = 8,
	/*
	 * promise: a lone ceiling has a period of 10 units. Two periods fill a tenth of a second:
	 * 40 calls a second
	 */
	CGPU_SCHED_UNITS_LONE = 10,
	/*
	 * card: the shortest window that two calls can make. A window that ends later than this
	 * counts as overrun, and a paced container may exceed its ceiling by this for a moment
	 */
	CGPU_SCHED_WINDOW_MIN_NS = 1000000,
	/*
	 * promise: hand-overs take 2.9 % at most; otherwise the period grows: efficiency against
	 * deviation
	 */
	CGPU_SCHED_LOSS_PPM = 29000,
	/*
	 * promise: a share a deviates by a(1 - a) of a round. So a round is no longer than
	 * DEVIATION divided by that; with few containers it may be EACH for each, up to ROUND.
	 * Shorter rounds lose more to switches, longer ones miss the bounds over 100 ms.
	 */
	CGPU_SCHED_DEVIATION_NS = 6000000,
	CGPU_SCHED_DEVIATION_MANY_NS = CGPU_SCHED_DEVIATION_NS * 4 / 5,
	CGPU_SCHED_ROUND_EACH_NS = 2 * CGPU_SCHED_DEVIATION_NS,
	CGPU_SCHED_ROUND_NS = 40000000,
	/*
	 * card: a call may take 1.5 ms longer than usual. The period leaves so much of the promise
	 * over 100 ms to it, and moves by so many steps of the grid to find room
	 */
	CGPU_SCHED_ROOM_NS = 800000,
	CGPU_SCHED_ROOM_STEPS = 2,
	/*
	 * promise: leaving sleepers out of the round lengthens it by this at most for one that
	 * wakes, until all of them have slept for DEEP
	 */
	CGPU_SCHED_WAKE_NS = 2500000,
	CGPU_SCHED_DEEP_S = 10,
	/*
	 * promise: a wakeup interrupts a container that never pauses within such a slice, and one
	 * of a lower class within the second value. Shorter slices lose 0.2 ms each to switches
	 */
	CGPU_SCHED_FAIR_SLICE_US = 1000,
	CGPU_SCHED_CLASS_SLICE_US = CGPU_SCHED_FAIR_SLICE_US / 2,
	/*
	 * model: in a round so long the runlist comes to a wakeup soon enough; otherwise gates move
	 * for it
	 */
	CGPU_SCHED_FAIR_CARRIES_NS = 4600000,

	/* ---- who pauses, and the mode ---- */

	/* model: two empty windows in a row: a single one says little about the next */
	CGPU_SCHED_TWICE = 2,
	/*
	 * model: after so long a sleep shares are made without the sleeper. If it is shorter, a
	 * pause moves the others' shares; if longer, the sleeper's part is idle for longer
	 */
	CGPU_SCHED_FAIR_REST_NS = CGPU_SCHED_SECOND_NS / 2,
	/*
	 * model: a container that slept within this time counts as one that pauses. By the clock a
	 * sleeper gets a window each time it has passed, to show that it has no work. A longer time
	 * loses fewer windows, but finds silent work later
	 */
	CGPU_SCHED_FAIR_FULL_NS = 2 * CGPU_SCHED_SECOND_NS,
	/* model: if a container ran for more than this part of a sleep, it did not sleep */
	CGPU_SCHED_FAIR_SLEPT_PART = 4,
	/*
	 * model: slices are tried again so long after the last sleep, and twice as long after each
	 * failure. Sooner makes containers that wait for results pay for more trials; later loses
	 * by windows
	 */
	CGPU_SCHED_FAIR_KEEP_S = 8,
	CGPU_SCHED_FAIR_KEEP_MAX_S = 8 * CGPU_SCHED_FAIR_KEEP_S,
	/*
	 * model: what a container used of its slices is judged over half a second and ROUNDS. It is
	 * judged after two rounds if it lost most of them, or more than a slice and PATIENCE_MAX. A
	 * loss above MISS of its share over time counts after four rounds. Judging sooner takes
	 * chance for a pause and gives slices up; judging later leaves a server in slices of 12 ms.
	 */
	CGPU_SCHED_FAIR_USE_ROUNDS = 20,
	CGPU_SCHED_FAIR_USE_MISS_PPM = 7500,
	/* promise: what a trial of slices took is paid back, up to a hundredth of a second */
	CGPU_SCHED_FAIR_REPAY_NS = CGPU_SCHED_SECOND_NS / 100,

	/* ---- who has the card, on demand ---- */

	/*
	 * model: of eight and more runnable containers each has the card for so long: a twentieth
	 * lost to hand-overs against waiting
	 */
	CGPU_SCHED_FAIR_TURN_NS = 20 * CGPU_SCHED_SWITCH_NS,
	/*
	 * card: two hand-overs, and how late a look is. A wakeup is charged this. With less a
	 * container gains by waking often; with more a server pays twice for its neighbour's
	 * hand-overs
	 */
	CGPU_SCHED_FAIR_WAKEUP_NS = 1500000,
	/*
	 * card: a container with work is loaded so soon after its gate opened. If it is too small,
	 * the container seems to sleep
	 */
	CGPU_SCHED_FAIR_LOADED_NS = 500000,
	/*
	 * model: the card is held for a container with a claim if it is slower than this beside
	 * others. A faster one runs beside them, as it does for BESIDE of its share though it has a
	 * claim
	 */
	CGPU_SCHED_FAIR_KEPT_PPM = 600000,
	CGPU_SCHED_FAIR_BESIDE_PPM = 250000,
	/*
	 * model: a container that never pauses and is BEHIND its ceiling by more runs before a
	 * claim until it has had URGENT. It saves up SAVED at most. Larger values hurt the
	 * container that wakes, smaller ones the one that works
	 */
	CGPU_SCHED_BUDGET_BEHIND_NS = 5000000,
	CGPU_SCHED_BUDGET_SAVED_NS = 4 * CGPU_SCHED_BUDGET_BEHIND_NS,
	CGPU_SCHED_BUDGET_URGENT_NS = 3000000,

	/* ---- looks at channels ---- */

	/*
	 * card: a hand-over and back costs less than waiting for a gap longer than this. A
	 * container that always has something queued is looked at as rarely
	 */
	CGPU_DEMAND_GAP_MAX_NS = 4000000,
	/*
	 * cost: the interval of looks while some containers pause and some work. It bounds how soon
	 * a wakeup is seen, and how short a pause may be; the log is asked again as soon
	 */
	CGPU_DEMAND_LOOK_NS = 1000000,
	/* cost: the interval while all work, or all sleep */
	CGPU_DEMAND_REST_NS = 10000000,
	/*
	 * cost: the interval while the same few have worked by slices for CGPU_SCHED_FAIR_FULL_NS
	 */
	CGPU_DEMAND_STEADY_NS = 4 * CGPU_DEMAND_REST_NS,
	/* cost: a sleeper is looked at after such a part of its sleep, and within MAX */
	CGPU_DEMAND_BACK_OFF = 32,
	CGPU_DEMAND_BACK_OFF_MAX_NS = 2 * CGPU_DEMAND_REST_NS,
	/* cost: the interval with classes, for a sleeper of half a second */
	CGPU_DEMAND_RESTING_NS = CGPU_DEMAND_REST_NS / 2,
	/* cost: looks take a processor for one part in so many; COST_REST: at rest */
	CGPU_DEMAND_COST = 40,
	CGPU_DEMAND_COST_REST = 250,
	/*
	 * card: CUDA makes some twenty channels a context, of which one or two move; a read takes
	 * 16 us (H100). A look reads READS that move; every fourth look also reads one of the
	 * others. A channel that has not moved in HEAT looks is one of the others (HEAT_ONCE if it
	 * moved once).
	 */
	CGPU_DEMAND_READS = 6,
	CGPU_DEMAND_OTHERS = 4,
	CGPU_DEMAND_HEAT = 100,
	CGPU_DEMAND_HEAT_ONCE = CGPU_DEMAND_HEAT / 10,
	/*
	 * cost: the shortest interval between reading all channels because the log shows a load in
	 * a sleep
	 */
	CGPU_DEMAND_SEARCH_NS = CGPU_SCHED_FAIR_REST_NS / 2,
	/* model: after many such loads, looks follow one another for ten gaps, to learn the gaps */
	CGPU_DEMAND_STIRS_NS = 10 * CGPU_DEMAND_GAP_MAX_NS,

	/* ---- what looks say ---- */

	/*
	 * model: patience before gaps are known, and its bound. A longer one leaves the card idle
	 * after each last submission; a shorter one ends turns between two. A sleep shorter than
	 * the bound is no pause
	 */
	CGPU_DEMAND_PATIENCE_NS = CGPU_DEMAND_GAP_MAX_NS / 2,
	CGPU_DEMAND_PATIENCE_MAX_NS = 5000000,
	/*
	 * model: a container is waited for if so many of 256 gaps are short, or it submitted before
	 * each of MOVES looks
	 */
	CGPU_DEMAND_SHORT = 160,
	CGPU_DEMAND_MOVES = 3,
	/*
	 * model: a container that ran so much in its sleep works, whatever GP_PUT says. A lower
	 * value takes the rest of a submission for work; a higher one leaves silent work uncharged
	 * for longer
	 */
	CGPU_DEMAND_BUSY_NS = CGPU_DEMAND_PATIENCE_MAX_NS / 2,
	/* model: a quarter of the share leaks from it, but no more than an eighth of the time */
	CGPU_DEMAND_BUSY_SHARE = 4,
	CGPU_DEMAND_BUSY_LEAK = 2 * CGPU_DEMAND_BUSY_SHARE,
	/*
	 * model: such work is waited for up to so long after its last submission. Longer kernels
	 * are doubted
	 */
	CGPU_DEMAND_SILENT_MAX_NS = 2 * CGPU_DEMAND_GAP_MAX_NS,
	/*
	 * card: a container that submits more often a second may wait for its processor (PyTorch
	 * without a graph: 4 to 10 a millisecond). Its rates alone and beside others are measured
	 * over RATE each, and again after COMPARED. Longer times are more exact, but wrong for
	 * longer after a change.
	 */
	CGPU_DEMAND_OFTEN = 4000,
	CGPU_DEMAND_RATE_NS = 50000000,
	CGPU_DEMAND_COMPARED_S = 2 * CGPU_SCHED_DEEP_S,

	/* ---- readings of the log of context switches; each takes the driver 0.07 ms ---- */

	/* cost: the interval on demand. It bounds how late work in a sleep is charged */
	CGPU_SWITCH_LOG_DEMAND_NS = 10000000,
	/* cost: the same, while one context stays loaded and all others sleep */
	CGPU_SWITCH_LOG_STILL_NS = 25000000,
	/* cost: the same, once those have slept for half a second */
	CGPU_SWITCH_LOG_RESTING_NS = 2 * CGPU_SWITCH_LOG_STILL_NS,
	/* cost: under slices, until the log has told which containers pause */
	CGPU_SWITCH_LOG_WAKE_NS = 2 * CGPU_SWITCH_LOG_DEMAND_NS,
	/* cost: readers of totals ask the driver no more often */
	CGPU_SWITCH_LOG_FRESH_NS = CGPU_SWITCH_LOG_DEMAND_NS / 2
};

#endif
