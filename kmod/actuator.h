/* SPDX-License-Identifier: GPL-2.0-only */
/* What core/sched decided → RM controls, a thread per card. */
#ifndef CGPU_ACTUATOR_H
#define CGPU_ACTUATOR_H

#include "bridge.h"
#include "container.h"
#include "core/sched.h"

int cgpu_actuator_init(void);
/* The bridge has unregistered: nothing is left but memory. */
void cgpu_actuator_exit(void);

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
