/* SPDX-License-Identifier: GPL-2.0-only */
/* The governors of the host's cards: which cards have one, and which calls each is passed. */
#ifndef CGPU_LINUX_GOVERNORS_H
#define CGPU_LINUX_GOVERNORS_H

#include "core/sched/sched.h"
#include "registry.h"

struct cgpu_bridge_ops;

int cgpu_governors_begin(void **part);
void cgpu_governors_adopt(void *part);
/* Opens every gate, frees everything. */
void cgpu_governors_end(void);
u64 cgpu_governors_digest(u64 digest);

/**
 * cgpu_governors_watch() - begin to look out for a suspend
 *
 * Return: 0, -errno.
 */
int cgpu_governors_watch(void);

/** cgpu_governors_quiesce() - end the threads and the watch; gates stay as they are */
void cgpu_governors_quiesce(void);

/** cgpu_governors_settle() - with no call under way: end what began since quiesce */
void cgpu_governors_settle(void);

/** cgpu_governors_resume() - begin again after cgpu_governors_quiesce() */
void cgpu_governors_resume(void);

/**
 * cgpu_governors_bridge() - the bridge came, or goes
 * @ops: the bridge; NULL: every gate is open and no card in use on return
 *
 * Context: sleeps.
 */
void cgpu_governors_bridge(const struct cgpu_bridge_ops *ops);

/**
 * cgpu_governors_card_known() - govern cards that have become known
 *
 * Context: sleeps.
 */
void cgpu_governors_card_known(void);

/**
 * cgpu_governors_poke() - something that shares depend on may have changed
 * @minor: the card
 *
 * That is a setting of the card or of a container on it, the containers there, which have the
 * card open, how many channel groups compute.
 *
 * Context: any that may take a mutex; returns at once.
 */
void cgpu_governors_poke(u32 minor);

/**
 * cgpu_governors_poke_container() - cgpu_governors_poke() for each card of a container
 * @container: which
 *
 * Context: as cgpu_governors_poke().
 */
void cgpu_governors_poke_container(struct cgpu_container *container);

/**
 * cgpu_governors_begin_container() - a container was listed
 * @container: its numbers on its cards may have been another's a moment ago
 *
 * Context: sleeps; no lock held.
 */
void cgpu_governors_begin_container(struct cgpu_container *container);

/**
 * cgpu_governors_took() - a container's memory was moved, and it is charged for that
 * @container: which
 * @ns: for so long, up to now
 *
 * Context: sleeps; no lock held.
 */
void cgpu_governors_took(struct cgpu_container *container, u64 ns);

/**
 * cgpu_governors_assert() - the driver was asked for something that was not checked
 *
 * Every channel of every card is told again to run, or not to.
 *
 * Context: any that may take a mutex; returns at once.
 */
void cgpu_governors_assert(void);

/**
 * cgpu_governors_hold_new() - keep a container's new channels off the card
 * @container: nothing happens unless its gate is shut
 * @minor: the card
 *
 * Context: sleeps; no lock held.
 */
void cgpu_governors_hold_new(struct cgpu_container *container, u32 minor);

/**
 * cgpu_governors_schedule() - have the driver schedule channels, and shut what it opens
 * @container: whose they are; its gate may be shut or open
 * @minor: the card, governed or not
 * @ask: asks the driver and tells the core what it answered
 * @data: for it
 *
 * Gates wait meanwhile; the card's thread lends the caller its priority.
 *
 * Context: sleeps; no lock held.
 */
void cgpu_governors_schedule(struct cgpu_container *container, u32 minor,
			     void (*ask)(void *data), void *data);

/**
 * cgpu_governors_control() - ask the driver for something of a container's
 * @minor: the card
 * @hClient: the container's
 * @hObject: of that client
 * @cmd: the control
 * @params: kernel memory
 * @size: of them, in bytes
 *
 * Context: sleeps; no lock held.
 * Return: the driver's status; NV_OK if nothing governs the card
 */
u32 cgpu_governors_control(u32 minor, u32 hClient, u32 hObject, u32 cmd, void *params, u32 size);

/**
 * cgpu_governors_stat() - what the scheduler counted of a container
 * @container: which
 * @minor: the card
 * @stat: as of now
 *
 * Context: sleeps; no lock held.
 * Return: false: nothing governs the card, or the container is a member of a group, which the
 * scheduler does not know.
 */
bool cgpu_governors_stat(struct cgpu_container *container, u32 minor,
			 struct cgpu_sched_stat *stat);

#endif
