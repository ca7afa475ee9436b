/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The file `events`: what happened, a line each, for whoever reads or polls.
 * The lines are listed in docs/tree.md.
 */
#ifndef CGPU_DOOR_EVENTS_H
#define CGPU_DOOR_EVENTS_H

#include <linux/compiler.h>

/*
 * Appends "<ns> <text>", where ns is the time since 1970. Context: any but NMI;
 * takes no lock but its own. Control characters in the text become '?', and what
 * is longer than a line is cut off.
 */
__printf(1, 2) void cgpu_event(const char *format, ...);

/* Makes the file; it goes with the root. Return: 0, -ENOMEM. */
int cgpu_events_init(void);

#endif
