// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds the processes that have a file of the driver's, by asking every process and thread in
 * /proc. It touches no file that is not the driver's.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "tenant/round.h"

static bool is_late(struct round *r)
{
	r->ran_out |= r->end_ns && now_ns() > r->end_ns;
	return r->ran_out;
}

/* Return: what `found` did last; true: the table could not be read, or not to its end. */
static bool descriptors(struct round *r, int pid, int tid)
{
	struct dirent *link;
	bool enough = false, first = true;
	uint32_t minor;
	char path[64];
	int device, fd;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", tid);
	fds = opendir(path);
	enough = !fds && is_shortage(errno);
	while (fds && !enough && (link = readdir(fds))) {
		if (link->d_name[0] == '.')
			continue;
		fd = atoi(link->d_name);
		device = device_behind(tid, fd, &minor);
		if (device >= 0 && first && device_shares_table(getpid(), tid))
			break;
		first &= device < 0;
		enough = is_late(r) ||
			 (device >= 0 && r->found(r->c, pid, tid, fd, device, minor, r->data));
	}
	if (fds)
		closedir(fds);
	return enough;
}

/*
 * A process's first thread may have ended, and then has no descriptors. Any thread may have made a
 * table of its own. Return: as above.
 */
static bool threads(struct round *r, int pid)
{
	struct dirent *entry;
	bool enough = false;
	int last = 0, tid;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	enough = !tasks && is_shortage(errno);
	while (tasks && !enough && (entry = readdir(tasks))) {
		tid = atoi(entry->d_name);
		enough = is_late(r);
		if (enough || tid <= 0 ||
		    (last && !syscall(SYS_kcmp, last, tid, KCMP_FILES, 0, 0)))
			continue;
		enough = descriptors(r, pid, tid);
		last = tid;
	}
	if (tasks)
		closedir(tasks);
	return enough;
}

bool round_everybody(struct round *r)
{
	int self = getpid(), pid;
	struct dirent *entry;
	bool enough = false;
	DIR *proc;

	proc = opendir("/proc");
	enough = !proc;
	while (proc && !enough && (entry = readdir(proc))) {
		pid = atoi(entry->d_name);
		if (pid > 0 && pid != self)
			enough = threads(r, pid);
	}
	if (proc)
		closedir(proc);
	return enough;
}

bool round_own(struct round *r)
{
	uint32_t pids[PROCESSES_MAX], count = process_numbers(r->c, pids), i;
	bool enough = false;

	for (i = 0; i < count && !enough; i++)
		enough = threads(r, (int)pids[i]);
	return enough;
}
