/* SPDX-License-Identifier: GPL-2.0-only */
/* The containers of a card, and how the card is divided among them. */
#ifndef CGPU_AGENT_CARD_H
#define CGPU_AGENT_CARD_H

#include "state/door.h"

/* registry.c. Context: door.lock, for all of them */
struct container *find_container(const char *id);
/* Gives a new container its cards and lists it. Return: 0, -errno: nothing changed. */
int registry_add(struct container *c, struct cgpu_create *create);
/* Returns the container's promises at once, and its files when they are gone. */
void unlist(struct container *c);
/* The id of its group's leader, which may be the container; NULL: it is in no group. */
const char *container_group(const struct container *c);
void tell_container(const char *kind, const struct container *c);
/* It leads a group of which another is still there. */
bool has_members(const struct container *c);

/* governor.c */
void governors_start(void);

/* slices.c */
/* The container's thread that sends slices; worker_left() hears of its end. Return: -errno. */
int slices_start(struct container *c);
/* Has the slices of the containers in `mask` sent, soon. */
void slices_want(uint32_t minor, uint64_t mask, uint64_t slice_us);

/* switch_log.c */
void switch_log_open(uint32_t minor);
/* Return: NULL: the driver keeps none. */
struct cgpu_switch_log *switch_log_of(uint32_t minor);
/* It is to be read then. Context: door.lock. */
void switch_log_plan(uint32_t minor, uint64_t due_ns);
/* Charges usage to the container that used the card. Context: door.lock, released meanwhile. */
void switch_log_read(uint32_t minor);
/* A look has brought that time nearer than it was when it was told last. Context: door.lock. */
bool switch_log_is_sooner(uint32_t minor);
/* Totals as of now: the log tells of a context switch by itself only after 33 ms. */
void switch_log_refresh(uint32_t minor);

/* demand.c: which containers have work */
/* The slot has a new owner from here on. Context: door.lock. */
void demand_forget(uint32_t minor, uint32_t slot);
void demand_start(uint32_t minor);
/* After a tick that asked for nothing: looks may be wanted sooner. Context: door.lock. */
void demand_follow(uint32_t minor);

/* parking.c: before a call that may take memory is judged. Context: door.lock. */
void parking_limit(struct container *c);
/* One step, as inst_ctl asks for it. Return: as cgpu_moving_end(), -ENOENT: no such container. */
int container_move(const char *id, const struct cgpu_move *move);
/* The containers that are not running. `away` has CONTAINERS_MAX places. Context: door.lock. */
uint32_t containers_away(struct cgpu_away *away);

/*
 * The card has fetched all that the container submitted; *submitted changes with each submission.
 * false: it has not, that cannot be seen, or the container is not to be parked when idle. Context:
 * door.lock.
 */
bool parking_is_still(struct container *c, uint32_t minor, uint64_t *submitted);

/*
 * room.c: a call of the container was refused. Waits while another container is parked for it, as
 * long as `is_there` says that its caller is there. Return: true: the call is to be judged again.
 * Context: no lock.
 */
bool room_wait(struct container *c, const struct cgpu_shortage *shortage, struct cgpu_wait *wait,
	       bool (*is_there)(const void *), const void *caller);

#endif
