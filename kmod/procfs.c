// SPDX-License-Identifier: GPL-2.0-only
/*
 * Thin: takes the locks, gathers what a node shows, and lets core/nodes make or
 * read the text, in the kernel's memory: user memory is never touched under a
 * lock.
 *
 * The data of a file is an entry in its directory's branch. proc_remove() waits
 * for running handlers and lets none start afterwards, so a branch, and the
 * container it points to, need live only until then.
 */
#include <linux/bitops.h>
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "actuator.h"
#include "container.h"
#include "core/inst_ctl.h"
#include "core/nodes.h"
#include "discover.h"
#include "door/door.h"
#include "door/events.h"
#include "procfs.h"

enum {
	HOLDERS_FIRST = 64,
	HOLDERS_MAX = 1 << 16,
	/* room in a directory for files that a later core may add */
	NODES_MAX = 64,
};

struct entry {
	u32 node;
	u32 minor;
	struct cgpu_container *container; /* NULL: root or card */
};

/* A directory with files in it. */
struct branch {
	struct list_head node;
	struct proc_dir_entry *parent, *dir;
	struct cgpu_container *container;
	u32 minor;
	u32 place;
	u32 nodes;  /* of the node table that have been looked at */
	char name[CGPU_ID_MAX + 1];
	struct entry entries[NODES_MAX];
};

/* Handed from core to core. */
struct tree {
	/*
	 * Directories come and go under this lock, taken before registry.lock. No
	 * handler of a file that goes takes it: those of a container's and a card's
	 * files take registry.lock, and inst_ctl stays to the end.
	 */
	struct mutex lock;
	struct list_head branches; /* newest first, so children before their parents */
	struct proc_dir_entry *card_dirs[CGPU_MAX_CARDS];
	struct proc_dir_entry *containers_dir;
	struct branch root;
	unsigned long features;
};

static struct tree *tree;

void cgpu_procfs_set_feature(u32 feature, bool present)
{
	if (present)
		set_bit(feature, &tree->features);
	else
		clear_bit(feature, &tree->features);
}

/* A file that a later core made, which was given up. */
static bool is_unknown(const struct entry *entry)
{
	return entry->node >= CGPU_NODE_COUNT;
}

/*
 * The ledger's pid may have been given to somebody else since: whoever is not
 * in the container is not its holder.
 */
static void find_holder(struct cgpu_container *container, const struct cgpu_process *process,
			struct cgpu_holder *holder)
{
	struct task_struct *task;
	struct pid *pid;

	*holder = (struct cgpu_holder){ .pid = process->pid, .bytes = process->bytes };
	rcu_read_lock();
	pid = get_pid(find_pid_ns(process->pid, &init_pid_ns));
	rcu_read_unlock();
	task = get_pid_task(pid, PIDTYPE_TGID);
	if (task && cgpu_container_has(container, task)) {
		holder->container_pid = container->pid_ns ?
					pid_nr_ns(pid, container->pid_ns) :
					pid->numbers[pid->level].nr;
		get_task_comm(holder->comm, task);
	}
	if (task)
		put_task_struct(task);
	put_pid(pid);
}

static struct cgpu_process *processes_of(struct cgpu_container *container, u32 minor,
					 u32 *count)
{
	struct cgpu_process *processes;
	u32 max;

	for (max = HOLDERS_FIRST; ; max *= 2) {
		processes = kvmalloc_array(max, sizeof(*processes), GFP_KERNEL);
		if (!processes)
			return NULL;
		mutex_lock(&container->lock);
		*count = cgpu_tenant_processes(&container->tenant, minor, processes, max);
		mutex_unlock(&container->lock);
		if (*count < max || max == HOLDERS_MAX)
			return processes;
		kvfree(processes);
	}
}

/* Return: the processes that hold the card, by pid, to kvfree(), or NULL: no memory. */
static struct cgpu_holder *holders_of(struct cgpu_container *container, u32 minor, u32 *count)
{
	struct cgpu_process *processes = processes_of(container, minor, count);
	struct cgpu_holder *holders;
	u32 index;

	if (!processes)
		return NULL;
	holders = kvmalloc_array(*count + 1, sizeof(*holders), GFP_KERNEL);
	for (index = 0; holders && index < *count; index++)
		find_holder(container, &processes[index], &holders[index]);
	kvfree(processes);
	return holders;
}

/* Caller holds registry.lock. */
static void add_usage(struct cgpu_view *view)
{
	struct cgpu_container *container;

	list_for_each_entry(container, &cgpu_registry->containers, node) {
		mutex_lock(&container->lock);
		cgpu_usage_add(&view->usage,
			       &container->tenant.ledger.account[view->minor]);
		mutex_unlock(&container->lock);
	}
}

/* Return: 0 with the locks taken that `view` needs, -ENODEV: its subject is gone. */
static int lock_view(const struct entry *entry, struct cgpu_view *view)
{
	struct cgpu_container *container = entry->container;

	mutex_lock(&cgpu_registry->lock);
	if (container ? container->removed :
	    cgpu_node_table[entry->node].place == CGPU_PLACE_CARD &&
	    !cgpu_registry->host.card[entry->minor].present) {
		mutex_unlock(&cgpu_registry->lock);
		return -ENODEV;
	}
	view->version = CGPU_VERSION;
	view->features = READ_ONCE(tree->features);
	view->host = &cgpu_registry->host;
	view->minor = entry->minor;
	if (cgpu_node_table[entry->node].wants_usage)
		add_usage(view);
	if (container) {
		mutex_lock(&container->lock);
		view->id = container->id;
		view->grant = &container->grant[entry->minor];
		view->account = &container->tenant.ledger.account[entry->minor];
	}
	return 0;
}

static void unlock_view(const struct entry *entry)
{
	if (entry->container)
		mutex_unlock(&entry->container->lock);
	mutex_unlock(&cgpu_registry->lock);
}

enum { COMPUTE_STATS = 7 };

/* What the engine counts. Return: how many; 0: nobody governs the card. */
static u32 compute_stats(const struct entry *entry, struct cgpu_stat *stats)
{
	struct cgpu_sched_stat now;
	u32 count = 0;

	if (!cgpu_actuator_stat(entry->container, entry->minor, &now))
		return 0;
	stats[count++] = (struct cgpu_stat){ "granted_ns", now.granted_ns };
	stats[count++] = (struct cgpu_stat){ "used_ns", now.used_ns };
	stats[count++] = (struct cgpu_stat){ "throttled_ns", now.throttled_ns };
	stats[count++] = (struct cgpu_stat){ "switches", now.switches };
	stats[count++] = (struct cgpu_stat){ "overruns", now.overruns };
	/* values have no sign: what it owes, and what it is owed */
	stats[count++] = (struct cgpu_stat){ "debt_ns", now.debt_ns > 0 ? now.debt_ns : 0 };
	stats[count++] = (struct cgpu_stat){ "credit_ns", now.debt_ns < 0 ? -now.debt_ns : 0 };
	return count;
}

int cgpu_node_file_show(struct seq_file *seq)
{
	const struct entry *entry = seq->private;
	struct cgpu_holder *holders = NULL;
	struct cgpu_stat stats[COMPUTE_STATS];
	struct cgpu_view view = {};
	size_t size;
	char *buf;
	int used;

	if (is_unknown(entry))
		return -ENODEV;
	if (cgpu_node_table[entry->node].wants_holders) {
		holders = holders_of(entry->container, entry->minor, &view.holder_count);
		if (!holders)
			return -ENOMEM;
		view.holders = holders;
	}
	if (cgpu_node_table[entry->node].wants_stats && entry->container) {
		view.stats = stats;
		view.stat_count = compute_stats(entry, stats);
	}
	size = seq_get_buf(seq, &buf);
	used = lock_view(entry, &view);
	if (!used) {
		used = cgpu_node_show(&view, entry->node, buf, size);
		unlock_view(entry);
	}
	kvfree(holders);
	if (used < 0 && used != -ENOSPC)
		return used;
	/* -1 has us called again with twice the buffer */
	seq_commit(seq, used < 0 ? -1 : used);
	return 0;
}

/*
 * Root in a container is the owner of these files too, if its runtime shows it
 * this /proc: writing takes a capability of the host, and is not for those who
 * are limited by it.
 */
static int may_write(const struct entry *entry)
{
	if (!(cgpu_node_table[entry->node].mode & 0200))
		return -EACCES;
	return capable(CAP_SYS_ADMIN) && !cgpu_container_is_managed(current) ? 0 : -EPERM;
}

int cgpu_node_file_open(void *data, bool write)
{
	struct entry *entry = data;
	int err = 0;

	if (is_unknown(entry))
		return -ENODEV;
	if (write)
		err = may_write(entry);
	/* whoever opens it wants the cards; asking the driver takes a process */
	if (!err && entry->node == CGPU_NODE_INST_CTL)
		cgpu_discover();
	return err;
}

static int run_command(const char *text, size_t length)
{
	struct cgpu_command *command = kmalloc(sizeof(*command), GFP_KERNEL);
	int err;

	if (!command)
		return -ENOMEM;
	err = cgpu_parse_inst_ctl(text, length, command);
	if (!err)
		err = command->verb == CGPU_VERB_CREATE ?
		      cgpu_container_create(&command->create) :
		      cgpu_container_destroy(command->create.id);
	kfree(command);
	return err;
}

static int store_value(const struct entry *entry, const char *text, size_t length)
{
	const char *name = cgpu_node_table[entry->node].name;
	struct cgpu_view view = {};
	int err;

	err = lock_view(entry, &view);
	if (err)
		return err;
	err = cgpu_node_store(&view, entry->node, text, length);
	/* under the lock: lines come in the order of what they tell */
	if (!err && entry->container)
		cgpu_event("set %u/%s/%s %.*s", entry->minor, entry->container->id, name,
			   (int)strcspn(text, "\n"), text);
	else if (!err)
		cgpu_event("set %u/%s %.*s", entry->minor, name,
			   (int)strcspn(text, "\n"), text);
	unlock_view(entry);
	if (!err)
		cgpu_actuator_poke(entry->minor);
	return err;
}

int cgpu_node_file_write(void *data, const char *text, size_t size)
{
	const struct entry *entry = data;
	bool command = entry->node == CGPU_NODE_INST_CTL;

	if (is_unknown(entry))
		return -ENODEV;
	if (size > (command ? CGPU_COMMAND_MAX : CGPU_VALUE_MAX))
		return -EINVAL;
	return command ? run_command(text, size) : store_value(entry, text, size);
}

/*
 * Gives a directory the files that it lacks: all, or those that are new with
 * this core. On an error of the first kind the caller removes the directory.
 */
static int add_files(struct branch *branch)
{
	BUILD_BUG_ON((int)CGPU_NODE_COUNT > (int)NODES_MAX);
	for (; branch->nodes < CGPU_NODE_COUNT; branch->nodes++) {
		u32 node = branch->nodes;
		const struct cgpu_node_entry *file = &cgpu_node_table[node];
		struct entry *entry = &branch->entries[node];

		/* `events` is the door's */
		if (file->place != branch->place || node == CGPU_NODE_EVENTS)
			continue;
		*entry = (struct entry){ node, branch->minor, branch->container };
		if (!proc_create_data(file->name, file->mode, branch->dir,
				      &cgpu_door_node_ops, entry))
			return -ENOMEM;
	}
	return 0;
}

/* Return: the directory's branch; an error: -EEXIST: the name is taken, -ENOMEM. */
static struct branch *add_branch(const char *name, struct proc_dir_entry *parent, u32 place,
				 u32 minor, struct cgpu_container *container)
{
	struct branch *branch, *other;

	/* procfs would make it all the same, with a warning in the kernel's log */
	list_for_each_entry(other, &tree->branches, node)
		if (other->parent == parent && !strcmp(other->name, name))
			return ERR_PTR(-EEXIST);
	branch = kzalloc(sizeof(*branch), GFP_KERNEL);
	if (!branch)
		return ERR_PTR(-ENOMEM);
	strscpy(branch->name, name, sizeof(branch->name));
	branch->minor = minor;
	branch->place = place;
	branch->container = container;
	branch->parent = parent;
	branch->dir = proc_mkdir(name, parent);
	if (!branch->dir || add_files(branch)) {
		proc_remove(branch->dir);
		kfree(branch);
		return ERR_PTR(-ENOMEM);
	}
	list_add(&branch->node, &tree->branches);
	return branch;
}

/* Removes the branches of a container, or of a card itself. */
static void remove_branches(u32 minor, const struct cgpu_container *container)
{
	struct branch *branch, *next;

	list_for_each_entry_safe(branch, next, &tree->branches, node) {
		if (branch->container != container || (!container && branch->minor != minor))
			continue;
		proc_remove(branch->dir);
		list_del(&branch->node);
		kfree(branch);
	}
}

static bool is_removed(struct cgpu_container *container)
{
	bool removed;

	mutex_lock(&cgpu_registry->lock);
	removed = container->removed;
	mutex_unlock(&cgpu_registry->lock);
	return removed;
}

/*
 * Between the end of a container in the registry and the end of its directories
 * another one of the same name can be created: its way is made free here.
 */
static void remove_leftovers(void)
{
	struct branch *branch, *next;

	list_for_each_entry_safe(branch, next, &tree->branches, node) {
		if (!branch->container || !is_removed(branch->container))
			continue;
		proc_remove(branch->dir);
		list_del(&branch->node);
		kfree(branch);
	}
}

int cgpu_procfs_add_card(u32 minor)
{
	struct branch *branch;
	char name[12];

	snprintf(name, sizeof(name), "%u", minor);
	mutex_lock(&tree->lock);
	branch = add_branch(name, tree->root.dir, CGPU_PLACE_CARD, minor, NULL);
	if (!IS_ERR(branch))
		tree->card_dirs[minor] = branch->dir;
	mutex_unlock(&tree->lock);
	return PTR_ERR_OR_ZERO(branch);
}

void cgpu_procfs_remove_card(u32 minor)
{
	mutex_lock(&tree->lock);
	tree->card_dirs[minor] = NULL;
	remove_branches(minor, NULL);
	mutex_unlock(&tree->lock);
}

static int add_grant(struct cgpu_container *container, u32 minor, struct branch *own)
{
	struct branch *branch;
	char name[12];

	if (!tree->card_dirs[minor])
		return -ENODEV;
	snprintf(name, sizeof(name), "%u", minor);
	branch = add_branch(name, own->dir, CGPU_PLACE_GRANT, minor, container);
	if (IS_ERR(branch))
		return PTR_ERR(branch);
	branch = add_branch(container->name, tree->card_dirs[minor], CGPU_PLACE_GRANT, minor,
			    container);
	return PTR_ERR_OR_ZERO(branch);
}

static int add_container(struct cgpu_container *container)
{
	struct branch *own;
	u32 minor;
	int err;

	own = add_branch(container->id, tree->containers_dir, CGPU_PLACE_CONTAINER, 0, container);
	if (IS_ERR(own))
		return PTR_ERR(own);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		if (!container->grant[minor].present)
			continue;
		err = add_grant(container, minor, own);
		if (err)
			return err;
	}
	return 0;
}

int cgpu_procfs_add_container(struct cgpu_container *container)
{
	int err;

	mutex_lock(&tree->lock);
	remove_leftovers();
	/* whoever removes it later waits for the lock, and finds all that is made here */
	err = is_removed(container) ? -ENODEV : add_container(container);
	if (err)
		remove_branches(0, container);
	mutex_unlock(&tree->lock);
	return err;
}

void cgpu_procfs_remove_container(struct cgpu_container *container)
{
	mutex_lock(&tree->lock);
	remove_branches(0, container);
	mutex_unlock(&tree->lock);
}

/* ----------------------------------------------------------------- state */

int cgpu_tree_begin(void **part)
{
	tree = kvzalloc(sizeof(*tree), GFP_KERNEL);
	if (!tree)
		return -ENOMEM;
	mutex_init(&tree->lock);
	INIT_LIST_HEAD(&tree->branches);
	tree->features = BIT(CGPU_FEATURE_PID) | BIT(CGPU_FEATURE_CGROUP) |
			 BIT(CGPU_FEATURE_EVENTS) | BIT(CGPU_FEATURE_UPGRADE);
	tree->root.dir = cgpu_door_root();
	tree->root.place = CGPU_PLACE_ROOT;
	tree->containers_dir = proc_mkdir("container", tree->root.dir);
	if (!tree->containers_dir || add_files(&tree->root)) {
		cgpu_tree_end();
		return -ENOMEM;
	}
	*part = tree;
	return 0;
}

void cgpu_tree_adopt(void *part)
{
	struct branch *branch;
	int err;

	tree = part;
	mutex_init(&tree->lock);
	err = add_files(&tree->root);
	list_for_each_entry(branch, &tree->branches, node)
		err = add_files(branch) ? : err;
	if (err)
		pr_warn("cgpu: no memory for the files that are new with this version\n");
}

void cgpu_tree_end(void)
{
	struct branch *branch, *next;
	u32 node;

	/* cards; containers are gone */
	list_for_each_entry_safe(branch, next, &tree->branches, node) {
		proc_remove(branch->dir);
		kfree(branch);
	}
	proc_remove(tree->containers_dir);
	for (node = 0; node < tree->root.nodes; node++)
		if (cgpu_node_table[node].place == CGPU_PLACE_ROOT && node != CGPU_NODE_EVENTS)
			remove_proc_entry(cgpu_node_table[node].name, tree->root.dir);
	kvfree(tree);
}

u64 cgpu_tree_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct tree));
	digest = cgpu_digest(digest, sizeof(struct branch));
	return cgpu_digest(digest, sizeof(struct entry));
}
