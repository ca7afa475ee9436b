// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds which of a container's processes, files and managed memory are gone. A file that an epoll
 * instance watches is gone when it says so. A file that the agent holds is in use only while
 * another process has it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "gate/gate.h"
#include "tenant/round.h"

/* a million descriptors take five seconds and more to look at */
#define CALL_PATIENCE_NS 500000000ULL
#define OWN_PATIENCE_NS 10000000000ULL

/* A file that was not found where it was seen last. */
struct lost {
	uint32_t number, seen;
	int held;
	bool found;
};

/* All files of a container, by the kernel's order. */
struct search {
	struct lost lost[FILES_MAX];
	uint32_t count, left;
};

static int in_order(const void *a, const void *b)
{
	int self = getpid();
	long order = syscall(SYS_kcmp, self, self, KCMP_FILE, ((const struct lost *)a)->held,
			     ((const struct lost *)b)->held);

	return order == 1 ? -1 : order != 0;
}

static struct lost *find_lost(struct search *search, int tid, int fd)
{
	uint32_t low = 0, high = search->count;
	int self = getpid();

	while (low < high) {
		uint32_t middle = (low + high) / 2;
		long order = syscall(SYS_kcmp, tid, self, KCMP_FILE, fd,
				     search->lost[middle].held);

		if (!order)
			return &search->lost[middle];
		/* -1: it is gone meanwhile */
		if (order < 0)
			return NULL;
		if (order == 1)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

static bool holds(struct container *c, int pid, int tid, int fd, int device, uint32_t minor,
		  void *data)
{
	struct search *search = data;
	struct lost *lost;

	(void)minor;
	lost = device == CGPU_DEVICE_UVM ? find_lost(search, tid, fd) : NULL;
	if (!lost)
		return false;
	/* a process's number means its first thread's table */
	if (tid == pid && process_exists(c, pid)) {
		pthread_mutex_lock(&c->files_lock);
		c->file[lost->number].process = process_add(c, pid);
		c->file[lost->number].fd = fd;
		pthread_mutex_unlock(&c->files_lock);
	}
	search->left -= !lost->found;
	lost->found = true;
	return !search->left;
}

/* Context: look_lock. */
static void forget(struct container *c, uint32_t number, uint32_t seen)
{
	if (!managed_withdraw(c, number))
		return;
	pthread_mutex_lock(&c->files_lock);
	/* a file that came to another process meanwhile is no longer gone */
	if (c->file[number].seen == seen && !c->file[number].users)
		file_gone(c, number);
	pthread_mutex_unlock(&c->files_lock);
}

/*
 * Lists held files that are no longer where they were seen last. Forgets a file whose address space
 * cannot be seen. Context: look_lock.
 */
static void list_lost(struct container *c, struct search *search)
{
	uint32_t i;

	for (i = 1; i < FILES_MAX; i++) {
		struct file *file = &c->file[i];
		struct lost lost = { .number = i };
		int pid, fd;
		bool skip, blind;

		if (!file->used || file->held < 0)
			continue;
		blind = managed_is_blind(c, i);
		pthread_mutex_lock(&c->files_lock);
		skip = !file->used || file->held < 0 || file->users;
		lost.seen = file->seen;
		lost.held = file->held;
		pid = file->process && file->process->pidfd >= 0 ? file->process->pid : 0;
		fd = file->fd;
		pthread_mutex_unlock(&c->files_lock);
		if (!skip && blind)
			forget(c, i, lost.seen);
		else if (!skip && !(pid && file_is_at(c, i, lost.held, pid, fd)))
			search->lost[search->count++] = lost;
	}
	search->left = search->count;
	qsort(search->lost, search->count, sizeof(search->lost[0]), in_order);
}

/* Context: files_lock. */
static void sweep_watched(struct container *c)
{
	static __thread uint8_t alive[FILES_MAX];
	char path[64], line[256];
	uint32_t i;
	FILE *info;
	bool read;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", c->epoll);
	info = fopen(path, "re");
	if (!info)
		return;
	memset(alive, 0, sizeof(alive));
	while (fgets(line, sizeof(line), info)) {
		unsigned tfd, events;
		unsigned long long data;

		if (sscanf(line, "tfd: %u events: %x data: %llx", &tfd, &events, &data) == 3 &&
		    data < FILES_MAX)
			alive[data] = 1;
	}
	read = !ferror(info);
	fclose(info);
	for (i = 1; read && i < FILES_MAX; i++)
		if (c->file[i].used && c->file[i].held < 0 && !alive[i])
			file_gone(c, i);
}

/*
 * A file that a child inherited or a process was sent is found by a look at all descriptors. One
 * look serves all such files, and its time is bounded, because a process may have millions. If the
 * container's own thread looks, a file not found in that time counts as gone. Context: look_lock.
 */
static void sweep_held(struct container *c, uint64_t patience_ns, bool own)
{
	struct search *search = calloc(1, sizeof(*search));
	struct round all = { c, holds, search, now_ns() + patience_ns, false };
	bool looked;
	uint32_t i;

	if (!search)
		return;
	list_lost(c, search);
	looked = search->count && !round_own(&all) && !round_everybody(&all);
	looked |= all.ran_out && own;
	for (i = 0; looked && i < search->count; i++) {
		const struct lost *lost = &search->lost[i];

		if (!lost->found)
			forget(c, lost->number, lost->seen);
	}
	free(search);
}

static bool take_in_time(pthread_mutex_t *lock, uint64_t patience_ns)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)(((uint64_t)until.tv_nsec + patience_ns) / 1000000000);
	until.tv_nsec = (long)(((uint64_t)until.tv_nsec + patience_ns) % 1000000000);
	return !pthread_mutex_timedlock(lock, &until);
}

/* `own`: called by the container's own thread, for which no call waits. */
static void sweep(struct container *c, bool managed, bool own)
{
	uint64_t patience_ns = own ? OWN_PATIENCE_NS : CALL_PATIENCE_NS;
	const char *why = NULL;

	/* the older of two looks at what is mapped must not replace the newer */
	pthread_mutex_lock(&c->sweep_lock);
	pthread_mutex_lock(&c->files_lock);
	processes_reap(c);
	sweep_watched(c);
	c->dirty = false;
	pthread_mutex_unlock(&c->files_lock);
	c->swept_ns = now_ns();
	if (managed) {
		c->managed_ns = c->swept_ns;
		why = managed_sweep(c);
	}
	pthread_mutex_unlock(&c->sweep_lock);
	if (why)
		processes_kill(c, why);
	if (take_in_time(&c->look_lock, patience_ns)) {
		sweep_held(c, patience_ns, own);
		pthread_mutex_unlock(&c->look_lock);
	}
	pthread_mutex_lock(&door.lock);
	door.count.sweeps++;
	refresh(c);
	pthread_mutex_unlock(&door.lock);
	userd_release(c);
}

void files_sweep(struct container *c, bool managed)
{
	sweep(c, managed, true);
}

void files_sweep_for_call(struct container *c, bool managed)
{
	sweep(c, managed, false);
}
