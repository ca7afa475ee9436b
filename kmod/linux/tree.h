/* SPDX-License-Identifier: GPL-2.0-only */
/* /proc/cgpu_km: its directories, which come and go with cards and containers. */
#ifndef CGPU_LINUX_TREE_H
#define CGPU_LINUX_TREE_H

#include <linux/types.h>

#include "state.h"

struct cgpu_container;

/**
 * struct cgpu_tree_entry - what a file of the tree is about
 * @node: of core/tree/nodes.h; a core that was given up may have left unknown ones
 * @minor: the card, where the node is one of a card or of a container on it
 * @container: NULL: of the root or of a card
 * @file: in procfs
 */
struct cgpu_tree_entry {
	u32 node;
	u32 minor;
	struct cgpu_container *container;
	struct proc_dir_entry *file;
};

/**
 * cgpu_tree_entry_get() - keep an entry, and the container that it is about
 * @entry: of a file that is being opened
 */
void cgpu_tree_entry_get(struct cgpu_tree_entry *entry);

/**
 * cgpu_tree_entry_put() - end what cgpu_tree_entry_get() began
 * @entry: its file is closed
 */
void cgpu_tree_entry_put(struct cgpu_tree_entry *entry);

int cgpu_tree_begin(void **part);
void cgpu_tree_adopt(void *part);
/* All containers must have been removed. */
void cgpu_tree_end(void);
u64 cgpu_tree_digest(u64 digest);

/**
 * cgpu_tree_set_feature() - a word of `features` comes or goes
 * @feature: enum cgpu_feature
 * @present: whether it is shown from now on
 */
void cgpu_tree_set_feature(u32 feature, bool present);

/**
 * cgpu_tree_features() - the words of `features`
 *
 * Return: a bit per enum cgpu_feature.
 */
unsigned long cgpu_tree_features(void);

/**
 * cgpu_tree_shows() - may current find a name in a directory of containers?
 * @name: of a file, or of a container's directory
 * @length: of @name
 *
 * Context: behind CALLS.
 */
bool cgpu_tree_shows(const char *name, size_t length);

/*
 * Directories come and go below. The caller holds neither registry.lock nor a container's: removal
 * waits for an open in progress, which takes them. Removing what was not added, or only in part, is
 * allowed.
 *
 * A directory, and each open file in it, keeps its container. Once that is marked as removed its
 * files answer -ENODEV.
 */

/**
 * cgpu_tree_add_card() - make the directory of a card
 * @minor: the card
 *
 * Return: 0, -ENOMEM.
 */
int cgpu_tree_add_card(u32 minor);

/**
 * cgpu_tree_remove_card() - remove the directory of a card without containers
 * @minor: the card
 */
void cgpu_tree_remove_card(u32 minor);

/**
 * cgpu_tree_add_container() - make the directories of a container
 * @container: listed
 *
 * Return: 0, -ENOMEM, -EEXIST: a directory's name is taken, -ENODEV: no such
 * card's directory, or the container was removed meanwhile. On an error nothing
 * is left behind.
 */
int cgpu_tree_add_container(struct cgpu_container *container);

/**
 * cgpu_tree_remove_container() - remove the directories of a container
 * @container: removed from the registry
 */
void cgpu_tree_remove_container(struct cgpu_container *container);

#endif
