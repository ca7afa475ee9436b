// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/sched/bounds.h"

uint64_t cgpu_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

uint64_t cgpu_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t cgpu_beyond(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}
