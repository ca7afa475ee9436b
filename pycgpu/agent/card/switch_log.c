// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver's log of context switches, read through the agent's own client. It tells what each
 * container used, and which container lets a window pass. If the driver keeps none (a card in
 * confidential computing), `used_ns` stays 0 and idle windows are lost.
 */
#include <stdio.h>
#include <string.h>

#include "card/card.h"
#include "driver/driver.h"
#include "tenant/tenant.h"

enum {
	/* 0xc6700000 and 64 more are the cards' own objects: rm.c */
	FIRST_HANDLE = 0xc6701000,
	HANDLES = 3
};

static struct {
	uint32_t buffer; /* 0: no log */
	const void *header;
	const void *ring;
	struct cgpu_switch_log log;
	uint64_t planned_ns;
} card[CGPU_MAX_CARDS];

static uint32_t memory(uint32_t handle, uint64_t size)
{
	struct nv_memory_alloc params = {
		.attr = (uint32_t)NVOS32_ATTR_COHERENCY_WRITE_BACK << NVOS32_ATTR_COHERENCY_SHIFT,
		.attr2 = NVOS32_ATTR2_PROTECTION_USER_READ_ONLY,
		.size = size,
	};

	return rm_alloc(rm_client(), &handle, NV01_MEMORY_DEVICELESS, &params) ? 0 : handle;
}

static bool bind(uint32_t minor, uint32_t buffer, struct cgpu_switch_log_request *request)
{
	return !rm_control(rm_ctl_fd(), rm_client(), rm_subdevice(minor),
			   NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, &request->bind,
			   sizeof(request->bind)) &&
	       !rm_control(rm_ctl_fd(), rm_client(), buffer,
			   NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS, &request->enable,
			   sizeof(request->enable));
}

void switch_log_open(uint32_t minor)
{
	uint32_t handle = FIRST_HANDLE + HANDLES * minor;
	uint32_t header = memory(handle, CGPU_SWITCH_LOG_HEADER_BYTES);
	uint32_t ring = memory(handle + 1, CGPU_SWITCH_LOG_RING_BYTES);
	uint32_t buffer = handle + 2;
	struct cgpu_switch_log_request request;

	cgpu_switch_log_request(rm_subdevice(minor), header, ring, buffer, &request);
	cgpu_switch_log_init(&card[minor].log);
	if (header && ring) {
		card[minor].header = rm_map(header, CGPU_SWITCH_LOG_HEADER_BYTES);
		card[minor].ring = rm_map(ring, CGPU_SWITCH_LOG_RING_BYTES);
	}
	if (card[minor].header && card[minor].ring &&
	    !rm_alloc(rm_client(), &buffer, NV_EVENT_BUFFER, &request.buffer) &&
	    bind(minor, buffer, &request))
		card[minor].buffer = buffer;
	else
		fprintf(stderr, "cgpu: card %u: the driver keeps no log of context switches: "
			"used_ns stays 0\n", minor);
}

/*
 * Work under a number that several containers may have is charged to all of them: they cannot be
 * told apart. `ever`: no container is known to have the number now, so former owners count.
 * Context: door.lock. Return: was there an owner?
 */
static bool charge(uint32_t minor, const struct cgpu_switch_log_use *use, bool ever)
{
	bool is_anybodys = false;
	uint64_t charged = 0;
	uint32_t slot;
	int k;

	for (k = 0; k < CONTAINERS_MAX; k++) {
		struct container *c = door.container[k];

		/* the number of an ending container may be another's already */
		if (!c || c->ending || !c->grant[minor].present ||
		    !(ever ? clients_had(c, use->pid) : clients_has(c, use->pid)))
			continue;
		is_anybodys = true;
		slot = c->grant[minor].entity;
		/* a group has one account */
		if (charged >> slot & 1)
			continue;
		charged |= 1ULL << slot;
		cgpu_switch_log_used(&card[minor].log, &door.sched[minor], slot, use);
	}
	return is_anybodys;
}

/* Context: door.lock. */
static void note_use(uint32_t minor, const struct cgpu_switch_log_use *use)
{
	if (!charge(minor, use, false) && !charge(minor, use, true))
		cgpu_switch_log_used(&card[minor].log, &door.sched[minor], CGPU_SCHED_NONE, use);
}

/*
 * Return: when the driver was asked: the lock may have to be waited for afterwards.
 * Context: door.lock, released meanwhile.
 */
static uint64_t flush(uint32_t minor)
{
	uint64_t asked_ns = now_ns();

	pthread_mutex_unlock(&door.lock);
	rm_control(rm_ctl_fd(), rm_client(), card[minor].buffer,
		   NV_EVENT_BUFFER_CTRL_CMD_FLUSH, NULL, 0);
	pthread_mutex_lock(&door.lock);
	return asked_ns;
}

/* Context: door.lock. */
static void read_log(uint32_t minor, uint64_t asked_ns)
{
	struct cgpu_switch_log_use room[CGPU_SWITCH_LOG_USES];
	struct cgpu_switch_log_batch batch = { .use = room };
	const struct cgpu_switch_log_use *use;

	while ((use = cgpu_switch_log_next(&card[minor].log, card[minor].header, card[minor].ring,
					   asked_ns, &batch)))
		note_use(minor, use);
}

void switch_log_refresh(uint32_t minor)
{
	pthread_mutex_lock(&door.lock);
	if (card[minor].buffer && now_ns() - card[minor].log.read_ns >= CGPU_SWITCH_LOG_FRESH_NS)
		read_log(minor, flush(minor));
	pthread_mutex_unlock(&door.lock);
}

bool switch_log_is_sooner(uint32_t minor)
{
	return card[minor].buffer &&
	       cgpu_switch_log_due(&card[minor].log, &door.sched[minor], now_ns()) <
		       card[minor].planned_ns;
}

struct cgpu_switch_log *switch_log_of(uint32_t minor)
{
	return card[minor].buffer ? &card[minor].log : NULL;
}

void switch_log_plan(uint32_t minor, uint64_t due_ns)
{
	card[minor].planned_ns = due_ns;
}

void switch_log_read(uint32_t minor)
{
	read_log(minor, flush(minor));
}
