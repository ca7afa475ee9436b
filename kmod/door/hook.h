/* SPDX-License-Identifier: GPL-2.0-only */
/* Interposition on the NVIDIA driver's character devices. */
#ifndef CGPU_DOOR_HOOK_H
#define CGPU_DOOR_HOOK_H

int cgpu_hook_init(void);
/* Restores the driver's pointers and waits until nobody is inside. */
void cgpu_hook_exit(void);

/* Looks for a driver to hook before long, and again while one is half there. */
void cgpu_hook_look(void);

#endif
