// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver registers its devices before its table can be found and hooked. A file that a container
 * opened then would be outside the limits. So until the driver is hooked, a probe where the kernel
 * opens character devices refuses containers those that may be the driver's. UVM's number is not
 * known before its device exists: each number that is given out on demand may be it. Once UVM is
 * hooked, only its second device is still refused, whose node may come later or never.
 */
#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/mutex.h>
#include <linux/printk.h>

#include "door.h"
#include "entry.h"
#include "gap.h"
#include "fops.h"

enum {
	NV_MAJOR = 195,
	/* char_dev.c: what alloc_chrdev_region() gives out */
	DYNAMIC_FIRST = 234,
	DYNAMIC_LAST = 254,
	DYNAMIC_MORE_FIRST = 384,
	DYNAMIC_MORE_LAST = 511,
};

#define ANY_DEVICE ((dev_t)~0U) /* that may be the driver's */

static DEFINE_MUTEX(gap_lock);
static bool probed;
static bool guarded; /* there is a container */
static dev_t waited_for; /* one, so that none is let through while it changes; 0: none */

/* Runs in the place of the function that opens. */
static noinline notrace int refuse(struct inode *inode, struct file *file)
{
	return -EAGAIN;
}

static bool may_be_the_drivers(unsigned int major)
{
	return major == NV_MAJOR || (major >= DYNAMIC_FIRST && major <= DYNAMIC_LAST) ||
	       (major >= DYNAMIC_MORE_FIRST && major <= DYNAMIC_MORE_LAST);
}

static bool is_waited_for(const struct inode *inode)
{
	dev_t device = READ_ONCE(waited_for);

	return device == ANY_DEVICE ? may_be_the_drivers(imajor(inode)) :
				      device && inode->i_rdev == device;
}

static bool on_open(struct pt_regs *regs)
{
	const struct inode *inode = (void *)regs_get_kernel_argument(regs, 0);

	if (!is_waited_for(inode) || !READ_ONCE(guarded) || !cgpu_door_has_namespaces())
		return false;
	instruction_pointer_set(regs, (unsigned long)refuse);
	return true;
}

static struct cgpu_entry entry = { .symbol = "chrdev_open", .handler = on_open };
static struct cgpu_entries entries = { .entry = &entry, .count = 1 };

/* Context: gap_lock. */
static void set_probe(void)
{
	const char *symbol;
	int err = cgpu_entries_follow(&entries, &symbol);

	probed = !err;
	if (err)
		pr_warn("cgpu: the opening of devices cannot be probed (%d): a container may open the driver's before they are hooked\n",
			err);
}

/* Context: gap_lock. */
static void wait_for_targets(void)
{
	dev_t device = 0;

	if (cgpu_rm_target.gap || cgpu_uvm_target.gap)
		device = ANY_DEVICE;
	else if (cgpu_tools_target.gap)
		device = MKDEV(cgpu_uvm_target.major, CGPU_TOOLS_MINOR);
	WRITE_ONCE(waited_for, device);
}

void cgpu_gap_guard(bool containers)
{
	WRITE_ONCE(guarded, containers);
}

void cgpu_gap_begin(struct cgpu_target *target)
{
	mutex_lock(&gap_lock);
	target->gap = true;
	wait_for_targets();
	if (!probed)
		set_probe();
	mutex_unlock(&gap_lock);
}

void cgpu_gap_end(struct cgpu_target *target)
{
	mutex_lock(&gap_lock);
	target->gap = false;
	wait_for_targets();
	if (probed && !waited_for) {
		cgpu_entries_leave(&entries);
		probed = false;
	}
	mutex_unlock(&gap_lock);
}
