// SPDX-License-Identifier: GPL-2.0-only
/*
 * USERD lies in memory that the driver maps into the process. It is read through the process's own
 * page tables, without a copy of the page's place: memory that the process frees or moves is gone
 * or elsewhere at the next look. The driver's method for accesses to its mappings
 * (nvidia_vma_access in nv-mmap.c) does not serve. Before 570 it reads at the mapping's beginning,
 * and in 595 before 595.71.05 it follows a null pointer (NVIDIA/open-gpu-kernel-modules issue
 * 1107).
 *
 * A mapping is known by its file, because RM_MAP_MEMORY gives a file one mapping in its life. It is
 * looked for when it is first needed, and followed wherever mremap takes it. The pointer is
 * compared and never used: the vma says whether the file is still there.
 *
 * Nothing here waits for a tenant: its mmap_lock is only tried. If that fails, the words count as
 * they were. mmap_lock is outside container->lock, so container->lock is released first.
 */
#include <linux/bitops.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/rtmutex.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "core/rm/abi.h"
#include "demand.h"
#include "driver.h"
#include "registry.h"
#include "userd.h"

enum {
	/* NVOS33_PARAMETERS */
	NVOS33_OFFSET = 16,
	NVOS33_LENGTH = 24,
	/* per look at a container: a process with more is not searched to its end */
	VMAS_MAX = 16384,
};

/* ------------------------------------------------- where USERD is mapped */

static void note_mapped(struct cgpu_container *container, const struct cgpu_request *req,
			const void *args, const struct file *named)
{
	struct mm_struct *mm = current->mm;
	struct cgpu_userd_table *table;
	u32 map = CGPU_USERD_NONE;

	mmgrab(mm);
	rt_mutex_lock(&container->lock);
	table = container->userds;
	if (table)
		map = cgpu_userd_mapped(&table->core, req->hClient, req->hObject,
					cgpu_get64(args, NVOS33_OFFSET),
					cgpu_get64(args, NVOS33_LENGTH));
	if (map != CGPU_USERD_NONE) {
		swap(mm, table->map[map].mm);
		table->map[map].file = named;
		table->map[map].at = 0;
	}
	rt_mutex_unlock(&container->lock);
	if (mm)
		mmdrop(mm);
}

static void note_channel(struct cgpu_container *container, const struct cgpu_request *req,
			 const void *args, const void *params)
{
	struct cgpu_userd_table *table;
	u32 channel;

	rt_mutex_lock(&container->lock);
	table = container->userds;
	channel = table ? cgpu_userd_allocated(cgpu_driver_abi(), &table->core, &container->tenant,
					       req->hClient,
					       cgpu_get32(args, req->hObject_offset), params,
					       req->params_size)
			: CGPU_USERD_NONE;
	if (channel != CGPU_USERD_NONE)
		memset(&table->demand[channel], 0, sizeof(table->demand[channel]));
	rt_mutex_unlock(&container->lock);
}

static void make_table(struct cgpu_container *container)
{
	struct cgpu_userd_table *table;

	if (READ_ONCE(container->userds))
		return;
	table = kvzalloc(sizeof(*table), GFP_KERNEL | __GFP_NOWARN);
	rt_mutex_lock(&container->lock);
	if (!container->userds) {
		WRITE_ONCE(container->userds, table);
		table = NULL;
	}
	rt_mutex_unlock(&container->lock);
	kvfree(table);
}

void cgpu_userds_note(struct cgpu_container *container, const struct cgpu_request *req,
		      const void *args, const void *params, struct file *named)
{
	bool maps = req->nr == NV_ESC_RM_MAP_MEMORY && named;
	bool channel = req->op == CGPU_OP_ALLOC && cgpu_is_channel_class(req->hClass) && params;

	if ((!maps && !channel) || !current->mm ||
	    cgpu_get32(args, req->status_offset) != NV_OK)
		return;
	make_table(container);
	if (maps)
		note_mapped(container, req, args, named);
	else
		note_channel(container, req, args, params);
}

/* ------------------------------------------------------------------ looks */

/* `vmas`: how many may be looked at yet. Context: mmap_lock. */
static struct vm_area_struct *find_mapping(struct mm_struct *mm, const struct file *file, u64 at,
					   u32 *vmas)
{
	struct vm_area_struct *vma = at ? find_vma(mm, at) : NULL;

	if (vma && vma->vm_file == file && vma->vm_start == at)
		return vma;
	vma = find_vma(mm, 0);
	for (; vma && vma->vm_file != file; vma = find_vma(mm, vma->vm_end))
		if (!*vmas || !--*vmas)
			return NULL;
	return vma;
}

/* Context: a kernel thread; mmap_lock: what is there stays there. Return: 0, -EFAULT. */
static int read_words(struct mm_struct *mm, u64 address, u32 words[2])
{
	u64 both;
	int err;

	kthread_use_mm(mm);
	/* faulting in an absent page would sleep, with mmap_lock held */
	pagefault_disable();
	/* one load: each is a trip over the bus where USERD is video memory */
	err = get_user(both, (const u64 __user *)address);
	pagefault_enable();
	kthread_unuse_mm(mm);
	if (err)
		return -EFAULT;
	words[0] = lower_32_bits(both);
	words[1] = upper_32_bits(both);
	return 0;
}

/*
 * GP_GET and GP_PUT at once. Return: 0, -EAGAIN: not now, -EFAULT: there is nothing.
 * `*at` is where the mapping was found; `vmas` as find_mapping()'s.
 */
static int read_userd(struct mm_struct *mm, const struct file *file, u64 *at, u64 offset,
		      u32 words[2], u32 *vmas)
{
	struct vm_area_struct *vma;
	int err = -EFAULT;

	/* otherwise the process has ended */
	if (!mmget_not_zero(mm))
		return -EFAULT;
	if (!mmap_read_trylock(mm)) {
		err = -EAGAIN;
		goto put;
	}
	vma = find_mapping(mm, file, *at, vmas);
	if (vma && offset + CGPU_USERD_BYTES <= vma->vm_end - vma->vm_start) {
		*at = vma->vm_start;
		err = read_words(mm, *at + offset + CGPU_USERD_GP_GET, words);
	}
	mmap_read_unlock(mm);
put:
	/* the last of its users frees the address space, which may take seconds: not here */
	mmput_async(mm);
	return err;
}

/* Context: container->lock, released meanwhile. Return: as read_userd(). */
static int read_channel(struct cgpu_container *container, u32 channel, u64 offset, u32 words[2],
			u32 *vmas)
{
	struct cgpu_userd_table *table = container->userds;
	u32 map = table->core.channel[channel].map;
	const struct file *file = table->map[map].file;
	struct mm_struct *mm = table->map[map].mm;
	u64 at = table->map[map].at;
	int err;

	mmgrab(mm);
	rt_mutex_unlock(&container->lock);
	err = read_userd(mm, file, &at, offset, words, vmas);
	rt_mutex_lock(&container->lock);
	if (!err && table->map[map].file == file)
		table->map[map].at = at;
	mmdrop(mm);
	if (err == -EAGAIN && table->demand[channel].known) {
		words[0] = table->demand[channel].get;
		words[1] = table->demand[channel].put;
		err = 0;
	}
	return err;
}

/* Context: container->lock. Return: what it has to be read can be; *some: it has something. */
static bool is_readable(struct cgpu_container *container, u32 minor, bool *some)
{
	struct cgpu_userd_table *table = container->userds;

	if (!table || (table->silent && time_before(jiffies, table->silent)) ||
	    !cgpu_userd_complete(&table->core, &container->tenant, minor))
		return !cgpu_userd_due(&container->tenant, minor);
	table->silent = 0;
	*some = true;
	return true;
}

/* Context: container->lock, released meanwhile. Return: the others need not be looked at. */
static bool look_at(struct cgpu_demand *demand, struct cgpu_container *container, u32 minor,
		    u32 slot)
{
	struct cgpu_userd_table *table = container->userds;
	u32 words[2], vmas = VMAS_MAX, i;
	u64 offset;

	if (!table)
		return false;
	for (i = 0; (i = cgpu_userd_next(&table->core, &container->tenant, minor, i, &offset)) !=
	     CGPU_USERD_NONE; i++) {
		if (!cgpu_demand_wants(demand, slot, &table->demand[i]))
			continue;
		if (read_channel(container, i, offset, words, &vmas)) {
			table->silent = (jiffies + HZ) | 1;
			/* what was read of it says nothing without the rest */
			cgpu_demand_forget(demand, slot);
			return true;
		}
		if (cgpu_demand_sample(demand, slot, &table->demand[i], words[0], words[1]))
			return true;
	}
	return false;
}

/* If one container cannot be read, nothing is known of its group. */
static bool all_readable(const struct cgpu_entity *entity, u32 minor)
{
	bool may, some = false;
	u32 i;

	for (i = 0; i < entity->count; i++) {
		rt_mutex_lock(&entity->container[i]->lock);
		may = is_readable(entity->container[i], minor, &some);
		rt_mutex_unlock(&entity->container[i]->lock);
		if (!may)
			return false;
	}
	return some;
}

static void look_in(struct cgpu_demand *demand, u32 minor, u32 slot)
{
	struct cgpu_entity entity;
	bool done;
	u32 i;

	cgpu_entity_get(&entity, minor, slot);
	done = !all_readable(&entity, minor);
	for (i = 0; i < entity.count && !done; i++) {
		rt_mutex_lock(&entity.container[i]->lock);
		done = look_at(demand, entity.container[i], minor, slot);
		rt_mutex_unlock(&entity.container[i]->lock);
	}
	cgpu_entity_put(&entity);
}

void cgpu_demand_look(struct cgpu_demand *demand, u64 mask, u32 minor)
{
	u64 left;

	for (left = mask; left; left &= left - 1)
		look_in(demand, minor, (u32)__ffs64(left));
}

/* Not for the scheduler. A worker looks, because the caller has an address space of its own. */
struct look {
	struct work_struct work;
	struct cgpu_container *container;
	u32 minor;
	u64 submitted;
	bool still;
};

static void look_whether_still(struct work_struct *work)
{
	struct look *look = container_of(work, struct look, work);
	struct cgpu_container *container = look->container;
	struct cgpu_userd_table *table;
	u32 words[2], vmas = VMAS_MAX, i;
	u64 offset;

	rt_mutex_lock(&container->lock);
	table = container->userds;
	look->still = table && cgpu_userd_complete(&table->core, &container->tenant, look->minor);
	for (i = 0; look->still &&
	     (i = cgpu_userd_next(&table->core, &container->tenant, look->minor, i, &offset)) !=
	     CGPU_USERD_NONE; i++)
		look->still = !read_channel(container, i, offset, words, &vmas) &&
			      cgpu_userd_is_still(&look->submitted, words[0], words[1]);
	rt_mutex_unlock(&container->lock);
}

bool cgpu_demand_is_still(struct cgpu_container *container, u32 minor, u64 *submitted)
{
	struct look look = { .container = container, .minor = minor };

	INIT_WORK_ONSTACK(&look.work, look_whether_still);
	queue_work(system_unbound_wq, &look.work);
	flush_work(&look.work);
	destroy_work_on_stack(&look.work);
	*submitted = look.submitted;
	return look.still;
}
