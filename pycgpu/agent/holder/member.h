/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CGPU_AGENT_MEMBER_H
#define CGPU_AGENT_MEMBER_H

#include "state/door.h"

enum { MEMBERS_MAX = 4096 };

struct members {
	uint32_t count;
	int pid[MEMBERS_MAX];
};

/* The container's processes, as they are now. Context: door.life. */
void members_of(struct container *c, struct members *members);
/* Context: door.life. */
void members_kill(struct container *c);
/* Has a process a namespace of that kind other than ours? */
bool has_own(int pid, const char *kind);
/* Are two processes in the same namespace of that kind? */
bool share(int a, int b, const char *kind);

#endif
