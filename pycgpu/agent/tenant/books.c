// SPDX-License-Identifier: GPL-2.0-only
/* Room in a container's tables, and the entries that leave them step by step. */
#include <sched.h>

#include "tenant/tenant.h"

void make_room(struct container *c)
{
	uint32_t table, capacity;
	size_t bytes;

	for (table = 0; table < CGPU_TABLE_COUNT; table++) {
		while ((bytes = cgpu_tenant_wants(&c->tenant, table, &capacity))) {
			void *storage = arena_alloc(bytes), *old;

			if (!storage)
				break;
			change_begin_growth(c);
			old = cgpu_tenant_grow(&c->tenant, table, storage, capacity);
			change_end();
			arena_free(old);
		}
	}
}

void let_go(struct container *c)
{
	bool more;

	while (c->tenant.first_over) {
		change_begin(c, NULL);
		more = cgpu_tenant_close_step(&c->tenant);
		change_end();
		if (!more)
			return;
		pthread_mutex_unlock(&door.lock);
		sched_yield();
		pthread_mutex_lock(&door.lock);
	}
}
