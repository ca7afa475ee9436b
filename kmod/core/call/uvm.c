// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Ioctls of the UVM device: which cards its file knows, and what is mapped where. */
#include "core/call/uvm.h"
#include "core/call/verdict.h"
#include "core/rm/structs.h"

/*
 * An mmap of the UVM device is managed memory, unless a semaphore pool or the like lies there. So
 * such a range counts from when the driver has made it until a call asks to free it, and no longer.
 * What a UVM_FREE without a length takes is kept by the same rule. If an entry outlived its range,
 * a free by it could take what lies in another range.
 */
static int reserve_range(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;

	if (tenant->ranges.externals >= CGPU_MAX_EXTERNALS)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NO_MEMORY);
	if (cgpu_range_overlaps(&tenant->ranges, call->file,
				1u << CGPU_RANGE_RESERVING | 1u << CGPU_RANGE_FREEING,
				req->base, req->length_bytes))
		return cgpu_answer(call, NV_ERR_UVM_ADDRESS_IN_USE);
	if (!req->length_bytes ||
	    cgpu_range_add(&tenant->ranges, CGPU_RANGE_RESERVING, call->file, req->base,
			   req->length_bytes, 0, CGPU_NO_CARD))
		return cgpu_answer(call, NV_ERR_INVALID_ADDRESS);
	return CGPU_FORWARD;
}

static void reserved_range(struct cgpu_tenant *tenant, struct cgpu_call *call, bool made)
{
	struct cgpu_request *req = &call->req;
	/* a parallelism region has no mmap: the driver would treat one as a managed range */
	uint32_t kind = req->op == CGPU_OP_UVM_CREATE_EXTERNAL ||
			req->op == CGPU_OP_UVM_PARALLELISM ? CGPU_RANGE_CREATED :
							     CGPU_RANGE_RESERVED;
	bool intact = cgpu_range_covers(&tenant->ranges, call->file, CGPU_RANGE_RESERVING,
					req->base, req->length_bytes);

	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
		       1u << CGPU_RANGE_RESERVING, CGPU_ANY_CARD, UINT64_MAX, req->base,
		       req->length_bytes);
	/*
	 * Without this entry its mmap is charged as managed memory, or its mappings stay charged
	 * after a free: no harm.
	 */
	if (made && intact)
		cgpu_range_add(&tenant->ranges, kind, call->file, req->base,
			       req->length_bytes, 0, CGPU_NO_CARD);
}

/* Reserves a range that the driver maps on the cards at once. */
static int reserve_mapped(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	int verdict = cgpu_promise_ranges(tenant, call, 1);

	if (verdict == CGPU_FORWARD)
		verdict = cgpu_promise_tables(tenant, call, ~0u);
	return verdict == CGPU_FORWARD ? reserve_range(tenant, call) : verdict;
}

/*
 * Remembers the range's page tables. Unlike the reservation they stay until the driver has freed
 * it.
 */
static int remember_tables(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	return cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXTERNAL, call->file, call->req.base,
			      call->req.length_bytes, 0, call->card) ? CGPU_KILL : CGPU_DONE;
}

/* Without this entry its mmap is refused where managed memory is: no harm. */
static void announced_range(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	cgpu_range_add(&tenant->ranges, CGPU_RANGE_ANNOUNCED, call->file, call->req.base,
		       call->req.length_bytes, 0, CGPU_NO_CARD);
}

void cgpu_unanswered_reservation(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	if (call->req.op != CGPU_OP_UVM_MAP_EXTERNAL || call->req.nr != UVM_ALLOC_DEVICE_P2P)
		return;
	reserved_range(tenant, call, false);
	announced_range(tenant, call);
}

int cgpu_unanswered_uvm(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	int verdict = CGPU_DONE;

	if (call->req.op == CGPU_OP_UVM_SEMAPHORE_POOL || call->req.op == CGPU_OP_UVM_PARALLELISM)
		verdict = remember_tables(tenant, call);
	if (call->req.op == CGPU_OP_UVM_SEMAPHORE_POOL)
		announced_range(tenant, call);
	cgpu_page_tables_settle(&tenant->ledger, &tenant->ranges);
	return verdict;
}

/*
 * Drops the ranges of one kind that a UVM_FREE takes, if they were there before it. If the length
 * is unknown, these are the ranges that begin at the same address: none of its parts begins before.
 */
static void drop_freed(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t kind)
{
	uint64_t base = call->req.base;

	while (!call->length_known &&
	       cgpu_range_oldest(&tenant->ranges, call->file, kind, base) <= call->range_serial)
		cgpu_range_drop_oldest(&tenant->ranges, &tenant->ledger, call->file, kind, base);
	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file, 1u << kind, CGPU_ANY_CARD,
		       call->range_serial, base, call->req.length_bytes);
}

static int pre_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call)
{
	const uint32_t freed = 1u << CGPU_RANGE_RESERVED | 1u << CGPU_RANGE_RESERVING |
			       1u << CGPU_RANGE_CREATED;
	struct cgpu_request *req = &call->req;

	call->length_known = true;
	if (req->args_size == sizeof(struct uvm_free_by_base)) {
		req->length_bytes = cgpu_range_length(&tenant->ranges, call->file, freed,
						      req->base);
		call->length_known = req->length_bytes;
		/* one byte is enough to keep others from making something there meanwhile */
		if (!call->length_known)
			req->length_bytes = 1;
	}
	/* no well-formed program frees the same address twice at the same time */
	if (cgpu_range_overlaps(&tenant->ranges, call->file, 1u << CGPU_RANGE_FREEING,
				req->base, req->length_bytes))
		return cgpu_answer(call, NV_ERR_INVALID_ADDRESS);
	/* nor does one map it meanwhile: that would be managed memory without a charge */
	if (cgpu_tenant_is_mapping(tenant, call->file, req->base, req->length_bytes))
		return cgpu_answer(call, NV_ERR_STATE_IN_USE);
	call->range_serial = tenant->ranges.serial;
	drop_freed(tenant, call, CGPU_RANGE_ANNOUNCED);
	if (call->length_known)
		cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file, freed,
			       CGPU_ANY_CARD, UINT64_MAX, req->base, req->length_bytes);
	if (!req->length_bytes ||
	    cgpu_range_add(&tenant->ranges, CGPU_RANGE_FREEING, call->file, req->base,
			   req->length_bytes, 0, CGPU_NO_CARD))
		return cgpu_answer(call, NV_ERR_INVALID_ADDRESS);
	return CGPU_FORWARD;
}

/* How many cards UVM_MAP_EXTERNAL_ALLOCATION names, in its perGpuAttributes. */
static uint32_t mapped_cards(const struct cgpu_call *call)
{
	return cgpu_get32(call->args, call->req.args_size - sizeof(struct uvm_map_external_tail));
}

/* Where attribute `i` ends in the argument; it begins with the card's UUID. */
static uint32_t attribute_end(uint32_t i)
{
	return sizeof(struct uvm_map_external_head) + sizeof(struct uvm_gpu_mapping) * (i + 1);
}

/* Return: minor of the card that attribute `i` names, or CGPU_NO_CARD. */
static uint32_t attribute_card(const struct cgpu_topology *topology, const struct cgpu_call *call,
			       uint32_t i)
{
	return cgpu_topology_by_uuid(topology, call->args + attribute_end(i) -
						       sizeof(struct uvm_gpu_mapping));
}

/* The most ranges that post_map_external() adds: one for each card, one for unknown cards. */
static uint32_t ranges_of(const struct cgpu_call *call)
{
	uint32_t count = call->req.nr == UVM_ALLOC_DEVICE_P2P ? 1 : mapped_cards(call);

	return count < CGPU_MAX_CARDS + 1 ? count : CGPU_MAX_CARDS + 1;
}

/* Return: the cards named, as a bit set; all cards if one is unknown. */
static uint32_t cards_of(const struct cgpu_topology *topology, const struct cgpu_call *call)
{
	uint32_t cards = 0, count = mapped_cards(call), i;

	for (i = 0; i < count && attribute_end(i) <= call->req.args_size; i++) {
		uint32_t card = attribute_card(topology, call, i);

		cards |= card < CGPU_MAX_CARDS ? 1u << card : ~0u;
	}
	return cards;
}

static int pre_map_external(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			    struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	int verdict;

	if (!cgpu_owns_client(tenant, req->hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (!req->length_bytes || req->length_bytes > UINT64_MAX - req->base)
		return cgpu_answer(call, NV_ERR_INVALID_ADDRESS);
	verdict = cgpu_hold(tenant, call, req->hClient, req->hObject);
	if (verdict == CGPU_FORWARD)
		verdict = cgpu_promise_ranges(tenant, call, ranges_of(call));
	if (verdict == CGPU_FORWARD && req->nr == UVM_ALLOC_DEVICE_P2P)
		verdict = reserve_mapped(tenant, call);
	else if (verdict == CGPU_FORWARD)
		verdict = cgpu_promise_tables(tenant, call, cards_of(topology, call));
	return verdict;
}

/* A sparse mapping has page tables, and no memory behind them. */
static int pre_map_sparse(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			  struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	int verdict;

	call->card = cgpu_topology_by_uuid(topology, req->gpu_uuid);
	if (call->card == CGPU_NO_CARD || !tenant->ledger.account[call->card].present)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (!req->length_bytes || req->length_bytes > UINT64_MAX - req->base)
		return cgpu_answer(call, NV_ERR_INVALID_ADDRESS);
	verdict = cgpu_promise_ranges(tenant, call, 1);
	return verdict == CGPU_FORWARD ? cgpu_promise_tables(tenant, call, 1u << call->card) :
					 verdict;
}

static int pre_register_gpu(struct cgpu_tenant *tenant,
			    const struct cgpu_topology *topology, struct cgpu_call *call)
{
	uint32_t card = cgpu_topology_by_uuid(topology, call->req.gpu_uuid);
	struct cgpu_file *file = cgpu_tenant_file(tenant, call->file);

	if (call->req.hClient && !cgpu_pin_client(tenant, call, call->req.hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (card == CGPU_NO_CARD || !tenant->ledger.account[card].present)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (!(file->gpu_mask & (1u << card))) {
		/* existing managed memory may now move to this card */
		if (cgpu_account_charge(&tenant->ledger, card, file->managed_bytes))
			return cgpu_answer(call, NV_ERR_NO_MEMORY);
		file->gpu_mask |= 1u << card;
		call->card = card;
	}
	call->alone = !file->registering++;
	call->registrations = ++file->registrations;
	return CGPU_FORWARD;
}

static int pre_unregister_gpu(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			      struct cgpu_call *call)
{
	const struct cgpu_file *file = cgpu_tenant_file(tenant, call->file);

	call->alone = !file->registering;
	call->registrations = file->registrations;
	call->range_serial = tenant->ranges.serial;
	return CGPU_FORWARD;
}

/*
 * UVM duplicates the address space, and a channel's group, by a client of its own, and keeps the
 * channel's memory. Freeing the handles returns nothing until UVM is told to forget them.
 */
static uint64_t channel_key(const struct cgpu_request *req)
{
	return (uint64_t)req->hClient << 32 | req->hObject;
}

/* Takes a reference of the object's charge, and of its group's. */
static int pre_retain(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		      struct cgpu_call *call)
{
	const struct cgpu_object *object;
	uint32_t group;
	int verdict;

	if (!cgpu_owns_client(tenant, call->req.hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	verdict = cgpu_promise_ranges(tenant, call, 2);
	if (verdict == CGPU_FORWARD)
		verdict = cgpu_hold(tenant, call, call->req.hClient, call->req.hObject);
	if (verdict != CGPU_FORWARD)
		return verdict;
	call->card = cgpu_topology_by_uuid(topology, call->req.gpu_uuid);
	object = cgpu_object_at(&tenant->objects, call->object);
	group = object->parent ? cgpu_object_at(&tenant->objects, object->parent)->charge : 0;
	if (call->req.op != CGPU_OP_UVM_REGISTER_CHANNEL || !group)
		return CGPU_FORWARD;
	cgpu_charge_get(&tenant->ledger, group);
	call->held[call->held_count++] = group;
	return CGPU_FORWARD;
}

static int retain(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t *charge)
{
	bool channel = call->req.op == CGPU_OP_UVM_REGISTER_CHANNEL;

	if (!*charge)
		return CGPU_DONE;
	if (cgpu_range_add(&tenant->ranges, channel ? CGPU_RANGE_CHANNEL : CGPU_RANGE_VASPACE,
			   call->file, channel ? channel_key(&call->req) : call->card, 1,
			   *charge, call->card))
		return CGPU_KILL; /* kept, and no room to remember it */
	*charge = 0;
	return CGPU_DONE;
}

static int post_retain(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		       struct cgpu_call *call, const struct cgpu_request *after)
{
	int verdict = retain(tenant, call, &call->charge);

	return verdict == CGPU_DONE && call->held_count ?
		       retain(tenant, call, &call->held[0]) : verdict;
}

static void forget_retained(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card)
{
	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
		       1u << CGPU_RANGE_CHANNEL | 1u << CGPU_RANGE_VASPACE, card,
		       call->range_serial, 0, UINT64_MAX);
}

static int post_map_external(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			     struct cgpu_call *call, const struct cgpu_request *after)
{
	struct cgpu_request *req = &call->req;
	uint32_t seen = 0, count, i;

	if (req->nr == UVM_ALLOC_DEVICE_P2P) {
		/* the mmap of this range maps this memory; it is not managed memory */
		reserved_range(tenant, call, true);
		if (cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXTERNAL, call->file,
				   req->base, req->length_bytes, call->charge,
				   CGPU_NO_CARD))
			return CGPU_KILL;
		call->charge = 0;
		return CGPU_DONE;
	}

	count = mapped_cards(call);
	for (i = 0; i < count && attribute_end(i) <= req->args_size; i++) {
		uint32_t card = attribute_card(topology, call, i);
		uint32_t bit = card < CGPU_MAX_CARDS ? 1u << card : 0;

		if (bit ? seen & bit : i > 0)
			continue;
		seen |= bit;
		/* host memory has only its page tables charged */
		if (call->charge)
			cgpu_charge_get(&tenant->ledger, call->charge);
		if (cgpu_range_add(&tenant->ranges, CGPU_RANGE_EXTERNAL, call->file,
				   req->base, req->length_bytes, call->charge, card)) {
			if (call->charge)
				cgpu_charge_put(&tenant->ledger, call->charge);
			return CGPU_KILL; /* mapped, and no room to remember it */
		}
	}
	return CGPU_DONE;
}

/*
 * The card leaves the va_space, unless another thread was registering it at the same time. The
 * driver's order of the two is unknown then.
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

static int post_unregister_gpu(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			       struct cgpu_call *call, const struct cgpu_request *after)
{
	uint32_t card = cgpu_topology_by_uuid(topology, call->req.gpu_uuid);

	if (card == CGPU_NO_CARD)
		return CGPU_DONE;
	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file,
		       1u << CGPU_RANGE_EXTERNAL, card, call->range_serial, 0, UINT64_MAX);
	forget_retained(tenant, call, card);
	forget_registration(tenant, call, card);
	return CGPU_DONE;
}

/* A range group counts from before the driver makes it until it or its file is gone. */
static int pre_range_group(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			   struct cgpu_call *call)
{
	if (call->req.nr != UVM_CREATE_RANGE_GROUP)
		return CGPU_FORWARD;
	if (tenant->range_groups >= CGPU_MAX_RANGE_GROUPS)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_RESOURCES);
	tenant->range_groups++;
	cgpu_tenant_file(tenant, call->file)->range_groups++;
	return CGPU_FORWARD;
}

static void range_group_gone(struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, call->file);

	if (!file->range_groups)
		return;
	tenant->range_groups--;
	file->range_groups--;
}

static int post_range_group(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			    struct cgpu_call *call, const struct cgpu_request *after)
{
	if (call->req.nr != UVM_CREATE_RANGE_GROUP)
		range_group_gone(tenant, call);
	return CGPU_DONE;
}

static void fail_range_group(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			     struct cgpu_call *call)
{
	if (call->req.nr == UVM_CREATE_RANGE_GROUP)
		range_group_gone(tenant, call);
}

static int pre_initialize(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			  struct cgpu_call *call)
{
	/* otherwise malloc()'s memory would move to the card, charged to no container */
	cgpu_put32(call->args, offsetof(struct uvm_initialize, flags),
		   call->req.flags | UVM_INIT_FLAGS_DISABLE_HMM);
	return CGPU_FORWARD;
}

static void fail_initialize(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			    struct cgpu_call *call)
{
	cgpu_put32(call->args, offsetof(struct uvm_initialize, flags), call->req.flags);
}

static int post_initialize(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			   struct cgpu_call *call, const struct cgpu_request *after)
{
	fail_initialize(tenant, topology, call);
	return CGPU_DONE;
}

static int post_register_gpu(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			     struct cgpu_call *call, const struct cgpu_request *after)
{
	cgpu_tenant_file(tenant, call->file)->registering--;
	return CGPU_DONE;
}

static void fail_register_gpu(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			      struct cgpu_call *call)
{
	cgpu_tenant_file(tenant, call->file)->registering--;
	if (call->card < CGPU_MAX_CARDS)
		forget_registration(tenant, call, call->card);
}

/* An unmapping takes only ranges that are there by now. */
static int pre_unmap(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		     struct cgpu_call *call)
{
	call->range_serial = tenant->ranges.serial;
	return CGPU_FORWARD;
}

static int post_unregister_vaspace(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
				   struct cgpu_call *call, const struct cgpu_request *after)
{
	forget_retained(tenant, call, cgpu_topology_by_uuid(topology, call->req.gpu_uuid));
	return CGPU_DONE;
}

static int post_unregister_channel(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
				   struct cgpu_call *call, const struct cgpu_request *after)
{
	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file, 1u << CGPU_RANGE_CHANNEL,
		       CGPU_ANY_CARD, call->range_serial, channel_key(&call->req), 1);
	return CGPU_DONE;
}

static int post_unmap_external(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			       struct cgpu_call *call, const struct cgpu_request *after)
{
	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file, 1u << CGPU_RANGE_EXTERNAL,
		       cgpu_topology_by_uuid(topology, call->req.gpu_uuid), call->range_serial,
		       call->req.base, call->req.length_bytes);
	return CGPU_DONE;
}

static void fail_map_external(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			      struct cgpu_call *call)
{
	if (call->req.nr == UVM_ALLOC_DEVICE_P2P)
		reserved_range(tenant, call, false);
}

/* The range is no longer being freed. */
static void fail_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		      struct cgpu_call *call)
{
	cgpu_range_cut(&tenant->ranges, &tenant->ledger, call->file, 1u << CGPU_RANGE_FREEING,
		       CGPU_ANY_CARD, UINT64_MAX, call->req.base, call->req.length_bytes);
}

static int post_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		     struct cgpu_call *call, const struct cgpu_request *after)
{
	fail_free(tenant, topology, call);
	drop_freed(tenant, call, CGPU_RANGE_EXTERNAL);
	return CGPU_DONE;
}

static int post_map_sparse(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			   struct cgpu_call *call, const struct cgpu_request *after)
{
	return remember_tables(tenant, call);
}

static int pre_create_external(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			       struct cgpu_call *call)
{
	return reserve_range(tenant, call);
}

static int post_create_external(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
				struct cgpu_call *call, const struct cgpu_request *after)
{
	reserved_range(tenant, call, true);
	return CGPU_DONE;
}

static int pre_mapped_range(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			    struct cgpu_call *call)
{
	return reserve_mapped(tenant, call);
}

static int post_mapped_range(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			     struct cgpu_call *call, const struct cgpu_request *after)
{
	reserved_range(tenant, call, true);
	return remember_tables(tenant, call);
}

static void fail_reserved(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			  struct cgpu_call *call)
{
	reserved_range(tenant, call, false);
}

#define ROW(op) [CGPU_OP_UVM_##op - CGPU_OP_UVM_INITIALIZE]

const struct cgpu_op_rule cgpu_uvm_ops[CGPU_UVM_OPS] = {
	ROW(INITIALIZE) = {
		.pre = pre_initialize, .post = post_initialize, .fail = fail_initialize,
	},
	ROW(REGISTER_GPU) = {
		.pre = pre_register_gpu, .post = post_register_gpu, .fail = fail_register_gpu,
		.performable = true,
	},
	ROW(UNREGISTER_GPU) = {
		.pre = pre_unregister_gpu, .post = post_unregister_gpu, .takes_nothing = true,
	},
	ROW(REGISTER_VASPACE) = { .pre = pre_retain, .post = post_retain },
	ROW(UNREGISTER_VASPACE) = {
		.pre = pre_unmap, .post = post_unregister_vaspace, .takes_nothing = true,
	},
	ROW(REGISTER_CHANNEL) = { .pre = pre_retain, .post = post_retain },
	ROW(UNREGISTER_CHANNEL) = {
		.pre = pre_unmap, .post = post_unregister_channel, .takes_nothing = true,
		.performable = true,
	},
	ROW(MAP_EXTERNAL) = {
		.pre = pre_map_external, .post = post_map_external, .fail = fail_map_external,
	},
	ROW(UNMAP_EXTERNAL) = {
		.pre = pre_unmap, .post = post_unmap_external, .takes_nothing = true,
		.performable = true,
	},
	ROW(FREE) = {
		.pre = pre_free, .post = post_free, .fail = fail_free, .takes_nothing = true,
		.performable = true,
	},
	ROW(MAP_SPARSE) = {
		.pre = pre_map_sparse, .post = post_map_sparse, .performable = true,
	},
	/* an mmap without such a range is charged as managed memory */
	ROW(SEMAPHORE_POOL) = {
		.pre = pre_mapped_range, .post = post_mapped_range, .fail = fail_reserved,
		.takes_nothing = true,
	},
	ROW(PARALLELISM) = {
		.pre = pre_mapped_range, .post = post_mapped_range, .fail = fail_reserved,
		.takes_nothing = true, .performable = true,
	},
	ROW(CREATE_EXTERNAL) = {
		.pre = pre_create_external, .post = post_create_external,
		.fail = fail_reserved, .takes_nothing = true, .performable = true,
	},
	ROW(RANGE_GROUP) = {
		.pre = pre_range_group, .post = post_range_group, .fail = fail_range_group,
		.performable = true,
	},
};
