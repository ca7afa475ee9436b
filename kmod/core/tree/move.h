/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One step of a container that leaves its cards or comes back, as `inst_ctl` asks for it: the same
 * at both doors. core/memory/parking.h says what a step means.
 *
 * A door lets no other container move or allocate from cgpu_moving_begin() to cgpu_moving_end(). In
 * between it shows what each container has, the one that moves included.
 */
#ifndef CGPU_CORE_TREE_MOVE_H
#define CGPU_CORE_TREE_MOVE_H

#include "core/types.h"
#include "core/memory/parking.h"
#include "core/tree/card.h"

enum cgpu_step {
	CGPU_STEP_PARK,
	CGPU_STEP_PARKED,
	CGPU_STEP_RETURN,
	CGPU_STEP_RUNNING,
	CGPU_STEP_NO_ROOM,      /* no container can be parked for a call of it that waits */
	CGPU_STEP_STAY,         /* it stands still, and others do not wait behind it */
	CGPU_STEP_COUNT
};

/* A step, parsed. */
struct cgpu_move {
	uint32_t step;          /* enum cgpu_step */
	bool hold;              /* park: it comes back by a return that is asked for alone */
	uint32_t count;         /* park: of the processes; more than are kept in mind: -E2BIG */
	uint32_t pid[CGPU_PARKED_PROCESSES]; /* host's numbers */
	uint32_t told;          /* return: bit per card whose foreign_bytes are given */
	uint64_t foreign_bytes[CGPU_MAX_CARDS];
};

enum cgpu_move_limit {
	CGPU_MOVE_LINE = 160    /* bytes of what `events` is told of a step, with the end */
};

/* A step while it is decided. */
struct cgpu_moving {
	const struct cgpu_move *move;
	struct cgpu_parking own;
	uint32_t cards;         /* bit per card that the container has */
	bool waited;            /* for room, before this */
	bool preceded;          /* a container that waits for room comes back before it */
	uint64_t took_ns;       /* at the end: of the move that ended, for cgpu_sched_took() */
	struct cgpu_room rooms[CGPU_MAX_CARDS];
};

/*
 * The room of the cards without any container, for cgpu_room_add() of each; and the rest of it for
 * a container's next call, if a container moves or a card is overcommitted. `rooms` NULL: neither
 * is so on any card.
 */
void cgpu_rooms_begin(struct cgpu_room *rooms, const struct cgpu_host *host);
void cgpu_rooms_limit(const struct cgpu_room *rooms, struct cgpu_ledger *ledger);

void cgpu_moving_begin(struct cgpu_moving *moving, const struct cgpu_move *move,
		       struct cgpu_host *host, struct cgpu_tenant *tenant,
		       const struct cgpu_grant *grants, uint64_t now_ns);
/* `ends`: this container no longer waits for anything. */
void cgpu_moving_beside(struct cgpu_moving *moving, const struct cgpu_tenant *tenant,
			const struct cgpu_grant *grants, bool ends);
/*
 * `line`: what `events` is told, empty: nothing. Return: 0, -EBUSY: the step does not lead from
 * the state that the container is in, -EXDEV: it is in a group, -E2BIG: too many processes;
 * -EAGAIN: there is no room, or others are first: it waits, and its struct cgpu_parking says for
 * what. On every other error nothing changed.
 */
int cgpu_moving_end(struct cgpu_moving *moving, struct cgpu_tenant *tenant, const char *id,
		    uint64_t now_ns, char line[CGPU_MOVE_LINE]);

/* A container that is not running, or waits for room, as the file `parking` shows it. */
struct cgpu_away {
	char id[65];            /* CGPU_ID_MAX and the end */
	uint32_t state;         /* enum cgpu_park_state */
	uint64_t wanting_bytes; /* running: for a call that waits */
	uint64_t parked_bytes;  /* of all cards */
	struct cgpu_parking parking;
};

/* Return: false: it is running and waits for nothing, and `away` is as it was. */
bool cgpu_away_note(struct cgpu_away *away, const char *id, const struct cgpu_tenant *tenant);

#endif
