// SPDX-License-Identifier: GPL-2.0-only
/*
 * The core decides what a call means: it is asked before and after the driver's own work, and none
 * of its locks is held meanwhile. Every function here is inside an SRCU section, so that unhooking
 * can wait for it.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/srcu.h>

#include "../compat/compat.h"
#include "core_drain.h"
#include "descriptor.h"
#include "dmabuf.h"
#include "fops.h"
#include "scratch.h"

enum { MOMENT_MS = 50 };

DEFINE_STATIC_SRCU(hook_srcu);

/* ---------------------------------------------------------------- open */

static int hooked_open(struct cgpu_target *target, struct inode *inode, struct file *file,
		       enum cgpu_driver driver)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);
	u32 minor = iminor(inode);
	void *token = NULL;
	int err = core ? core->open_pre(driver, minor, &token) : 0;

	cgpu_core_leave(&cgpu_calls);
	if (err)
		return err;
	err = target->original.open(inode, file);
	if (token) {
		int opened = err;

		core = cgpu_core_enter(&cgpu_calls);
		err = core->open_post(token, file, driver, minor, opened);
		cgpu_core_leave(&cgpu_calls);
		if (err && !opened)
			target->original.release(inode, file);
	}
	return err;
}

static int nv_open(struct inode *inode, struct file *file)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_open(&cgpu_rm_target, inode, file, CGPU_DRIVER_RM);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

static int uvm_open(struct inode *inode, struct file *file)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_open(&cgpu_uvm_target, inode, file, CGPU_DRIVER_UVM);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

static int tools_open(struct inode *inode, struct file *file)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_open(&cgpu_tools_target, inode, file, CGPU_DRIVER_TOOLS);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

/* ------------------------------------------------------------- release */

static int hooked_release(struct cgpu_target *target, struct inode *inode, struct file *file)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);
	void *token = core ? core->release_pre(file) : NULL;
	int err;

	cgpu_core_leave(&cgpu_calls);
	err = target->original.release(inode, file);
	if (token) {
		/* only now is the memory of the file's clients free again */
		core = cgpu_core_enter(&cgpu_calls);
		core->release_post(token);
		cgpu_core_leave(&cgpu_calls);
	}
	return err;
}

static int nv_release(struct inode *inode, struct file *file)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_release(&cgpu_rm_target, inode, file);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

static int uvm_release(struct inode *inode, struct file *file)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_release(&cgpu_uvm_target, inode, file);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

/* ------------------------------------------------------------ what goes */

static void tell_unmapped(struct mmu_notifier *notifier, u64 start, u64 length_bytes)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_maps);

	if (core)
		core->unmapped(notifier, start, length_bytes);
	cgpu_core_leave(&cgpu_maps);
}

static void on_invalidate_end(struct mmu_notifier *notifier,
			      const struct mmu_notifier_range *range)
{
	/* not blockable: the OOM reaper, whose victim's mm is about to go anyway */
	if (range->event == MMU_NOTIFY_UNMAP && mmu_notifier_range_blockable(range))
		tell_unmapped(notifier, range->start, range->end - range->start);
}

/* No release: at the end of an mm it comes first, when nothing has been unmapped yet. */
static const struct mmu_notifier_ops notifier_ops = {
	.invalidate_range_end = on_invalidate_end,
};

static int watch_mm(struct mmu_notifier *notifier)
{
	notifier->ops = &notifier_ops;
	return mmu_notifier_register(notifier, current->mm);
}

/* --------------------------------------------------------------- ioctl */

/* Return: true: the core shall be asked again. */
static bool fault_in(struct cgpu_pass *pass)
{
	size_t bytes = pass->fault_bytes;

	if (!bytes)
		return false;
	pass->fault_bytes = 0;
	pass->unreachable = pass->fault_write ?
		fault_in_writeable(pass->fault_at, bytes) :
		fault_in_readable(pass->fault_at, bytes);
	/* memory so short that pages go again before they are used */
	if (fatal_signal_pending(current))
		pass->unreachable = true;
	return true;
}

/* Return: true: the core shall be asked again, if only to be told that this ends. */
static bool prepare(struct cgpu_pass *pass)
{
	if (pass->wants_time) {
		pass->wants_time = false;
		schedule_timeout_killable(msecs_to_jiffies(MOMENT_MS));
		if (fatal_signal_pending(current))
			pass->given_up = -EINTR;
		return true;
	}
	if (!pass->wants_scratch)
		return fault_in(pass);
	pass->wants_scratch = false;
	pass->given_up = cgpu_scratch_add();
	return true;
}

/* Return: as prepare(). */
static bool finish(struct cgpu_pass *pass)
{
	if (!pass->watch)
		return fault_in(pass);
	pass->watched = watch_mm(pass->watch);
	pass->watch = NULL;
	return true;
}

static long ask_driver(struct cgpu_pass *pass)
{
	struct cgpu_descriptor_watch descriptor;
	struct cgpu_dmabuf_watch dmabuf;
	long result;

	if (pass->names) {
		result = cgpu_descriptor_begin(&descriptor, pass->named);
		if (result)
			return result;
		pass->followed = descriptor.followed;
	}
	if (pass->exports)
		cgpu_dmabuf_begin(&dmabuf);
	result = pass->scratch ?
		cgpu_scratch_ask(pass->scratch, pass->driver, pass->file, pass->cmd) :
		pass->driver(pass->file, pass->cmd, pass->arg);
	if (pass->exports)
		pass->exported = cgpu_dmabuf_end(&dmabuf);
	if (pass->names)
		cgpu_descriptor_end(&descriptor);
	return result;
}

static long hooked_ioctl(struct file *file, unsigned int cmd, unsigned long arg,
			 cgpu_ioctl_fn original)
{
	struct cgpu_pass pass = { .file = file, .cmd = cmd, .arg = arg, .driver = original };
	const struct cgpu_core_ops *core;

	do {
		core = cgpu_core_enter(&cgpu_calls);
		if (core)
			core->ioctl_pre(&pass);
		cgpu_core_leave(&cgpu_calls);
	} while (prepare(&pass));
	if (!pass.answered)
		pass.result = ask_driver(&pass);
	if (!pass.token)
		return pass.result;
	pass.unreachable = false;
	do {
		/* a container's: without a core it would not exist */
		core = cgpu_core_enter(&cgpu_calls);
		core->ioctl_post(&pass);
		cgpu_core_leave(&cgpu_calls);
	} while (finish(&pass));
	return pass.result;
}

static long inside(struct file *file, unsigned int cmd, unsigned long arg,
		   const cgpu_ioctl_fn *original)
{
	int idx = srcu_read_lock(&hook_srcu);
	long ret = hooked_ioctl(file, cmd, arg, *original);

	srcu_read_unlock(&hook_srcu, idx);
	return ret;
}

static long nv_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return inside(file, cmd, arg, &cgpu_rm_target.original.unlocked_ioctl);
}

static long nv_compat_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return inside(file, cmd, arg, &cgpu_rm_target.original.compat_ioctl);
}

static long uvm_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return inside(file, cmd, arg, &cgpu_uvm_target.original.unlocked_ioctl);
}

static long uvm_compat_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return inside(file, cmd, arg, &cgpu_uvm_target.original.compat_ioctl);
}

static long tools_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return inside(file, cmd, arg, &cgpu_tools_target.original.unlocked_ioctl);
}

static long tools_compat_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return inside(file, cmd, arg, &cgpu_tools_target.original.compat_ioctl);
}

/* ---------------------------------------------------------------- mmap */

/* Context: mmap_lock held for writing. */
static int hooked_mmap(struct file *file, struct vm_area_struct *vma)
{
	u64 length_bytes = vma->vm_end - vma->vm_start;
	u64 start = vma->vm_start;
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_maps);
	void *token = NULL;
	int err = core ? core->mmap_pre(file, start, length_bytes,
					(u64)vma->vm_pgoff << PAGE_SHIFT, &token) : 0;

	cgpu_core_leave(&cgpu_maps);
	if (err)
		return err;
	err = cgpu_uvm_target.original.mmap(file, vma);
	if (token) {
		core = cgpu_core_enter(&cgpu_maps);
		core->mmap_post(token, start, length_bytes, !err);
		cgpu_core_leave(&cgpu_maps);
	}
	return err;
}

static int uvm_mmap(struct file *file, struct vm_area_struct *vma)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_mmap(file, vma);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

/* -------------------------------------------------------------- the tables */

static const struct file_operations nv_replacement = {
	.open = nv_open,
	.release = nv_release,
	.unlocked_ioctl = nv_unlocked_ioctl,
	.compat_ioctl = nv_compat_ioctl,
};

static const struct file_operations uvm_replacement = {
	.open = uvm_open,
	.release = uvm_release,
	.unlocked_ioctl = uvm_unlocked_ioctl,
	.compat_ioctl = uvm_compat_ioctl,
	.mmap = uvm_mmap,
};

/* No container has a file of it, so that none is followed to its end; it maps nothing. */
static const struct file_operations tools_replacement = {
	.open = tools_open,
	.unlocked_ioctl = tools_unlocked_ioctl,
	.compat_ioctl = tools_compat_ioctl,
};

struct cgpu_target cgpu_rm_target = {
	.path = "/dev/nvidiactl", .module = "nvidia", .replacement = &nv_replacement,
};
struct cgpu_target cgpu_uvm_target = {
	.path = "/dev/nvidia-uvm", .module = "nvidia_uvm", .replacement = &uvm_replacement,
};
struct cgpu_target cgpu_tools_target = {
	.path = "/dev/nvidia-uvm-tools", .module = "nvidia_uvm",
	.replacement = &tools_replacement,
};

void cgpu_fops_drain(void)
{
	synchronize_srcu(&hook_srcu);
	synchronize_rcu_tasks();
}
