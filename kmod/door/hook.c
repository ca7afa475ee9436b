// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver compares a file's f_op with its own table, so the table stays
 * and the pointers in it are replaced. Files that were open before are
 * covered too. The RM driver's table is writable; UVM's is const and is
 * written through an alias mapping of its page.
 *
 * What a call means is the core's: it is asked before and after the driver's
 * own work, and nothing of it is held meanwhile.
 *
 * Unhooking: the pointers are restored first (only if still ours), then two
 * waits. SRCU covers who is inside a wrapper; RCU-tasks covers who has loaded
 * our pointer and not yet entered, or has left the SRCU section and not yet
 * returned: neither sleeps in between.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/srcu.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "core_drain.h"
#include "descriptor.h"
#include "dmabuf.h"
#include "events.h"
#include "hook.h"

enum { NV_MAJOR = 195 };

DEFINE_STATIC_SRCU(hook_srcu);
static DEFINE_MUTEX(attach_lock);

/* One patched table. Originals are written before the pointers are. */
struct target {
	const char *path;
	const char *module;
	struct file_operations *fops; /* NULL: not hooked */
	struct file_operations original;
	const struct file_operations *replacement;
};

static long nv_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
static long nv_compat_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
static int nv_open(struct inode *inode, struct file *file);
static int nv_release(struct inode *inode, struct file *file);
static long uvm_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
static long uvm_compat_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
static int uvm_open(struct inode *inode, struct file *file);
static int uvm_release(struct inode *inode, struct file *file);
static int uvm_mmap(struct file *file, struct vm_area_struct *vma);

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

static struct target nv_target = {
	.path = "/dev/nvidiactl", .module = "nvidia", .replacement = &nv_replacement,
};
static struct target uvm_target = {
	.path = "/dev/nvidia-uvm", .module = "nvidia_uvm", .replacement = &uvm_replacement,
};

static char driver_version[64];

/* ----------------------------------------------------------- patching */

/*
 * Writes one pointer into a table that may be read-only: its page is plain
 * memory, so a second, writable mapping of it does. The pointers of a table
 * are naturally aligned, hence in one page each.
 */
static int write_pointer(void *where, const void *value)
{
	unsigned long address = (unsigned long)where;
	struct page *page = vmalloc_to_page((void *)(address & PAGE_MASK));
	u8 *alias;

	if (!page)
		return -EFAULT;
	alias = vmap(&page, 1, VM_MAP, PAGE_KERNEL);
	if (!alias)
		return -ENOMEM;
	WRITE_ONCE(*(const void **)(alias + offset_in_page(address)), value);
	vunmap(alias);
	return 0;
}

/* the slots of struct file_operations that a replacement may fill */
static const size_t slots[] = {
	offsetof(struct file_operations, open),
	offsetof(struct file_operations, release),
	offsetof(struct file_operations, unlocked_ioctl),
	offsetof(struct file_operations, compat_ioctl),
	offsetof(struct file_operations, mmap),
};

static void **slot_of(const struct file_operations *fops, size_t offset)
{
	return (void **)((u8 *)fops + offset);
}

static void target_restore(struct target *target)
{
	size_t i;

	if (!target->fops)
		return;
	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		void *ours = *slot_of(target->replacement, slots[i]);
		void **there = slot_of(target->fops, slots[i]);

		if (!ours || !*slot_of(&target->original, slots[i]))
			continue;
		if (READ_ONCE(*there) != ours)
			pr_warn("cgpu: somebody hooked %s after us; leaving that pointer\n",
				target->module);
		else
			write_pointer(there, *slot_of(&target->original, slots[i]));
	}
	target->fops = NULL;
}

static int target_patch(struct target *target, const struct file_operations *fops)
{
	size_t i;
	int err;

	if (!fops->owner)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		void *there = *slot_of(fops, slots[i]);

		if (*slot_of(target->replacement, slots[i]) && there &&
		    !within_module((unsigned long)there, fops->owner)) {
			pr_err("cgpu: %s: a pointer of the driver lies outside its module: hooked by somebody else\n",
			       target->module);
			return -EINVAL;
		}
	}
	target->original = *fops;
	target->fops = (struct file_operations *)fops;
	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		void *ours = *slot_of(target->replacement, slots[i]);

		/* what the driver does not serve stays unserved */
		if (!ours || !*slot_of(&target->original, slots[i]))
			continue;
		err = write_pointer(slot_of(fops, slots[i]), ours);
		if (err) {
			target_restore(target);
			return err;
		}
	}
	return 0;
}

/*
 * Opening a stale device node would make the kernel load the driver again, so
 * nothing is opened unless the module is there.
 */
static bool is_loaded(const struct target *target)
{
	char name[64];
	struct path path;

	snprintf(name, sizeof(name), "/sys/module/%s/initstate", target->module);
	if (kern_path(name, LOOKUP_FOLLOW, &path))
		return false;
	path_put(&path);
	return true;
}

/* Opens a device of the driver and looks at the table behind it. */
static int target_attach(struct target *target)
{
	struct file *file;
	int err;

	if (target->fops)
		return 0;
	if (!is_loaded(target))
		return -ENODEV;
	file = filp_open(target->path, O_RDWR, 0);
	if (IS_ERR(file))
		return -ENODEV;
	if (file->f_op->owner && !strcmp(module_name(file->f_op->owner), target->module))
		err = target_patch(target, file->f_op);
	else
		err = -ENODEV; /* some other device by that name */
	filp_close(file, NULL);
	return err;
}

/*
 * The version as the module itself carries it: needs no file and no ioctl,
 * and is the same string that CHECK_VERSION_STR compares.
 */
static int read_driver_version(struct module *driver, const struct cgpu_core_ops *core)
{
	int err;

	if (!driver || !driver->version)
		return -EOPNOTSUPP;
	strscpy(driver_version, driver->version, sizeof(driver_version));
	err = core->driver_known(driver_version);
	if (err)
		pr_err_once("cgpu: driver %s: branch not known; load with force_branch=1 to use the nearest older layouts\n",
			    driver_version);
	return err;
}

/* Context: attach_lock. */
static int attach_rm(const struct cgpu_core_ops *core)
{
	struct file *file;
	int err;

	if (!is_loaded(&nv_target))
		return -ENODEV;
	file = filp_open(nv_target.path, O_RDWR, 0);
	if (IS_ERR(file))
		return -ENODEV;
	err = read_driver_version(file->f_op->owner, core);
	filp_close(file, NULL);
	if (!err)
		err = target_attach(&nv_target);
	if (err) {
		driver_version[0] = '\0';
		return err;
	}
	cgpu_descriptor_attach();
	pr_info("cgpu: attached to NVIDIA driver %s\n", driver_version);
	cgpu_event("attach driver %s", driver_version);
	core->driver_changed(CGPU_DRIVER_RM, true);
	return 0;
}

static int attach(const struct cgpu_core_ops *core)
{
	int err = 0;

	mutex_lock(&attach_lock);
	if (!nv_target.fops)
		err = attach_rm(core);
	if (!err && !uvm_target.fops && !target_attach(&uvm_target)) {
		pr_info("cgpu: attached to nvidia-uvm\n");
		core->driver_changed(CGPU_DRIVER_UVM, true);
	}
	mutex_unlock(&attach_lock);
	return err;
}

int cgpu_door_attach(void)
{
	/* the caller is the core in charge: it stays until we return */
	return attach(cgpu_core_in_charge());
}
EXPORT_SYMBOL_GPL(cgpu_door_attach);

const char *cgpu_door_driver_version(void)
{
	return driver_version;
}
EXPORT_SYMBOL_GPL(cgpu_door_driver_version);

bool cgpu_door_is_hooked(enum cgpu_driver driver)
{
	return (driver == CGPU_DRIVER_RM ? &nv_target : &uvm_target)->fops;
}
EXPORT_SYMBOL_GPL(cgpu_door_is_hooked);

long cgpu_door_driver_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct target *target = imajor(file_inode(file)) == NV_MAJOR ? &nv_target :
								      &uvm_target;

	return target->original.unlocked_ioctl(file, cmd, arg);
}
EXPORT_SYMBOL_GPL(cgpu_door_driver_ioctl);

/* ------------------------------------------------- driver comes and goes */

static void attach_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(attach_work, attach_work_fn);

static void attach_work_fn(struct work_struct *work)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);
	int err = core ? attach(core) : 0;

	cgpu_core_leave(&cgpu_calls);
	/* the device nodes are made by user space some time after the module */
	if (core && ((err == -ENODEV && is_loaded(&nv_target)) ||
		     (!uvm_target.fops && is_loaded(&uvm_target))))
		schedule_delayed_work(&attach_work, HZ / 4);
}

void cgpu_hook_look(void)
{
	schedule_delayed_work(&attach_work, HZ);
}

/* no file of it is open any more: nobody is inside, nothing to drain */
static void detach(struct target *target, enum cgpu_driver driver)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);

	mutex_lock(&attach_lock);
	target_restore(target);
	if (driver == CGPU_DRIVER_RM) {
		cgpu_descriptor_detach();
		cgpu_event("detach driver %s", driver_version);
		driver_version[0] = '\0';
	}
	mutex_unlock(&attach_lock);
	if (core)
		core->driver_changed(driver, false);
	cgpu_core_leave(&cgpu_calls);
}

static int on_module(struct notifier_block *block, unsigned long state, void *data)
{
	struct module *module = data;
	bool nv = !strcmp(module_name(module), nv_target.module);
	bool uvm = !strcmp(module_name(module), uvm_target.module);

	if (!nv && !uvm)
		return NOTIFY_DONE;
	if (state == MODULE_STATE_LIVE)
		schedule_delayed_work(&attach_work, 0);
	else if (state == MODULE_STATE_GOING && nv)
		detach(&nv_target, CGPU_DRIVER_RM);
	else if (state == MODULE_STATE_GOING)
		detach(&uvm_target, CGPU_DRIVER_UVM);
	return NOTIFY_OK;
}

static struct notifier_block module_block = { .notifier_call = on_module };

/* ---------------------------------------------------------------- open */

static int hooked_open(struct target *target, struct inode *inode, struct file *file,
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
	int err = hooked_open(&nv_target, inode, file, CGPU_DRIVER_RM);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

static int uvm_open(struct inode *inode, struct file *file)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_open(&uvm_target, inode, file, CGPU_DRIVER_UVM);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

/* ------------------------------------------------------------- release */

static int hooked_release(struct target *target, struct inode *inode, struct file *file)
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
	int err = hooked_release(&nv_target, inode, file);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

static int uvm_release(struct inode *inode, struct file *file)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_release(&uvm_target, inode, file);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
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

static long ask_driver(struct cgpu_pass *pass)
{
	struct cgpu_descriptor_watch descriptor;
	struct cgpu_dmabuf_watch dmabuf;
	long result;

	if (pass->names)
		cgpu_descriptor_begin(&descriptor, pass->named);
	if (pass->exports)
		cgpu_dmabuf_begin(&dmabuf);
	result = pass->driver(pass->file, pass->cmd, pass->arg);
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
	} while (fault_in(&pass));
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
	} while (fault_in(&pass));
	return pass.result;
}

static long nv_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	int idx = srcu_read_lock(&hook_srcu);
	long ret = hooked_ioctl(file, cmd, arg, nv_target.original.unlocked_ioctl);

	srcu_read_unlock(&hook_srcu, idx);
	return ret;
}

static long nv_compat_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	int idx = srcu_read_lock(&hook_srcu);
	long ret = hooked_ioctl(file, cmd, arg, nv_target.original.compat_ioctl);

	srcu_read_unlock(&hook_srcu, idx);
	return ret;
}

static long uvm_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	int idx = srcu_read_lock(&hook_srcu);
	long ret = hooked_ioctl(file, cmd, arg, uvm_target.original.unlocked_ioctl);

	srcu_read_unlock(&hook_srcu, idx);
	return ret;
}

static long uvm_compat_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	int idx = srcu_read_lock(&hook_srcu);
	long ret = hooked_ioctl(file, cmd, arg, uvm_target.original.compat_ioctl);

	srcu_read_unlock(&hook_srcu, idx);
	return ret;
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
	err = uvm_target.original.mmap(file, vma);
	if (err && token) {
		core = cgpu_core_enter(&cgpu_maps);
		core->mmap_undo(token, start, length_bytes);
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

static void on_mm_release(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	tell_unmapped(notifier, 0, U64_MAX);
}

static const struct mmu_notifier_ops notifier_ops = {
	.invalidate_range_end = on_invalidate_end,
	.release = on_mm_release,
};

int cgpu_door_watch_mm(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	notifier->ops = &notifier_ops;
	return mmu_notifier_register(notifier, mm);
}
EXPORT_SYMBOL_GPL(cgpu_door_watch_mm);

/* ---------------------------------------------------------------- init */

int cgpu_hook_init(void)
{
	return register_module_notifier(&module_block);
}

void cgpu_hook_exit(void)
{
	unregister_module_notifier(&module_block);
	cancel_delayed_work_sync(&attach_work);
	mutex_lock(&attach_lock);
	target_restore(&uvm_target);
	target_restore(&nv_target);
	mutex_unlock(&attach_lock);
	synchronize_srcu(&hook_srcu);
	synchronize_rcu_tasks();
	cgpu_descriptor_detach();
}
