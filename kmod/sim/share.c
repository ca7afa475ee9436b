// SPDX-License-Identifier: GPL-2.0-only
/* Sharing of objects: policies, duplicates, export to and import from a file. */
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include "nvsim.h"

static bool policy_grants(const struct nv_share_policy *p, struct nvsim_client *owner,
			  struct nvsim_client *asks)
{
	if (!(p->accessMask & RS_ACCESS_DUP_OBJECT))
		return false;
	switch (p->type) {
	case RS_SHARE_TYPE_ALL:
		return true;
	case RS_SHARE_TYPE_CLIENT:
		return p->target == asks->handle;
	case RS_SHARE_TYPE_PID:
		return owner->tgid == asks->tgid;
	case RS_SHARE_TYPE_OS_SECURITY_TOKEN:
		return owner->tgid == asks->tgid || uid_eq(owner->euid, asks->euid);
	default:
		return false;
	}
}

/* The nearest list that is somebody's own, upwards; the client's is its first or another. */
static const struct nvsim_shares *shares_of(struct nvsim_client *client,
					    const struct nvsim_object *obj)
{
	while (obj && !obj->shares.own)
		obj = obj->parent;
	return obj ? &obj->shares : &client->shares;
}

static bool may_dup(struct nvsim_object *obj, struct nvsim_client *asks)
{
	struct nvsim_client *owner = obj->client;
	const struct nvsim_shares *shares = shares_of(owner, obj);
	unsigned int i;

	if (owner == asks)
		return true;
	for (i = 0; i < shares->count; i++)
		if (policy_grants(&shares->list[i], owner, asks))
			return true;
	return false;
}

/* rs_client.c: a policy that is not composed replaces all that was there. */
u32 nvsim_share_add(struct nvsim_client *client, struct nvsim_object *obj,
		    const struct nv_share_policy *policy)
{
	struct nvsim_shares *own = obj ? &obj->shares : &client->shares;
	unsigned int i, j;

	if (policy->type >= RS_SHARE_TYPE_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	if (!(policy->action & RS_SHARE_ACTION_FLAG_COMPOSE))
		own->count = 0;
	else if (!own->own)
		*own = *shares_of(client, obj);
	own->own = true;
	if (policy->action & RS_SHARE_ACTION_FLAG_REVOKE) {
		for (i = j = 0; i < own->count; i++)
			if (own->list[i].type != policy->type ||
			    own->list[i].target != policy->target)
				own->list[j++] = own->list[i];
		own->count = j;
		return NV_OK;
	}
	if (own->count == NVSIM_MAX_SHARES)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	own->list[own->count++] = *policy;
	return NV_OK;
}

u32 nvsim_share(struct nvos57 *p, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(p->hClient, who);
	struct nvsim_object *obj = NULL;

	if (!client)
		return nvsim_client_refusal(p->hClient);
	if (p->policy.type >= RS_SHARE_TYPE_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->policy.type == RS_SHARE_TYPE_CLIENT && !nvsim_client_find(p->policy.target))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (p->hObject != p->hClient) {
		obj = nvsim_object_find(client, p->hObject);
		if (!obj)
			return NV_ERR_OBJECT_NOT_FOUND;
	}
	return nvsim_share_add(client, obj, &p->policy);
}

/* resCanCopy() of the driver's classes; memory of no device is not among them. */
static bool can_dup(const struct nvsim_object *obj)
{
	return obj->class == KEPLER_CHANNEL_GROUP_A || obj->class == FERMI_VASPACE_A ||
	       obj->class == FERMI_CONTEXT_SHARE_A || nvsim_class_is_usermode(obj->class) ||
	       (obj->mem && obj->class != NV01_MEMORY_DEVICELESS);
}

/* An object for this address space below the device, or below one of its subdevices. */
static struct nvsim_object *space_below(struct nvsim_object *above, u64 id)
{
	struct nvsim_object *obj, *found;

	list_for_each_entry(obj, &above->children, sibling) {
		if (obj->space && obj->space->id == id)
			return obj;
		found = obj->class == NV20_SUBDEVICE_0 ? space_below(obj, id) : NULL;
		if (found)
			return found;
	}
	return NULL;
}

/*
 * What runs in an address space goes with it, a duplicate with the object for it that the
 * duplicate's own device has, if any: whatever that is called, and whoever made it.
 */
static u32 depend_on_space(struct nvsim_object *obj, struct nvsim_object *device)
{
	struct nvsim_object *space = obj->in_space ? space_below(device, obj->in_space) : NULL;

	return space && nvsim_object_depend(obj, space) ? NV_ERR_NO_MEMORY : NV_OK;
}

static bool may_be_below(const struct nvsim_object *source, const struct nvsim_object *up)
{
	if (source->class == FERMI_CONTEXT_SHARE_A)
		return up->class == KEPLER_CHANNEL_GROUP_A;
	if (source->tsg)
		return up->class == NV01_DEVICE_0;
	if (source->space)
		return up->class == NV01_DEVICE_0 || up->class == NV20_SUBDEVICE_0;
	return up->class == NV20_SUBDEVICE_0;
}

/* Of what is no memory: it stays on its own card, wherever its duplicate is put. */
static u32 object_dup(struct nvsim_client *client, u32 parent, u32 *handle,
		      struct nvsim_object *source)
{
	struct nvsim_object *obj, *up = nvsim_object_find(client, parent);
	bool shares_context = source->class == FERMI_CONTEXT_SHARE_A;
	u32 want = *handle, status;

	if (!up && !nvsim_object_exists(client, parent))
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!up || !may_be_below(source, up))
		return shares_context ? NV_ERR_INVALID_OBJECT_HANDLE :
					NV_ERR_INVALID_OBJECT_PARENT;
	obj = nvsim_object_new(client, parent, handle, source->class, &status);
	if (!obj) {
		*handle = want;
		return status;
	}
	obj->card = source->card;
	obj->aux = source->aux;
	obj->in_space = source->in_space;
	obj->duplicate = true;
	if (source->tsg)
		obj->tsg = nvsim_tsg_get(source->tsg);
	if (source->space) {
		obj->space = source->space;
		obj->space->objects++;
	}
	status = depend_on_space(obj, shares_context ? up->parent : up);
	if (status != NV_OK) {
		nvsim_object_free(obj);
		*handle = want;
	}
	return status;
}

static struct nvsim_object *object_dup_mem(struct nvsim_client *client, u32 parent, u32 *handle,
					   u32 class, struct nvsim_mem *mem, u32 *status)
{
	struct nvsim_object *obj, *up;
	u32 want = *handle;

	up = nvsim_object_find(client, parent);
	if (!up && !nvsim_object_exists(client, parent)) {
		*status = NV_ERR_OBJECT_NOT_FOUND;
		return NULL;
	}
	if (!up || (up->class != NV01_DEVICE_0 && up->class != NV20_SUBDEVICE_0)) {
		*status = NV_ERR_INVALID_OBJECT_PARENT;
		return NULL;
	}
	if (mem->card && mem->card != up->card) {
		*status = NV_ERR_INVALID_DEVICE;
		return NULL;
	}
	obj = nvsim_object_new(client, parent, handle, class, status);
	if (!obj) {
		*handle = want;
		return NULL;
	}
	obj->mem = nvsim_mem_get(mem);
	obj->duplicate = true;
	return obj;
}

u32 nvsim_dup_object(struct nvos55 *p, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(p->hClient, who);
	struct nvsim_client *source = nvsim_client_find(p->hClientSrc);
	struct nvsim_object *obj;
	u32 status;

	if (!client)
		return nvsim_client_refusal(p->hClient);
	if (!source)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (p->hObjectSrc == p->hClientSrc)	/* a client is not duplicated */
		return NV_ERR_INVALID_ARGUMENT;
	obj = nvsim_object_find(source, p->hObjectSrc);
	if (!obj)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!can_dup(obj))
		return NV_ERR_INVALID_ARGUMENT;
	if (who->priv != NVSIM_KERNEL && !may_dup(obj, client))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if (!obj->mem)
		return object_dup(client, p->hParent, &p->hObject, obj);
	object_dup_mem(client, p->hParent, &p->hObject, obj->class, obj->mem, &status);
	return status;
}

/* ---- a control file as the carrier of objects ---- */

static struct nvsim_file *export_file(int fd, struct file **ref)
{
	struct nvsim_file *nf = nv_get_file_private(fd, true, ref);

	if (nf && !list_empty(&nf->clients)) {
		fput(*ref);	/* a file that has clients cannot carry objects */
		return NULL;
	}
	return nf;
}

/* Of memory alone: the driver can carry more. */
static u32 export_of(struct nvsim_client *client, u32 handle, struct nvsim_export *export,
		     u32 *device)
{
	struct nvsim_object *obj = nvsim_object_find(client, handle);

	if (!obj)
		return handle == client->handle ? NV_ERR_INVALID_ARGUMENT :
						  NV_ERR_OBJECT_NOT_FOUND;
	if (!can_dup(obj))
		return NV_ERR_INVALID_ARGUMENT;
	if (!obj->mem)
		return NV_ERR_NOT_SUPPORTED;
	export->mem = nvsim_mem_get(obj->mem);
	export->class = obj->class;
	*device = obj->card ? obj->card->index : NVSIM_NO_DEVICE;
	return NV_OK;
}

static void export_drop(struct nvsim_export *export)
{
	if (export->mem)
		nvsim_mem_put(export->mem);
	export->mem = NULL;
}

void nvsim_export_release(struct nvsim_file *nf)
{
	unsigned int i;

	for (i = 0; i < nf->max_exports; i++)
		export_drop(&nf->exports[i]);
	kfree(nf->exports);
	nf->exports = NULL;
	nf->max_exports = 0;
}

/* So many places, empty all of them, for objects of a device, or of none. */
static u32 carrier_begin(struct nvsim_client *client, struct nvsim_file *nf, u32 hDevice,
			 unsigned int max, const u8 *metadata)
{
	struct nvsim_object *device;

	if (nf->exports)
		return NV_ERR_STATE_IN_USE;
	nf->export_device = NVSIM_NO_DEVICE;
	if (hDevice) {
		device = nvsim_object_find(client, hDevice);
		if (!device)
			return hDevice == client->handle ? NV_ERR_INVALID_PARAMETER :
							   NV_ERR_OBJECT_NOT_FOUND;
		if (device->class != NV01_DEVICE_0)
			return NV_ERR_INVALID_PARAMETER;
		nf->export_device = device->card->index;
	}
	nf->exports = kcalloc(max, sizeof(*nf->exports), GFP_KERNEL);
	if (!nf->exports)
		return NV_ERR_NO_MEMORY;
	nf->max_exports = max;
	if (metadata)
		memcpy(nf->export_metadata, metadata, sizeof(nf->export_metadata));
	return NV_OK;
}

u32 nvsim_export_create(struct nvsim_client *client, u32 hDevice, int fd, unsigned int max,
			const u8 *metadata)
{
	struct nvsim_file *nf;
	struct file *ref;
	u32 status;

	if (!max)
		return NV_ERR_INVALID_PARAMETER;
	nf = nv_get_file_private(fd, true, &ref);
	if (!nf)
		return NV_ERR_INVALID_PARAMETER;
	status = carrier_begin(client, nf, hDevice, max, metadata);
	fput(ref);
	return status;
}

u32 nvsim_export_object(struct nvsim_client *client, u32 hDevice, u32 handle, int fd)
{
	struct nvsim_export export = {};
	struct nvsim_file *nf;
	struct file *ref;
	u32 status, device;

	status = export_of(client, handle, &export, &device);
	if (status != NV_OK)
		return status;
	nf = export_file(fd, &ref);
	if (!nf) {
		export_drop(&export);
		return NV_ERR_INVALID_ARGUMENT;
	}
	status = carrier_begin(client, nf, hDevice, 1, NULL);
	if (status == NV_OK)
		nf->exports[0] = export;
	else
		export_drop(&export);
	fput(ref);
	return status;
}

/* An object that comes to a place replaces the one there; all of them, or none. */
static u32 export_list(struct nvsim_client *client, struct nvsim_file *nf,
		       const struct nvsim_export_list *list)
{
	struct nvsim_export *exports;
	u32 status = NV_OK, device;
	unsigned int i;

	if (list->num > NVSIM_EXPORT_LIST)
		return NV_ERR_INVALID_PARAMETER;
	if (list->index + list->num > nf->max_exports)
		return NV_ERR_OUT_OF_RANGE;
	exports = kcalloc(list->num, sizeof(*exports), GFP_KERNEL);
	if (!exports)
		return NV_ERR_NO_MEMORY;
	for (i = 0; i < list->num && status == NV_OK; i++) {
		if (!list->objects[i])
			continue;
		status = export_of(client, list->objects[i], &exports[i], &device);
		if (status == NV_OK && device != nf->export_device)
			status = NV_ERR_INVALID_PARAMETER;
	}
	for (i = 0; i < list->num; i++) {
		if (status != NV_OK) {
			export_drop(&exports[i]);
			continue;
		}
		export_drop(&nf->exports[list->index + i]);
		nf->exports[list->index + i] = exports[i];
	}
	kfree(exports);
	return status;
}

u32 nvsim_export_objects(struct nvsim_client *client, const struct nvsim_export_list *list)
{
	struct nvsim_file *nf;
	struct file *ref;
	bool begun = false;
	u32 status = NV_OK;

	nf = nv_get_file_private(list->fd, true, &ref);
	if (!nf)
		return NV_ERR_INVALID_PARAMETER;
	if (!nf->exports) {
		status = list->max ? carrier_begin(client, nf, list->hDevice, list->max,
						   list->metadata) :
				     NV_ERR_INVALID_PARAMETER;
		begun = status == NV_OK;
	}
	if (status == NV_OK)
		status = export_list(client, nf, list);
	if (status != NV_OK && begun)
		nvsim_export_release(nf);
	fput(ref);
	return status;
}

u32 nvsim_import_object(struct nvsim_client *client, u32 parent, u32 *handle, int fd,
			unsigned int place, u8 *type)
{
	struct nvsim_export *export;
	struct nvsim_file *nf;
	struct file *ref;
	u32 status = NV_OK;

	nf = nv_get_file_private(fd, true, &ref);
	if (!nf)
		return NV_ERR_INVALID_PARAMETER;
	export = place < nf->max_exports ? &nf->exports[place] : NULL;
	if (!nf->exports || (!type && (!export || !export->mem))) {
		status = NV_ERR_INVALID_PARAMETER;
	} else if (!export) {
		status = NV_ERR_OUT_OF_RANGE;
	} else if (!export->mem) {
		*type = NVSIM_IMPORT_NONE;
	} else {
		object_dup_mem(client, parent, handle, export->class, export->mem, &status);
		if (type)
			*type = export->mem->card ? NVSIM_IMPORT_VIDMEM : NVSIM_IMPORT_SYSMEM;
	}
	fput(ref);
	return status;
}
