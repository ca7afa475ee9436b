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
	/* without a process it stays open: that holds up nobody */
	aside(CLONE_FILES, "cgpud-stranger", close_it, &fd);
	if (__atomic_add_fetch(&c->strangers, 1, __ATOMIC_RELAXED) >= STRANGERS_MAX)
		processes_kill(c, "exchanges descriptors under its calls");
}
