// SPDX-License-Identifier: GPL-2.0-only
/* The driver allocates host memory for its callers without charging a memory cgroup. */
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "host_memory.h"

#ifdef CONFIG_MEMCG

u64 cgpu_host_memory_max_bytes(void)
{
	unsigned long pages = PAGE_COUNTER_MAX;
	struct mem_cgroup *memcg;

	rcu_read_lock();
	memcg = mem_cgroup_from_css(task_css(current, memory_cgrp_id));
	/* a cgroup that a container makes below its own cannot raise the limit */
	for (; memcg; memcg = parent_mem_cgroup(memcg))
		pages = min(pages, READ_ONCE(memcg->memory.max));
	rcu_read_unlock();
	return pages < PAGE_COUNTER_MAX ? max_t(u64, (u64)pages << PAGE_SHIFT, 1) : 0;
}

#else

u64 cgpu_host_memory_max_bytes(void)
{
	return 0;
}

#endif
