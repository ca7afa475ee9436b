/* SPDX-License-Identifier: GPL-2.0-only */
/* /proc/cgpu_km: the files whose text core/nodes makes. */
#ifndef CGPU_PROCFS_H
#define CGPU_PROCFS_H

#include <linux/types.h>

#include "state.h"

struct cgpu_container;
struct seq_file;

int cgpu_tree_begin(void **part);
void cgpu_tree_adopt(void *part);
/* All containers must have been removed. */
void cgpu_tree_end(void);
u64 cgpu_tree_digest(u64 digest);

/* A file of the tree is opened, read, written: the door's node_open and so on. */
int cgpu_node_file_open(void *data, bool write);
int cgpu_node_file_show(struct seq_file *seq);
int cgpu_node_file_write(void *data, const char *text, size_t size);

/* A feature (enum cgpu_feature) came or went. */
void cgpu_procfs_set_feature(u32 feature, bool present);

/*
 * Directories come and go here. Caller holds neither registry.lock nor a
 * container's: removal waits for handlers, which take them. Removing what was
 * not added, or only in part, is allowed.
 *
 * A container must hold still while its directories exist: the caller keeps a
 * reference across add and remove. Once it is marked as removed its files
 * answer -ENODEV.
 *
 * Return: 0, -ENOMEM, -EEXIST: the directory's name is taken, -ENODEV: no
 * such card's directory, or the container was removed meanwhile. On an error
 * nothing is left behind.
 */
int cgpu_procfs_add_card(u32 minor);
void cgpu_procfs_remove_card(u32 minor);
int cgpu_procfs_add_container(struct cgpu_container *container);
void cgpu_procfs_remove_container(struct cgpu_container *container);

#endif
