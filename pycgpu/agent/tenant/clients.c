// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which processes may own a container's clients. The driver knows a client by the process that
 * allocated it, and its log of context switches names the work by that number. The tenant performs
 * the allocation, so the agent hears of a client at its first use, by any process. So the agent
 * notes the number of a process that asks for a client, with the file it asked through. While that
 * file is open the client may live, even when its process has ended and another has the number.
 *
 * The driver may have seen another file, put in that one's place meanwhile. So no number is ever
 * quite forgotten: work under a number that no other container has belongs to its former owner.
 */
#include "tenant/tenant.h"

enum {
	PID_END = 1 << 22, /* PID_MAX_LIMIT of the kernel's linux/threads.h */
	WORD_BITS = 64,
	NOTES_MAX = 4096   /* processes by file; each has a file of its own, and some two */
};

struct note {
	uint32_t pid;
	uint32_t file;
};

/* 1 MiB, of which only the pages that hold noted numbers are touched. */
struct clients {
	uint64_t has[PID_END / WORD_BITS]; /* the numbers in `note` */
	uint64_t had[PID_END / WORD_BITS]; /* every number that was ever noted */
	struct note note[NOTES_MAX];
	uint32_t count;
};

static bool is_in(const uint64_t *numbers, uint32_t pid)
{
	return pid < PID_END && numbers[pid / WORD_BITS] >> pid % WORD_BITS & 1;
}

static void put(uint64_t *numbers, uint32_t pid)
{
	numbers[pid / WORD_BITS] |= 1ULL << pid % WORD_BITS;
}

/* Context: door.lock. */
static bool note(struct container *c, uint32_t file, uint32_t pid)
{
	struct clients *clients = c->clients;
	uint32_t i;

	for (i = 0; i < clients->count; i++)
		if (clients->note[i].pid == pid && clients->note[i].file == file)
			return true;
	if (i == NOTES_MAX || pid >= PID_END)
		return false;
	put(clients->has, pid);
	put(clients->had, pid);
	clients->note[clients->count] = (struct note){ pid, file };
	clients->count++;
	return true;
}

bool clients_note(struct container *c, uint32_t file, uint32_t pid)
{
	bool noted;

	pthread_mutex_lock(&door.lock);
	if (!c->clients)
		c->clients = arena_alloc(sizeof(*c->clients));
	noted = c->clients && note(c, file, pid);
	pthread_mutex_unlock(&door.lock);
	return noted;
}

void clients_forget(struct container *c, uint32_t file)
{
	struct clients *clients = c->clients;
	uint32_t kept = 0, i;

	if (!clients)
		return;
	for (i = 0; i < clients->count; i++)
		if (clients->note[i].file == file)
			clients->has[clients->note[i].pid / WORD_BITS] = 0;
		else
			clients->note[kept++] = clients->note[i];
	clients->count = kept;
	/* the words of the remaining notes */
	for (i = 0; i < kept; i++)
		put(clients->has, clients->note[i].pid);
}

bool clients_has(const struct container *c, uint32_t pid)
{
	return (c->clients && is_in(c->clients->has, pid)) ||
	       cgpu_tenant_has_process(&c->tenant, pid);
}

bool clients_had(const struct container *c, uint32_t pid)
{
	return c->clients && is_in(c->clients->had, pid);
}

uint32_t clients_maker(struct container *c, uint32_t file)
{
	uint32_t pid = 0, i;

	pthread_mutex_lock(&door.lock);
	for (i = 0; c->clients && i < c->clients->count; i++) {
		if (c->clients->note[i].file != file)
			continue;
		if (pid) {
			pid = 0;
			break;
		}
		pid = c->clients->note[i].pid;
	}
	pthread_mutex_unlock(&door.lock);
	return pid;
}

void clients_end(struct container *c)
{
	struct clients *clients = c->clients;

	c->clients = NULL;
	arena_free(clients);
}

uint64_t clients_fold(uint64_t digest)
{
	return state_fold(digest, sizeof(struct clients));
}
