/* SPDX-License-Identifier: GPL-2.0-only */
/* What core/sched decided → RM controls, a thread per card. */
#ifndef CGPU_LINUX_GOVERNOR_H
#define CGPU_LINUX_GOVERNOR_H

#include "door/bridge.h"
#include "registry.h"
#include "core/sched/sched.h"
#include "state.h"

int cgpu_governor_begin(void **part);
void cgpu_governor_adopt(void *part);
/* Opens every gate, frees everything. */
void cgpu_governor_end(void);
/* Begins to look out for a suspend. Return: 0, -errno. */
int cgpu_governor_watch(void);
/*
 * The threads end, gates stay as they are, nobody looks out; those that began
 * since end too, with the door's gates closed; all begin again.
 */
void cgpu_governor_quiesce(void);
void cgpu_governor_settle(void);
void cgpu_governor_resume(void);
u64 cgpu_governor_digest(u64 digest);

/* The bridge came, or (NULL) goes: every gate is open and no card used on return. */
void cgpu_governor_bridge(const struct cgpu_bridge_ops *ops);

/*
 * Something that shares depend on may have changed: a setting of the card or
 * of a container on it, who is there, who has the card open, how many channel
 * groups compute. Context: any that may take a mutex; returns at once.
 */
void cgpu_governor_poke(u32 minor);
/* The same for each card of a container. */
void cgpu_governor_poke_container(struct cgpu_container *container);

/**
 * cgpu_governor_assert() - the driver was asked for something that nobody looked at
 *
 * Every channel of every card is told again to run, or not to.
 *
 * Context: any that may take a mutex; returns at once.
 */
void cgpu_governor_assert(void);

/*
 * New channels of a container whose gate is shut: keeps them off the card
 * until it opens. Context: sleeps; no lock held.
 */
void cgpu_governor_hold_new(struct cgpu_container *container, u32 minor);

/* Return: false: no scheduler governs the card; `stat` is as of now. */
bool cgpu_governor_stat(struct cgpu_container *container, u32 minor,
			struct cgpu_sched_stat *stat);

/* Cards have become known: those of them that nobody governs get a thread. */
void cgpu_governor_card_known(void);

#endif
