// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The driver accepts an escape only if its size is exactly the size of its struct. The size is
 * checked the same way here, so every field is then in bounds. A listed call that is not
 * interpreted is CGPU_OP_OTHER: the driver decides. allowed.c says what each command is and where
 * its fields are, by the structures of structs.h, equal in the branches 535 to 620 unless struct
 * cgpu_abi carries them.
 */
#include "core/rm/allowed.h"
#include "core/rm/decode.h"
#include "core/rm/structs.h"

/* ------------------------------------------------------------ sizes */

/* as the driver compares them, and the last field of each that is read from a table */
_Static_assert(sizeof(struct nvos02_fd) == 56 && sizeof(struct nvos05) == 20, "nvos.h");
_Static_assert(sizeof(struct nvos00) == 16 && sizeof(struct nvos54) == 32, "nvos.h");
_Static_assert(sizeof(struct nvos21) == 32 && sizeof(struct nvos64) == 48, "nvos.h");
_Static_assert(sizeof(struct nvos55) == 28 && sizeof(struct nvos57) == 24, "nvos.h");
_Static_assert(sizeof(struct nvos30) == 56 && sizeof(struct nvos32) == 184, "nvos.h");
_Static_assert(sizeof(struct nvos33_fd) == 56 && sizeof(struct nvos34) == 32, "nvos.h");
_Static_assert(sizeof(struct nvos39) == 56 && sizeof(struct nvos49) == 16, "nvos.h");
_Static_assert(sizeof(struct nvos46) == 56 && sizeof(struct nvos47) == 48, "nvos.h");
_Static_assert(sizeof(struct nvos56) == 40, "nvos.h");
_Static_assert(offsetof(struct nvos32_alloc_size, attr2) == 144 &&
	       offsetof(struct nvos32_alloc_tiled, attr2) == 144 &&
	       offsetof(struct nvos32_alloc_range, attr2) == 136, "nvos.h: by function");
_Static_assert(sizeof(struct nv_memory_alloc) == 128 && sizeof(struct nv0080_alloc) == 56 &&
	       sizeof(struct nv_group_alloc) == 20 &&
	       offsetof(struct nv_channel_alloc, engineType) == 128, "allocation parameters");
_Static_assert(sizeof(struct nv_export_object) == 24 && sizeof(struct nv_import_object) == 20 &&
	       sizeof(struct nv_create_export) == 76 &&
	       sizeof(struct nv_export_objects) == 2128 &&
	       sizeof(struct nv_import_objects) == 652, "ctrl0000unix.h");
_Static_assert(sizeof(struct nv_fifo_disable_channels) == 536, "ctrl2080fifo.h");
_Static_assert(sizeof(struct uvm_register_gpu) == 40 && sizeof(struct uvm_unregister_gpu) == 20 &&
	       sizeof(struct uvm_register_vaspace) == 32 &&
	       sizeof(struct uvm_unregister_vaspace) == 20 &&
	       sizeof(struct uvm_register_channel) == 56 &&
	       sizeof(struct uvm_unregister_channel_tail) == 12 &&
	       sizeof(struct uvm_alloc_device_p2p) == 56 && sizeof(struct uvm_gpu_mapping) == 36 &&
	       sizeof(struct uvm_map_external_tail) == 24 &&
	       sizeof(struct uvm_unmap_external) == 40 && sizeof(struct uvm_map_sparse) == 40 &&
	       sizeof(struct uvm_free) == 24 && sizeof(struct uvm_free_by_base) == 16 &&
	       sizeof(struct uvm_create_external) == 24 &&
	       sizeof(struct uvm_semaphore_pool_tail) == 16, "uvm_ioctl.h");

/* Return: a row without an op: the core does not interpret it. */
static const struct cgpu_ioctl_rule *rule_of(uint32_t device, uint32_t nr)
{
	static const struct cgpu_ioctl_rule other;

	if (device != CGPU_DEVICE_UVM)
		return nr < CGPU_ESCAPES ? &cgpu_escapes[nr] : &other;
	if (nr == UVM_INITIALIZE)
		return &cgpu_uvm_initialize;
	return nr < CGPU_UVM_COMMANDS ? &cgpu_uvm_commands[nr] : &other;
}

/* Of a structure that a branch has longer than another. */
static uint32_t varying_size(const struct cgpu_abi *abi, uint32_t op, uint32_t nr)
{
	switch (op) {
	case CGPU_OP_MAP_DMA:
		return abi->map_dma_size;
	case CGPU_OP_UNMAP_DMA:
		return abi->unmap_dma_size;
	case CGPU_OP_EXPORT_DMABUF:
		return abi->dmabuf_size;
	case CGPU_OP_UVM_MAP_EXTERNAL:
		return nr == UVM_ALLOC_DEVICE_P2P ? abi->uvm_device_p2p_size :
						    abi->uvm_map_external_size;
	case CGPU_OP_UVM_SEMAPHORE_POOL:
		return abi->uvm_semaphore_pool_size;
	case CGPU_OP_UVM_RANGE_GROUP:
		return abi->uvm_range_group_size;
	case CGPU_OP_UVM_UNREGISTER_CHANNEL:
		return abi->uvm_unregister_channel_size;
	case CGPU_OP_UVM_FREE:
		return abi->uvm_free_size;
	case CGPU_OP_UVM_CREATE_EXTERNAL:
		return abi->uvm_create_external_size;
	default:
		return 0;
	}
}

uint32_t cgpu_struct_bytes(const struct cgpu_abi *abi, uint32_t device, uint32_t nr)
{
	const struct cgpu_ioctl_rule *rule = rule_of(device, nr);

	return rule->size ? rule->size : varying_size(abi, rule->op, nr);
}

static bool size_fits(const struct cgpu_abi *abi, uint32_t device,
		      const struct cgpu_ioctl_rule *rule, uint32_t nr, uint32_t size)
{
	if (rule->size)
		return size == rule->size;
	if (rule->op == CGPU_OP_ALLOC)
		return size == sizeof(struct nvos21) || size == sizeof(struct nvos64);
	/* calls that are not interpreted: one of UVM has no size, one of RM its own */
	return size == varying_size(abi, rule->op, nr) ||
	       (!rule->op && device != CGPU_DEVICE_UVM);
}

bool cgpu_goes_to_rm(uint32_t device, uint32_t nr)
{
	return device != CGPU_DEVICE_UVM && nr < NV_IOCTL_BASE;
}

bool cgpu_interprets(uint32_t nr)
{
	return cgpu_escape_judge(nr) == CGPU_JUDGE_CORE;
}

bool cgpu_command_known(uint32_t device, uint32_t cmd)
{
	return (device == CGPU_DEVICE_UVM ? cgpu_uvm_judge(cmd) :
					    cgpu_escape_judge(cmd & 0xff)) != CGPU_JUDGE_NONE;
}

uint32_t cgpu_args_size(const struct cgpu_abi *abi, uint32_t device, uint32_t cmd)
{
	uint32_t nr = cmd & 0xff; /* _IOC_NR */

	if (device == CGPU_DEVICE_UVM)
		return cgpu_struct_bytes(abi, device, cmd);
	if (nr != NV_ESC_IOCTL_XFER_CMD && !cgpu_interprets(nr))
		return 0;
	return (cmd >> 16) & 0x3fff; /* _IOC_SIZE */
}

int cgpu_decode_xfer(const void *args, uint32_t size, uint32_t *cmd,
		     uint32_t *inner_size, uint64_t *inner_ptr)
{
	if (size != sizeof(struct nv_ioctl_xfer))
		return -EINVAL;
	*cmd = cgpu_get32(args, offsetof(struct nv_ioctl_xfer, cmd));
	*inner_size = cgpu_get32(args, offsetof(struct nv_ioctl_xfer, size));
	*inner_ptr = cgpu_get64(args, offsetof(struct nv_ioctl_xfer, ptr));
	if (*inner_size > NV_ABSOLUTE_MAX_IOCTL_SIZE)
		return -EINVAL;
	return 0;
}

/* ---------------------------------------------------------- controls */

static void decode_control(const struct cgpu_abi *abi, const void *args,
			   struct cgpu_request *req)
{
	const struct cgpu_rule *rule;
	uint32_t want;
	uint32_t given = cgpu_get32(args, offsetof(struct nvos54, paramsSize));

	req->op = CGPU_OP_CONTROL;
	req->hClient = cgpu_get32(args, offsetof(struct nvos54, hClient));
	req->hObject = cgpu_get32(args, offsetof(struct nvos54, hObject));
	req->cmd = cgpu_get32(args, offsetof(struct nvos54, cmd));
	req->flags = cgpu_get32(args, offsetof(struct nvos54, flags));
	req->status_offset = offsetof(struct nvos54, status);
	rule = cgpu_control_rule(req->cmd);
	req->judge = rule->judge;
	want = rule->params_bytes;
	if (!want)
		return;
	memcpy(req->hClient_place, rule->hClient, sizeof(rule->hClient));
	req->fd_place = rule->fd;
	if (want == CGPU_BY_BRANCH)
		want = abi->fb_get_info_v2_size;
	req->misfit = abi->guarded && want != CGPU_AS_GIVEN && given != want &&
		      !(rule->head && given > want);
	/*
	 * The driver demands the exact size. A shorter block is still copied,
	 * as far as it goes, so that the driver sees what the caller sent.
	 */
	req->params_ptr_offset = offsetof(struct nvos54, params);
	req->params_ptr = cgpu_get64(args, req->params_ptr_offset);
	req->params_size = given < want ? given : want;
	if (want == CGPU_AS_GIVEN && given > CGPU_PARAMS_MAX)
		req->params_size = 0;
	if (!req->params_ptr)
		req->params_size = 0;
}

/* ------------------------------------------------------------- memory */

/* places that differ between the three functions that allocate */
struct heap_layout {
	uint16_t attr, attr2, size, alignment;
};

#define HEAP_LAYOUT(type) \
	{ offsetof(struct type, attr), offsetof(struct type, attr2), offsetof(struct type, size), \
	  offsetof(struct type, alignment) }

static const struct heap_layout *heap_layout(uint32_t function)
{
	static const struct heap_layout plain = HEAP_LAYOUT(nvos32_alloc_size);
	static const struct heap_layout tiled = HEAP_LAYOUT(nvos32_alloc_tiled);
	static const struct heap_layout range = HEAP_LAYOUT(nvos32_alloc_range);

	switch (function) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		return &plain;
	case NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT:
		return &tiled;
	case NVOS32_FUNCTION_ALLOC_SIZE_RANGE:
		return &range;
	default:
		return NULL;
	}
}

static void decode_heap(const struct cgpu_abi *abi, const void *args, struct cgpu_request *req)
{
	const struct heap_layout *heap;
	uint32_t location;

	req->function = cgpu_get32(args, offsetof(struct nvos32, function));
	heap = heap_layout(req->function);
	switch (req->function) {
	case NVOS32_FUNCTION_FREE:
		req->op = CGPU_OP_FREE;
		req->hObject = cgpu_get32(args, offsetof(struct nvos32_free, hMemory));
		return;
	case NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
		req->op = CGPU_OP_HEAP_ALLOC;
		req->hObject_offset = offsetof(struct nvos32_alloc_os_desc, hMemory);
		req->hObject = cgpu_get32(args, req->hObject_offset);
		req->hClass = NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
		req->size_bytes =
			cgpu_get64(args, offsetof(struct nvos32_alloc_os_desc, limit)) + 1;
		return;
	case NVOS32_FUNCTION_INFO:
		req->op = CGPU_OP_HEAP_INFO;
		return;
	default:
		break;
	}
	if (!heap)
		return;
	req->op = CGPU_OP_HEAP_ALLOC;
	req->hObject_offset = offsetof(struct nvos32_alloc_size, hMemory);
	req->hObject = cgpu_get32(args, req->hObject_offset);
	req->flags = cgpu_get32(args, offsetof(struct nvos32_alloc_size, flags));
	req->attr = cgpu_get32(args, heap->attr);
	req->attr2 = cgpu_get32(args, heap->attr2);
	req->alignment_bytes = cgpu_get64(args, heap->alignment);
	req->size_offset = heap->size;
	req->size_bytes = cgpu_get64(args, heap->size);
	/* the driver overwrites the size */
	if (req->function == NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT)
		req->size_bytes =
			(uint64_t)cgpu_get32(args, offsetof(struct nvos32_alloc_tiled, height)) *
			(uint64_t)(int32_t)cgpu_get32(args, offsetof(struct nvos32_alloc_tiled,
								     pitch));
	location = (req->attr >> NVOS32_ATTR_LOCATION_SHIFT) & NVOS32_ATTR_LOCATION_MASK;
	if (req->flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		req->hClass = NV50_MEMORY_VIRTUAL;
	else if (abi->egm && req->attr2 & NVOS32_ATTR2_USE_EGM)
		req->hClass = NV_MEMORY_EXTENDED_USER;
	else if (location == NVOS32_ATTR_LOCATION_VIDMEM)
		req->hClass = NV01_MEMORY_LOCAL_USER;
	else /* also "anywhere", in the drivers from 535 to 595 */
		req->hClass = NV01_MEMORY_SYSTEM;
	req->judge = cgpu_class_rule(req->hClass)->judge;
}

/* NV_MEMORY_ALLOCATION_PARAMS are read of it: memory of the card's or host's, addresses */
static bool is_memory(uint32_t hClass)
{
	return hClass == NV01_MEMORY_LOCAL_USER || hClass == NV01_MEMORY_SYSTEM ||
	       hClass == NV50_MEMORY_VIRTUAL;
}

uint32_t cgpu_class_bytes(const struct cgpu_abi *abi, const struct cgpu_rule *rule)
{
	if (rule->params_bytes != CGPU_BY_BRANCH)
		return rule->params_bytes;
	if (rule->number == FERMI_VASPACE_A)
		return abi->vaspace_alloc_size;
	return is_memory(rule->number) ? abi->memory_alloc_size : abi->channel_alloc_size;
}

bool cgpu_is_channel_class(uint32_t hClass)
{
	/* 906F Fermi … CA6F Blackwell */
	return (hClass & 0xff) == CGPU_CHANNEL_CLASS_LOW_BYTE && hClass >= 0x506F &&
	       hClass <= 0xFF6F;
}

static void decode_alloc(const struct cgpu_abi *abi, const void *args, uint32_t size,
			 struct cgpu_request *req)
{
	const struct cgpu_rule *rule = cgpu_class_rule(req->hClass);
	uint32_t given;

	req->judge = rule->judge;
	memcpy(req->hClient_place, rule->hClient, sizeof(rule->hClient));
	if (req->nr == NV_ESC_RM_ALLOC_OBJECT)
		return;
	req->status_offset = size == sizeof(struct nvos64) ? offsetof(struct nvos64, status) :
							     offsetof(struct nvos21, status);
	req->serialised = size == sizeof(struct nvos64) &&
			  cgpu_get32(args, offsetof(struct nvos64, flags)) &
				  NVOS64_FLAGS_FINN_SERIALIZED;

	/*
	 * Which bytes the driver reads follows from the class, not from
	 * paramsSize: user mode passes 0 there, and a wrong size is accepted
	 * (580.159.04).
	 */
	req->params_ptr_offset = offsetof(struct nvos21, pAllocParms); /* nvos64's, too */
	req->params_ptr = cgpu_get64(args, req->params_ptr_offset);
	req->params_size = req->params_ptr ? cgpu_class_bytes(abi, rule) : 0;
	given = cgpu_get32(args, size == sizeof(struct nvos64) ?
					 offsetof(struct nvos64, paramsSize) :
					 offsetof(struct nvos21, paramsSize));
	req->misfit = abi->guarded && req->params_size && given && given != req->params_size;
}

/* ------------------------------------------------------------- entry */

static uint32_t read32(const void *bytes, uint8_t place)
{
	return place ? cgpu_get32(bytes, place - 1u) : 0;
}

/* An argument, and the places that its rule has in it. */
struct argument {
	const void *bytes;
	uint32_t size;
};

static uint32_t offset_of(const struct argument *argument, int16_t place)
{
	return place < 0 ? argument->size - (uint32_t)-place : (uint32_t)place - 1;
}

static uint32_t field32(const struct argument *argument, int16_t place)
{
	return place ? cgpu_get32(argument->bytes, offset_of(argument, place)) : 0;
}

static uint64_t field64(const struct argument *argument, int16_t place)
{
	return place ? cgpu_get64(argument->bytes, offset_of(argument, place)) : 0;
}

static void decode_fields(const struct cgpu_ioctl_rule *rule, const struct argument *argument,
			  struct cgpu_request *req)
{
	req->op = rule->op;
	req->hClient = field32(argument, rule->hClient);
	req->hParent = field32(argument, rule->hParent);
	req->hObject = field32(argument, rule->hObject);
	req->hClass = field32(argument, rule->hClass);
	req->flags = field32(argument, rule->flags);
	req->hClientSrc = field32(argument, rule->hClientSrc);
	req->hObjectSrc = field32(argument, rule->hObjectSrc);
	req->base = field64(argument, rule->base);
	req->length_bytes = field64(argument, rule->length);
	req->offset_bytes = field64(argument, rule->offset);
	if (rule->makes)
		req->hObject_offset = offset_of(argument, rule->hObject);
	/* decode_alloc() wants more of the class' rule */
	if (rule->hClass && rule->op != CGPU_OP_ALLOC)
		req->judge = cgpu_class_rule(req->hClass)->judge;
	if (rule->fd)
		req->fd = (int32_t)field32(argument, rule->fd);
	if (rule->status)
		req->status_offset = offset_of(argument, rule->status);
	if (rule->chosen)
		req->base_offset = offset_of(argument, rule->chosen);
	if (rule->gpu)
		memcpy(req->gpu_uuid,
		       (const uint8_t *)argument->bytes + offset_of(argument, rule->gpu),
		       sizeof(req->gpu_uuid));
}

/* Fields that the table cannot describe: they depend on the contents, or on the branch. */
static void decode_rest(const struct cgpu_abi *abi, const void *args, uint32_t size,
			struct cgpu_request *req)
{
	switch (req->op) {
	case CGPU_OP_ALLOC:
		decode_alloc(abi, args, size, req);
		break;
	case CGPU_OP_ALLOC_MEMORY:
		req->size_bytes = cgpu_get64(args, offsetof(struct nvos02, limit)) + 1;
		break;
	case CGPU_OP_HEAP_OTHER:
		decode_heap(abi, args, req);
		break;
	case CGPU_OP_OS_EVENT:
		req->base = (uint64_t)req->hClient << 32 |
			    cgpu_get32(args, offsetof(struct nv_ioctl_os_event, fd));
		break;
	case CGPU_OP_UNMAP_DMA:
		req->partial = size == sizeof(struct nvos47) &&
			       cgpu_get64(args, offsetof(struct nvos47, size));
		break;
	case CGPU_OP_EXPORT_DMABUF:
		req->handles_offset = abi->dmabuf_handles;
		req->status_offset = abi->dmabuf_status;
		break;
	case CGPU_OP_UVM_FREE:
		if (size == sizeof(struct uvm_free))
			req->length_bytes = cgpu_get64(args, offsetof(struct uvm_free, length));
		break;
	default:
		break;
	}
}

int cgpu_decode(const struct cgpu_abi *abi, uint32_t device, uint32_t nr,
		const void *args, uint32_t size, struct cgpu_request *req)
{
	const struct cgpu_ioctl_rule *rule = rule_of(device, nr);

	*req = (struct cgpu_request){
		.device = device,
		.op = CGPU_OP_OTHER,
		.nr = nr,
		.args_size = size,
		.status_offset = CGPU_NO_OFFSET,
		.fd = -1,
		.judge = CGPU_JUDGE_CORE,
	};

	if (!size_fits(abi, device, rule, nr, size))
		return -EINVAL;
	if (rule->op == CGPU_OP_CONTROL) {
		/* nearly every call: not field by field */
		decode_control(abi, args, req);
	} else if (rule->op && size) {
		decode_fields(rule, &(struct argument){ args, size }, req);
		decode_rest(abi, args, size, req);
	} else if (device == CGPU_DEVICE_UVM && nr == UVM_DEINITIALIZE) {
		req->op = CGPU_OP_UVM_DEINITIALIZE;
	}
	if (req->status_offset != CGPU_NO_OFFSET)
		req->status = cgpu_get32(args, req->status_offset);
	return 0;
}

bool cgpu_is_event(uint32_t hClass)
{
	return hClass == NV01_EVENT || hClass == NV01_EVENT_OS_EVENT;
}

static bool has32(uint8_t place, uint32_t size)
{
	return place && place + 3u <= size;
}

/* ------------------------------------------------- parameters of a class */

/* A field of parameters, and where struct cgpu_request has it. */
struct field {
	uint16_t from, into;
	bool wide;              /* a u64, not a u32 */
	bool shifts;            /* by struct cgpu_abi's channel_shift */
};

#define PLACES(type, field, name) \
	.from = offsetof(struct type, field), .into = offsetof(struct cgpu_request, name)
#define U32(type, field, name) { PLACES(type, field, name) }
#define U64(type, field, name) { PLACES(type, field, name), .wide = true }
#define SHIFTED(type, field, name) { PLACES(type, field, name), .shifts = true }

static const struct field memory_fields[] = {
	U32(nv_memory_alloc, flags, flags), U32(nv_memory_alloc, attr, attr),
	U32(nv_memory_alloc, attr2, attr2), U64(nv_memory_alloc, size, size_bytes),
	U64(nv_memory_alloc, alignment, alignment_bytes),
};

static const struct field device_fields[] = {
	U32(nv0080_alloc, deviceId, deviceId), U32(nv0080_alloc, vaMode, vaMode),
};

static const struct field event_fields[] = {
	U32(nv0005_alloc, notifyIndex, notifyIndex),
};

static const struct field vaspace_fields[] = {
	U32(nv_vaspace_alloc, index, index),
};

static const struct field group_fields[] = {
	U32(nv_group_alloc, hObjectError, hError[0]),
	U32(nv_group_alloc, hObjectEccError, hError[1]),
	U32(nv_group_alloc, hVASpace, hDepend[0]),
	U32(nv_group_alloc, engineType, engineType),
};

static const struct field share_fields[] = {
	U32(nv_ctxshare_alloc, hVASpace, hDepend[0]),
};

/* hUserd is struct cgpu_abi's channel_userd_offset */
static const struct field channel_fields[] = {
	U32(nv_channel_alloc, hContextShare, hDepend[0]),
	U32(nv_channel_alloc, hVASpace, hDepend[1]),
	U32(nv_channel_alloc, hObjectError, hError[0]),
	SHIFTED(nv_channel_alloc, hObjectEccError, hError[1]),
	SHIFTED(nv_channel_alloc, engineType, engineType),
};

struct layout {
	uint32_t hClass;
	uint32_t least_bytes;   /* of shorter ones nothing is read */
	const struct field *fields;
	uint32_t count;
};

#define LAYOUT(hClass, bytes, fields) { hClass, bytes, fields, sizeof(fields) / sizeof(fields[0]) }

static const struct layout *layout_of(uint32_t hClass)
{
	static const struct layout layouts[] = {
		LAYOUT(NV01_MEMORY_LOCAL_USER, offsetof(struct nv_memory_alloc, numaNode),
		       memory_fields),
		LAYOUT(NV01_MEMORY_SYSTEM, offsetof(struct nv_memory_alloc, numaNode),
		       memory_fields),
		LAYOUT(NV50_MEMORY_VIRTUAL, offsetof(struct nv_memory_alloc, numaNode),
		       memory_fields),
		LAYOUT(NV01_DEVICE_0, sizeof(struct nv0080_alloc), device_fields),
		LAYOUT(NV01_EVENT, sizeof(struct nv0005_alloc), event_fields),
		LAYOUT(NV01_EVENT_OS_EVENT, sizeof(struct nv0005_alloc), event_fields),
		LAYOUT(FERMI_VASPACE_A, sizeof(struct nv_vaspace_alloc), vaspace_fields),
		LAYOUT(KEPLER_CHANNEL_GROUP_A, offsetof(struct nv_group_alloc, isVgpu),
		       group_fields),
		LAYOUT(FERMI_CONTEXT_SHARE_A, sizeof(uint32_t), share_fields),
	};
	static const struct layout channel =
		LAYOUT(0, sizeof(struct nv_channel_alloc), channel_fields);
	static const struct layout none;
	uint32_t i;

	for (i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].hClass == hClass)
			return &layouts[i];
	return cgpu_is_channel_class(hClass) ? &channel : &none;
}

static void decode_class(const struct cgpu_abi *abi, const void *params, uint32_t size,
			 struct cgpu_request *req)
{
	const struct layout *layout = layout_of(req->hClass);
	bool channel = layout->fields == channel_fields;
	uint32_t i;

	if (size < layout->least_bytes + (channel ? abi->channel_shift : 0))
		return;
	for (i = 0; i < layout->count; i++) {
		const struct field *field = &layout->fields[i];
		uint32_t from = field->from + (field->shifts ? abi->channel_shift : 0);
		uint8_t *into = (uint8_t *)req + field->into;

		if (field->wide)
			*(uint64_t *)into = cgpu_get64(params, from);
		else
			*(uint32_t *)into = cgpu_get32(params, from);
	}
	if (channel)
		req->hUserd = cgpu_get32(params, abi->channel_userd_offset);
}

/* FB_GET_INFO points to its list. */
static void decode_list(const void *params, uint32_t size, struct cgpu_request *req)
{
	uint32_t count;

	if (req->cmd != NV2080_CTRL_CMD_FB_GET_INFO || size < sizeof(struct nv_fb_get_info))
		return;
	/* at most 128 entries in any branch */
	req->list_ptr = cgpu_get64(params, offsetof(struct nv_fb_get_info, fbInfoList));
	count = cgpu_get32(params, offsetof(struct nv_fb_get_info, fbInfoListSize));
	req->list_size = count <= 128 ? count * sizeof(struct nv_fb_info) : 0;
}

void cgpu_decode_params(const struct cgpu_abi *abi, const void *params,
			uint32_t size, struct cgpu_request *req)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		if (has32(req->hClient_place[i], size))
			req->hClientNamed[i] = read32(params, req->hClient_place[i]);
	/* of another client's object, or of none, the driver makes it the client's own */
	if (req->op == CGPU_OP_ALLOC && cgpu_is_event(req->hClass) &&
	    req->hClientNamed[0] != req->hClient)
		req->hParent = req->hClient;
	if (has32(req->fd_place, size))
		req->fd = (int32_t)read32(params, req->fd_place);
	if (req->op == CGPU_OP_CONTROL)
		decode_list(params, size, req);
	else if (req->op == CGPU_OP_ALLOC)
		decode_class(abi, params, size, req);
}

uint8_t cgpu_mig_of(uint32_t data)
{
	return data == NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_ENABLED ||
	       data == NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_DISABLE_PENDING ?
	       CGPU_MIG_ON : CGPU_MIG_OFF;
}
