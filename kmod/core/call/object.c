// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Objects of the driver: how they are made, by RM_ALLOC and the older calls like it and by
 * DUP_OBJECT; what is charged for them; and how they end.
 */
#include "core/call/object.h"
#include "core/call/verdict.h"
#include "core/rm/structs.h"

enum {
	PMA_GRAIN_BYTES = 64 << 10, /* the driver's physical allocator hands out no less */
	HUGE_PAGE_BYTES = 2 << 20,
	HUGE_512M_BYTES = 512 << 20,
	HOST_PAGE_BYTES = 4 << 10,
	HOST_LISTS_PART = 128, /* 8 bytes of RM's and 16 of the kernel interface's for 4 KiB */
	/*
	 * What a program may ask of video memory. None of these flags places it. At a fixed address
	 * the driver's allocator takes all up to the next multiple of the alignment: 16 GiB for 64
	 * KiB (H100, 580.159.04). It reports only what was asked. And pieces between two addresses
	 * can be spread so that no container gets a large page any more.
	 */
	MEMORY_FLAGS = NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT |
		       NVOS32_ALLOC_FLAGS_FORCE_MEM_GROWS_UP |
		       NVOS32_ALLOC_FLAGS_FORCE_MEM_GROWS_DOWN |
		       NVOS32_ALLOC_FLAGS_FORCE_ALIGN_HOST_PAGE |
		       NVOS32_ALLOC_FLAGS_ALIGNMENT_HINT | NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE |
		       NVOS32_ALLOC_FLAGS_FORCE_REVERSE_ALLOC | NVOS32_ALLOC_FLAGS_NO_SCANOUT |
		       NVOS32_ALLOC_FLAGS_PITCH_FORCE | NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED |
		       NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED |
		       NVOS32_ALLOC_FLAGS_PERSISTENT_VIDMEM | NVOS32_ALLOC_FLAGS_VIRTUAL
};

bool cgpu_class_has_size(uint32_t hClass)
{
	return hClass == NV01_MEMORY_LOCAL_USER || hClass == NV01_MEMORY_SYSTEM;
}

bool cgpu_is_root_class(uint32_t hClass)
{
	return hClass == NV01_ROOT || hClass == NV01_ROOT_NON_PRIV ||
	       hClass == NV01_ROOT_CLIENT;
}

/* Judges a class that is not listed, or never given. Return: CGPU_FORWARD: it is neither. */
static int pre_class(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	if (call->req.misfit)
		return cgpu_refuse_misfit(tenant, call, NV_ERR_NOT_SUPPORTED);
	switch (call->req.judge) {
	case CGPU_JUDGE_GROUP:
		if (tenant->role == CGPU_ROLE_MEMBER)
			break;
		return cgpu_refuse_unknown(tenant, call, NV_ERR_INVALID_CLASS);
	case CGPU_JUDGE_NONE:
		return cgpu_refuse_unknown(tenant, call, NV_ERR_INVALID_CLASS);
	case CGPU_JUDGE_NEVER: /* video memory around the ledger, all or a foreign part */
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	default:
		break;
	}
	if (!cgpu_pin_named(tenant, call))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/* only new address spaces are given: any container that asks could share the card's own */
	if (call->req.serialised || call->req.index != NV_VASPACE_ALLOCATION_INDEX_GPU_NEW)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
	return CGPU_FORWARD;
}

/*
 * Answers for `err` of a charge; a limit that is reached is a shortage, which is reported by
 * itself.
 */
static int reserved(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card, int err)
{
	if (!err)
		return CGPU_FORWARD;
	if (err == -ENOSPC)
		return cgpu_answer(call, NV_ERR_NO_MEMORY);
	return cgpu_refuse(tenant, call, card, err == -ENODEV ? NV_ERR_INSUFFICIENT_PERMISSIONS :
								NV_ERR_INSUFFICIENT_RESOURCES);
}

/* @grain: a power of two. Return: UINT64_MAX if the size has no such multiple. */
static uint64_t round_up_to(uint64_t size_bytes, uint64_t grain)
{
	return size_bytes > UINT64_MAX - grain ? UINT64_MAX :
						 (size_bytes + grain - 1) & ~(grain - 1);
}

uint64_t cgpu_memory_round(uint64_t size_bytes, uint32_t attr, uint32_t attr2)
{
	uint32_t page = (attr >> NVOS32_ATTR_PAGE_SIZE_SHIFT) & NVOS32_ATTR_PAGE_SIZE_MASK;
	uint32_t huge = (attr2 >> NVOS32_ATTR2_PAGE_SIZE_HUGE_SHIFT) &
			NVOS32_ATTR2_PAGE_SIZE_HUGE_MASK;
	uint64_t grain = PMA_GRAIN_BYTES;

	if (page == NVOS32_ATTR_PAGE_SIZE_HUGE)
		grain = huge == 3 ? 256ull << 30 : /* 570 and newer */
			huge == 2 ? HUGE_512M_BYTES : HUGE_PAGE_BYTES;
	else if (page == NVOS32_ATTR_PAGE_SIZE_DEFAULT && size_bytes >= HUGE_PAGE_BYTES)
		grain = HUGE_PAGE_BYTES;
	return round_up_to(size_bytes, grain);
}

/*
 * Aligned pieces take pages of 2 MiB for themselves. Smaller ones, 3 % of an H100 in all, left no
 * such page free (580.159.04). A piece larger than a page is made of several.
 */
static uint64_t aligned_bytes(uint64_t size_bytes, uint64_t alignment_bytes)
{
	uint64_t grain = PMA_GRAIN_BYTES;

	while (grain < alignment_bytes && grain < HUGE_PAGE_BYTES)
		grain <<= 1;
	return round_up_to(size_bytes, grain);
}

static uint64_t asked_bytes(const struct cgpu_request *req)
{
	return aligned_bytes(cgpu_memory_round(req->size_bytes, req->attr, req->attr2),
			     req->alignment_bytes);
}

int cgpu_charge_memory(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card,
		       uint64_t bytes)
{
	const struct cgpu_object *parent = cgpu_object_at(&tenant->objects, call->parent);

	call->card = card;
	return reserved(tenant, call, card,
			cgpu_charge_new(&tenant->ledger, card, bytes, parent->pid, &call->charge));
}

static int pre_memory(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		      struct cgpu_call *call, uint32_t parent)
{
	uint32_t card = cgpu_object_at(&tenant->objects, parent)->card;
	uint64_t bytes = asked_bytes(&call->req);

	if (card >= CGPU_MAX_CARDS)
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	if (call->req.flags & ~(uint32_t)MEMORY_FLAGS ||
	    call->req.function == NVOS32_FUNCTION_ALLOC_SIZE_RANGE)
		return cgpu_refuse(tenant, call, card, NV_ERR_NOT_SUPPORTED);
	call->card = card;
	/* a request beyond the card's size is no peak of a container without a limit */
	if (topology->gpu[card].total_bytes && bytes > topology->gpu[card].total_bytes &&
	    tenant->ledger.account[card].unlimited)
		return cgpu_answer(call, NV_ERR_NO_MEMORY);
	return cgpu_charge_memory(tenant, call, card, bytes);
}

/*
 * The driver's own memory of the host, with its lists of the pages. In one piece the kernel gives
 * such memory out by powers of two (535 to 595).
 */
static uint64_t host_bytes(const struct cgpu_request *req, uint64_t size_bytes)
{
	uint32_t physicality = (req->attr >> NVOS32_ATTR_PHYSICALITY_SHIFT) &
			       NVOS32_ATTR_PHYSICALITY_MASK;
	uint64_t bytes = HOST_PAGE_BYTES;

	if (physicality != NVOS32_ATTR_PHYSICALITY_CONTIGUOUS)
		bytes = size_bytes;
	while (bytes < size_bytes && bytes <= UINT64_MAX / 2)
		bytes <<= 1;
	return bytes > UINT64_MAX - bytes / HOST_LISTS_PART ? UINT64_MAX :
							      bytes + bytes / HOST_LISTS_PART;
}

static int pre_host(struct cgpu_tenant *tenant, struct cgpu_call *call, uint64_t bytes)
{
	uint32_t pid = cgpu_object_at(&tenant->objects, call->parent)->pid;
	int err;

	err = cgpu_charge_new(&tenant->ledger, CGPU_HOST, bytes, pid, &call->charge);
	return reserved(tenant, call, CGPU_NO_CARD, err);
}

/*
 * Page tables that the driver makes with virtual addresses (NV50_MEMORY_VIRTUAL), unless they come
 * later with what is mapped there. Each page has an entry of 8 bytes, and there are tables of other
 * sizes and levels above. CUDA's addresses are lazy.
 */
static uint64_t table_bytes(const struct cgpu_request *req)
{
	const uint32_t later = NVOS32_ALLOC_FLAGS_LAZY | NVOS32_ALLOC_FLAGS_EXTERNALLY_MANAGED;
	uint64_t bytes = (req->size_bytes >> 9) + (req->size_bytes >> 12);

	if (req->flags & later && !(req->flags & NVOS32_ALLOC_FLAGS_SPARSE))
		return 0;
	return (bytes + PMA_GRAIN_BYTES) & ~(uint64_t)(PMA_GRAIN_BYTES - 1);
}

/* Kinds by which the class's unseen memory is counted: a bit set of enum cgpu_unseen. */
static uint32_t unseen_kinds(uint32_t hClass, bool in_group)
{
	if (hClass == FERMI_VASPACE_A)
		return 1u << CGPU_UNSEEN_VASPACE;
	if (hClass == KEPLER_CHANNEL_GROUP_A)
		return 1u << CGPU_UNSEEN_GROUP;
	if (!cgpu_is_channel_class(hClass))
		return 0;
	return 1u << CGPU_UNSEEN_CHANNEL | (in_group ? 0 : 1u << CGPU_UNSEEN_GROUP);
}

/* Bytes that the driver takes for a group, channel or address space, and no ioctl shows. */
static uint64_t unseen_bytes(const struct cgpu_ledger *ledger, uint32_t card, uint32_t kinds)
{
	static const struct {
		uint32_t free, bytes;
	} unseen[CGPU_UNSEEN_KINDS] = {
		[CGPU_UNSEEN_GROUP] = { CGPU_FREE_GROUPS, CGPU_GROUP_BYTES },
		[CGPU_UNSEEN_CHANNEL] = { CGPU_FREE_CHANNELS, CGPU_CHANNEL_BYTES },
		[CGPU_UNSEEN_VASPACE] = { CGPU_FREE_VASPACES, CGPU_VASPACE_BYTES },
	};
	uint64_t bytes = 0;
	uint32_t kind;

	for (kind = 0; kind < CGPU_UNSEEN_KINDS; kind++)
		if (kinds & (1u << kind) && ledger->unseen[kind][card] >= unseen[kind].free)
			bytes += unseen[kind].bytes;
	return bytes;
}

/*
 * The class is of the graphics engine: compute, 3D, 2D, or inline copies of what is in the methods.
 */
static bool class_computes(uint32_t hClass)
{
	uint32_t kind = hClass & 0xff;

	return kind == 0xC0 || kind == 0x97 || kind == 0x2D ||
	       hClass == KEPLER_INLINE_TO_MEMORY_B || hClass == BLACKWELL_INLINE_TO_MEMORY_A;
}

/* Charges memory that no object shows; it counts as `kinds` before the driver takes it. */
static int charge_unseen(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card,
			 uint64_t bytes, uint32_t kinds)
{
	const struct cgpu_object *parent = cgpu_object_at(&tenant->objects, call->parent);
	int err;

	if ((!bytes && !kinds) || card >= CGPU_MAX_CARDS)
		return CGPU_FORWARD;
	call->card = card;
	err = cgpu_charge_new(&tenant->ledger, card, bytes, parent->pid, &call->charge);
	if (err)
		return reserved(tenant, call, card, err);
	cgpu_charge_count(&tenant->ledger, call->charge, kinds);
	return CGPU_FORWARD;
}

/* Bounds groups, channels and context shares, and further handles of them. */
static int pre_runnable(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card)
{
	return tenant->objects.runnables < CGPU_MAX_RUNNABLES ? CGPU_FORWARD :
		cgpu_refuse(tenant, call, card, NV_ERR_INSUFFICIENT_RESOURCES);
}

int cgpu_charge_group(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card)
{
	const uint32_t kinds = 1u << CGPU_UNSEEN_GROUP;

	if (pre_runnable(tenant, call, card) != CGPU_FORWARD)
		return CGPU_ANSWER;
	return charge_unseen(tenant, call, card, unseen_bytes(&tenant->ledger, card, kinds), kinds);
}

/* A container without a memory limit, or on a card of unknown size, has no part that bounds it. */
static uint32_t channels_max(const struct cgpu_tenant *tenant,
			     const struct cgpu_topology *topology, uint32_t card)
{
	uint64_t bytes = cgpu_gpu_promises(&topology->gpu[card]) / CGPU_RUNLIST_CHANNELS;
	uint64_t part;

	if (!bytes || tenant->ledger.account[card].unlimited)
		return CGPU_MAX_RUNNABLES;
	part = tenant->ledger.account[card].max_bytes / bytes;
	return part < CGPU_OWN_CHANNELS	    ? CGPU_OWN_CHANNELS :
	       part < CGPU_RUNLIST_CHANNELS ? (uint32_t)part :
					      CGPU_RUNLIST_CHANNELS;
}

/*
 * Memory that drives a channel: USERD, and where the driver reports its errors. The channel
 * survives when that memory is freed, unless it is the process's own: then the channel goes, from
 * 570 on. So the memory must be of the driver's making, and stay until the channel exists. It is
 * not freed before the channel, and no object above it may go without the channel.
 *
 * Freed memory of the card may be a neighbour's next, while the card goes on writing to it (H100,
 * 580.159.04). Errors in the host's memory are written to the address, whichever process has it by
 * then; the driver keeps a USERD there whole (535 to 595). A group's memory is looked up anew for
 * each channel, so groups must not name any.
 */
static int pre_driven(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;
	const uint32_t handles[CGPU_DRIVEN_MAX] = { req->hUserd, req->hError[0], req->hError[1] };
	bool channel = cgpu_is_channel_class(req->hClass);
	uint32_t i;

	for (i = 0; i < CGPU_DRIVEN_MAX; i++) {
		uint32_t index = cgpu_object_find(&tenant->objects, req->hClient, handles[i]);
		const struct cgpu_object *memory = cgpu_object_at(&tenant->objects, index);

		if (!handles[i])
			continue;
		if (!index || cgpu_object_is_dying(&tenant->objects, index))
			return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
		/* errors are written where the memory was, whichever process has it by then */
		if (!channel || !cgpu_class_has_size(memory->hClass) ||
		    (i && memory->hClass != NV01_MEMORY_SYSTEM) ||
		    !cgpu_object_is_below(&tenant->objects, call->parent, memory->parent))
			return cgpu_refuse(tenant, call, memory->card, NV_ERR_NOT_SUPPORTED);
		call->driven[i] = index;
		cgpu_pin(tenant, call, index);
	}
	return CGPU_FORWARD;
}

/*
 * Finds a subdevice of the object's client and card, to address the driver. Return: its object, 0:
 * none.
 */
static uint32_t subdevice_above(const struct cgpu_objects *objects, uint32_t index, uint32_t card)
{
	const struct cgpu_object *object = cgpu_object_at(objects, index);

	while (object->parent && object->hClass != NV01_DEVICE_0)
		object = cgpu_object_at(objects, object->parent);
	return object->hSubdevice && object->card == card ?
		       cgpu_object_find(objects, object->hClient, object->hSubdevice) : 0;
}

/*
 * The driver makes contexts that are interrupted between blocks only; CUDA asks for more. A program
 * that does not ask would hold the card for a block's length against all gates (H100, 580.159.04).
 * So a door asks, for each channel: a group's context goes with its last.
 */
static int pre_preemption(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const struct cgpu_object *parent = cgpu_object_at(&tenant->objects, call->parent);
	uint32_t index;

	if (!cgpu_is_channel_class(call->req.hClass) || !cgpu_engine_computes(parent->engineType))
		return CGPU_FORWARD;
	index = subdevice_above(&tenant->objects, call->parent, parent->card);
	if (!index || cgpu_object_is_dying(&tenant->objects, index))
		return cgpu_refuse(tenant, call, parent->card, NV_ERR_INVALID_STATE);
	cgpu_pin(tenant, call, index);
	call->card = parent->card;
	call->hSubdevice = cgpu_object_at(&tenant->objects, index)->hObject;
	return CGPU_FORWARD;
}

void cgpu_call_preemption(const struct cgpu_call *call, struct nv_gr_preemption_mode *params)
{
	memset(params, 0, sizeof(*params));
	params->flags = NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET;
	params->hChannel = cgpu_get32(call->args, call->req.hObject_offset);
	params->cilpPreemptMode = NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CILP;
}

/* A card may lack this mode. Any other failure undoes the channel, which would escape the mode. */
static bool is_uninterruptible(const struct cgpu_call *call)
{
	return call->hSubdevice && call->preemption != NV_OK &&
	       call->preemption != NV_ERR_NOT_SUPPORTED &&
	       call->preemption != NV_ERR_INVALID_ARGUMENT &&
	       call->preemption != NV_ERR_INVALID_STATE;
}

static int pre_unseen(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		      struct cgpu_call *call)
{
	const struct cgpu_object *parent = cgpu_object_at(&tenant->objects, call->parent);
	uint32_t card = parent->card;
	bool in_group = parent->hClass == KEPLER_CHANNEL_GROUP_A;
	uint32_t kinds = unseen_kinds(call->req.hClass, in_group);

	/*
	 * The group that RM makes for the channel has no handle, so its timeslice could not be set.
	 * Copy and video engines have none to set.
	 */
	if (cgpu_is_channel_class(call->req.hClass) && !in_group &&
	    cgpu_engine_computes(call->req.engineType))
		return cgpu_refuse(tenant, call, card, NV_ERR_NOT_SUPPORTED);
	/*
	 * Before Ampere a channel belongs to no engine until it has an object. A channel made for a
	 * copy engine of the graphics engine's runlist would then compute ungated.
	 */
	if (cgpu_is_channel_class(parent->hClass) && class_computes(call->req.hClass) &&
	    !cgpu_engine_computes(parent->engineType))
		return cgpu_refuse(tenant, call, card, NV_ERR_INVALID_CLASS);
	if (pre_preemption(tenant, call) != CGPU_FORWARD)
		return CGPU_ANSWER;
	if (cgpu_object_class_runs(call->req.hClass) &&
	    (pre_runnable(tenant, call, card) != CGPU_FORWARD ||
	     pre_driven(tenant, call) != CGPU_FORWARD))
		return CGPU_ANSWER;
	if (card >= CGPU_MAX_CARDS)
		return CGPU_FORWARD;
	if (kinds & (1u << CGPU_UNSEEN_CHANNEL) &&
	    tenant->ledger.unseen[CGPU_UNSEEN_CHANNEL][card] >=
		    channels_max(tenant, topology, card))
		return cgpu_refuse(tenant, call, card, NV_ERR_INSUFFICIENT_RESOURCES);
	return charge_unseen(tenant, call, card, unseen_bytes(&tenant->ledger, card, kinds),
			     kinds);
}

/*
 * A device's address space is that of the client it names. The driver looks that client up by
 * number when the space is first used: by then another container's client may have the number (seen
 * after 1,048,571 clients, 21 s, on an H100). If none is named, the space is the card's own, which
 * all share. So a device must use its own client's.
 */
static int pre_device(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		      struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	uint32_t card, kinds, i;
	int verdict;

	/* a call without parameters has no place to name the client */
	if (req->op != CGPU_OP_ALLOC || req->params_size < sizeof(struct nv0080_alloc))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
	for (i = 0; i < 2; i++)
		if (req->hClientNamed[i] && req->hClientNamed[i] != req->hClient)
			return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	card = cgpu_topology_by_instance(topology, req->deviceId);
	if (card == CGPU_NO_CARD)
		return cgpu_answer(call, NV_ERR_INVALID_DEVICE);
	if (!tenant->ledger.account[card].present)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	call->card = card;
	kinds = req->vaMode == NV_DEVICE_ALLOCATION_VAMODE_MULTIPLE_VASPACES ?
			0 : 1u << CGPU_UNSEEN_VASPACE;
	verdict = charge_unseen(tenant, call, card, unseen_bytes(&tenant->ledger, card, kinds),
				kinds);
	if (verdict == CGPU_FORWARD)
		cgpu_put32(call->params, offsetof(struct nv0080_alloc, hClientShare),
			   req->hClient);
	return verdict;
}

/*
 * An event with data keeps some of the host's memory for each occurrence, until a call that no list
 * names asks for it. An event without data only wakes its file. `nvidia-smi -l` has three for each
 * card, and goes on if it gets these.
 */
static int pre_event(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;

	if (req->notifyIndex & NV01_EVENT_WITHOUT_EVENT_DATA || cgpu_admits_unknown(tenant))
		return CGPU_FORWARD;
	if (req->op != CGPU_OP_ALLOC || req->params_size < sizeof(struct nv0005_alloc))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
	cgpu_put32(call->params, offsetof(struct nv0005_alloc, notifyIndex),
		   req->notifyIndex | NV01_EVENT_WITHOUT_EVENT_DATA);
	return CGPU_FORWARD;
}

void cgpu_restore_params(struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;

	if (req->op != CGPU_OP_ALLOC)
		return;
	if (req->hClass == NV01_DEVICE_0)
		cgpu_put32(call->params, offsetof(struct nv0080_alloc, hClientShare),
			   req->hClientNamed[0]);
	else if (cgpu_is_event(req->hClass) && req->params_size >= sizeof(struct nv0005_alloc))
		cgpu_put32(call->params, offsetof(struct nv0005_alloc, notifyIndex),
			   req->notifyIndex);
}

int cgpu_pre_alloc(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	uint32_t card;
	int verdict;

	if (req->op == CGPU_OP_ALLOC && cgpu_is_root_class(req->hClass)) {
		/*
		 * The driver would take the number that the call names: one of a client that is
		 * being freed, or one that a neighbour may have. No program names one.
		 */
		if (req->hClient)
			return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
		return cgpu_promise_objects(tenant, call, 1);
	}
	if (!cgpu_owns_client(tenant, req->hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	verdict = pre_class(tenant, call);
	if (verdict != CGPU_FORWARD)
		return verdict;
	if (!cgpu_pin_parent(tenant, call, req->hParent))
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	if (cgpu_promise_objects(tenant, call, 1) != CGPU_FORWARD)
		return CGPU_ANSWER;

	switch (req->hClass) {
	case NV01_DEVICE_0:
		return pre_device(tenant, topology, call);
	case NV01_MEMORY_LOCAL_USER:
		return pre_memory(tenant, topology, call, call->parent);
	case NV01_MEMORY_SYSTEM:
		return pre_host(tenant, call, host_bytes(req, asked_bytes(req)));
	case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
		/*
		 * By RM_ALLOC the driver takes the number for a list of the kernel's own (535 to
		 * 595), and refuses what a program may name there. Only the older calls work.
		 */
		if (req->op == CGPU_OP_ALLOC)
			return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
		return pre_host(tenant, call, req->size_bytes / HOST_LISTS_PART);
	case NV01_EVENT:
	case NV01_EVENT_OS_EVENT:
		return pre_event(tenant, call);
	case NV50_MEMORY_VIRTUAL:
		card = cgpu_object_at(&tenant->objects, call->parent)->card;
		return charge_unseen(tenant, call, card, table_bytes(req), 0);
	default:
		return pre_unseen(tenant, topology, call);
	}
	return CGPU_FORWARD;
}

int cgpu_pre_alloc_memory(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			  struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	int verdict;

	if (!cgpu_owns_client(tenant, req->hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	verdict = pre_class(tenant, call);
	if (verdict != CGPU_FORWARD)
		return verdict;
	/*
	 * By this escape an administrator's video memory maps the whole card. No program of
	 * tests/traces asks for anything but its own memory; RM_ALLOC serves all else.
	 */
	if (req->hClass != NV01_MEMORY_SYSTEM_OS_DESCRIPTOR)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_PERMISSIONS);
	if (!cgpu_pin_parent(tenant, call, req->hParent))
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	if (cgpu_promise_objects(tenant, call, 1) != CGPU_FORWARD)
		return CGPU_ANSWER;
	/*
	 * the driver may fail the call after making the object, because of the descriptor it names
	 */
	cgpu_put32(call->args, req->status_offset, NV_ERR_INVALID_STATE);
	/* the pages are the process's own, and may be the same ones many times over */
	return pre_host(tenant, call, req->size_bytes / HOST_LISTS_PART);
}

/* The driver does not check the class here: 0x40 would allocate unknown memory. */
int cgpu_pre_context_dma(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			 struct cgpu_call *call)
{
	if (!cgpu_owns_client(tenant, call->req.hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (call->req.hClass != NV01_CONTEXT_DMA)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLASS);
	if (!cgpu_pin_parent(tenant, call, 0))
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	return cgpu_promise_objects(tenant, call, 1);
}

int cgpu_pre_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	struct cgpu_object *object;
	uint32_t index;

	if (!cgpu_owns_client(tenant, req->hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	/* this call would leave the client's OS events behind */
	if (req->nr == NV_ESC_RM_VID_HEAP_CONTROL && req->hObject == req->hClient)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_NOT_SUPPORTED);
	index = cgpu_object_find(&tenant->objects, req->hClient, req->hObject);
	if (!index) /* the driver also reports success for freeing nothing */
		return cgpu_answer(call, NV_OK);
	object = cgpu_object_at(&tenant->objects, index);
	if (object->flags & CGPU_OBJECT_LEFT)
		return cgpu_answer(call, NV_OK);
	if (cgpu_object_is_dying(&tenant->objects, index))
		return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
	if (!object->users && object->drives) {
		cgpu_object_leave(&tenant->objects, index);
		return cgpu_answer(call, NV_OK);
	}
	if (object->users || !cgpu_object_free_begins(&tenant->objects, index))
		return cgpu_answer(call, NV_ERR_STATE_IN_USE);
	call->object = index;
	call->serial = object->serial;
	/* the object above must not go first: the handle would lose its meaning */
	cgpu_pin(tenant, call, object->parent);
	return CGPU_FORWARD;
}

/*
 * Another handle of an address space. What runs in the space goes with the handle below its own
 * device. With several it would be unknown with which one, so a client has one.
 */
static int pre_dup_space(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const struct cgpu_object *parent = cgpu_object_at(&tenant->objects, call->parent);
	uint32_t count;

	if (parent->hClass != NV01_DEVICE_0 && parent->hClass != NV20_SUBDEVICE_0)
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	if (cgpu_object_space_in(&tenant->objects, call->object, call->req.hClient, &count))
		return cgpu_refuse(tenant, call, call->card, NV_ERR_NOT_SUPPORTED);
	return count < CGPU_SPACE_HANDLES ? CGPU_FORWARD :
		cgpu_refuse(tenant, call, call->card, NV_ERR_INSUFFICIENT_RESOURCES);
}

/*
 * A group or context share of a named address space. The driver makes its duplicate depend on the
 * client's handle of that space below the same device. If there is none, the duplicate depends on
 * nothing, though the space may go before it.
 */
static int pre_dup_runnable(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const struct cgpu_objects *objects = &tenant->objects;
	const struct cgpu_object *source = cgpu_object_at(objects, call->object);
	uint32_t device = call->parent, space, here = 0, count;

	call->req.hDepend[0] = 0;
	if (!source->hDepend[0] || cgpu_is_channel_class(source->hClass))
		return pre_runnable(tenant, call, call->card);
	if (source->hClass == FERMI_CONTEXT_SHARE_A)
		device = cgpu_object_at(objects, device)->parent;
	space = cgpu_object_find(objects, source->hClient, source->hDepend[0]);
	if (space && cgpu_object_at(objects, space)->hClass == FERMI_VASPACE_A)
		here = cgpu_object_space_in(objects, space, call->req.hClient, &count);
	if (!here || !cgpu_object_is_below(objects, here, device) ||
	    cgpu_object_is_dying(objects, here))
		return cgpu_refuse(tenant, call, call->card, NV_ERR_NOT_SUPPORTED);
	cgpu_pin(tenant, call, here);
	call->req.hDepend[0] = cgpu_object_at(objects, here)->hObject;
	return pre_runnable(tenant, call, call->card);
}

int cgpu_pre_dup(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		 struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;

	if (!cgpu_owns_client(tenant, req->hClient) || !cgpu_owns_client(tenant, req->hClientSrc))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (!cgpu_pin_parent(tenant, call, req->hParent))
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	if (cgpu_promise_objects(tenant, call, 1) != CGPU_FORWARD)
		return CGPU_ANSWER;
	if (cgpu_hold(tenant, call, req->hClientSrc, req->hObjectSrc) != CGPU_FORWARD)
		return CGPU_ANSWER;
	if (cgpu_object_at(&tenant->objects, call->object)->hClass == FERMI_VASPACE_A)
		return pre_dup_space(tenant, call);
	return cgpu_object_at(&tenant->objects, call->object)->identity ?
		pre_dup_runnable(tenant, call) : CGPU_FORWARD;
}

static int post_client(struct cgpu_tenant *tenant, struct cgpu_call *call,
		       uint32_t hClient)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, call->file);
	uint32_t index;

	call->req.hClient = hClient;
	/* only a control file has clients; the driver allows no other */
	index = file->root ? cgpu_object_add(&tenant->objects, &tenant->ledger, file->root,
					     hClient, hClient, NV01_ROOT_CLIENT) : 0;
	if (!index)
		return cgpu_undo(call, hClient, NV_ERR_INSUFFICIENT_RESOURCES);
	cgpu_object_own(&tenant->objects, index, call->pid);
	return CGPU_DONE;
}

bool cgpu_is_mistaken(const struct cgpu_tenant *tenant, const struct cgpu_call *call,
		      uint32_t hObject)
{
	return cgpu_object_mistaken(&tenant->objects, call->req.hClient, hObject, call->uses);
}

static uint64_t taken_bytes(const struct cgpu_request *before,
			    const struct cgpu_request *after)
{
	/* a driver that reports nothing took at least what was asked */
	uint64_t bytes = after->size_bytes ?
		aligned_bytes(after->size_bytes, before->alignment_bytes) : asked_bytes(before);

	return before->hClass == NV01_MEMORY_SYSTEM ? host_bytes(before, bytes) : bytes;
}

static void note_subdevice(struct cgpu_objects *objects, const struct cgpu_object *subdevice)
{
	struct cgpu_object *device = cgpu_object_at(objects, subdevice->parent);

	if (!device->hSubdevice ||
	    !cgpu_object_find(objects, device->hClient, device->hSubdevice))
		device->hSubdevice = subdevice->hObject;
}

int cgpu_post_alloc(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call, const struct cgpu_request *after)
{
	struct cgpu_request *req = &call->req;
	uint32_t hObject = after->hObject;
	uint32_t index, i;
	struct cgpu_object *object;
	uint32_t status = NV_ERR_INSUFFICIENT_RESOURCES;

	if (req->op == CGPU_OP_ALLOC && cgpu_is_root_class(req->hClass))
		return post_client(tenant, call, hObject);
	if (cgpu_is_mistaken(tenant, call, hObject))
		return CGPU_KILL;

	if (call->charge && cgpu_class_has_size(req->hClass)) {
		uint64_t bytes = taken_bytes(req, after);

		/* no driver answers with memory of unknown size */
		if (!bytes || cgpu_charge_settle(&tenant->ledger, call->charge, bytes)) {
			status = NV_ERR_NO_MEMORY;
			goto undo;
		}
	}
	if (is_uninterruptible(call)) {
		status = call->preemption;
		goto undo;
	}
	index = hObject ? cgpu_object_add(&tenant->objects, &tenant->ledger, call->parent,
					  req->hClient, hObject, req->hClass) : 0;
	if (!index)
		goto undo;

	object = cgpu_object_at(&tenant->objects, index);
	object->charge = call->charge;
	call->charge = 0;
	object->engineType = req->engineType;
	for (i = 0; i < 2; i++)
		object->hDepend[i] = req->hDepend[i];
	if (req->hClass == NV01_DEVICE_0)
		cgpu_object_place(&tenant->objects, index, call->card);
	else if (req->hClass == NV20_SUBDEVICE_0)
		note_subdevice(&tenant->objects, object);
	cgpu_object_set_runnable(&tenant->objects, index, 0);
	for (i = 0; i < CGPU_DRIVEN_MAX; i++)
		if (call->driven[i])
			cgpu_object_drive(&tenant->objects, index, i, call->driven[i]);
	return CGPU_DONE;

undo:
	/* the charge stays until the driver has freed the object: see cgpu_call_undone() */
	return cgpu_undo(call, hObject, status);
}

/* The object still has the handle. If the driver gave the handle out again, it is gone. */
static bool is_still_freed(const struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	return cgpu_object_at(&tenant->objects, call->object)->serial == call->serial;
}

int cgpu_post_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call, const struct cgpu_request *after)
{
	if (!is_still_freed(tenant, call))
		return CGPU_DONE;
	cgpu_object_remove(&tenant->objects, &tenant->ledger, call->object);
	return cgpu_free_orphan(tenant, call);
}

void cgpu_fail_free(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call)
{
	if (is_still_freed(tenant, call))
		cgpu_object_free_fails(&tenant->objects, call->object);
}

int cgpu_free_orphan(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t index = cgpu_object_take_orphan(&tenant->objects, call->req.hClient);
	const struct cgpu_object *memory = cgpu_object_at(&tenant->objects, index);

	call->orphan = 0;
	/* an object above that is dying takes the memory along */
	if (!index || cgpu_object_is_dying(&tenant->objects, memory->parent))
		return CGPU_DONE;
	cgpu_pin(tenant, call, index);
	call->orphan = index;
	return cgpu_undo(call, memory->hObject, NV_OK);
}

bool cgpu_add_duplicate(struct cgpu_tenant *tenant, struct cgpu_call *call,
			uint32_t hObject, uint32_t hClass, uint32_t *charge)
{
	uint32_t index = hObject ? cgpu_object_add(&tenant->objects, &tenant->ledger,
						   call->parent, call->req.hClient,
						   hObject, hClass) : 0;

	if (!index)
		return false;
	cgpu_object_at(&tenant->objects, index)->charge = *charge;
	*charge = 0;
	return true;
}

int cgpu_post_dup(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call, const struct cgpu_request *after)
{
	uint32_t hClass = cgpu_object_at(&tenant->objects, call->object)->hClass;
	uint32_t index, count;

	if (cgpu_is_mistaken(tenant, call, after->hObject))
		return CGPU_KILL;
	/* another thread duplicated the space first */
	if (hClass == FERMI_VASPACE_A &&
	    cgpu_object_space_in(&tenant->objects, call->object, call->req.hClient, &count))
		return cgpu_undo(call, after->hObject, NV_ERR_NOT_SUPPORTED);
	if (!cgpu_add_duplicate(tenant, call, after->hObject, hClass, &call->charge))
		return cgpu_undo(call, after->hObject, NV_ERR_INSUFFICIENT_RESOURCES);
	index = cgpu_object_find(&tenant->objects, call->req.hClient, after->hObject);
	/* the object's own card, whichever one it was put below: there it runs, and is gated */
	cgpu_object_place(&tenant->objects, index, call->card);
	if (hClass == FERMI_VASPACE_A)
		cgpu_object_join_space(&tenant->objects, index, call->object);
	if (cgpu_object_class_runs(hClass))
		cgpu_object_at(&tenant->objects, index)->hDepend[0] = call->req.hDepend[0];
	cgpu_object_set_runnable(&tenant->objects, index, call->object);
	return CGPU_DONE;
}
