// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver owns a file's private_data, so what we know of it lies in a table keyed by the struct
 * file. An entry is made before open returns to user space and leaves the table in release. Hence a
 * holder of the file may use its entry without a reference of its own.
 *
 * Managed memory appears by mmap and disappears by munmap. UVM compares its vm_ops, so they cannot
 * be wrapped; an mmu notifier on the mm that initialised the UVM file tells instead. Memory that
 * exists when the mm ends counts until the file is closed: the end is told before anything is
 * unmapped, and a file that was initialised for several processes keeps what one of them had.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "governors.h"
#include "host_memory.h"
#include "shortage.h"
#include "door/door.h"
#include "door/events.h"
#include "open_file.h"
#include "parking.h"

struct cgpu_open_file {
	struct hlist_node node;
	struct rcu_head rcu;
	struct file *file;         /* key; a reference only for dma-bufs */
	struct cgpu_container *container;
	u32 device;
	u32 number;
	unsigned long watching;    /* bit 0: a thread has begun to watch */
	struct mm_struct *mm;      /* watched; NULL before UVM_INITIALIZE */
	struct mmu_notifier notifier;
};

enum { SWEEP_MAX = 32 };

/* The state that one core hands to the next. */
struct open_files {
	spinlock_t lock;
	u32 dmabufs;               /* of those in the table */
	DECLARE_HASHTABLE(table, 12);
};

static struct open_files *open_files;

/*
 * Return: 0, -ENOMEM: the tenant has no room for it, -EACCES: the container was removed while the
 * driver opened the file, which would escape its limits.
 */
static int entry_begin(struct cgpu_open_file *entry, struct file *file,
		       struct cgpu_container *container, u32 device, u32 minor,
		       struct cgpu_call *exported_by)
{
	bool removed = false;

	cgpu_container_make_room(container);
	entry->file = file;
	entry->device = device;
	rt_mutex_lock(&container->lock);
	cgpu_ledger_limit_host(&container->tenant.ledger, cgpu_host_memory_max_bytes());
	if (exported_by)
		entry->number = cgpu_call_open_dmabuf(&container->tenant, exported_by);
	else if (container->removed)
		removed = true;
	else
		entry->number = cgpu_tenant_open(&container->tenant, device, minor,
						 task_tgid_nr(current));
	rt_mutex_unlock(&container->lock);
	if (!entry->number)
		return removed ? -EACCES : -ENOMEM;
	cgpu_container_get(container);
	entry->container = container;
	return 0;
}

struct cgpu_open_file *cgpu_open_file_reserve(void)
{
	/* there are as many as its container has files: they are its memory */
	return kzalloc(sizeof(struct cgpu_open_file), GFP_KERNEL_ACCOUNT);
}

static void entry_publish(struct cgpu_open_file *entry)
{
	spin_lock(&open_files->lock);
	open_files->dmabufs += entry->device == CGPU_DEVICE_DMABUF;
	hash_add_rcu(open_files->table, &entry->node, (unsigned long)entry->file);
	spin_unlock(&open_files->lock);
}

int cgpu_open_file_add(struct file *file, struct cgpu_container *container, u32 device,
		       u32 minor)
{
	struct cgpu_open_file *entry = cgpu_open_file_reserve();
	int err;

	if (!entry)
		return -ENOMEM;
	err = entry_begin(entry, file, container, device, minor, NULL);
	if (err) {
		kfree(entry);
		return err;
	}
	entry_publish(entry);
	cgpu_governors_poke_container(container);
	return 0;
}

struct cgpu_open_file *cgpu_open_file_find(struct file *file)
{
	struct cgpu_open_file *entry, *found = NULL;

	rcu_read_lock();
	hash_for_each_possible_rcu(open_files->table, entry, node, (unsigned long)file) {
		if (entry->file == file) {
			found = entry;
			break;
		}
	}
	rcu_read_unlock();
	return found;
}

struct cgpu_open_file *cgpu_open_file_take(struct file *file)
{
	struct cgpu_open_file *entry = cgpu_open_file_find(file);

	if (!entry)
		return NULL;
	spin_lock(&open_files->lock);
	open_files->dmabufs -= entry->device == CGPU_DEVICE_DMABUF;
	hash_del_rcu(&entry->node);
	spin_unlock(&open_files->lock);
	return entry;
}

void cgpu_open_file_close(struct cgpu_open_file *entry)
{
	struct cgpu_container *container = entry->container;

	if (entry->mm)
		mmu_notifier_unregister(&entry->notifier, entry->mm);
	rt_mutex_lock(&container->lock);
	cgpu_tenant_close(&container->tenant, entry->number);
	rt_mutex_unlock(&container->lock);
	cgpu_container_let_go(container);
	kfree_rcu(entry, rcu);
	cgpu_governors_poke_container(container);
	cgpu_container_put(container);
}

struct cgpu_container *cgpu_open_file_container(struct cgpu_open_file *entry)
{
	return entry->container;
}

u32 cgpu_open_file_number(struct cgpu_open_file *entry)
{
	return entry->number;
}

u32 cgpu_open_file_device(struct cgpu_open_file *entry)
{
	return entry->device;
}

/* ------------------------------------------------------ managed memory */

void cgpu_open_file_unmapped(struct mmu_notifier *notifier, u64 start, u64 length_bytes)
{
	struct cgpu_open_file *entry = container_of(notifier, struct cgpu_open_file, notifier);

	bool more;

	/* nothing is mapped there before this is over */
	do {
		rt_mutex_lock(&entry->container->lock);
		more = cgpu_tenant_munmap(&entry->container->tenant, entry->number, start,
					  length_bytes);
		rt_mutex_unlock(&entry->container->lock);
		cond_resched();
	} while (more);
}

struct mmu_notifier *cgpu_open_file_watch(struct cgpu_open_file *entry)
{
	/* UVM_INITIALIZE may be repeated; the driver ties the file to its first mm */
	return test_and_set_bit(0, &entry->watching) ? NULL : &entry->notifier;
}

int cgpu_open_file_watched(struct cgpu_open_file *entry, int err)
{
	if (err)
		clear_bit(0, &entry->watching);
	else
		WRITE_ONCE(entry->mm, current->mm);
	return err;
}

int cgpu_open_file_mmap(struct cgpu_open_file *entry, u64 start, u64 length_bytes)
{
	struct cgpu_container *container = entry->container;
	struct cgpu_shortage shortage;
	bool alone;
	int err = 0;

	/*
	 * Without the watch its end would go unnoticed. UVM refuses too: before UVM_INITIALIZE, and
	 * in any process but the one that called it.
	 */
	if (READ_ONCE(entry->mm) != current->mm)
		return -EOPNOTSUPP;
	cgpu_container_make_room(container);
	alone = cgpu_container_lock_to_judge(container);
	if (!cgpu_tenant_map_reserved(&container->tenant, entry->number, start, length_bytes))
		err = cgpu_tenant_mmap(&container->tenant, entry->number, start, length_bytes);
	shortage = container->tenant.ledger.shortage;
	rt_mutex_unlock(&container->lock);
	cgpu_container_judged(alone);
	if (!err)
		return 0;
	if (shortage.card != CGPU_NO_CARD)
		cgpu_shortage_report(container, &shortage);
	else if (__ratelimit(&container->refusals))
		cgpu_event("refused id=%s pid=%d managed bytes=%llu", container->id,
			   task_tgid_nr(current), length_bytes);
	return err;
}

void cgpu_open_file_mapped(struct cgpu_open_file *entry, u64 start, u64 length_bytes, bool done)
{
	rt_mutex_lock(&entry->container->lock);
	cgpu_tenant_mapped(&entry->container->tenant, entry->number, start, length_bytes, done);
	rt_mutex_unlock(&entry->container->lock);
}

/* -------------------------------------------------------------- dma-buf */

u32 cgpu_open_file_watch_dmabuf(struct file *file, struct cgpu_container *container,
				struct cgpu_call *call, struct cgpu_open_file **reserved)
{
	struct cgpu_open_file *entry = cgpu_open_file_find(file);

	/* exported piece by piece into the same dma-buf */
	if (entry)
		return entry->container == container ? entry->number : 0;
	entry = *reserved;
	if (!entry || entry_begin(entry, file, container, CGPU_DEVICE_DMABUF, 0, call))
		return 0;
	*reserved = NULL;
	get_file(file);
	entry_publish(entry);
	return entry->number;
}

/* Takes out of a bucket the dma-bufs held here alone. Return: how many; SWEEP_MAX: maybe more. */
static u32 take_unused(u32 bucket, struct cgpu_open_file **unused)
{
	struct cgpu_open_file *entry;
	struct hlist_node *next;
	u32 count = 0;

	spin_lock(&open_files->lock);
	hlist_for_each_entry_safe(entry, next, &open_files->table[bucket], node) {
		if (entry->device != CGPU_DEVICE_DMABUF || file_count(entry->file) != 1)
			continue;
		hash_del_rcu(&entry->node);
		open_files->dmabufs--;
		unused[count++] = entry;
		if (count == SWEEP_MAX)
			break;
	}
	spin_unlock(&open_files->lock);
	return count;
}

/* Context: a kernel thread, in which fput() would defer the release to another one. */
void cgpu_open_file_sweep(void)
{
	struct cgpu_open_file *unused[SWEEP_MAX];
	u32 bucket, count, i;

	if (!READ_ONCE(open_files->dmabufs))
		return;
	for (bucket = 0; bucket < HASH_SIZE(open_files->table); bucket++) {
		do {
			count = take_unused(bucket, unused);
			for (i = 0; i < count; i++) {
				/* the memory is free before its charge is */
				__fput_sync(unused[i]->file);
				cgpu_open_file_close(unused[i]);
			}
			cond_resched();
		} while (count == SWEEP_MAX);
	}
}

/* ----------------------------------------------------------------- state */

int cgpu_open_files_begin(void **part)
{
	open_files = kvzalloc(sizeof(*open_files), GFP_KERNEL);
	if (!open_files)
		return -ENOMEM;
	hash_init(open_files->table);
	cgpu_open_files_adopt(open_files);
	*part = open_files;
	return 0;
}

void cgpu_open_files_adopt(void *part)
{
	open_files = part;
	/* no call is inside: the lock's class is a core's own */
	spin_lock_init(&open_files->lock);
}

void cgpu_open_files_end(void)
{
	WARN_ON(!hash_empty(open_files->table));
	kvfree(open_files);
}

u64 cgpu_open_files_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct open_files));
	digest = cgpu_digest(digest, sizeof(struct cgpu_open_file));
	return cgpu_digest(digest, offsetof(struct cgpu_open_file, notifier));
}
