/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A group: one container, its leader, runs an MPS server; the members' programs are its clients.
 * This file says what a member may take of the leader's objects. As verdict.h says.
 */
#ifndef CGPU_CORE_CALL_GROUP_H
#define CGPU_CORE_CALL_GROUP_H

#include "core/call/call.h"

/* DUP_OBJECT: as cgpu_pre_dup(); a member may also duplicate what MPS needs of its leader's. */
int cgpu_pre_group_dup(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		       struct cgpu_call *call);
int cgpu_post_group_dup(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			struct cgpu_call *call, const struct cgpu_request *after);
/* RM_SHARE by the leader: members may take what it shares with everybody. */
int cgpu_pre_share(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call);
int cgpu_post_share(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call, const struct cgpu_request *after);

#endif
