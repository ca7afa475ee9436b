// SPDX-License-Identifier: GPL-2.0-only
/*
 * Closes a file that a tenant put in the place of one of the driver's while the agent took that. A
 * process that closes it may wait for as long as the tenant likes, and survive SIGKILL. If a thread
 * of the agent did that, all the agent's descriptors would stay open when the agent ends. So a
 * forked process closes the file; it shares only the descriptors with the agent, which then forgets
 * it.
 *
 * A correct program does not close a descriptor while another of its threads uses it. A container
 * that goes on doing so is killed.
 */
#include <sched.h>
#include <unistd.h>

#include "host/host.h"
#include "tenant/tenant.h"

enum { STRANGERS_MAX = 8 };

static void close_it(const void *fd)
{
	close(*(const int *)fd);
}

void stranger_close(struct container *c, int fd)
{
	/* without a process it stays open, which holds up nothing */
	aside(CLONE_FILES, "cgpud-stranger", close_it, &fd);
	if (__atomic_add_fetch(&c->strangers, 1, __ATOMIC_RELAXED) >= STRANGERS_MAX)
		processes_kill(c, "exchanges descriptors under its calls");
}
