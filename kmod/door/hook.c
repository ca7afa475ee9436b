// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver's tables are hooked once its modules are there and the core knows their version, until
 * they go or we do. Unhooking restores the pointers first (only if still ours) and then waits until
 * no task is inside.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/namei.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "../compat/compat.h"
#include "answer.h"
#include "core_drain.h"
#include "descriptor.h"
#include "events.h"
#include "fops.h"
#include "gap.h"
#include "hook.h"

static DEFINE_MUTEX(attach_lock);

static char driver_version[64];

/* -------------------------------------------------------------- attaching */

/*
 * Opening a stale device node would make the kernel load the driver again, so
 * nothing is opened unless the module is there.
 */
static bool is_loaded(const struct cgpu_target *target)
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
static int target_attach(struct cgpu_target *target)
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
	if (file->f_op->owner && !strcmp(module_name(file->f_op->owner), target->module)) {
		target->major = imajor(file_inode(file));
		err = cgpu_target_patch(target, file->f_op);
	} else {
		err = -ENODEV; /* some other device by that name */
	}
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
		pr_err_once("cgpu: driver %s: branch not known, no card is under control; of one newer than all known unknown_driver=newest checks whether it has the newest layouts\n",
			    driver_version);
	return err;
}

/* Context: attach_lock. */
static int attach_rm(const struct cgpu_core_ops *core)
{
	struct file *file;
	int err;

	if (!is_loaded(&cgpu_rm_target))
		return -ENODEV;
	file = filp_open(cgpu_rm_target.path, O_RDWR, 0);
	if (IS_ERR(file))
		return -ENODEV;
	err = read_driver_version(file->f_op->owner, core);
	filp_close(file, NULL);
	if (!err)
		err = target_attach(&cgpu_rm_target);
	if (err) {
		driver_version[0] = '\0';
		return err;
	}
	cgpu_gap_end(&cgpu_rm_target);
	cgpu_descriptor_attach();
	cgpu_answer_attach(false);
	pr_info("cgpu: attached to NVIDIA driver %s\n", driver_version);
	cgpu_event("attach driver %s", driver_version);
	core->driver_changed(CGPU_DRIVER_RM, true);
	return 0;
}

/* A node with an old number would have the kernel look for a module, each time again. */
static bool has_tools_node(void)
{
	const struct inode *inode;
	struct path path;
	bool has;

	if (kern_path(cgpu_tools_target.path, LOOKUP_FOLLOW, &path))
		return false;
	inode = d_inode(path.dentry);
	has = S_ISCHR(inode->i_mode) &&
	      inode->i_rdev == MKDEV(cgpu_uvm_target.major, CGPU_TOOLS_MINOR);
	path_put(&path);
	return has;
}

/*
 * UVM's second device, with a table of its own. Its node may come later than UVM's, or
 * never: until then containers do not open it.
 *
 * Context: attach_lock; UVM is hooked.
 */
static void attach_tools(void)
{
	if (has_tools_node() && !target_attach(&cgpu_tools_target))
		cgpu_gap_end(&cgpu_tools_target);
	else if (!cgpu_tools_target.gap)
		cgpu_gap_begin(&cgpu_tools_target);
}

/* Context: attach_lock. */
static void attach_uvm(const struct cgpu_core_ops *core)
{
	bool hooked = cgpu_uvm_target.fops;

	if (!hooked && target_attach(&cgpu_uvm_target))
		return;
	if (!cgpu_tools_target.fops)
		attach_tools();
	if (hooked)
		return;
	/* only now: what is still to be hooked has a gap of its own */
	cgpu_gap_end(&cgpu_uvm_target);
	cgpu_answer_attach(true);
	pr_info("cgpu: attached to nvidia-uvm\n");
	core->driver_changed(CGPU_DRIVER_UVM, true);
}

static int attach(const struct cgpu_core_ops *core)
{
	int err = 0;

	mutex_lock(&attach_lock);
	if (!cgpu_rm_target.fops)
		err = attach_rm(core);
	if (!err)
		attach_uvm(core);
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
	static const struct cgpu_target *const targets[] = {
		[CGPU_DRIVER_RM] = &cgpu_rm_target,
		[CGPU_DRIVER_UVM] = &cgpu_uvm_target,
		[CGPU_DRIVER_TOOLS] = &cgpu_tools_target,
	};

	return targets[driver]->fops;
}
EXPORT_SYMBOL_GPL(cgpu_door_is_hooked);

long cgpu_door_driver_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	/* it was opened by a name in /dev, which a task with its own mount namespace can choose */
	if (file->f_op != READ_ONCE(cgpu_rm_target.fops))
		return -ENODEV;
	return cgpu_rm_target.original.unlocked_ioctl(file, cmd, arg);
}
EXPORT_SYMBOL_GPL(cgpu_door_driver_ioctl);

/* ------------------------------------------------- driver comes and goes */

static void attach_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(attach_work, attach_work_fn);

/* Return: there is a driver whose nodes user space has yet to make. */
static bool attach_now(void)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);
	int err = core ? attach(core) : 0;

	cgpu_core_leave(&cgpu_calls);
	return core && ((err == -ENODEV && is_loaded(&cgpu_rm_target)) ||
			((!cgpu_uvm_target.fops || !cgpu_tools_target.fops) &&
			 is_loaded(&cgpu_uvm_target)));
}

static void attach_work_fn(struct work_struct *work)
{
	bool again = false;

	scoped_with_init_fs()
		again = attach_now();
	if (again)
		schedule_delayed_work(&attach_work, HZ / 4);
}

/* Its module came before ours, and its device nodes have not come yet. */
static void begin_gap(struct cgpu_target *target)
{
	mutex_lock(&attach_lock);
	if (!target->fops && is_loaded(target))
		cgpu_gap_begin(target);
	mutex_unlock(&attach_lock);
}

void cgpu_hook_look(void)
{
	begin_gap(&cgpu_rm_target);
	begin_gap(&cgpu_uvm_target);
	schedule_delayed_work(&attach_work, HZ);
}

/* no file of it is open any more: no task is inside, nothing to drain */
static void detach(struct cgpu_target *target, enum cgpu_driver driver)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);

	mutex_lock(&attach_lock);
	if (driver == CGPU_DRIVER_UVM) {
		cgpu_target_restore(&cgpu_tools_target);
		cgpu_gap_end(&cgpu_tools_target);
	}
	cgpu_target_restore(target);
	cgpu_gap_end(target);
	cgpu_answer_detach(driver == CGPU_DRIVER_UVM);
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
	bool nv = !strcmp(module_name(module), cgpu_rm_target.module);
	bool uvm = !strcmp(module_name(module), cgpu_uvm_target.module);

	if (!nv && !uvm)
		return NOTIFY_DONE;
	/* before it registers a device; without attach_lock, whose holder may load it */
	if (state == MODULE_STATE_COMING)
		cgpu_gap_begin(nv ? &cgpu_rm_target : &cgpu_uvm_target);
	else if (state == MODULE_STATE_LIVE)
		schedule_delayed_work(&attach_work, 0);
	else if (state == MODULE_STATE_GOING && nv)
		detach(&cgpu_rm_target, CGPU_DRIVER_RM);
	else if (state == MODULE_STATE_GOING)
		detach(&cgpu_uvm_target, CGPU_DRIVER_UVM);
	return NOTIFY_OK;
}

static struct notifier_block module_block = { .notifier_call = on_module };

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
	cgpu_target_restore(&cgpu_tools_target);
	cgpu_target_restore(&cgpu_uvm_target);
	cgpu_target_restore(&cgpu_rm_target);
	mutex_unlock(&attach_lock);
	cgpu_gap_end(&cgpu_tools_target);
	cgpu_gap_end(&cgpu_uvm_target);
	cgpu_gap_end(&cgpu_rm_target);
	cgpu_fops_drain();
	cgpu_descriptor_exit();
	cgpu_answer_exit();
}
