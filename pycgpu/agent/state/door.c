// SPDX-License-Identifier: GPL-2.0-only
/* The agent's knowledge, its locks and its clock. */
#include <time.h>

#include "state/door.h"

struct door door;

/*
 * The threads that move gates have real-time priority, and all others take this lock, too.
 * Otherwise a tenant's call would hold it while it waits for a processor, and tenants keep as many
 * busy as they like.
 */
__attribute__((constructor)) void door_init_locks(void)
{
	pthread_mutexattr_t inherit;

	pthread_mutexattr_init(&inherit);
	pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&door.lock, &inherit);
	pthread_mutexattr_destroy(&inherit);
	cond_init(&door.changed);
	cond_init(&door.leaves);
	pthread_rwlock_init(&door.life, NULL);
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &monotonic);
}

void cond_wait_until(pthread_cond_t *cond, uint64_t until_ns)
{
	struct timespec at = { (time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000) };

	pthread_cond_timedwait(cond, &door.lock, &at);
}

int next_in_slot(uint32_t minor, uint32_t slot, int from)
{
	for (; from < CONTAINERS_MAX; from++) {
		const struct container *c = door.container[from];

		if (c && !c->ending && c->grant[minor].present && c->grant[minor].entity == slot)
			break;
	}
	return from;
}
