/* SPDX-License-Identifier: GPL-2.0-only */
/* The root of /proc/cgpu_km, and the operations of its files. */
#ifndef CGPU_DOOR_TREE_H
#define CGPU_DOOR_TREE_H

/**
 * cgpu_door_tree_init() - make /proc/cgpu_km
 *
 * Return: 0, -ENOMEM.
 */
int cgpu_door_tree_init(void);

/** cgpu_door_tree_exit() - remove it, with all that is in it */
void cgpu_door_tree_exit(void);

#endif
