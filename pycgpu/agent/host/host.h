/* SPDX-License-Identifier: GPL-2.0-only */
/* Queries the kernel about a process, and starts processes besides the agent. */
#ifndef CGPU_AGENT_HOST_H
#define CGPU_AGENT_HOST_H

#include "state/door.h"

/* kernel.c: 0, or -errno, and @message[256] says what the kernel lacks */
int kernel_check(char *message);

/* cgroup.c */
enum hierarchy { HIERARCHY_MEMORY, HIERARCHY_DEVICES };
enum {
	CGROUP_MOUNT_BYTES = 256,
	CGROUP_PATH_BYTES = 4096,
	CGROUP_BYTES = CGROUP_MOUNT_BYTES + CGROUP_PATH_BYTES
};
/* Where the hierarchy is mounted; empty: nowhere. */
const char *hierarchy_root(enum hierarchy which);
bool hierarchy_is_unified(enum hierarchy which);
/*
 * The directory of a thread's cgroup. Return: 0, -ENOENT: the thread has ended, or its cgroup is
 * not visible here.
 */
int cgroup_of(enum hierarchy which, int tid, char *directory, size_t bytes);

/*
 * memory_limit.c: the least limit of the thread's cgroup and those above it, in bytes; 0: none,
 * also if it cannot be seen.
 */
uint64_t memory_limit(int tid);

/*
 * aside.c: does `work` in a process of that name that shares with the agent what `shared`, flags of
 * clone(), says. Context: no lock. Return: it was begun.
 */
bool aside(unsigned long shared, const char *name, void (*work)(const void *), const void *data);

/*
 * notice.c: writes to the standard error of a process that is about to be killed. Waits a moment
 * for the writer. Context: no lock.
 */
void notice(struct container *c, int pid, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
