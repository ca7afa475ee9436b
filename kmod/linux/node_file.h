/* SPDX-License-Identifier: GPL-2.0-only */
/* The text of a file in /proc/cgpu_km, which core/tree/nodes makes and reads. */
#ifndef CGPU_LINUX_NODE_FILE_H
#define CGPU_LINUX_NODE_FILE_H

#include <linux/types.h>

struct seq_file;

/**
 * cgpu_node_file_open() - may current open the file?
 * @data: the file's struct cgpu_tree_entry
 * @write: for writing
 *
 * Return: 0: it may, and the entry stays until cgpu_node_file_release(); -EPERM, -EACCES.
 */
int cgpu_node_file_open(void *data, bool write);

/**
 * cgpu_node_file_release() - an open file is closed
 * @data: as cgpu_node_file_open()
 */
void cgpu_node_file_release(void *data);

/**
 * cgpu_node_file_open_events() - may current open the door's `events`?
 *
 * Return: 0, -EACCES.
 */
int cgpu_node_file_open_events(void);

/**
 * cgpu_node_file_show() - the text of a file
 * @seq: its private data is the file's struct cgpu_tree_entry
 *
 * Return: 0, -ENODEV: what it is about is gone, -ENOMEM.
 */
int cgpu_node_file_show(struct seq_file *seq);

/**
 * cgpu_node_file_write() - a file was written to
 * @data: as cgpu_node_file_open()
 * @text: in the kernel's memory
 * @size: its bytes
 *
 * Return: 0 or the errno of docs/tree.md; on an error nothing changed.
 */
int cgpu_node_file_write(void *data, const char *text, size_t size);

#endif
