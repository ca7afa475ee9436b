/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory that leaves for a descriptor, and comes back. As verdict.h says. */
#ifndef CGPU_CORE_CALL_EXPORT_H
#define CGPU_CORE_CALL_EXPORT_H

#include "core/call/call.h"

/*
 * `handles`: offset in the parameters of the `count` objects to export, to the file's places
 * from `first` on. They are there from now on, until the driver says that they are not.
 */
int cgpu_pre_export(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t handles, uint32_t first, uint32_t count);
void cgpu_fail_export(struct cgpu_tenant *tenant, struct cgpu_call *call);
int cgpu_pre_export_dmabuf(struct cgpu_tenant *tenant, struct cgpu_call *call,
			   uint32_t handles);
/* `count` objects from number `first` of the exporting file, below `hParent`. */
int cgpu_pre_import(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t hParent, uint32_t first, uint32_t count);
/* Hands the held charges to the file that keeps the memory alive. */
int cgpu_post_export_dmabuf(struct cgpu_tenant *tenant, struct cgpu_call *call);
/* `handles`: offset in the parameters of what the driver called the new objects. */
int cgpu_post_import(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     uint32_t handles);

#endif
