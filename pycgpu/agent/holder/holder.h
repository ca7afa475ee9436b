/* SPDX-License-Identifier: GPL-2.0-only */
/* The processes that have files of the driver, and the containers that own the files. */
#ifndef CGPU_AGENT_HOLDER_H
#define CGPU_AGENT_HOLDER_H

#include "state/door.h"

/* holder.c. Context: no lock. Return: sorted by pid, for free(), NULL: no memory. */
struct cgpu_holder *holders_of(const char *id, uint32_t minor, uint32_t *count);

/* receivers.c: a thread ends processes that use a card by a file only a tenant can have given */
void receivers_start(void);

#endif
