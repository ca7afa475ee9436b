/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the core does about an operation, before the driver's own work and after it. */
#ifndef CGPU_CORE_CALL_OP_H
#define CGPU_CORE_CALL_OP_H

#include "core/call/call.h"

/* A row of the table in call.c. What is NULL has nothing to do. As verdict.h says. */
struct cgpu_op_rule {
	int (*pre)(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call);
	/* The driver did it. `after`: what it answered. */
	int (*post)(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call, const struct cgpu_request *after);
	/* The driver did not do it. */
	void (*fail)(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		     struct cgpu_call *call);
	/* Done or not, it takes nothing: it returns something, or reserves addresses alone. */
	bool takes_nothing;
	/*
	 * A door may perform it in another process' name, with copies: it is about nothing of the
	 * process that asks, and what is counted by its answer the driver has done.
	 */
	bool performable;
};

#endif
