// SPDX-License-Identifier: GPL-2.0-only
/*
 * Looks at GP_GET and GP_PUT of a tenant's compute channels, for the core to tell
 * who has work. They lie in USERD: memory that the channel's allocation names, and
 * that the process has mapped. RM_MAP_MEMORY announces a mapping, the mmap after it
 * says where it is; /proc/PID/mem reads there, for the driver's mappings can be
 * accessed so, as far as enum cgpu_access says. Seen on an H100 and an H200 with
 * 580.159.04: CUDA maps USERD of a context's channels at once, by MAP_FIXED, before it
 * allocates the first.
 *
 * A tenant may unmap it, map something else there, or write both words. Whoever has
 * a compute channel that cannot be read counts as one that always works.
 *
 * A read takes the tenant's mmap_lock, which a tenant can keep busy, so reads have a
 * thread a card. One that does not come back is left behind: another takes its place
 * and the container is not read again.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "core/memory/userd.h"
#include "core/sched/demand.h"
#include "door.h"

enum {
	/* NVOS33_PARAMETERS with its descriptor */
	NVOS33_OFFSET = 16,
	NVOS33_LENGTH = 24,

	ANNOUNCED = 64,
	SILENT_NS = 1000000000, /* after a read that failed */
	STUCK_NS = 50000000,
	PRIORITY = 10
};

struct announced {
	int pid, fd; /* pid 0: none */
	uint32_t hClient, hMemory;
	uint64_t offset, length;
};

/* Of a container; all under door.lock. */
struct userds {
	struct cgpu_userds core;
	struct cgpu_demand_channel demand[CGPU_USERD_CHANNELS];
	struct {
		int pid;
		uint64_t at;
		int mem; /* /proc/PID/mem, 0 before a channel needs it */
	} map[CGPU_USERD_MAPS];
	uint32_t announced_next;
	struct announced announced[ANNOUNCED];
	uint64_t silent_ns; /* not read before then */
};

static struct {
	bool started;
	pthread_t thread;
	pthread_cond_t sooner;
	struct cgpu_demand demand;
	uint64_t planned_ns;
	uint32_t generation;  /* of the thread that looks */
	uint64_t reading_ns;  /* a read began then; 0: none is under way */
	uint32_t reading_slot;
} card[CGPU_MAX_CARDS];

void demand_end(struct container *c)
{
	uint32_t i;

	for (i = 0; c->userds && i < CGPU_USERD_MAPS; i++)
		if (c->userds->map[i].mem)
			close(c->userds->map[i].mem);
	free(c->userds);
	c->userds = NULL;
}

/* -------------------------------------------------- where USERD is mapped */

void demand_announced(struct container *c, int pid, const struct cgpu_request *req,
		      const uint8_t *args)
{
	struct userds *d;

	pthread_mutex_lock(&door.lock);
	if (!c->userds)
		c->userds = calloc(1, sizeof(*c->userds));
	d = c->userds;
	if (d)
		d->announced[d->announced_next++ % ANNOUNCED] = (struct announced){
			.pid = pid, .fd = req->fd,
			.hClient = req->hClient, .hMemory = req->hObject,
			.offset = cgpu_get64(args, NVOS33_OFFSET),
			.length = cgpu_get64(args, NVOS33_LENGTH),
		};
	pthread_mutex_unlock(&door.lock);
}

/* Context: door.lock; the process waits for our answer, so the pid is its own. */
static void attach(struct userds *d, uint32_t map)
{
	char path[64];
	int mem;

	if (d->map[map].mem || !d->core.map[map].channels)
		return;
	snprintf(path, sizeof(path), "/proc/%d/mem", d->map[map].pid);
	mem = open(path, O_RDONLY | O_CLOEXEC);
	if (mem > 0)
		d->map[map].mem = mem;
}

/* Of a mapping, how much can be read. */
static uint64_t readable_bytes(uint32_t device, uint64_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (device != CGPU_DEVICE_GPU || door.abi.access == CGPU_ACCESS_WHOLE)
		return length;
	if (door.abi.access == CGPU_ACCESS_NONE)
		return 0;
	return length < page ? length : page;
}

/* Context: door.lock. */
static void mapped(struct userds *d, const struct announced *a, uint32_t device, uint64_t at,
		   uint64_t length)
{
	uint64_t bytes = readable_bytes(device, a->length < length ? a->length : length);
	uint32_t map = bytes ? cgpu_userd_mapped(&d->core, a->hClient, a->hMemory, a->offset,
						 bytes) : CGPU_USERD_NONE;

	if (map == CGPU_USERD_NONE)
		return;
	if (d->map[map].mem)
		close(d->map[map].mem);
	d->map[map].mem = 0;
	d->map[map].pid = a->pid;
	d->map[map].at = at;
	attach(d, map);
}

/*
 * An mmap of a file of the driver, about to happen. Only at an address that the
 * process chose: another is not known before it has happened.
 */
void demand_mapped(struct container *c, int pid, int fd, uint32_t device, uint64_t at,
		   uint64_t length, int flags)
{
	struct userds *d;
	uint32_t i;

	pthread_mutex_lock(&door.lock);
	d = c->userds;
	for (i = 1; d && i <= ANNOUNCED; i++) {
		struct announced *a = &d->announced[(d->announced_next - i) % ANNOUNCED];

		if (a->pid != pid || a->fd != fd)
			continue;
		if (flags & MAP_FIXED)
			mapped(d, a, device, at, length);
		a->pid = 0;
		break;
	}
	pthread_mutex_unlock(&door.lock);
}

/* Context: door.lock. */
void demand_channel(struct container *c, uint32_t hClient, uint32_t hChannel,
		    const uint8_t *params, uint32_t params_size)
{
	struct userds *d = c->userds;
	uint32_t number = CGPU_USERD_NONE;

	if (d)
		number = cgpu_userd_allocated(&d->core, &c->tenant, hClient, hChannel, params,
					      params_size);
	if (number == CGPU_USERD_NONE)
		return;
	memset(&d->demand[number], 0, sizeof(d->demand[number]));
	if (d->core.channel[number].map != CGPU_USERD_NONE)
		attach(d, d->core.channel[number].map);
}

/* ------------------------------------------------------------------- looks */

/* Context: door.lock. */
static struct container *container_in(uint32_t minor, uint32_t slot)
{
	int k;

	for (k = 0; k < CONTAINERS_MAX; k++) {
		struct container *c = door.container[k];

		if (c && !c->ending && c->grant[minor].present &&
		    c->grant[minor].instance == slot)
			return c;
	}
	return NULL;
}

/* Context: door.lock, released meanwhile. Return: false: it failed. */
static bool read_userd(uint32_t minor, uint32_t slot, int mem, uint64_t at, uint32_t words[2])
{
	ssize_t got;

	if (!mem)
		return false;
	card[minor].reading_ns = now_ns();
	card[minor].reading_slot = slot;
	pthread_mutex_unlock(&door.lock);
	got = pread(mem, words, 2 * sizeof(*words), (off_t)at);
	pthread_mutex_lock(&door.lock);
	return got == 2 * sizeof(*words);
}

/* Context: door.lock, released meanwhile. Return: false: another thread took over. */
static bool look_at(uint32_t minor, uint32_t slot, uint32_t generation)
{
	struct container *c = container_in(minor, slot);
	struct cgpu_demand *demand = &card[minor].demand;
	struct userds *d = c ? c->userds : NULL;
	uint32_t i, map, words[2];
	uint64_t offset;
	bool read;

	if (!d || now_ns() < d->silent_ns || !cgpu_userd_complete(&d->core, &c->tenant, minor))
		return true;
	for (i = 0; (i = cgpu_userd_next(&d->core, &c->tenant, minor, i, &offset)) !=
	     CGPU_USERD_NONE; i++) {
		if (!cgpu_demand_wants(demand, slot, &d->demand[i]))
			continue;
		map = d->core.channel[i].map;
		read = read_userd(minor, slot, d->map[map].mem,
				  d->map[map].at + offset + CGPU_USERD_GP_GET, words);
		if (card[minor].generation != generation)
			return false;
		card[minor].reading_ns = 0;
		door.count.look_reads++;
		if (container_in(minor, slot) != c || c->userds != d)
			return true;
		if (!read) {
			door.count.look_errors++;
			d->silent_ns = now_ns() + SILENT_NS;
			/* what was read of it says nothing without the rest */
			cgpu_demand_forget(demand, slot);
			return true;
		}
		if (cgpu_demand_sample(demand, slot, &d->demand[i], words[0], words[1]))
			return true;
	}
	return true;
}

/* Context: door.lock, released meanwhile. */
static bool look(uint32_t minor, uint64_t mask, uint32_t generation)
{
	struct cgpu_demand *demand = &card[minor].demand;
	uint32_t before[CGPU_SCHED_SLOTS], slot;
	uint64_t start_ns = now_ns(), end_ns, left;
	bool changed = false;

	for (left = mask; left; left &= left - 1) {
		slot = (uint32_t)__builtin_ctzll(left);
		before[slot] = demand->slot[slot].state;
		if (!look_at(minor, slot, generation))
			return false;
	}
	end_ns = now_ns();
	cgpu_demand_judge(demand, &door.sched[minor], mask, start_ns, end_ns);
	for (left = mask; left; left &= left - 1) {
		slot = (uint32_t)__builtin_ctzll(left);
		changed |= demand->slot[slot].state != before[slot];
		door.count.wakes += before[slot] == CGPU_DEMAND_SLEEPS &&
				    demand->slot[slot].state != CGPU_DEMAND_SLEEPS;
	}
	door.count.looks++;
	door.count.look_ns += end_ns - start_ns;
	if (changed)
		pthread_cond_broadcast(&door.changed);
	return true;
}

static void wait_for(uint32_t minor, uint64_t due_ns)
{
	struct timespec at = { (time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000) };

	if (due_ns == UINT64_MAX)
		pthread_cond_wait(&card[minor].sooner, &door.lock);
	else
		pthread_cond_timedwait(&card[minor].sooner, &door.lock, &at);
}

static void *look_on(void *data)
{
	uint32_t minor = (uint32_t)(uintptr_t)data, generation;
	struct sched_param priority = { .sched_priority = PRIORITY };
	uint64_t mask, due_ns;

	prctl(PR_SET_NAME, "cgpud-demand");
	/* as the scheduler's: a wake-up seen late is a gate opened late */
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority))
		prctl(PR_SET_TIMERSLACK, 1000);
	pthread_mutex_lock(&door.lock);
	generation = card[minor].generation;
	while (door.running && card[minor].generation == generation) {
		due_ns = cgpu_demand_due(&card[minor].demand, &door.sched[minor], now_ns(), &mask);
		card[minor].planned_ns = due_ns;
		if (now_ns() < due_ns)
			wait_for(minor, due_ns);
		else if (!look(minor, mask, generation))
			break;
	}
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

static void start_thread(uint32_t minor)
{
	card[minor].started = !pthread_create(&card[minor].thread, NULL, look_on,
					      (void *)(uintptr_t)minor);
}

/* The tenant keeps our read waiting: it is not asked again. */
static void leave_behind(uint32_t minor)
{
	struct container *c = container_in(minor, card[minor].reading_slot);

	card[minor].generation++;
	card[minor].reading_ns = 0;
	door.count.look_errors++;
	cgpu_demand_forget(&card[minor].demand, card[minor].reading_slot);
	if (c && c->userds)
		c->userds->silent_ns = UINT64_MAX;
	pthread_detach(card[minor].thread);
	start_thread(minor);
}

uint64_t demand_follow(uint32_t minor)
{
	uint64_t mask, due_ns, stuck_ns = card[minor].reading_ns + STUCK_NS, now = now_ns();

	if (!card[minor].started)
		return UINT64_MAX;
	if (card[minor].reading_ns && now > stuck_ns)
		leave_behind(minor);
	due_ns = cgpu_demand_due(&card[minor].demand, &door.sched[minor], now, &mask);
	if (due_ns < card[minor].planned_ns)
		pthread_cond_signal(&card[minor].sooner);
	/* only to see that a read comes back */
	return card[minor].reading_ns ? stuck_ns : UINT64_MAX;
}

void demand_forget(uint32_t minor, uint32_t slot)
{
	cgpu_demand_forget(&card[minor].demand, slot);
}

void demand_start(uint32_t minor)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&card[minor].sooner, &monotonic);
	cgpu_demand_init(&card[minor].demand);
	start_thread(minor);
}

void demand_stop(uint32_t minor)
{
	bool stuck;

	pthread_mutex_lock(&door.lock);
	stuck = card[minor].reading_ns && now_ns() > card[minor].reading_ns + STUCK_NS;
	if (card[minor].started)
		pthread_cond_signal(&card[minor].sooner);
	pthread_mutex_unlock(&door.lock);
	if (card[minor].started && !stuck)
		pthread_join(card[minor].thread, NULL);
	card[minor].started = false;
}
