/* SPDX-License-Identifier: GPL-2.0-only */
/* Decisions of core/sched → RM controls: the thread of one card. */
#ifndef CGPU_LINUX_GOVERNOR_H
#define CGPU_LINUX_GOVERNOR_H

#include "core/sched/sched.h"
#include "registry.h"

struct cgpu_bridge_ops;
struct cgpu_governor;

/**
 * cgpu_governor_start() - open a card and begin to govern it
 * @bridge: stays until cgpu_governor_stop()
 * @minor: the card
 * @gpu: what is known of it
 *
 * Context: sleeps.
 * Return: the governor, or ERR_PTR() of -ENOMEM, -EIO.
 */
struct cgpu_governor *cgpu_governor_start(const struct cgpu_bridge_ops *bridge, u32 minor,
					  const struct cgpu_gpu *gpu);

/**
 * cgpu_governor_stop() - open every gate of the card and end
 * @governor: freed; it is not in use elsewhere any more
 *
 * Context: sleeps.
 */
void cgpu_governor_stop(struct cgpu_governor *governor);

/**
 * cgpu_governor_run() - start the thread, if there is none
 * @governor: of a card
 *
 * Return: 0, -ENOMEM.
 */
int cgpu_governor_run(struct cgpu_governor *governor);

/**
 * cgpu_governor_leave() - end the thread, if there is one; gates stay as they are
 * @governor: goes on with cgpu_governor_run()
 *
 * Context: sleeps.
 */
void cgpu_governor_leave(struct cgpu_governor *governor);

/**
 * cgpu_governor_adopt() - take over from another core, whose thread has ended
 * @governor: the other core's
 * @bridge: as for cgpu_governor_start()
 */
void cgpu_governor_adopt(struct cgpu_governor *governor, const struct cgpu_bridge_ops *bridge);

u64 cgpu_governor_digest(u64 digest);

/**
 * cgpu_governor_poke() - let the thread look for changes
 * @governor: of the card where something changed
 *
 * Context: any that may take a mutex; returns at once.
 */
void cgpu_governor_poke(struct cgpu_governor *governor);

/**
 * cgpu_governor_doubt() - gates of a card may not be as they are marked
 * @minor: the card, governed or not
 *
 * Its thread asserts them all when it is poked next.
 */
void cgpu_governor_doubt(u32 minor);

/**
 * cgpu_governor_took() - a container's memory was moved
 * @governor: the card's
 * @slot: the container's number on the card
 * @ns: for so long, up to now
 */
void cgpu_governor_took(struct cgpu_governor *governor, u32 slot, u64 ns);

/**
 * cgpu_governor_stat() - what the scheduler counted of a container
 * @governor: the card's
 * @slot: the container's number on the card
 * @stat: as of now
 *
 * Context: sleeps; no lock held.
 */
void cgpu_governor_stat(struct cgpu_governor *governor, u32 slot, struct cgpu_sched_stat *stat);

/**
 * cgpu_governor_begin() - a new container starts afresh under a number that is reused
 * @governor: the card's
 * @slot: the container's number on the card
 *
 * Context: sleeps; no lock held.
 */
void cgpu_governor_begin(struct cgpu_governor *governor, u32 slot);

/**
 * cgpu_governor_hold_new() - shut a container's new channels if its gate is shut
 * @governor: the card's
 * @container: has new channels there
 *
 * Context: sleeps; no lock held.
 */
void cgpu_governor_hold_new(struct cgpu_governor *governor, struct cgpu_container *container);

/**
 * cgpu_governor_schedule() - as cgpu_governors_schedule(), on this card
 * @governor: the card's
 * @container: whose channels they are
 * @ask: asks the driver
 * @data: for it
 *
 * Context: sleeps; no lock held.
 */
void cgpu_governor_schedule(struct cgpu_governor *governor, struct cgpu_container *container,
			    void (*ask)(void *data), void *data);

/**
 * cgpu_governor_control() - as cgpu_governors_control(), on this card
 * @governor: the card's
 * @hClient: a container's
 * @hObject: of that client
 * @cmd: the control
 * @params: kernel memory
 * @size: of them, in bytes
 *
 * Return: the driver's status
 */
u32 cgpu_governor_control(struct cgpu_governor *governor, u32 hClient, u32 hObject, u32 cmd,
			  void *params, u32 size);

/**
 * cgpu_governor_suspend() - open every gate until the host has resumed, or resume
 * @governor: the card's
 * @suspend: false: resume
 *
 * Context: sleeps until the gates are open, for a second at most.
 */
void cgpu_governor_suspend(struct cgpu_governor *governor, bool suspend);

#endif
