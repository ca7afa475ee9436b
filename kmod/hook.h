/* SPDX-License-Identifier: GPL-2.0-only */
/* Interposition on the NVIDIA driver's character devices. */
#ifndef CGPU_HOOK_H
#define CGPU_HOOK_H

#include <linux/types.h>

int cgpu_hook_init(void);
/*
 * Restores the driver's pointers and waits until nobody is inside. No
 * container may exist.
 */
void cgpu_hook_exit(void);

/*
 * Hooks what is loaded and not hooked yet. Return: 0: the RM driver is hooked,
 * -ENODEV: it is not loaded or has no device node, -EOPNOTSUPP: its version is
 * not known (module parameter force_branch), -EINVAL: its pointers are not its
 * own, somebody else has hooked it.
 */
int cgpu_hook_attach(void);

/* The layouts of the hooked driver; NULL: none is hooked. */
const struct cgpu_abi *cgpu_hook_abi(void);
/* "550.163.01", "": none is hooked. */
const char *cgpu_hook_driver_version(void);

struct file;
/* The driver's own ioctl, past the hook. `file` is one of its files. */
long cgpu_hook_driver_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

#endif
