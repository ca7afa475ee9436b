// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which of the driver's files processes have, and which container owns them. A comparison of
 * descriptors waits as long as a process that executes a program likes (process.c). So a child of
 * ours compares, and the agent gives up on it where it waits. A process that is left out so has one
 * thread, has been looked at by then, and makes no call.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "holder/holder.h"
#include "holder/holdings.h"
#include "holder/member.h"
#include "tenant/tenant.h"

enum {
	STALL_MS = 1000,
	OWNER_MS = 3000,
	/* a million descriptors take seconds */
	BEAT = 4096
};

/* One descriptor; fd -1: the look at that process begins or goes on. */
struct record {
	int pid;
	struct held held;
};

/* ----------------------------------------------------------- in the child */

static void tell(int out, const void *what, size_t bytes)
{
	if (write(out, what, bytes) != (ssize_t)bytes)
		_exit(1);
}

static void tell_beat(int out, int pid)
{
	struct record beat = { pid, { 0, -1, 0, 0 } };

	tell(out, &beat, sizeof(beat));
}

/* Return: how many descriptors it told of. */
static uint32_t tell_table(int out, int agent, int pid, int tid, uint32_t room)
{
	struct dirent *link;
	uint32_t told = 0, links = 0, minor;
	char path[64];
	int device;
	DIR *fds;

	tell_beat(out, pid);
	snprintf(path, sizeof(path), "/proc/%d/fd", tid);
	fds = opendir(path);
	while (fds && told < room && (link = readdir(fds))) {
		struct record record = { pid, { tid, 0, 0, 0 } };

		if (++links % BEAT == 0)
			tell_beat(out, pid);
		device = device_behind(tid, atoi(link->d_name), &minor);
		if (device < 0)
			continue;
		if (!told && device_shares_table(agent, tid))
			break;
		record.held.fd = atoi(link->d_name);
		record.held.device = (uint32_t)device;
		record.held.minor = minor;
		tell(out, &record, sizeof(record));
		told++;
	}
	if (fds)
		closedir(fds);
	return told;
}

/* Any thread may have a table of its own, and the first may have ended. */
static void tell_threads(int out, int agent, int pid)
{
	uint32_t told = tell_table(out, agent, pid, pid, HELD_MAX);
	int last = pid, tid;
	struct dirent *entry;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && told < HELD_MAX && (entry = readdir(tasks))) {
		tid = atoi(entry->d_name);
		if (tid <= 0 || tid == pid)
			continue;
		if (!syscall(SYS_kcmp, last, tid, KCMP_FILES, 0, 0))
			continue;
		told += tell_table(out, agent, pid, tid, HELD_MAX - told);
		last = tid;
	}
	if (tasks)
		closedir(tasks);
}

/* The threads above `after`, in the order of their numbers, as /proc has them. */
static void tell_all(int out, int only, int after, int agent)
{
	struct dirent *entry;
	DIR *proc;
	int pid;

	if (only) {
		if (only > after)
			tell_threads(out, agent, only);
		return;
	}
	proc = opendir("/proc");
	while (proc && (entry = readdir(proc))) {
		pid = atoi(entry->d_name);
		if (pid > after && pid != agent && pid != getpid())
			tell_threads(out, agent, pid);
	}
}

/* ------------------------------------------------------------- the parent */

/* The child keeps no descriptor of ours whose close another process waits for. */
static void keep_only(int out)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	syscall(SYS_close_range, 0, out - 1, 0);
	syscall(SYS_close_range, out + 1, ~0U, 0);
}

static void end_child(pid_t child)
{
	kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
}

static void add(struct holdings *one, const struct record *record, holdings_fn seen)
{
	if (record->pid != one->pid) {
		if (one->count)
			seen(one);
		one->pid = record->pid;
		one->count = 0;
	}
	if (record->held.fd >= 0 && one->count < HELD_MAX)
		one->held[one->count++] = record->held;
}

/* Return: the process whose look was given up, 0: all were looked at. */
static int receive(int in, struct holdings *one, holdings_fn seen)
{
	struct pollfd p = { in, POLLIN, 0 };
	struct record records[128];
	int last = 0;
	ssize_t got;
	size_t i;

	while (door.running) {
		if (poll(&p, 1, STALL_MS) != 1)
			return last;
		got = read(in, records, sizeof(records));
		if (got <= 0)
			return 0;
		/* the child's single write arrives as a single read */
		for (i = 0; i < (size_t)got / sizeof(records[0]); i++) {
			last = records[i].pid;
			add(one, &records[i], seen);
		}
	}
	return 0;
}

void holdings_each(int only, holdings_fn seen)
{
	static const struct record none;
	struct holdings one = { 0 };
	int after = 0, ends[2], agent = getpid();
	pid_t child;

	do {
		if (pipe2(ends, O_CLOEXEC))
			return;
		child = fork();
		if (!child) {
			keep_only(ends[1]);
			tell_all(ends[1], only, after, agent);
			_exit(0);
		}
		close(ends[1]);
		after = child > 0 ? receive(ends[0], &one, seen) : 0;
		close(ends[0]);
		if (child > 0)
			end_child(child);
		add(&one, &none, seen);
	} while (after);
}

/* ------------------------------------------------------------------ owners */

/* The containers' processes, listed before the fork: the child may take no lock. */
struct owners {
	uint32_t count;
	struct { int pid, container; } member[MEMBERS_MAX];
};

static void list_members(struct owners *owners)
{
	struct members *members = calloc(1, sizeof(*members));
	uint32_t i;
	int n;

	for (n = 0; members && n < CONTAINERS_MAX; n++) {
		if (!door.container[n])
			continue;
		members_of(door.container[n], members);
		for (i = 0; i < members->count && owners->count < MEMBERS_MAX; i++) {
			owners->member[owners->count].pid = members->pid[i];
			owners->member[owners->count++].container = n;
		}
	}
	free(members);
}

/* In a child. */
static bool is_known_in(struct container *c, const struct held *held)
{
	uint32_t i;

	for (i = 1; i < FILES_MAX; i++)
		if (c->file[i].used && c->file[i].device == held->device &&
		    c->file[i].minor == held->minor &&
		    file_is_at(c, i, c->file[i].held, held->tid, held->fd))
			return true;
	return false;
}

/* In a child. */
static bool is_open_in(int pid, const struct held *held)
{
	struct dirent *link;
	bool its = false;
	uint32_t minor;
	char path[64];
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	while (fds && !its && (link = readdir(fds)))
		its = device_behind(pid, atoi(link->d_name), &minor) == (int)held->device &&
		      minor == held->minor &&
		      !syscall(SYS_kcmp, held->tid, pid, KCMP_FILE, held->fd, atoi(link->d_name));
	if (fds)
		closedir(fds);
	return its;
}

/* In a child. Return: the index of the container that a file is of, -1. */
static int owner_of(const struct held *held, int pid, const struct owners *owners)
{
	uint32_t m;
	int n;

	for (n = 0; n < CONTAINERS_MAX; n++)
		if (door.container[n] && is_known_in(door.container[n], held))
			return n;
	for (m = 0; m < owners->count; m++)
		if (owners->member[m].pid != pid && is_open_in(owners->member[m].pid, held))
			return owners->member[m].container;
	return -1;
}

/* In a child. */
static int find_owner(const struct holdings *holdings, const struct owners *owners, bool alone)
{
	int owner = -1, its;
	uint32_t i;

	for (i = 0; i < holdings->count; i++) {
		its = owner_of(&holdings->held[i], holdings->pid, owners);
		if (its >= 0)
			owner = its;
		else if (alone && holdings->held[i].device == CGPU_DEVICE_CTL)
			return -1;
	}
	return owner;
}

int holdings_owner(const struct holdings *holdings, bool alone)
{
	struct owners *owners = calloc(1, sizeof(*owners));
	int ends[2], owner = -1;
	struct pollfd p = { .events = POLLIN };
	pid_t child;

	if (!owners || pipe2(ends, O_CLOEXEC)) {
		free(owners);
		return -1;
	}
	list_members(owners);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		owner = find_owner(holdings, owners, alone);
		tell(ends[1], &owner, sizeof(owner));
		_exit(0);
	}
	close(ends[1]);
	p.fd = ends[0];
	if (child > 0 && poll(&p, 1, OWNER_MS) == 1 &&
	    read(ends[0], &owner, sizeof(owner)) != sizeof(owner))
		owner = -1;
	close(ends[0]);
	if (child > 0)
		end_child(child);
	free(owners);
	return owner;
}
