// SPDX-License-Identifier: GPL-2.0-only
/*
 * After a container is killed, the agent looks for each process that has one of its files, wherever
 * it is, and kills it too. The next look finds files that were passed on meanwhile.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tenant/round.h"

enum {
	/* the agent looks for holders of a killed container's files until it finds none */
	HOLDERS_LOOKS = 3,
	HOLDERS_PAUSE_NS = 100000000,
	HOLDERS_PAUSE_MAX_NS = 999999999
};

/* The next of the container's files that may be this one, with a duplicate in `held`. */
static uint32_t find_file(struct container *c, uint32_t number, uint32_t device, uint32_t minor,
			  int *held)
{
	const struct file *file;

	pthread_mutex_lock(&c->files_lock);
	for (; number < FILES_MAX; number++) {
		file = &c->file[number];
		if (file->used && file->device == device && file->minor == minor)
			break;
	}
	*held = number < FILES_MAX && c->file[number].held >= 0 ?
		fcntl(c->file[number].held, F_DUPFD_CLOEXEC, 0) : -1;
	pthread_mutex_unlock(&c->files_lock);
	return number;
}

static bool kill_holder(struct container *c, int pid, int tid, int fd, int device,
			uint32_t minor, void *data)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	uint32_t i = 1, *killed = data;
	bool its = false;
	int held;

	for (; pidfd >= 0 && !its; i++) {
		i = find_file(c, i, (uint32_t)device, minor, &held);
		if (i == FILES_MAX)
			break;
		its = file_is_at(c, i, held, tid, fd);
		if (held >= 0)
			close(held);
	}
	if (its && !syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0))
		++*killed;
	if (pidfd >= 0)
		close(pidfd);
	return false;
}

static void *kill_holders(void *data)
{
	struct container *c = data;
	struct timespec pause = { 0, HOLDERS_PAUSE_NS };
	uint32_t killed, none = 0;

	prctl(PR_SET_NAME, "cgpud-end");
	/* a killed process keeps its files for a moment, and may have passed them on */
	while (door.running && none < HOLDERS_LOOKS) {
		struct round all = { c, kill_holder, &killed, 0, false };

		killed = 0;
		round_everybody(&all);
		none = killed ? 0 : none + 1;
		nanosleep(&pause, NULL);
		/* or a file system of its own keeps it from ending */
		pause.tv_nsec = pause.tv_nsec < HOLDERS_PAUSE_MAX_NS / 2 ?
				2 * pause.tv_nsec : HOLDERS_PAUSE_MAX_NS;
	}
	/* the next agent resumes this search */
	if (!door.running)
		return NULL;
	pthread_mutex_lock(&door.lock);
	c->condemned = c->hunted = false;
	worker_left(c);
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

void holders_kill(struct container *c)
{
	pthread_t thread;

	pthread_mutex_lock(&door.lock);
	if (c->condemned && !c->hunted && !pthread_create(&thread, NULL, kill_holders, c)) {
		pthread_detach(thread);
		c->hunted = true;
	}
	pthread_mutex_unlock(&door.lock);
}
