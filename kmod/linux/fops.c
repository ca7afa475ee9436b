// SPDX-License-Identifier: GPL-2.0-only
/*
 * A file belongs to the container whose process opened it; a table keyed by
 * struct file remembers that, since the driver owns private_data. Processes
 * of no container pass after one look-up.
 */
#include <linux/cgroup.h>
#include <linux/kernfs.h>
#include <linux/ratelimit.h>
#include <linux/string.h>

#include "core/call/call.h"
#include "driver.h"
#include "ioctl.h"
#include "fops.h"
#include "registry.h"
#include "door/door.h"
#include "door/events.h"
#include "door/notice.h"
#include "lifecycle.h"
#include "open_file.h"

enum { NV_MINOR_CTL = 255 };

/* ---------------------------------------------------------------- open */

static u32 device_of(enum cgpu_driver driver, u32 minor)
{
	if (driver == CGPU_DRIVER_UVM)
		return CGPU_DEVICE_UVM;
	return minor == NV_MINOR_CTL ? CGPU_DEVICE_CTL : CGPU_DEVICE_GPU;
}

/* The last part of the current process's cgroup, in which engines name their containers. */
static const char *cgroup_name_of(char *path, size_t size)
{
	char *name = NULL;

	rcu_read_lock();
	if (kernfs_path_from_node(task_dfl_cgroup(current)->kn, NULL, path, size) > 0)
		name = strrchr(path, '/');
	rcu_read_unlock();
	if (!name || !name[1])
		return "-";
	/* it is one word of a line, and a cgroup's owner chooses the names of those below */
	strreplace(name, ' ', '?');
	return name + 1;
}

/* Return: 0, with the container if it has a share now; -EACCES. */
static int open_ungranted(u32 minor, struct cgpu_container **container)
{
	static DEFINE_RATELIMIT_STATE(refusals, HZ, 10);
	int share = cgpu_door_ungranted();
	char path[256];

	if (share == CGPU_UNGRANTED_ALLOW || !cgpu_door_in_container())
		return 0;
	if (share == CGPU_UNGRANTED_ASKED && !READ_ONCE(cgpu_registry->asked))
		return 0;
	if (share > 0)
		*container = cgpu_container_share(share);
	if (*container)
		return 0;
	if (__ratelimit(&refusals))
		cgpu_event("ungranted pid=%d minor=%u cgroup=%s a container without a grant",
			   task_tgid_nr(current), minor, cgroup_name_of(path, sizeof(path)));
	cgpu_notice("cgpu: this container was given a card past cgpu's runtime and may not open it: start it with --runtime=cgpu (all of the card: -e CGPU_MEM=max), or make that Docker's default: cgpu install-runtime --default");
	return -EACCES;
}

/*
 * UVM's second device: a profiler has the driver pin its pages there, for any file of UVM's, and
 * nothing counts them. No CUDA program needs it to compute.
 */
static int refuse_tools(struct cgpu_container *container)
{
	rt_mutex_lock(&container->lock);
	cgpu_count_refused(&container->tenant);
	rt_mutex_unlock(&container->lock);
	if (__ratelimit(&container->refusals))
		cgpu_event("refused id=%s pid=%d open nvidia-uvm-tools", container->id,
			   task_tgid_nr(current));
	cgpu_container_put(container);
	return -EACCES;
}

int cgpu_open_pre(enum cgpu_driver driver, u32 minor, void **token)
{
	struct cgpu_container *container = cgpu_container_current();

	if (!container) {
		int err = open_ungranted(minor, &container);

		if (err || !container)
			return err;
	}
	/* a cgroup's processes may come and go between two looks of the reaper */
	WRITE_ONCE(container->populated, true);
	if (driver == CGPU_DRIVER_TOOLS)
		return refuse_tools(container);
	if (!cgpu_driver_trusted()) {
		if (__ratelimit(&container->refusals))
			cgpu_event("refused id=%s open minor=%u the driver is not verified",
				   container->id, minor);
		cgpu_container_put(container);
		return -EACCES;
	}
	if (device_of(driver, minor) == CGPU_DEVICE_GPU &&
	    (minor >= CGPU_MAX_CARDS || !READ_ONCE(container->grant[minor].present))) {
		/* also nvidia-modeset (535 serves it through the same table) */
		if (__ratelimit(&container->refusals))
			cgpu_event("refused id=%s open minor=%u", container->id, minor);
		cgpu_container_put(container);
		return -EACCES;
	}
	*token = container;
	return 0;
}

int cgpu_open_post(void *token, struct file *file, enum cgpu_driver driver, u32 minor,
		   int err)
{
	struct cgpu_container *container = token;

	if (!err)
		err = cgpu_open_file_add(file, container, device_of(driver, minor),
					 driver == CGPU_DRIVER_UVM ? 0 : minor);
	cgpu_container_put(container);
	return err;
}

void *cgpu_release_pre(struct file *file)
{
	return cgpu_open_file_take(file);
}

void cgpu_release_post(void *token)
{
	cgpu_open_file_close(token);
}

/* --------------------------------------------------------------- ioctl */

/*
 * A process of a container uses a file that no container opened: the host handed it in, or it was
 * opened before the container was registered. That would bypass the ledger.
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

void cgpu_ioctl_pre(struct cgpu_pass *pass)
{
	struct cgpu_open_file *open_file = cgpu_open_file_find(pass->file);

	if (open_file) {
		cgpu_call_begin(open_file, pass);
	} else if (is_strangers(pass->file)) {
		pass->answered = true;
		pass->result = -EPERM;
	}
}

/* ---------------------------------------------------------------- mmap */

int cgpu_mmap_pre(struct file *file, u64 start, u64 length_bytes, u64 offset_bytes,
		  void **token)
{
	struct cgpu_open_file *open_file = cgpu_open_file_find(file);
	int err;

	if (!open_file)
		return is_strangers(file) ? -EPERM : 0;
	/* UVM's rule for managed memory; it refuses everything else itself */
	if (offset_bytes != start)
		return 0;
	err = cgpu_open_file_mmap(open_file, start, length_bytes);
	if (!err)
		*token = open_file;
	return err;
}

void cgpu_mmap_post(void *token, u64 start, u64 length_bytes, bool done)
{
	cgpu_open_file_mapped(token, start, length_bytes, done);
}
