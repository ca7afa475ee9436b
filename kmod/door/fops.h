/* SPDX-License-Identifier: GPL-2.0-only */
/* The operations by which the driver's files are opened, called, mapped and closed while hooked. */
#ifndef CGPU_DOOR_FOPS_H
#define CGPU_DOOR_FOPS_H

#include "target.h"

/* nvidiactl and the cards; nvidia-uvm; nvidia-uvm-tools. */
extern struct cgpu_target cgpu_rm_target, cgpu_uvm_target, cgpu_tools_target;

enum { CGPU_TOOLS_MINOR = 1 }; /* of UVM's major */

/**
 * cgpu_fops_drain() - wait until no task is inside our functions
 *
 * Called after the driver's pointers were restored. SRCU covers tasks inside one;
 * RCU-tasks covers those that loaded our pointer and have not entered, or have left the
 * SRCU section and not yet returned: neither sleeps in between.
 *
 * Context: sleeps.
 */
void cgpu_fops_drain(void);

#endif
