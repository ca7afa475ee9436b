/* SPDX-License-Identifier: GPL-2.0-only */
/* Which core is in charge, and how the next one takes over: the file `upgrade`. */
#ifndef CGPU_DOOR_SWITCH_H
#define CGPU_DOOR_SWITCH_H

struct proc_dir_entry;

/**
 * cgpu_switch_init() - make the file `upgrade`
 * @root: where; the file goes with it
 *
 * Return: 0, -ENOMEM.
 */
int cgpu_switch_init(struct proc_dir_entry *root);

/** cgpu_switch_exit() - end what may still run; no core is loaded any more */
void cgpu_switch_exit(void);

#endif
