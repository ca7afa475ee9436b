// SPDX-License-Identifier: GPL-2.0-only
/*
 * Engines mount /sys read-only, yet root maps a BAR by a card's file that is open for reading:
 * registers, and any tenant's memory that BAR1 shows. They mount /proc writable, where the driver
 * checks no writer. Its files set how it begins next (registry), whether a card can be opened
 * (unbindLock) and which processes get a capability. Our runtime masks all that and a hook cannot,
 * so the kernel's own functions refuse it here. A process with raw I/O on the host, such as a
 * privileged container's, is let through.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/init_task.h>
#include <linux/kernel.h>
#include <linux/mm_types.h>
#include <linux/nsproxy.h>
#include <linux/pci.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/ratelimit.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "bars.h"
#include "door.h"
#include "entry.h"
#include "events.h"

static bool probed;

/* ------------------------------------------------------------------- who */

/*
 * A container in all other namespaces of the host still has its own mount namespace. Its root
 * directory, which cgpu_door_in_container() checks, is not looked at: that takes a lock.
 */
static bool has_own_mounts(void)
{
	return current->nsproxy && current->nsproxy->mnt_ns != init_task.nsproxy->mnt_ns;
}

/* Checks the credentials and not the LSMs, which may sleep. */
static bool may_do_raw_io(void)
{
	return current_user_ns() == &init_user_ns && cap_raised(current_cap(), CAP_SYS_RAWIO);
}

static bool is_held_off(void)
{
	return !may_do_raw_io() && (cgpu_door_has_namespaces() || has_own_mounts());
}

/* ------------------------------------------- in the place of what is refused */

static noinline notrace long refuse(const struct file *file)
{
	static DEFINE_RATELIMIT_STATE(refusals, HZ, 10);

	if (__ratelimit(&refusals))
		cgpu_event("refused pid=%d file=%pD3", task_tgid_nr(current), file);
	return -EPERM;
}

static noinline notrace int refuse_map(struct pci_dev *device, int bar,
				       const struct vm_area_struct *vma)
{
	return refuse(vma->vm_file);
}

static noinline notrace int refuse_open(struct inode *inode, const struct file *file)
{
	return refuse(file);
}

/* --------------------------------------------------------------- entries */

/* pci_mmap_resource_range(device, bar, vma, ...) */
static bool on_map(struct pt_regs *regs)
{
	const struct pci_dev *device = (void *)regs_get_kernel_argument(regs, 0);

	if (device->vendor != PCI_VENDOR_ID_NVIDIA || !is_held_off())
		return false;
	instruction_pointer_set(regs, (unsigned long)refuse_map);
	return true;
}

/* What sysfs does with a file of a device: (file, kobj, ...) */
static bool on_file(struct pt_regs *regs)
{
	struct kobject *kobj = (void *)regs_get_kernel_argument(regs, 1);

	if (to_pci_dev(kobj_to_dev(kobj))->vendor != PCI_VENDOR_ID_NVIDIA || !is_held_off())
		return false;
	instruction_pointer_set(regs, (unsigned long)refuse);
	return true;
}

/* Is it below /proc/driver/nvidia or one of its neighbours? procfs renames nothing. */
static bool is_the_drivers(const struct dentry *dentry)
{
	const struct dentry *below = NULL, *name = NULL;

	for (; !IS_ROOT(dentry); dentry = READ_ONCE(dentry->d_parent)) {
		name = below;
		below = dentry;
	}
	return name && !strcmp(below->d_name.name, "driver") &&
	       strstarts(name->d_name.name, "nvidia");
}

/*
 * proc_reg_open(inode, file). The open is refused, because there the driver already takes 2 MiB for
 * what will be written.
 */
static bool on_open(struct pt_regs *regs)
{
	const struct file *file = (void *)regs_get_kernel_argument(regs, 1);

	if (likely(!(file->f_mode & FMODE_WRITE)) || !is_the_drivers(file->f_path.dentry) ||
	    !is_held_off())
		return false;
	instruction_pointer_set(regs, (unsigned long)refuse_open);
	return true;
}

static struct cgpu_entry entry[] = {
	{ "pci_mmap_resource_range", on_map },
	{ "proc_reg_open", on_open },
	/* a BAR of ports, which some cards have, is read and written and not mapped */
	{ "pci_read_resource_io", on_file, .optional = true },
	{ "pci_write_resource_io", on_file, .optional = true },
	/* pages of a BAR that UVM lends to other devices, from Linux 6.2 on */
	{ "p2pmem_alloc_mmap", on_file, .optional = true },
};
static struct cgpu_entries entries = { .entry = entry, .count = ARRAY_SIZE(entry) };

int cgpu_bars_init(void)
{
	const char *symbol;
	int err = cgpu_entries_follow(&entries, &symbol);

	probed = !err;
	if (err && !cgpu_entries_may_come(err))
		pr_warn("cgpu: %s cannot be probed (%d): root in a container maps a card's BARs by files of /sys, and writes the driver's registry\n",
			symbol, err);
	return cgpu_entries_may_come(err) ? err : 0;
}

void cgpu_bars_exit(void)
{
	if (!probed)
		return;
	cgpu_entries_leave(&entries);
	/* calls that were sent here and have not arrived, or not left */
	synchronize_rcu_tasks();
}
