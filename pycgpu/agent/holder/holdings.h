/* SPDX-License-Identifier: GPL-2.0-only */
/* The driver's files that processes have, as a child of ours sees them: holdings.c. */
#ifndef CGPU_AGENT_HOLDINGS_H
#define CGPU_AGENT_HOLDINGS_H

#include "state/door.h"

enum { HELD_MAX = 64 };

struct holdings {
	int pid;
	uint32_t count;          /* files beyond HELD_MAX are not looked at */
	struct held {
		int tid, fd;     /* of a thread that has the table of descriptors */
		uint32_t device, minor;
	} held[HELD_MAX];
};

typedef void (*holdings_fn)(const struct holdings *holdings);

/* Calls `seen` for each process that has any; `only`: for that one, 0: all. Context: no lock. */
void holdings_each(int only, holdings_fn seen);
/*
 * The index of the container that owns one of the files: the agent knows the file as one of its, or
 * a process of the container has it open now. `alone`: also, no file by which clients are made
 * belongs to another container. Return: -1: none. Context: door.life, no other lock.
 */
int holdings_owner(const struct holdings *holdings, bool alone);

#endif
