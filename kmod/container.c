// SPDX-License-Identifier: GPL-2.0-only
/*
 * A container is a pid namespace or a cgroup. It ends when the namespace's
 * first process is dead, or the cgroup has been populated and is no longer;
 * its memory and weight return when besides nothing that it opened is open
 * any more: a file that some other process still holds keeps video memory.
 *
 * Nobody tells a module of the end of a pid namespace, so a work item looks
 * four times a second while containers exist, and not at all otherwise.
 */
#include <linux/cgroup.h>
#include <linux/kernfs.h>
#include <linux/log2.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/namei.h>
#include <linux/pid.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "actuator.h"
#include "container.h"
#include "core/nodes.h"
#include "discover.h"
#include "door/door.h"
#include "door/events.h"
#include "open_file.h"
#include "procfs.h"

enum {
	REAP_INTERVAL = HZ / 4,
	/* a cgroup that never gets a process is forgotten after this */
	UNPOPULATED_GRACE = 60 * HZ,
};

struct cgpu_registry *cgpu_registry;

static void reap_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(reap_work, reap_fn);
static bool quiet; /* another core takes over: the reaper must not begin again */

/* ------------------------------------------------------------- lifetime */

static void container_free(struct rcu_head *rcu)
{
	struct cgpu_container *container = container_of(rcu, struct cgpu_container, rcu);
	u32 table;

	for (table = 0; table < CGPU_TABLE_COUNT; table++)
		kvfree(cgpu_tenant_storage(&container->tenant, table));
	kfree(container);
	cgpu_door_unpin();
}

static void container_release(struct kref *refs)
{
	struct cgpu_container *container = container_of(refs, struct cgpu_container, refs);

	if (container->pid_ns)
		put_pid_ns(container->pid_ns);
	put_pid(container->init);
	if (container->cgroup)
		cgroup_put(container->cgroup);
	call_rcu(&container->rcu, container_free);
}

void cgpu_container_get(struct cgpu_container *container)
{
	kref_get(&container->refs);
}

void cgpu_container_put(struct cgpu_container *container)
{
	kref_put(&container->refs, container_release);
}

/* ------------------------------------------------------------- identity */

/* The cgroup of `task` in the hierarchy that `like` is in. Context: RCU. */
static struct cgroup *cgroup_of_task(struct task_struct *task, struct cgroup *like)
{
	int i;

	if (like->root == &cgrp_dfl_root)
		return task_dfl_cgroup(task);
	for (i = 0; i < CGROUP_SUBSYS_COUNT; i++)
		if (rcu_access_pointer(like->subsys[i]))
			return task_css_check(task, i, true)->cgroup;
	return NULL;
}

bool cgpu_container_has(struct cgpu_container *container, struct task_struct *task)
{
	struct pid_namespace *ns;
	struct cgroup *cgroup;
	bool has = false;

	rcu_read_lock();
	if (container->pid_ns) {
		/* a namespace below: containers in containers */
		for (ns = task_active_pid_ns(task); ns && !has; ns = ns->parent)
			has = ns == container->pid_ns;
	} else {
		cgroup = cgroup_of_task(task, container->cgroup);
		has = cgroup && cgroup_is_descendant(cgroup, container->cgroup);
	}
	rcu_read_unlock();
	return has;
}

static struct cgpu_container *container_of_task(struct task_struct *task)
{
	struct cgpu_container *container;

	/* what every process of a host without containers pays */
	if (!READ_ONCE(cgpu_registry->count))
		return NULL;
	rcu_read_lock();
	list_for_each_entry_rcu(container, &cgpu_registry->containers, node)
		if (cgpu_container_has(container, task) &&
		    kref_get_unless_zero(&container->refs))
			goto out;
	container = NULL;
out:
	rcu_read_unlock();
	return container;
}

struct cgpu_container *cgpu_container_current(void)
{
	return container_of_task(current);
}

bool cgpu_container_is_managed(struct task_struct *task)
{
	struct cgpu_container *container = container_of_task(task);

	if (container)
		cgpu_container_put(container);
	return container;
}

/* Names the directory behind `path` as a cgroup. */
static int identify_by_cgroup(struct cgpu_container *container, const char *path_name)
{
	struct cgroup *cgroup;
	struct path path;
	int err;

	err = kern_path(path_name, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &path);
	if (err)
		return -ENOENT;
	err = -EINVAL;
	if (path.mnt->mnt_sb->s_magic == CGROUP2_SUPER_MAGIC ||
	    path.mnt->mnt_sb->s_magic == CGROUP_SUPER_MAGIC) {
		struct kernfs_node *kn = d_inode(path.dentry)->i_private;

		rcu_read_lock();
		cgroup = rcu_dereference(*(void __rcu __force **)&kn->priv);
		/* the root would make every process of the host a tenant */
		if (cgroup && cgroup_parent(cgroup) && css_tryget(&cgroup->self)) {
			container->cgroup = cgroup;
			err = 0;
		}
		rcu_read_unlock();
	}
	path_put(&path);
	return err;
}

static int identify_by_pid(struct cgpu_container *container, int pid)
{
	struct task_struct *task, *init = NULL;
	struct pid_namespace *ns;

	rcu_read_lock();
	task = pid_task(find_vpid(pid), PIDTYPE_PID);
	ns = task ? task_active_pid_ns(task) : NULL;
	if (ns && ns != &init_pid_ns) {
		container->pid_ns = get_pid_ns(ns);
		init = READ_ONCE(ns->child_reaper);
		if (init)
			container->init = get_pid(task_pid(init));
	}
	rcu_read_unlock();
	if (!ns)
		return -ESRCH;
	if (!container->pid_ns)
		return -EINVAL; /* in the host's namespace: name its cgroup instead */
	return container->init ? 0 : -ESRCH;
}

static bool same_identity(const struct cgpu_container *a, const struct cgpu_container *b)
{
	return a->pid_ns ? a->pid_ns == b->pid_ns : a->cgroup == b->cgroup;
}

/* Context: registry.lock. */
static bool has_ended(struct cgpu_container *container)
{
	bool ended;

	if (container->pid_ns) {
		struct task_struct *init;

		/* a dead init waits for its namespace to empty, then for its parent */
		rcu_read_lock();
		init = pid_task(container->init, PIDTYPE_PID);
		ended = !init || READ_ONCE(init->exit_state);
		rcu_read_unlock();
		return ended;
	}
	if (cgroup_is_populated(container->cgroup)) {
		container->populated = true;
		return false;
	}
	return container->populated ||
	       time_after(jiffies, container->created + UNPOPULATED_GRACE);
}

static void schedule_reaper(void)
{
	if (!READ_ONCE(quiet))
		schedule_delayed_work(&reap_work, REAP_INTERVAL);
}

/* ------------------------------------------------------ create, destroy */

/* Caller holds registry.lock; no reference is taken. */
static struct cgpu_container *find(const char *id)
{
	struct cgpu_container *container;

	list_for_each_entry(container, &cgpu_registry->containers, node)
		if (!strcmp(container->id, id))
			return container;
	return NULL;
}

/*
 * The directory name under a card: as short as it can be and still be unique.
 * Return: 0, -EEXIST: an id that is used whole is another's directory.
 */
static int choose_name(struct cgpu_container *container)
{
	struct cgpu_container *other;
	u32 digits = CGPU_SHORT_ID;
	bool clash;

	do {
		clash = false;
		cgpu_short_name(container->id, digits++, container->name);
		list_for_each_entry(other, &cgpu_registry->containers, node)
			clash |= !strcmp(other->name, container->name);
	} while (clash && digits <= CGPU_ID_MAX);
	return clash ? -EEXIST : 0;
}

static int check_new(const struct cgpu_container *container)
{
	struct cgpu_container *other;

	list_for_each_entry(other, &cgpu_registry->containers, node)
		if (!strcmp(other->id, container->id) || same_identity(other, container))
			return -EEXIST;
	return 0;
}

int cgpu_container_create(struct cgpu_create *create)
{
	struct cgpu_container *container;
	u32 minor;
	int err;

	/* cards are known once the driver has been asked, which needs a process */
	cgpu_discover();

	container = kzalloc(sizeof(*container), GFP_KERNEL);
	if (!container)
		return -ENOMEM;
	cgpu_door_pin(); /* until container_free() */
	kref_init(&container->refs);
	mutex_init(&container->lock);
	ratelimit_state_init(&container->refusals, HZ, 10);
	ratelimit_set_flags(&container->refusals, RATELIMIT_MSG_ON_RELEASE);
	cgpu_tenant_init(&container->tenant, cgpu_door_max_objects());
	strscpy(container->id, create->id, sizeof(container->id));
	container->created = jiffies;

	err = create->pid ? identify_by_pid(container, create->pid) :
			    identify_by_cgroup(container, create->cgroup);
	if (err)
		goto put;

	mutex_lock(&cgpu_registry->lock);
	err = check_new(container);
	if (!err)
		err = choose_name(container);
	if (!err)
		err = cgpu_host_admit(&cgpu_registry->host, create, &minor);
	if (!err) {
		memcpy(container->grant, create->grant, sizeof(container->grant));
		cgpu_grants_apply(container->grant, &container->tenant.ledger);
		cgpu_container_get(container); /* while the directories are made */
		list_add_tail_rcu(&container->node, &cgpu_registry->containers);
		WRITE_ONCE(cgpu_registry->count, cgpu_registry->count + 1);
	}
	mutex_unlock(&cgpu_registry->lock);
	if (err)
		goto put;

	err = cgpu_procfs_add_container(container);
	if (err)
		pr_warn("cgpu: container %s: no directory: %d\n", container->id, err);
	cgpu_event("create id=%s", container->id);
	cgpu_actuator_poke_container(container);
	schedule_reaper();
put:
	cgpu_container_put(container);
	return err;
}

/* Context: registry.lock; the caller finishes with container_gone(). */
static void container_unlist(struct cgpu_container *container)
{
	list_del_rcu(&container->node);
	container->removed = true;
	cgpu_host_release(&cgpu_registry->host, container->grant);
	WRITE_ONCE(cgpu_registry->count, cgpu_registry->count - 1);
}

/* Context: no lock: removing directories waits for their readers. */
static void container_gone(struct cgpu_container *container)
{
	cgpu_event("destroy id=%s", container->id);
	cgpu_actuator_poke_container(container);
	cgpu_procfs_remove_container(container);
	cgpu_container_put(container);
}

static bool is_open(struct cgpu_container *container)
{
	bool idle;

	mutex_lock(&container->lock);
	idle = cgpu_tenant_idle(&container->tenant);
	mutex_unlock(&container->lock);
	return !idle;
}

int cgpu_container_destroy(const char *id)
{
	struct cgpu_container *container;
	int err = 0;

	mutex_lock(&cgpu_registry->lock);
	container = find(id);
	if (!container)
		err = -ENOENT;
	else if (is_open(container))
		err = -EBUSY;
	else
		container_unlist(container);
	mutex_unlock(&cgpu_registry->lock);
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
		mutex_lock(&cgpu_registry->lock);
		list_for_each_entry(container, &cgpu_registry->containers, node) {
			if (has_ended(container) && !is_open(container)) {
				ended = container;
				container_unlist(ended);
				break;
			}
		}
		left = !list_empty(&cgpu_registry->containers);
		mutex_unlock(&cgpu_registry->lock);
		if (ended)
			container_gone(ended);
	} while (ended);
	if (left)
		schedule_reaper();
}

/* ----------------------------------------------------------------- cards */

int cgpu_registry_add_card(u32 minor, const struct cgpu_gpu *gpu)
{
	bool known;

	mutex_lock(&cgpu_registry->lock);
	known = cgpu_registry->host.card[minor].present;
	if (known) {
		/* containers survive a reload of the driver, their settings too */
		cgpu_registry->host.topology.gpu[minor] = *gpu;
		cgpu_registry->host.topology.gpu[minor].present = true;
	} else {
		cgpu_card_add(&cgpu_registry->host, minor, gpu);
	}
	mutex_unlock(&cgpu_registry->lock);
	return known ? 0 : cgpu_procfs_add_card(minor);
}

void cgpu_registry_drop_cards(void)
{
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		bool drop;

		mutex_lock(&cgpu_registry->lock);
		drop = cgpu_registry->host.card[minor].present &&
		       !cgpu_registry->host.card[minor].members;
		if (drop) {
			memset(&cgpu_registry->host.card[minor], 0,
			       sizeof(cgpu_registry->host.card[minor]));
			memset(&cgpu_registry->host.topology.gpu[minor], 0,
			       sizeof(cgpu_registry->host.topology.gpu[minor]));
		}
		mutex_unlock(&cgpu_registry->lock);
		if (drop)
			cgpu_procfs_remove_card(minor);
	}
}

/* ----------------------------------------------------------------- state */

int cgpu_registry_begin(void **part)
{
	unsigned int max_objects = cgpu_door_max_objects();

	if (!is_power_of_2(max_objects) || max_objects < CGPU_TABLE_FIRST_CAPACITY) {
		pr_err("cgpu: max_objects=%u: a power of two of at least %d is needed\n",
		       max_objects, CGPU_TABLE_FIRST_CAPACITY);
		return -EINVAL;
	}
	cgpu_registry = kvzalloc(sizeof(*cgpu_registry), GFP_KERNEL);
	if (!cgpu_registry)
		return -ENOMEM;
	INIT_LIST_HEAD(&cgpu_registry->containers);
	cgpu_registry_adopt(cgpu_registry);
	*part = cgpu_registry;
	return 0;
}

void cgpu_registry_adopt(void *part)
{
	struct cgpu_container *container;

	cgpu_registry = part;
	/* nobody is inside: the locks' classes are a core's own */
	mutex_init(&cgpu_registry->lock);
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		mutex_init(&container->lock);
		raw_spin_lock_init(&container->refusals.lock);
	}
}

void cgpu_registry_end(void)
{
	WARN_ON(!list_empty(&cgpu_registry->containers));
	kvfree(cgpu_registry);
}

void cgpu_registry_quiesce(void)
{
	WRITE_ONCE(quiet, true);
	cancel_delayed_work_sync(&reap_work);
}

void cgpu_registry_settle(void)
{
	/* what a create began between quiesce and the closing of the gates */
	cancel_delayed_work_sync(&reap_work);
}

void cgpu_registry_resume(void)
{
	WRITE_ONCE(quiet, false);
	if (READ_ONCE(cgpu_registry->count))
		schedule_reaper();
}

u64 cgpu_registry_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct cgpu_registry));
	digest = cgpu_digest(digest, sizeof(struct cgpu_container));
	digest = cgpu_digest(digest, offsetof(struct cgpu_container, grant));
	digest = cgpu_digest(digest, offsetof(struct cgpu_container, lock));
	digest = cgpu_digest(digest, offsetof(struct cgpu_container, tenant));
	digest = cgpu_digest(digest, sizeof(struct cgpu_object));
	digest = cgpu_digest(digest, sizeof(struct cgpu_charge));
	return cgpu_digest(digest, sizeof(struct cgpu_range));
}
