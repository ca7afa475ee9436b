/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether a process may open a node of the driver's by itself: opening.c. */
#ifndef CGPU_AGENT_OPENING_H
#define CGPU_AGENT_OPENING_H

#include "state/door.h"

enum opening { OPENING_UNKNOWN, OPENING_MAY, OPENING_MAY_NOT };

/* The rights of a process that count when it opens a file. */
struct rights {
	uint32_t uid, gid;
	uint32_t group_count;
	gid_t groups[64];
	uint64_t capabilities;
};

/* Return: false: it has ended. */
bool rights_of(int pid, struct rights *rights);
/*
 * `who`: with these rights, NULL: as the cgroup alone says. Asks a child of ours, for a moment.
 * Context: no lock.
 */
enum opening may_open(int pid, const struct rights *who, uint32_t device, uint32_t minor);
/*
 * A runtime mounted the driver's nodes into its container, as NVIDIA's does. Its device rules may
 * be gone: on each reload systemd removes rules that it was not told of.
 */
bool was_mounted(int pid);

#endif
