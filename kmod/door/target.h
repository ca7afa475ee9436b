/* SPDX-License-Identifier: GPL-2.0-only */
/* A table of the driver's file operations whose pointers are replaced by ours. */
#ifndef CGPU_DOOR_TARGET_H
#define CGPU_DOOR_TARGET_H

#include <linux/fs.h>

/* Originals are written before the pointers are. */
struct cgpu_target {
	const char *path;             /* a device that the table serves */
	const char *module;
	struct file_operations *fops; /* NULL: not hooked */
	struct file_operations *alias; /* the same table, writable, while it is hooked */
	unsigned int major;           /* of that device, since it was hooked */
	bool gap;                     /* gap.c's */
	struct file_operations original;
	const struct file_operations *replacement;
};

/**
 * cgpu_target_patch() - put our pointers into the driver's table
 * @target: not hooked
 * @fops: the driver's table
 *
 * An operation that the driver does not serve stays unserved.
 *
 * Context: sleeps; one caller at a time.
 * Return: 0, -EINVAL: its pointers are not its own, -ENOMEM.
 */
int cgpu_target_patch(struct cgpu_target *target, const struct file_operations *fops);

/**
 * cgpu_target_restore() - put the driver's pointers back where ours still are
 * @target: hooked or not
 *
 * Needs no memory and cannot fail: the module goes next.
 *
 * Context: as cgpu_target_patch(). Callers may be inside our functions on return.
 */
void cgpu_target_restore(struct cgpu_target *target);

#endif
