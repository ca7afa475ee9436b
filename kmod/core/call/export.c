// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Memory that leaves the container's handles for a file descriptor, or comes back from one. The
 * charge moves with it.
 */
#include "core/call/export.h"
#include "core/call/object.h"
#include "core/call/verdict.h"
#include "core/rm/structs.h"

/*
 * The driver exports whatever it can duplicate, but an imported object has no class here. So a
 * group under another name would run ungated, and an address space would be counted nowhere.
 * Programs export memory only.
 */
static bool is_memory(const struct cgpu_object *object)
{
	return !object->identity && object->hClass != FERMI_VASPACE_A;
}

/* EXPORT_OBJECTS_TO_FD and EXPORT_TO_DMABUF_FD: `count` handles at `handles`, 0: of nothing */
static int hold_list(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     const uint8_t *handles, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		uint32_t hObject = cgpu_get32(handles, 4 * i);
		int verdict;

		if (!hObject)
			continue;
		if (call->held_count == CGPU_EXPORT_MAX)
			return cgpu_refuse(tenant, call, CGPU_NO_CARD,
					   NV_ERR_INSUFFICIENT_RESOURCES);
		verdict = cgpu_hold(tenant, call, call->req.hClient, hObject);
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

static bool is_filling(const struct cgpu_tenant *tenant, uint32_t file, uint64_t place)
{
	return cgpu_range_oldest(&tenant->ranges, file, CGPU_RANGE_EXPORTING, place) != UINT64_MAX;
}

static bool is_importing(const struct cgpu_tenant *tenant, uint32_t file, uint64_t place)
{
	return cgpu_range_overlaps(&tenant->ranges, file, 1u << CGPU_RANGE_IMPORTING, place, 1);
}

static bool is_full(const struct cgpu_tenant *tenant, uint32_t file, uint64_t place)
{
	return cgpu_range_oldest(&tenant->ranges, file, CGPU_RANGE_EXPORT, place) != UINT64_MAX;
}

static uint32_t handle_at(const struct cgpu_call *call, uint32_t i)
{
	return cgpu_get32(call->params, call->handles + 4 * i);
}

/* A place that is empty and stays empty is not the call's. */
static bool is_left_empty(const struct cgpu_tenant *tenant, const struct cgpu_call *call,
			  uint32_t i)
{
	return !handle_at(call, i) && !is_full(tenant, call->fd_file, call->first + i);
}

/*
 * Two calls must not change the same place at once: it would be unknown whose memory stays there.
 * Nor may one change it while another imports from it: it would be unknown which memory that gets.
 */
static bool are_free(const struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i;

	for (i = 0; i < call->count; i++) {
		uint64_t place = call->first + i;
		bool full = is_full(tenant, call->fd_file, place);

		if (is_filling(tenant, call->fd_file, place) ||
		    (full && is_importing(tenant, call->fd_file, place)))
			return false;
		call->replaces |= full;
	}
	return true;
}

/* The file takes the charge of a place's new content before the driver puts it there. */
static int take_places(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i, held = 0, wanted = 0;

	for (i = 0; i < call->count; i++)
		wanted += !is_left_empty(tenant, call, i);
	/* an export cannot be undone, so entries are promised first */
	if (cgpu_promise_ranges(tenant, call, wanted) != CGPU_FORWARD)
		return CGPU_ANSWER;
	cgpu_break_promises(tenant, call);
	for (i = 0; i < call->count; i++) {
		uint32_t charge = 0;

		if (is_left_empty(tenant, call, i))
			continue;
		if (handle_at(call, i)) {
			charge = call->held[held];
			call->held[held++] = 0; /* the range has it now */
		}
		cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXPORTING, call->fd_file,
			       call->first + i, 1, charge, CGPU_NO_CARD);
	}
	return CGPU_FORWARD;
}

int cgpu_pre_export(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    uint32_t handles, uint32_t first, uint32_t count)
{
	int verdict;

	if (!call->fd_file)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (handles + 4ull * count > call->req.params_size)
		return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
	cgpu_use_file(tenant, call);
	call->first = first;
	call->count = count;
	call->handles = handles;
	if (!are_free(tenant, call))
		return cgpu_answer(call, NV_ERR_STATE_IN_USE);
	verdict = hold_list(tenant, call, call->params + handles, count);
	return verdict == CGPU_FORWARD ? take_places(tenant, call) : verdict;
}

int cgpu_pre_export_one(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t handle)
{
	/* the driver does not put one into a file that has places already */
	if (call->fd_file && is_full(tenant, call->fd_file, 0))
		return cgpu_answer(call, NV_ERR_STATE_IN_USE);
	if (!cgpu_get32(call->params, handle))
		return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
	return cgpu_pre_export(tenant, call, handle, 0, 1);
}

int cgpu_post_export(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i;

	for (i = 0; i < call->count; i++) {
		uint64_t place = call->first + i;

		if (!is_filling(tenant, call->fd_file, place))
			continue;
		/* the driver drops what was there before */
		cgpu_range_drop_oldest(&tenant->ranges, &tenant->ledger, call->fd_file,
				       CGPU_RANGE_EXPORT, place);
		if (handle_at(call, i))
			cgpu_range_turn(&tenant->ranges, call->fd_file, CGPU_RANGE_EXPORTING,
					CGPU_RANGE_EXPORT, place);
		else
			cgpu_range_drop_oldest(&tenant->ranges, &tenant->ledger, call->fd_file,
					       CGPU_RANGE_EXPORTING, place);
	}
	return CGPU_DONE;
}

void cgpu_fail_export(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i;

	for (i = 0; i < call->count; i++)
		cgpu_range_drop_oldest(&tenant->ranges, &tenant->ledger, call->fd_file,
				       CGPU_RANGE_EXPORTING, call->first + i);
}

/* Makes a file that is to carry objects; it has none yet. */
int cgpu_pre_create_export(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	if (!call->fd_file)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	cgpu_use_file(tenant, call);
	return CGPU_FORWARD;
}

int cgpu_pre_export_dmabuf(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			   struct cgpu_call *call)
{
	uint32_t count;

	if (!cgpu_owns_client(tenant, call->req.hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/*
	 * the fd is another container's or unknown: exports to it would be charged to no container
	 */
	if (call->req.fd >= 0 && !call->fd_file)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	/* the driver makes room for so many at once, of the host's memory */
	if (cgpu_get32(call->args, offsetof(struct nv_ioctl_export_dmabuf, totalObjects)) >
	    CGPU_DMABUF_OBJECTS_MAX)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_RESOURCES);
	count = cgpu_get32(call->args, offsetof(struct nv_ioctl_export_dmabuf, numObjects));
	if (count > CGPU_DMABUF_OBJECTS_MAX)
		return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
	if (cgpu_promise_file(tenant, call) != CGPU_FORWARD ||
	    cgpu_promise_ranges(tenant, call, count) != CGPU_FORWARD)
		return CGPU_ANSWER;
	return hold_list(tenant, call, call->args + call->req.handles_offset, count);
}

int cgpu_post_export_dmabuf(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			    struct cgpu_call *call, const struct cgpu_request *after)
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

/*
 * Finds the charge of what is in a place, or is being put there: the driver found one of the two.
 */
static bool is_there(const struct cgpu_tenant *tenant, const struct cgpu_call *call, uint32_t i,
		     uint32_t *charge)
{
	return cgpu_range_in_place(&tenant->ranges, call->fd_file, CGPU_RANGE_EXPORT,
				   call->first + i, charge) ||
	       cgpu_range_in_place(&tenant->ranges, call->fd_file, CGPU_RANGE_EXPORTING,
				   call->first + i, charge);
}

/*
 * If an import fails, the driver frees the objects of all handles before the failed one. It does so
 * even where it made nothing: that may be any object of the client. So handles of empty places are
 * hidden from it.
 */
static void hide_handles(const struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i;

	for (i = 0; i < call->count; i++)
		if (!is_full(tenant, call->fd_file, call->first + i))
			cgpu_put32(call->params, call->handles + 4 * i, 0);
}

static void show_handle(struct cgpu_call *call, uint32_t i)
{
	if (call->before && !handle_at(call, i))
		cgpu_put32(call->params, call->handles + 4 * i,
			   cgpu_get32(call->before, call->handles + 4 * i));
}

int cgpu_pre_import(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hParent,
		    uint32_t handles, uint32_t first, uint32_t count)
{
	bool any = false;
	uint32_t i;

	/* the fd is another container's: no container here would be charged for its memory */
	if (!call->fd_file)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (count > CGPU_IMPORT_MAX)
		return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
	call->first = first;
	call->count = count;
	call->handles = handles;
	for (i = 0; i < count; i++) {
		bool filling = is_filling(tenant, call->fd_file, first + i);
		bool full = is_full(tenant, call->fd_file, first + i);

		if (filling && full)
			return cgpu_answer(call, NV_ERR_STATE_IN_USE);
		any |= filling || full;
	}
	/* the parent matters only if an object is to be made */
	if (!cgpu_pin_parent(tenant, call, hParent) && any)
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	if (cgpu_promise_objects(tenant, call, count) != CGPU_FORWARD)
		return CGPU_ANSWER;
	call->range_serial = tenant->ranges.serial + 1;
	if (count && cgpu_range_add(&tenant->ranges, CGPU_RANGE_IMPORTING, call->fd_file, first,
				    count, 0, CGPU_NO_CARD))
		return cgpu_answer(call, NV_ERR_INSUFFICIENT_RESOURCES);
	hide_handles(tenant, call);
	cgpu_use_file(tenant, call);
	return CGPU_FORWARD;
}

int cgpu_pre_import_one(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hParent,
			uint32_t handle)
{
	if (call->fd_file && !is_full(tenant, call->fd_file, 0))
		return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
	return cgpu_pre_import(tenant, call, hParent, handle, 0, 1);
}

static void end_import(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t index = cgpu_range_since(&tenant->ranges, call->fd_file, CGPU_RANGE_IMPORTING,
					  call->first, call->range_serial);

	if (call->count && index)
		cgpu_range_drop(&tenant->ranges, &tenant->ledger, index);
}

void cgpu_fail_import(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i;

	for (i = 0; i < call->count; i++)
		show_handle(call, i);
	end_import(tenant, call);
}

/* Return: as cgpu_post_import(). */
static int keep_imported(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t i)
{
	uint32_t hObject = handle_at(call, i), charge, hClass;

	if (!call->parent || !is_there(tenant, call, i, &charge) ||
	    cgpu_is_mistaken(tenant, call, hObject))
		return CGPU_KILL;
	/* host memory may be the process's own, which must not drive a channel */
	hClass = !charge || cgpu_charge_is_of_host(&tenant->ledger, charge) ?
		 0 : NV01_MEMORY_LOCAL_USER;
	if (charge)
		cgpu_charge_get(&tenant->ledger, charge);
	if (cgpu_add_duplicate(tenant, call, hObject, hClass, &charge))
		return CGPU_DONE;
	if (charge)
		cgpu_charge_put(&tenant->ledger, charge);
	return call->count == 1 ? cgpu_undo(call, hObject, NV_ERR_INSUFFICIENT_RESOURCES) :
				  CGPU_KILL;
}

int cgpu_post_import(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t types)
{
	int verdict = CGPU_DONE;
	uint32_t i;

	for (i = 0; i < call->count && verdict == CGPU_DONE; i++) {
		if (types && call->params[types + i] == NV0000_IMPORT_OBJECT_TYPE_NONE)
			show_handle(call, i);
		else
			verdict = keep_imported(tenant, call, i);
	}
	end_import(tenant, call);
	return verdict;
}
