// SPDX-License-Identifier: GPL-2.0-only
/*
 * A container is a pid namespace or a cgroup, and a process belongs to the first
 * container that it is in. The list is read under RCU by every open of the driver's
 * files; a container outlives its place in the list by its references, which open
 * files hold, so that what they allocate is charged to the end.
 */
#include <linux/cgroup.h>
#include <linux/kernfs.h>
#include <linux/log2.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/pid.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "core/tree/move.h"
#include "core/tree/nodes.h"
#include "door/door.h"
#include "door/events.h"
#include "registry.h"
#include "userd.h"

enum {
	/* a cgroup that never gets a process is forgotten after this */
	UNPOPULATED_GRACE = 60 * HZ,
};

struct cgpu_registry *cgpu_registry;

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

	if (container->leader)
		cgpu_container_put(container->leader);
	if (container->pid_ns)
		put_pid_ns(container->pid_ns);
	put_pid(container->init);
	cgpu_userds_free(container->userds);
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

static bool is_called(const struct cgpu_container *container, const char *name, size_t length)
{
	return (!strncmp(container->id, name, length) && !container->id[length]) ||
	       (!strncmp(container->name, name, length) && !container->name[length]);
}

bool cgpu_container_may_see(struct task_struct *task, const char *name, size_t length)
{
	struct cgpu_container *container;
	bool managed = false, own = false;

	if (length > CGPU_ID_MAX)
		return false;
	rcu_read_lock();
	list_for_each_entry_rcu(container, &cgpu_registry->containers, node) {
		if (!cgpu_container_has(container, task))
			continue;
		managed = true;
		own |= is_called(container, name, length);
	}
	rcu_read_unlock();
	return own || !managed;
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

void cgpu_entity_get(struct cgpu_entity *entity, u32 minor, u32 slot)
{
	struct cgpu_container *container;

	entity->count = 0;
	rt_mutex_lock(&cgpu_registry->lock);
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		if (!container->grant[minor].present || container->grant[minor].entity != slot)
			continue;
		cgpu_container_get(container);
		entity->container[entity->count++] = container;
	}
	rt_mutex_unlock(&cgpu_registry->lock);
}

void cgpu_entity_put(struct cgpu_entity *entity)
{
	while (entity->count)
		cgpu_container_put(entity->container[--entity->count]);
}

struct cgpu_container *cgpu_container_lock_leader(struct cgpu_container *container)
{
	struct cgpu_container *leader = container->leader;

	if (leader) {
		cgpu_container_get(leader);
		rt_mutex_lock_nested(&leader->lock, SINGLE_DEPTH_NESTING);
	}
	return leader;
}

void cgpu_container_unlock_leader(struct cgpu_container *leader)
{
	if (!leader)
		return;
	rt_mutex_unlock(&leader->lock);
	cgpu_container_put(leader);
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
		/*
		 * The root would make every process of the host a tenant. In a hierarchy without
		 * controllers no process's place is known, so none would be one.
		 */
		if (cgroup && cgroup_parent(cgroup) && cgroup_of_task(current, cgroup) &&
		    css_tryget(&cgroup->self)) {
			container->cgroup = cgroup;
			/* its processes may have ended by the reaper's first look */
			container->populated = cgroup_is_populated(cgroup);
			err = 0;
		}
		rcu_read_unlock();
	}
	path_put(&path);
	return err;
}

/* `pid` as current counts, or CGPU_PID_OUTERMOST: the outermost container that current is in. */
static int identify_by_pid(struct cgpu_container *container, int pid)
{
	struct task_struct *task, *init = NULL;
	struct pid_namespace *ns;

	rcu_read_lock();
	task = pid == CGPU_PID_OUTERMOST ? current : pid_task(find_vpid(pid), PIDTYPE_PID);
	ns = task ? task_active_pid_ns(task) : NULL;
	while (pid == CGPU_PID_OUTERMOST && ns->parent && ns->parent != &init_pid_ns)
		ns = ns->parent;
	if (ns && ns != &init_pid_ns) {
		container->pid_ns = get_pid_ns(ns);
		/* any thread of the namespace's first process */
		init = READ_ONCE(ns->child_reaper);
		if (init)
			container->init = get_pid(task_tgid(init));
	}
	rcu_read_unlock();
	if (!ns)
		return -ESRCH;
	if (!container->pid_ns) {
		cgpu_event("refused id=%s create pid=%d is in the host's pid namespace: name its cgroup",
			   container->id, pid);
		return -EINVAL;
	}
	return container->init ? 0 : -ESRCH;
}

static bool same_identity(const struct cgpu_container *a, const struct cgpu_container *b)
{
	return a->pid_ns ? a->pid_ns == b->pid_ns : a->cgroup == b->cgroup;
}

bool cgpu_container_has_ended(struct cgpu_container *container)
{
	bool ended;

	if (container->pid_ns) {
		struct task_struct *init;

		/*
		 * A dead init waits for its namespace to empty, then for its parent. Its first
		 * thread alone may end long before it, and waits for the others.
		 */
		rcu_read_lock();
		init = pid_task(container->init, PIDTYPE_PID);
		ended = !init || (READ_ONCE(init->exit_state) && thread_group_empty(init));
		rcu_read_unlock();
		return ended;
	}
	if (cgroup_is_populated(container->cgroup)) {
		WRITE_ONCE(container->populated, true);
		return false;
	}
	return READ_ONCE(container->populated) ||
	       time_after(jiffies, container->created + UNPOPULATED_GRACE);
}

struct cgpu_container *cgpu_container_new(const struct cgpu_create *create)
{
	struct cgpu_container *container = kzalloc(sizeof(*container), GFP_KERNEL);
	int err;

	if (!container)
		return ERR_PTR(-ENOMEM);
	/* until container_free() */
	if (!cgpu_door_pin()) {
		kfree(container);
		return ERR_PTR(-ENODEV);
	}
	kref_init(&container->refs);
	rt_mutex_init(&container->lock);
	ratelimit_state_init(&container->refusals, HZ, 10);
	ratelimit_set_flags(&container->refusals, RATELIMIT_MSG_ON_RELEASE);
	cgpu_tenant_init(&container->tenant, cgpu_door_max_objects(), get_random_u64());
	strscpy(container->id, create->id, sizeof(container->id));
	container->created = jiffies;
	err = create->pid ? identify_by_pid(container, create->pid) :
			    identify_by_cgroup(container, create->cgroup);
	if (err) {
		cgpu_container_put(container);
		return ERR_PTR(err);
	}
	return container;
}

/* ----------------------------------------------------------------- list */

struct cgpu_container *cgpu_registry_find(const char *id)
{
	struct cgpu_container *container, *named = NULL;

	list_for_each_entry(container, &cgpu_registry->containers, node) {
		if (!strcmp(container->id, id))
			return container;
		if (!strcmp(container->name, id))
			named = container;
	}
	return named;
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

/*
 * Context: registry.lock. *leader: of the group that it is to be a member of, NULL: none.
 * Return: 0, -ENOENT: there is no such container, -EINVAL: it leads no group.
 */
static int find_leader(struct cgpu_create *create, struct cgpu_container **leader)
{
	*leader = NULL;
	if (!create->group[0] || !strcmp(create->group, create->id))
		return 0;
	*leader = cgpu_registry_find(create->group);
	if (!*leader)
		return -ENOENT;
	create->leader = (*leader)->grant;
	return (*leader)->tenant.role == CGPU_ROLE_LEADER ? 0 : -EINVAL;
}

/* Context: registry.lock; not listed yet. */
static void join_group(struct cgpu_container *container, const struct cgpu_create *create,
		       struct cgpu_container *leader)
{
	if (!create->group[0])
		return;
	container->tenant.role = leader ? CGPU_ROLE_MEMBER : CGPU_ROLE_LEADER;
	strscpy(container->group, leader ? leader->id : container->id, sizeof(container->group));
	if (!leader)
		return;
	cgpu_container_get(leader);
	container->leader = leader;
	leader->followers++;
}

/* Context: registry.lock. Its leader goes, whose number another container may get next. */
static void lose_leader(struct cgpu_container *container)
{
	struct cgpu_container *leader = container->leader;

	cgpu_grants_leave_group(&cgpu_registry->host, container->grant);
	rt_mutex_lock(&container->lock);
	container->tenant.role = CGPU_ROLE_ALONE;
	container->group[0] = 0;
	container->leader = NULL;
	cgpu_object_inherit(&container->tenant.objects, NULL);
	rt_mutex_unlock(&container->lock);
	leader->followers--;
	cgpu_container_put(leader);
}

/* Context: registry.lock. */
static void leave_group(struct cgpu_container *container)
{
	struct cgpu_container *member;

	if (container->leader)
		container->leader->followers--;
	if (!container->followers)
		return;
	list_for_each_entry(member, &cgpu_registry->containers, node)
		if (member->leader == container)
			lose_leader(member);
}

/* Context: registry.lock. @container: whose request it was; NULL: the last one went. */
static void tell_policies(const struct cgpu_container *container)
{
	struct cgpu_host *host = &cgpu_registry->host;
	const char *policy;
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		if (!(host->policy_moved >> minor & 1))
			continue;
		policy = cgpu_policy_name(host->card[minor].policy);
		if (container) {
			pr_info("cgpu: card %u: policy %s, as %s asks, until its last container goes\n",
				minor, policy, container->id);
			cgpu_event("policy gpu=%u value=%s id=%s", minor, policy, container->id);
		} else {
			pr_info("cgpu: card %u: policy %s again, nobody is on it\n", minor, policy);
			cgpu_event("policy gpu=%u value=%s", minor, policy);
		}
	}
}

int cgpu_registry_add(struct cgpu_container *container, struct cgpu_create *create)
{
	struct cgpu_container *leader;
	u32 minor;
	int err;

	rt_mutex_lock(&cgpu_registry->lock);
	err = check_new(container);
	if (!err)
		err = find_leader(create, &leader);
	if (!err)
		err = choose_name(container);
	if (!err) {
		WRITE_ONCE(cgpu_registry->asked, true);
		err = cgpu_host_admit(&cgpu_registry->host, create, &minor);
	}
	if (!err) {
		tell_policies(container);
		memcpy(container->grant, create->grant, sizeof(container->grant));
		cgpu_grants_apply(container->grant, &container->tenant.ledger);
		join_group(container, create, leader);
		cgpu_container_get(container);
		list_add_tail_rcu(&container->node, &cgpu_registry->containers);
		WRITE_ONCE(cgpu_registry->count, cgpu_registry->count + 1);
	}
	rt_mutex_unlock(&cgpu_registry->lock);
	return err;
}

void cgpu_registry_share(struct cgpu_create *create, unsigned int percent)
{
	struct cgpu_host *host = &cgpu_registry->host;
	u32 minor;

	rt_mutex_lock(&cgpu_registry->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		u64 bytes = div_u64(host->topology.gpu[minor].total_bytes, 100) * percent;

		if (!host->card[minor].present || host->topology.gpu[minor].mig == CGPU_MIG_ON ||
		    bytes < CGPU_MEM_BYTES_MIN ||
		    bytes > cgpu_card_free_bytes(host, minor))
			continue;
		create->grant[minor] = (struct cgpu_grant){
			.present = true,
			.mem_bytes = round_down(bytes, CGPU_MEM_BYTES_MIN),
			.quota = percent,
			.policy_hint = CGPU_POLICY_END,
		};
	}
	rt_mutex_unlock(&cgpu_registry->lock);
}

static bool mark_removed(struct cgpu_container *container, bool if_idle)
{
	bool removed;

	rt_mutex_lock(&container->lock);
	removed = !if_idle || cgpu_tenant_idle(&container->tenant);
	container->removed = removed;
	rt_mutex_unlock(&container->lock);
	return removed;
}

void cgpu_registry_note_moving(void)
{
	struct cgpu_container *container;
	bool moving = cgpu_host_is_overcommitted(&cgpu_registry->host);

	list_for_each_entry(container, &cgpu_registry->containers, node) {
		rt_mutex_lock(&container->lock);
		moving |= cgpu_parking_moves(&container->tenant.ledger);
		rt_mutex_unlock(&container->lock);
	}
	WRITE_ONCE(cgpu_registry->moving, moving);
	if (moving)
		return;
	/* calls are judged from here on without a look at the card's room */
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		rt_mutex_lock(&container->lock);
		cgpu_rooms_limit(NULL, &container->tenant.ledger);
		rt_mutex_unlock(&container->lock);
	}
}

static void unlist(struct cgpu_container *container)
{
	list_del_rcu(&container->node);
	leave_group(container);
	cgpu_host_release(&cgpu_registry->host, container->grant,
			  container->leader ? container->leader->grant : NULL);
	tell_policies(NULL);
	WRITE_ONCE(cgpu_registry->count, cgpu_registry->count - 1);
	cgpu_registry_note_moving();
}

void cgpu_registry_remove(struct cgpu_container *container)
{
	mark_removed(container, false);
	unlist(container);
}

bool cgpu_registry_remove_idle(struct cgpu_container *container)
{
	if (!mark_removed(container, true))
		return false;
	unlist(container);
	return true;
}

bool cgpu_container_is_removed(struct cgpu_container *container)
{
	bool removed;

	rt_mutex_lock(&cgpu_registry->lock);
	removed = container->removed;
	rt_mutex_unlock(&cgpu_registry->lock);
	return removed;
}

/* ----------------------------------------------------------------- cards */

bool cgpu_registry_add_card(u32 minor, const struct cgpu_gpu *gpu)
{
	bool known;

	rt_mutex_lock(&cgpu_registry->lock);
	known = cgpu_registry->host.card[minor].present;
	if (known) {
		/* containers survive a reload of the driver, their settings too */
		cgpu_registry->host.topology.gpu[minor] = *gpu;
		cgpu_registry->host.topology.gpu[minor].present = true;
		cgpu_card_told(&cgpu_registry->host, minor);
	} else {
		cgpu_card_add(&cgpu_registry->host, minor, gpu);
		cgpu_card_set_defaults(&cgpu_registry->host.card[minor],
				       cgpu_door_card_defaults());
	}
	rt_mutex_unlock(&cgpu_registry->lock);
	return !known;
}

void cgpu_registry_set_mig(u32 minor, u8 mig)
{
	rt_mutex_lock(&cgpu_registry->lock);
	cgpu_registry->host.topology.gpu[minor].mig = mig;
	rt_mutex_unlock(&cgpu_registry->lock);
}

u32 cgpu_registry_vacant(void)
{
	u32 minor, vacant = 0;

	rt_mutex_lock(&cgpu_registry->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		vacant |= (cgpu_registry->host.card[minor].members ? 0U : 1U) << minor;
	rt_mutex_unlock(&cgpu_registry->lock);
	return vacant;
}

bool cgpu_registry_drop_card(u32 minor)
{
	struct cgpu_host *host = &cgpu_registry->host;
	bool drop;

	rt_mutex_lock(&cgpu_registry->lock);
	drop = host->card[minor].present && !host->card[minor].members;
	if (drop) {
		memset(&host->card[minor], 0, sizeof(host->card[minor]));
		memset(&host->topology.gpu[minor], 0, sizeof(host->topology.gpu[minor]));
	}
	rt_mutex_unlock(&cgpu_registry->lock);
	return drop;
}

/* ---------------------------------------------------------------- tables */

static void make_room_in(struct cgpu_container *container, u32 table)
{
	void *storage;
	size_t bytes;
	u32 capacity;

	rt_mutex_lock(&container->lock);
	bytes = cgpu_tenant_wants(&container->tenant, table, &capacity);
	rt_mutex_unlock(&container->lock);
	if (!bytes)
		return;
	/* not under the lock: reclaim may call our mmu notifier, which takes it */
	storage = kvzalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!storage)
		return;
	rt_mutex_lock(&container->lock);
	storage = cgpu_tenant_grow(&container->tenant, table, storage, capacity);
	rt_mutex_unlock(&container->lock);
	kvfree(storage);
}

void cgpu_container_make_room(struct cgpu_container *container)
{
	u32 table, capacity, wanting = 0;

	/* called before every call, nearly always with nothing to do: check all at once */
	rt_mutex_lock(&container->lock);
	for (table = 0; table < CGPU_TABLE_COUNT; table++)
		if (cgpu_tenant_wants(&container->tenant, table, &capacity))
			wanting |= BIT(table);
	rt_mutex_unlock(&container->lock);
	for (table = 0; table < CGPU_TABLE_COUNT; table++)
		if (wanting & BIT(table))
			make_room_in(container, table);
}

void cgpu_container_let_go(struct cgpu_container *container)
{
	bool more = READ_ONCE(container->tenant.first_over);

	/* waiters for the lock, such as gates, get it between two steps */
	while (more) {
		rt_mutex_lock(&container->lock);
		more = cgpu_tenant_close_step(&container->tenant);
		rt_mutex_unlock(&container->lock);
		cond_resched();
	}
}

/* ----------------------------------------------------------------- state */

int cgpu_registry_begin(void **part)
{
	const struct cgpu_card_defaults *defaults = cgpu_door_card_defaults();
	unsigned int max_objects = cgpu_door_max_objects();
	struct cgpu_card card = {};

	if (cgpu_card_set_defaults(&card, defaults)) {
		pr_err("cgpu: policy=%u max_inst=%u timeslice_us=%u: 0 to %d, 1 to %d and %d to %d are allowed\n",
		       defaults->policy, defaults->max_inst, defaults->timeslice_us,
		       CGPU_POLICY_END - 1, CGPU_MAX_INST_MAX, CGPU_TIMESLICE_US_MIN,
		       CGPU_TIMESLICE_US_MAX);
		return -EINVAL;
	}
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
	/* no call is inside: the locks' classes are a core's own */
	rt_mutex_init(&cgpu_registry->lock);
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		rt_mutex_init(&container->lock);
		raw_spin_lock_init(&container->refusals.lock);
	}
}

void cgpu_registry_end(void)
{
	WARN_ON(!list_empty(&cgpu_registry->containers));
	kvfree(cgpu_registry);
}

u64 cgpu_registry_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct cgpu_registry));
	digest = cgpu_digest(digest, sizeof(struct cgpu_container));
	digest = cgpu_digest(digest, offsetof(struct cgpu_container, grant));
	digest = cgpu_digest(digest, offsetof(struct cgpu_container, lock));
	digest = cgpu_digest(digest, offsetof(struct cgpu_container, tenant));
	digest = cgpu_userds_digest(digest);
	digest = cgpu_digest(digest, sizeof(struct cgpu_object));
	digest = cgpu_digest(digest, sizeof(struct cgpu_charge));
	digest = cgpu_digest(digest, sizeof(struct cgpu_file));
	return cgpu_digest(digest, sizeof(struct cgpu_range));
}
