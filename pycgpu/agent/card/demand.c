// SPDX-License-Identifier: GPL-2.0-only
/*
 * Looks at GP_GET and GP_PUT of a tenant's compute channels, so that the core can tell which
 * tenants have work. userd.c says where they can be read; the core, when. One thread a card.
 *
 * The tenant may write both words. A container with a compute channel that cannot be read counts as
 * always working.
 */
#include <sched.h>
#include <sys/prctl.h>

#include "core/memory/userd.h"
#include "card/card.h"
#include "tenant/tenant.h"

enum {
	PRIORITY = 10
};

static struct {
	bool started;
	pthread_t thread;
	pthread_cond_t sooner;
	struct cgpu_demand demand;
	uint64_t planned_ns;
} card[CGPU_MAX_CARDS];

/* A container without channels to look at; its group may have others. Context: door.lock. */
static bool computes_nothing(const struct container *c, uint32_t minor)
{
	return c->tenant.role != CGPU_ROLE_ALONE && !c->channels[minor];
}

/* All channels under the slot can be read, and there are some. Context: door.lock. */
static bool is_complete(uint32_t minor, uint32_t slot)
{
	bool some = false;
	int k;

	for (k = 0; (k = next_in_slot(minor, slot, k)) < CONTAINERS_MAX; k++) {
		if (computes_nothing(door.container[k], minor))
			continue;
		if (!userd_complete(door.container[k], minor))
			return false;
		some = true;
	}
	return some;
}

/* Return: true: the container has work. Context: door.lock. */
static bool look_at_container(struct container *c, uint32_t minor, uint32_t slot)
{
	struct cgpu_demand *demand = &card[minor].demand;
	struct cgpu_demand_channel *channel;
	const volatile uint64_t *words;
	uint64_t both;
	uint32_t i;

	for (i = 0; (i = userd_next(c, minor, i, &words, &channel)) != CGPU_USERD_NONE; i++) {
		if (!cgpu_demand_wants(demand, slot, channel))
			continue;
		/* over the bus, so both at once: GP_PUT is behind GP_GET */
		both = *words;
		door.count.look_reads++;
		if (cgpu_demand_sample(demand, slot, channel, (uint32_t)both,
				       (uint32_t)(both >> 32)))
			return true;
	}
	return false;
}

/* Context: door.lock. */
static void look_at(uint32_t minor, uint32_t slot)
{
	int k;

	if (!is_complete(minor, slot))
		return;
	for (k = 0; (k = next_in_slot(minor, slot, k)) < CONTAINERS_MAX; k++)
		if (!computes_nothing(door.container[k], minor) &&
		    look_at_container(door.container[k], minor, slot))
			return;
}

/* The containers of `mask` that sleep. */
static uint64_t sleepers(const struct cgpu_demand *demand, uint64_t mask)
{
	uint64_t left, asleep = 0;

	for (left = mask; left; left &= left - 1)
		if (demand->slot[__builtin_ctzll(left)].state == CGPU_DEMAND_SLEEPS)
			asleep |= left & -left;
	return asleep;
}

/* Context: door.lock. */
static void look(uint32_t minor, uint64_t mask)
{
	struct cgpu_demand *demand = &card[minor].demand;
	uint64_t start_ns = now_ns(), end_ns, left, before = sleepers(demand, mask), after;

	for (left = mask; left; left &= left - 1)
		look_at(minor, (uint32_t)__builtin_ctzll(left));
	end_ns = now_ns();
	cgpu_demand_judge(demand, &door.sched[minor], mask, start_ns, end_ns);
	after = sleepers(demand, mask);
	door.count.wakes += (uint64_t)__builtin_popcountll(before & ~after);
	door.count.looks++;
	door.count.look_ns += end_ns - start_ns;
	/* only this changes when gates move, and waking the governor costs as much as a look */
	if (before != after || switch_log_is_sooner(minor))
		pthread_cond_broadcast(&door.changed);
}

static void wait_for(uint32_t minor, uint64_t due_ns)
{
	if (due_ns == UINT64_MAX)
		pthread_cond_wait(&card[minor].sooner, &door.lock);
	else
		cond_wait_until(&card[minor].sooner, due_ns);
}

static void *look_on(void *data)
{
	uint32_t minor = (uint32_t)(uintptr_t)data;
	struct sched_param priority = { .sched_priority = PRIORITY };
	uint64_t mask, due_ns;

	prctl(PR_SET_NAME, "cgpud-demand");
	/* as the scheduler's: a wake-up seen late is a gate opened late */
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority))
		prctl(PR_SET_TIMERSLACK, 1000);
	pthread_mutex_lock(&door.lock);
	while (door.running) {
		due_ns = cgpu_demand_due(&card[minor].demand, &door.sched[minor], now_ns(), &mask);
		card[minor].planned_ns = due_ns;
		if (now_ns() < due_ns)
			wait_for(minor, due_ns);
		else
			look(minor, mask);
	}
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

void demand_follow(uint32_t minor)
{
	uint64_t mask;

	if (card[minor].started &&
	    cgpu_demand_due(&card[minor].demand, &door.sched[minor], now_ns(), &mask) <
	    card[minor].planned_ns)
		pthread_cond_signal(&card[minor].sooner);
}

void demand_forget(uint32_t minor, uint32_t slot)
{
	cgpu_demand_forget(&card[minor].demand, slot);
}

void demand_start(uint32_t minor)
{
	cond_init(&card[minor].sooner);
	cgpu_demand_init(&card[minor].demand);
	card[minor].started = !pthread_create(&card[minor].thread, NULL, look_on,
					      (void *)(uintptr_t)minor);
}
