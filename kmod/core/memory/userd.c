// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/memory/userd.h"
#include "core/rm/decode.h"
#include "core/rm/structs.h"

static bool holds(const struct cgpu_userd_map *map, const struct cgpu_userd_channel *channel)
{
	return map->hClient && map->hClient == channel->hClient &&
	       map->hMemory == channel->hMemory && channel->offset >= map->offset &&
	       channel->offset - map->offset < map->length &&
	       map->length - (channel->offset - map->offset) >= CGPU_USERD_BYTES;
}

static void drop(struct cgpu_userds *userds, struct cgpu_userd_channel *channel)
{
	if (channel->map != CGPU_USERD_NONE)
		userds->map[channel->map].channels--;
	memset(channel, 0, sizeof(*channel));
	while (userds->channel_end && !userds->channel[userds->channel_end - 1].object)
		userds->channel_end--;
}

/* NULL: it was freed. */
static const struct cgpu_object *object_of(const struct cgpu_tenant *tenant,
					   const struct cgpu_userd_channel *channel)
{
	const struct cgpu_object *object;

	if (!channel->object)
		return NULL;
	object = cgpu_object_at(&tenant->objects, channel->object);
	return object->hClient == channel->hClient && object->serial == channel->serial ?
		object : NULL;
}

/* A compute channel of the card whose USERD a process has mapped. */
static bool is_mapped(const struct cgpu_tenant *tenant, const struct cgpu_userd_channel *channel,
		      uint32_t card)
{
	const struct cgpu_object *object = object_of(tenant, channel);

	return object && channel->map != CGPU_USERD_NONE && cgpu_tenant_is_gated(object, card);
}

static uint32_t free_map(struct cgpu_userds *userds)
{
	uint32_t tries, number;

	for (tries = 0; tries < CGPU_USERD_MAPS; tries++) {
		number = userds->next_map++ % CGPU_USERD_MAPS;
		if (!userds->map[number].channels)
			return number;
	}
	return CGPU_USERD_NONE;
}

uint32_t cgpu_userd_mapped(struct cgpu_userds *userds, uint32_t hClient, uint32_t hMemory,
			   uint64_t offset, uint64_t length)
{
	uint32_t number = free_map(userds), i;
	struct cgpu_userd_map *map;

	if (number == CGPU_USERD_NONE || !hClient)
		return CGPU_USERD_NONE;
	map = &userds->map[number];
	*map = (struct cgpu_userd_map){ hClient, hMemory, offset, length, 0 };
	for (i = 0; i < userds->channel_end; i++) {
		struct cgpu_userd_channel *channel = &userds->channel[i];

		if (channel->object && channel->map == CGPU_USERD_NONE && holds(map, channel)) {
			channel->map = number;
			map->channels++;
		}
	}
	return number;
}

/* The newest that has it: the same memory may be mapped again. */
static void find_map(struct cgpu_userds *userds, struct cgpu_userd_channel *channel)
{
	uint32_t i, number;

	for (i = 1; i <= CGPU_USERD_MAPS; i++) {
		number = (userds->next_map - i) % CGPU_USERD_MAPS;
		if (!holds(&userds->map[number], channel))
			continue;
		channel->map = number;
		userds->map[number].channels++;
		return;
	}
}

uint32_t cgpu_userd_allocated(const struct cgpu_abi *abi, struct cgpu_userds *userds,
			      struct cgpu_tenant *tenant, uint32_t hClient, uint32_t hChannel,
			      const void *params, uint32_t params_size)
{
	uint32_t object = cgpu_object_find(&tenant->objects, hClient, hChannel), i;
	struct cgpu_userd_channel *channel = NULL;

	if (!object ||
	    params_size < offsetof(struct nv_channel_alloc, userdOffset[1]) + abi->channel_shift)
		return CGPU_USERD_NONE;
	for (i = 0; i < CGPU_USERD_CHANNELS; i++) {
		channel = &userds->channel[i];
		if (channel->object && !object_of(tenant, channel))
			drop(userds, channel);
		if (!channel->object)
			break;
	}
	if (i == CGPU_USERD_CHANNELS)
		return CGPU_USERD_NONE;
	*channel = (struct cgpu_userd_channel){
		.object = object,
		.serial = cgpu_object_at(&tenant->objects, object)->serial,
		.hClient = hClient,
		.hMemory = cgpu_get32(params, abi->channel_userd_offset),
		.offset = cgpu_get64(params, offsetof(struct nv_channel_alloc, userdOffset) +
						     abi->channel_shift),
		.map = CGPU_USERD_NONE,
	};
	/* the driver's own USERD is mapped by the channel's handle */
	if (!channel->hMemory) {
		channel->hMemory = hChannel;
		channel->offset = 0;
	}
	if (i == userds->channel_end)
		userds->channel_end++;
	find_map(userds, channel);
	return i;
}

void cgpu_userd_unmapped(struct cgpu_userds *userds, uint32_t number)
{
	uint32_t i;

	for (i = 0; i < userds->channel_end; i++)
		if (userds->channel[i].object && userds->channel[i].map == number)
			userds->channel[i].map = CGPU_USERD_NONE;
	memset(&userds->map[number], 0, sizeof(userds->map[number]));
}

void cgpu_userd_forget_freed(struct cgpu_userds *userds, const struct cgpu_tenant *tenant)
{
	uint32_t i;

	for (i = 0; i < userds->channel_end; i++)
		if (userds->channel[i].object && !object_of(tenant, &userds->channel[i]))
			drop(userds, &userds->channel[i]);
}

uint32_t cgpu_userd_due(const struct cgpu_tenant *tenant, uint32_t card)
{
	uint32_t due = 0, index;

	for (index = tenant->objects.first_runnable; index;
	     index = cgpu_object_at(&tenant->objects, index)->next_runnable)
		due += cgpu_tenant_is_gated(cgpu_object_at(&tenant->objects, index), card);
	return due;
}

bool cgpu_userd_complete(struct cgpu_userds *userds, const struct cgpu_tenant *tenant,
			 uint32_t card)
{
	uint32_t due = cgpu_userd_due(tenant, card), mapped = 0, i;

	cgpu_userd_forget_freed(userds, tenant);
	for (i = 0; i < userds->channel_end; i++)
		mapped += is_mapped(tenant, &userds->channel[i], card);
	return due && due == mapped;
}

uint32_t cgpu_userd_next(const struct cgpu_userds *userds, const struct cgpu_tenant *tenant,
			 uint32_t card, uint32_t from, uint64_t *offset)
{
	for (; from < userds->channel_end; from++) {
		const struct cgpu_userd_channel *channel = &userds->channel[from];

		if (!is_mapped(tenant, channel, card))
			continue;
		*offset = channel->offset - userds->map[channel->map].offset;
		return from;
	}
	return CGPU_USERD_NONE;
}

bool cgpu_userd_is_still(uint64_t *submitted, uint32_t get, uint32_t put)
{
	*submitted = *submitted * 31 + put + 1;
	return get == put;
}
