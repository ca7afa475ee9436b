// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data of a file is an entry in its directory's branch, which lives as long as the directory or
 * any open file of it. proc_remove() waits for an open in progress, and each open file keeps the
 * branch. node_file.c makes a file's text.
 */
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "core/tree/nodes.h"
#include "door/door.h"
#include "registry.h"
#include "tree.h"

enum {
	/* room in a directory for files that a later core may add */
	NODES_MAX = 64,
};

/* A directory with files in it. */
struct branch {
	struct kref refs; /* the directory's, and one for each open file */
	struct list_head node;
	struct proc_dir_entry *parent, *dir;
	struct cgpu_container *container;
	u32 minor;
	u32 place;
	u32 nodes;  /* of the node table that have been looked at */
	char name[CGPU_ID_MAX + 1];
	struct cgpu_tree_entry entries[NODES_MAX];
};

/* The state that one core hands to the next. */
struct tree {
	/*
	 * Directories come and go under this lock, taken before registry.lock. Opening a file that
	 * is being removed does not take it.
	 */
	struct mutex lock;
	struct list_head branches; /* newest first, so children before their parents */
	struct proc_dir_entry *card_dirs[CGPU_MAX_CARDS];
	struct proc_dir_entry *containers_dir;
	struct branch root;
	unsigned long features;
};

static struct tree *tree;

void cgpu_tree_set_feature(u32 feature, bool present)
{
	if (present)
		set_bit(feature, &tree->features);
	else
		clear_bit(feature, &tree->features);
}

unsigned long cgpu_tree_features(void)
{
	return READ_ONCE(tree->features);
}

/* The root's is part of the tree, and never the last to be let go. */
static void branch_release(struct kref *refs)
{
	struct branch *branch = container_of(refs, struct branch, refs);

	if (branch->container)
		cgpu_container_put(branch->container);
	kfree(branch);
}

static struct branch *branch_of(struct cgpu_tree_entry *entry)
{
	return container_of(entry - entry->node, struct branch, entries[0]);
}

void cgpu_tree_entry_get(struct cgpu_tree_entry *entry)
{
	kref_get(&branch_of(entry)->refs);
}

void cgpu_tree_entry_put(struct cgpu_tree_entry *entry)
{
	kref_put(&branch_of(entry)->refs, branch_release);
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
		struct cgpu_tree_entry *entry = &branch->entries[node];

		/* `events` is the door's */
		if (file->place != branch->place || node == CGPU_NODE_EVENTS)
			continue;
		*entry = (struct cgpu_tree_entry){ node, branch->minor, branch->container };
		entry->file = proc_create_data(file->name, file->mode, branch->dir,
					       &cgpu_door_node_ops, entry);
		if (!entry->file)
			return -ENOMEM;
	}
	return 0;
}

static struct proc_dir_entry *make_directory(const char *name, struct proc_dir_entry *parent,
					     bool of_containers)
{
	return proc_mkdir_data(name, 0, parent,
			       of_containers ? (void *)&cgpu_door_containers : NULL);
}

static void remove_leaf(struct branch *branch)
{
	proc_remove(branch->dir);
	list_del(&branch->node);
	kref_put(&branch->refs, branch_release);
}

/*
 * procfs frees a directory with all that is in it. So directories of ended containers, not yet
 * removed here, go before it. They are newer, so a walk over all branches may remove the one where
 * it is.
 */
static void remove_branch(struct branch *branch)
{
	struct branch *inner, *next;

	list_for_each_entry_safe(inner, next, &tree->branches, node)
		if (inner->parent == branch->dir)
			remove_leaf(inner);
	remove_leaf(branch);
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
	kref_init(&branch->refs);
	branch->container = container;
	if (container)
		cgpu_container_get(container);
	branch->parent = parent;
	branch->dir = make_directory(name, parent, place == CGPU_PLACE_CARD);
	list_add(&branch->node, &tree->branches);
	if (!branch->dir || add_files(branch)) {
		remove_branch(branch);
		return ERR_PTR(-ENOMEM);
	}
	return branch;
}

/* Removes the branches of a container, or of a card itself. */
static void remove_branches(u32 minor, const struct cgpu_container *container)
{
	struct branch *branch, *next;

	list_for_each_entry_safe(branch, next, &tree->branches, node) {
		if (branch->container != container || (!container && branch->minor != minor))
			continue;
		remove_branch(branch);
	}
}

/*
 * Between the end of a container in the registry and the end of its directories
 * another one of the same name can be created: its way is made free here.
 */
static void remove_leftovers(void)
{
	struct branch *branch, *next;

	list_for_each_entry_safe(branch, next, &tree->branches, node) {
		if (!branch->container || !cgpu_container_is_removed(branch->container))
			continue;
		remove_branch(branch);
	}
}

int cgpu_tree_add_card(u32 minor)
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

void cgpu_tree_remove_card(u32 minor)
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

int cgpu_tree_add_container(struct cgpu_container *container)
{
	int err;

	mutex_lock(&tree->lock);
	remove_leftovers();
	/* a later removal waits for the lock, and finds all that is made here */
	err = cgpu_container_is_removed(container) ? -ENODEV : add_container(container);
	if (err)
		remove_branches(0, container);
	mutex_unlock(&tree->lock);
	return err;
}

void cgpu_tree_remove_container(struct cgpu_container *container)
{
	mutex_lock(&tree->lock);
	remove_branches(0, container);
	mutex_unlock(&tree->lock);
}

bool cgpu_tree_shows(const char *name, size_t length)
{
	u32 node;

	for (node = 0; node < CGPU_NODE_COUNT; node++)
		if (cgpu_node_table[node].place == CGPU_PLACE_CARD &&
		    !strncmp(cgpu_node_table[node].name, name, length) &&
		    !cgpu_node_table[node].name[length])
			return true;
	return cgpu_container_may_see(current, name, length);
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
			 BIT(CGPU_FEATURE_EVENTS) | BIT(CGPU_FEATURE_UPGRADE) |
			 BIT(CGPU_FEATURE_PARK);
	kref_init(&tree->root.refs);
	tree->root.dir = cgpu_door_root();
	tree->root.place = CGPU_PLACE_ROOT;
	tree->containers_dir = make_directory("container", tree->root.dir, true);
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
	/* the core before this one may have been without it */
	cgpu_tree_set_feature(CGPU_FEATURE_PARK, true);
	err = add_files(&tree->root);
	list_for_each_entry(branch, &tree->branches, node)
		err = add_files(branch) ?: err;
	if (err)
		pr_warn("cgpu: no memory for the files that are new with this version\n");
}

void cgpu_tree_end(void)
{
	struct branch *branch, *next;
	u32 node;

	/* cards; containers are gone */
	list_for_each_entry_safe(branch, next, &tree->branches, node)
		remove_branch(branch);
	proc_remove(tree->containers_dir);
	/* also those of a later core, which was given up */
	for (node = 0; node < NODES_MAX; node++)
		proc_remove(tree->root.entries[node].file);
	WARN_ON(kref_read(&tree->root.refs) != 1);
	kvfree(tree);
}

u64 cgpu_tree_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct tree));
	digest = cgpu_digest(digest, sizeof(struct branch));
	return cgpu_digest(digest, sizeof(struct cgpu_tree_entry));
}
