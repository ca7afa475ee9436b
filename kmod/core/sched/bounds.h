/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Arithmetic of shares, times and sets of slots. */
#ifndef CGPU_CORE_SCHED_BOUNDS_H
#define CGPU_CORE_SCHED_BOUNDS_H

#include "core/types.h"

#define NEVER UINT64_MAX
#define SLOT_BIT(n) (1ULL << (n))

uint64_t cgpu_max(uint64_t a, uint64_t b);
uint64_t cgpu_min(uint64_t a, uint64_t b);
/* By how much @a exceeds @b; 0: not at all. */
uint64_t cgpu_beyond(uint64_t a, uint64_t b);

#endif
