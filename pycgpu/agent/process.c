// SPDX-License-Identifier: GPL-2.0-only
/*
 * The processes of a container that made a call, and their descriptors. Each is known
 * by a pidfd, so that its number cannot be another's; a thread by its process, unless
 * it has a table of descriptors of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "door.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

static long same_table(int a, int b)
{
	return syscall(SYS_kcmp, a, b, KCMP_FILES, 0, 0);
}

static int tgid_of(int tid)
{
	char path[64], line[128];
	int tgid = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Tgid: %d", &tgid) == 1)
			break;
	fclose(file);
	return tgid;
}

struct process *process_add(struct container *c, int pid)
{
	struct process *p;
	int pidfd;

	for (p = c->processes; p; p = p->next)
		if (p->pid == pid && p->pidfd >= 0 &&
		    !syscall(SYS_pidfd_send_signal, p->pidfd, 0, NULL, 0))
			return p;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p) {
		close(pidfd);
		return NULL;
	}
	p->pid = pid;
	p->pidfd = pidfd;
	p->next = c->processes;
	c->processes = p;
	return p;
}

struct process *process_of(struct container *c, int tid, bool *thread_table)
{
	struct process *p;
	int slot = tid % TIDS, pid;

	*thread_table = false;
	pthread_mutex_lock(&c->files_lock);
	p = c->tid[slot].tid == tid ? c->tid[slot].process : NULL;
	if (!p || p->pidfd < 0 || (p->pid != tid && same_table(p->pid, tid))) {
		pid = tgid_of(tid);
		p = pid > 0 ? process_add(c, pid) : NULL;
		if (p) {
			c->tid[slot].tid = tid;
			c->tid[slot].process = p;
			*thread_table = pid != tid && same_table(pid, tid);
		}
	}
	pthread_mutex_unlock(&c->files_lock);
	return p;
}

int duplicate(struct container *c, struct process *p, int tid, bool thread_table, int fd)
{
	int pidfd, got, err;

	if (!thread_table) {
		pthread_mutex_lock(&c->files_lock);
		got = p->pidfd < 0 ? -1 :
		      (int)syscall(SYS_pidfd_getfd, p->pidfd, fd, 0);
		err = p->pidfd < 0 ? ESRCH : errno;
		pthread_mutex_unlock(&c->files_lock);
		return got < 0 ? -err : got;
	}
	/* Linux 6.9 and newer; before, such a thread is refused */
	pidfd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
	if (pidfd < 0)
		return -EPERM;
	got = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	err = errno;
	close(pidfd);
	return got < 0 ? -err : got;
}

void processes_kill(struct container *c, const char *why)
{
	struct process *p;

	pthread_mutex_lock(&c->files_lock);
	for (p = c->processes; p; p = p->next)
		if (p->pidfd >= 0 &&
		    !syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0))
			event("killed id=%s pid=%d %s", c->id, p->pid, why);
	pthread_mutex_unlock(&c->files_lock);
}

bool process_exists(struct container *c, int pid)
{
	struct process *p;

	for (p = c->processes; p; p = p->next)
		if (p->pid == pid && p->pidfd >= 0)
			return true;
	return false;
}
