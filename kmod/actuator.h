/* SPDX-License-Identifier: GPL-2.0-only */
/* What core/sched decided → RM controls, a thread per card. */
#ifndef CGPU_ACTUATOR_H
#define CGPU_ACTUATOR_H

#include "bridge.h"
#include "container.h"
#include "core/sched.h"
#include "state.h"

int cgpu_actuator_begin(void **part);
void cgpu_actuator_adopt(void *part);
/* Opens every gate, frees everything. */
void cgpu_actuator_end(void);
/* Begins to look out for a suspend. Return: 0, -errno. */
int cgpu_actuator_watch(void);
/*
 * The threads end, gates stay as they are, nobody looks out; those that began
 * since end too, with the door's gates closed; all begin again.
 */
void cgpu_actuator_quiesce(void);
void cgpu_actuator_settle(void);
void cgpu_actuator_resume(void);
u64 cgpu_actuator_digest(u64 digest);

/* The bridge came, or (NULL) goes: every gate is open and no card used on return. */
void cgpu_actuator_bridge(const struct cgpu_bridge_ops *ops);

/*
 * Something that shares depend on may have changed: a setting of the card or
 * of a container on it, who is there, who has the card open, how many channel
 * groups compute. Context: any that may take a mutex; returns at once.
 */
void cgpu_actuator_poke(u32 minor);
/* The same for each card of a container. */
void cgpu_actuator_poke_container(struct cgpu_container *container);

/*
 * New channels of a container whose gate is shut: keeps them off the card
 * until it opens. Context: sleeps; no lock held.
 */
void cgpu_actuator_hold_new(struct cgpu_container *container, u32 minor);

/* Return: false: no engine governs the card; `stat` is as of now. */
bool cgpu_actuator_stat(struct cgpu_container *container, u32 minor,
			struct cgpu_sched_stat *stat);

/* Cards have become known: those of them that nobody governs get a thread. */
void cgpu_actuator_card_known(void);

#endif
