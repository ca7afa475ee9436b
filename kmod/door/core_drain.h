/* SPDX-License-Identifier: GPL-2.0-only */
/* Which core is in charge; the way into it and out of it again. */
#ifndef CGPU_DOOR_CORE_DRAIN_H
#define CGPU_DOOR_CORE_DRAIN_H

#include "door.h"
#include "drain.h"

extern struct cgpu_drain cgpu_calls, cgpu_maps;

/**
 * cgpu_core_enter() - ask for the core in charge, and keep it there
 * @drain: cgpu_calls, or cgpu_maps if the caller holds an mmap_lock
 *
 * Return: the core, or NULL: none is in charge. In either case the caller ends
 * with cgpu_core_leave(), and the core stays until then.
 */
const struct cgpu_core_ops *cgpu_core_enter(struct cgpu_drain *drain);

/**
 * cgpu_core_leave() - let the core go
 * @drain: as entered
 */
static inline void cgpu_core_leave(struct cgpu_drain *drain)
{
	cgpu_drain_leave(drain);
}

/**
 * cgpu_core_in_charge() - the core, for callers that it called or that hold the switch
 *
 * Return: as cgpu_core_enter().
 */
const struct cgpu_core_ops *cgpu_core_in_charge(void);

/**
 * cgpu_core_replace() - put another core in charge
 * @core: the next, or NULL: none
 *
 * Context: no call is behind a drain, and no other caller replaces it.
 */
void cgpu_core_replace(const struct cgpu_core_ops *core);

/** cgpu_core_started() - the core in charge has started: its state may be pinned */
void cgpu_core_started(void);

/**
 * cgpu_core_pin() - keep the door, and the core in charge, from being unloaded
 *
 * Context: any.
 *
 * Return: false: one of them is being unloaded at this moment, and nothing is kept.
 */
bool cgpu_core_pin(void);

/**
 * cgpu_core_pin_state() - as cgpu_core_pin(), and keep the state of the core in charge
 *
 * A core whose start fails takes its state with it, whatever is pinned by then.
 *
 * Context: any.
 *
 * Return: false: also if none is in charge, or it has not started yet.
 */
bool cgpu_core_pin_state(void);

/**
 * cgpu_core_unpin() - end what cgpu_core_pin() or cgpu_core_pin_state() began
 *
 * Context: any.
 */
void cgpu_core_unpin(void);

/**
 * cgpu_core_close() - close both drains, and have the core in charge settle
 *
 * Context: a core is in charge, and quiesced.
 *
 * Return: 0; -EBUSY: a call stayed behind one of them, and both are open.
 */
int cgpu_core_close(void);

/** cgpu_core_open() - open both drains */
void cgpu_core_open(void);

#endif
