/* SPDX-License-Identifier: GPL-2.0-only */
/* The root of /proc/cgpu_km, and what its files are opened, read and written by. */
#ifndef CGPU_DOOR_TREE_H
#define CGPU_DOOR_TREE_H

int cgpu_tree_init(void);
void cgpu_tree_exit(void);

#endif
