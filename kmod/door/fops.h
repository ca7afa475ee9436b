/* SPDX-License-Identifier: GPL-2.0-only */
/* What the driver's files are opened, called, mapped and closed by while they are hooked. */
#ifndef CGPU_DOOR_FOPS_H
#define CGPU_DOOR_FOPS_H

#include "target.h"

/* nvidiactl and the cards; nvidia-uvm; nvidia-uvm-tools. */
extern struct cgpu_target cgpu_rm_target, cgpu_uvm_target, cgpu_tools_target;

enum { CGPU_TOOLS_MINOR = 1 }; /* of UVM's major */

/**
 * cgpu_fops_drain() - wait until nobody is inside our functions
 *
 * For after the driver's pointers were restored. SRCU covers who is inside one;
 * RCU-tasks covers who has loaded our pointer and not yet entered, or has left the
 * SRCU section and not yet returned: neither sleeps in between.
 *
 * Context: sleeps.
 */
void cgpu_fops_drain(void);

#endif
