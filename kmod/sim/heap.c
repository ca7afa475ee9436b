// SPDX-License-Identifier: GPL-2.0-only
/* The two old ways to allocate: VID_HEAP_CONTROL and ALLOC_MEMORY. */
#include <linux/string.h>
#include "nvsim.h"

/* Where the fields of one VID_HEAP_CONTROL function lie, from the start of the struct. */
struct heap_layout {
	u8 hMemory, type, flags, attr, attr2, size, alignment, offset, limit, address;
	u8 stride;
};

static const struct heap_layout layout_size = {
	.hMemory = 44, .type = 48, .flags = 52, .attr = 56, .attr2 = 144, .size = 88,
	.alignment = 96, .offset = 104, .limit = 112, .address = 120, .stride = 72 };
static const struct heap_layout layout_tiled = {
	.hMemory = 44, .type = 48, .flags = 52, .attr = 64, .attr2 = 144, .size = 88,
	.alignment = 96, .offset = 104, .limit = 112, .address = 120, .stride = 84 };
static const struct heap_layout layout_range = {
	.hMemory = 44, .type = 48, .flags = 52, .attr = 56, .attr2 = 136, .size = 80,
	.alignment = 88, .offset = 96, .limit = 104, .address = 128, .stride = 72 };

#define U32_AT(p, o) (*(u32 *)((u8 *)(p) + (o)))
#define U64_AT(p, o) (*(u64 *)((u8 *)(p) + (o)))

static u32 heap_alloc(struct nvos32 *p, const struct heap_layout *l,
		      const struct nvsim_caller *who)
{
	struct nv_memory_alloc a = {
		.owner = U32_AT(p, 40), .type = U32_AT(p, l->type), .flags = U32_AT(p, l->flags),
		.attr = U32_AT(p, l->attr), .attr2 = U32_AT(p, l->attr2),
		.size = U64_AT(p, l->size), .alignment = U64_AT(p, l->alignment),
		.offset = U64_AT(p, l->offset), .hVASpace = p->hVASpace };
	u32 handle = 0, class, status;

	if (a.flags & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED)
		handle = U32_AT(p, l->hMemory);
	if (a.flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		class = NV50_MEMORY_VIRTUAL;
	else if (nvsim_branch >= 550 && (a.attr2 & NVOS32_ATTR2_USE_EGM))
		class = NV_MEMORY_EXTENDED_USER;
	else if (NVOS32_ATTR_LOCATION(a.attr) == NVOS32_ATTR_LOCATION_VIDMEM)
		class = NV01_MEMORY_LOCAL_USER;
	else
		class = NV01_MEMORY_SYSTEM;
	U32_AT(p, l->stride) = 256;
	status = nvsim_rm_alloc(p->hRoot, p->hObjectParent, &handle, class, &a, sizeof(a), who);
	p->free = 0;
	p->total = 0;
	U32_AT(p, l->hMemory) = handle;
	U32_AT(p, l->attr) = a.attr;
	U32_AT(p, l->attr2) = a.attr2;
	U64_AT(p, l->size) = a.size;
	U64_AT(p, l->offset) = a.offset;
	U64_AT(p, l->limit) = a.limit;
	U64_AT(p, l->address) = a.address;
	return status;
}

static u32 heap_device(struct nvos32 *p, const struct nvsim_caller *who, struct nvsim_object **dev)
{
	struct nvsim_client *client = nvsim_client_validate(p->hRoot, who);

	if (!client)
		return NV_ERR_INVALID_CLIENT;
	if (!nvsim_object_exists(client, p->hObjectParent))
		return NV_ERR_OBJECT_NOT_FOUND;
	*dev = nvsim_object_find(client, p->hObjectParent);
	return *dev && (*dev)->class == NV01_DEVICE_0 ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

/* The driver makes an object first, and finds its parent wanting; the rest is not simulated. */
static u32 heap_hw_alloc(struct nvos32 *p, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(p->hRoot, who);
	struct nvsim_object *dev;

	if (!client)
		return nvsim_client_refusal(p->hRoot);
	if (!nvsim_object_exists(client, p->hObjectParent))
		return NV_ERR_OBJECT_NOT_FOUND;
	dev = nvsim_object_find(client, p->hObjectParent);
	return dev && dev->class == NV01_DEVICE_0 ? NV_ERR_NOT_SUPPORTED :
						    NV_ERR_INVALID_OBJECT_PARENT;
}

static u32 heap_info(struct nvos32 *p, const struct nvsim_caller *who)
{
	struct nvsim_object *dev;
	u32 status = heap_device(p, who, &dev);
	u64 bytes;

	if (status != NV_OK)
		return status;
	bytes = nvsim_pma_free_bytes(dev->card);
	p->free = bytes;
	p->total = dev->card->pma_total;
	U64_AT(p, 48) = 0;	/* offset of the largest free region */
	U64_AT(p, 56) = bytes;	/* its size */
	U64_AT(p, 64) = 0;	/* heap base */
	return NV_OK;
}

static u32 heap_os_descriptor(struct nvos32 *p, const struct nvsim_caller *who)
{
	u32 handle = U32_AT(p, 40);
	struct nv_os_desc_alloc params = { .limit = U64_AT(p, 72) };

	if (U64_AT(p, 56 + 8) & (PAGE_SIZE - 1))
		return NV_ERR_NOT_SUPPORTED;
	if (U64_AT(p, 72) == U64_MAX)
		return NV_ERR_INVALID_LIMIT;
	/* Pages are locked before anything is looked at; here there are some, but at NULL. */
	if (!U64_AT(p, 56 + 8))
		return NV_ERR_INVALID_ADDRESS;
	return nvsim_rm_alloc(p->hRoot, p->hObjectParent, &handle,
			      NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, &params, sizeof(params), who);
}

void nvsim_vid_heap(struct nvos32 *p, const struct nvsim_caller *who)
{
	struct nvsim_object *dev;

	switch (p->function) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		p->status = heap_alloc(p, &layout_size, who);
		break;
	case NVOS32_FUNCTION_ALLOC_SIZE_RANGE:
		p->status = heap_alloc(p, &layout_range, who);
		break;
	case NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT:
		U64_AT(p, 88) = (u64)U32_AT(p, 56) * (s32)U32_AT(p, 60);
		p->status = heap_alloc(p, &layout_tiled, who);
		break;
	case NVOS32_FUNCTION_FREE:
		if (!(U32_AT(p, 48) & NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED))
			p->status = NV_ERR_INVALID_ARGUMENT;
		else
			p->status = nvsim_rm_free(p->hRoot, U32_AT(p, 44), who);
		break;
	case NVOS32_FUNCTION_INFO:
		p->status = heap_info(p, who);
		break;
	case NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
		p->status = heap_os_descriptor(p, who);
		break;
	case NVOS32_FUNCTION_GET_MEM_ALIGNMENT:
		p->status = heap_device(p, who, &dev) ?: NV_ERR_NOT_SUPPORTED;
		break;
	case NVOS32_FUNCTION_HW_ALLOC:
		p->status = heap_hw_alloc(p, who);
		break;
	case NVOS32_FUNCTION_HW_FREE:
		p->status = nvsim_rm_free(p->hRoot, U32_AT(p, 44), who);
		break;
	case NVOS32_FUNCTION_RELEASE_COMPR:
		p->status = NV_ERR_INVALID_FLAGS;
		break;
	case NVOS32_FUNCTION_DUMP:
		p->status = NV_ERR_NOT_SUPPORTED;
		break;
	default:
		p->status = NV_ERR_INVALID_ARGUMENT;
	}
}

/*
 * Class 0x40 here allocates nothing. It tries the privileged whole-card object
 * and, where that is refused, reports the size of the heap in `limit`.
 */
static u32 old_local_user(struct nvos02 *p, const struct nvsim_caller *who)
{
	struct nv_physical_alloc phys = {};
	struct nvsim_client *client;
	struct nvsim_object *dev, *obj;
	u32 handle = p->hObjectNew, status;

	status = nvsim_rm_alloc(p->hRoot, p->hObjectParent, &handle, NV01_MEMORY_LOCAL_PHYSICAL,
				&phys, sizeof(phys), who);
	if (status == NV_OK) {
		p->limit = phys.memSize - 1;
		return NV_OK;
	}
	client = nvsim_client_validate(p->hRoot, who);
	if (!client)
		return NV_ERR_INVALID_CLIENT;
	dev = nvsim_object_find(client, p->hObjectParent);
	if (!dev || dev->class != NV01_DEVICE_0)
		return NV_ERR_INVALID_OBJECT_PARENT;
	handle = p->hObjectNew;
	obj = nvsim_object_new(client, p->hObjectParent, &handle, NV01_MEMORY_LOCAL_USER, &status);
	if (!obj)
		return status;
	p->limit = dev->card->board - 1;
	return NV_OK;
}

u32 nvsim_alloc_memory(struct nvos02 *p, const struct nvsim_caller *who)
{
	/* the driver's own name stands in for the caller's, which this call has not */
	struct nv_memory_alloc a = { .owner = HEAP_OWNER_RM_CLIENT_GENERIC };
	u32 handle = p->hObjectNew;
	struct nv_os_desc_alloc none = {};
	u32 status;

	switch (p->hClass) {
	case NV01_MEMORY_LOCAL_USER:
		return old_local_user(p, who);
	case NV01_MEMORY_SYSTEM:
		if (NVOS02_FLAGS_LOCATION(p->flags) != 0 || NVOS02_FLAGS_ALLOC(p->flags) == 1)
			return NV_ERR_INVALID_FLAGS;
		a.attr = NVOS32_ATTR_LOCATION_PCI << 25;
		a.size = p->limit + 1;
		p->pMemory = 0;
		return nvsim_rm_alloc(p->hRoot, p->hObjectParent, &handle, p->hClass, &a,
				      sizeof(a), who);
	case NV01_MEMORY_VIRTUAL:
		status = nvsim_rm_alloc(p->hRoot, p->hObjectParent, &handle, p->hClass, &none,
					sizeof(none), who);
		p->limit = (1ull << 47) - 1;
		return status;
	case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
		if (NVOS02_FLAGS_LOCATION(p->flags) != 0 || NVOS02_FLAGS_MAPPING(p->flags) != 1)
			return NV_ERR_INVALID_FLAGS;
		none.limit = p->limit;
		return nvsim_rm_alloc(p->hRoot, p->hObjectParent, &handle, p->hClass, &none,
				      sizeof(none), who);
	case NV01_MEMORY_LOCAL_PRIVILEGED:
	case NV01_MEMORY_LIST_SYSTEM:
	case NV01_MEMORY_LIST_FBMEM:
	case NV01_MEMORY_LIST_OBJECT:
	case NV01_MEMORY_FRAMEBUFFER_CONSOLE:
		return nvsim_rm_alloc(p->hRoot, p->hObjectParent, &handle, p->hClass, NULL, 0,
				      who);
	case NV01_MEMORY_FLA:
		return NV_ERR_NOT_SUPPORTED;
	default:
		return NV_ERR_INVALID_CLASS;
	}
}
