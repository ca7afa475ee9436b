// SPDX-License-Identifier: GPL-2.0-only
/*
 * An open file keeps pointing here when the core behind it is replaced. Text is in kernel memory
 * before the core sees it.
 *
 * Removing an entry of procfs waits until no task is inside its handlers. A reader is inside while
 * it waits for a page of its own memory: for any time, if a program of its own (userfaultfd, FUSE)
 * has to bring that page. So procfs only opens a file: an open file has operations of ours, which
 * pin the modules and the file's subject.
 */
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "../compat/compat.h"
#include "core_drain.h"
#include "tree.h"

enum {
	/* more than any node takes; the core knows what each does */
	WRITE_MAX = 64 << 10,
};

static struct proc_dir_entry *root;

struct proc_dir_entry *cgpu_door_root(void)
{
	return root;
}
EXPORT_SYMBOL_GPL(cgpu_door_root);

static int node_show(struct seq_file *seq, void *unused)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);
	int err = core ? core->node_show(seq) : -ENODEV;

	cgpu_core_leave(&cgpu_calls);
	return err;
}


static ssize_t node_write(struct file *file, const char __user *user, size_t size,
			  loff_t *position)
{
	void *entry = ((struct seq_file *)file->private_data)->private;
	const struct cgpu_core_ops *core;
	char *text;
	int err;

	if (size > WRITE_MAX)
		return -EINVAL;
	text = memdup_user_nul(user, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	core = cgpu_core_enter(&cgpu_calls);
	err = core ? core->node_write(entry, text, size) : -ENODEV;
	cgpu_core_leave(&cgpu_calls);
	kfree(text);
	return err ? err : size;
}

static void let_go(void *entry)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);

	/* pinned, so there is one */
	if (!WARN_ON_ONCE(!core))
		core->node_release(entry);
	cgpu_core_leave(&cgpu_calls);
	cgpu_core_unpin();
}

static int node_release(struct inode *inode, struct file *file)
{
	void *entry = ((struct seq_file *)file->private_data)->private;

	single_release(inode, file);
	let_go(entry);
	return 0;
}

static const struct file_operations open_ops = {
	.owner = THIS_MODULE, /* until this file's release has returned */
	.read = seq_read,
	.write = node_write,
	.llseek = seq_lseek,
	.release = node_release,
};

/* Return: 0, and let_go() ends it; -errno. */
static int take(void *entry, bool write)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);
	int err = -ENODEV;

	if (core && cgpu_core_pin_state()) {
		err = core->node_open(entry, write);
		if (err)
			cgpu_core_unpin();
	}
	cgpu_core_leave(&cgpu_calls);
	return err;
}

static int node_open(struct inode *inode, struct file *file)
{
	void *entry = pde_data(inode);
	int err = take(entry, file->f_mode & FMODE_WRITE);

	if (err)
		return err;
	err = single_open(file, node_show, entry);
	if (err)
		let_go(entry);
	else
		replace_fops(file, fops_get(&open_ops));
	return err;
}

const struct proc_ops cgpu_door_node_ops = {
	.proc_open = node_open,
	.proc_lseek = seq_lseek, /* without it procfs takes seeking from the file */
};
EXPORT_SYMBOL_GPL(cgpu_door_node_ops);

int cgpu_door_tree_init(void)
{
	root = proc_mkdir("cgpu_km", NULL);
	return root ? 0 : -ENOMEM;
}

void cgpu_door_tree_exit(void)
{
	proc_remove(root);
}
