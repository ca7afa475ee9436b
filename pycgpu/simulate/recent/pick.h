/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Who has the card: a comparison of what each used of the last second. Pure functions. */
#ifndef CGPU_SIMULATE_RECENT_PICK_H
#define CGPU_SIMULATE_RECENT_PICK_H

#include "core/types.h"
#include "recent/constants.h"

enum { CGPU_PICK_NONE = 255 };

/* A candidate, as of now. */
struct cgpu_pick_entity {
	bool runnable;         /* it has work, and is not throttled */
	bool pauses;           /* it slept of late: waking, it may have its share at once */
	uint32_t share_ppm, floor_ppm;
	uint32_t priority;     /* strict: 0 where priorities are weights */
	uint64_t used_ns;      /* of the last second */
	uint64_t ran_ns;       /* when it had the card last */
};

/* Return: it has used its ceiling of the last second. */
bool cgpu_pick_throttled(uint32_t ceiling_ppm, uint64_t used_ns, bool was);

/*
 * By how much @a goes before @b in rank, 0: they are equal. First who is below its floor, then by
 * class, then who woke and is below its share.
 */
int32_t cgpu_pick_outranks(const struct cgpu_pick_entity *a, const struct cgpu_pick_entity *b);

/*
 * Return: who has the card next, CGPU_PICK_NONE: nobody has work. @curr keeps it until another
 * outranks it, or, if @over, its slice is and another used less of its share. Whatever one used
 * beyond its share nobody else wanted: it is not held against it, and they take turns.
 */
uint32_t cgpu_pick(const struct cgpu_pick_entity *entity, uint32_t count, uint32_t curr,
		   bool over);

#endif
