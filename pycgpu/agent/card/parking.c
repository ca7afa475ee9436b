// SPDX-License-Identifier: GPL-2.0-only
/*
 * The books of a container that is moved to the host and back: pycgpu/parking/moves.py moves it,
 * core/memory/parking.h says what it keeps meanwhile. All under door.lock, as every allocation.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"
#include "card/card.h"

static uint64_t foreign_bytes[CGPU_MAX_CARDS]; /* as the driver and the ledger differed last */

/* Context: door.lock. */
static void room(struct cgpu_room *rooms)
{
	uint32_t minor;
	int i;

	memset(rooms, 0, sizeof(*rooms) * CGPU_MAX_CARDS);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		const struct cgpu_gpu *gpu = &door.host.topology.gpu[minor];

		rooms[minor].card_bytes = gpu->total_bytes > gpu->reserved_bytes ?
					  gpu->total_bytes - gpu->reserved_bytes : 0;
		rooms[minor].foreign_bytes = foreign_bytes[minor];
	}
	for (i = 0; i < CONTAINERS_MAX; i++)
		if (door.container[i])
			cgpu_room_add(rooms, &door.container[i]->tenant);
}

/* While a container moves, what is reserved for it is nobody else's. */
void parking_limit(struct container *c)
{
	struct cgpu_room rooms[CGPU_MAX_CARDS];
	uint32_t minor;
	bool moves = false;
	int i;

	for (i = 0; i < CONTAINERS_MAX && !moves; i++)
		moves = door.container[i] &&
			(door.container[i]->tenant.ledger.park_state == CGPU_PARK_PARKING ||
			 door.container[i]->tenant.ledger.park_state == CGPU_PARK_RESUMING);
	if (moves)
		room(rooms);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (c->grant[minor].present)
			cgpu_ledger_limit_room(&c->tenant.ledger, minor,
					       moves ? cgpu_room_left(&rooms[minor]) : UINT64_MAX);
}

/* Return: NULL: there is none. With door.lock held, and a change begun, unless that. */
static struct container *begin(const char *id)
{
	struct container *c;

	pthread_mutex_lock(&door.lock);
	c = find_container(id);
	if (!c || c->ending) {
		pthread_mutex_unlock(&door.lock);
		return NULL;
	}
	change_begin(c, NULL);
	return c;
}

static int end(int err)
{
	change_end();
	pthread_mutex_unlock(&door.lock);
	return err;
}

static uint64_t parked_bytes(const struct container *c)
{
	uint64_t bytes = 0;
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		bytes += c->tenant.ledger.account[minor].parked_bytes;
	return bytes;
}

int cgpu_agent_park_begin(const char *id, const unsigned int *pids, int count)
{
	struct container *c = begin(id);

	if (!c)
		return -ENOENT;
	return end(cgpu_parking_begin(&c->tenant, pids, (uint32_t)count, now_ns()));
}

int cgpu_agent_park_done(const char *id)
{
	struct container *c = begin(id);
	int err;

	if (!c)
		return -ENOENT;
	err = cgpu_parking_parked(&c->tenant, now_ns());
	if (!err)
		event("parked id=%s bytes=%llu", c->id, (unsigned long long)parked_bytes(c));
	return end(err);
}

/* Whoever waits for room on one of its cards and comes back before it. */
static bool is_preceded(const struct container *c)
{
	uint32_t minor;
	int i;

	for (i = 0; i < CONTAINERS_MAX; i++) {
		const struct container *other = door.container[i];

		if (!other || other == c || other->ending ||
		    other->tenant.ledger.park_state != CGPU_PARK_PARKED ||
		    !cgpu_parking_precedes(&other->tenant, &c->tenant))
			continue;
		for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
			if (c->grant[minor].present && other->grant[minor].present)
				return true;
	}
	return false;
}

static uint32_t priority(const struct container *c)
{
	uint32_t minor, highest = 0;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (c->grant[minor].present && c->grant[minor].priority > highest)
			highest = c->grant[minor].priority;
	return highest;
}

int cgpu_agent_park_reserve(const char *id, const unsigned long long *foreign, int *minor,
			    unsigned long long *short_bytes)
{
	struct cgpu_room rooms[CGPU_MAX_CARDS];
	struct container *c = begin(id);
	uint32_t card = CGPU_MAX_CARDS;
	uint64_t wanting = 0;
	bool is_new;
	int err, i;

	if (!c)
		return -ENOENT;
	for (i = 0; i < CGPU_MAX_CARDS; i++)
		foreign_bytes[i] = foreign[i];
	is_new = !c->tenant.parking.asked_ns;
	cgpu_parking_ask(&c->tenant, priority(c), now_ns());
	room(rooms);
	err = is_preceded(c) ? -EAGAIN :
	      cgpu_parking_reserve(&c->tenant, rooms, now_ns(), &card, &wanting);
	if (err == -EAGAIN && is_new)
		event("waits id=%s bytes=%llu", c->id, (unsigned long long)parked_bytes(c));
	*minor = card < CGPU_MAX_CARDS ? (int)card : -1;
	*short_bytes = wanting;
	return end(err);
}

int cgpu_agent_park_end(const char *id)
{
	struct container *c = begin(id);
	uint64_t asked_ns;
	uint32_t state;

	if (!c)
		return -ENOENT;
	state = c->tenant.ledger.park_state;
	asked_ns = c->tenant.parking.asked_ns;
	cgpu_parking_end(&c->tenant, now_ns());
	if (state == CGPU_PARK_RESUMING)
		event("resumed id=%s waited_ms=%llu", c->id,
		      (unsigned long long)((now_ns() - asked_ns) / 1000000));
	else if (state == CGPU_PARK_PARKING)
		event("not_parked id=%s", c->id);
	else if (state == CGPU_PARK_PARKED)
		event("park_ended id=%s", c->id);
	return end(0);
}

int cgpu_agent_parking(char *buf, int size)
{
	int used = 0, i;
	uint32_t n;

	buf[0] = 0;
	pthread_mutex_lock(&door.lock);
	for (i = 0; i < CONTAINERS_MAX; i++) {
		const struct container *c = door.container[i];

		if (!c || c->ending || c->tenant.ledger.park_state == CGPU_PARK_RUNNING ||
		    used > size - 1024)
			continue;
		used += sprintf(buf + used, "%s %u %llu %llu", c->id, c->tenant.ledger.park_state,
				(unsigned long long)c->tenant.parking.since_ns,
				(unsigned long long)c->tenant.parking.asked_ns);
		for (n = 0; n < c->tenant.parking.count; n++)
			used += sprintf(buf + used, " %u", c->tenant.parking.pid[n]);
		used += sprintf(buf + used, "\n");
	}
	pthread_mutex_unlock(&door.lock);
	return used;
}
