/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Those without a ceiling share one window, in which the runlist passes on idle time:
 * who has how much of it, and who gets what others leave.
 */
#ifndef CGPU_CORE_POOL_H
#define CGPU_CORE_POOL_H

#include "types.h"
#include "sched.h"

/* Their slots. */
uint64_t cgpu_pool(const struct cgpu_sched *s);

/* The share of those of them who rest: the same for all slots of a look or a plan. */
uint64_t cgpu_pool_resting_ppm(const struct cgpu_sched *s);

/*
 * A slot's part of a window of `window_ns`. Those who rest are left out, but come up
 * at its end, so that one that wakes is seen.
 */
uint64_t cgpu_pool_part(const struct cgpu_sched *s, uint32_t slot, uint64_t window_ns,
			uint64_t resting_ppm);

/* None of them is seen to work. */
bool cgpu_pool_paused(const struct cgpu_sched *s, uint64_t now_ns);

/*
 * The one of them that always has work and got least of others' time; CGPU_SCHED_SLOTS:
 * there are not two to choose from.
 */
uint32_t cgpu_pool_needy(const struct cgpu_sched *s);

/*
 * What each ran of their last window, and of others' before it, as somebody saw who
 * reads that from the driver.
 */
void cgpu_pool_account(struct cgpu_sched *s, const uint64_t *ran_ns);

/*
 * The runlist begins again with its first when all had their slices, and would give
 * it all that others leave of the window. So, when those who always have work will
 * have had their parts (UINT64_MAX: nothing is left then), whoever reads what they ran
 * tells, and who is running: the rest is for the one that got least so far.
 */
uint64_t cgpu_pool_spare(const struct cgpu_sched *s);
void cgpu_pool_sated(struct cgpu_sched *s, const uint64_t *ran_ns, uint32_t loaded);

#endif
