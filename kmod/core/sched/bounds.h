/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The lesser and the greater of two numbers, for shares and times. */
#ifndef CGPU_CORE_SCHED_BOUNDS_H
#define CGPU_CORE_SCHED_BOUNDS_H

#include "core/types.h"

uint64_t cgpu_max(uint64_t a, uint64_t b);
uint64_t cgpu_min(uint64_t a, uint64_t b);

#endif
