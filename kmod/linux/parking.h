/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Containers that leave their cards and come back: core/tree/move.h says how, a service of the host
 * moves them.
 *
 * Room that is reserved holds against every allocation. While a container moves, a call that may
 * take memory is judged under registry.lock, by what all containers have at that moment. A call
 * that saw no move held its container's lock. So a move that begins, and reads each container,
 * finds what that call was charged.
 */
#ifndef CGPU_LINUX_PARKING_H
#define CGPU_LINUX_PARKING_H

#include <linux/types.h>

struct cgpu_away;
struct cgpu_container;
struct cgpu_move;

/**
 * cgpu_container_move() - one step, as inst_ctl asks for it
 * @id: the container's
 * @move: parsed
 *
 * Context: sleeps.
 * Return: as cgpu_moving_end(), -ENOENT: no such container, -ENOMEM.
 */
int cgpu_container_move(const char *id, const struct cgpu_move *move);

/**
 * cgpu_containers_away() - those that are not running, or wait for room
 * @away: to fill in
 * @max: places there
 *
 * Context: registry.lock.
 * Return: how many were filled in.
 */
u32 cgpu_containers_away(struct cgpu_away *away, u32 max);

/**
 * cgpu_container_lock_to_judge() - lock a container, of which a call or an mmap is judged
 * @container: any
 *
 * Its ledger knows then what the card has room for.
 *
 * Return: for cgpu_container_judged(), once it is unlocked.
 */
bool cgpu_container_lock_to_judge(struct cgpu_container *container);
/** cgpu_container_judged() - the container is unlocked */
void cgpu_container_judged(bool alone);

#endif
