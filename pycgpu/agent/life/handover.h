/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a watchdog and the next agent say to each other, on a socket that is root's: a hello; then
 * WATCHDOG_TAKE, and each descriptor with its number, -1: all; and nothing more, for the next
 * watchdog is in charge when the state says so. Any other version of this says so in the hello.
 */
#ifndef CGPU_AGENT_HANDOVER_H
#define CGPU_AGENT_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

enum {
	WATCHDOG_TAKE = 'T',
	WATCHDOG_END = 'E'       /* whoever wants no agent: tenants' calls fail from then on */
};

struct watchdog_hello {
	char magic[8];
	uint32_t version;
	int32_t pid;
	uint64_t digest;
	int32_t memory;
};

/* Where both meet. */
const char *handover_path(void);
/* Return: a socket for the next agent, -errno. */
int handover_listen(void);
/* Return: the socket of the one before, -ENOENT, -ECONNREFUSED: there is none. */
int handover_call(struct watchdog_hello *hello);
/* Return: false: the other does not take or give it. */
bool handover_send(int connection, int number, int fd);
/* Return: *number -1: no more, with *fd -1. */
bool handover_receive(int connection, int *number, int *fd);

#endif
