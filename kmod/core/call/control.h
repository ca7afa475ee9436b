/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* RM_CONTROL. As verdict.h says. */
#ifndef CGPU_CORE_CALL_CONTROL_H
#define CGPU_CORE_CALL_CONTROL_H

#include "core/call/call.h"

/* GPFIFO_SCHEDULE, of a group or of a channel */
bool cgpu_is_schedule(uint32_t cmd);
int cgpu_pre_control(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		     struct cgpu_call *call);
int cgpu_post_control(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		      struct cgpu_call *call, const struct cgpu_request *after);
/* Call if the driver has not done it. */
void cgpu_fail_control(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		       struct cgpu_call *call);

#endif
