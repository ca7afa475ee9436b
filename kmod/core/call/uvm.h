/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* CGPU_OP_UVM_*. As verdict.h says. */
#ifndef CGPU_CORE_CALL_UVM_H
#define CGPU_CORE_CALL_UVM_H

#include "core/call/op.h"

enum cgpu_uvm_op_count {
	CGPU_UVM_OPS = CGPU_OPS - CGPU_OP_UVM_INITIALIZE
};

/* Rows from CGPU_OP_UVM_INITIALIZE on. */
extern const struct cgpu_op_rule cgpu_uvm_ops[CGPU_UVM_OPS];

/*
 * Before `post` of its row, if the driver's answer did not arrive. Charges what may be mapped, and
 * also an mmap there, because the range may be no reservation.
 */
void cgpu_unanswered_reservation(struct cgpu_tenant *tenant, struct cgpu_call *call);
/*
 * After `fail` of its row, if the driver's answer did not arrive. What may be mapped is charged for
 * page tables, though it is no reservation. Return: DONE, KILL.
 */
int cgpu_unanswered_uvm(struct cgpu_tenant *tenant, struct cgpu_call *call);

#endif
