/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* CGPU_OP_UVM_*; any other op is forwarded. As verdict.h says. */
#ifndef CGPU_CORE_CALL_UVM_H
#define CGPU_CORE_CALL_UVM_H

#include "core/call/call.h"

int cgpu_pre_uvm(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		 struct cgpu_call *call);
/* `done`: the driver did it. */
int cgpu_post_uvm(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call, bool done);
/*
 * Before cgpu_post_uvm() with success, where the driver's answer did not arrive: what may be
 * mapped is charged, and what is mapped there by mmap as well, for it may be no reservation.
 */
void cgpu_unanswered_reservation(struct cgpu_tenant *tenant, struct cgpu_call *call);
/*
 * After cgpu_post_uvm() without success, where the driver's answer did not arrive: what may
 * be mapped takes page tables, though it is no reservation. Return: DONE, KILL.
 */
int cgpu_unanswered_uvm(struct cgpu_tenant *tenant, struct cgpu_call *call);

#endif
