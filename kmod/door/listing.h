/* SPDX-License-Identifier: GPL-2.0-only */
/* Which directories of containers a container sees. */
#ifndef CGPU_DOOR_LISTING_H
#define CGPU_DOOR_LISTING_H

/**
 * cgpu_listing_init() - begin to leave out other containers' names
 *
 * If the kernel cannot be probed, its log says so, and all names are visible.
 *
 * Return: 0; -ENOMEM, -EBUSY (ftrace is off): not now.
 */
int cgpu_listing_init(void);

/** cgpu_listing_exit() - end it; no task is inside on return */
void cgpu_listing_exit(void);

#endif
