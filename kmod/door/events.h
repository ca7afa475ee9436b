/* SPDX-License-Identifier: GPL-2.0-only */
/* The file `events`: one line per event, to be read or polled. docs/tree.md lists the lines. */
#ifndef CGPU_DOOR_EVENTS_H
#define CGPU_DOOR_EVENTS_H

#include <linux/compiler.h>

struct proc_dir_entry;

/**
 * cgpu_event() - append "<ns> <text>", where ns is the time since 1970
 * @format: as of printk()
 *
 * Control characters in the text become '?'; what is longer than a line is cut off.
 *
 * Context: any but NMI; takes no lock but its own.
 */
__printf(1, 2) void cgpu_event(const char *format, ...);

/**
 * cgpu_events_init() - make the file `events`
 * @root: where; the file goes with it
 *
 * Return: 0, -ENOMEM.
 */
int cgpu_events_init(struct proc_dir_entry *root);

#endif
