// SPDX-License-Identifier: GPL-2.0-only
/*
 * The processes of a container that have used the driver, and their descriptors. Each is known by a
 * pidfd, so that its number cannot name another process. A thread is known by its process, unless
 * it has a table of descriptors of its own.
 *
 * The filter also notifies calls on other files, by any process. The agent knows those for the time
 * of the call alone, because a container may have made any number of them.
 *
 * While a process executes a program, the kernel lets no other process compare or copy its
 * descriptors. That lasts while memory is given back and while reads from a file system of the
 * tenant's are under way. So a thread that asks for those descriptors holds no lock.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "tenant/tenant.h"

static long same_table(int a, int b)
{
	return syscall(SYS_kcmp, a, b, KCMP_FILES, 0, 0);
}

/* A thread's number may by now name a process that shares its descriptors alone. */
static bool is_thread_of(const struct process *p, int tid)
{
	return p->pid == tid || (!same_table(p->pid, tid) &&
				 !syscall(SYS_kcmp, p->pid, tid, KCMP_VM, 0, 0));
}

int tgid_of(int tid)
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

/* A zombie is not alive. */
static bool is_alive(const struct process *p)
{
	struct pollfd end = { p->pidfd, POLLIN, 0 };

	return p->pidfd >= 0 && !poll(&end, 1, 0);
}

/* Context: process_lock. */
static struct process *find(struct container *c, int pid)
{
	struct process *p;

	for (p = c->processes; p; p = p->next)
		if (p->pid == pid && is_alive(p))
			return p;
	return NULL;
}

static struct process *open_process(int pid)
{
	int pidfd = state_descriptor((int)syscall(SYS_pidfd_open, pid, 0));
	struct process *p;

	if (pidfd < 0)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p) {
		close(pidfd);
		return NULL;
	}
	p->pid = pid;
	p->pidfd = pidfd;
	return p;
}

/* A process that is not listed, or no longer. */
static void free_process(struct process *p)
{
	/* a number that the state has never names another process */
	if (p->pidfd >= 0)
		close(p->pidfd);
	if (p->listed)
		arena_free(p);
	else
		free(p);
}

/*
 * A listed process is part of the state; all others are known for the time of a call. Takes over
 * `p`, and what it has. Context: process_lock. Return: the listed one, NULL: there are too many.
 */
static struct process *list(struct container *c, struct process *p)
{
	struct process *listed = NULL;

	if (c->process_count < PROCESSES_MAX)
		listed = arena_alloc(sizeof(*listed));
	if (!listed)
		return NULL;
	*listed = *p;
	free(p);
	listed->listed = true;
	listed->next = c->processes;
	c->processes = listed;
	c->process_count++;
	return listed;
}

struct process *process_add(struct container *c, int pid)
{
	struct process *p, *opened;

	pthread_mutex_lock(&c->process_lock);
	p = find(c, pid);
	if (!p) {
		opened = open_process(pid);
		p = opened ? list(c, opened) : NULL;
		if (opened && !p)
			free_process(opened);
	}
	pthread_mutex_unlock(&c->process_lock);
	return p;
}

/* The process that a thread was seen in last; the caller may use it. */
static struct process *recent(struct container *c, int tid)
{
	struct process *p;
	int slot = tid % TIDS;

	pthread_mutex_lock(&c->process_lock);
	p = c->tid[slot].tid == tid ? c->tid[slot].process : NULL;
	if (p && !is_alive(p))
		p = NULL;
	if (p)
		p->users++;
	pthread_mutex_unlock(&c->process_lock);
	return p;
}

/* A listed process that the caller may use, to look for the thread there next. */
static struct process *find_for(struct container *c, int pid, int tid)
{
	struct process *p;
	int slot = tid % TIDS;

	pthread_mutex_lock(&c->process_lock);
	p = find(c, pid);
	if (p) {
		p->users++;
		c->tid[slot].tid = tid;
		c->tid[slot].process = p;
	}
	pthread_mutex_unlock(&c->process_lock);
	return p;
}

struct process *process_of(struct container *c, int tid, bool *thread_table)
{
	struct process *p = recent(c, tid);
	int pid;

	*thread_table = false;
	if (p && is_thread_of(p, tid))
		return p;
	if (p)
		process_put(c, p);
	pid = tgid_of(tid);
	p = pid > 0 ? find_for(c, pid, tid) : NULL;
	if (!p && pid > 0) {
		p = open_process(pid);
		if (p)
			p->users = 1;
	}
	if (p)
		*thread_table = pid != tid && same_table(pid, tid);
	return p;
}

struct process *process_keep(struct container *c, struct process *p, int tid)
{
	struct process *kept = p;

	if (p->listed)
		return p;
	pthread_mutex_lock(&c->process_lock);
	/* another thread of the process was here meanwhile */
	kept = find(c, p->pid);
	if (kept) {
		kept->users++;
		free_process(p);
	} else {
		kept = list(c, p);
	}
	if (kept) {
		c->tid[tid % TIDS].tid = tid;
		c->tid[tid % TIDS].process = kept;
	}
	pthread_mutex_unlock(&c->process_lock);
	return kept;
}

void process_put(struct container *c, struct process *p)
{
	pthread_mutex_lock(&c->process_lock);
	if (!--p->users && !p->listed)
		free_process(p);
	pthread_mutex_unlock(&c->process_lock);
}

/* Does a file still refer to it? Context: files_lock. */
static bool is_referred_to(struct container *c, const struct process *p)
{
	uint32_t i;

	for (i = 1; i < FILES_MAX; i++)
		if (c->file[i].used && (c->file[i].process == p || c->file[i].owner == p))
			return true;
	return false;
}

void processes_reap(struct container *c)
{
	struct process **at, *p;
	uint32_t i;
	int pidfd;

	pthread_mutex_lock(&c->process_lock);
	for (at = &c->processes; (p = *at);) {
		/* calls of the process that are in hand use it */
		if (p->pidfd >= 0 && !p->users && !is_alive(p)) {
			pidfd = p->pidfd;
			p->pidfd = -1;
			close(pidfd);
			for (i = 0; i < TIDS; i++)
				if (c->tid[i].process == p)
					c->tid[i].process = NULL;
			for (i = 1; i < FILES_MAX; i++)
				if (c->file[i].process == p)
					c->file[i].process = NULL;
		}
		if (p->pidfd >= 0 || p->users || is_referred_to(c, p)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		c->process_count--;
		free_process(p);
	}
	pthread_mutex_unlock(&c->process_lock);
}

bool processes_died(struct container *c)
{
	struct process *p;
	bool died = false;

	pthread_mutex_lock(&c->process_lock);
	for (p = c->processes; p && !died; p = p->next)
		died = p->pidfd >= 0 && !is_alive(p);
	pthread_mutex_unlock(&c->process_lock);
	return died;
}

void processes_end(struct container *c)
{
	struct process *p;

	pthread_mutex_lock(&c->process_lock);
	while ((p = c->processes)) {
		c->processes = p->next;
		free_process(p);
	}
	c->process_count = 0;
	memset(c->tid, 0, sizeof(c->tid));
	pthread_mutex_unlock(&c->process_lock);
}

void processes_adopt(struct container *c)
{
	struct process *p;

	c->process_count = 0;
	for (p = c->processes; p; p = p->next) {
		arena_keep(p);
		p->users = 0;
		c->process_count++;
	}
	memset(c->tid, 0, sizeof(c->tid));
}

void process_kill(struct container *c, struct process *p)
{
	pthread_mutex_lock(&c->process_lock);
	if (p->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	pthread_mutex_unlock(&c->process_lock);
}

void processes_kill(struct container *c, const char *why)
{
	struct process *p;

	pthread_mutex_lock(&c->process_lock);
	for (p = c->processes; p; p = p->next)
		if (p->pidfd >= 0 &&
		    !syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0))
			event("killed id=%s pid=%d %s", c->id, p->pid, why);
	pthread_mutex_unlock(&c->process_lock);
	pthread_mutex_lock(&door.lock);
	if (!c->condemned && !c->ending) {
		c->condemned = true;
		c->workers++;
	}
	pthread_mutex_unlock(&door.lock);
}

bool process_lives(struct container *c, int pid)
{
	bool lives;

	pthread_mutex_lock(&c->process_lock);
	lives = find(c, pid);
	pthread_mutex_unlock(&c->process_lock);
	return lives;
}

uint32_t process_numbers(struct container *c, uint32_t *pids)
{
	struct process *p;
	uint32_t count = 0;

	pthread_mutex_lock(&c->process_lock);
	for (p = c->processes; p && count < PROCESSES_MAX; p = p->next)
		if (p->pidfd >= 0)
			pids[count++] = (uint32_t)p->pid;
	pthread_mutex_unlock(&c->process_lock);
	return count;
}

bool process_exists(struct container *c, int pid)
{
	struct process *p;
	bool exists = false;

	pthread_mutex_lock(&c->process_lock);
	for (p = c->processes; p && !exists; p = p->next)
		exists = p->pid == pid && p->pidfd >= 0;
	pthread_mutex_unlock(&c->process_lock);
	return exists;
}
