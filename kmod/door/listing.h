/* SPDX-License-Identifier: GPL-2.0-only */
/* What a container is shown of the directories of containers. */
#ifndef CGPU_DOOR_LISTING_H
#define CGPU_DOOR_LISTING_H

/**
 * cgpu_listing_init() - begin to leave out other containers' names
 *
 * Where the kernel cannot be probed its log says so, and the names are for all.
 *
 * Return: 0; -ENOMEM, -EBUSY (ftrace is off): not now.
 */
int cgpu_listing_init(void);

/** cgpu_listing_exit() - end it; nobody is inside on return */
void cgpu_listing_exit(void);

#endif
