# SPDX-License-Identifier: MIT
"""What is mapped is compared with the ledger in steps: gates wait for the agent's lock."""

from __future__ import annotations

from pathlib import Path

from tests.host.agent_part import MAKE_ROOM, run

#: Of one address space: file 1 with a card, 2 without, 3 with one and MANY ranges of 4 KiB.
PROGRAM = (
    """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int take(pthread_mutex_t *lock);
static int give(pthread_mutex_t *lock);
#define pthread_mutex_lock(lock) take(lock)
#define pthread_mutex_unlock(lock) give(lock)
#include "pycgpu/agent/tenant/managed.c"

enum { MANY = 200000, PAGE = 4096 };

struct door door = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct container *c;
static uint64_t taken_ns, longest_ns;
static struct process owner;

/* busy processors are not counted */
static uint64_t work_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int take(pthread_mutex_t *lock)
{
	int err = (pthread_mutex_lock)(lock);

	if (lock == &door.lock)
		taken_ns = work_ns();
	return err;
}

static int give(pthread_mutex_t *lock)
{
	uint64_t ns = work_ns() - taken_ns;

	if (lock == &door.lock && ns > longest_ns)
		longest_ns = ns;
	return (pthread_mutex_unlock)(lock);
}

uint64_t now_ns(void)
{
	static uint64_t now = 1000000000;

	return now += 1000;
}

"""
    + MAKE_ROOM
    + """
static uint32_t file(uint32_t cards)
{
	uint32_t number;

	make_room(c);
	number = cgpu_tenant_open(&c->tenant, CGPU_DEVICE_UVM, 0, 1);
	cgpu_tenant_file(&c->tenant, number)->gpu_mask = cards;
	c->file[number] = (struct file){ .used = true, .device = CGPU_DEVICE_UVM,
						.owner = &owner, .maps = -1, .mem = -1, .held = -1 };
	return number;
}

static void announce(uint32_t number, uint64_t base, uint64_t length)
{
	make_room(c);
	if (cgpu_tenant_mmap(&c->tenant, number, base, length))
		exit(2);
}

static void tell(const char *what, bool fits)
{
	printf("%s %d:", what, fits);
	printf(" %llu", (unsigned long long)cgpu_tenant_file(&c->tenant, 1)->managed_bytes >> 20);
	printf(" %llu", (unsigned long long)cgpu_tenant_file(&c->tenant, 2)->managed_bytes >> 20);
	printf(" %s\\n", longest_ns < 4000000 ? "short" : "long");
	longest_ns = 0;
}

int main(void)
{
	const uint64_t at = 1ULL << 40, mib = 1 << 20;
	struct look look = { .newest = UINT64_MAX };
	struct spans mapped = { 0 }, many = { 0 };
	uint32_t i;

	c = calloc(1, sizeof(*c));
	cgpu_tenant_init(&c->tenant, 1 << 18, 0);
	c->tenant.files_max = 100;
	c->tenant.ledger.account[0].present = true;
	c->tenant.ledger.account[0].max_bytes = 64ULL << 30;
	file(1);
	file(0);
	file(1);
	look.began_ns = now_ns();
	/* alternating, so that none is a part of another */
	for (i = 0; i < MANY; i++)
		announce(3, at + 2ULL * PAGE * i, PAGE);
	announce(1, 2 * mib, 8 * mib);
	announce(1, 20 * mib, 2 * mib);
	announce(2, 40 * mib, 4 * mib);
	tell("announced", true);
	/* what file 1 announced is mapped in part, and what 2 did; of 3, another's, all */
	add_span(&mapped, 2 * mib, 6 * mib);
	add_span(&mapped, 40 * mib, 44 * mib);
	for (i = 0; i < MANY; i++)
		add_span(&many, at + 2ULL * PAGE * i, at + 2ULL * PAGE * i + PAGE);
	longest_ns = 0;
	tell("first", compare(c, 1, &mapped, &look));
	tell("again", compare(c, 1, &mapped, &look));
	tell("cardless", compare(c, 2, &mapped, &look));
	i = c->tenant.ranges.count;
	tell("many", compare(c, 3, &many, &look));
	printf("added %u\\n", c->tenant.ranges.count - i);
	/* what came after the look began is not taken for gone */
	look.newest = c->tenant.ranges.serial;
	announce(1, 60 * mib, 2 * mib);
	tell("newer", compare(c, 1, &mapped, &look));
	look.newest = UINT64_MAX;
	tell("gone", compare(c, 1, &mapped, &look));
	return 0;
}
"""
)


def test_what_is_mapped_is_compared_in_steps_that_gates_do_not_notice(tmp_path: Path) -> None:
    """Of 230,000 ranges the lock was held for 23 ms."""
    assert run(PROGRAM, tmp_path) == [
        "announced 1: 10 4 short",
        # 4 MiB of its own are left, and file 2's are charged to it, which has the card
        "first 1: 8 4 short",
        "again 1: 8 4 short",
        "cardless 1: 8 4 short",
        "many 1: 8 4 short",
        "added 0",
        "newer 1: 10 4 short",
        "gone 1: 8 4 short",
    ]
