// SPDX-License-Identifier: GPL-2.0-only
/*
 * A file that a tenant put in the place of one of the driver's, while the agent took that. Who
 * closes it may wait for as long as the tenant likes, and survive SIGKILL; a thread of the agent
 * that did would keep all descriptors of the agent open when that ends. So a process closes it
 * that shares nothing with the agent but these, and is forgotten.
 *
 * No program closes a descriptor while another of its threads uses it, but by mistake: a container
 * that goes on doing it is killed.
 */
#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "door.h"

enum { STRANGERS_MAX = 8 };

/*
 * Raw, since other threads may hold the C library's locks. Return: as fork(). The child is
 * nobody's to wait for: init has it once the one between has ended.
 */
static pid_t process(void)
{
	return (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
}

void stranger_close(struct container *c, int fd)
{
	pid_t between = process();

	if (!between) {
		if (process())
			_exit(0);
		prctl(PR_SET_NAME, "cgpud-stranger");
		close(fd);
		_exit(0);
	}
	/* without one it stays open: that holds up nobody */
	while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR)
		;
	if (__atomic_add_fetch(&c->strangers, 1, __ATOMIC_RELAXED) >= STRANGERS_MAX)
		processes_kill(c, "exchanges descriptors under its calls");
}
