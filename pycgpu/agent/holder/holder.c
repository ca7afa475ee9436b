// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lists what each process of a container holds of a card, for `meminfo` and `procs`. Any process
 * may read those as often as it likes, and gates wait for door.lock. So the lock is released after
 * each step, and names are asked for without it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "card/card.h"
#include "holder/holder.h"
#include "tenant/tenant.h"

enum { HOLDERS_MAX = 4096 };

/* Room for another step. Return: false: no memory. */
static bool make_step(struct cgpu_process **processes, uint32_t *count, uint32_t *room)
{
	struct cgpu_process *larger;
	uint32_t wanted = *room ? 2 * *room : 2 * CGPU_HELD_STEP;

	if (*count + CGPU_HELD_STEP > *room)
		*count = cgpu_processes_sum(*processes, *count);
	if (*count + CGPU_HELD_STEP <= *room)
		return true;
	larger = realloc(*processes, wanted * sizeof(*larger));
	if (!larger)
		return false;
	*processes = larger;
	*room = wanted;
	return true;
}

/* Return: an array sorted by pid; the caller calls free(). */
static struct cgpu_process *processes_of(const char *id, uint32_t minor, uint32_t *count)
{
	struct cgpu_process *processes = NULL;
	struct container *c;
	uint32_t room = 0, from = 0;

	*count = 0;
	do {
		if (!make_step(&processes, count, &room))
			break;
		pthread_mutex_lock(&door.lock);
		c = find_container(id);
		if (c)
			*count += cgpu_tenant_held(&c->tenant, minor, &from, processes + *count);
		else
			from = 0;
		pthread_mutex_unlock(&door.lock);
	} while (from);
	*count = cgpu_processes_sum(processes, *count);
	return processes;
}

static void read_status(struct cgpu_holder *holder)
{
	char path[64], line[128], *last;
	FILE *file;
	int pid;

	snprintf(path, sizeof(path), "/proc/%u/status", holder->pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		sscanf(line, "Name: %15[^\n]", holder->comm);
		/* the number in the innermost namespace stands last */
		last = strncmp(line, "NSpid:", 6) ? NULL : strrchr(line, '\t');
		if (last && sscanf(last, "%d", &pid) == 1)
			holder->container_pid = (uint32_t)pid;
	}
	if (file)
		fclose(file);
}

static void find_names(const char *id, struct cgpu_holder *holders, uint32_t count)
{
	struct container *c;
	uint32_t i;

	pthread_rwlock_rdlock(&door.life);
	pthread_mutex_lock(&door.lock);
	c = find_container(id);
	pthread_mutex_unlock(&door.lock);
	for (i = 0; c && i < count; i++) {
		read_status(&holders[i]);
		/*
		 * asked last: if the number is another process's by now, that process must not be
		 * shown
		 */
		if (process_lives(c, (int)holders[i].pid))
			continue;
		holders[i].container_pid = 0;
		memset(holders[i].comm, 0, sizeof(holders[i].comm));
	}
	pthread_rwlock_unlock(&door.life);
}

struct cgpu_holder *holders_of(const char *id, uint32_t minor, uint32_t *count)
{
	struct cgpu_process *processes = processes_of(id, minor, count);
	struct cgpu_holder *holders;
	uint32_t i;

	if (*count > HOLDERS_MAX)
		*count = HOLDERS_MAX;
	holders = calloc(*count + 1, sizeof(*holders));
	for (i = 0; holders && i < *count; i++)
		holders[i] = (struct cgpu_holder){ .pid = processes[i].pid,
						   .bytes = processes[i].bytes };
	free(processes);
	if (holders)
		find_names(id, holders, *count);
	return holders;
}
