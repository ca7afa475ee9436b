// SPDX-License-Identifier: GPL-2.0-only
/* RM_ALLOC: which classes there are, under which parents, and what they make. */
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include "nvsim.h"

enum parent_rule { UNDER_CLIENT = 1, UNDER_DEVICE = 2, UNDER_SUBDEVICE = 4, UNDER_GROUP = 8,
		   UNDER_CHANNEL = 16, UNDER_ANY = 32 };

struct rm_class {
	u32 class;
	u32 parents;
	int size;		/* of the parameters; 0: none */
	bool optional;		/* parameters may be absent */
	bool privileged;	/* CAP_SYS_ADMIN in the initial user namespace */
	u32 (*make)(struct nvsim_object *obj, void *params, const struct nvsim_caller *who);
};

static unsigned int grown_class;
module_param(grown_class, uint, 0444);
MODULE_PARM_DESC(grown_class, "class whose parameters have 8 bytes more than the branch's");

static bool swapped_size;
module_param(swapped_size, bool, 0444);
MODULE_PARM_DESC(swapped_size, "the size of memory and its alignment have changed places in its parameters");

static bool channel_like(u32 class, u32 suffix)
{
	/* 0xC36F, 0xC46F, 0xC56F, 0xC86F and so on: the generation is the third digit. */
	return (class & 0xf0ff) == (0xc000 | suffix) && (class & 0x0f00) >= 0x300;
}

bool nvsim_class_is_channel(u32 class) { return channel_like(class, 0x6f); }
bool nvsim_class_is_usermode(u32 class) { return channel_like(class, 0x61); }
bool nvsim_class_is_compute(u32 class) { return channel_like(class, 0xc0); }
bool nvsim_class_is_copy(u32 class) { return channel_like(class, 0xb5); }

static struct nvsim_object *get(struct nvsim_object *obj, u32 handle)
{
	return handle ? nvsim_object_find(obj->client, handle) : NULL;
}

static u32 make_plain(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	return NV_OK;
}

static unsigned int common_spaces;
module_param(common_spaces, uint, 0444);
MODULE_PARM_DESC(common_spaces, "devices that were made with the card's own address space or another client's");

static u32 make_device(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv0080_alloc *p = params;
	u32 id = p ? p->deviceId : 0;

	if (who->priv != NVSIM_KERNEL && (p ? p->hClientShare : 0) != obj->client->handle)
		common_spaces++;

	if (id >= nvsim_ncards)
		return NV_ERR_INVALID_DEVICE;
	obj->card = &nvsim_cards[id];
	if (who->priv != NVSIM_KERNEL && !nvsim_gpu_accessible(obj->card))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	return NV_OK;
}

static u32 make_subdevice(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	if (params && *(u32 *)params)
		return NV_ERR_INVALID_ARGUMENT;
	obj->aux = obj->client->subdevice_gen++;
	return NV_OK;
}

/* of physical and virtual memory that is asked for from outside, stdmemValidateParams() in 580 */
static u32 validate(const struct nv_memory_alloc *p)
{
	if (!p->size)
		return NV_ERR_INVALID_ARGUMENT;
	return p->owner && p->owner != U32_MAX ? NV_OK : NV_ERR_INVALID_OWNER;
}

static u32 make_vidmem(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv_memory_alloc *p = params;
	u64 page, size, taken = 0;
	u32 status;

	if (swapped_size)
		swap(p->size, p->alignment);
	status = validate(p);
	if (status)
		return status;
	if (NVOS32_ATTR_LOCATION(p->attr) != NVOS32_ATTR_LOCATION_VIDMEM ||
	    (p->flags & NVOS32_ALLOC_FLAGS_VIRTUAL))
		return NV_ERR_INVALID_ARGUMENT;
	size = nvsim_round_size(p->size, p->attr, p->attr2, &page);
	if (!size)
		return NV_ERR_INVALID_ARGUMENT;
	/* as an H100 does (580.159.04): what is reported is what was asked for */
	if (p->flags & NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE)
		taken = p->alignment;
	else if (p->flags & NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE)
		taken = min_t(u64, p->alignment, SZ_2M);
	if (taken & (taken - 1))
		return NV_ERR_INVALID_ARGUMENT;
	taken = taken ? ALIGN(size, taken) : size;
	if (taken < size)
		return NV_ERR_NO_MEMORY;
	nvsim_latency_us(100);
	obj->mem = nvsim_mem_alloc(obj->card, NV01_MEMORY_LOCAL_USER, taken, &status);
	if (!obj->mem)
		return status;
	p->size = size;
	p->offset = obj->mem->offset;
	p->limit = size - 1;
	/* The page size chosen is reported in the attributes. */
	p->attr &= ~(3u << 23);
	p->attr |= (page == SZ_4K ? 1u : page == SZ_64K ? 2u : 3u) << 23;
	return NV_OK;
}

/* The first VA space on a card takes one page directory's worth, as measured. */
static u32 make_vaspace(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	static u64 ids;

	obj->space = kzalloc(sizeof(*obj->space), GFP_KERNEL);
	if (!obj->space)
		return NV_ERR_NO_MEMORY;
	if (!obj->card->vaspaces && !nvsim_pma_take(obj->card, NVSIM_VASPACE_BYTES)) {
		kfree(obj->space);
		obj->space = NULL;
		return NV_ERR_NO_MEMORY;
	}
	obj->card->vaspaces++;
	*obj->space = (struct nvsim_space){ .card = obj->card, .id = ++ids, .objects = 1 };
	return NV_OK;
}

void nvsim_space_put(struct nvsim_space *space)
{
	if (--space->objects)
		return;
	if (!--space->card->vaspaces)
		nvsim_pma_give(space->card, NVSIM_VASPACE_BYTES);
	kfree(space);
}

static u32 make_sysmem(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv_memory_alloc *p = params;
	u32 status;
	u64 size;

	status = validate(p);
	if (status)
		return status;
	if (p->size > U64_MAX - PAGE_SIZE)
		return NV_ERR_INVALID_ARGUMENT;
	size = PAGE_ALIGN(p->size);
	obj->mem = nvsim_mem_alloc(NULL, obj->class, size, &status);
	if (!obj->mem)
		return status;
	p->size = size;
	p->limit = size - 1;
	return NV_OK;
}

/* Physically contiguous in the driver, so no larger than a kernel's largest block. */
#define DEVICELESS_MAX	SZ_4M

static u32 make_deviceless(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv_memory_alloc *p = params;
	u32 status;

	if (!p->size)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->size > DEVICELESS_MAX)
		return NV_ERR_NO_MEMORY;
	obj->mem = nvsim_mem_alloc(NULL, obj->class, p->size, &status);
	if (!obj->mem)
		return status;
	obj->mem->user_read_only = p->attr2 & NVOS32_ATTR2_PROTECTION_USER_READ_ONLY;
	return NV_OK;
}

static u32 make_event_buffer(struct nvsim_object *obj, void *params,
			     const struct nvsim_caller *who)
{
	return nvsim_evbuf_make(obj, params);
}

/* memory of the process, which UVM maps like any other of the host */
static u32 make_os_descriptor(struct nvsim_object *obj, void *params,
			      const struct nvsim_caller *who)
{
	u64 limit = ((struct nv_os_desc_alloc *)params)->limit;
	u32 status;

	if (limit > U64_MAX - PAGE_SIZE)
		return NV_ERR_INVALID_LIMIT;
	obj->mem = nvsim_mem_alloc(NULL, obj->class, PAGE_ALIGN(limit + 1), &status);
	return obj->mem ? NV_OK : status;
}

/*
 * Figures that the driver keeps up to date in a page. Where NVML of 550 finds
 * it, it believes it; without the class it asks controls, which we can answer.
 */
static u32 make_shared_data(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	u32 status;

	if (nvsim_branch < 570)
		return NV_ERR_INVALID_CLASS;
	obj->mem = nvsim_mem_alloc(NULL, obj->class, PAGE_SIZE, &status);
	return obj->mem ? NV_OK : status;
}

static u32 make_virtual(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv_memory_alloc *p = params;
	struct nvsim_object *vas = get(obj, p->hVASpace);
	u32 status = validate(p);

	if (status)
		return status;
	if (!(p->flags & NVOS32_ALLOC_FLAGS_VIRTUAL))
		return NV_ERR_INVALID_ARGUMENT;
	if (p->hVASpace && (!vas || vas->class != FERMI_VASPACE_A))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (vas && nvsim_object_depend(obj, vas))
		return NV_ERR_NO_MEMORY;
	p->limit = p->offset + p->size - 1;
	return NV_OK;
}

static u32 make_group(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv_group_alloc *p = params;
	struct nvsim_object *vas = get(obj, p->hVASpace);

	if (p->hVASpace && (!vas || vas->class != FERMI_VASPACE_A))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (vas && nvsim_object_depend(obj, vas))
		return NV_ERR_NO_MEMORY;
	obj->in_space = vas ? vas->space->id : 0;
	obj->aux = p->engineType ?: NV2080_ENGINE_TYPE_GR0;
	obj->tsg = nvsim_tsg_create(obj->card, obj->aux, obj->client);
	return obj->tsg ? NV_OK : NV_ERR_INSUFFICIENT_RESOURCES;
}

static u32 make_ctxshare(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv_ctxshare_alloc *p = params;
	struct nvsim_object *vas = get(obj, p->hVASpace);

	if (p->hVASpace && (!vas || vas->class != FERMI_VASPACE_A))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (vas && nvsim_object_depend(obj, vas))
		return NV_ERR_NO_MEMORY;
	obj->in_space = vas ? vas->space->id : 0;
	return NV_OK;
}

/* NV_CHANNEL_ALLOC_PARAMS as the branches before 610 have them: without hHandleVASpace. */
static void channel_params(const u8 *params, struct nv_channel_alloc *p)
{
	if (nvsim_branch < 610) {
		memcpy(p, params, sizeof(*p));
		return;
	}
	memcpy(p, params, offsetof(struct nv_channel_alloc, hUserdMemory));
	memcpy(p->hUserdMemory, params + 36, sizeof(p->hUserdMemory));
	memcpy((u8 *)p + offsetof(struct nv_channel_alloc, userdOffset), params + 72,
	       sizeof(*p) - offsetof(struct nv_channel_alloc, userdOffset));
}

static u32 make_channel(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nvsim_object *share, *vas, *userd;
	struct nv_channel_alloc copy, *p = &copy;
	struct nvsim_tsg *tsg;
	u64 userd_offset;

	channel_params(params, p);
	userd_offset = p->userdOffset[0];
	share = get(obj, p->hContextShare);
	vas = get(obj, p->hVASpace);
	userd = get(obj, p->hUserdMemory[0]);
	if ((p->hContextShare && !share) || (p->hVASpace && !vas))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (p->hUserdMemory[0] && (!userd || !userd->mem))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (userd && (userd_offset & (PAGE_SIZE - 1) || userd_offset >= userd->mem->size))
		return NV_ERR_INVALID_ARGUMENT;
	if (share && share->parent != obj->parent)
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (obj->parent->class == KEPLER_CHANNEL_GROUP_A) {
		tsg = obj->parent->tsg;
	} else {
		/* A channel without a group gets one of its own. */
		obj->tsg = nvsim_tsg_create(obj->card, p->engineType ?: NV2080_ENGINE_TYPE_GR0,
					    obj->client);
		tsg = obj->tsg;
	}
	if (!tsg)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	/* Memory of RM's is kept for the channel; with the process's own it goes (from 570 on). */
	if ((share && nvsim_object_depend(obj, share)) || (vas && nvsim_object_depend(obj, vas)) ||
	    (userd && userd->class == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR &&
	     nvsim_object_depend(obj, userd)))
		return NV_ERR_NO_MEMORY;
	nvsim_latency_us(400);
	obj->aux = nvsim_tsg_engine(tsg);
	obj->chan = nvsim_chan_create(tsg, userd ? userd->mem : NULL, userd_offset);
	if (!obj->chan)
		return NV_ERR_NO_MEMORY;
	*(u32 *)((u8 *)params + offsetof(struct nv_channel_alloc, cid) +
		 (nvsim_branch < 610 ? 0 : 8)) = nvsim_chan_id(obj->chan);
	return NV_OK;
}

static u32 make_event(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv0005_alloc *p = params;
	struct nvsim_client *of = obj->client;

	if (p->hParentClient)
		of = nvsim_client_find(p->hParentClient);
	/* From 550 on the driver looks the client up, to lock it, before anything else. */
	if (!of && nvsim_branch >= 550)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (who->priv != NVSIM_KERNEL && (obj->class == NV01_EVENT_KERNEL_CALLBACK ||
					  obj->class == NV01_EVENT_KERNEL_CALLBACK_EX))
		return NV_ERR_ILLEGAL_ACTION;
	if (who->priv != NVSIM_KERNEL && obj->class == NV01_EVENT)
		return NV_ERR_INVALID_CLASS;
	obj->aux = p->notifyIndex;
	if (obj->class == NV01_EVENT_OS_EVENT) {
		if (!of)
			return NV_ERR_INVALID_OBJECT_HANDLE;
		/* A client raises none; what is not named is the parent. */
		if (p->hSrcResource ? !nvsim_object_find(of, p->hSrcResource) : !obj->parent)
			return NV_ERR_OBJECT_NOT_FOUND;
		/* The number that ALLOC_OS_EVENT was told, of any caller, and no descriptor. */
		if (!nvsim_os_event_exists(obj->client->handle, (u32)p->data))
			return NV_ERR_OBJECT_NOT_FOUND;
	}
	return NV_OK;
}

/* The caller is checked after the parent: the class itself is open to all. */
static u32 make_registers(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	return who->priv < NVSIM_USER_ROOT ? NV_ERR_INSUFFICIENT_PERMISSIONS : NV_OK;
}

/* display: these cards have none */
static u32 make_display(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	return NV_ERR_NOT_SUPPORTED;
}

static u32 make_physical(struct nvsim_object *obj, void *params, const struct nvsim_caller *who)
{
	struct nv_physical_alloc *p = params;

	p->memSize = obj->card->pma_total;
	return NV_OK;
}

#define MEMORY_SIZE sizeof(struct nv_memory_alloc)
static const struct rm_class classes[] = {
	{ NV01_DEVICE_0, UNDER_CLIENT, sizeof(struct nv0080_alloc), true, false, make_device },
	{ NV20_SUBDEVICE_0, UNDER_DEVICE, 4, true, false, make_subdevice },
	{ NV01_MEMORY_LOCAL_USER, UNDER_DEVICE | UNDER_SUBDEVICE, MEMORY_SIZE, false, false,
	  make_vidmem },
	{ NV01_MEMORY_SYSTEM, UNDER_DEVICE, MEMORY_SIZE, false, false, make_sysmem },
	{ NV_MEMORY_EXTENDED_USER, UNDER_DEVICE, MEMORY_SIZE, false, false, make_sysmem },
	{ NV50_MEMORY_VIRTUAL, UNDER_DEVICE, MEMORY_SIZE, false, false, make_virtual },
	{ NV01_MEMORY_VIRTUAL, UNDER_DEVICE, sizeof(struct nv_memory_virtual_alloc), false, false,
	  make_plain },
	{ NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, UNDER_DEVICE, 40, false, false,
	  make_os_descriptor },
	{ NV01_MEMORY_DEVICELESS, UNDER_CLIENT, MEMORY_SIZE, false, false, make_deviceless },
	{ NV_EVENT_BUFFER, UNDER_CLIENT, sizeof(struct nv_event_buffer_alloc), false, false,
	  make_event_buffer },
	{ FERMI_VASPACE_A, UNDER_DEVICE | UNDER_SUBDEVICE, 48, false, false, make_vaspace },
	{ KEPLER_CHANNEL_GROUP_A, UNDER_DEVICE, sizeof(struct nv_group_alloc), false, false,
	  make_group },
	{ FERMI_CONTEXT_SHARE_A, UNDER_GROUP, sizeof(struct nv_ctxshare_alloc), false, false,
	  make_ctxshare },
	{ NV01_EVENT, UNDER_ANY, sizeof(struct nv0005_alloc), false, false, make_event },
	{ NV01_EVENT_OS_EVENT, UNDER_ANY, sizeof(struct nv0005_alloc), false, false, make_event },
	{ NV01_EVENT_KERNEL_CALLBACK, UNDER_ANY, sizeof(struct nv0005_alloc), false, false,
	  make_event },
	{ NV01_EVENT_KERNEL_CALLBACK_EX, UNDER_ANY, sizeof(struct nv0005_alloc), false, false,
	  make_event },
	{ 0xcb33, UNDER_CLIENT, 4, true, false, make_plain },	/* CONFIDENTIAL_COMPUTE */
	{ RM_USER_SHARED_DATA, UNDER_SUBDEVICE, 8, false, false, make_shared_data },
	{ 0xc639, UNDER_CLIENT, 64, false, false, make_plain },	/* SMC config session */
	{ 0xc640, UNDER_CLIENT, 64, false, false, make_plain },	/* SMC monitor session */
	{ 0x900e, UNDER_CLIENT, 0, true, false, make_plain },	/* MPS_COMPUTE */
	{ 0x503c, UNDER_SUBDEVICE, 4, true, false, make_plain },	/* THIRD_PARTY_P2P */
	{ 0x90e6, UNDER_SUBDEVICE, 0, true, false, make_plain },	/* MASTER */
	{ 0x90e7, UNDER_SUBDEVICE, 0, true, false, make_plain },	/* BBX */
	{ 0x208f, UNDER_SUBDEVICE, 0, true, false, make_plain },	/* DIAG */
	{ NV2081_BINAPI, UNDER_SUBDEVICE, 4, true, false, make_plain },
	{ GT200_DEBUGGER, UNDER_DEVICE, 12, false, false, make_plain },
	{ NV04_DISPLAY_COMMON, UNDER_DEVICE, 0, true, false, make_display },
	{ NV01_CONTEXT_DMA, UNDER_ANY, 0, true, false, make_plain },
	{ NV01_MEMORY_LOCAL_PHYSICAL, UNDER_DEVICE, sizeof(struct nv_physical_alloc), false, true,
	  make_physical },
	{ NV01_MEMORY_LOCAL_PRIVILEGED, UNDER_DEVICE, 0, true, false, make_registers },
	{ NV01_MEMORY_LIST_SYSTEM, UNDER_DEVICE | UNDER_SUBDEVICE, 80, false, true, make_plain },
	{ NV01_MEMORY_LIST_FBMEM, UNDER_DEVICE | UNDER_SUBDEVICE, 80, false, true, make_plain },
	{ NV01_MEMORY_LIST_OBJECT, UNDER_DEVICE | UNDER_SUBDEVICE, 80, false, true, make_plain },
	{ NV01_MEMORY_FRAMEBUFFER_CONSOLE, UNDER_DEVICE, 0, true, true, make_plain },
};

/* Classes of the card's generation; an object of another one is INVALID_CLASS. */
static const struct rm_class channel_class = { 0, UNDER_DEVICE | UNDER_GROUP,
	NV_CHANNEL_ALLOC_SIZE_550, false, false, make_channel };
static const struct rm_class usermode_class = { 0, UNDER_SUBDEVICE, 2, true, false, make_plain };
static const struct rm_class engine_class = { 0, UNDER_CHANNEL, 8, true, false, make_plain };

static const struct rm_class *class_find(u32 class)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(classes); i++)
		if (classes[i].class == class)
			return &classes[i];
	if (nvsim_class_is_channel(class))
		return &channel_class;
	if (nvsim_class_is_usermode(class))
		return &usermode_class;
	if (nvsim_class_is_compute(class) || nvsim_class_is_copy(class))
		return &engine_class;
	return NULL;
}

static int params_size(u32 class)
{
	const struct rm_class *c;

	if (class == NV01_ROOT || class == NV01_ROOT_NON_PRIV || class == NV01_ROOT_CLIENT)
		return 4;
	c = class_find(class);
	if (!c)
		return 0;
	if (c->size == MEMORY_SIZE && nvsim_branch == 535)
		return 120;
	if (c == &channel_class && nvsim_branch >= 610)
		return NV_CHANNEL_ALLOC_SIZE_610;
	if (c == &channel_class && nvsim_branch >= 570)
		return NV_CHANNEL_ALLOC_SIZE_570;
	if (class == FERMI_VASPACE_A && nvsim_branch >= 580)
		return 56;
	return c->size;
}

/* Bytes that the driver copies for a class; it ignores the caller's paramsSize. */
int nvsim_alloc_params_size(u32 class)
{
	return params_size(class) + (class && class == grown_class ? 8 : 0);
}

static bool class_of_card(u32 class, const struct nvsim_card *card)
{
	const struct nvsim_model *m = card->model;

	if (nvsim_class_is_channel(class))
		return class == m->channel_class;
	if (nvsim_class_is_usermode(class))
		return class <= m->usermode_class;
	if (nvsim_class_is_compute(class))
		return class == m->compute_class;
	if (nvsim_class_is_copy(class))
		return class == m->copy_class;
	return true;
}

static u32 parent_kind(struct nvsim_object *parent)
{
	if (!parent)
		return UNDER_CLIENT;
	if (parent->class == NV01_DEVICE_0)
		return UNDER_DEVICE;
	if (parent->class == NV20_SUBDEVICE_0)
		return UNDER_SUBDEVICE;
	if (parent->class == KEPLER_CHANNEL_GROUP_A)
		return UNDER_GROUP;
	if (nvsim_class_is_channel(parent->class))
		return UNDER_CHANNEL;
	return 0;
}

u32 nvsim_rm_alloc(u32 root, u32 parent, u32 *handle, u32 class, void *params, u32 size,
		   const struct nvsim_caller *who)
{
	struct nvsim_client *client;
	const struct rm_class *c;
	struct nvsim_object *obj, *up = NULL;
	u32 status, want = *handle;

	if (class == NV01_ROOT || class == NV01_ROOT_NON_PRIV || class == NV01_ROOT_CLIENT) {
		/* Its handle is the root that the caller names; that for an object is not read. */
		if (parent && parent != root)
			return NV_ERR_OBJECT_NOT_FOUND;
		*handle = root;
		status = nvsim_client_create(handle, who, &client);
		if (status != NV_OK)
			*handle = want;
		if (status == NV_OK && params && size >= 4)
			*(u32 *)params = *handle;
		return status;
	}
	c = class_find(class);
	if (!c)
		return NV_ERR_INVALID_CLASS;
	if (c->size && !c->optional && !params)
		return NV_ERR_INVALID_ARGUMENT;
	client = nvsim_client_validate(root, who);
	if (!client)
		return nvsim_client_refusal(root);
	if (c->privileged && who->priv < NVSIM_USER_ROOT)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if (parent != root) {
		up = nvsim_object_find(client, parent);
		if (!up)
			return NV_ERR_OBJECT_NOT_FOUND;
	}
	if (!(c->parents & UNDER_ANY) && !(c->parents & parent_kind(up)))
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (up && up->card && !class_of_card(class, up->card))
		return NV_ERR_INVALID_CLASS;
	obj = nvsim_object_new(client, parent, handle, class, &status);
	if (!obj) {
		*handle = want;
		return status;
	}
	status = c->make(obj, params, who);
	if (status != NV_OK) {
		nvsim_object_free(obj);
		*handle = want;
	}
	return status;
}
