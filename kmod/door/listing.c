// SPDX-License-Identifier: GPL-2.0-only
/*
 * procfs has no hook to choose which names a task sees. So probes at the entries of its lookup and
 * its listing redirect accesses to a directory of containers to functions of ours. These ask the
 * core name by name, and procfs for all the rest.
 */
#include <linux/dcache.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/proc_fs.h>
#include <linux/rcupdate.h>
#include <linux/srcu.h>
#include <linux/string.h>

#include "../compat/compat.h"
#include "core_drain.h"
#include "entry.h"
#include "listing.h"

enum {
	/* procfs ignores the flags of a lookup: this one says that it comes from here */
	ASKED = 1u << 31,
};

const char cgpu_door_containers;
EXPORT_SYMBOL_GPL(cgpu_door_containers);

DEFINE_STATIC_SRCU(listing_srcu);
static bool probed;

static bool is_shown(const char *name, size_t length)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);
	bool shown = !core || core->name_shown(name, length);

	cgpu_core_leave(&cgpu_calls);
	return shown;
}

/* ---------------------------------------------------------------- lookup */

static notrace struct dentry *lookup(struct inode *dir, struct dentry *dentry,
				     unsigned int flags)
{
	int idx = srcu_read_lock(&listing_srcu);
	struct dentry *found = ERR_PTR(-ENOENT);

	if (is_shown(dentry->d_name.name, dentry->d_name.len))
		found = dir->i_op->lookup(dir, dentry, flags | ASKED);
	srcu_read_unlock(&listing_srcu, idx);
	return found;
}

static bool on_lookup(struct pt_regs *regs)
{
	const struct inode *dir = (void *)regs_get_kernel_argument(regs, 0);

	if (likely(pde_data(dir) != &cgpu_door_containers) ||
	    regs_get_kernel_argument(regs, 2) & ASKED)
		return false;
	instruction_pointer_set(regs, (unsigned long)lookup);
	return true;
}

/* --------------------------------------------------------------- listing */

struct listing {
	struct dir_context context;
	struct dir_context *to; /* who asked */
};

static CGPU_FILLDIR_RESULT pass_on(struct dir_context *context, const char *name, int length,
				   loff_t position, u64 inode, unsigned int type)
{
	struct listing *listing = container_of(context, struct listing, context);

	if (type == DT_DIR && strncmp(name, "..", length) && !is_shown(name, length))
		return CGPU_FILLDIR_MORE;
	listing->to->pos = context->pos;
	return listing->to->actor(listing->to, name, length, position, inode, type);
}

/*
 * A task that lists may wait for a page of its own memory, for any time: unloading is refused
 * meanwhile, and must not wait for it.
 */
static bool keep_module(void)
{
	int idx = srcu_read_lock(&listing_srcu);
	bool kept = try_module_get(THIS_MODULE);

	srcu_read_unlock(&listing_srcu, idx);
	return kept;
}

static notrace int list(struct file *file, struct dir_context *to)
{
	struct listing listing = { .context = { .actor = pass_on, .pos = to->pos }, .to = to };
	int err;

	if (!keep_module())
		return -ENOENT;
	err = file->f_op->iterate_shared(file, &listing.context);
	to->pos = listing.context.pos;
	module_put(THIS_MODULE);
	return err;
}

static bool on_list(struct pt_regs *regs)
{
	const struct file *file = (void *)regs_get_kernel_argument(regs, 0);
	const struct dir_context *context = (void *)regs_get_kernel_argument(regs, 1);

	if (likely(pde_data(file_inode(file)) != &cgpu_door_containers) ||
	    context->actor == pass_on)
		return false;
	instruction_pointer_set(regs, (unsigned long)list);
	return true;
}

/* --------------------------------------------------------------- entries */

static struct cgpu_entry entry[] = {
	{ "proc_lookup", on_lookup },
	{ "proc_readdir", on_list },
};
static struct cgpu_entries entries = { .entry = entry, .count = ARRAY_SIZE(entry) };

int cgpu_listing_init(void)
{
	const char *symbol;
	int err = cgpu_entries_follow(&entries, &symbol);

	probed = !err;
	if (err && !cgpu_entries_may_come(err))
		pr_warn("cgpu: listings of procfs cannot be probed (%d): containers see each other's names\n",
			err);
	return cgpu_entries_may_come(err) ? err : 0;
}

void cgpu_listing_exit(void)
{
	if (!probed)
		return;
	cgpu_entries_leave(&entries);
	/* tasks inside, and those that were sent here and have not arrived or not left */
	synchronize_srcu(&listing_srcu);
	synchronize_rcu_tasks();
}
