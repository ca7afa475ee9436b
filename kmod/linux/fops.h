/* SPDX-License-Identifier: GPL-2.0-only */
/* What the door asks when a process opens, calls, maps and closes the driver's files. */
#ifndef CGPU_LINUX_FOPS_H
#define CGPU_LINUX_FOPS_H

#include "door/door.h"

int cgpu_open_pre(enum cgpu_driver driver, u32 minor, void **token);
int cgpu_open_post(void *token, struct file *file, enum cgpu_driver driver, u32 minor,
		   int err);
void *cgpu_release_pre(struct file *file);
void cgpu_release_post(void *token);
void cgpu_ioctl_pre(struct cgpu_pass *pass);
int cgpu_mmap_pre(struct file *file, u64 start, u64 length_bytes, u64 offset_bytes,
		  void **token);
void cgpu_mmap_post(void *token, u64 start, u64 length_bytes, bool done);

#endif
