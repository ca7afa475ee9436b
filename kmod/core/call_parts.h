/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What call.c and its parts need of each other; nobody else needs this header.
 * Every function is called with the tenant locked, on behalf of one call. pre:
 * before the driver, returns CGPU_FORWARD or CGPU_ANSWER. post: after it,
 * returns CGPU_DONE, CGPU_UNDO or CGPU_KILL.
 */
#ifndef CGPU_CORE_CALL_PARTS_H
#define CGPU_CORE_CALL_PARTS_H

#include "types.h"
#include "call.h"

/* ---- call.c: verdicts, and what a call takes for itself until its end ---- */

/* Return: CGPU_ANSWER, with `status` where the argument has room for one, else -EPERM. */
int cgpu_answer(struct cgpu_call *call, uint32_t status);
/* As cgpu_answer(), and counts it: on `card`, CGPU_NO_CARD: on the container's first. */
int cgpu_refuse(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card,
		uint32_t status);
/* Return: CGPU_UNDO: the driver shall free `hObject`, the caller gets `status`. */
int cgpu_undo(struct cgpu_call *call, uint32_t hObject, uint32_t status);

bool cgpu_owns_client(struct cgpu_tenant *tenant, uint32_t hClient);
/* The account of the card that the object lies on; NULL: none. */
const struct cgpu_account *cgpu_account_of(struct cgpu_tenant *tenant,
					   uint32_t hClient, uint32_t hObject);

/* Until the call is over. */
void cgpu_pin(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t index);
/* Finds and pins the object above a new one; 0 as its handle means the client. */
bool cgpu_pin_parent(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     uint32_t hParent);
/* Pins an object that gets a second life, and takes a reference of its charge. */
int cgpu_hold(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hClient,
	      uint32_t hObject);

/* ---- call_object.c ---- */

int cgpu_pre_alloc(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call);
int cgpu_pre_alloc_memory(struct cgpu_tenant *tenant, struct cgpu_call *call);
int cgpu_pre_context_dma(struct cgpu_tenant *tenant, struct cgpu_call *call);
int cgpu_pre_free(struct cgpu_tenant *tenant, struct cgpu_call *call);
int cgpu_pre_dup(struct cgpu_tenant *tenant, struct cgpu_call *call);
int cgpu_post_alloc(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    const struct cgpu_request *after);
int cgpu_post_alloc_memory(struct cgpu_tenant *tenant, struct cgpu_call *call,
			   const struct cgpu_request *after);
int cgpu_post_free(struct cgpu_tenant *tenant, struct cgpu_call *call, bool freed);
int cgpu_post_dup(struct cgpu_tenant *tenant, struct cgpu_call *call,
		  const struct cgpu_request *after);
/* A second handle of `charge`, by DUP_OBJECT or by import; takes its reference over. */
bool cgpu_add_duplicate(struct cgpu_tenant *tenant, struct cgpu_call *call,
			uint32_t hObject, uint32_t hClass, uint32_t *charge);

/* ---- call_control.c ---- */

int cgpu_pre_control(struct cgpu_tenant *tenant, struct cgpu_call *call);
int cgpu_post_control(struct cgpu_tenant *tenant, struct cgpu_call *call);

/* ---- call_export.c ---- */

/* `handles`: offset in the parameters of the `count` objects to export. */
int cgpu_pre_export(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t handles, uint32_t count);
int cgpu_pre_export_dmabuf(struct cgpu_tenant *tenant, struct cgpu_call *call,
			   uint32_t handles);
/* `count` objects from number `first` of the exporting file, below `hParent`. */
int cgpu_pre_import(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t hParent, uint32_t first, uint32_t count);
/* Hands the held charges to the file that keeps the memory alive. */
int cgpu_post_export(struct cgpu_tenant *tenant, struct cgpu_call *call, uint64_t first);
/* `handles`: offset in the parameters of what the driver called the new objects. */
int cgpu_post_import(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     uint32_t handles);

/* ---- call_uvm.c: CGPU_OP_UVM_*; any other op is forwarded ---- */

int cgpu_pre_uvm(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		 struct cgpu_call *call);
/* `done`: the driver did it. */
int cgpu_post_uvm(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call, bool done);

#endif
