// SPDX-License-Identifier: GPL-2.0-only
/*
 * Gates are FIFO_DISABLE_CHANNELS through the bridge's client on the card, which may name the
 * channels of any client. Slices are SET_TIMESLICE on the tenant's group.
 *
 * Handles are copied out under container->lock right before a call. The owner may free them in
 * between. The status that the driver then returns is no error: a channel that is gone needs no
 * gate. The card counts how often a channel is shut, so a shut channel is not shut again. The core
 * marks channels, and cgpu_gates.lock, held across the calls, keeps the card in step with the
 * marks.
 */
#include <linux/slab.h>

#include "gate.h"
#include "registry.h"

enum { ENTRIES_MAX = NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES };

void cgpu_gates_adopt(struct cgpu_gates *gates, const struct cgpu_bridge_ops *bridge)
{
	gates->bridge = bridge;
	rt_mutex_init(&gates->rm_lock);
	rt_mutex_init(&gates->lock);
}

int cgpu_gates_open(struct cgpu_gates *gates, const struct cgpu_bridge_ops *bridge, u32 minor,
		    const struct cgpu_gpu *gpu)
{
	cgpu_gates_adopt(gates, bridge);
	gates->minor = minor;
	return bridge->open_card(&gates->rm, gpu->gpu_id, gpu->device_instance);
}

void cgpu_gates_close(struct cgpu_gates *gates)
{
	gates->bridge->close_card(&gates->rm);
}

u32 cgpu_gates_control(struct cgpu_gates *gates, u32 hClient, u32 hObject, u32 cmd,
		       void *params, u32 size)
{
	u32 status;

	rt_mutex_lock(&gates->rm_lock);
	status = gates->bridge->control(&gates->rm, hClient, hObject, cmd, params, size);
	rt_mutex_unlock(&gates->rm_lock);
	return status;
}

/* Return: true if the driver refused because a handle is no longer there. */
static bool is_gone(u32 status)
{
	return status == NV_ERR_INVALID_CLIENT || status == NV_ERR_OBJECT_NOT_FOUND ||
	       status == NV_ERR_INVALID_OBJECT_HANDLE || status == NV_ERR_INVALID_CHANNEL;
}

static u32 gate_call(struct cgpu_gates *gates, struct nv_fifo_disable_channels *params,
		     const struct cgpu_handle *handles, u32 count, bool shut)
{
	u32 i;

	memset(params, 0, sizeof(*params));
	params->bDisable = shut;
	params->numChannels = count;
	for (i = 0; i < count; i++) {
		params->hClientList[i] = handles[i].hClient;
		params->hChannelList[i] = handles[i].hObject;
	}
	return cgpu_gates_control(gates, gates->rm.hClient, gates->rm.hSubdevice,
				  NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, params,
				  sizeof(*params));
}

/* The driver refused to shut it. */
static void not_shut(const struct cgpu_entity *entity, const struct cgpu_handle *handle)
{
	u32 i;

	/* a client's number is one container's */
	for (i = 0; i < entity->count; i++) {
		struct cgpu_container *container = entity->container[i];

		rt_mutex_lock(&container->lock);
		cgpu_tenant_not_shut(&container->tenant, handle);
		rt_mutex_unlock(&container->lock);
	}
}

/* Return: 0, -EIO: the driver refused for another reason than a handle that went. */
static int gate_each(struct cgpu_gates *gates, const struct cgpu_entity *entity,
		     struct nv_fifo_disable_channels *params,
		     const struct cgpu_handle *handles, u32 count, bool shut)
{
	int err = 0;
	u32 i;

	for (i = 0; i < count; i++) {
		u32 status;

		/* the failed call for all may have shut it: open it, so that it is shut once */
		if (shut)
			gate_call(gates, params, handles + i, 1, false);
		status = gate_call(gates, params, handles + i, 1, shut);
		if (status && !is_gone(status))
			err = -EIO;
		if (status && shut)
			not_shut(entity, handles + i);
	}
	return err;
}

void cgpu_gates_hold(struct cgpu_gates *gates)
{
	rt_mutex_lock(&gates->lock);
}

void cgpu_gates_release(struct cgpu_gates *gates)
{
	rt_mutex_unlock(&gates->lock);
}

/*
 * The next channels to be moved, across containers: a group's containers have few each, and a call
 * takes as long for one channel as for many. *at: the container, 0 at first.
 */
static u32 next_handles(struct cgpu_gates *gates, const struct cgpu_entity *entity, u32 *at,
			struct cgpu_handle *handles, bool shut)
{
	u32 count = 0;

	while (*at < entity->count && count < ENTRIES_MAX) {
		struct cgpu_container *container = entity->container[*at];

		rt_mutex_lock(&container->lock);
		count += cgpu_tenant_gate(&container->tenant, gates->minor, shut, handles + count,
					  ENTRIES_MAX - count);
		rt_mutex_unlock(&container->lock);
		if (count < ENTRIES_MAX)
			++*at;
	}
	return count;
}

/* Context: gates->lock, otherwise an opening and a shutting could overtake each other. */
static int gate_entity(struct cgpu_gates *gates, const struct cgpu_entity *entity,
		       struct cgpu_handle *handles, struct nv_fifo_disable_channels *params,
		       bool shut)
{
	u32 count, at = 0, i;
	int err = 0, one;

	for (i = 0; shut && i < entity->count; i++) {
		struct cgpu_container *container = entity->container[i];

		rt_mutex_lock(&container->lock);
		cgpu_tenant_gate_anew(&container->tenant, gates->minor);
		rt_mutex_unlock(&container->lock);
	}
	do {
		count = next_handles(gates, entity, &at, handles, shut);
		/* if one channel is gone, the driver refuses them all */
		one = count && gate_call(gates, params, handles, count, shut) ?
			gate_each(gates, entity, params, handles, count, shut) : 0;
		err = one ? one : err;
	} while (count == ENTRIES_MAX);
	return err;
}

int cgpu_gate_slot(struct cgpu_gates *gates, u32 slot, bool shut)
{
	struct cgpu_entity entity;
	int err;
	u32 i;

	cgpu_entity_get(&entity, gates->minor, slot);
	for (i = 0; i < entity.count; i++) {
		struct cgpu_container *container = entity.container[i];

		rt_mutex_lock(&container->lock);
		container->tenant.ledger.account[gates->minor].gate_shut = shut;
		rt_mutex_unlock(&container->lock);
	}
	cgpu_gates_hold(gates);
	err = gate_entity(gates, &entity, gates->handles, &gates->params, shut);
	cgpu_gates_release(gates);
	cgpu_entity_put(&entity);
	return err;
}

static int slice_container(struct cgpu_gates *gates, struct cgpu_container *container, u32 slice_us)
{
	u64 params = slice_us;
	u32 count, i;
	int err = 0;

	rt_mutex_lock(&container->lock);
	count = cgpu_tenant_groups(&container->tenant, gates->minor, gates->handles,
				   CGPU_GATE_HANDLES);
	rt_mutex_unlock(&container->lock);
	count = min_t(u32, count, CGPU_GATE_HANDLES);
	for (i = 0; i < count; i++) {
		u32 status = cgpu_gates_control(gates, gates->handles[i].hClient,
						gates->handles[i].hObject,
						NVA06C_CTRL_CMD_SET_TIMESLICE, &params,
						sizeof(params));

		if (status && !is_gone(status))
			err = -EIO;
	}
	return err;
}

int cgpu_gate_slices(struct cgpu_gates *gates, u32 slot, u32 slice_us)
{
	struct cgpu_entity entity;
	int err = 0, one;
	u32 i;

	cgpu_entity_get(&entity, gates->minor, slot);
	for (i = 0; i < entity.count; i++) {
		one = slice_container(gates, entity.container[i], slice_us);
		err = one ? one : err;
	}
	cgpu_entity_put(&entity);
	return err;
}

/* Context: gates->lock. */
static void assert_container(struct cgpu_gates *gates, struct cgpu_container *container)
{
	struct cgpu_entity alone = { .count = 1, .container = { container } };
	u32 count;
	bool shut;

	rt_mutex_lock(&container->lock);
	shut = container->tenant.ledger.account[gates->minor].gate_shut;
	/* the first only sets marks, which the second clears as it names the channels */
	cgpu_tenant_gate(&container->tenant, gates->minor, !shut, gates->handles,
			 CGPU_GATE_HANDLES);
	count = cgpu_tenant_gate(&container->tenant, gates->minor, shut, gates->handles,
				 CGPU_GATE_HANDLES);
	rt_mutex_unlock(&container->lock);
	gate_each(gates, &alone, &gates->params, gates->handles, count, shut);
}

void cgpu_gate_assert(struct cgpu_gates *gates)
{
	struct cgpu_entity entity;
	u32 slot, i;

	for (slot = 0; slot < CGPU_SCHED_SLOTS; slot++) {
		cgpu_entity_get(&entity, gates->minor, slot);
		for (i = 0; i < entity.count; i++) {
			cgpu_gates_hold(gates);
			assert_container(gates, entity.container[i]);
			cgpu_gates_release(gates);
		}
		cgpu_entity_put(&entity);
	}
}

int cgpu_gate_new(struct cgpu_gates *gates, struct cgpu_container *container)
{
	struct cgpu_entity alone = { .count = 1, .container = { container } };
	struct nv_fifo_disable_channels *params;
	struct cgpu_handle *handles;
	int err = -ENOMEM;

	handles = kcalloc(ENTRIES_MAX, sizeof(*handles), GFP_KERNEL);
	params = kzalloc(sizeof(*params), GFP_KERNEL);
	if (handles && params)
		err = gate_entity(gates, &alone, handles, params, true);
	kfree(params);
	kfree(handles);
	return err;
}
