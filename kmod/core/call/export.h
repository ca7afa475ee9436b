/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory that leaves for a descriptor, and comes back. As verdict.h says. */
#ifndef CGPU_CORE_CALL_EXPORT_H
#define CGPU_CORE_CALL_EXPORT_H

#include "core/call/call.h"

/*
 * `handles`: offset in the parameters of the `count` objects to export, to the file's places
 * from `first` on; 0 empties a place. Until the driver has answered, what was in a place is
 * charged beside what it is to hold.
 */
int cgpu_pre_export(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t handles, uint32_t first, uint32_t count);
/* The one at offset `handle`, into a file that has nothing yet. */
int cgpu_pre_export_one(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t handle);
int cgpu_post_export(struct cgpu_tenant *tenant, struct cgpu_call *call);
void cgpu_fail_export(struct cgpu_tenant *tenant, struct cgpu_call *call);
int cgpu_pre_create_export(struct cgpu_tenant *tenant, struct cgpu_call *call);

int cgpu_pre_export_dmabuf(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			   struct cgpu_call *call);
/* Hands the held charges to the file that keeps the memory alive. */
int cgpu_post_export_dmabuf(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			    struct cgpu_call *call, const struct cgpu_request *after);

/*
 * What is in `count` places of the exporting file from `first` on, below `hParent`. `handles`:
 * offset in the parameters of what the new objects are to be called. An empty place gives none.
 */
int cgpu_pre_import(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hParent,
		    uint32_t handles, uint32_t first, uint32_t count);
int cgpu_pre_import_one(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hParent,
			uint32_t handle);
/* `types`: offset in the parameters of what the driver says of each place, 0: it does not. */
int cgpu_post_import(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t types);
void cgpu_fail_import(struct cgpu_tenant *tenant, struct cgpu_call *call);

#endif
