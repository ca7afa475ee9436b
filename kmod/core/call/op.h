/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the core does about an operation, before the driver's own work and after it. */
#ifndef CGPU_CORE_CALL_OP_H
#define CGPU_CORE_CALL_OP_H

#include "core/call/call.h"

/* A row of the table in call.c. A NULL member does nothing. As verdict.h says. */
struct cgpu_op_rule {
	int (*pre)(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call);
	/* The driver did it; `after` is what it answered. */
	int (*post)(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call, const struct cgpu_request *after);
	/* The driver did not do it. */
	void (*fail)(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		     struct cgpu_call *call);
	/*
	 * Done or not, the operation takes nothing: it returns something, or only reserves
	 * addresses.
	 */
	bool takes_nothing;
	/*
	 * A door may perform it in another process's name, with copies. It concerns nothing of the
	 * process that asks, and the driver has done what its answer counts.
	 */
	bool performable;
};

#endif
