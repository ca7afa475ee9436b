/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The protocol between a watchdog and the next agent, on a socket that is root's. The watchdog
 * sends a hello. The agent sends WATCHDOG_TAKE, and gets each descriptor with its number, then -1
 * as the end. Nothing more follows, because the state says which watchdog is in charge. Another
 * version of this protocol says so in the hello.
 */
#ifndef CGPU_AGENT_HANDOVER_H
#define CGPU_AGENT_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

enum {
	WATCHDOG_TAKE = 'T',
	WATCHDOG_END = 'E'       /* ends without a new agent: tenants' calls fail from then on */
};

struct watchdog_hello {
	char magic[8];
	uint32_t version;
	int32_t pid;
	uint64_t digest;
	int32_t memory;
};

/* The socket's path. */
const char *handover_path(void);
/* Return: a socket for the next agent, -errno. */
int handover_listen(void);
/* Return: the socket of the watchdog before, -ENOENT, -ECONNREFUSED: there is none. */
int handover_call(struct watchdog_hello *hello);
/* Return: false: the other side does not take or give it. */
bool handover_send(int connection, int number, int fd);
/* Return: *number -1: no more, with *fd -1. */
bool handover_receive(int connection, int *number, int *fd);

#endif
