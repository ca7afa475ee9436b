// SPDX-License-Identifier: GPL-2.0-only
/*
 * A call names a file by its descriptor: one that shall carry exported memory, or one whose clients
 * another file shall use. The core looks the file up and holds it. Before the driver looks it up
 * too, any thread of the process may put another file there, and put the first one back before the
 * call returns. The driver does all lookups by one function of its own, whose result shows what it
 * found. If that is another file than the core has seen, the lookup is made to find none.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kprobes.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "descriptor.h"
#include "errand.h"
#include "probe_lock.h"

enum {
	/* void *nv_get_file_private(int fd, bool ctl, void **file), which takes a reference */
	FILE_ARGUMENT = 2,
	/*
	 * Watched lookups under way; one more would not be followed. The driver makes the lookups
	 * that are counted one at a time, with its API lock held exclusively.
	 */
	LOOKUPS_MAX = 256,
};

/* By task: a container has as many as it has threads, and a lookup is everybody's. */
static DEFINE_HASHTABLE(watches, 8);
/* raw: taken by probes */
static DEFINE_RAW_SPINLOCK(watches_lock);
static bool attached;

/* Return: true: current's call is watched, and shall find `*file`. */
static bool find_watch(struct file **file)
{
	struct cgpu_descriptor_watch *watch;
	unsigned long flags;
	bool found = false;

	if (hlist_empty(&watches[hash_min((unsigned long)current, HASH_BITS(watches))]))
		return false;
	flags = cgpu_probe_lock(&watches_lock);
	hash_for_each_possible(watches, watch, node, (unsigned long)current) {
		if (watch->task == current) {
			*file = watch->file;
			found = true;
			break;
		}
	}
	cgpu_probe_unlock(&watches_lock, flags);
	return found;
}

static int on_lookup(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct file *file;

	*(struct file ***)instance->data =
		(struct file **)regs_get_kernel_argument(regs, FILE_ARGUMENT);
	return !find_watch(&file); /* not 0: its return is of no interest */
}

static int on_found(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct file **found = *(struct file ***)instance->data;
	struct file *file;

	if (!regs_return_value(regs) || !found || !*found || !find_watch(&file) ||
	    *found == file)
		return 0;
	fput(*found);
	*found = NULL;
	regs_set_return_value(regs, 0);
	return 0;
}

static struct kretprobe probe;
static DEFINE_MUTEX(probe_lock);
static bool driver_there, failed;

/*
 * The driver's text is changed only when it is needed: a host without tenants does not need it.
 * Return: 0: also where it cannot be; -ENOMEM: not now.
 */
static int attach(void)
{
	int err = 0;

	mutex_lock(&probe_lock);
	if (attached || failed || !driver_there)
		goto out;
	probe = (struct kretprobe){
		.kp.symbol_name = "nvidia:nv_get_file_private",
		.entry_handler = on_lookup,
		.handler = on_found,
		.data_size = sizeof(struct file **),
		.maxactive = LOOKUPS_MAX,
	};
	err = register_kretprobe(&probe);
	WRITE_ONCE(attached, !err);
	if (err && err != -ENOMEM) {
		pr_warn("cgpu: the driver's lookups cannot be followed (%d): what a descriptor stands for is compared before and after a call\n",
			err);
		failed = true;
		err = 0;
	}
out:
	mutex_unlock(&probe_lock);
	return err;
}

static DEFINE_CGPU_ERRAND(attach_errand, attach);

void cgpu_descriptor_attach(void)
{
	mutex_lock(&probe_lock);
	driver_there = true;
	mutex_unlock(&probe_lock);
}

void cgpu_descriptor_detach(void)
{
	mutex_lock(&probe_lock);
	if (attached)
		unregister_kretprobe(&probe);
	attached = failed = driver_there = false;
	mutex_unlock(&probe_lock);
}

void cgpu_descriptor_exit(void)
{
	cgpu_errand_end(&attach_errand);
	cgpu_descriptor_detach();
}

int cgpu_descriptor_begin(struct cgpu_descriptor_watch *watch, struct file *file)
{
	int err = READ_ONCE(attached) || READ_ONCE(failed) ? 0 : cgpu_errand_send(&attach_errand);

	if (err)
		return err;
	*watch = (struct cgpu_descriptor_watch){
		.task = current,
		.file = file,
		.followed = READ_ONCE(attached),
	};
	raw_spin_lock_irq(&watches_lock);
	hash_add(watches, &watch->node, (unsigned long)current);
	raw_spin_unlock_irq(&watches_lock);
	return 0;
}

void cgpu_descriptor_end(struct cgpu_descriptor_watch *watch)
{
	raw_spin_lock_irq(&watches_lock);
	hash_del(&watch->node);
	raw_spin_unlock_irq(&watches_lock);
}
