// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The driver accepts an escape only if its size is exactly the size of its
 * struct, so the size is checked the same way here and every field is then
 * in bounds. What is listed and not interpreted is CGPU_OP_OTHER: the driver
 * decides. Offsets: the layouts of nv-ioctl.h, nvos.h, uvm_ioctl.h, equal in
 * the branches 535 to 580 unless struct cgpu_abi carries them.
 */
#include "core/rm/allowed.h"
#include "core/rm/decode.h"

/* ------------------------------------------------------------- sizes */

static uint32_t uvm_args_size(const struct cgpu_abi *abi, uint32_t cmd)
{
	switch (cmd) {
	case UVM_INITIALIZE:
		return 16;
	case UVM_REGISTER_GPU:
		return 40;
	case UVM_UNREGISTER_GPU:
		return 20;
	case UVM_REGISTER_GPU_VASPACE:
		return 32;
	case UVM_REGISTER_CHANNEL:
		return 56;
	case UVM_MAP_EXTERNAL_ALLOCATION:
		return abi->uvm_map_external_size;
	case UVM_UNMAP_EXTERNAL:
		return 40;
	case UVM_FREE:
		return 24;
	case UVM_ALLOC_SEMAPHORE_POOL:
		return abi->uvm_semaphore_pool_size;
	case UVM_ALLOC_DEVICE_P2P:
		return abi->uvm_device_p2p_size;
	default:
		return 0;
	}
}

/* the size of every escape that the core interprets; 0: it does not */
static bool rm_size_fits(const struct cgpu_abi *abi, uint32_t nr, uint32_t size)
{
	switch (nr) {
	case NV_ESC_RM_ALLOC_MEMORY:
		return size == 56;
	case NV_ESC_RM_ALLOC_OBJECT:
		return size == 20;
	case NV_ESC_RM_FREE:
		return size == 16;
	case NV_ESC_RM_CONTROL:
		return size == 32;
	case NV_ESC_RM_ALLOC:
		return size == 32 || size == 48;
	case NV_ESC_RM_DUP_OBJECT:
		return size == 28;
	case NV_ESC_RM_SHARE:
		return size == 24;
	case NV_ESC_RM_IDLE_CHANNELS:
		return size == 56;
	case NV_ESC_RM_VID_HEAP_CONTROL:
		return size == 184;
	case NV_ESC_RM_MAP_MEMORY:
		return size == 56;
	case NV_ESC_RM_UNMAP_MEMORY:
		return size == 32;
	case NV_ESC_RM_ALLOC_CONTEXT_DMA2:
		return size == 56;
	case NV_ESC_RM_MAP_MEMORY_DMA:
		return size == abi->map_dma_size;
	case NV_ESC_RM_UNMAP_MEMORY_DMA:
		return size == abi->unmap_dma_size;
	case NV_ESC_RM_BIND_CONTEXT_DMA:
	case NV_ESC_ALLOC_OS_EVENT:
	case NV_ESC_FREE_OS_EVENT:
		return size == 16;
	case NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO:
		return size == 40;
	case NV_ESC_REGISTER_FD:
		return size == 4;
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		return size == abi->dmabuf_size;
	default:
		return true;
	}
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
		return uvm_args_size(abi, cmd);
	if (nr != NV_ESC_IOCTL_XFER_CMD && !cgpu_interprets(nr))
		return 0;
	return (cmd >> 16) & 0x3fff; /* _IOC_SIZE */
}

int cgpu_decode_xfer(const void *args, uint32_t size, uint32_t *cmd,
		     uint32_t *inner_size, uint64_t *inner_ptr)
{
	if (size != 16)
		return -EINVAL;
	*cmd = cgpu_get32(args, 0);
	*inner_size = cgpu_get32(args, 4);
	*inner_ptr = cgpu_get64(args, 8);
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
	uint32_t given = cgpu_get32(args, 24);

	req->op = CGPU_OP_CONTROL;
	req->hClient = cgpu_get32(args, 0);
	req->hObject = cgpu_get32(args, 4);
	req->cmd = cgpu_get32(args, 8);
	req->flags = cgpu_get32(args, 12);
	req->status_offset = 28;

	rule = cgpu_control_rule(req->cmd);
	req->judge = rule->judge;
	want = rule->params_bytes;
	if (!want)
		return;
	memcpy(req->hClient_place, rule->hClient, sizeof(rule->hClient));
	if (want == CGPU_BY_BRANCH)
		want = abi->fb_get_info_v2_size;
	/*
	 * The driver demands the exact size. A shorter block is still copied,
	 * as far as it goes, so that the driver sees what the caller sent.
	 */
	req->params_ptr = cgpu_get64(args, 16);
	req->params_ptr_offset = 16;
	req->params_size = given < want ? given : want;
	if (want == CGPU_AS_GIVEN && given > CGPU_PARAMS_MAX)
		req->params_size = 0;
	if (!req->params_ptr)
		req->params_size = 0;
}

/* ------------------------------------------------------------- memory */

static void decode_heap(const void *args, struct cgpu_request *req)
{
	uint32_t size_offset;

	req->hClient = cgpu_get32(args, 0);
	req->hParent = cgpu_get32(args, 4);
	req->function = cgpu_get32(args, 8);
	req->status_offset = 20;

	switch (req->function) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
	case NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT:
		req->attr2 = cgpu_get32(args, 144);
		size_offset = 88;
		break;
	case NVOS32_FUNCTION_ALLOC_SIZE_RANGE:
		req->attr2 = cgpu_get32(args, 136);
		size_offset = 80;
		break;
	case NVOS32_FUNCTION_FREE:
		req->op = CGPU_OP_FREE;
		req->hObject = cgpu_get32(args, 44);
		return;
	case NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
		req->op = CGPU_OP_HEAP_ALLOC;
		req->hObject = cgpu_get32(args, 40);
		req->hObject_offset = 40;
		req->hClass = NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
		return;
	case NVOS32_FUNCTION_INFO:
		req->op = CGPU_OP_HEAP_INFO;
		return;
	default:
		req->op = CGPU_OP_HEAP_OTHER;
		return;
	}

	req->op = CGPU_OP_HEAP_ALLOC;
	req->hObject = cgpu_get32(args, 44);
	req->hObject_offset = 44;
	req->flags = cgpu_get32(args, 52);
	req->attr = cgpu_get32(
		args, req->function == NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT ? 64 : 56);
	req->size_bytes = cgpu_get64(args, size_offset);
	if (!req->size_bytes && req->function == NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT)
		req->size_bytes = (uint64_t)cgpu_get32(args, 56) * cgpu_get32(args, 60);
	if (req->flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		req->hClass = NV50_MEMORY_VIRTUAL;
	else if (((req->attr >> NVOS32_ATTR_LOCATION_SHIFT) &
		  NVOS32_ATTR_LOCATION_MASK) == NVOS32_ATTR_LOCATION_VIDMEM ||
		 ((req->attr >> NVOS32_ATTR_LOCATION_SHIFT) &
		  NVOS32_ATTR_LOCATION_MASK) == NVOS32_ATTR_LOCATION_ANY)
		/* "anywhere" may end in video memory: charged as if it did */
		req->hClass = NV01_MEMORY_LOCAL_USER;
	else
		req->hClass = NV01_MEMORY_SYSTEM;
}

/* parameter bytes of a class that the core wants; 0: not interested */
static uint32_t class_params_size(const struct cgpu_abi *abi, const struct cgpu_rule *rule)
{
	if (rule->params_bytes != CGPU_BY_BRANCH)
		return rule->params_bytes;
	return rule->number == NV01_MEMORY_LOCAL_USER ? abi->memory_alloc_size :
							abi->channel_alloc_size;
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
	const struct cgpu_rule *rule;

	req->op = CGPU_OP_ALLOC;
	req->hClient = cgpu_get32(args, 0);
	req->hParent = cgpu_get32(args, 4);
	req->hObject = cgpu_get32(args, 8);
	req->hObject_offset = 8;
	req->hClass = cgpu_get32(args, 12);
	rule = cgpu_class_rule(req->hClass);
	req->judge = rule->judge;
	memcpy(req->hClient_place, rule->hClient, sizeof(rule->hClient));
	if (req->nr == NV_ESC_RM_ALLOC_OBJECT) {
		req->status_offset = 16;
		return;
	}
	req->status_offset = size == 48 ? 40 : 28;

	/*
	 * Which bytes the driver reads follows from the class, not from
	 * paramsSize: user mode passes 0 there, and a wrong size is accepted
	 * (580.159.04).
	 */
	req->params_ptr = cgpu_get64(args, 16);
	req->params_ptr_offset = 16;
	req->params_size = req->params_ptr ? class_params_size(abi, rule) : 0;
}

/* ---------------------------------------------------------------- UVM */

static void decode_uvm(const struct cgpu_abi *abi, const void *args,
		       struct cgpu_request *req)
{
	switch (req->nr) {
	case UVM_INITIALIZE:
		req->op = CGPU_OP_UVM_INITIALIZE;
		req->flags = cgpu_get32(args, 0);
		req->status_offset = 8;
		break;
	case UVM_REGISTER_GPU:
		req->op = CGPU_OP_UVM_REGISTER_GPU;
		memcpy(req->gpu_uuid, args, 16);
		req->hClient = cgpu_get32(args, 28);
		req->status_offset = 36;
		break;
	case UVM_UNREGISTER_GPU:
		req->op = CGPU_OP_UVM_UNREGISTER_GPU;
		memcpy(req->gpu_uuid, args, 16);
		req->status_offset = 16;
		break;
	case UVM_REGISTER_GPU_VASPACE:
		req->op = CGPU_OP_UVM_REGISTER_CLIENT;
		memcpy(req->gpu_uuid, args, 16);
		req->hClient = cgpu_get32(args, 20);
		req->hObject = cgpu_get32(args, 24);
		req->status_offset = 28;
		break;
	case UVM_REGISTER_CHANNEL:
		req->op = CGPU_OP_UVM_REGISTER_CLIENT;
		memcpy(req->gpu_uuid, args, 16);
		req->hClient = cgpu_get32(args, 20);
		req->hObject = cgpu_get32(args, 24);
		req->base = cgpu_get64(args, 32);
		req->length_bytes = cgpu_get64(args, 40);
		req->status_offset = 48;
		break;
	case UVM_ALLOC_DEVICE_P2P:
		req->op = CGPU_OP_UVM_MAP_EXTERNAL;
		req->base = cgpu_get64(args, 0);
		req->length_bytes = cgpu_get64(args, 8);
		req->hClient = cgpu_get32(args, 44);
		req->hObject = cgpu_get32(args, 48);
		req->status_offset = 52;
		break;
	case UVM_MAP_EXTERNAL_ALLOCATION:
		req->op = CGPU_OP_UVM_MAP_EXTERNAL;
		req->base = cgpu_get64(args, 0);
		req->length_bytes = cgpu_get64(args, 8);
		req->hClient = cgpu_get32(args, abi->uvm_map_external_hclient);
		req->hObject = cgpu_get32(args, abi->uvm_map_external_hclient + 4);
		req->status_offset = abi->uvm_map_external_hclient + 8;
		break;
	case UVM_UNMAP_EXTERNAL:
		req->op = CGPU_OP_UVM_UNMAP_EXTERNAL;
		req->base = cgpu_get64(args, 0);
		req->length_bytes = cgpu_get64(args, 8);
		memcpy(req->gpu_uuid, (const uint8_t *)args + 16, 16);
		req->status_offset = 32;
		break;
	case UVM_FREE:
		req->op = CGPU_OP_UVM_FREE;
		req->base = cgpu_get64(args, 0);
		req->length_bytes = cgpu_get64(args, 8);
		req->status_offset = 16;
		break;
	case UVM_ALLOC_SEMAPHORE_POOL:
		req->op = CGPU_OP_UVM_SEMAPHORE_POOL;
		req->base = cgpu_get64(args, 0);
		req->length_bytes = cgpu_get64(args, 8);
		req->status_offset = abi->uvm_semaphore_pool_size - 8;
		break;
	default:
		break;
	}
}

/* ------------------------------------------------------------- entry */

static void decode_rm(const struct cgpu_abi *abi, const void *args, uint32_t size,
		      struct cgpu_request *req)
{
	switch (req->nr) {
	case NV_ESC_RM_ALLOC:
	case NV_ESC_RM_ALLOC_OBJECT:
		decode_alloc(abi, args, size, req);
		break;
	case NV_ESC_RM_ALLOC_CONTEXT_DMA2: /* hObjectParent is the client here */
		req->op = CGPU_OP_CONTEXT_DMA;
		req->hClient = cgpu_get32(args, 0);
		req->hObject = cgpu_get32(args, 8);
		req->hObject_offset = 8;
		req->hClass = cgpu_get32(args, 12);
		req->judge = cgpu_class_rule(req->hClass)->judge;
		req->status_offset = 48;
		break;
	case NV_ESC_RM_FREE:
		req->op = CGPU_OP_FREE;
		req->hClient = cgpu_get32(args, 0);
		req->hParent = cgpu_get32(args, 4);
		req->hObject = cgpu_get32(args, 8);
		req->status_offset = 12;
		break;
	case NV_ESC_RM_CONTROL:
		decode_control(abi, args, req);
		break;
	case NV_ESC_RM_VID_HEAP_CONTROL:
		decode_heap(args, req);
		break;
	case NV_ESC_RM_ALLOC_MEMORY:
		req->op = CGPU_OP_ALLOC_MEMORY;
		req->hClient = cgpu_get32(args, 0);
		req->hParent = cgpu_get32(args, 4);
		req->hObject = cgpu_get32(args, 8);
		req->hObject_offset = 8;
		req->hClass = cgpu_get32(args, 12);
		req->flags = cgpu_get32(args, 16);
		req->judge = cgpu_class_rule(req->hClass)->judge;
		req->status_offset = 40;
		break;
	case NV_ESC_RM_DUP_OBJECT:
		req->op = CGPU_OP_DUP;
		req->hClient = cgpu_get32(args, 0);
		req->hParent = cgpu_get32(args, 4);
		req->hObject = cgpu_get32(args, 8);
		req->hObject_offset = 8;
		req->hClientSrc = cgpu_get32(args, 12);
		req->hObjectSrc = cgpu_get32(args, 16);
		req->status_offset = 24;
		break;
	case NV_ESC_RM_SHARE:
		req->op = CGPU_OP_CLIENT_CALL;
		req->hClient = cgpu_get32(args, 0);
		req->hObject = cgpu_get32(args, 4);
		req->status_offset = 20;
		break;
	case NV_ESC_RM_MAP_MEMORY:
		req->op = CGPU_OP_MAP_MEMORY;
		req->hClient = cgpu_get32(args, 0);
		req->hParent = cgpu_get32(args, 4);
		req->hObject = cgpu_get32(args, 8);
		req->fd = (int32_t)cgpu_get32(args, 48);
		req->status_offset = 40;
		break;
	case NV_ESC_RM_UNMAP_MEMORY:
		req->op = CGPU_OP_UNMAP_MEMORY;
		req->hClient = cgpu_get32(args, 0);
		req->hObject = cgpu_get32(args, 8);
		req->status_offset = 24;
		break;
	case NV_ESC_RM_IDLE_CHANNELS:
		req->op = CGPU_OP_IDLE_CHANNELS;
		req->hClient = cgpu_get32(args, 0);
		req->status_offset = 48;
		break;
	case NV_ESC_RM_MAP_MEMORY_DMA:
		req->op = CGPU_OP_MAP_DMA;
		req->hClient = cgpu_get32(args, 0);
		req->hParent = cgpu_get32(args, 4);
		req->hObject = cgpu_get32(args, 8); /* hDma: where the page tables are */
		req->status_offset = abi->map_dma_size - 8;
		break;
	case NV_ESC_RM_UNMAP_MEMORY_DMA:
		req->op = CGPU_OP_UNMAP_DMA;
		req->hClient = cgpu_get32(args, 0);
		req->hParent = cgpu_get32(args, 4);
		req->hObject = cgpu_get32(args, 8);
		req->partial = abi->unmap_dma_size == 48 && cgpu_get64(args, 32);
		req->status_offset = abi->unmap_dma_size - 8;
		break;
	case NV_ESC_RM_BIND_CONTEXT_DMA:
		req->op = CGPU_OP_CLIENT_CALL;
		req->hClient = cgpu_get32(args, 0);
		req->hObject = cgpu_get32(args, 8);
		req->status_offset = 12;
		break;
	case NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO:
		req->op = CGPU_OP_CLIENT_CALL;
		req->hClient = cgpu_get32(args, 0);
		req->hObject = cgpu_get32(args, 8);
		req->status_offset = 32;
		break;
	case NV_ESC_ALLOC_OS_EVENT:
	case NV_ESC_FREE_OS_EVENT:
		req->op = CGPU_OP_OS_EVENT;
		req->hClient = cgpu_get32(args, 0);
		req->fd = (int32_t)cgpu_get32(args, 8);
		req->status_offset = 12;
		break;
	case NV_ESC_REGISTER_FD:
		req->op = CGPU_OP_REGISTER_FD;
		req->fd = (int32_t)cgpu_get32(args, 0);
		break;
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		req->op = CGPU_OP_EXPORT_DMABUF;
		req->fd = (int32_t)cgpu_get32(args, 0);
		req->hClient = cgpu_get32(args, 4);
		req->handles_offset = abi->dmabuf_handles;
		req->status_offset = abi->dmabuf_status;
		break;
	default:
		break;
	}
}

int cgpu_decode(const struct cgpu_abi *abi, uint32_t device, uint32_t nr,
		const void *args, uint32_t size, struct cgpu_request *req)
{
	*req = (struct cgpu_request){
		.device = device,
		.op = CGPU_OP_OTHER,
		.nr = nr,
		.args_size = size,
		.status_offset = CGPU_NO_OFFSET,
		.fd = -1,
		.judge = CGPU_JUDGE_CORE,
		.hClient_place = { CGPU_NOWHERE, CGPU_NOWHERE },
	};

	if (device == CGPU_DEVICE_UVM) {
		if (size != uvm_args_size(abi, nr))
			return -EINVAL;
		if (nr == UVM_DEINITIALIZE)
			req->op = CGPU_OP_UVM_DEINITIALIZE;
		else if (size)
			decode_uvm(abi, args, req);
	} else {
		if (!rm_size_fits(abi, nr, size))
			return -EINVAL;
		decode_rm(abi, args, size, req);
	}
	if (req->status_offset != CGPU_NO_OFFSET)
		req->status = cgpu_get32(args, req->status_offset);
	return 0;
}

void cgpu_decode_params(const struct cgpu_abi *abi, const void *params,
			uint32_t size, struct cgpu_request *req)
{
	uint32_t i;

	(void)abi;
	for (i = 0; i < 2; i++)
		if (req->hClient_place[i] != CGPU_NOWHERE && req->hClient_place[i] + 4u <= size)
			req->hClientNamed[i] = cgpu_get32(params, req->hClient_place[i]);
	if (req->op == CGPU_OP_CONTROL) {
		switch (req->cmd) {
		case NV2080_CTRL_CMD_FB_GET_INFO:
			if (size < 16)
				break;
			/* at most 128 entries of {index, data} in any branch */
			req->list_ptr = cgpu_get64(params, 8);
			req->list_size = cgpu_get32(params, 0);
			req->list_size = req->list_size <= 128 ? req->list_size * 8 : 0;
			break;
		case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
			if (size >= 24)
				req->fd = (int32_t)cgpu_get32(params, 16);
			break;
		case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
		case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
		case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
			if (size >= 4)
				req->fd = (int32_t)cgpu_get32(params, 0);
			break;
		default:
			break;
		}
		return;
	}
	if (req->op != CGPU_OP_ALLOC)
		return;

	switch (req->hClass) {
	case NV01_MEMORY_LOCAL_USER: /* NV_MEMORY_ALLOCATION_PARAMS */
		if (size < 120)
			break;
		req->flags = cgpu_get32(params, 8);
		req->attr = cgpu_get32(params, 24);
		req->attr2 = cgpu_get32(params, 28);
		req->size_bytes = cgpu_get64(params, 64);
		break;
	case NV01_DEVICE_0: /* NV0080_ALLOC_PARAMETERS */
		if (size >= 4)
			req->deviceId = cgpu_get32(params, 0);
		break;
	case KEPLER_CHANNEL_GROUP_A: /* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS */
		if (size < 16)
			break;
		req->hDepend[0] = cgpu_get32(params, 8);
		req->engineType = cgpu_get32(params, 12);
		break;
	case FERMI_CONTEXT_SHARE_A: /* NV_CTXSHARE_ALLOCATION_PARAMETERS */
		if (size >= 4)
			req->hDepend[0] = cgpu_get32(params, 0);
		break;
	default: /* NV_CHANNEL_ALLOC_PARAMS */
		if (!cgpu_is_channel_class(req->hClass) || size < 132)
			break;
		req->hDepend[0] = cgpu_get32(params, 24); /* hContextShare */
		req->hDepend[1] = cgpu_get32(params, 28); /* hVASpace */
		req->hDepend[2] = cgpu_get32(params, 32); /* hUserdMemory[0] */
		req->engineType = cgpu_get32(params, 128);
		break;
	}
}
