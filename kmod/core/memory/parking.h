/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A container steps off its cards, and comes back.
 *
 *   running --begin--> parking --parked--> parked --reserve--> resuming --end--> running
 *
 * Memory that it has at the begin, or takes until it is parked, stays the container's when it is
 * freed: it counts against its limit, and only its parked processes take it again. Memory that its
 * other processes take and free meanwhile does not. While the container moves, in either direction,
 * that room is reserved on the card. Only a parked container gives its room to others. A container
 * that fails to park ends at once, in the room that it had.
 */
#ifndef CGPU_CORE_MEMORY_PARKING_H
#define CGPU_CORE_MEMORY_PARKING_H

#include "core/types.h"
#include "core/memory/tenant.h"

enum cgpu_parking_limit {
	/*
	 * The most that a return may be charged before the ledger learns that the driver took less:
	 * each call is charged its upper bound. A part of the parked memory is added, for the
	 * rounding of many small pieces.
	 */
	CGPU_RETURN_SLACK_BYTES = 32 << 20,
	CGPU_RETURN_SLACK_SHIFT = 8,
	/* A call waits no longer: a container with all of an H200 needs 60 s to leave it. */
	CGPU_WAIT_S = 60
};

/* One card, as a container that wants to come back sees it. */
struct cgpu_room {
	uint64_t card_bytes;     /* that containers can have in all; 0: unknown */
	uint64_t foreign_bytes;  /* of processes that are in no container */
	uint64_t used_bytes;     /* charged to containers */
	uint64_t reserved_bytes; /* for those that move */
	bool overcommitted;      /* limits add up to more than it has */
};

/* Adds what a container has, or is to have, of each card. */
void cgpu_room_add(struct cgpu_room *rooms, const struct cgpu_tenant *tenant);
/* The room that no container has or is to have. */
uint64_t cgpu_room_left(const struct cgpu_room *room);

/* Reserved for the container on a card, and not taken yet. */
uint64_t cgpu_parking_reserved(const struct cgpu_ledger *ledger, uint32_t card);

/* Is the container moving, with its room reserved? */
bool cgpu_parking_moves(const struct cgpu_ledger *ledger);

/*
 * The processes with memory on a card are about to be parked. `held`: see struct cgpu_parking.
 * Return: 0, -EBUSY: it is not running, -EXDEV: it is in a group, -E2BIG: too many.
 */
int cgpu_parking_begin(struct cgpu_tenant *tenant, const uint32_t *pids, uint32_t count,
		       bool held, uint64_t now_ns);
/* The processes have left the cards. Return: 0, -EBUSY: the container was not parking. */
int cgpu_parking_parked(struct cgpu_tenant *tenant, uint64_t now_ns);

/* The container asks to come back, with this priority; a repeated request changes nothing. */
void cgpu_parking_ask(struct cgpu_tenant *tenant, uint32_t priority, uint64_t now_ns);
/*
 * The container no longer waits for room until it asks anew: it is stopped, and others would wait
 * behind it. Return: 0, -EBUSY: it does not wait.
 */
int cgpu_parking_stay(struct cgpu_tenant *tenant);
/* Does `one` come back before `other`: by priority, then by time? */
bool cgpu_parking_precedes(const struct cgpu_parking *one, const struct cgpu_parking *other);
/*
 * Reserves what it had on each card, or nothing. `rooms`: by card, of all containers. Return: 0,
 * -EAGAIN: there is no room, and `short_card` and `short_bytes` say where and how much is lacking;
 * -EBUSY: it is not parked.
 */
int cgpu_parking_reserve(struct cgpu_tenant *tenant, const struct cgpu_room *rooms,
			 uint64_t now_ns);
/* A call that waits for room, as kept between repeated judgements; zeroed. */
struct cgpu_wait {
	uint64_t bytes;     /* wanted; 0: it does not wait */
	uint64_t begun_ns;
	uint32_t card;
	uint32_t told;      /* parking.no_room when it began */
};

/* The call was refused for `shortage`. Return: true: others may make the room, and it waits. */
bool cgpu_wait_begin(struct cgpu_wait *wait, struct cgpu_tenant *tenant,
		     const struct cgpu_shortage *shortage, uint64_t now_ns);
/*
 * Called once the ledger knows the room. Return: true: the call waits on; false: it is judged
 * again, and refused if there is no room now.
 */
bool cgpu_wait_goes_on(struct cgpu_wait *wait, struct cgpu_tenant *tenant, uint64_t now_ns);
/* The call no longer waits for an answer. */
void cgpu_wait_end(struct cgpu_wait *wait, struct cgpu_tenant *tenant);
/* The room that a waiting call of the container lacks, 0: none waits. */
uint64_t cgpu_parking_wanting(const struct cgpu_tenant *tenant);

/* Its processes are back, or have ended, or did not leave. Return: 0, -EBUSY: it is running. */
int cgpu_parking_end(struct cgpu_tenant *tenant, uint64_t now_ns);

#endif
