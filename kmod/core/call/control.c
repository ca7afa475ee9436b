// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * RM_CONTROL: which controls a container may use, and which sizes it is shown. core/rm/allowed.c
 * lists the controls; others are refused.
 */
#include "core/call/control.h"
#include "core/call/export.h"
#include "core/call/verdict.h"
#include "core/rm/structs.h"

static bool is_scheduled(const struct cgpu_tenant *tenant, uint32_t card)
{
	return card < CGPU_MAX_CARDS && tenant->ledger.account[card].slices_owned;
}

static int pre_disable_channels(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t count, i, last = 0;
	bool scheduled = false;

	if (call->req.params_size != sizeof(struct nv_fifo_disable_channels))
		return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
	count = cgpu_get32(call->params,
			   offsetof(struct nv_fifo_disable_channels, numChannels));
	if (count > NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES)
		return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
	/* the driver checks none of these handles: any tenant could stop any other */
	for (i = 0; i < count; i++) {
		uint32_t hClient = cgpu_get32(
			call->params,
			offsetof(struct nv_fifo_disable_channels, hClientList) + 4 * i);
		uint32_t hChannel = cgpu_get32(
			call->params,
			offsetof(struct nv_fifo_disable_channels, hChannelList) + 4 * i);

		if (!cgpu_owns_client(tenant, hClient) ||
		    !cgpu_object_find(&tenant->objects, hClient, hChannel))
			return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
		/* nor does it check their clients' owner, which may change: pin the clients */
		if (hClient != call->req.hClient && hClient != last &&
		    (call->pinned_count == CGPU_EXPORT_MAX ||
		     !cgpu_pin_client(tenant, call, hClient)))
			return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
		last = hClient;
	}
	/*
	 * Only the scheduler may run what it stops. A call forwarded while a gate is open may reach
	 * the driver when it is shut. The card counts how often a channel is stopped. Another
	 * thread may meanwhile give a handle of the list to a channel of another card. So all of
	 * the container's cards are checked.
	 */
	for (i = 0; i < CGPU_MAX_CARDS; i++)
		scheduled |= tenant->ledger.account[i].present && is_scheduled(tenant, i);
	if (scheduled)
		return cgpu_answer(call, call->params[0] ? NV_ERR_NOT_SUPPORTED : NV_OK);
	return CGPU_FORWARD;
}

/*
 * Keeps kernels interruptible in their middle, as CUDA sets it. If a kernel can be interrupted only
 * between blocks, or when idle, a long one is immune to gates and slices. That would also hold
 * later, under another policy.
 */
static int pre_preemption_mode(struct cgpu_call *call)
{
	uint32_t flags, mode;

	if (call->req.params_size < offsetof(struct nv_gr_preemption_mode, grRouteInfo))
		return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
	flags = cgpu_get32(call->params, offsetof(struct nv_gr_preemption_mode, flags));
	mode = cgpu_get32(call->params, offsetof(struct nv_gr_preemption_mode, cilpPreemptMode));
	return flags & NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET &&
	       mode != NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CILP ?
		cgpu_answer(call, NV_OK) : CGPU_FORWARD;
}

/* controls that would undo the scheduler's decisions, on a card that it governs */
static int pre_compute_control(struct cgpu_tenant *tenant, struct cgpu_call *call,
			       uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(&tenant->objects, index);

	switch (call->req.cmd) {
	case NVA06C_CTRL_CMD_SET_TIMESLICE:
		if (call->req.params_size != sizeof(struct nv_timeslice))
			return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
		object->timeslice_us =
			cgpu_get64(call->params, offsetof(struct nv_timeslice, timesliceUs));
		return cgpu_answer(call, NV_OK);
	case NVA06C_CTRL_CMD_GET_TIMESLICE:
		if (call->req.params_size != sizeof(struct nv_timeslice) || !object->timeslice_us)
			return CGPU_FORWARD;
		cgpu_put64(call->params, offsetof(struct nv_timeslice, timesliceUs),
			   object->timeslice_us);
		return cgpu_answer(call, NV_OK);
	case NVA06C_CTRL_CMD_PREEMPT:
	case NVA06F_CTRL_CMD_RESTART_RUNLIST:
		return cgpu_answer(call, NV_OK);
	default:
		return CGPU_FORWARD;
	}
}

bool cgpu_is_schedule(uint32_t cmd)
{
	return cmd == NVA06C_CTRL_CMD_GPFIFO_SCHEDULE || cmd == NVA06F_CTRL_CMD_GPFIFO_SCHEDULE;
}

/*
 * Whether other containers may have channels in this group: core/call/group.c. Enabling all of it
 * would start theirs, which are not marked as enabled.
 */
static bool is_common(const struct cgpu_tenant *tenant, const struct cgpu_object *object)
{
	return object->hClass == KEPLER_CHANNEL_GROUP_A &&
	       (object->flags & CGPU_OBJECT_BORROWED ||
		(tenant->role == CGPU_ROLE_LEADER && object->flags & CGPU_OBJECT_ENABLED));
}

/*
 * An enabled channel stays enabled, and none is taken off its runlist. Only the driver knows
 * whether a later enabling would open what is shut, and no program asks for either. The same holds
 * for calls that schedule a channel only in part.
 */
static int pre_schedule(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t index)
{
	const struct nv_gpfifo_schedule *params = (const void *)call->params;
	uint32_t card = cgpu_object_at(&tenant->objects, index)->card;
	bool whole = call->req.params_size > offsetof(struct nv_gpfifo_schedule, bSkipEnable);

	if (call->req.params_size >= offsetof(struct nv_gpfifo_schedule, bSkipEnable)) {
		if (!params->bEnable || cgpu_object_is_enabled(&tenant->objects, index))
			return cgpu_answer(call, NV_OK);
		if (params->bSkipSubmit || (whole && params->bSkipEnable))
			return cgpu_refuse(tenant, call, card, NV_ERR_NOT_SUPPORTED);
	}
	if (is_common(tenant, cgpu_object_at(&tenant->objects, index)))
		return cgpu_refuse(tenant, call, card, NV_ERR_NOT_SUPPORTED);
	call->schedules = true;
	call->card = card;
	cgpu_object_set_scheduled(&tenant->objects, index);
	return CGPU_FORWARD;
}

static void note_scheduled(struct cgpu_tenant *tenant, const struct cgpu_call *call, bool done)
{
	const struct cgpu_request *req = &call->req;

	cgpu_object_set_enabled(&tenant->objects,
				cgpu_object_find(&tenant->objects, req->hClient, req->hObject),
				done);
}

/*
 * Levels stay as CUDA leaves them. A level outlives the policy under which it was set, and changes
 * slices.
 */
static bool sets_interleave_level(uint32_t cmd)
{
	return cmd == NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL ||
	       cmd == NVA06F_CTRL_CMD_SET_INTERLEAVE_LEVEL;
}

/*
 * What is decided or remembered about these controls depends on their object. It must be the same
 * one in the driver, so it is pinned.
 */
static bool hangs_on_object(uint32_t cmd)
{
	switch (cmd) {
	case NV2080_CTRL_CMD_FB_GET_INFO:
	case NV2080_CTRL_CMD_FB_GET_INFO_V2:
	case NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE:
	case NVA06C_CTRL_CMD_GPFIFO_SCHEDULE:
	case NVA06F_CTRL_CMD_GPFIFO_SCHEDULE:
	case NVA06C_CTRL_CMD_SET_TIMESLICE:
	case NVA06C_CTRL_CMD_GET_TIMESLICE:
	case NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL:
	case NVA06F_CTRL_CMD_SET_INTERLEAVE_LEVEL:
	case NVA06C_CTRL_CMD_PREEMPT:
	case NVA06F_CTRL_CMD_RESTART_RUNLIST:
		return true;
	default:
		return false;
	}
}

/*
 * Controls that tell of all processes of the host, by the host's numbers, some with kernel
 * addresses. They tell which used the card in the last ten seconds and how much, which encode or
 * capture, and which had the card before.
 */
static bool tells_of_processes(uint32_t cmd)
{
	switch (cmd) {
	case NV0000_CTRL_CMD_GPUACCT_GET_ACCOUNTING_PIDS:
	case NV2080_CTRL_GPU_GET_NVENC_SW_SESSION_INFO:
	case NV2080_CTRL_GPU_GET_NVFBC_SW_SESSION_INFO:
	case NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2:
		return true;
	default:
		return false;
	}
}

/*
 * Answers as if there were no process. A count in the first parameter is set to 0; another buffer
 * stays as the caller cleared it.
 */
static int tell_of_none(struct cgpu_call *call)
{
	if (call->req.params_size >= 4)
		cgpu_put32(call->params, 0, 0);
	return cgpu_answer(call, NV_OK);
}

/* A bind names a second client in its parameters, and the driver does not check its owner. */
static bool names_own(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;

	if (!req->hClient_place[0])
		return true;
	/* a client that is not in the parameters cannot be judged; the driver refuses it, too */
	return req->params_size >= req->hClient_place[0] + 3u && cgpu_pin_named(tenant, call);
}

/* The OS_UNIX controls that move objects into a file, and out of one. */
static int pre_carrier(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const uint8_t *params = call->params;
	uint32_t size = call->req.params_size;

	switch (call->req.cmd) {
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
		if (size != sizeof(struct nv_export_object))
			break;
		return cgpu_pre_export_one(tenant, call,
					   offsetof(struct nv_export_object, hObject));
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
		if (size != sizeof(struct nv_export_objects))
			break;
		/* the driver allocates room for all of them at once, in the host's memory */
		if (cgpu_get16(params, offsetof(struct nv_export_objects, maxObjects)) >
		    CGPU_EXPORTED_MAX)
			return cgpu_refuse(tenant, call, CGPU_NO_CARD,
					   NV_ERR_INSUFFICIENT_RESOURCES);
		return cgpu_pre_export(
			tenant, call, offsetof(struct nv_export_objects, objects),
			cgpu_get16(params, offsetof(struct nv_export_objects, index)),
			cgpu_get16(params, offsetof(struct nv_export_objects, numObjects)));
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
		if (size != sizeof(struct nv_import_object))
			break;
		return cgpu_pre_import_one(
			tenant, call,
			cgpu_get32(params, offsetof(struct nv_import_object, hParent)),
			offsetof(struct nv_import_object, hObject));
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
		if (size != sizeof(struct nv_import_objects))
			break;
		return cgpu_pre_import(
			tenant, call,
			cgpu_get32(params, offsetof(struct nv_import_objects, hParent)),
			offsetof(struct nv_import_objects, objects),
			cgpu_get16(params, offsetof(struct nv_import_objects, index)),
			cgpu_get16(params, offsetof(struct nv_import_objects, numObjects)));
	default:
		if (size != sizeof(struct nv_create_export))
			break;
		if (cgpu_get16(params, offsetof(struct nv_create_export, maxObjects)) >
		    CGPU_EXPORTED_MAX)
			return cgpu_refuse(tenant, call, CGPU_NO_CARD,
					   NV_ERR_INSUFFICIENT_RESOURCES);
		return cgpu_pre_create_export(tenant, call);
	}
	return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
}

int cgpu_pre_control(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		     struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	uint32_t index, card;

	if (!cgpu_owns_client(tenant, req->hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/* a serialised blob in place of the plain struct cannot be looked into */
	if (req->flags & NVOS54_FLAGS_FINN_SERIALIZED)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
	if (req->misfit)
		return cgpu_refuse_misfit(tenant, call, NV_ERR_NOT_SUPPORTED);
	if (req->judge == CGPU_JUDGE_NONE)
		return cgpu_refuse_unknown(tenant, call, NV_ERR_NOT_SUPPORTED);
	if (!names_own(tenant, call))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	index = cgpu_object_find(&tenant->objects, req->hClient, req->hObject);
	card = index ? cgpu_object_at(&tenant->objects, index)->card : CGPU_NO_CARD;

	if (req->judge == CGPU_JUDGE_NEVER)
		return cgpu_refuse(tenant, call, card, NV_ERR_INSUFFICIENT_PERMISSIONS);
	switch (req->cmd) {
	case NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS:
		return pre_disable_channels(tenant, call);
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
	case NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD:
		return pre_carrier(tenant, call);
	default:
		break;
	}
	/* another thread's allocation of this handle may not have left the driver yet */
	if (!index)
		return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
	if (tells_of_processes(req->cmd))
		return tell_of_none(call);
	/*
	 * The card's MMU has one mode for unmapped addresses, which all its containers share.
	 * Debuggers ask for it at their start and go on without.
	 */
	if (req->cmd == NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG)
		return cgpu_answer(call, NV_OK);
	if (!hangs_on_object(req->cmd))
		return CGPU_FORWARD;
	if (cgpu_object_is_dying(&tenant->objects, index))
		return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
	cgpu_pin(tenant, call, index);
	if (cgpu_is_schedule(req->cmd))
		return pre_schedule(tenant, call, index);
	if (req->cmd == NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE)
		return pre_preemption_mode(call);
	if (sets_interleave_level(req->cmd))
		return cgpu_answer(call, NV_OK);
	return is_scheduled(tenant, card) ? pre_compute_control(tenant, call, index) :
					    CGPU_FORWARD;
}

static void show_fb_entry(const struct cgpu_account *account, uint8_t *entry)
{
	uint32_t index = cgpu_get32(entry, offsetof(struct nv_fb_info, index));
	uint64_t value = (uint64_t)cgpu_get32(entry, offsetof(struct nv_fb_info, data)) << 10;
	uint64_t shown = value;

	switch (index) {
	case NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_MAPPABLE_HEAP_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_PROTECTED_SIZE_TOTAL:
		if (!account->unlimited && account->max_bytes < value)
			shown = account->max_bytes;
		break;
	case NV2080_CTRL_FB_INFO_INDEX_LARGEST_FREE_REGION_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE:
	case NV2080_CTRL_FB_INFO_INDEX_PROTECTED_SIZE_FREE:
		shown = cgpu_account_free(account, value);
		break;
	default:
		return;
	}
	cgpu_put32(entry, offsetof(struct nv_fb_info, data), (uint32_t)(shown >> 10));
}

static void show_fb_list(const struct cgpu_account *account, uint8_t *list,
			 uint32_t bytes)
{
	uint32_t at;

	for (at = 0; at + sizeof(struct nv_fb_info) <= bytes; at += sizeof(struct nv_fb_info))
		show_fb_entry(account, list + at);
}

static void show_vidmem(const struct cgpu_account *account, uint8_t *params)
{
	const uint32_t places[] = {
		offsetof(struct nv_vidmem_size, protectedMemSizeInKb),
		offsetof(struct nv_vidmem_size, unprotectedMemSizeInKb),
	};
	uint32_t i;

	for (i = 0; i < 2 && !account->unlimited; i++)
		if (cgpu_get64(params, places[i]) > account->max_bytes >> 10)
			cgpu_put64(params, places[i], account->max_bytes >> 10);
}

void cgpu_fail_control(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		       struct cgpu_call *call)
{
	switch (call->req.cmd) {
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
		cgpu_fail_export(tenant, call);
		break;
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
		cgpu_fail_import(tenant, call);
		break;
	default:
		if (cgpu_is_schedule(call->req.cmd))
			note_scheduled(tenant, call, false);
	}
}

int cgpu_post_control(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		      struct cgpu_call *call, const struct cgpu_request *after)
{
	struct cgpu_request *req = &call->req;
	const uint32_t list = offsetof(struct nv_fb_get_info_v2, fbInfoList);
	const struct cgpu_account *account;

	switch (req->cmd) {
	case NV2080_CTRL_CMD_FB_GET_INFO:
		account = cgpu_account_of(tenant, req->hClient, req->hObject);
		if (account && call->list)
			show_fb_list(account, call->list, req->list_size);
		return CGPU_DONE;
	case NV2080_CTRL_CMD_FB_GET_INFO_V2:
		account = cgpu_account_of(tenant, req->hClient, req->hObject);
		if (account && req->params_size > list) {
			uint64_t bytes = (uint64_t)cgpu_get32(
				call->params,
				offsetof(struct nv_fb_get_info_v2, fbInfoListSize)) *
					 sizeof(struct nv_fb_info);

			if (bytes > req->params_size - list)
				bytes = req->params_size - list;
			show_fb_list(account, call->params + list, (uint32_t)bytes);
		}
		return CGPU_DONE;
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
		return cgpu_post_export(tenant, call);
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
		return cgpu_post_import(tenant, call, 0);
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
		return cgpu_post_import(tenant, call, offsetof(struct nv_import_objects, types));
	case NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_VIDMEM_SIZE:
		if (req->params_size != sizeof(struct nv_vidmem_size))
			return CGPU_DONE;
		account = cgpu_account_of(tenant, req->hClient, cgpu_get32(call->params, 0));
		if (account)
			show_vidmem(account, call->params);
		return CGPU_DONE;
	case NVA06C_CTRL_CMD_GPFIFO_SCHEDULE:
	case NVA06F_CTRL_CMD_GPFIFO_SCHEDULE:
		note_scheduled(tenant, call, true);
		return CGPU_DONE;
	default:
		return CGPU_DONE;
	}
}
