/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A container steps off its cards, and comes back.
 *
 *   running --begin--> parking --parked--> parked --reserve--> resuming --end--> running
 *
 * What it has at the begin, and what it takes until it is parked, stays the container's when it is
 * freed: it counts against its limit, and only its parked processes take it again. What others of
 * its processes take and free meanwhile does not. While it moves, in either direction, that room is
 * reserved on the card. Only what is parked gives its room to others. A container that fails to
 * park ends at once, in the room that it had.
 */
#ifndef CGPU_CORE_MEMORY_PARKING_H
#define CGPU_CORE_MEMORY_PARKING_H

#include "core/types.h"
#include "core/memory/tenant.h"

enum cgpu_parking_limit {
	/*
	 * What the driver may take before the ledger learns that it was less, at most: a return
	 * charges each call by its upper bound. Beside it a part of what is parked, for the
	 * rounding of many small pieces.
	 */
	CGPU_RETURN_SLACK_BYTES = 32 << 20,
	CGPU_RETURN_SLACK_SHIFT = 8,
	/* A call waits for room no longer: who has all of an H200 takes 60 s to leave it. */
	CGPU_WAIT_S = 60
};

/* One card, for whoever wants to come back. */
struct cgpu_room {
	uint64_t card_bytes;     /* that anybody can have; 0: nobody knows */
	uint64_t foreign_bytes;  /* of processes that are in no container */
	uint64_t used_bytes;     /* charged to containers */
	uint64_t reserved_bytes; /* for those that move */
	bool overcommitted;      /* limits add up to more than it has */
};

/* Adds what a container has, or is to have, of each card. */
void cgpu_room_add(struct cgpu_room *rooms, const struct cgpu_tenant *tenant);
/* What nobody has or is to have. */
uint64_t cgpu_room_left(const struct cgpu_room *room);

/* Reserved for the container on a card, and not taken yet. */
uint64_t cgpu_parking_reserved(const struct cgpu_ledger *ledger, uint32_t card);

/* Is it on its way, and is its room reserved? */
bool cgpu_parking_moves(const struct cgpu_ledger *ledger);

/*
 * These processes are about to be parked, all that have memory on a card. `held`: see struct
 * cgpu_parking. Return: 0, -EBUSY: it is not running, -EXDEV: it is in a group, -E2BIG: too many.
 */
int cgpu_parking_begin(struct cgpu_tenant *tenant, const uint32_t *pids, uint32_t count,
		       bool held, uint64_t now_ns);
/* Nothing of them is on a card any more. Return: 0, -EBUSY: it was not parking. */
int cgpu_parking_parked(struct cgpu_tenant *tenant, uint64_t now_ns);

/* It wants to come back, with this priority; of one that wants already nothing changes. */
void cgpu_parking_ask(struct cgpu_tenant *tenant, uint32_t priority, uint64_t now_ns);
/*
 * It waits for room no longer, until it asks anew: it stands still, and others would wait behind
 * it. Return: 0, -EBUSY: it does not wait.
 */
int cgpu_parking_stay(struct cgpu_tenant *tenant);
/* Does `one` come back before `other`: by priority, then by time? */
bool cgpu_parking_precedes(const struct cgpu_parking *one, const struct cgpu_parking *other);
/*
 * Reserves what it had on each card, or nothing. `rooms`: by card, of all containers. Return: 0,
 * -EAGAIN: there is no room, and `short_card` and `short_bytes` say where and how much is
 * wanting; -EBUSY: it is not parked.
 */
int cgpu_parking_reserve(struct cgpu_tenant *tenant, const struct cgpu_room *rooms,
			 uint64_t now_ns);
/* A call that waits for room, for whoever is asked about it again and again; zeroed. */
struct cgpu_wait {
	uint64_t bytes;     /* wanted; 0: it does not wait */
	uint64_t begun_ns;
	uint32_t card;
	uint32_t told;      /* parking.no_room when it began */
};

/* It was refused for `shortage`. Return: true: others may make the room, and it waits. */
bool cgpu_wait_begin(struct cgpu_wait *wait, struct cgpu_tenant *tenant,
		     const struct cgpu_shortage *shortage, uint64_t now_ns);
/*
 * After the ledger was told what room there is. Return: true: it waits on; false: it is judged
 * again, and refused if there is no room now.
 */
bool cgpu_wait_goes_on(struct cgpu_wait *wait, struct cgpu_tenant *tenant, uint64_t now_ns);
/* Nobody waits for its answer any more. */
void cgpu_wait_end(struct cgpu_wait *wait, struct cgpu_tenant *tenant);
/* What is wanting for a call of the container that waits, 0: none does. */
uint64_t cgpu_parking_wanting(const struct cgpu_tenant *tenant);

/* Its processes are back, or have ended, or did not leave. Return: 0, -EBUSY: it is running. */
int cgpu_parking_end(struct cgpu_tenant *tenant, uint64_t now_ns);

#endif
