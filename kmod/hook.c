// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver compares a file's f_op with its own table, so the table stays
 * and the pointers in it are replaced. Files that were open before are
 * covered too. The RM driver's table is writable; UVM's is const and is
 * written through an alias mapping of its page.
 *
 * A file belongs to the container whose process opened it; a table keyed by
 * struct file remembers that, since the driver owns private_data. Processes
 * of no container pass after one look-up.
 *
 * Unhooking: the pointers are restored first (only if still ours), then two
 * waits. SRCU covers who is inside a wrapper; RCU-tasks covers who has loaded
 * our pointer and not yet entered, or has left the SRCU section and not yet
 * returned: neither sleeps in between.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/namei.h>
#include <linux/rcupdate.h>
#include <linux/srcu.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "call_user.h"
#include "container.h"
#include "core/nodes.h"
#include "discover.h"
#include "events.h"
#include "hook.h"
#include "open_file.h"
#include "procfs.h"

enum {
	NV_MAJOR = 195,
	NV_MINOR_CTL = 255,
};

static bool force_branch;
module_param(force_branch, bool, 0444);
MODULE_PARM_DESC(force_branch, "attach to a driver branch nobody has verified, with the layouts of the nearest older one");

DEFINE_STATIC_SRCU(hook_srcu);
static DEFINE_MUTEX(attach_lock);

typedef long (*ioctl_fn)(struct file *, unsigned int, unsigned long);

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

static struct cgpu_abi abi;
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
static int read_driver_version(struct module *driver)
{
	if (!driver || !driver->version)
		return -EOPNOTSUPP;
	strscpy(driver_version, driver->version, sizeof(driver_version));
	return cgpu_abi_find(driver_version, force_branch, &abi);
}

int cgpu_hook_attach(void)
{
	struct file *file;
	int err = 0;

	mutex_lock(&attach_lock);
	if (!nv_target.fops) {
		if (!is_loaded(&nv_target)) {
			err = -ENODEV;
			goto out;
		}
		file = filp_open(nv_target.path, O_RDWR, 0);
		if (IS_ERR(file)) {
			err = -ENODEV;
			goto out;
		}
		err = read_driver_version(file->f_op->owner);
		filp_close(file, NULL);
		if (err) {
			pr_err_once("cgpu: driver %s: branch not known; load with force_branch=1 to use the nearest older layouts\n",
				    driver_version[0] ? driver_version : "without version");
			driver_version[0] = '\0';
			goto out;
		}
		err = target_attach(&nv_target);
		if (err) {
			driver_version[0] = '\0';
			goto out;
		}
		pr_info("cgpu: attached to NVIDIA driver %s (layouts of branch %u)\n",
			driver_version, abi.branch);
		cgpu_event("attach driver %s", driver_version);
		cgpu_procfs_set_feature(CGPU_FEATURE_MEMORY, true);
	}
	if (!uvm_target.fops && !target_attach(&uvm_target)) {
		pr_info("cgpu: attached to nvidia-uvm\n");
		cgpu_procfs_set_feature(CGPU_FEATURE_MANAGED, true);
	}
out:
	mutex_unlock(&attach_lock);
	return err;
}

const struct cgpu_abi *cgpu_hook_abi(void)
{
	return nv_target.fops ? &abi : NULL;
}

const char *cgpu_hook_driver_version(void)
{
	return driver_version;
}

long cgpu_hook_driver_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct target *target = imajor(file_inode(file)) == NV_MAJOR ? &nv_target :
								      &uvm_target;

	return target->original.unlocked_ioctl(file, cmd, arg);
}

/* ------------------------------------------------- driver comes and goes */

static void attach_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(attach_work, attach_work_fn);


static void attach_work_fn(struct work_struct *work)
{
	int err = cgpu_hook_attach();

	/* the device nodes are made by user space some time after the module */
	if ((err == -ENODEV && is_loaded(&nv_target)) ||
	    (!uvm_target.fops && is_loaded(&uvm_target)))
		schedule_delayed_work(&attach_work, HZ / 4);
}

static int on_module(struct notifier_block *block, unsigned long state, void *data)
{
	struct module *module = data;
	bool nv = !strcmp(module_name(module), nv_target.module);
	bool uvm = !strcmp(module_name(module), uvm_target.module);

	if (!nv && !uvm)
		return NOTIFY_DONE;
	if (state == MODULE_STATE_LIVE) {
		schedule_delayed_work(&attach_work, 0);
	} else if (state == MODULE_STATE_GOING) {
		/* no file of it is open any more: nobody is inside, nothing to drain */
		mutex_lock(&attach_lock);
		target_restore(nv ? &nv_target : &uvm_target);
		cgpu_procfs_set_feature(nv ? CGPU_FEATURE_MEMORY : CGPU_FEATURE_MANAGED, false);
		if (nv) {
			cgpu_event("detach driver %s", driver_version);
			driver_version[0] = '\0';
		}
		mutex_unlock(&attach_lock);
		if (nv) {
			cgpu_discover_forget();
			cgpu_registry_drop_cards();
		}
	}
	return NOTIFY_OK;
}

static struct notifier_block module_block = { .notifier_call = on_module };

/* ---------------------------------------------------------------- open */

static int hooked_open(struct target *target, struct inode *inode, struct file *file,
		       u32 device, u32 minor)
{
	struct cgpu_container *container;
	int err;

	container = cgpu_container_current();
	if (!container)
		return target->original.open(inode, file);

	/* a cgroup's processes may come and go between two looks of the reaper */
	WRITE_ONCE(container->populated, true);
	if (device == CGPU_DEVICE_GPU &&
	    (minor >= CGPU_MAX_CARDS || !READ_ONCE(container->grant[minor].present))) {
		/* also nvidia-modeset (535 serves it through the same table) */
		if (__ratelimit(&container->refusals))
			cgpu_event("refused id=%s open minor=%u", container->id, minor);
		cgpu_container_put(container);
		return -EACCES;
	}
	err = target->original.open(inode, file);
	if (!err) {
		err = cgpu_open_file_add(file, container, device, minor);
		if (err)
			target->original.release(inode, file);
	}
	cgpu_container_put(container);
	return err;
}

static int nv_open(struct inode *inode, struct file *file)
{
	u32 minor = iminor(inode);
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_open(&nv_target, inode, file,
			      minor == NV_MINOR_CTL ? CGPU_DEVICE_CTL : CGPU_DEVICE_GPU,
			      minor);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

static int uvm_open(struct inode *inode, struct file *file)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_open(&uvm_target, inode, file, CGPU_DEVICE_UVM, 0);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

/* ------------------------------------------------------------- release */

static int hooked_release(struct target *target, struct inode *inode, struct file *file)
{
	struct cgpu_open_file *open_file = cgpu_open_file_take(file);
	int err = target->original.release(inode, file);

	/* only now is the memory of the file's clients free again */
	if (open_file)
		cgpu_open_file_close(open_file);
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

/*
 * A file that no container opened, used by a process of one: opened by the
 * host before and handed in, or opened before the container was registered.
 * It would be a way around the ledger.
 */
static bool is_strangers(struct file *file)
{
	struct cgpu_container *container = cgpu_container_current();

	if (!container)
		return false;
	if (__ratelimit(&container->refusals))
		cgpu_event("refused id=%s file opened outside the container", container->id);
	cgpu_container_put(container);
	return true;
}

static long hooked_ioctl(struct file *file, unsigned int cmd, unsigned long arg,
			 ioctl_fn original)
{
	struct cgpu_open_file *open_file = cgpu_open_file_find(file);

	if (open_file)
		return cgpu_call_user(open_file, file, cmd, arg, original, &abi);
	if (is_strangers(file))
		return -EPERM;
	return original(file, cmd, arg);
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
	struct cgpu_open_file *open_file = cgpu_open_file_find(file);
	u64 length_bytes = vma->vm_end - vma->vm_start;
	u64 start = vma->vm_start;
	int err;

	if (!open_file)
		return is_strangers(file) ? -EPERM :
					    uvm_target.original.mmap(file, vma);
	/* UVM's rule for managed memory; it refuses everything else itself */
	if ((u64)vma->vm_pgoff << PAGE_SHIFT != start)
		return uvm_target.original.mmap(file, vma);
	err = cgpu_open_file_mmap(open_file, start, length_bytes);
	if (err)
		return err;
	err = uvm_target.original.mmap(file, vma);
	if (err)
		cgpu_open_file_munmap(open_file, start, length_bytes);
	return err;
}

static int uvm_mmap(struct file *file, struct vm_area_struct *vma)
{
	int idx = srcu_read_lock(&hook_srcu);
	int err = hooked_mmap(file, vma);

	srcu_read_unlock(&hook_srcu, idx);
	return err;
}

/* ---------------------------------------------------------------- init */

int cgpu_hook_init(void)
{
	int err = register_module_notifier(&module_block);

	if (err)
		return err;
	/* no driver yet is no error: the notifier, or create, attaches later */
	schedule_delayed_work(&attach_work, HZ);
	return 0;
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
}
