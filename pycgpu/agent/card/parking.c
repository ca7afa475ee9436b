// SPDX-License-Identifier: GPL-2.0-only
/*
 * Moves a container to the host and back: pycgpu/parking moves it, core/tree/move.c decides each
 * step. All under door.lock, as every allocation.
 */
#include <errno.h>
#include <stdlib.h>

#include "agent.h"
#include "core/memory/userd.h"
#include "card/card.h"
#include "tenant/tenant.h"

/*
 * While a container moves, its reservation stays its own. No card gives more than it has, however
 * much it promises.
 */
void parking_limit(struct container *c)
{
	struct cgpu_room rooms[CGPU_MAX_CARDS];
	bool counts = cgpu_host_is_overcommitted(&door.host);
	int i;

	for (i = 0; i < CONTAINERS_MAX && !counts; i++)
		counts = door.container[i] &&
			 cgpu_parking_moves(&door.container[i]->tenant.ledger);
	if (counts) {
		cgpu_rooms_begin(rooms, &door.host);
		for (i = 0; i < CONTAINERS_MAX; i++)
			if (door.container[i])
				cgpu_room_add(rooms, &door.container[i]->tenant);
	}
	cgpu_rooms_limit(counts ? rooms : NULL, &c->tenant.ledger);
}

/* Charges a move to the container's share, whatever started the move. */
static void charge(const struct container *c, uint64_t took_ns)
{
	uint32_t i;

	for (i = 0; i < CGPU_MAX_CARDS && took_ns; i++)
		if (c->grant[i].present)
			cgpu_sched_took(&door.sched[i], c->grant[i].entity, took_ns, now_ns());
}

int container_move(const char *id, const struct cgpu_move *move)
{
	struct cgpu_moving moving;
	char line[CGPU_MOVE_LINE];
	struct container *c;
	int err, i;

	pthread_mutex_lock(&door.lock);
	c = find_container(id);
	if (!c || c->ending) {
		pthread_mutex_unlock(&door.lock);
		return -ENOENT;
	}
	change_begin(c, NULL);
	change_keep(&door.host, sizeof(door.host));
	cgpu_moving_begin(&moving, move, &door.host, &c->tenant, c->grant, now_ns());
	for (i = 0; i < CONTAINERS_MAX; i++)
		if (door.container[i])
			cgpu_moving_beside(&moving, &door.container[i]->tenant,
					   door.container[i]->grant, door.container[i]->ending);
	err = cgpu_moving_end(&moving, &c->tenant, c->id, now_ns(), line);
	change_end();
	charge(c, moving.took_ns);
	if (line[0])
		event("%s", line);
	pthread_mutex_unlock(&door.lock);
	return err;
}

uint32_t containers_away(struct cgpu_away *away)
{
	uint32_t count = 0;
	int i;

	for (i = 0; i < CONTAINERS_MAX; i++) {
		struct container *c = door.container[i];

		if (!c || c->ending)
			continue;
		/* if it waits for room, that may have been freed since the last look */
		if (c->tenant.parking.want_bytes) {
			change_begin(c, NULL);
			parking_limit(c);
			change_end();
		}
		if (cgpu_away_note(&away[count], c->id, &c->tenant))
			count++;
	}
	return count;
}

bool parking_is_still(struct container *c, uint32_t minor, uint64_t *submitted)
{
	struct cgpu_demand_channel *channel;
	const volatile uint64_t *words;
	uint64_t both;
	uint32_t i;

	*submitted = 0;
	if (!c->grant[minor].idle_park_s || !userd_complete(c, minor))
		return false;
	for (i = 0; (i = userd_next(c, minor, i, &words, &channel)) != CGPU_USERD_NONE; i++) {
		both = *words;
		if (!cgpu_userd_is_still(submitted, (uint32_t)both, (uint32_t)(both >> 32)))
			return false;
	}
	return true;
}
