/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Objects: RM_ALLOC and the older calls like it, RM_FREE, DUP_OBJECT. As verdict.h says. */
#ifndef CGPU_CORE_CALL_OBJECT_H
#define CGPU_CORE_CALL_OBJECT_H

#include "core/call/call.h"

int cgpu_pre_alloc(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call);
/* After the driver: the caller gets its parameters of a device or an event back unchanged. */
void cgpu_restore_params(struct cgpu_call *call);
int cgpu_pre_alloc_memory(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			  struct cgpu_call *call);
int cgpu_pre_context_dma(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			 struct cgpu_call *call);
int cgpu_pre_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call);
/*
 * Frees memory of the client's whose RM_FREE waited for what it drove. Return: CGPU_UNDO,
 * CGPU_DONE.
 */
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
/* The class is physical memory, and the driver says how much it took. */
bool cgpu_class_has_size(uint32_t hClass);
/* Charges the owner of `call->parent` for another channel group, or for video memory. */
int cgpu_charge_group(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card);
int cgpu_charge_memory(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card,
		       uint64_t bytes);
/* The class is a client. */
bool cgpu_is_root_class(uint32_t hClass);
/*
 * Return: true if another call named what the core knew by this handle while the driver gave the
 * handle out anew. That call may have duplicated, mapped, exported or scheduled this object
 * instead.
 */
bool cgpu_is_mistaken(const struct cgpu_tenant *tenant, const struct cgpu_call *call,
		      uint32_t hObject);
/* Adds a second handle of `charge`, by DUP_OBJECT or import, and takes its reference over. */
bool cgpu_add_duplicate(struct cgpu_tenant *tenant, struct cgpu_call *call,
			uint32_t hObject, uint32_t hClass, uint32_t *charge);

/*
 * Bytes of video memory that the driver takes for a request; before the call, an upper bound. attr,
 * attr2: NVOS32_ATTR*, see core/rm/abi.h.
 */
uint64_t cgpu_memory_round(uint64_t size_bytes, uint32_t attr, uint32_t attr2);

#endif
