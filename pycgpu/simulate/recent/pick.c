// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "recent/pick.h"

#define PPM 1000000

static uint64_t of_second(uint32_t ppm)
{
	return (uint64_t)ppm * (CGPU_RECENT_SPAN_NS / PPM);
}

bool cgpu_pick_throttled(uint32_t ceiling_ppm, uint64_t used_ns, bool was)
{
	uint64_t most_ns = of_second(ceiling_ppm);
	uint64_t margin_ns = was ? 2 * CGPU_RECENT_MARGIN_NS : CGPU_RECENT_MARGIN_NS;

	if (ceiling_ppm >= PPM)
		return false;
	return used_ns + (margin_ns < most_ns / 4 ? margin_ns : most_ns / 4) >= most_ns;
}

static bool is_below_floor(const struct cgpu_pick_entity *e)
{
	return e->floor_ppm && e->used_ns < of_second(e->floor_ppm);
}

static bool has_budget(const struct cgpu_pick_entity *e)
{
	return e->pauses && e->used_ns < of_second(e->share_ppm);
}

int32_t cgpu_pick_outranks(const struct cgpu_pick_entity *a, const struct cgpu_pick_entity *b)
{
	int32_t by = is_below_floor(a) - is_below_floor(b);

	if (!by)
		by = (int32_t)a->priority - (int32_t)b->priority;
	return by ? by : has_budget(a) - has_budget(b);
}

/* Of its share, in millionths, one at most. */
static uint64_t part_used(const struct cgpu_pick_entity *e)
{
	uint64_t share_ns = of_second(e->share_ppm);

	return e->used_ns >= share_ns ? PPM : e->used_ns * PPM / share_ns;
}

/* a used less of its share than b did. */
static bool used_less(const struct cgpu_pick_entity *a, const struct cgpu_pick_entity *b)
{
	uint64_t of_a = part_used(a), of_b = part_used(b);

	if (of_a != of_b)
		return of_a < of_b;
	/* who had its share at once does not have what others wait for as well */
	if (a->pauses != b->pauses)
		return b->pauses;
	return a->ran_ns < b->ran_ns;
}

uint32_t cgpu_pick(const struct cgpu_pick_entity *entity, uint32_t count, uint32_t curr,
		   bool over)
{
	uint32_t i, best = CGPU_PICK_NONE;
	int32_t by;

	for (i = 0; i < count; i++) {
		if (!entity[i].runnable)
			continue;
		by = best == CGPU_PICK_NONE ? 1 : cgpu_pick_outranks(&entity[i], &entity[best]);
		if (by > 0 || (!by && used_less(&entity[i], &entity[best])))
			best = i;
	}
	if (curr >= count || !entity[curr].runnable || best == curr)
		return best;
	by = cgpu_pick_outranks(&entity[best], &entity[curr]);
	return by > 0 || over ? best : curr;
}
