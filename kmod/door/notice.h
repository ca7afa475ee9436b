/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CGPU_DOOR_NOTICE_H
#define CGPU_DOOR_NOTICE_H

#include <linux/compiler.h>

/**
 * cgpu_notice() - write a line to the standard error of the current process, once a process
 * @format: as of printk(), without the line's end
 *
 * Only if that is a terminal or a pipe, which is where a container's log comes from, and has
 * room: no regular file is written to. A worker writes it later.
 *
 * Context: process, may sleep; any lock that an allocation may be made under.
 */
__printf(1, 2) void cgpu_notice(const char *format, ...);

/**
 * cgpu_notice_init() - make what writes
 *
 * Return: 0, -ENOMEM.
 */
int cgpu_notice_init(void);

/**
 * cgpu_notice_exit() - no caller is left; wait for what is being written
 */
void cgpu_notice_exit(void);

#endif
