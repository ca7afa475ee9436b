// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two pieces of memory without a device, which the kernel maps: a header with the place
 * up to which the driver has written, and the ring of records. An event buffer over
 * both is bound to the card's context switches, for the processes of all users, and
 * keeps the newest records. The driver writes them when it is told to flush, or by
 * itself up to 33 ms late. core/sched/switch_log reads the ring; the registry knows
 * which container a record's process belongs to.
 */
#include <linux/ktime.h>
#include <linux/printk.h>

#include "registry.h"
#include "core/rm/abi.h"
#include "core/rm/decode.h"
#include "switch_log.h"

enum { FIRST_HANDLE = 0xc6700010 };

/* Return: NVIDIA's status. */
static u32 map_memory(const struct cgpu_bridge_ops *bridge, struct cgpu_rm_card *card,
		      u32 handle, u64 size, const void **address)
{
	struct nv_memory_alloc params = {
		.attr = (u32)NVOS32_ATTR_COHERENCY_WRITE_BACK << NVOS32_ATTR_COHERENCY_SHIFT,
		.size = size,
	};
	void *at = NULL;
	u32 status;

	status = bridge->alloc(card, card->hClient, &handle, NV01_MEMORY_DEVICELESS, &params,
			       sizeof(params));
	if (!status)
		status = bridge->map(card, handle, size, &at);
	*address = at;
	return status;
}

static u32 bind(const struct cgpu_bridge_ops *bridge, struct cgpu_rm_card *card, u32 buffer,
		struct cgpu_switch_log_request *request)
{
	u32 status;

	status = bridge->control(card, card->hClient, card->hSubdevice,
				 NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, &request->bind,
				 sizeof(request->bind));
	if (!status)
		status = bridge->control(card, card->hClient, buffer,
					 NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS, &request->enable,
					 sizeof(request->enable));
	return status;
}

void cgpu_card_log_open(struct cgpu_card_log *log, const struct cgpu_bridge_ops *bridge,
			struct cgpu_rm_card *card, u32 minor)
{
	struct cgpu_switch_log_request request;
	u32 buffer = FIRST_HANDLE + 2, status;

	cgpu_switch_log_request(card->hSubdevice, FIRST_HANDLE, FIRST_HANDLE + 1, buffer,
				&request);
	cgpu_switch_log_init(&log->log);
	status = map_memory(bridge, card, FIRST_HANDLE, CGPU_SWITCH_LOG_HEADER_BYTES, &log->header);
	if (!status)
		status = map_memory(bridge, card, FIRST_HANDLE + 1, CGPU_SWITCH_LOG_RING_BYTES,
				    &log->ring);
	if (!status)
		status = bridge->alloc(card, card->hClient, &buffer, NV_EVENT_BUFFER,
				       &request.buffer, sizeof(request.buffer));
	if (!status)
		status = bind(bridge, card, buffer, &request);
	if (status)
		pr_info("cgpu: card %u: the driver keeps no log of context switches (0x%x): used_ns stays 0\n",
			minor, status);
	else
		smp_store_release(&log->buffer, buffer); /* readers of totals look at it */
}

/* Context: registry.lock. */
static void note_use(struct cgpu_card_log *log, struct cgpu_sched *sched, u32 minor,
		     const struct cgpu_switch_log_use *use)
{
	struct cgpu_container *container;
	u64 charged = 0;
	u32 slot;
	bool found;

	list_for_each_entry(container, &cgpu_registry->containers, node) {
		if (!container->grant[minor].present)
			continue;
		rt_mutex_lock(&container->lock);
		found = cgpu_tenant_has_process(&container->tenant, use->pid);
		rt_mutex_unlock(&container->lock);
		slot = container->grant[minor].entity;
		/* a group's account is one */
		if (!found || charged >> slot & 1)
			continue;
		charged |= 1ull << slot;
		cgpu_switch_log_used(&log->log, sched, slot, use);
	}
	if (!charged)
		cgpu_switch_log_used(&log->log, sched, CGPU_SCHED_NONE, use);
}

void cgpu_card_log_read(struct cgpu_card_log *log, struct cgpu_sched *sched, u32 minor,
			u64 asked_ns)
{
	struct cgpu_switch_log_batch batch = { .use = log->use };
	const struct cgpu_switch_log_use *use;

	while ((use = cgpu_switch_log_next(&log->log, log->header, log->ring, asked_ns, &batch)))
		note_use(log, sched, minor, use);
}
