// SPDX-License-Identifier: GPL-2.0-only
/*
 * nvidia_get_rm_ops(): RM calls for other kernel modules, at kernel privilege,
 * on any client, with kernel buffers. nv-modeset-interface.h, nv-gpu-info.h and
 * nv-kernel-rmapi-ops.h define the layouts.
 */
#include <linux/module.h>
#include <linux/string.h>
#include "nvsim.h"

struct nv_gpu_info { u32 gpu_id, domain; u8 bus, slot, function, pad; void *os_device_ptr; };

struct nvidia_modeset_rm_ops {
	const char *version_string;
	struct { u8 allow_write_combining; u8 pad[7]; } system_info;
	int (*alloc_stack)(void **sp);
	void (*free_stack)(void *sp);
	u32 (*enumerate_gpus)(struct nv_gpu_info *info);
	/* until 590 without the last argument */
	int (*open_gpu)(u32 gpu_id, void *sp, u8 reset_aware);
	void (*close_gpu)(u32 gpu_id, void *sp, u8 reset_aware);
	void (*op)(void *sp, void *cmd);
	int (*set_callbacks)(const void *cb);
};

enum {
	OP_FREE = 0x00,
	OP_ALLOC_MEMORY = 0x02,
	OP_ALLOC = 0x15,
	OP_VID_HEAP = 0x20,
	OP_MAP_MEMORY = 0x21,
	OP_UNMAP_MEMORY = 0x22,
	OP_CONTROL = 0x36,
	OP_DUP = 0x37,
	OP_SHARE = 0x3e
};

struct kernel_rmapi_ops {
	u32 op;
	union {
		struct nvos00 free;
		struct nvos02 allocMemory;
		struct nvos21 alloc21;	/* up to 570 */
		struct nvos64 alloc64;	/* from 580 on */
		struct nvos32 *vidHeap;
		struct nvos33 map;
		struct nvos34 unmap;
		struct nvos54 control;
		struct nvos55 dup;
		struct nvos57 share;
	} p;
};

static const void *callbacks;

static int ops_alloc_stack(void **sp)
{
	*sp = NULL;	/* no alternate stack, as in the open build */
	return 0;
}

static void ops_free_stack(void *sp)
{
}

static u32 ops_enumerate(struct nv_gpu_info *info)
{
	int i;

	for (i = 0; i < nvsim_ncards; i++)
		info[i] = (struct nv_gpu_info){ .gpu_id = nvsim_cards[i].gpu_id,
						.bus = nvsim_cards[i].bus };
	return nvsim_ncards;
}

/*
 * An argument that the caller omits is whatever the register holds. Such a call is refused here:
 * our bridge's client is always counted in a reset of the card.
 */
static int ops_open_gpu(u32 gpu_id, void *sp, u8 reset_aware)
{
	if (nvsim_branch >= 595 && reset_aware)
		return -EINVAL;
	return nvsim_gpu_get(gpu_id);
}

static void ops_close_gpu(u32 gpu_id, void *sp, u8 reset_aware)
{
	WARN(nvsim_branch >= 595 && reset_aware, "closed as if the driver had not counted it");
	nvsim_gpu_put(gpu_id);
}

static void ops_op(void *sp, void *cmd)
{
	const struct nvsim_caller who = { .priv = NVSIM_KERNEL };
	struct kernel_rmapi_ops *c = cmd;

	mutex_lock(&rm_lock);
	switch (c->op) {
	case OP_FREE:
		c->p.free.status = nvsim_rm_free(c->p.free.hRoot, c->p.free.hObjectOld, &who);
		break;
	case OP_ALLOC_MEMORY:
		c->p.allocMemory.status = nvsim_alloc_memory(&c->p.allocMemory, &who);
		break;
	case OP_ALLOC: {
		struct nvos21 *a = &c->p.alloc21;
		u32 *status = nvsim_branch >= 580 ? &c->p.alloc64.status : &a->status;

		*status = nvsim_rm_alloc(a->hRoot, a->hObjectParent, &a->hObjectNew, a->hClass,
					 (void *)(uintptr_t)a->pAllocParms,
					 nvsim_alloc_params_size(a->hClass), &who);
		break;
	}
	case OP_VID_HEAP:
		nvsim_vid_heap(c->p.vidHeap, &who);
		break;
	case OP_UNMAP_MEMORY:
		c->p.unmap.status = nvsim_unmap_kernel(&c->p.unmap, &who);
		break;
	case OP_CONTROL: {
		struct nvos54 *p = &c->p.control;

		if (!p->paramsSize != !p->params)
			p->status = NV_ERR_INVALID_ARGUMENT;
		else
			p->status = nvsim_rm_control(p, (void *)(uintptr_t)p->params, &who);
		break;
	}
	case OP_DUP:
		c->p.dup.status = nvsim_dup_object(&c->p.dup, &who);
		break;
	case OP_SHARE:
		c->p.share.status = nvsim_share(&c->p.share, &who);
		break;
	case OP_MAP_MEMORY:
		c->p.map.status = nvsim_map_kernel(&c->p.map, &who);
		break;
	}
	mutex_unlock(&rm_lock);
}

static int ops_set_callbacks(const void *cb)
{
	if (!callbacks == !cb)
		return -EINVAL;
	callbacks = cb;
	return 0;
}

u32 nvidia_get_rm_ops(struct nvidia_modeset_rm_ops *ops);

u32 nvidia_get_rm_ops(struct nvidia_modeset_rm_ops *ops)
{
	if (strcmp(ops->version_string, nvsim_version)) {
		ops->version_string = nvsim_version;
		return NV_ERR_GENERIC;
	}
	*ops = (struct nvidia_modeset_rm_ops){
		.version_string = nvsim_version,
		.system_info = { .allow_write_combining = 1 },
		.alloc_stack = ops_alloc_stack,
		.free_stack = ops_free_stack,
		.enumerate_gpus = ops_enumerate,
		.open_gpu = ops_open_gpu,
		.close_gpu = ops_close_gpu,
		.op = ops_op,
		.set_callbacks = ops_set_callbacks,
	};
	return NV_OK;
}
EXPORT_SYMBOL(nvidia_get_rm_ops);
