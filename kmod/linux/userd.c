// SPDX-License-Identifier: GPL-2.0-only
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "state.h"
#include "userd.h"

u64 cgpu_userds_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct cgpu_userd_table));
	digest = cgpu_digest(digest, offsetof(struct cgpu_userd_table, map));
	return cgpu_digest(digest, sizeof(struct cgpu_demand));
}

void cgpu_userds_free(struct cgpu_userd_table *table)
{
	u32 i;

	for (i = 0; table && i < CGPU_USERD_MAPS; i++)
		if (table->map[i].mm)
			mmdrop(table->map[i].mm);
	kvfree(table);
}
