// SPDX-License-Identifier: GPL-2.0-only
#include <linux/rtmutex.h>
#include <linux/slab.h>

#include "core/tree/move.h"
#include "door/events.h"
#include "governors.h"
#include "parking.h"
#include "registry.h"

/* A step under decision: too much for a stack. */
struct step {
	struct cgpu_moving moving;
	char line[CGPU_MOVE_LINE];
};

/* Context: registry.lock. */
static int take_step(struct step *step, struct cgpu_container *container,
		     const struct cgpu_move *move)
{
	struct cgpu_container *other;
	int err;

	/* before any container is read: each later call is judged with this move in view */
	WRITE_ONCE(cgpu_registry->moving, true);
	rt_mutex_lock(&container->lock);
	cgpu_moving_begin(&step->moving, move, &cgpu_registry->host, &container->tenant,
			  container->grant, ktime_get_ns());
	rt_mutex_unlock(&container->lock);
	list_for_each_entry(other, &cgpu_registry->containers, node) {
		rt_mutex_lock(&other->lock);
		cgpu_moving_beside(&step->moving, &other->tenant, other->grant,
				   cgpu_container_has_ended(other));
		rt_mutex_unlock(&other->lock);
	}
	rt_mutex_lock(&container->lock);
	err = cgpu_moving_end(&step->moving, &container->tenant, container->id, ktime_get_ns(),
			      step->line);
	if (step->line[0])
		cgpu_event("%s", step->line);
	rt_mutex_unlock(&container->lock);
	cgpu_registry_note_moving();
	return err;
}

int cgpu_container_move(const char *id, const struct cgpu_move *move)
{
	struct step *step = kmalloc(sizeof(*step), GFP_KERNEL);
	struct cgpu_container *container;
	int err = -ENOENT;

	if (!step)
		return -ENOMEM;
	rt_mutex_lock(&cgpu_registry->lock);
	container = cgpu_registry_find(id);
	if (container) {
		err = take_step(step, container, move);
		cgpu_container_get(container);
	}
	rt_mutex_unlock(&cgpu_registry->lock);
	if (container) {
		if (step->moving.took_ns)
			cgpu_governors_took(container, step->moving.took_ns);
		cgpu_container_put(container);
	}
	kfree(step);
	return err;
}

/* What all containers have of each card. Context: registry.lock, under which it counts. */
static const struct cgpu_room *count_rooms(void)
{
	static struct cgpu_room rooms[CGPU_MAX_CARDS];
	struct cgpu_container *container;

	cgpu_rooms_begin(rooms, &cgpu_registry->host);
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		rt_mutex_lock(&container->lock);
		cgpu_room_add(rooms, &container->tenant);
		rt_mutex_unlock(&container->lock);
	}
	return rooms;
}

u32 cgpu_containers_away(struct cgpu_away *away, u32 max)
{
	/* containers that wait for room learn what there is now */
	const struct cgpu_room *rooms = cgpu_registry->moving ? count_rooms() : NULL;
	struct cgpu_container *container;
	u32 count = 0;

	list_for_each_entry(container, &cgpu_registry->containers, node) {
		if (count == max)
			break;
		rt_mutex_lock(&container->lock);
		cgpu_rooms_limit(rooms, &container->tenant.ledger);
		if (cgpu_away_note(&away[count], container->id, &container->tenant))
			count++;
		rt_mutex_unlock(&container->lock);
	}
	return count;
}

bool cgpu_container_lock_to_judge(struct cgpu_container *container)
{
	const struct cgpu_room *rooms;

	rt_mutex_lock(&container->lock);
	/* nothing limits the room then: cgpu_registry_note_moving() saw to it */
	if (!READ_ONCE(cgpu_registry->moving))
		return false;
	rt_mutex_unlock(&container->lock);
	rt_mutex_lock(&cgpu_registry->lock);
	rooms = count_rooms();
	rt_mutex_lock(&container->lock);
	cgpu_rooms_limit(rooms, &container->tenant.ledger);
	return true;
}

void cgpu_container_judged(bool alone)
{
	if (alone)
		rt_mutex_unlock(&cgpu_registry->lock);
}
