// SPDX-License-Identifier: GPL-2.0-only
/* Controls of the client itself: which cards there are, sharing, export and import. */
#include <linux/file.h>
#include <linux/string.h>
#include "nvsim.h"

#define NV0000_CTRL_GPU_MAX_ATTACHED_GPUS 32
#define NV0000_CTRL_GPU_INVALID_ID 0xffffffffu

static u32 gpu_ids(struct nvsim_ctl *c)
{
	u32 *ids = c->p;
	int i;

	for (i = 0; i < NV0000_CTRL_GPU_MAX_ATTACHED_GPUS; i++)
		ids[i] = i < nvsim_ncards ? nvsim_cards[i].gpu_id : NV0000_CTRL_GPU_INVALID_ID;
	return NV_OK;
}

static u32 probed_ids(struct nvsim_ctl *c)
{
	u32 *ids = c->p;
	int i;

	gpu_ids(c);
	for (i = NV0000_CTRL_GPU_MAX_ATTACHED_GPUS; i < c->size / 4; i++)
		ids[i] = NV0000_CTRL_GPU_INVALID_ID;	/* none excluded */
	return NV_OK;
}

/* gpuId flags deviceInstance subDeviceInstance [szName] sliStatus boardId gpuInstance numaId */
static u32 id_info(struct nvsim_ctl *c)
{
	u32 *p = c->p;
	struct nvsim_card *card = nvsim_card_by_gpu_id(p[0]);
	int o = c->size > 32 ? 2 : 0;	/* the first version carries a name pointer */

	if (!card)
		return NV_ERR_INVALID_ARGUMENT;
	p[1] = 1 << 3;			/* linked into no SLI group; ATTACHED, no display */
	p[2] = card->index;
	p[3] = 0;
	p[4 + o] = 0;
	p[5 + o] = card->gpu_id;
	p[6 + o] = card->index;
	p[7 + o] = 0xffffffff;
	return NV_OK;
}

static u32 pci_info(struct nvsim_ctl *c)
{
	struct { u32 gpuId, domain; u16 bus, slot; } *p = c->p;
	struct nvsim_card *card = nvsim_card_by_gpu_id(p->gpuId);

	/* To the driver, "no card" is one whose place is not known. */
	if (p->gpuId == NV0000_CTRL_GPU_INVALID_ID)
		return NV_OK;
	if (!card)
		return NV_ERR_OBJECT_NOT_FOUND;
	p->domain = 0;
	p->bus = card->bus;
	p->slot = 0;
	return NV_OK;
}

static u32 uuid_info(struct nvsim_ctl *c)
{
	struct { u8 uuid[256]; u32 flags, gpuId, deviceInstance, subdeviceInstance; } *p = c->p;
	struct nvsim_card *card;
	int i;

	for (i = 0; i < nvsim_ncards; i++) {
		card = &nvsim_cards[i];
		if (memcmp(p->uuid, card->uuid, 16) &&
		    strncmp(p->uuid, card->uuid_text, sizeof(p->uuid)))
			continue;
		p->gpuId = card->gpu_id;
		p->deviceInstance = card->index;
		p->subdeviceInstance = 0;
		return NV_OK;
	}
	return NV_ERR_OBJECT_NOT_FOUND;
}

/* gpuUuid[256] uuidStrLen flags after gpuId */
static u32 uuid_from_gpu_id(struct nvsim_ctl *c)
{
	struct { u32 gpuId, flags; u8 uuid[256]; u32 len; } *p = c->p;
	struct nvsim_card *card = nvsim_card_by_gpu_id(p->gpuId);

	if (!card)
		return NV_ERR_OBJECT_NOT_FOUND;
	p->len = nvsim_card_put_uuid(card, p->flags & 1, p->uuid, sizeof(p->uuid));
	return NV_OK;
}

static u32 attach_ids(struct nvsim_ctl *c)
{
	u32 *p = c->p;
	int i;

	for (i = 0; i < NV0000_CTRL_GPU_MAX_ATTACHED_GPUS; i++) {
		if (p[i] == NV0000_CTRL_GPU_INVALID_ID || p[i] == 0x0000ffff)
			break;
		if (!nvsim_card_by_gpu_id(p[i])) {
			p[NV0000_CTRL_GPU_MAX_ATTACHED_GPUS] = p[i];
			return NV_ERR_INVALID_ARGUMENT;
		}
	}
	p[NV0000_CTRL_GPU_MAX_ATTACHED_GPUS] = NV0000_CTRL_GPU_INVALID_ID;
	return NV_OK;
}

/* Here a card stays attached; a caller that detaches one is told that it succeeded. */
static u32 detach_ids(struct nvsim_ctl *c)
{
	u32 *p = c->p;
	int i;

	for (i = 0; i < NV0000_CTRL_GPU_MAX_ATTACHED_GPUS; i++) {
		if (p[i] == NV0000_CTRL_GPU_INVALID_ID || p[i] == 0x0000ffff)
			break;
		if (!nvsim_card_by_gpu_id(p[i]))
			return NV_ERR_INVALID_ARGUMENT;
	}
	return NV_OK;
}

static u32 inherited_share(struct nvsim_ctl *c)
{
	return nvsim_share_add(c->client, NULL, c->p);
}

static u32 share_object(struct nvsim_ctl *c)
{
	struct { u32 hObject; struct nv_share_policy policy; } *p = c->p;
	struct nvsim_object *obj = nvsim_object_find(c->client, p->hObject);

	if (!obj)
		return NV_ERR_OBJECT_NOT_FOUND;
	return nvsim_share_add(c->client, obj, &p->policy);
}

/* hObject index result: parent, or class */
static u32 handle_info(struct nvsim_ctl *c)
{
	struct { u32 hObject, index; u64 result; } *p = c->p;
	struct nvsim_object *obj = nvsim_object_find(c->client, p->hObject);
	bool client = p->hObject == c->client->handle;

	if (!obj && !client)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (p->index == 1)
		p->result = client ? 0 : obj->parent ? obj->parent->handle : c->client->handle;
	else if (p->index == 2)
		p->result = client ? NV01_ROOT_CLIENT : obj->class;
	else
		return NV_ERR_INVALID_ARGUMENT;
	return NV_OK;
}

/* ---- NV0000_CTRL_CMD_OS_UNIX_* ---- */

struct os_unix_object { u32 type, hDevice, hParent, hObject; };

static u32 export_to_fd(struct nvsim_ctl *c)
{
	struct { struct os_unix_object o; s32 fd; u32 flags; } *p = c->p;

	if (p->o.type != 1)
		return NV_ERR_INVALID_PARAMETER;
	if (p->fd == -1)
		return NV_ERR_INVALID_PARAMETER;
	return nvsim_export_object(c->client, p->o.hDevice, p->o.hObject, p->fd);
}

static u32 import_from_fd(struct nvsim_ctl *c)
{
	struct { s32 fd; struct os_unix_object o; } *p = c->p;

	if (p->o.type != 1)
		return NV_ERR_INVALID_PARAMETER;
	return nvsim_import_object(c->client, p->o.hParent, &p->o.hObject, p->fd, 0, NULL);
}

static u32 create_export_fd(struct nvsim_ctl *c)
{
	struct { u32 hDevice; u16 max; u8 metadata[64]; s32 fd; } *p = c->p;

	return nvsim_export_create(c->client, p->hDevice, p->fd, p->max, p->metadata);
}

static u32 export_objects(struct nvsim_ctl *c)
{
	return nvsim_export_objects(c->client, c->p);
}

static u32 export_info(struct nvsim_ctl *c)
{
	struct nvsim_file *nf;
	struct file *ref;
	u32 *p = c->p, status;
	u16 *max;

	nf = nv_get_file_private((s32)p[0], true, &ref);
	if (!nf)
		return NV_ERR_INVALID_PARAMETER;
	memset(p + 1, 0, c->size - 4);
	p[1] = nf->export_device;
	if (nvsim_branch > 535)
		p[2] = 0xffffffff;		/* gpuInstanceId: not partitioned */
	max = (u16 *)((u8 *)p + (nvsim_branch > 535 ? 12 : 8));
	*max = nf->max_exports;
	memcpy(max + 1, nf->export_metadata, sizeof(nf->export_metadata));
	status = nf->exports ? NV_OK : NV_ERR_INVALID_PARAMETER;
	fput(ref);
	return status;
}

/* A failure takes back what has the handles before it, whether that came with this call or not. */
static void import_undo(struct nvsim_client *client, const u32 *handles, int count)
{
	while (count--) {
		struct nvsim_object *obj = nvsim_object_find(client, handles[count]);

		if (handles[count] && obj)
			nvsim_object_free(obj);
	}
}

static u32 import_objects(struct nvsim_ctl *c)
{
	struct { s32 fd; u32 hParent; u32 objects[128]; u8 types[128]; u16 num, index; } *p = c->p;
	u32 status = NV_OK;
	int i;

	if (!p->num || p->num > 128)
		return NV_ERR_INVALID_PARAMETER;
	for (i = 0; i < p->num; i++) {
		status = nvsim_import_object(c->client, p->hParent, &p->objects[i], p->fd,
					     p->index + i, &p->types[i]);
		if (status != NV_OK)
			break;
	}
	if (status != NV_OK)
		import_undo(c->client, p->objects, i);
	return status;
}

const struct nvsim_ctl_entry nvsim_root_controls[] = {
	CTL(0x00000201, CTL_ANY, 128, gpu_ids),
	CTL(0x00000202, CTL_ANY, 0, id_info),
	CTL(0x00000205, CTL_ANY, 32, id_info),
	CTL4(0x00000214, CTL_ANY, 256, 256, 256, 384, probed_ids),
	CTL(0x00000215, CTL_ANY, 0, attach_ids),
	CTL(0x00000216, CTL_ANY, 128, detach_ids),
	CTL(0x0000021b, CTL_ANY, 12, pci_info),
	CTL(0x00000274, CTL_ANY, 0, uuid_info),
	CTL(0x00000275, CTL_ANY, 0, uuid_from_gpu_id),
	CTL(0x00000d02, CTL_ANY, 16, handle_info),
	CTL(0x00000d04, CTL_ANY, 12, inherited_share),
	CTL(0x00000d06, CTL_ANY, 16, share_object),
	CTL(0x00003d05, CTL_ANY, 24, export_to_fd),
	CTL(0x00003d06, CTL_ANY, 20, import_from_fd),
	CTL4(0x00003d08, CTL_ANY, 76, 80, 80, 80, export_info),
	CTL(0x00003d0a, CTL_ANY, 76, create_export_fd),
	CTL(0x00003d0b, CTL_ANY, 2128, export_objects),
	CTL(0x00003d0c, CTL_ANY, 652, import_objects),
	CTL(0x00000136, CTL_ANY, 4, nvsim_ctl_zero),
	{}
};
