// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Two threads of a container can be in the driver with the same handle. These rules keep the ledger
 * right:
 *
 * - A charge is taken before the driver allocates and returned after it has
 *   freed, never the other way round.
 * - The driver must find under a handle what the core found there. So a call
 *   pins the objects that it names. RM_FREE of a pinned object, or of one above
 *   it, is refused. Closing a file with pinned objects is deferred until they
 *   are unpinned. No well-formed program frees what it is duplicating.
 * - RM_FREE marks its object as dying. A call that names it meanwhile is told
 *   that it is gone, a second RM_FREE too.
 * - What UVM unmaps is taken out only as far as it was there when the driver
 *   was asked: another thread may map at the same address in between.
 *
 * Unknown objects are refused. A client that this container did not create does not exist for it.
 * An object that the core has not seen being made is not freed: another thread's allocation of that
 * handle may not have left the driver yet.
 *
 * Decisions about one call are in the file of its noun: object.c, control.c, export.c, group.c,
 * uvm.c. What they share is in verdict.c.
 */
#include "core/call/control.h"
#include "core/call/export.h"
#include "core/call/group.h"
#include "core/call/object.h"
#include "core/call/uvm.h"
#include "core/call/verdict.h"
#include "core/rm/structs.h"

/* Of the processor's mappings, only those of video memory go through the card's window. */
static bool takes_page_tables(const struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	uint32_t charge = cgpu_object_at(&tenant->objects, call->object)->charge;

	return call->req.op == CGPU_OP_MAP_DMA || call->req.op == CGPU_OP_UNMAP_DMA ||
	       (charge && !cgpu_charge_is_of_host(&tenant->ledger, charge));
}

static bool is_for_processor(uint32_t op)
{
	return op == CGPU_OP_MAP_MEMORY || op == CGPU_OP_UNMAP_MEMORY ||
	       op == CGPU_OP_MOVE_MAPPING;
}

/*
 * Freed memory of the host stays whole while a page of it is mapped. Then it stays until the file
 * through which it was mapped is closed (535 to 595). So the file holds what is mapped through it.
 */
static int hold_mapped(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t charge = cgpu_object_at(&tenant->objects, call->object)->charge;

	if (call->req.op != CGPU_OP_MAP_MEMORY || !cgpu_charge_is_of_host(&tenant->ledger, charge))
		return CGPU_FORWARD;
	if (!call->fd_file)
		return cgpu_answer(call, NV_ERR_INVALID_ARGUMENT);
	if (cgpu_promise_ranges(tenant, call, 1) != CGPU_FORWARD)
		return CGPU_ANSWER;
	cgpu_use_file(tenant, call);
	cgpu_charge_get(&tenant->ledger, charge);
	call->held[call->held_count++] = charge;
	return CGPU_FORWARD;
}

static void keep_mapped(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t charge = call->held_count ? call->held[0] : 0;

	if (!charge || cgpu_range_oldest(&tenant->ranges, call->fd_file, CGPU_RANGE_MAPPED,
					 charge) != UINT64_MAX)
		return;
	cgpu_range_add(&tenant->ranges, CGPU_RANGE_MAPPED, call->fd_file, charge, 1, charge,
		       CGPU_NO_CARD);
	call->held[0] = 0;
}

/*
 * Charges page tables by the mapped length, as of pages of 4 KiB, which cannot be ruled out: a
 * table of 4 KiB holds 8 bytes for each of 512 pages. The bound on the number of mappings covers
 * shorter ones.
 */
static int charge_tables(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const struct cgpu_object *space = cgpu_object_at(&tenant->objects, call->object);
	uint64_t bytes = call->req.length_bytes >> 9 & ~(uint64_t)4095;
	int err;

	if (call->req.op != CGPU_OP_MAP_DMA || !bytes || space->card >= CGPU_MAX_CARDS)
		return CGPU_FORWARD;
	call->card = space->card;
	err = cgpu_charge_new(&tenant->ledger, space->card, bytes, space->pid, &call->charge);
	if (!err)
		return CGPU_FORWARD;
	return err == -ENOSPC ? cgpu_answer(call, NV_ERR_NO_MEMORY) :
		cgpu_refuse(tenant, call, space->card, NV_ERR_INSUFFICIENT_RESOURCES);
}

/*
 * Bytes of BAR1 that a mapping takes at most. It takes whole pages, which are the memory's own, of
 * up to 2 MiB, or 512 MiB; and of 64 KiB if BAR1 is 256 MiB or less (535 to 595).
 */
static uint64_t window_bytes(const struct cgpu_tenant *tenant, const struct cgpu_request *req,
			     uint64_t bar1_bytes, uint32_t charge)
{
	uint64_t memory_bytes = cgpu_charge_at(&tenant->ledger, charge)->bytes;
	uint64_t page = memory_bytes < 512u << 20 ? 2u << 20 : 512u << 20;

	if (bar1_bytes <= 256u << 20)
		page = 64u << 10;
	/* longer than BAR1, so more than there is */
	if (req->length_bytes > bar1_bytes)
		return UINT64_MAX;
	return ((req->offset_bytes & (page - 1)) + req->length_bytes + page - 1) & ~(page - 1);
}

/*
 * A container that fills BAR1 keeps neighbours from beginning: a CUDA context maps 2 MiB of it. So
 * a container gets the same part of it as of what the card promises, and room for a few contexts.
 */
static uint64_t window_limit(const struct cgpu_account *account, const struct cgpu_gpu *gpu)
{
	uint64_t part = account->max_bytes / (cgpu_gpu_promises(gpu) >> 12) *
			(gpu->bar1_bytes >> 12);

	if (part < CGPU_OWN_BAR1_BYTES)
		part = CGPU_OWN_BAR1_BYTES;
	return account->unlimited || part > gpu->bar1_bytes ? gpu->bar1_bytes : part;
}

static int charge_window(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			 struct cgpu_call *call)
{
	const struct cgpu_object *memory = cgpu_object_at(&tenant->objects, call->object);
	const struct cgpu_gpu *gpu;
	int err;

	if (call->req.op != CGPU_OP_MAP_MEMORY || memory->card >= CGPU_MAX_CARDS)
		return CGPU_FORWARD;
	gpu = &topology->gpu[memory->card];
	if (!gpu->bar1_bytes || gpu->total_bytes < 4096)
		return CGPU_FORWARD;
	cgpu_ledger_limit_bar1(&tenant->ledger, memory->card,
			       window_limit(&tenant->ledger.account[memory->card], gpu));
	err = cgpu_charge_new(&tenant->ledger, CGPU_BAR1 + memory->card,
			      window_bytes(tenant, &call->req, gpu->bar1_bytes, memory->charge),
			      memory->pid, &call->charge);
	if (!err)
		return CGPU_FORWARD;
	/* this is no shortage of memory, so no shortage is reported */
	cgpu_ledger_clear_shortage(&tenant->ledger);
	return cgpu_refuse(tenant, call, memory->card, NV_ERR_INSUFFICIENT_RESOURCES);
}

/* Page tables of addresses in a device's own space are made on the card that the call names. */
static bool is_elsewhere(const struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	uint32_t device = cgpu_object_find(&tenant->objects, call->req.hClient, call->req.hParent);

	return device && cgpu_object_at(&tenant->objects, device)->card !=
				 cgpu_object_at(&tenant->objects, call->object)->card;
}

/*
 * A mapping's page tables lie in video memory, and no object shows them. So it counts before the
 * driver makes it.
 */
static int pre_map(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	bool maps = req->op == CGPU_OP_MAP_DMA || req->op == CGPU_OP_MAP_MEMORY;
	uint32_t index;

	if (!cgpu_owns_client(tenant, req->hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	index = cgpu_object_find(&tenant->objects, req->hClient, req->hObject);
	if (!index || cgpu_object_is_dying(&tenant->objects, index))
		return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
	call->object = index;
	if (req->op == CGPU_OP_MAP_DMA && is_elsewhere(tenant, call))
		return cgpu_refuse(tenant, call, cgpu_object_at(&tenant->objects, index)->card,
				   NV_ERR_INVALID_DEVICE);
	if (maps && takes_page_tables(tenant, call)) {
		if (tenant->objects.mappings >= CGPU_MAX_MAPPINGS)
			return cgpu_refuse(tenant, call,
					   cgpu_object_at(&tenant->objects, index)->card,
					   NV_ERR_INSUFFICIENT_RESOURCES);
		if (charge_tables(tenant, call) != CGPU_FORWARD ||
		    charge_window(tenant, topology, call) != CGPU_FORWARD)
			return CGPU_ANSWER;
		cgpu_object_map(&tenant->objects, index, true);
	}
	if (hold_mapped(tenant, call) != CGPU_FORWARD)
		return CGPU_ANSWER;
	/*
	 * Each piece of a parted mapping is unmapped as if it were all of it. And if two calls
	 * about the processor's mappings run at once, the driver's order of them is unknown.
	 */
	if (req->partial || (is_for_processor(req->op) &&
			     cgpu_object_at(&tenant->objects, index)->users))
		cgpu_object_at(&tenant->objects, index)->flags |= CGPU_OBJECT_PARTED;
	cgpu_pin(tenant, call, index);
	return CGPU_FORWARD;
}

/*
 * CUDA tells the driver the mmap's address of what it mapped of the card, and unmaps it by that
 * (RM_UPDATE_DEVICE_MAPPING_INFO).
 */
static void move_mapping(struct cgpu_tenant *tenant, struct cgpu_call *call, bool done)
{
	struct cgpu_object *memory = cgpu_object_at(&tenant->objects, call->object);

	if (memory->first_mapping &&
	    (!done || !cgpu_object_move_mapping(&tenant->objects, &tenant->ledger, call->object,
						call->req.base,
						cgpu_get64(call->args, call->req.base_offset))))
		memory->flags |= CGPU_OBJECT_PARTED;
}

/* `done`: the driver did it. */
static void settle_map(struct cgpu_tenant *tenant, struct cgpu_call *call, bool done)
{
	bool maps = call->req.op == CGPU_OP_MAP_DMA || call->req.op == CGPU_OP_MAP_MEMORY;
	bool parted = !maps &&
		      cgpu_object_at(&tenant->objects, call->object)->flags & CGPU_OBJECT_PARTED;

	if (call->req.op == CGPU_OP_MOVE_MAPPING) {
		move_mapping(tenant, call, done);
		return;
	}
	if (maps && done && call->charge) {
		cgpu_object_hold_mapping(&tenant->objects, &tenant->ledger, call->object,
					 call->charge,
					 cgpu_get64(call->args, call->req.base_offset));
		call->charge = 0;
	}
	if (done)
		keep_mapped(tenant, call);
	if (!maps && done && !parted)
		cgpu_object_drop_mapping(&tenant->objects, &tenant->ledger, call->object,
					 call->req.base);
	/* the mapping was not made, or is gone; the rest of a parted one stays */
	if (maps != done && !parted && takes_page_tables(tenant, call))
		cgpu_object_map(&tenant->objects, call->object, false);
}

static int post_map(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call, const struct cgpu_request *after)
{
	settle_map(tenant, call, true);
	return CGPU_DONE;
}

static void fail_map(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		     struct cgpu_call *call)
{
	settle_map(tenant, call, false);
}

/*
 * The driver finds an event by its client and a number, among all events of the host. The number is
 * the program's name of a descriptor, which is not looked up. So a container that named a
 * neighbour's client could free or squat the neighbour's event.
 *
 * An event goes with the file that asked for it, or when a call frees its client. It does not go
 * with a client that goes with its file. The next client with that number would then have the
 * event. So the client must be of that file, or of the control file that it is registered with,
 * which the driver keeps open as long.
 */
static bool may_have_event(const struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	uint32_t client = cgpu_object_find(&tenant->objects, call->req.hClient,
					   call->req.hClient);
	uint32_t file = cgpu_object_at(&tenant->objects, client)->file;

	return file == call->file || file == cgpu_tenant_file(tenant, call->file)->registered;
}

static int pre_os_event(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			struct cgpu_call *call)
{
	if (!cgpu_pin_client(tenant, call, call->req.hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	call->range_serial = tenant->ranges.serial;
	if (call->req.nr == NV_ESC_FREE_OS_EVENT)
		return CGPU_FORWARD;
	if (!may_have_event(tenant, call))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (tenant->os_events >= CGPU_MAX_OS_EVENTS ||
	    cgpu_tenant_add_event(tenant, call->file, call->req.base))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_RESOURCES);
	return CGPU_FORWARD;
}

/* Any file may ask to free an event; an event that began after this call is not meant. */
static int post_os_event(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			 struct cgpu_call *call, const struct cgpu_request *after)
{
	if (call->req.nr == NV_ESC_FREE_OS_EVENT)
		cgpu_tenant_drop_event(tenant, call->req.base, 0, call->range_serial);
	return CGPU_DONE;
}

/* An event counts from before the driver makes it. */
static void fail_os_event(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			  struct cgpu_call *call)
{
	uint64_t own = call->range_serial + 1;

	if (call->req.nr == NV_ESC_ALLOC_OS_EVENT)
		cgpu_tenant_drop_event(tenant, call->req.base, own, own);
}

static int pre_heap_info(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			 struct cgpu_call *call)
{
	if (!cgpu_owns_client(tenant, call->req.hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/* the object whose sizes these are must be known when they come back */
	return cgpu_pin_parent(tenant, call, call->req.hParent) ? CGPU_FORWARD :
		cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
}

static void show_heap(const struct cgpu_account *account, uint8_t *args)
{
	const uint32_t total = offsetof(struct nvos32, total);
	const uint32_t free = offsetof(struct nvos32, free);

	if (cgpu_get64(args, total) > account->max_bytes)
		cgpu_put64(args, total, account->max_bytes);
	cgpu_put64(args, free, cgpu_account_free(account, cgpu_get64(args, free)));
}

static int post_heap_info(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			  struct cgpu_call *call, const struct cgpu_request *after)
{
	const struct cgpu_account *account =
		cgpu_account_of(tenant, call->req.hClient, call->req.hParent);

	if (account && !account->unlimited)
		show_heap(account, call->args);
	return CGPU_DONE;
}

static int pre_client_call(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			   struct cgpu_call *call)
{
	uint32_t function = call->req.function;

	if (!cgpu_owns_client(tenant, call->req.hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/*
	 * Hardware allocation by hand: no current program uses it, and its FREE frees any handle.
	 */
	if (function == NVOS32_FUNCTION_HW_ALLOC || function == NVOS32_FUNCTION_HW_FREE)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
	return CGPU_FORWARD;
}

static int pre_register_fd(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			   struct cgpu_call *call)
{
	/* another container's control file would lend its clients to this file */
	if (!call->fd_file)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, 0);
	return CGPU_FORWARD;
}

static int post_register_fd(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			    struct cgpu_call *call, const struct cgpu_request *after)
{
	cgpu_tenant_file(tenant, call->file)->registered = call->fd_file;
	return CGPU_DONE;
}

/* An operation that is not here goes to the driver, and nothing follows. */
static const struct cgpu_op_rule ops[CGPU_OP_UVM_INITIALIZE] = {
	[CGPU_OP_ALLOC] = { .pre = cgpu_pre_alloc, .post = cgpu_post_alloc },
	[CGPU_OP_FREE] = {
		.pre = cgpu_pre_free, .post = cgpu_post_free, .fail = cgpu_fail_free,
		.takes_nothing = true, .performable = true,
	},
	[CGPU_OP_CONTROL] = {
		.pre = cgpu_pre_control, .post = cgpu_post_control, .fail = cgpu_fail_control,
		.performable = true,
	},
	[CGPU_OP_HEAP_ALLOC] = {
		.pre = cgpu_pre_alloc, .post = cgpu_post_alloc, .performable = true,
	},
	[CGPU_OP_HEAP_INFO] = {
		.pre = pre_heap_info, .post = post_heap_info, .performable = true,
	},
	[CGPU_OP_HEAP_OTHER] = { .pre = pre_client_call },
	[CGPU_OP_ALLOC_MEMORY] = { .pre = cgpu_pre_alloc_memory, .post = cgpu_post_alloc },
	[CGPU_OP_CONTEXT_DMA] = {
		.pre = cgpu_pre_context_dma, .post = cgpu_post_alloc, .performable = true,
	},
	[CGPU_OP_DUP] = {
		.pre = cgpu_pre_group_dup, .post = cgpu_post_group_dup, .performable = true,
	},
	[CGPU_OP_SHARE] = {
		.pre = cgpu_pre_share, .post = cgpu_post_share, .performable = true,
	},
	[CGPU_OP_CLIENT_CALL] = { .pre = pre_client_call },
	[CGPU_OP_REGISTER_FD] = {
		.pre = pre_register_fd, .post = post_register_fd, .performable = true,
	},
	/* named by a number of the file: the driver looks no descriptor up */
	[CGPU_OP_OS_EVENT] = {
		.pre = pre_os_event, .post = post_os_event, .fail = fail_os_event,
		.performable = true,
	},
	/* card addresses: nothing of the process, and the answer is counted */
	[CGPU_OP_MAP_DMA] = {
		.pre = pre_map, .post = post_map, .fail = fail_map, .performable = true,
	},
	[CGPU_OP_UNMAP_DMA] = {
		.pre = pre_map, .post = post_map, .fail = fail_map, .takes_nothing = true,
		.performable = true,
	},
	[CGPU_OP_MAP_MEMORY] = { .pre = pre_map, .post = post_map, .fail = fail_map },
	[CGPU_OP_UNMAP_MEMORY] = {
		.pre = pre_map, .post = post_map, .fail = fail_map,
		.takes_nothing = true,
	},
	[CGPU_OP_MOVE_MAPPING] = {
		.pre = pre_map, .post = post_map, .fail = fail_map,
		.takes_nothing = true,
	},
	[CGPU_OP_EXPORT_DMABUF] = {
		.pre = cgpu_pre_export_dmabuf, .post = cgpu_post_export_dmabuf,
		.performable = true,
	},
};

static const struct cgpu_op_rule *rule_of(uint32_t op)
{
	return op < CGPU_OP_UVM_INITIALIZE ? &ops[op] : &cgpu_uvm_ops[op - CGPU_OP_UVM_INITIALIZE];
}

int cgpu_call_pre(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call)
{
	const struct cgpu_op_rule *rule = rule_of(call->req.op);
	int verdict;

	call->error = 0;
	call->refused = false;
	cgpu_ledger_clear_shortage(&tenant->ledger);
	call->unlisted = (struct cgpu_unlisted){ 0 };
	call->charge = 0;
	call->parent = 0;
	call->object = 0;
	call->lent = 0;
	call->serial = 0;
	memset(call->driven, 0, sizeof(call->driven));
	call->card = CGPU_NO_CARD;
	call->held_count = 0;
	call->count = 0;
	call->replaces = false;
	call->pinned_count = 0;
	call->used_file = 0;
	call->promised_objects = 0;
	call->promised_ranges = 0;
	call->promised_files = 0;
	call->promised_cards = 0;
	call->schedules = false;
	call->orphan = 0;
	call->hSubdevice = 0;
	call->preemption = NV_OK;
	cgpu_tenant_enter(tenant, call->pid);
	verdict = rule->pre ? rule->pre(tenant, topology, call) : CGPU_FORWARD;
	cgpu_tenant_leave(tenant);
	call->shortage = tenant->ledger.shortage;
	if (verdict != CGPU_FORWARD)
		cgpu_release(tenant, call);
	else if (!call->lent)
		call->leader = NULL;
	return verdict;
}

static bool is_unseen_control(const struct cgpu_call *call)
{
	return call->req.op == CGPU_OP_CONTROL && !call->req.params_size &&
	       !cgpu_is_schedule(call->req.cmd);
}

bool cgpu_call_wants_room(const struct cgpu_call *call)
{
	return !is_unseen_control(call);
}

bool cgpu_call_takes_host(const struct cgpu_call *call)
{
	return (call->req.op == CGPU_OP_ALLOC || call->req.op == CGPU_OP_HEAP_ALLOC ||
		call->req.op == CGPU_OP_ALLOC_MEMORY) &&
	       (call->req.hClass == NV01_MEMORY_SYSTEM ||
		call->req.hClass == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR);
}

bool cgpu_call_wants_post(const struct cgpu_call *call)
{
	return !is_unseen_control(call) || call->pinned_count || call->held_count ||
	       call->used_file;
}

bool cgpu_op_performable(uint32_t op)
{
	return rule_of(op)->performable;
}

uint32_t cgpu_call_open_dmabuf(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	cgpu_table_release(&tenant->files, call->promised_files);
	call->promised_files = 0;
	return cgpu_tenant_open(tenant, CGPU_DEVICE_DMABUF, 0, call->pid);
}

int cgpu_call_post(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call, int32_t result)
{
	const struct cgpu_op_rule *rule = rule_of(call->req.op);
	struct cgpu_request after = call->req;
	int verdict = CGPU_DONE;

	if (call->req.status_offset != CGPU_NO_OFFSET)
		after.status = cgpu_get32(call->args, call->req.status_offset);
	if (call->req.hObject_offset)
		after.hObject = cgpu_get32(call->args, call->req.hObject_offset);
	if (call->req.op == CGPU_OP_ALLOC && cgpu_class_has_size(call->req.hClass))
		after.size_bytes =
			call->req.params_size >= offsetof(struct nv_memory_alloc, alignment) ?
			cgpu_get64(call->params, offsetof(struct nv_memory_alloc, size)) : 0;
	if (call->req.size_offset)
		after.size_bytes = cgpu_get64(call->args, call->req.size_offset);

	cgpu_restore_params(call);
	cgpu_tenant_enter(tenant, call->pid);
	/* the promises are for what follows, and no other call comes in between */
	cgpu_break_promises(tenant, call);
	cgpu_ledger_clear_shortage(&tenant->ledger);
	/* the object exists though the call failed: only its status tells */
	if (call->req.op == CGPU_OP_ALLOC_MEMORY)
		result = 0;
	if (result == 0 && after.status == NV_OK)
		verdict = rule->post ? rule->post(tenant, topology, call, &after) : CGPU_DONE;
	else if (rule->fail)
		rule->fail(tenant, topology, call);
	cgpu_tenant_leave(tenant);
	call->shortage = tenant->ledger.shortage;
	if (verdict != CGPU_UNDO)
		cgpu_release(tenant, call);
	return verdict;
}

/* Return: the call takes nothing, or returns something when it is done. */
static bool takes_nothing(const struct cgpu_call *call)
{
	if (call->req.op == CGPU_OP_CONTROL)
		return call->schedules;
	if (call->req.op == CGPU_OP_OS_EVENT)
		return call->req.nr == NV_ESC_FREE_OS_EVENT;
	return rule_of(call->req.op)->takes_nothing || call->req.status_offset == CGPU_NO_OFFSET;
}

/* Return: neither done nor refused would be a right guess about what the driver has. */
static bool is_ambiguous(const struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;
	uint32_t hObject;

	/* a place of a file may hold the old or the new content */
	if (call->replaces)
		return true;
	if (!call->promised_objects)
		return false;
	/* the new handles stand in the parameters */
	if (!req->hObject_offset)
		return true;
	hObject = cgpu_get32(call->args, req->hObject_offset);
	/* the driver chose a handle; or the handle was in use, and the driver may have said so */
	return !hObject || cgpu_object_find(&tenant->objects, req->hClient, hObject);
}

int cgpu_call_unanswered(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			 struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;
	/* a client whose number no process knows is of no use */
	bool client = req->op == CGPU_OP_ALLOC && cgpu_is_root_class(req->hClass);
	bool ambiguous = !client && is_ambiguous(tenant, call);

	if (client || ambiguous || takes_nothing(call)) {
		cgpu_call_post(tenant, topology, call, -EFAULT);
		return ambiguous ? CGPU_KILL : cgpu_unanswered_uvm(tenant, call);
	}
	cgpu_unanswered_reservation(tenant, call);
	cgpu_put32(call->args, req->status_offset, NV_OK);
	/* how much the driver took is unknown, too: the reservation stays */
	if (req->size_offset)
		cgpu_put64(call->args, req->size_offset, 0);
	if (req->op == CGPU_OP_ALLOC && cgpu_class_has_size(req->hClass) &&
	    req->params_size >= offsetof(struct nv_memory_alloc, alignment))
		cgpu_put64(call->params, offsetof(struct nv_memory_alloc, size), 0);
	return cgpu_call_post(tenant, topology, call, 0);
}

/* Return: index of the object that the call's handle names, 0: none. */
static uint32_t occupant(const struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;

	return req->hObject_offset ?
		       cgpu_object_find(&tenant->objects, req->hClient, req->hObject) : 0;
}

uint32_t cgpu_call_occupied(const struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	uint32_t index = occupant(tenant, call);

	return index ? cgpu_object_at(&tenant->objects, index)->serial : 0;
}

bool cgpu_call_vacate(struct cgpu_tenant *tenant, const struct cgpu_call *call, uint32_t serial)
{
	uint32_t index = occupant(tenant, call);

	if (!index)
		return true;
	/* an object made since the driver was asked has had the driver's answer */
	if (cgpu_object_at(&tenant->objects, index)->serial != serial ||
	    cgpu_object_at(&tenant->objects, index)->users)
		return false;
	cgpu_object_forget(&tenant->objects, &tenant->ledger, index);
	return true;
}

void cgpu_call_undo_args(const struct cgpu_call *call, uint8_t *args)
{
	memset(args, 0, sizeof(struct nvos00));
	cgpu_put32(args, offsetof(struct nvos00, hRoot), call->undo_hClient);
	cgpu_put32(args, offsetof(struct nvos00, hObjectOld), call->undo_hObject);
}

bool cgpu_call_undone(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t orphan = call->orphan;

	cgpu_release(tenant, call);
	if (!orphan)
		return false;
	cgpu_object_remove(&tenant->objects, &tenant->ledger, orphan);
	return cgpu_free_orphan(tenant, call) == CGPU_UNDO;
}
