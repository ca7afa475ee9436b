// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Memory that leaves the container's handles for a file descriptor, and comes
 * back from one: the charge goes with it.
 */
#include "core/call/export.h"
#include "core/call/object.h"
#include "core/call/verdict.h"
#include "core/rm/structs.h"

/*
 * The driver exports whatever it can duplicate. What comes back has no class here, so that
 * a group by another name would run and never be gated, and an address space be counted by
 * nobody. Programs export memory.
 */
static bool is_memory(const struct cgpu_object *object)
{
	return !object->identity && object->hClass != FERMI_VASPACE_A;
}

/* EXPORT_OBJECTS_TO_FD and EXPORT_TO_DMABUF_FD: `count` handles at `handles` */
static int hold_list(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     const uint8_t *handles, uint32_t count)
{
	uint32_t i;

	if (count > CGPU_EXPORT_MAX)
		return cgpu_answer(call, NV_ERR_INSUFFICIENT_RESOURCES);
	/* what is exported cannot be taken back */
	if (cgpu_promise_ranges(tenant, call, count) != CGPU_FORWARD)
		return CGPU_ANSWER;
	for (i = 0; i < count; i++) {
		int verdict = cgpu_hold(tenant, call, call->req.hClient,
					cgpu_get32(handles, 4 * i));

		if (verdict != CGPU_FORWARD)
			return verdict;
		if (!is_memory(cgpu_object_at(&tenant->objects, call->object)))
			return cgpu_refuse(tenant, call, call->card, NV_ERR_NOT_SUPPORTED);
		/* 0 keeps the place of an object that takes no video memory */
		call->held[call->held_count++] = call->charge;
		call->charge = 0;
	}
	return CGPU_FORWARD;
}

/*
 * A place in the file is taken once, and from before the driver fills it: of two calls that fill
 * the same nobody knows whose memory stays there, and what comes back from it is charged as.
 */
static int take_places(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i, charge;

	for (i = 0; i < call->held_count; i++)
		if (cgpu_range_exported(&tenant->ranges, call->fd_file, call->first + i, &charge))
			return cgpu_answer(call, NV_ERR_STATE_IN_USE);
	cgpu_break_promises(tenant, call);
	for (i = 0; i < call->held_count; i++) {
		cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXPORT, call->fd_file, call->first + i,
			       1, call->held[i], CGPU_NO_CARD);
		call->held[i] = 0; /* the range has it now */
	}
	return CGPU_FORWARD;
}

int cgpu_pre_export(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t handles, uint32_t first, uint32_t count)
{
	int verdict;

	if (!call->fd_file)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	cgpu_use_file(tenant, call);
	call->first = first;
	verdict = hold_list(tenant, call, call->params + handles, count);
	return verdict == CGPU_FORWARD ? take_places(tenant, call) : verdict;
}

void cgpu_fail_export(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i;

	for (i = 0; i < call->held_count; i++)
		cgpu_range_drop_oldest(&tenant->ranges, &tenant->ledger, call->fd_file,
				       CGPU_RANGE_EXPORT, call->first + i);
}

int cgpu_pre_export_dmabuf(struct cgpu_tenant *tenant, struct cgpu_call *call,
			   uint32_t handles)
{
	if (!cgpu_owns_client(tenant, call->req.hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/* another container's, or nobody's: what is put there would be charged to nobody */
	if (call->req.fd >= 0 && !call->fd_file)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	/* the driver makes room for so many at once, of the host's memory */
	if (cgpu_get32(call->args, offsetof(struct nv_ioctl_export_dmabuf, totalObjects)) >
	    CGPU_DMABUF_OBJECTS_MAX)
		return cgpu_answer(call, NV_ERR_INSUFFICIENT_RESOURCES);
	if (cgpu_promise_file(tenant, call) != CGPU_FORWARD)
		return CGPU_ANSWER;
	return hold_list(tenant, call, call->args + handles,
			 cgpu_get32(call->args,
				    offsetof(struct nv_ioctl_export_dmabuf, numObjects)));
}

int cgpu_post_export_dmabuf(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i;

	for (i = 0; i < call->held_count; i++) {
		if (!call->fd_file ||
		    cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXPORT, call->fd_file,
				   i, 1, call->held[i], CGPU_NO_CARD))
			return CGPU_KILL; /* exported, and no way to take it back */
		call->held[i] = 0; /* the range has it now */
	}
	return CGPU_DONE;
}

int cgpu_pre_import(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t hParent, uint32_t first, uint32_t count)
{
	uint32_t i, charge;

	/* a fd of another container: its memory, charged to nobody here */
	if (!call->fd_file)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (count > CGPU_EXPORT_MAX)
		return cgpu_answer(call, NV_ERR_INSUFFICIENT_RESOURCES);
	if (!cgpu_pin_parent(tenant, call, hParent))
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	if (cgpu_promise_objects(tenant, call, count) != CGPU_FORWARD)
		return CGPU_ANSWER;
	for (i = 0; i < count; i++) {
		if (!cgpu_range_exported(&tenant->ranges, call->fd_file, first + i, &charge))
			return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
		if (charge)
			cgpu_charge_get(&tenant->ledger, charge);
		call->held[call->held_count++] = charge;
	}
	cgpu_use_file(tenant, call);
	return CGPU_FORWARD;
}

int cgpu_post_import(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     uint32_t handles)
{
	uint32_t i;

	for (i = 0; i < call->held_count; i++) {
		uint32_t hObject = cgpu_get32(call->params, handles + 4 * i);
		/* the host's may be the process's own, which is nothing to drive a channel by */
		uint32_t hClass = !call->held[i] || cgpu_charge_is_of_host(&tenant->ledger,
									   call->held[i]) ?
					  0 : NV01_MEMORY_LOCAL_USER;

		if (cgpu_is_mistaken(tenant, call, hObject))
			return CGPU_KILL;
		if (!cgpu_add_duplicate(tenant, call, hObject, hClass, &call->held[i]))
			return call->held_count == 1 ?
				cgpu_undo(call, hObject, NV_ERR_INSUFFICIENT_RESOURCES) :
				CGPU_KILL;
	}
	return CGPU_DONE;
}
