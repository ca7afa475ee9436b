// SPDX-License-Identifier: GPL-2.0-only
/*
 * The processes of a container, also those without a call that the agent hears of. A container with
 * a cgroup or a pid namespace of its own has the processes in its cgroup. A program on the host has
 * its descendants.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "holder/holder.h"
#include "host/host.h"
#include "holder/member.h"
#include "tenant/tenant.h"

static bool add(struct members *members, int pid)
{
	uint32_t i;

	if (pid <= 0 || members->count == MEMBERS_MAX)
		return false;
	for (i = 0; i < members->count; i++)
		if (members->pid[i] == pid)
			return false;
	members->pid[members->count++] = pid;
	return true;
}

static void add_listed(struct members *members, const char *path)
{
	FILE *file = fopen(path, "re");
	int pid;

	while (file && fscanf(file, "%d", &pid) == 1)
		add(members, pid);
	if (file)
		fclose(file);
}

/* The children of a thread, whichever thread waits for them. */
static void add_children(struct members *members, int pid)
{
	struct dirent *task;
	char path[300];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (task = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/children", pid, task->d_name);
		add_listed(members, path);
	}
	if (tasks)
		closedir(tasks);
}

/* The number of the process behind a pidfd. Return: 0: it has ended. */
static int number_of(int pidfd)
{
	char path[64], line[128];
	int pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	if (file)
		fclose(file);
	return pid > 0 ? pid : 0;
}

/* Return: 0: it has ended. */
static ino_t namespace(int pid, const char *kind)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, kind);
	return stat(path, &st) ? 0 : st.st_ino;
}

bool has_own(int pid, const char *kind)
{
	ino_t its = namespace(pid, kind);

	return its && its != namespace(getpid(), kind);
}

bool share(int a, int b, const char *kind)
{
	ino_t its = namespace(a, kind);

	return its && its == namespace(b, kind);
}

void members_of(struct container *c, struct members *members)
{
	uint32_t pids[PROCESSES_MAX], count = process_numbers(c, pids), i;
	int first = c->watched_pidfd >= 0 ? number_of(c->watched_pidfd) : 0;
	char procs[CGROUP_BYTES + 32];

	members->count = 0;
	for (i = 0; i < count; i++)
		add(members, (int)pids[i]);
	procs[0] = '\0';
	if (c->cgroup[0])
		strcpy(procs, c->cgroup);
	else if (first && has_own(first, "pid"))
		cgroup_of(HIERARCHY_DEVICES, first, procs, CGROUP_BYTES);
	if (procs[0])
		add_listed(members, strcat(procs, "/cgroup.procs"));
	else if (first)
		add(members, first);
	for (i = 0; i < members->count; i++)
		add_children(members, members->pid[i]);
}

static bool has(const struct members *members, int pid)
{
	uint32_t i;

	for (i = 0; i < members->count; i++)
		if (members->pid[i] == pid)
			return true;
	return false;
}

void members_kill(struct container *c)
{
	struct members *members = calloc(1, sizeof(*members)), *still = calloc(1, sizeof(*still));
	int *pidfds = calloc(MEMBERS_MAX, sizeof(*pidfds));
	uint32_t i;

	if (members && still && pidfds) {
		members_of(c, members);
		for (i = 0; i < members->count; i++)
			pidfds[i] = (int)syscall(SYS_pidfd_open, members->pid[i], 0);
		/* a process whose number was another's by then is left out */
		members_of(c, still);
		for (i = 0; i < members->count; i++) {
			if (pidfds[i] < 0)
				continue;
			if (has(still, members->pid[i]))
				syscall(SYS_pidfd_send_signal, pidfds[i], SIGKILL, NULL, 0);
			close(pidfds[i]);
		}
	}
	free(members);
	free(still);
	free(pidfds);
}
