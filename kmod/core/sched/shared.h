/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The window that the slots without a ceiling share. Private to core/sched. */
#ifndef CGPU_CORE_SCHED_SHARED_H
#define CGPU_CORE_SCHED_SHARED_H

#include "core/types.h"
#include "core/sched/sched.h"

/* Its members, as a mask of slots. */
uint64_t cgpu_shared_slots(const struct cgpu_sched *s);

/* The members that rest: their shares, summed. */
uint64_t cgpu_shared_resting_ppm(const struct cgpu_sched *s);

/*
 * A slot's part of a window of @window_ns. Resting members are left out, but the end
 * of the window is kept free for them, so that one that wakes is seen.
 */
uint64_t cgpu_shared_part(const struct cgpu_sched *s, uint32_t slot, uint64_t window_ns,
			  uint64_t resting_ppm);

/* No member was seen to work. */
bool cgpu_shared_paused(const struct cgpu_sched *s, uint64_t now_ns);

/*
 * The member that always has work and got least of others' time. Return:
 * CGPU_SCHED_NONE: there are not two to choose from.
 */
uint32_t cgpu_shared_most_lagging(const struct cgpu_sched *s);

/* Accounts for the last shared window: @ran_ns, by slot, what each ran in it. */
void cgpu_shared_account(struct cgpu_sched *s, const uint64_t *ran_ns);

/*
 * Return: when the members that always have work will have had their parts of the open
 * window, and a surplus is left; UINT64_MAX: none will be.
 */
uint64_t cgpu_shared_surplus_at(const struct cgpu_sched *s);

/**
 * cgpu_shared_throttle() - leave the rest of the window to the most lagging member
 * @s: the scheduler
 * @ran_ns: by slot, what each ran in the window so far
 * @loaded: the slot that is running, or CGPU_SCHED_NONE
 */
void cgpu_shared_throttle(struct cgpu_sched *s, const uint64_t *ran_ns, uint32_t loaded);

#endif
