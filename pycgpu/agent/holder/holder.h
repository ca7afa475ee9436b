/* SPDX-License-Identifier: GPL-2.0-only */
/* Who has files of the driver, and whose they are. */
#ifndef CGPU_AGENT_HOLDER_H
#define CGPU_AGENT_HOLDER_H

#include "state/door.h"

/* holder.c. Context: no lock. Return: by pid, to free(), NULL: no memory. */
struct cgpu_holder *holders_of(const char *id, uint32_t minor, uint32_t *count);

/* receivers.c: a thread ends who uses a card by a file that only a tenant can have given it */
void receivers_start(void);

#endif
