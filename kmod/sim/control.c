// SPDX-License-Identifier: GPL-2.0-only
/*
 * RM_CONTROL: finds client and object, checks size and privilege as the driver
 * does, then calls the handler. A control that is not simulated answers
 * NOT_SUPPORTED and, with trace=1, is logged.
 */
#include <linux/capability.h>
#include <linux/string.h>
#include "nvsim.h"

static const struct nvsim_ctl_entry *const tables[] = {
	nvsim_root_controls, nvsim_gpu_controls, nvsim_fifo_controls, nvsim_nvml_controls,
	nvsim_evbuf_controls,
};

static const struct nvsim_ctl_entry *entry_find(u32 cmd)
{
	const struct nvsim_ctl_entry *e;
	int i;

	for (i = 0; i < ARRAY_SIZE(tables); i++)
		for (e = tables[i]; e->fn; e++)
			if (e->cmd == cmd)
				return e;
	return NULL;
}

static const struct nvsim_embedded embedded[] = {
	{ 0x00000101, 0, 1, 8, 4096, 3 },	/* SYSTEM_GET_BUILD_VERSION: three strings */
	{ 0x20801301, 0, 8, 8, 64, 1 },	/* FB_GET_INFO: pairs {index, data} */
	{ 0x20801802, 0, 8, 8, 128, 1 },	/* BUS_GET_INFO */
	{ 0x20800101, 0, 8, 8, 128, 1 },	/* GPU_GET_INFO */
	{ 0x20801201, 0, 8, 8, 128, 1 },	/* GR_GET_INFO */
	{ 0x20800123, 0, 4, 8, 128, 1 },	/* GPU_GET_ENGINES */
	{ 0x00800201, 0, 4, 8, 512, 1 },	/* GPU_GET_CLASSLIST */
	{ 0x00410110, 0, 8, 8, 64, 1 },	/* GET_SURFACE_INFO */
};

const struct nvsim_embedded *nvsim_control_embedded(u32 cmd)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(embedded); i++)
		if (embedded[i].cmd == cmd)
			return &embedded[i];
	return NULL;
}

u32 nvsim_ctl_ok(struct nvsim_ctl *c)
{
	return NV_OK;
}

u32 nvsim_ctl_zero(struct nvsim_ctl *c)
{
	memset(c->p, 0, c->size);
	return NV_OK;
}

struct info { u32 index, data; };

static u32 fill(struct nvsim_ctl *c, struct info *list, u32 n, nvsim_get_info *get)
{
	u32 i, status = NV_OK;

	for (i = 0; i < n && status == NV_OK; i++)
		status = get(c, list[i].index, &list[i].data);
	return status;
}

u32 nvsim_info_at_pointer(struct nvsim_ctl *c, nvsim_get_info *get)
{
	struct { u32 n, pad; u64 list; } *p = c->p;

	return p->list ? fill(c, (void *)(uintptr_t)p->list, p->n, get) : NV_OK;
}

u32 nvsim_info_in_place(struct nvsim_ctl *c, nvsim_get_info *get)
{
	struct { u32 n; struct info list[]; } *p = c->p;

	if (p->n > (c->size - 4) / sizeof(struct info))
		return NV_ERR_INVALID_ARGUMENT;
	return fill(c, p->list, p->n, get);
}

/* A control belongs to the class in its upper half; each object has its class's alone. */
static bool control_fits(u32 cmd, const struct nvsim_object *obj)
{
	u32 class = cmd >> 16;

	if (!obj)
		return class == 0;
	switch (class) {
	case 0x0080: return obj->class == NV01_DEVICE_0;
	case 0x2080: return obj->class == NV20_SUBDEVICE_0;
	case 0x0041: return obj->mem;
	case 0xa06c: return obj->class == KEPLER_CHANNEL_GROUP_A;
	case 0xa06f:
	case 0x906f:
	case 0xb06f:
	case 0xc36f: return obj->chan;
	default: return class == obj->class;
	}
}

static bool privileged_enough(enum nvsim_ctl_priv need, const struct nvsim_caller *who)
{
	switch (need) {
	case CTL_ANY: return true;
	case CTL_NICE: return who->priv >= NVSIM_USER_ROOT || capable(CAP_SYS_NICE);
	case CTL_ROOT: return who->priv >= NVSIM_USER_ROOT;
	case CTL_KERNEL: return who->priv == NVSIM_KERNEL;
	}
	return false;
}

static u32 control(struct nvos54 *p, void *params, const struct nvsim_caller *who)
{
	struct nvsim_ctl c = { .cmd = p->cmd, .size = p->paramsSize, .p = params, .who = who };
	const struct nvsim_ctl_entry *e;
	u32 want;

	/* Of no category and no index: asked of anything, it does nothing. */
	if (!(p->cmd & 0xffff))
		return NV_OK;
	if (who->priv != NVSIM_KERNEL &&
	    p->flags & (NVOS54_FLAGS_IRQL_RAISED | NVOS54_FLAGS_LOCK_BYPASS))
		return NV_ERR_INVALID_ARGUMENT;
	if (!nvsim_client_find(p->hClient))
		return NV_ERR_INVALID_CLIENT;
	e = entry_find(p->cmd);
	if (e) {
		want = e->size[nvsim_branch == 535 ? 0 : nvsim_branch == 550 ? 1 :
			       nvsim_branch == 570 ? 2 : 3];
		if (want && want != p->paramsSize)
			return NV_ERR_INVALID_ARGUMENT;
	}
	if (p->flags & NVOS54_FLAGS_FINN_SERIALIZED)
		return NV_ERR_LIB_RM_VERSION_MISMATCH;
	c.client = nvsim_client_validate(p->hClient, who);
	if (!c.client)
		return NV_ERR_INVALID_CLIENT;
	if (p->hObject != p->hClient) {
		c.obj = nvsim_object_find(c.client, p->hObject);
		if (!c.obj)
			return NV_ERR_OBJECT_NOT_FOUND;
		c.card = c.obj->card;
		/* Memory looks for its device before it looks at the control. */
		if (c.obj->class == NV01_MEMORY_DEVICELESS)
			return NV_ERR_INVALID_OBJECT_PARENT;
	}
	if (!e || !control_fits(p->cmd, c.obj))
		return NV_ERR_NOT_SUPPORTED;
	if (!privileged_enough(e->priv, who))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	return e->fn(&c);
}

u32 nvsim_rm_control(struct nvos54 *p, void *params, const struct nvsim_caller *who)
{
	u32 status = control(p, params, who);

	nvsim_debug("control client %x object %x cmd %08x size %u -> %x\n", p->hClient, p->hObject,
		    p->cmd, p->paramsSize, status);
	return status;
}
