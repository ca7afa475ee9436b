/* SPDX-License-Identifier: GPL-2.0-only */
/* Interposition on the NVIDIA driver's character devices. */
#ifndef CGPU_DOOR_HOOK_H
#define CGPU_DOOR_HOOK_H

/**
 * cgpu_hook_init() - look out for the driver's modules
 *
 * Return: 0, -errno.
 */
int cgpu_hook_init(void);

/** cgpu_hook_exit() - restore the driver's pointers; no task is inside on return */
void cgpu_hook_exit(void);

/** cgpu_hook_look() - hook what is loaded, before long, and again while it is half there */
void cgpu_hook_look(void);

#endif
