/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory that leaves for a descriptor, and comes back. As verdict.h says. */
#ifndef CGPU_CORE_CALL_EXPORT_H
#define CGPU_CORE_CALL_EXPORT_H

#include "core/call/call.h"

/*
 * Exports `count` objects to the file's places from `first` on. `handles`: offset of their handles
 * in the parameters; handle 0 empties a place. Until the driver has answered, the old and the new
 * content of a place are both charged.
 */
int cgpu_pre_export(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t handles, uint32_t first, uint32_t count);
/* Exports the object at offset `handle` into a file that has nothing yet. */
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
 * Imports `count` places of the exporting file from `first` on, below `hParent`. `handles`: offset
 * in the parameters of the new objects' handles. An empty place gives no object.
 */
int cgpu_pre_import(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hParent,
		    uint32_t handles, uint32_t first, uint32_t count);
int cgpu_pre_import_one(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hParent,
			uint32_t handle);
/* `types`: offset in the parameters of the driver's word about each place; 0: there is none. */
int cgpu_post_import(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t types);
void cgpu_fail_import(struct cgpu_tenant *tenant, struct cgpu_call *call);

#endif
