// SPDX-License-Identifier: GPL-2.0-only
/*
 * USERD of a tenant's channels holds GP_GET and GP_PUT. It lies in memory that the channel's
 * allocation names, and the agent maps that memory for itself. The tenant's client shares it with
 * the agent's, which duplicates it below its own device; then the sharing ends. So a look is one
 * load, over the bus where the memory is the card's. Nothing that the tenant does with its own
 * mapping delays or misleads it.
 *
 * A read of /proc/PID/mem would call the driver's access method of its mappings. That takes some 12
 * us (H100, 580.159.04), reads elsewhere before 570, and follows a null pointer in early 595
 * (NVIDIA/open-gpu-kernel-modules issue 1107).
 *
 * The duplicate keeps the memory, so the memory stays charged as long.
 *
 * A container with a compute channel whose USERD is out of reach counts as always working.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/memory/userd.h"
#include "driver/driver.h"
#include "tenant/tenant.h"

enum {
	/* CUDA 13 has 2 MiB for all channels of a context; the agent keeps nothing larger alive */
	MEMORY_MAX = 4 << 20,
	/* for memory of unknown size: the host is charged with the list of its pages */
	WINDOW = 64 << 10,
	LOOSE_MAX = 64
};

/* The agent's own mapping of one memory. */
struct borrowed {
	uint32_t object, serial; /* the tenant's memory; 0: none */
	uint32_t charge;         /* one reference, 0: none */
	bool of_card;
	uint32_t hDuplicate;
	const uint8_t *at;
	uint64_t offset, length; /* in the memory */
};

/* The mappings of a container; all under door.lock. */
struct userds {
	struct cgpu_userds core;
	struct cgpu_demand_channel demand[CGPU_USERD_CHANNELS];
	struct borrowed map[CGPU_USERD_MAPS];
	/* charges of which a thread holds a reference meanwhile, 0: none */
	uint32_t loose[LOOSE_MAX];
};

/*
 * Replaces one reference that a thread holds by another, or by none. Of 0, none, there are some.
 * Context: a change. Return: false: there is no such place.
 */
static bool change_loose(struct container *c, uint32_t from, uint32_t to)
{
	uint32_t i;

	change_keep(c->userds->loose, sizeof(c->userds->loose));
	for (i = 0; i < LOOSE_MAX; i++)
		if (c->userds->loose[i] == from) {
			c->userds->loose[i] = to;
			return true;
		}
	return false;
}

static void give_back(struct container *c, const struct borrowed *b)
{
	if (b->at)
		munmap((void *)b->at, b->length);
	if (b->hDuplicate)
		rm_free(b->hDuplicate);
	pthread_mutex_lock(&door.lock);
	if (b->charge) {
		change_begin(c, NULL);
		change_loose(c, b->charge, 0);
		cgpu_charge_put(&c->tenant.ledger, b->charge);
		change_end();
	}
	pthread_mutex_unlock(&door.lock);
}

static bool map(struct borrowed *b, uint32_t minor, uint64_t offset, uint64_t length)
{
	char path[32] = "/dev/nvidiactl";

	if (b->of_card)
		snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
	b->offset = offset;
	b->length = length;
	b->at = rm_map_part(rm_device(minor), path, b->hDuplicate, offset, length);
	return b->at;
}

/* *b has what was made, and the caller must give it back. Return: false: not all was made. */
static bool borrow(struct borrowed *b, int fd, const struct cgpu_userd_channel *channel,
		   uint32_t minor, bool below_subdevice, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint32_t status;

	if (rm_share_with_agent(fd, channel->hClient, channel->hMemory, false))
		return false;
	status = rm_duplicate(below_subdevice ? rm_subdevice(minor) : rm_device(minor),
			      channel->hClient, channel->hMemory, &b->hDuplicate);
	if (status)
		b->hDuplicate = 0;
	rm_share_with_agent(fd, channel->hClient, channel->hMemory, true);
	if (status)
		return false;
	if (bytes)
		return map(b, minor, 0, bytes);
	return map(b, minor, channel->offset & ~(uint64_t)(WINDOW - 1), WINDOW) ||
	       map(b, minor, channel->offset & ~(page - 1), page);
}

/* Context: door.lock. */
static bool is_there(const struct container *c, const struct borrowed *b)
{
	const struct cgpu_object *o = cgpu_object_at(&c->tenant.objects, b->object);

	return o->hClient && o->serial == b->serial;
}

/*
 * The memory that the channel is in, and a reference of its charge. Context: door.lock. Return:
 * false: it can be read already, need not be, or cannot be had.
 */
static bool plan(struct container *c, uint32_t number, struct borrowed *b,
		 struct cgpu_userd_channel *channel, uint32_t *minor, bool *below_subdevice,
		 uint64_t *bytes)
{
	const struct cgpu_objects *objects = &c->tenant.objects;
	const struct cgpu_object *o, *memory;
	bool held;

	*channel = c->userds->core.channel[number];
	o = cgpu_object_at(objects, channel->object);
	if (channel->map != CGPU_USERD_NONE || o->card >= CGPU_MAX_CARDS ||
	    !rm_device(o->card) || !cgpu_engine_computes(o->engineType))
		return false;
	*minor = o->card;
	b->object = cgpu_object_find(objects, channel->hClient, channel->hMemory);
	/* by the channel's own handle: it is RM's memory, which cannot be duplicated */
	if (!b->object || b->object == channel->object)
		return false;
	memory = cgpu_object_at(objects, b->object);
	b->serial = memory->serial;
	*below_subdevice = memory->parent &&
			   cgpu_object_at(objects, memory->parent)->hClass == NV20_SUBDEVICE_0;
	b->of_card = memory->hClass == NV01_MEMORY_LOCAL_USER && memory->charge;
	*bytes = b->of_card ? cgpu_charge_at(&c->tenant.ledger, memory->charge)->bytes : 0;
	if (*bytes > MEMORY_MAX)
		return false;
	b->charge = memory->charge;
	if (!b->charge)
		return true;
	change_begin(c, NULL);
	held = change_loose(c, 0, b->charge);
	if (held)
		cgpu_charge_get(&c->tenant.ledger, b->charge);
	change_end();
	return held;
}

/* Maps the channel's USERD. Context: door.lock, released meanwhile. */
static void borrow_for(struct container *c, int fd, uint32_t number)
{
	struct borrowed b = { 0 }, old = { 0 };
	struct cgpu_userd_channel channel;
	uint32_t minor, at = CGPU_USERD_NONE;
	bool below_subdevice, had;
	uint64_t bytes;

	if (!plan(c, number, &b, &channel, &minor, &below_subdevice, &bytes))
		return;
	pthread_mutex_unlock(&door.lock);
	had = borrow(&b, fd, &channel, minor, below_subdevice, bytes);
	pthread_mutex_lock(&door.lock);
	/* the handle may name another memory by now, and that may have been duplicated */
	if (had && is_there(c, &b))
		at = cgpu_userd_mapped(&c->userds->core, channel.hClient, channel.hMemory,
				       b.offset, b.length);
	if (at != CGPU_USERD_NONE) {
		change_begin(c, NULL);
		change_keep(&c->userds->map[at], sizeof(old));
		old = c->userds->map[at];
		c->userds->map[at] = b;
		change_loose(c, b.charge, old.charge);
		change_end();
	}
	door.count.userd_maps += at != CGPU_USERD_NONE;
	door.count.userd_errors += !had;
	pthread_mutex_unlock(&door.lock);
	if (at == CGPU_USERD_NONE)
		give_back(c, &b);
	else if (old.object)
		give_back(c, &old);
	pthread_mutex_lock(&door.lock);
}

void userd_allocated(struct container *c, int fd, uint32_t hClient, uint32_t hChannel,
		     const uint8_t *params, uint32_t params_size)
{
	uint32_t number = CGPU_USERD_NONE;

	pthread_mutex_lock(&door.lock);
	if (!c->userds)
		c->userds = arena_alloc(sizeof(*c->userds));
	if (c->userds)
		number = cgpu_userd_allocated(&door.abi, &c->userds->core, &c->tenant, hClient,
					      hChannel, params, params_size);
	if (number != CGPU_USERD_NONE) {
		memset(&c->userds->demand[number], 0, sizeof(c->userds->demand[number]));
		borrow_for(c, fd, number);
	}
	pthread_mutex_unlock(&door.lock);
}

/* Context: door.lock. */
static void drop(struct container *c, uint32_t *charge)
{
	if (!*charge)
		return;
	change_begin(c, NULL);
	change_keep(charge, sizeof(*charge));
	cgpu_charge_put(&c->tenant.ledger, *charge);
	*charge = 0;
	change_end();
}

void userd_adopt(struct container *c)
{
	struct userds *d = c->userds;
	uint32_t i;

	if (!d)
		return;
	pthread_mutex_lock(&door.lock);
	for (i = 0; i < CGPU_USERD_MAPS; i++) {
		drop(c, &d->map[i].charge);
		memset(&d->map[i], 0, sizeof(d->map[i]));
		memset(&d->core.map[i], 0, sizeof(d->core.map[i]));
	}
	for (i = 0; i < LOOSE_MAX; i++)
		drop(c, &d->loose[i]);
	for (i = 0; i < CGPU_USERD_CHANNELS; i++)
		d->core.channel[i].map = CGPU_USERD_NONE;
	memset(d->demand, 0, sizeof(d->demand));
	pthread_mutex_unlock(&door.lock);
}

void userd_borrow_again(struct container *c)
{
	uint32_t number, client, file = 0;
	int fd;

	pthread_mutex_lock(&door.lock);
	for (number = 0; c->userds && number < CGPU_USERD_CHANNELS && !c->ending; number++) {
		const struct cgpu_userd_channel *channel = &c->userds->core.channel[number];

		if (!channel->object || channel->map != CGPU_USERD_NONE)
			continue;
		client = cgpu_object_find(&c->tenant.objects, channel->hClient, channel->hClient);
		file = client ? cgpu_object_at(&c->tenant.objects, client)->file : 0;
		pthread_mutex_unlock(&door.lock);
		c->asking_ns = now_ns();
		fd = file ? file_duplicate(c, file) : -1;
		c->asking_ns = 0;
		pthread_mutex_lock(&door.lock);
		cgpu_userd_forget_freed(&c->userds->core, &c->tenant);
		if (fd >= 0 && c->userds->core.channel[number].object)
			borrow_for(c, fd, number);
		if (fd >= 0)
			close(fd);
	}
	pthread_mutex_unlock(&door.lock);
}

/* Context: door.lock. Return: the number of a mapping that no channel needs, CGPU_USERD_NONE. */
static uint32_t find_unneeded(const struct container *c)
{
	uint32_t i;

	for (i = 0; i < CGPU_USERD_MAPS; i++) {
		const struct borrowed *b = &c->userds->map[i];

		if (b->object && (!is_there(c, b) || !c->userds->core.map[i].channels))
			return i;
	}
	return CGPU_USERD_NONE;
}

void userd_release(struct container *c)
{
	struct borrowed b;
	uint32_t number;
	bool held;

	pthread_mutex_lock(&door.lock);
	while (c->userds) {
		cgpu_userd_forget_freed(&c->userds->core, &c->tenant);
		number = find_unneeded(c);
		if (number == CGPU_USERD_NONE)
			break;
		change_begin(c, NULL);
		change_keep(&c->userds->map[number], sizeof(b));
		b = c->userds->map[number];
		held = !b.charge || change_loose(c, 0, b.charge);
		if (held)
			memset(&c->userds->map[number], 0, sizeof(b));
		change_end();
		/* so many threads do the same: try again at the next look */
		if (!held)
			break;
		cgpu_userd_unmapped(&c->userds->core, number);
		pthread_mutex_unlock(&door.lock);
		give_back(c, &b);
		pthread_mutex_lock(&door.lock);
	}
	pthread_mutex_unlock(&door.lock);
}

void userd_end(struct container *c)
{
	struct userds *d;

	userd_release(c);
	d = c->userds;
	c->userds = NULL;
	arena_free(d);
}

bool userd_complete(struct container *c, uint32_t minor)
{
	return c->userds && cgpu_userd_complete(&c->userds->core, &c->tenant, minor);
}

uint32_t userd_next(const struct container *c, uint32_t minor, uint32_t from,
		    const volatile uint64_t **words, struct cgpu_demand_channel **demand)
{
	struct userds *d = c->userds;
	uint64_t offset;

	from = cgpu_userd_next(&d->core, &c->tenant, minor, from, &offset);
	if (from == CGPU_USERD_NONE)
		return from;
	*words = (const volatile uint64_t *)(d->map[d->core.channel[from].map].at + offset +
					     CGPU_USERD_GP_GET);
	*demand = &d->demand[from];
	return from;
}

uint64_t userd_fold(uint64_t digest)
{
	return state_fold(digest, sizeof(struct userds));
}
