/* SPDX-License-Identifier: GPL-2.0-only */
/* Which file the driver finds behind a descriptor that a call names. */
#ifndef CGPU_DOOR_DESCRIPTOR_H
#define CGPU_DOOR_DESCRIPTOR_H

#include <linux/list.h>
#include <linux/types.h>

struct file;
struct task_struct;

/**
 * struct cgpu_descriptor_watch - a call under way that names a descriptor
 * @node: among those watched
 * @task: the caller
 * @file: what the core found behind it and holds; NULL: nothing was there
 * @followed: each lookup of the driver's finds @file, or nothing
 */
struct cgpu_descriptor_watch {
	struct hlist_node node;
	struct task_struct *task;
	struct file *file;
	bool followed;
};

/**
 * cgpu_descriptor_attach() - the driver's own lookups can be followed from the first watch on
 *
 * If they cannot be followed, the kernel's log says so, and the core compares the
 * file before a call with that after it.
 *
 * Context: the driver is loaded. No other caller attaches or detaches meanwhile.
 */
void cgpu_descriptor_attach(void);
void cgpu_descriptor_detach(void);
/* For good; no call is under way. */
void cgpu_descriptor_exit(void);

/**
 * cgpu_descriptor_begin() - current asks the driver: it finds @file, or nothing
 * @watch: filled in
 * @file: what the core holds behind the descriptor
 *
 * Context: sleeps.
 * Return: 0; -ENOMEM: nothing is watched, and the driver must not be asked.
 */
int cgpu_descriptor_begin(struct cgpu_descriptor_watch *watch, struct file *file);

/** cgpu_descriptor_end() - the driver is through; by the task that began */
void cgpu_descriptor_end(struct cgpu_descriptor_watch *watch);

#endif
