/* SPDX-License-Identifier: GPL-2.0-only */
/* Into the core and out of it again. */
#ifndef CGPU_DOOR_CORE_GATE_H
#define CGPU_DOOR_CORE_GATE_H

#include "door.h"
#include "gate.h"

extern struct cgpu_gate cgpu_calls, cgpu_maps;

/*
 * Return: the core in charge, or NULL: none is. It stays until cgpu_core_leave(),
 * which is called in either case.
 */
const struct cgpu_core_ops *cgpu_core_enter(struct cgpu_gate *gate);
static inline void cgpu_core_leave(struct cgpu_gate *gate)
{
	cgpu_gate_leave(gate);
}

/* For who is called by the core, and hence behind a gate. */
const struct cgpu_core_ops *cgpu_core_in_charge(void);

int cgpu_switch_init(void);
void cgpu_switch_exit(void);

#endif
