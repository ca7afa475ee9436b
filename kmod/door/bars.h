/* SPDX-License-Identifier: GPL-2.0-only */
/* Root in a container has no card past the driver, and does not set the driver itself. */
#ifndef CGPU_DOOR_BARS_H
#define CGPU_DOOR_BARS_H

/**
 * cgpu_bars_init() - begin to refuse
 *
 * To processes in containers without raw I/O: the files of /sys by which a card's
 * memory and registers are mapped or read, and the driver's own in /proc for writing. Where
 * the kernel cannot be probed its log says so, and they are for root in any container.
 *
 * Return: 0; -ENOMEM, -EBUSY (ftrace is off): not now.
 */
int cgpu_bars_init(void);

/** cgpu_bars_exit() - end it; no call is inside on return */
void cgpu_bars_exit(void);

#endif
