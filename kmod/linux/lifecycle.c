// SPDX-License-Identifier: GPL-2.0-only
/*
 * A container ends when the first process of its pid namespace is dead, or its cgroup has been
 * populated and no longer is. Its memory and weight return once all that it opened is closed: a
 * file that another process still holds keeps video memory. The leader of a group also stays while
 * it has members: they run under its number, and its server may begin again.
 *
 * The kernel does not tell a module of the end of a pid namespace. So a work item looks four times
 * a second while containers exist, and not at all otherwise.
 */
#include <linux/rtmutex.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "discover.h"
#include "door/events.h"
#include "governors.h"
#include "lifecycle.h"
#include "open_file.h"
#include "registry.h"
#include "tree.h"
#include "verify.h"

enum {
	REAP_INTERVAL = HZ / 4,
};

static void reap_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(reap_work, reap_fn);
static bool quiet; /* another core takes over: the reaper must not begin again */

static void schedule_reaper(void)
{
	if (!READ_ONCE(quiet))
		schedule_delayed_work(&reap_work, REAP_INTERVAL);
}

/* Its directories could not be made: as if it had never been. */
static void take_back(struct cgpu_container *container)
{
	bool listed;

	rt_mutex_lock(&cgpu_registry->lock);
	listed = !container->removed;
	if (listed)
		cgpu_registry_remove(container);
	rt_mutex_unlock(&cgpu_registry->lock);
	if (!listed)
		return;
	/* its processes may have opened the card meanwhile */
	cgpu_governors_poke_container(container);
	cgpu_container_put(container);
}

/* An event of a group's member, or of its leader, with the leader's id. */
static void tell(const char *kind, struct cgpu_container *container)
{
	const char *group = container->group;

	rt_mutex_lock(&container->lock);
	cgpu_event("%s id=%s%s%s", kind, container->id, group[0] ? " group=" : "", group);
	rt_mutex_unlock(&container->lock);
}

static int add_new(struct cgpu_create *create)
{
	struct cgpu_container *container = cgpu_container_new(create);
	int err;

	if (IS_ERR(container))
		return PTR_ERR(container);
	err = cgpu_registry_add(container, create);
	if (err)
		goto put;
	cgpu_governors_begin_container(container);
	err = cgpu_tree_add_container(container);
	if (err) {
		take_back(container);
		goto put;
	}
	tell("create", container);
	cgpu_governors_poke_container(container);
	schedule_reaper();
put:
	cgpu_container_put(container);
	return err;
}

int cgpu_container_create(struct cgpu_create *create)
{
	u32 minor, wanted = 0;
	int err;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		wanted |= (create->grant[minor].present ? 1U : 0) << minor;
	/* cards are known once the driver has been asked, which needs a process */
	err = cgpu_discover(wanted);
	/* that does not mean no card: the driver is loaded, and not hooked */
	if (err == -EOPNOTSUPP)
		return err;
	return cgpu_verify_driver() ?: add_new(create);
}

struct cgpu_container *cgpu_container_share(unsigned int percent)
{
	struct cgpu_create *create = kzalloc(sizeof(*create), GFP_KERNEL);

	if (!create)
		return NULL;
	/* unique: a namespace's number is its own while it lives */
	snprintf(create->id, sizeof(create->id), "ungranted-%u",
		 task_active_pid_ns(current)->ns.inum);
	create->pid = CGPU_PID_OUTERMOST;
	cgpu_registry_share(create, percent);
	add_new(create);
	kfree(create);
	/* also if another process of the container was first */
	return cgpu_container_current();
}

/* Context: no lock: removing directories waits for their readers. */
static void container_gone(struct cgpu_container *container)
{
	tell("destroy", container);
	cgpu_governors_poke_container(container);
	cgpu_tree_remove_container(container);
	cgpu_container_put(container);
}

/* The container has nothing open, but its processes come back. Context: registry.lock. */
static bool is_away(struct cgpu_container *container)
{
	bool away;

	rt_mutex_lock(&container->lock);
	away = container->tenant.ledger.park_state != CGPU_PARK_RUNNING;
	rt_mutex_unlock(&container->lock);
	return away;
}

int cgpu_container_destroy(const char *id)
{
	struct cgpu_container *container;
	int err = 0;

	rt_mutex_lock(&cgpu_registry->lock);
	container = cgpu_registry_find(id);
	if (!container)
		err = -ENOENT;
	else if (((container->followers || is_away(container)) &&
		  !cgpu_container_has_ended(container)) || !cgpu_registry_remove_idle(container))
		err = -EBUSY;
	rt_mutex_unlock(&cgpu_registry->lock);
	if (!err)
		container_gone(container);
	return err;
}

static void reap_fn(struct work_struct *work)
{
	struct cgpu_container *container, *ended;
	bool left;

	if (READ_ONCE(quiet))
		return;
	cgpu_open_file_sweep();
	do {
		ended = NULL;
		rt_mutex_lock(&cgpu_registry->lock);
		list_for_each_entry(container, &cgpu_registry->containers, node) {
			if (!container->followers && cgpu_container_has_ended(container) &&
			    cgpu_registry_remove_idle(container)) {
				ended = container;
				break;
			}
		}
		left = !list_empty(&cgpu_registry->containers);
		rt_mutex_unlock(&cgpu_registry->lock);
		if (ended)
			container_gone(ended);
	} while (ended);
	if (left)
		schedule_reaper();
}

void cgpu_lifecycle_quiesce(void)
{
	WRITE_ONCE(quiet, true);
	cancel_delayed_work_sync(&reap_work);
}

void cgpu_lifecycle_settle(void)
{
	/* what a create began between quiesce and the closing of the drains */
	cancel_delayed_work_sync(&reap_work);
}

void cgpu_lifecycle_resume(void)
{
	WRITE_ONCE(quiet, false);
	if (READ_ONCE(cgpu_registry->count))
		schedule_reaper();
}
