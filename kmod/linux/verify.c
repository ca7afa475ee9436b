// SPDX-License-Identifier: GPL-2.0-only
/*
 * The check makes the calls of a process. They need user memory with a defined end, which is mapped
 * for them in the caller's own address space.
 */
#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "core/rm/verify.h"
#include "core/tree/nodes.h"
#include "door/door.h"
#include "door/events.h"
#include "driver.h"
#include "registry.h"
#include "tree.h"
#include "verify.h"

/* Both pieces of memory end at a page that is not accessible. */
enum {
	ARGS_END = CGPU_VERIFY_ARGS_MAX,
	PARAMS_START = ARGS_END + PAGE_SIZE,
	PARAMS_END = PARAMS_START + CGPU_PARAMS_MAX,
	AREA_BYTES = PARAMS_END + PAGE_SIZE,
};

struct trial {
	struct cgpu_verify verify;
	struct file *ctl, *uvm;
	unsigned long area;
	int gpu_fd;
};

static DEFINE_MUTEX(verify_lock);

static int map_piece(unsigned long address, unsigned long bytes, unsigned long protection,
		     unsigned long flags)
{
	unsigned long at = vm_mmap(NULL, address, bytes, protection,
				   MAP_PRIVATE | MAP_ANONYMOUS | flags, 0);

	return IS_ERR_VALUE(at) ? (int)at : 0;
}

static int map_area(struct trial *trial)
{
	unsigned long at = vm_mmap(NULL, 0, AREA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	int err;

	if (IS_ERR_VALUE(at))
		return (int)at;
	trial->area = at;
	err = map_piece(at, ARGS_END, PROT_READ | PROT_WRITE, MAP_FIXED);
	return err ?: map_piece(at + PARAMS_START, CGPU_PARAMS_MAX, PROT_READ | PROT_WRITE,
				MAP_FIXED);
}

static long ask(struct trial *trial)
{
	struct cgpu_verify *verify = &trial->verify;
	unsigned long args = trial->area + ARGS_END - verify->args_bytes;
	unsigned long params = trial->area + PARAMS_END - verify->params_bytes;
	bool uvm = verify->device == CGPU_DEVICE_UVM;
	long result;

	if (verify->wait_ms)
		msleep(verify->wait_ms);
	if (verify->params_ptr_offset)
		cgpu_put64(verify->args, verify->params_ptr_offset, params);
	if (copy_to_user((void __user *)args, verify->args, verify->args_bytes) ||
	    copy_to_user((void __user *)params, verify->params, verify->params_bytes))
		return -EIO;
	result = uvm ?
		trial->uvm->f_op->unlocked_ioctl(trial->uvm, verify->nr, args) :
		cgpu_door_driver_ioctl(trial->ctl, _IOC(_IOC_READ | _IOC_WRITE, 'F', verify->nr,
							verify->args_bytes), args);
	if (copy_from_user(verify->args, (void __user *)args, verify->args_bytes) ||
	    copy_from_user(verify->params, (void __user *)params, verify->params_bytes))
		return -EIO;
	return result;
}

static int open_driver(struct trial *trial)
{
	trial->ctl = filp_open("/dev/nvidiactl", O_RDWR, 0);
	if (IS_ERR(trial->ctl))
		return PTR_ERR(trial->ctl);
	trial->uvm = filp_open("/dev/nvidia-uvm", O_RDWR, 0);
	if (IS_ERR(trial->uvm))
		return PTR_ERR(trial->uvm);
	/* not some other device by that name */
	return trial->uvm->f_op->owner &&
	       !strcmp(module_name(trial->uvm->f_op->owner), "nvidia_uvm") ? 0 : -ENODEV;
}

/* The driver makes a device only for a process that has its card open. */
static int open_card(struct trial *trial, u32 minor)
{
	struct file *file;
	char path[32];

	snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
	file = filp_open(path, O_RDWR, 0);
	if (IS_ERR(file))
		return PTR_ERR(file);
	trial->gpu_fd = get_unused_fd_flags(O_CLOEXEC);
	if (trial->gpu_fd < 0) {
		filp_close(file, NULL);
		return trial->gpu_fd;
	}
	fd_install(trial->gpu_fd, file);
	return 0;
}

/* Return: its minor, -ENODEV: none has answered. */
static int any_card(u32 *device_instance)
{
	int minor, found = -ENODEV;

	rt_mutex_lock(&cgpu_registry->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS && found < 0; minor++) {
		const struct cgpu_gpu *gpu = &cgpu_registry->host.topology.gpu[minor];

		if (!gpu->present || !gpu->total_bytes)
			continue;
		*device_instance = gpu->device_instance;
		found = minor;
	}
	rt_mutex_unlock(&cgpu_registry->lock);
	return found;
}

static int carry_out(struct trial *trial)
{
	u32 device_instance = 0;
	int minor = any_card(&device_instance);
	int err;

	trial->gpu_fd = -1;
	err = minor < 0 ? minor : open_driver(trial);
	if (!err)
		err = open_card(trial, minor);
	if (!err)
		err = map_area(trial);
	if (!err) {
		cgpu_verify_begin(&trial->verify, cgpu_driver_abi(), device_instance);
		while (cgpu_verify_next(&trial->verify))
			cgpu_verify_answer(&trial->verify, ask(trial));
	}
	if (trial->area)
		vm_munmap(trial->area, AREA_BYTES);
	if (trial->gpu_fd >= 0)
		close_fd(trial->gpu_fd);
	if (!IS_ERR_OR_NULL(trial->uvm))
		filp_close(trial->uvm, NULL);
	if (!IS_ERR_OR_NULL(trial->ctl))
		filp_close(trial->ctl, NULL);
	return err;
}

/* Return: the verdict is final. */
static bool tell(const struct cgpu_verify *verify, int err)
{
	const char *version = cgpu_door_driver_version();
	u32 branch = cgpu_driver_abi()->branch;

	if (err) {
		pr_warn("cgpu: driver %s: not checked against branch %u yet, no container gets a card (%d): is nvidia-uvm loaded, and a card there?\n",
			version, branch, err);
		return false;
	}
	if (verify->what) {
		pr_err("cgpu: driver %s is not branch %u: %s 0x%x: %s; no container gets a card\n",
		       version, branch, verify->what, verify->number, verify->why);
		cgpu_event("verify driver %s branch=%u failed %s 0x%x: %s", version, branch,
			   verify->what, verify->number, verify->why);
		return !verify->passing;
	}
	pr_warn("cgpu: driver %s: %u answers are those of branch %u, memory is limited. A field that moved within a structure of the same size goes unnoticed\n",
		version, verify->checks, branch);
	cgpu_event("verify driver %s branch=%u passed %u", version, branch, verify->checks);
	return true;
}

/* Context: verify_lock. */
static void judge(void)
{
	struct trial *trial = vzalloc(sizeof(*trial));
	int err = trial ? carry_out(trial) : -ENOMEM;

	if (tell(trial ? &trial->verify : NULL, err))
		cgpu_driver_judged(!trial->verify.what);
	vfree(trial);
	if (!cgpu_driver_trusted())
		return;
	cgpu_tree_set_feature(CGPU_FEATURE_MEMORY, cgpu_door_is_hooked(CGPU_DRIVER_RM));
	cgpu_tree_set_feature(CGPU_FEATURE_MANAGED, cgpu_door_is_hooked(CGPU_DRIVER_UVM));
}

int cgpu_verify_driver(void)
{
	mutex_lock(&verify_lock);
	if (cgpu_driver_on_trial() && cgpu_door_is_hooked(CGPU_DRIVER_RM) && current->mm)
		judge();
	mutex_unlock(&verify_lock);
	return cgpu_driver_trusted() ? 0 : -EOPNOTSUPP;
}
