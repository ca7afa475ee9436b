// SPDX-License-Identifier: GPL-2.0-only
/*
 * The second device of the simulated nvidia-uvm.ko, by which profilers follow an address space. A
 * profiler has pages of its own pinned, to which the driver would write. Here nothing is written,
 * because no event is simulated.
 */
#include <linux/file.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "uvm.h"

enum {
	EVENT_BYTES = 48,
	CONTROL_BYTES = 24,
	COUNTER_BYTES = 128,
	PAGES_MAX = 4096,
};

struct tools_tracker {
	struct file *space_file;
	bool queue;		/* of events; otherwise of counters */
	struct page **pages[2];
	int count[2];
};

struct init_params {
	u64 queue_buffer, queue_length, control_buffer;
	u8 processor[16];
	u32 all_processors, uvm_fd, status;
};

static void tracker_free(struct tools_tracker *t)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(t->pages); i++) {
		if (t->count[i])
			unpin_user_pages(t->pages[i], t->count[i]);
		kvfree(t->pages[i]);
	}
	if (t->space_file)
		fput(t->space_file);
	kfree(t);
}

static u32 pin(struct tools_tracker *t, int which, u64 address, u64 bytes)
{
	unsigned long count = DIV_ROUND_UP(bytes, PAGE_SIZE);
	int pinned;

	if (!address || !PAGE_ALIGNED(address))
		return NV_ERR_INVALID_ADDRESS;
	if (count > PAGES_MAX)
		return NV_ERR_NO_MEMORY;
	t->pages[which] = kvcalloc(count, sizeof(*t->pages[which]), GFP_KERNEL);
	if (!t->pages[which])
		return NV_ERR_NO_MEMORY;
	pinned = pin_user_pages_fast(address, count, FOLL_WRITE | FOLL_LONGTERM,
				     t->pages[which]);
	t->count[which] = max(pinned, 0);
	return pinned == count ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

static u32 tracker_fill(struct tools_tracker *t, const struct init_params *p)
{
	u32 status;

	t->space_file = fget(p->uvm_fd);
	if (!t->space_file)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	status = uvm_file_check(t->space_file);
	if (status != NV_OK)
		return status;
	t->queue = p->queue_length;
	if (!t->queue)
		return pin(t, 0, p->control_buffer, COUNTER_BYTES);
	if (p->queue_length > U32_MAX || p->queue_length < 2 || !is_power_of_2(p->queue_length))
		return NV_ERR_INVALID_ARGUMENT;
	status = pin(t, 0, p->queue_buffer, p->queue_length * EVENT_BYTES);
	return status ?: pin(t, 1, p->control_buffer, CONTROL_BYTES);
}

static u32 tracker_begin(struct file *file, const struct init_params *p)
{
	struct tools_tracker *t = kzalloc(sizeof(*t), GFP_KERNEL);
	u32 status;

	if (!t)
		return NV_ERR_NO_MEMORY;
	status = tracker_fill(t, p);
	if (status == NV_OK && cmpxchg(&file->private_data, NULL, (void *)t))
		status = NV_ERR_INVALID_ARGUMENT;
	if (status != NV_OK)
		tracker_free(t);
	return status;
}

static int tools_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;
	return 0;
}

static int tools_release(struct inode *inode, struct file *file)
{
	if (file->private_data)
		tracker_free(file->private_data);
	return 0;
}

static long tools_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	const struct tools_tracker *t = READ_ONCE(file->private_data);
	u32 size = cmd == UVM_TOOLS_SET_NOTIFICATION_THRESHOLD ? 8 : 16;
	u32 status_at = cmd == UVM_TOOLS_SET_NOTIFICATION_THRESHOLD ? 4 : 8;
	void __user *user = (void __user *)arg;
	struct init_params params;
	u32 status;

	if (cmd == UVM_TOOLS_INIT_EVENT_TRACKER) {
		size = sizeof(params);
		status_at = offsetof(struct init_params, status);
	}
	if (cmd < UVM_TOOLS_INIT_EVENT_TRACKER || cmd > UVM_TOOLS_DISABLE_COUNTERS)
		return -EINVAL;
	if (copy_from_user(&params, user, size))
		return -EFAULT;
	switch (cmd) {
	case UVM_TOOLS_INIT_EVENT_TRACKER:
		status = tracker_begin(file, &params);
		break;
	case UVM_TOOLS_ENABLE_COUNTERS:
	case UVM_TOOLS_DISABLE_COUNTERS:
		status = t && !t->queue ? NV_OK : NV_ERR_INVALID_ARGUMENT;
		break;
	default:
		status = t && t->queue ? NV_OK : NV_ERR_INVALID_ARGUMENT;
	}
	return put_user(status, (u32 __user *)(user + status_at));
}

const struct file_operations uvm_tools_fops = {
	.owner = THIS_MODULE,
	.open = tools_open,
	.release = tools_release,
	.unlocked_ioctl = tools_ioctl,
	.compat_ioctl = tools_ioctl,
};
