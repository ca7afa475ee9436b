/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel says of a process, and processes beside the agent. */
#ifndef CGPU_AGENT_HOST_H
#define CGPU_AGENT_HOST_H

#include "state/door.h"

/* kernel.c: 0, or -errno, and @message[256] says what it lacks */
int kernel_check(char *message);

/* cgroup.c */
enum hierarchy { HIERARCHY_MEMORY, HIERARCHY_DEVICES };
enum {
	CGROUP_MOUNT_BYTES = 256,
	CGROUP_PATH_BYTES = 4096,
	CGROUP_BYTES = CGROUP_MOUNT_BYTES + CGROUP_PATH_BYTES
};
/* Where it is mounted; empty: nowhere. */
const char *hierarchy_root(enum hierarchy which);
bool hierarchy_is_unified(enum hierarchy which);
/*
 * The directory of a thread's cgroup. Return: 0, -ENOENT: it has ended, or is outside what can
 * be seen here.
 */
int cgroup_of(enum hierarchy which, int tid, char *directory, size_t bytes);

/*
 * memory_limit.c: of the thread's cgroup and those above it, in bytes; 0: none, also where that
 * cannot be seen.
 */
uint64_t memory_limit(int tid);

/*
 * aside.c: does `work` in a process of that name that shares with the agent what clone() is told.
 * Context: no lock. Return: it was begun.
 */
bool aside(unsigned long shared, const char *name, void (*work)(const void *), const void *data);

/*
 * notice.c: tells whoever reads the standard error of a process that is about to be killed. Waits
 * a moment for that to be written. Context: no lock.
 */
void notice(struct container *c, int pid, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
