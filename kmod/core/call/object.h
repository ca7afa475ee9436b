/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Objects: RM_ALLOC and its elder sisters, RM_FREE, DUP_OBJECT. As verdict.h says. */
#ifndef CGPU_CORE_CALL_OBJECT_H
#define CGPU_CORE_CALL_OBJECT_H

#include "core/call/call.h"

int cgpu_pre_alloc(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call);
/* After the driver: the caller finds the parameters of a device or an event as they were. */
void cgpu_restore_params(struct cgpu_call *call);
int cgpu_pre_alloc_memory(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			  struct cgpu_call *call);
int cgpu_pre_context_dma(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			 struct cgpu_call *call);
int cgpu_pre_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call);
/* Memory of the client's whose RM_FREE waited for what it drove. Return: CGPU_UNDO, CGPU_DONE. */
int cgpu_free_orphan(struct cgpu_tenant *tenant, struct cgpu_call *call);
int cgpu_pre_dup(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		 struct cgpu_call *call);
int cgpu_post_alloc(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call, const struct cgpu_request *after);
int cgpu_post_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call, const struct cgpu_request *after);
void cgpu_fail_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call);
int cgpu_post_dup(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call, const struct cgpu_request *after);
/* Physical memory of which the driver says how much it took. */
bool cgpu_class_has_size(uint32_t hClass);
/* Another channel group, or video memory, of the one that `call->parent` belongs to. */
int cgpu_charge_group(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card);
int cgpu_charge_memory(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card,
		       uint64_t bytes);
/* Is it a client? */
bool cgpu_is_root_class(uint32_t hClass);
/*
 * Another call named what the core knew by this handle while the driver gave it out anew: it
 * may have duplicated, mapped, exported or scheduled this object for that one.
 */
bool cgpu_is_mistaken(const struct cgpu_tenant *tenant, const struct cgpu_call *call,
		      uint32_t hObject);
/* A second handle of `charge`, by DUP_OBJECT or by import; takes its reference over. */
bool cgpu_add_duplicate(struct cgpu_tenant *tenant, struct cgpu_call *call,
			uint32_t hObject, uint32_t hClass, uint32_t *charge);

/*
 * Bytes of video memory that the driver takes for a request: an upper bound before the
 * call. attr, attr2: NVOS32_ATTR*, see core/rm/abi.h.
 */
uint64_t cgpu_memory_round(uint64_t size_bytes, uint32_t attr, uint32_t attr2);

#endif
