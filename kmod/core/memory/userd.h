/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where the USERD of channels can be read: memory that a channel's allocation names, in
 * which GP_GET and GP_PUT lie. The module reads where the process has mapped it:
 * RM_MAP_MEMORY names the memory, and CUDA maps it once for all channels of a context,
 * before it allocates the first. The agent maps it for itself.
 */
#ifndef CGPU_CORE_MEMORY_USERD_H
#define CGPU_CORE_MEMORY_USERD_H

#include "core/types.h"
#include "core/memory/tenant.h"
#include "core/rm/versions.h"

enum cgpu_userd_limit {
	CGPU_USERD_BYTES = 512,
	CGPU_USERD_MAPS = 128,
	CGPU_USERD_CHANNELS = 512
};

enum cgpu_userd_none {
	CGPU_USERD_NONE = 0xffffffff
};

struct cgpu_userd_map {
	uint32_t hClient, hMemory; /* 0: none */
	uint64_t offset, length;   /* in the memory */
	uint32_t channels;         /* count of channels with USERD in it */
};

struct cgpu_userd_channel {
	uint32_t object, serial;   /* 0: none */
	uint32_t hClient, hMemory;
	uint64_t offset;
	uint32_t map;              /* CGPU_USERD_NONE: not mapped yet */
};

struct cgpu_userds {
	uint32_t next_map;
	struct cgpu_userd_map map[CGPU_USERD_MAPS];
	struct cgpu_userd_channel channel[CGPU_USERD_CHANNELS];
	uint32_t channel_end; /* none from this number on; every look walks the others */
};

/*
 * The driver maps a part of a memory. Return: the mapping's number, perhaps reused from one that no
 * channel needs any more; CGPU_USERD_NONE: no room.
 */
uint32_t cgpu_userd_mapped(struct cgpu_userds *userds, uint32_t hClient, uint32_t hMemory,
			   uint64_t offset, uint64_t length);
/* That mapping is gone: its channels wait for another. */
void cgpu_userd_unmapped(struct cgpu_userds *userds, uint32_t number);
/*
 * A channel was allocated, with NV_CHANNEL_ALLOC_PARAMS. Return: its number,
 * CGPU_USERD_NONE: no room, or not one of the tenant's.
 */
uint32_t cgpu_userd_allocated(const struct cgpu_abi *abi, struct cgpu_userds *userds,
			      struct cgpu_tenant *tenant, uint32_t hClient, uint32_t hChannel,
			      const void *params, uint32_t params_size);
/* Forgets channels that were freed. */
void cgpu_userd_forget_freed(struct cgpu_userds *userds, const struct cgpu_tenant *tenant);
/* Return: how many channels compute, which have to be mapped. */
uint32_t cgpu_userd_due(const struct cgpu_tenant *tenant, uint32_t card);
/* As above. Return: USERD of each compute channel is mapped, and there is one. */
bool cgpu_userd_complete(struct cgpu_userds *userds, const struct cgpu_tenant *tenant,
			 uint32_t card);
/*
 * The compute channel from number `from` on whose USERD is mapped. Return: its number,
 * CGPU_USERD_NONE: no more; *offset: of USERD in its mapping.
 */
uint32_t cgpu_userd_next(const struct cgpu_userds *userds, const struct cgpu_tenant *tenant,
			 uint32_t card, uint32_t from, uint64_t *offset);

/*
 * Adds one channel to a number that changes with all submissions. Return: false: the card has not
 * fetched all that was submitted.
 */
bool cgpu_userd_is_still(uint64_t *submitted, uint32_t get, uint32_t put);

#endif
