// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver answers an export with the number of a descriptor. By the time that the answer can be
 * read, any thread of the process may have put another file there. So a reference to the dma-buf is
 * taken while the driver holds it: when it asks for the descriptor of a new one (dma_buf_fd), and
 * when it looks up one to which further objects are to be added (dma_buf_get).
 */
#include <linux/dma-buf.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kprobes.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "dmabuf.h"
#include "door.h"
#include "entry.h"
#include "probe_lock.h"

enum {
	/* lookups under way, of all processes: one that finds no place is not seen */
	LOOKUPS_MAX = 256,
};

/* By task: a container has as many as it has threads, and others' dma-bufs are looked for, too. */
static DEFINE_HASHTABLE(watches, 8);
/* raw: taken by probes */
static DEFINE_RAW_SPINLOCK(watches_lock);
static bool watched;

/* Context: watches_lock. */
static struct cgpu_dmabuf_watch *watch_of_current(void)
{
	struct cgpu_dmabuf_watch *watch;

	hash_for_each_possible(watches, watch, node, (unsigned long)current)
		if (watch->task == current)
			return watch;
	return NULL;
}

static void see(struct dma_buf *dmabuf)
{
	struct cgpu_dmabuf_watch *watch;
	unsigned long flags;

	if (hlist_empty(&watches[hash_min((unsigned long)current, HASH_BITS(watches))]))
		return;
	flags = cgpu_probe_lock(&watches_lock);
	watch = watch_of_current();
	if (watch && !watch->file)
		watch->file = get_file(dmabuf->file);
	cgpu_probe_unlock(&watches_lock, flags);
}

static bool on_fd(struct pt_regs *regs)
{
	struct dma_buf *dmabuf = (void *)regs_get_kernel_argument(regs, 0);

	if (dmabuf)
		see(dmabuf);
	return false;
}

static int on_got(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct dma_buf *dmabuf = (void *)regs_return_value(regs);

	if (!IS_ERR_OR_NULL(dmabuf))
		see(dmabuf);
	return 0;
}

static struct cgpu_entry entry = { .symbol = "dma_buf_fd", .handler = on_fd };
static struct cgpu_entries entries = { .entry = &entry, .count = 1 };
static struct kretprobe get_probe = {
	.kp.symbol_name = "dma_buf_get",
	.handler = on_got,
	.maxactive = LOOKUPS_MAX,
};

int cgpu_dmabuf_init(void)
{
	const char *symbol;
	int err = cgpu_entries_follow(&entries, &symbol);

	if (!err) {
		err = register_kretprobe(&get_probe);
		if (err)
			cgpu_entries_leave(&entries);
	}
	watched = !err;
	if (err && !cgpu_entries_may_come(err))
		pr_warn("cgpu: exports cannot be followed (%d): containers get no dma-buf\n", err);
	return cgpu_entries_may_come(err) ? err : 0;
}

void cgpu_dmabuf_exit(void)
{
	if (!watched)
		return;
	unregister_kretprobe(&get_probe);
	cgpu_entries_leave(&entries);
}

bool cgpu_door_sees_exports(void)
{
	return watched;
}
EXPORT_SYMBOL_GPL(cgpu_door_sees_exports);

void cgpu_dmabuf_begin(struct cgpu_dmabuf_watch *watch)
{
	*watch = (struct cgpu_dmabuf_watch){ .task = current };
	raw_spin_lock_irq(&watches_lock);
	hash_add(watches, &watch->node, (unsigned long)current);
	raw_spin_unlock_irq(&watches_lock);
}

struct file *cgpu_dmabuf_end(struct cgpu_dmabuf_watch *watch)
{
	raw_spin_lock_irq(&watches_lock);
	hash_del(&watch->node);
	raw_spin_unlock_irq(&watches_lock);
	return watch->file;
}
