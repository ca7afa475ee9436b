/* SPDX-License-Identifier: GPL-2.0-only */
/* Which cards are there: asks the driver as any process would. */
#ifndef CGPU_LINUX_DISCOVER_H
#define CGPU_LINUX_DISCOVER_H

#include "state.h"

/**
 * cgpu_discover() - attach to the driver if need be, and register its cards
 * @wanted: minors, by bit: of these, cards that did not answer before are asked again, and
 * those without a container, whether they are in MIG mode
 *
 * Context: a process with an mm (module load, a write to inst_ctl); sleeps; may
 * open the cards.
 * Return: 0, or the error of cgpu_door_attach().
 */
int cgpu_discover(u32 wanted);

/**
 * cgpu_discover_forget() - the driver went
 *
 * Cards without containers disappear, and the next cgpu_discover() asks again.
 */
void cgpu_discover_forget(void);

int cgpu_discovery_begin(void **part);
void cgpu_discovery_adopt(void *part);
void cgpu_discovery_end(void);
u64 cgpu_discovery_digest(u64 digest);

#endif
