// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Two threads of a container can be in the driver with the same handle. What
 * keeps the ledger right:
 *
 * - A charge is taken before the driver allocates and returned after it has
 *   freed, never the other way round.
 * - The driver must find under a handle what the core found there. So a call
 *   pins the objects that it names: RM_FREE of a pinned object, or of one above
 *   it, is refused, and closing a file with pinned objects is remembered until
 *   they are let go. No well-formed program frees what it is duplicating.
 * - RM_FREE marks its object as dying. Whoever names it meanwhile is told that
 *   it is gone, a second RM_FREE too.
 * - What UVM unmaps is taken out only as far as it was there when the driver
 *   was asked: another thread may map at the same address in between.
 *
 * Unknown is refused: a client that this container did not create does not
 * exist for it, and an object that the core has not seen being made is not
 * freed: another thread's allocation of that handle may be on its way out of
 * the driver.
 */
#include "call.h"

static int answer(struct cgpu_call *call, uint32_t status)
{
	call->error = 0;
	if (call->req.status_offset == CGPU_NO_OFFSET)
		call->error = -EPERM;
	else
		cgpu_put32(call->args, call->req.status_offset, status);
	return CGPU_ANSWER;
}

static int refuse(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card,
		  uint32_t status)
{
	uint32_t i;

	if (card < CGPU_MAX_CARDS) {
		tenant->ledger.account[card].refused++;
		return answer(call, status);
	}
	/* not about one card: counted on the container's first */
	for (i = 0; i < CGPU_MAX_CARDS; i++) {
		if (tenant->ledger.account[i].present) {
			tenant->ledger.account[i].refused++;
			break;
		}
	}
	return answer(call, status);
}

static struct cgpu_object *object_at(struct cgpu_tenant *tenant, uint32_t index)
{
	return cgpu_object_at(&tenant->objects, index);
}

static uint32_t find(struct cgpu_tenant *tenant, uint32_t hClient, uint32_t hObject)
{
	return cgpu_object_find(&tenant->objects, hClient, hObject);
}

static bool owns_client(struct cgpu_tenant *tenant, uint32_t hClient)
{
	return hClient && find(tenant, hClient, hClient);
}

static bool is_root_class(uint32_t hClass)
{
	return hClass == NV01_ROOT || hClass == NV01_ROOT_NON_PRIV ||
	       hClass == NV01_ROOT_CLIENT;
}

/* classes that reach video memory around the ledger, all or a foreign part of it */
static bool is_refused_class(uint32_t hClass)
{
	switch (hClass) {
	case NV01_MEMORY_LOCAL_PRIVILEGED:
	case NV01_MEMORY_LOCAL_PHYSICAL:
	case NV01_MEMORY_LIST_FBMEM:
	case NV01_MEMORY_LIST_OBJECT:
	case NV01_MEMORY_FRAMEBUFFER_CONSOLE:
		return true;
	default:
		return false;
	}
}

static uint32_t reserve_status(int err)
{
	return err == -ENOSPC ? NV_ERR_NO_MEMORY :
	       err == -ENODEV ? NV_ERR_INSUFFICIENT_PERMISSIONS :
				NV_ERR_INSUFFICIENT_RESOURCES;
}

/* until release() */
static void pin(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t index)
{
	cgpu_object_pin(&tenant->objects, index);
	call->pinned[call->pinned_count++] = index;
}

/* Finds and pins the object above a new one; 0 as its handle means the client. */
static bool pin_parent(struct cgpu_tenant *tenant, struct cgpu_call *call,
		       uint32_t hParent)
{
	uint32_t hClient = call->req.hClient;
	uint32_t index = find(tenant, hClient, hParent ? hParent : hClient);

	if (!index || cgpu_object_is_dying(&tenant->objects, index))
		return false;
	call->parent = index;
	pin(tenant, call, index);
	return true;
}

/* all that a call had taken for itself */
static void release(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	if (call->charge)
		cgpu_charge_put(&tenant->ledger, call->charge);
	call->charge = 0;
	while (call->held_count)
		if (call->held[--call->held_count])
			cgpu_charge_put(&tenant->ledger, call->held[call->held_count]);
	while (call->pinned_count)
		cgpu_object_unpin(&tenant->objects, call->pinned[--call->pinned_count]);
	if (call->used_file)
		cgpu_tenant_file(tenant, call->used_file)->users--;
	call->used_file = 0;
	cgpu_tenant_close_waiting(tenant);
}

/* ------------------------------------------------------------------ pre */

static int pre_memory(struct cgpu_tenant *tenant, struct cgpu_call *call,
		      uint32_t parent)
{
	uint32_t card = object_at(tenant, parent)->card;
	uint64_t bytes = cgpu_memory_round(call->req.size_bytes, call->req.attr,
					   call->req.attr2);
	int err;

	if (card >= CGPU_MAX_CARDS)
		return answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	call->card = card;
	err = cgpu_charge_new(&tenant->ledger, card, bytes, object_at(tenant, parent)->pid,
			      &call->charge);
	if (err == -ENOSPC) {
		call->kill = tenant->ledger.account[card].oom_kill;
		return answer(call, NV_ERR_NO_MEMORY);
	}
	return err ? refuse(tenant, call, card, reserve_status(err)) : CGPU_FORWARD;
}

static int pre_group(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t parent)
{
	uint32_t card = object_at(tenant, parent)->card;
	int err;

	if (card >= CGPU_MAX_CARDS || tenant->objects.groups[card] < CGPU_FREE_GROUPS)
		return CGPU_FORWARD;
	err = cgpu_charge_new(&tenant->ledger, card, CGPU_GROUP_BYTES,
			      object_at(tenant, parent)->pid, &call->charge);
	return err ? answer(call, reserve_status(err)) : CGPU_FORWARD;
}

static int pre_alloc(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		     struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	uint32_t card;

	if (req->op == CGPU_OP_ALLOC && is_root_class(req->hClass))
		return CGPU_FORWARD;
	if (!owns_client(tenant, req->hClient))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (is_refused_class(req->hClass))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (!pin_parent(tenant, call, req->hParent))
		return answer(call, NV_ERR_INVALID_OBJECT_PARENT);

	switch (req->hClass) {
	case NV01_DEVICE_0:
		if (req->op != CGPU_OP_ALLOC)
			break;
		card = cgpu_topology_by_instance(topology, req->deviceId);
		if (card == CGPU_NO_CARD)
			return answer(call, NV_ERR_INVALID_DEVICE);
		if (!tenant->ledger.account[card].present)
			return refuse(tenant, call, CGPU_NO_CARD,
				      NV_ERR_INSUFFICIENT_PERMISSIONS);
		call->card = card;
		break;
	case NV01_MEMORY_LOCAL_USER:
		return pre_memory(tenant, call, call->parent);
	case KEPLER_CHANNEL_GROUP_A:
		return pre_group(tenant, call, call->parent);
	default:
		break;
	}
	return CGPU_FORWARD;
}

static int pre_alloc_memory(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;

	if (!owns_client(tenant, req->hClient))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/*
	 * Class 0x40 by this escape maps the whole card if the caller is
	 * privileged, else it allocates nothing and tells the heap's size.
	 */
	if (is_refused_class(req->hClass) ||
	    (req->hClass == NV01_MEMORY_LOCAL_USER && call->privileged))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (!pin_parent(tenant, call, req->hParent))
		return answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	return CGPU_FORWARD;
}

/* its class is not checked by the driver: 0x40 would allocate unknown memory */
static int pre_context_dma(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	if (!owns_client(tenant, call->req.hClient))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (call->req.hClass != NV01_CONTEXT_DMA)
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLASS);
	if (!pin_parent(tenant, call, 0))
		return answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	return CGPU_FORWARD;
}

static int pre_free(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	struct cgpu_object *object;
	uint32_t index;

	if (!owns_client(tenant, req->hClient))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	index = find(tenant, req->hClient, req->hObject);
	if (!index) /* the driver calls freeing nothing a success, too */
		return answer(call, NV_OK);
	object = object_at(tenant, index);
	if (cgpu_object_is_dying(&tenant->objects, index))
		return answer(call, NV_ERR_OBJECT_NOT_FOUND);
	if (object->users)
		return answer(call, NV_ERR_STATE_IN_USE);
	object->dying = 1;
	call->object = index;
	call->serial = object->serial;
	/* what is above it must not go first, and take the handle's meaning along */
	pin(tenant, call, object->parent);
	return CGPU_FORWARD;
}

/* an object that gets a second life: takes a reference of its charge */
static int hold(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hClient,
		uint32_t hObject)
{
	uint32_t index = find(tenant, hClient, hObject);

	if (!index || cgpu_object_is_dying(&tenant->objects, index))
		return answer(call, NV_ERR_OBJECT_NOT_FOUND);
	pin(tenant, call, index);
	call->object = index;
	call->card = object_at(tenant, index)->card;
	call->charge = object_at(tenant, index)->charge;
	if (call->charge)
		cgpu_charge_get(&tenant->ledger, call->charge);
	return CGPU_FORWARD;
}

static int pre_dup(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;

	if (!owns_client(tenant, req->hClient) || !owns_client(tenant, req->hClientSrc))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (!pin_parent(tenant, call, req->hParent))
		return answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	return hold(tenant, call, req->hClientSrc, req->hObjectSrc);
}

/*
 * An mmap of the UVM device is managed memory, unless a semaphore pool or the
 * like lies there. So such a range counts from the moment when the driver has
 * made it until somebody asks to free it, and never one moment longer.
 */
static int reserve_range(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;

	if (cgpu_range_overlaps(&tenant->ranges, call->file,
				1u << CGPU_RANGE_RESERVING | 1u << CGPU_RANGE_FREEING,
				req->base, req->length_bytes))
		return answer(call, NV_ERR_UVM_ADDRESS_IN_USE);
	if (!req->length_bytes ||
	    cgpu_range_add(&tenant->ranges, CGPU_RANGE_RESERVING, call->file, req->base,
			   req->length_bytes, 0, CGPU_NO_CARD))
		return answer(call, NV_ERR_INVALID_ADDRESS);
	return CGPU_FORWARD;
}

static void reserved_range(struct cgpu_tenant *tenant, struct cgpu_call *call, bool made)
{
	struct cgpu_request *req = &call->req;
	bool intact = cgpu_range_covers(&tenant->ranges, call->file, CGPU_RANGE_RESERVING,
					req->base, req->length_bytes);

	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
		       1u << CGPU_RANGE_RESERVING, CGPU_ANY_CARD, UINT64_MAX, req->base,
		       req->length_bytes);
	/* without this entry its mmap is charged as managed memory: no harm */
	if (made && intact)
		cgpu_range_add(&tenant->ranges, CGPU_RANGE_RESERVED, call->file, req->base,
			       req->length_bytes, 0, CGPU_NO_CARD);
}

static int pre_uvm_free(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;

	/* no well-formed program frees the same address twice at the same time */
	if (cgpu_range_overlaps(&tenant->ranges, call->file, 1u << CGPU_RANGE_FREEING,
				req->base, req->length_bytes))
		return answer(call, NV_ERR_INVALID_ADDRESS);
	call->range_serial = tenant->ranges.serial;
	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
		       1u << CGPU_RANGE_RESERVED | 1u << CGPU_RANGE_RESERVING,
		       CGPU_ANY_CARD, UINT64_MAX, req->base, req->length_bytes);
	if (!req->length_bytes ||
	    cgpu_range_add(&tenant->ranges, CGPU_RANGE_FREEING, call->file, req->base,
			   req->length_bytes, 0, CGPU_NO_CARD))
		return answer(call, NV_ERR_INVALID_ADDRESS);
	return CGPU_FORWARD;
}

static int pre_uvm_map(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	int verdict;

	if (!owns_client(tenant, req->hClient))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (!req->length_bytes || req->length_bytes > UINT64_MAX - req->base)
		return answer(call, NV_ERR_INVALID_ADDRESS);
	verdict = hold(tenant, call, req->hClient, req->hObject);
	if (verdict == CGPU_FORWARD && req->nr == UVM_ALLOC_DEVICE_P2P)
		verdict = reserve_range(tenant, call);
	return verdict;
}

static int pre_register_gpu(struct cgpu_tenant *tenant,
			    const struct cgpu_topology *topology, struct cgpu_call *call)
{
	uint32_t card = cgpu_topology_by_uuid(topology, call->req.gpu_uuid);
	struct cgpu_file *file = cgpu_tenant_file(tenant, call->file);

	if (call->req.hClient && !owns_client(tenant, call->req.hClient))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (card == CGPU_NO_CARD || !tenant->ledger.account[card].present)
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (!(file->gpu_mask & (1u << card))) {
		/* managed memory that is there already may now move to this card */
		if (cgpu_account_charge(&tenant->ledger, card, file->managed_bytes))
			return answer(call, NV_ERR_NO_MEMORY);
		file->gpu_mask |= 1u << card;
		call->card = card;
	}
	call->alone = !file->registering++;
	call->registrations = ++file->registrations;
	return CGPU_FORWARD;
}

static void pre_unregister_gpu(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const struct cgpu_file *file = cgpu_tenant_file(tenant, call->file);

	call->alone = !file->registering;
	call->registrations = file->registrations;
	call->range_serial = tenant->ranges.serial;
}

/* the file that holds what is exported stays until the call is over */
static void use_file(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	call->used_file = call->fd_file;
	cgpu_tenant_file(tenant, call->fd_file)->users++;
}

/* EXPORT_OBJECTS_TO_FD and EXPORT_TO_DMABUF_FD: `count` handles at `handles` */
static int hold_list(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     const uint8_t *handles, uint32_t stride, uint32_t count)
{
	uint32_t i;

	if (count > CGPU_EXPORT_MAX)
		return answer(call, NV_ERR_INSUFFICIENT_RESOURCES);
	for (i = 0; i < count; i++) {
		int verdict = hold(tenant, call, call->req.hClient,
				   cgpu_get32(handles, i * stride));

		if (verdict != CGPU_FORWARD)
			return verdict;
		/* 0 keeps the place of an object that takes no video memory */
		call->held[call->held_count++] = call->charge;
		call->charge = 0;
	}
	return CGPU_FORWARD;
}

/* `count` objects from number `first` of the exporting file, below `hParent` */
static int pre_import(struct cgpu_tenant *tenant, struct cgpu_call *call,
		      uint32_t hParent, uint32_t first, uint32_t count)
{
	uint32_t i, charge;

	/* a fd of another container: its memory, charged to nobody here */
	if (!call->fd_file)
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (count > CGPU_EXPORT_MAX)
		return answer(call, NV_ERR_INSUFFICIENT_RESOURCES);
	if (!pin_parent(tenant, call, hParent))
		return answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	for (i = 0; i < count; i++) {
		if (!cgpu_range_exported(&tenant->ranges, call->fd_file, first + i, &charge))
			return answer(call, NV_ERR_OBJECT_NOT_FOUND);
		if (charge)
			cgpu_charge_get(&tenant->ledger, charge);
		call->held[call->held_count++] = charge;
	}
	use_file(tenant, call);
	return CGPU_FORWARD;
}

static int pre_export(struct cgpu_tenant *tenant, struct cgpu_call *call,
		      uint32_t handles, uint32_t count)
{
	if (!call->fd_file)
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	use_file(tenant, call);
	return hold_list(tenant, call, call->params + handles, 4, count);
}

static int pre_disable_channels(struct cgpu_tenant *tenant, struct cgpu_call *call,
				uint32_t card)
{
	bool disable;
	uint32_t count, i;

	if (call->req.params_size != 536)
		return answer(call, NV_ERR_INVALID_ARGUMENT);
	count = cgpu_get32(call->params, 4);
	if (count > 64)
		return answer(call, NV_ERR_INVALID_ARGUMENT);
	/* the driver checks none of these handles: any tenant could stop any other */
	for (i = 0; i < count; i++) {
		uint32_t hClient = cgpu_get32(call->params, 24 + 4 * i);
		uint32_t hChannel = cgpu_get32(call->params, 280 + 4 * i);

		if (!owns_client(tenant, hClient) || !find(tenant, hClient, hChannel))
			return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	}
	/* what the engine has stopped runs when the engine says so */
	disable = call->params[0];
	if (!disable && card < CGPU_MAX_CARDS && tenant->ledger.account[card].gate_shut)
		return answer(call, NV_OK);
	return CGPU_FORWARD;
}

/* controls that would undo the engine's decisions, on a card that it governs */
static int pre_compute_control(struct cgpu_tenant *tenant, struct cgpu_call *call,
			       uint32_t index)
{
	struct cgpu_object *object = object_at(tenant, index);

	switch (call->req.cmd) {
	case NVA06C_CTRL_CMD_SET_TIMESLICE:
		if (call->req.params_size != 8)
			return answer(call, NV_ERR_INVALID_ARGUMENT);
		object->timeslice_us = cgpu_get64(call->params, 0);
		return answer(call, NV_OK);
	case NVA06C_CTRL_CMD_GET_TIMESLICE:
		if (call->req.params_size != 8 || !object->timeslice_us)
			return CGPU_FORWARD;
		cgpu_put64(call->params, 0, object->timeslice_us);
		return answer(call, NV_OK);
	case NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE:
		/*
		 * flags bit 0: cilp@12 counts; 0 there is "wait for idle", which would
		 * make a long kernel immune to gates and slices.
		 */
		if (call->req.params_size < 16)
			return answer(call, NV_ERR_INVALID_ARGUMENT);
		return cgpu_get32(call->params, 0) & 1 && !cgpu_get32(call->params, 12) ?
			answer(call, NV_OK) : CGPU_FORWARD;
	case NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL:
	case NVA06F_CTRL_CMD_SET_INTERLEAVE_LEVEL:
	case NVA06C_CTRL_CMD_PREEMPT:
	case NVA06F_CTRL_CMD_RESTART_RUNLIST:
		return answer(call, NV_OK);
	case NVA06C_CTRL_CMD_MAKE_REALTIME:
	case NV2080_CTRL_CMD_FIFO_RUNLIST_SET_SCHED_POLICY:
	case NV2080_CTRL_CMD_FIFO_OBJSCHED_SET_STATE:
	case NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES:
		return refuse(tenant, call, object->card, NV_ERR_INSUFFICIENT_PERMISSIONS);
	default:
		return CGPU_FORWARD;
	}
}

static int pre_control(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	uint32_t index, card;

	if (!owns_client(tenant, req->hClient))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/* a serialised blob in place of the plain struct cannot be looked into */
	if (req->params_size && req->flags & NVOS54_FLAGS_FINN_SERIALIZED)
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
	index = find(tenant, req->hClient, req->hObject);
	card = index ? object_at(tenant, index)->card : CGPU_NO_CARD;

	switch (req->cmd) {
	case NV0080_CTRL_CMD_FIFO_STOP_RUNLIST:
	case NV0080_CTRL_CMD_FIFO_START_RUNLIST:
	case NV2080_CTRL_CMD_FIFO_DISABLE_USERMODE_CHANNELS:
	case NV2080_CTRL_CMD_FIFO_CONFIG_CTXSW_TIMEOUT:
	case NV2080_CTRL_CMD_GPU_EVICT_CTX:
		/* they act on every tenant of the card */
	case NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID:
	case NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2:
		/* these tell when every tenant of the card computes */
		return refuse(tenant, call, card, NV_ERR_INSUFFICIENT_PERMISSIONS);
	case NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS:
		return pre_disable_channels(tenant, call, card);
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
		if (req->params_size != 24)
			return answer(call, NV_ERR_INVALID_ARGUMENT);
		return pre_export(tenant, call, 12, 1);
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
		if (req->params_size != 2128)
			return answer(call, NV_ERR_INVALID_ARGUMENT);
		return pre_export(tenant, call, 76, cgpu_get32(call->params, 2124) & 0xffff);
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
		if (req->params_size != 20)
			return answer(call, NV_ERR_INVALID_ARGUMENT);
		return pre_import(tenant, call, cgpu_get32(call->params, 12), 0, 1);
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
		if (req->params_size != 652)
			return answer(call, NV_ERR_INVALID_ARGUMENT);
		return pre_import(tenant, call, cgpu_get32(call->params, 4),
				  cgpu_get32(call->params, 648) >> 16,
				  cgpu_get32(call->params, 648) & 0xffff);
	default:
		break;
	}
	if (index && card < CGPU_MAX_CARDS && tenant->ledger.account[card].slices_owned)
		return pre_compute_control(tenant, call, index);
	return CGPU_FORWARD;
}

static int pre_export_dmabuf(struct cgpu_tenant *tenant, struct cgpu_call *call,
			     uint32_t handles)
{
	if (!owns_client(tenant, call->req.hClient))
		return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	return hold_list(tenant, call, call->args + handles, 4,
			 cgpu_get32(call->args, 12));
}

static int pre(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
	       struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;

	switch (req->op) {
	case CGPU_OP_ALLOC:
	case CGPU_OP_HEAP_ALLOC:
		return pre_alloc(tenant, topology, call);
	case CGPU_OP_ALLOC_MEMORY:
		return pre_alloc_memory(tenant, call);
	case CGPU_OP_CONTEXT_DMA:
		return pre_context_dma(tenant, call);
	case CGPU_OP_FREE:
		return pre_free(tenant, call);
	case CGPU_OP_CONTROL:
		return pre_control(tenant, call);
	case CGPU_OP_DUP:
		return pre_dup(tenant, call);
	case CGPU_OP_HEAP_INFO:
	case CGPU_OP_HEAP_OTHER:
	case CGPU_OP_CLIENT_CALL:
	case CGPU_OP_IDLE_CHANNELS:
		if (!owns_client(tenant, req->hClient))
			return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
		/*
		 * Hardware allocation by hand: no user of this century, and its
		 * FREE frees any handle.
		 */
		if (req->function == NVOS32_FUNCTION_HW_ALLOC ||
		    req->function == NVOS32_FUNCTION_HW_FREE)
			return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
		return CGPU_FORWARD;
	case CGPU_OP_REGISTER_FD:
		/* a control file of somebody else would lend its clients to this file */
		if (!call->fd_file)
			return refuse(tenant, call, CGPU_NO_CARD, 0);
		return CGPU_FORWARD;
	case CGPU_OP_EXPORT_DMABUF:
		return pre_export_dmabuf(tenant, call, req->handles_offset);
	case CGPU_OP_UVM_REGISTER_GPU:
		return pre_register_gpu(tenant, topology, call);
	case CGPU_OP_UVM_UNREGISTER_GPU:
		pre_unregister_gpu(tenant, call);
		return CGPU_FORWARD;
	case CGPU_OP_UVM_UNMAP_EXTERNAL:
		call->range_serial = tenant->ranges.serial;
		return CGPU_FORWARD;
	case CGPU_OP_UVM_FREE:
		return pre_uvm_free(tenant, call);
	case CGPU_OP_UVM_SEMAPHORE_POOL:
		return reserve_range(tenant, call);
	case CGPU_OP_UVM_REGISTER_CLIENT:
		if (!owns_client(tenant, req->hClient))
			return refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
		return CGPU_FORWARD;
	case CGPU_OP_UVM_MAP_EXTERNAL:
		return pre_uvm_map(tenant, call);
	default:
		return CGPU_FORWARD;
	}
}

int cgpu_call_pre(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call)
{
	int verdict;

	call->error = 0;
	call->kill = false;
	call->charge = 0;
	call->parent = 0;
	call->object = 0;
	call->serial = 0;
	call->card = CGPU_NO_CARD;
	call->held_count = 0;
	call->pinned_count = 0;
	call->used_file = 0;
	verdict = pre(tenant, topology, call);
	if (verdict != CGPU_FORWARD)
		release(tenant, call);
	return verdict;
}

/* ----------------------------------------------------------------- post */

static int undo(struct cgpu_call *call, uint32_t hObject, uint32_t status)
{
	call->undo_hClient = call->req.hClient;
	call->undo_hObject = hObject;
	if (call->req.status_offset != CGPU_NO_OFFSET)
		cgpu_put32(call->args, call->req.status_offset, status);
	return CGPU_UNDO;
}

static int post_client(struct cgpu_tenant *tenant, struct cgpu_call *call,
		       uint32_t hClient)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, call->file);
	struct cgpu_object *client;
	uint32_t index;

	call->req.hClient = hClient;
	/* only a control file has clients; the driver allows no other */
	index = file->root ? cgpu_object_add(&tenant->objects, &tenant->ledger, file->root,
					     hClient, hClient, NV01_ROOT_CLIENT) : 0;
	if (!index)
		return undo(call, hClient, NV_ERR_INSUFFICIENT_RESOURCES);
	client = object_at(tenant, index);
	client->pid = call->pid;
	return CGPU_DONE;
}

static uint64_t taken_bytes(const struct cgpu_request *before,
			    const struct cgpu_request *after)
{
	uint64_t bytes = after->size_bytes;
	const uint64_t grain = 64 << 10;

	/* a driver that reports nothing took at least what was asked */
	if (!bytes)
		return cgpu_memory_round(before->size_bytes, before->attr, before->attr2);
	return bytes > UINT64_MAX - grain ? UINT64_MAX : (bytes + grain - 1) & ~(grain - 1);
}

static int post_alloc(struct cgpu_tenant *tenant, struct cgpu_call *call,
		      const struct cgpu_request *after)
{
	struct cgpu_request *req = &call->req;
	uint32_t hObject = after->hObject;
	uint32_t index, i;
	struct cgpu_object *object;
	uint32_t status = NV_ERR_INSUFFICIENT_RESOURCES;

	if (req->op == CGPU_OP_ALLOC && is_root_class(req->hClass))
		return post_client(tenant, call, hObject);

	if (call->charge && req->hClass == NV01_MEMORY_LOCAL_USER) {
		uint64_t bytes = taken_bytes(req, after);

		/* memory of unknown size is not an answer of any driver */
		if (!bytes || cgpu_charge_settle(&tenant->ledger, call->charge, bytes)) {
			status = NV_ERR_NO_MEMORY;
			goto undo;
		}
	}
	index = hObject ? cgpu_object_add(&tenant->objects, &tenant->ledger, call->parent,
					  req->hClient, hObject, req->hClass) : 0;
	if (!index)
		goto undo;

	object = object_at(tenant, index);
	object->charge = call->charge;
	call->charge = 0;
	object->engineType = req->engineType;
	for (i = 0; i < 3; i++)
		object->hDepend[i] = req->hDepend[i];
	if (req->hClass == NV01_DEVICE_0)
		object->card = call->card;
	if (req->hClass == KEPLER_CHANNEL_GROUP_A || req->hClass == FERMI_CONTEXT_SHARE_A ||
	    cgpu_is_channel_class(req->hClass))
		cgpu_object_set_runnable(&tenant->objects, index);
	return CGPU_DONE;

undo:
	/* the charge stays until the driver has freed it: see cgpu_call_undone() */
	return undo(call, hObject, status);
}

static int post_free(struct cgpu_tenant *tenant, struct cgpu_call *call, bool freed)
{
	/* gone already if the driver has given its handle out again */
	if (object_at(tenant, call->object)->serial != call->serial)
		return CGPU_DONE;
	if (freed)
		cgpu_object_remove(&tenant->objects, &tenant->ledger, call->object);
	else
		object_at(tenant, call->object)->dying = 0;
	return CGPU_DONE;
}

/* a second handle of `charge`, by DUP_OBJECT or by import; takes its reference over */
static bool add_duplicate(struct cgpu_tenant *tenant, struct cgpu_call *call,
			  uint32_t hObject, uint32_t hClass, uint32_t *charge)
{
	uint32_t index = hObject ? cgpu_object_add(&tenant->objects, &tenant->ledger,
						   call->parent, call->req.hClient,
						   hObject, hClass) : 0;

	if (!index)
		return false;
	object_at(tenant, index)->charge = *charge;
	*charge = 0;
	return true;
}

static int post_dup(struct cgpu_tenant *tenant, struct cgpu_call *call,
		    const struct cgpu_request *after)
{
	uint32_t hClass = object_at(tenant, call->object)->hClass;

	if (!add_duplicate(tenant, call, after->hObject, hClass, &call->charge))
		return undo(call, after->hObject, NV_ERR_INSUFFICIENT_RESOURCES);
	return CGPU_DONE;
}

/* `handles`: offset in the parameters of what the driver called the new objects */
static int post_import(struct cgpu_tenant *tenant, struct cgpu_call *call,
		       uint32_t handles)
{
	uint32_t i;

	for (i = 0; i < call->held_count; i++) {
		uint32_t hObject = cgpu_get32(call->params, handles + 4 * i);
		/* the class of what takes no video memory does not matter */
		uint32_t hClass = call->held[i] ? NV01_MEMORY_LOCAL_USER : 0;

		if (!add_duplicate(tenant, call, hObject, hClass, &call->held[i]))
			return call->held_count == 1 ?
				undo(call, hObject, NV_ERR_INSUFFICIENT_RESOURCES) :
				CGPU_KILL;
	}
	return CGPU_DONE;
}

/* hands the held charges to the file that keeps the memory alive */
static int post_export(struct cgpu_tenant *tenant, struct cgpu_call *call, uint64_t first)
{
	uint32_t i;

	for (i = 0; i < call->held_count; i++) {
		if (!call->fd_file ||
		    cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXPORT, call->fd_file,
				   first + i, 1, call->held[i], CGPU_NO_CARD))
			return CGPU_KILL; /* exported, and no way to take it back */
		call->held[i] = 0; /* the range has it now */
	}
	return CGPU_DONE;
}

static void show_fb_entry(const struct cgpu_account *account, uint8_t *entry)
{
	uint32_t index = cgpu_get32(entry, 0);
	uint64_t value = (uint64_t)cgpu_get32(entry, 4) << 10;
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
	cgpu_put32(entry, 4, (uint32_t)(shown >> 10));
}

static void show_fb_list(const struct cgpu_account *account, uint8_t *list,
			 uint32_t bytes)
{
	uint32_t at;

	for (at = 0; at + 8 <= bytes; at += 8)
		show_fb_entry(account, list + at);
}

/* the account of the card that the request's object lies on; NULL: none */
static const struct cgpu_account *account_of(struct cgpu_tenant *tenant,
					     uint32_t hClient, uint32_t hObject)
{
	uint32_t index = find(tenant, hClient, hObject);
	uint32_t card = index ? object_at(tenant, index)->card : CGPU_NO_CARD;

	return card < CGPU_MAX_CARDS ? &tenant->ledger.account[card] : NULL;
}

static int post_control(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	const struct cgpu_account *account;
	uint32_t index;

	switch (req->cmd) {
	case NV2080_CTRL_CMD_FB_GET_INFO:
		account = account_of(tenant, req->hClient, req->hObject);
		if (account && call->list)
			show_fb_list(account, call->list, req->list_size);
		return CGPU_DONE;
	case NV2080_CTRL_CMD_FB_GET_INFO_V2:
		account = account_of(tenant, req->hClient, req->hObject);
		if (account && req->params_size > 4) {
			uint64_t bytes = (uint64_t)cgpu_get32(call->params, 0) * 8;

			if (bytes > req->params_size - 4)
				bytes = req->params_size - 4;
			show_fb_list(account, call->params + 4, (uint32_t)bytes);
		}
		return CGPU_DONE;
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
		return post_export(tenant, call, 0);
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
		return post_export(tenant, call, cgpu_get32(call->params, 2124) >> 16);
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
		return post_import(tenant, call, 16);
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
		return post_import(tenant, call, 8);
	case NVA06C_CTRL_CMD_GPFIFO_SCHEDULE:
	case NVA06F_CTRL_CMD_GPFIFO_SCHEDULE:
		index = find(tenant, req->hClient, req->hObject);
		if (index)
			object_at(tenant, index)->flags |= CGPU_OBJECT_SCHEDULED;
		tenant->objects.runnable_changes++;
		return CGPU_DONE;
	default:
		return CGPU_DONE;
	}
}

static int post_uvm_map(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	uint32_t seen = 0, count, i;

	if (req->nr == UVM_ALLOC_DEVICE_P2P)
		/* the mmap of this range maps it, it is not managed memory */
		reserved_range(tenant, call, true);
	if (!call->charge)
		return CGPU_DONE; /* not video memory */
	if (req->nr == UVM_ALLOC_DEVICE_P2P) {
		if (cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXTERNAL, call->file,
				   req->base, req->length_bytes, call->charge,
				   CGPU_NO_CARD))
			return CGPU_KILL;
		call->charge = 0;
		return CGPU_DONE;
	}

	/* perGpuAttributes: 36 bytes each from offset 24, the card's UUID first */
	count = cgpu_get32(call->args, req->status_offset - 20);
	for (i = 0; i < count && 24 + 36 * (i + 1) <= req->args_size; i++) {
		uint32_t card = cgpu_topology_by_uuid(topology, call->args + 24 + 36 * i);
		uint32_t bit = card < CGPU_MAX_CARDS ? 1u << card : 0;

		if (bit ? seen & bit : i > 0)
			continue;
		seen |= bit;
		cgpu_charge_get(&tenant->ledger, call->charge);
		if (cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXTERNAL, call->file,
				   req->base, req->length_bytes, call->charge, card)) {
			cgpu_charge_put(&tenant->ledger, call->charge);
			return CGPU_KILL; /* mapped, and no room to remember it */
		}
	}
	return CGPU_DONE;
}

/*
 * The card leaves the va_space, unless another thread was registering it at
 * the same time: which of them the driver took first is not known.
 */
static void forget_registration(struct cgpu_tenant *tenant, struct cgpu_call *call,
				uint32_t card)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, call->file);

	if (!call->alone || call->registrations != file->registrations ||
	    !(file->gpu_mask & (1u << card)))
		return;
	file->gpu_mask &= ~(1u << card);
	cgpu_account_uncharge(&tenant->ledger, card, file->managed_bytes);
}

static void post_uvm_unregister_gpu(struct cgpu_tenant *tenant,
				    const struct cgpu_topology *topology,
				    struct cgpu_call *call)
{
	uint32_t card = cgpu_topology_by_uuid(topology, call->req.gpu_uuid);

	if (card == CGPU_NO_CARD)
		return;
	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
		       1u << CGPU_RANGE_EXTERNAL, card, call->range_serial, 0, UINT64_MAX);
	forget_registration(tenant, call, card);
}

static int post_success(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			struct cgpu_call *call, const struct cgpu_request *after)
{
	struct cgpu_request *req = &call->req;
	const struct cgpu_account *account;

	switch (req->op) {
	case CGPU_OP_ALLOC:
	case CGPU_OP_HEAP_ALLOC:
	case CGPU_OP_CONTEXT_DMA:
		return post_alloc(tenant, call, after);
	case CGPU_OP_ALLOC_MEMORY:
		account = account_of(tenant, req->hClient, req->hParent);
		if (req->hClass == NV01_MEMORY_LOCAL_USER && account &&
		    !account->unlimited && cgpu_get64(call->args, 32) >= account->max_bytes)
			cgpu_put64(call->args, 32, account->max_bytes - 1);
		return post_alloc(tenant, call, after);
	case CGPU_OP_FREE:
		return post_free(tenant, call, true);
	case CGPU_OP_CONTROL:
		return post_control(tenant, call);
	case CGPU_OP_DUP:
		return post_dup(tenant, call, after);
	case CGPU_OP_HEAP_INFO:
		account = account_of(tenant, req->hClient, req->hParent);
		if (!account || account->unlimited)
			return CGPU_DONE;
		if (cgpu_get64(call->args, 24) > account->max_bytes)
			cgpu_put64(call->args, 24, account->max_bytes);
		cgpu_put64(call->args, 32,
			   cgpu_account_free(account, cgpu_get64(call->args, 32)));
		return CGPU_DONE;
	case CGPU_OP_EXPORT_DMABUF:
		return post_export(tenant, call, 0);
	case CGPU_OP_UVM_MAP_EXTERNAL:
		return post_uvm_map(tenant, topology, call);
	case CGPU_OP_UVM_UNMAP_EXTERNAL:
		cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
			       1u << CGPU_RANGE_EXTERNAL,
			       cgpu_topology_by_uuid(topology, req->gpu_uuid),
			       call->range_serial, req->base, req->length_bytes);
		return CGPU_DONE;
	case CGPU_OP_UVM_FREE:
		cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
			       1u << CGPU_RANGE_EXTERNAL, CGPU_ANY_CARD,
			       call->range_serial, req->base, req->length_bytes);
		return CGPU_DONE;
	case CGPU_OP_UVM_SEMAPHORE_POOL:
		reserved_range(tenant, call, true);
		return CGPU_DONE;
	case CGPU_OP_UVM_UNREGISTER_GPU:
		post_uvm_unregister_gpu(tenant, topology, call);
		return CGPU_DONE;
	default:
		return CGPU_DONE;
	}
}

static void post_failure(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	if (call->req.op == CGPU_OP_UVM_SEMAPHORE_POOL ||
	    (call->req.op == CGPU_OP_UVM_MAP_EXTERNAL &&
	     call->req.nr == UVM_ALLOC_DEVICE_P2P))
		reserved_range(tenant, call, false);
	if (call->req.op == CGPU_OP_FREE)
		post_free(tenant, call, false);
	if (call->req.op == CGPU_OP_UVM_REGISTER_GPU && call->card < CGPU_MAX_CARDS)
		forget_registration(tenant, call, call->card);
}

static bool is_unseen_control(const struct cgpu_call *call)
{
	return call->req.op == CGPU_OP_CONTROL && !call->req.params_size &&
	       call->req.cmd != NVA06C_CTRL_CMD_GPFIFO_SCHEDULE &&
	       call->req.cmd != NVA06F_CTRL_CMD_GPFIFO_SCHEDULE;
}

bool cgpu_call_wants_room(const struct cgpu_call *call)
{
	return !is_unseen_control(call);
}

bool cgpu_call_wants_post(const struct cgpu_call *call)
{
	return !is_unseen_control(call) || call->pinned_count || call->held_count ||
	       call->used_file;
}

int cgpu_call_post(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call, int32_t result)
{
	struct cgpu_request after = call->req;
	int verdict = CGPU_DONE;

	if (call->req.op == CGPU_OP_UVM_REGISTER_GPU)
		cgpu_tenant_file(tenant, call->file)->registering--;
	if (call->req.op == CGPU_OP_UVM_FREE)
		cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
			       1u << CGPU_RANGE_FREEING, CGPU_ANY_CARD, UINT64_MAX,
			       call->req.base, call->req.length_bytes);
	if (call->req.status_offset != CGPU_NO_OFFSET)
		after.status = cgpu_get32(call->args, call->req.status_offset);
	if (call->req.hObject_offset)
		after.hObject = cgpu_get32(call->args, call->req.hObject_offset);
	if (call->req.op == CGPU_OP_ALLOC && call->req.hClass == NV01_MEMORY_LOCAL_USER)
		after.size_bytes = call->req.params_size >= 72 ?
			cgpu_get64(call->params, 64) : 0;
	if (call->req.op == CGPU_OP_HEAP_ALLOC)
		after.size_bytes = cgpu_get64(call->args,
			call->req.function == NVOS32_FUNCTION_ALLOC_SIZE_RANGE ? 80 : 88);

	if (result == 0 && after.status == NV_OK)
		verdict = post_success(tenant, topology, call, &after);
	else
		post_failure(tenant, call);
	if (verdict != CGPU_UNDO)
		release(tenant, call);
	return verdict;
}

void cgpu_call_undo_args(const struct cgpu_call *call, uint8_t *args)
{
	cgpu_put32(args, 0, call->undo_hClient);
	cgpu_put32(args, 4, 0);
	cgpu_put32(args, 8, call->undo_hObject);
	cgpu_put32(args, 12, 0);
}

void cgpu_call_undone(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	release(tenant, call);
}
