// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs work in a process of its own that may wait as long as a tenant likes, and survive SIGKILL.
 * No thread waits for that process.
 */
#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/host.h"

/* Raw, since other threads may hold the C library's locks. Return: as fork(). */
static pid_t process(unsigned long shared)
{
	return (pid_t)syscall(SYS_clone, shared | SIGCHLD, NULL, NULL, NULL, NULL);
}

bool aside(unsigned long shared, const char *name, void (*work)(const void *), const void *data)
{
	pid_t between = process(shared);

	if (!between) {
		/* init adopts the inner process once this one has ended */
		if (process(shared))
			_exit(0);
		prctl(PR_SET_NAME, name);
		work(data);
		_exit(0);
	}
	while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR)
		;
	return between > 0;
}
