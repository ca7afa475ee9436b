/* SPDX-License-Identifier: GPL-2.0-only */
/* Which dma-buf the driver made, or was handed, in a call. */
#ifndef CGPU_DOOR_DMABUF_H
#define CGPU_DOOR_DMABUF_H

#include <linux/list.h>
#include <linux/types.h>

struct file;
struct task_struct;

/**
 * struct cgpu_dmabuf_watch - a call under way that exports memory
 * @node: among those watched
 * @task: the caller
 * @file: of the dma-buf, with a reference; NULL: none was seen
 */
struct cgpu_dmabuf_watch {
	struct hlist_node node;
	struct task_struct *task;
	struct file *file;
};

/**
 * cgpu_dmabuf_init() - begin to look
 *
 * Where the kernel cannot be looked at, cgpu_door_sees_exports() says so.
 *
 * Return: 0; -ENOMEM, -EBUSY (ftrace is off): not now.
 */
int cgpu_dmabuf_init(void);
void cgpu_dmabuf_exit(void);

/** cgpu_dmabuf_begin() - current is about to export */
void cgpu_dmabuf_begin(struct cgpu_dmabuf_watch *watch);

/**
 * cgpu_dmabuf_end() - the driver is through
 * @watch: of cgpu_dmabuf_begin(), by the same task
 *
 * Return: the dma-buf's file, whose reference is the caller's, or NULL.
 */
struct file *cgpu_dmabuf_end(struct cgpu_dmabuf_watch *watch);

#endif
