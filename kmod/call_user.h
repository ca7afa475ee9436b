/* SPDX-License-Identifier: GPL-2.0-only */
/* One ioctl of a container's process: copy in, ask core, forward, copy out. */
#ifndef CGPU_CALL_USER_H
#define CGPU_CALL_USER_H

#include "core/rm_versions.h"
#include "open_file.h"

long cgpu_call_user(struct cgpu_open_file *open_file, struct file *file,
		    unsigned int cmd, unsigned long arg,
		    long (*original)(struct file *, unsigned int, unsigned long),
		    const struct cgpu_abi *abi);

#endif
