// SPDX-License-Identifier: GPL-2.0-only
/* RM objects: the tree, handles, dependents and the recursive free. */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "nvsim.h"

#define UNIQUE_HANDLE_BASE	0xcaf00000u
#define UNIQUE_HANDLE_RANGE	0x80000u

atomic_long_t nvsim_live_objects;

/* A dependency of one object on another: when the target is freed, the user goes first. */
struct nvsim_dep {
	struct nvsim_object *user, *target;
	struct list_head of_user, of_target;
};

struct nvsim_object *nvsim_object_find(struct nvsim_client *client, u32 handle)
{
	return xa_load(&client->objects, handle);
}

bool nvsim_object_exists(struct nvsim_client *client, u32 handle)
{
	return handle == client->handle || nvsim_object_find(client, handle);
}

static u32 object_choose_handle(struct nvsim_client *client)
{
	u32 tries, h;

	for (tries = 0; tries < UNIQUE_HANDLE_RANGE; tries++) {
		h = UNIQUE_HANDLE_BASE + client->handle_gen++ % UNIQUE_HANDLE_RANGE;
		if (h != client->handle && !nvsim_object_find(client, h))
			return h;
	}
	return 0;
}

/* parent == the client's own handle makes a child of the client. */
struct nvsim_object *nvsim_object_new(struct nvsim_client *client, u32 parent, u32 *handle,
				      u32 class, u32 *status)
{
	struct nvsim_object *obj, *up = NULL;

	if (parent != client->handle) {
		up = nvsim_object_find(client, parent);
		if (!up) {
			*status = NV_ERR_OBJECT_NOT_FOUND;
			return NULL;
		}
	}
	if (!*handle) {
		*handle = object_choose_handle(client);
		if (!*handle) {
			*status = NV_ERR_INSUFFICIENT_RESOURCES;
			return NULL;
		}
	} else if (*handle == client->handle) {
		*status = nvsim_branch >= 550 ? NV_ERR_INVALID_OBJECT_PARENT :
						NV_ERR_INVALID_OBJECT_HANDLE;
		return NULL;
	} else if (nvsim_object_find(client, *handle)) {
		*status = NV_ERR_INSERT_DUPLICATE_NAME;
		return NULL;
	}
	obj = kzalloc(sizeof(*obj), GFP_KERNEL);
	if (!obj || xa_is_err(xa_store(&client->objects, *handle, obj, GFP_KERNEL))) {
		kfree(obj);
		*status = NV_ERR_NO_MEMORY;
		return NULL;
	}
	obj->handle = *handle;
	obj->class = class;
	obj->client = client;
	obj->parent = up;
	obj->card = up ? up->card : NULL;
	INIT_LIST_HEAD(&obj->children);
	INIT_LIST_HEAD(&obj->dependents);
	INIT_LIST_HEAD(&obj->depends_on);
	INIT_LIST_HEAD(&obj->windows);
	list_add_tail(&obj->sibling, up ? &up->children : &client->roots);
	atomic_long_inc(&nvsim_live_objects);
	*status = NV_OK;
	return obj;
}

int nvsim_object_depend(struct nvsim_object *user, struct nvsim_object *target)
{
	struct nvsim_dep *dep = kmalloc(sizeof(*dep), GFP_KERNEL);

	if (!dep)
		return -ENOMEM;
	dep->user = user;
	dep->target = target;
	list_add(&dep->of_user, &user->depends_on);
	list_add(&dep->of_target, &target->dependents);
	return 0;
}

/* Depth is bounded by the class rules: no class may parent itself. */
void nvsim_object_free(struct nvsim_object *obj)
{
	struct nvsim_dep *dep;

	while (!list_empty(&obj->dependents)) {
		dep = list_first_entry(&obj->dependents, struct nvsim_dep, of_target);
		nvsim_object_free(dep->user);
	}
	while (!list_empty(&obj->children))
		nvsim_object_free(list_last_entry(&obj->children, struct nvsim_object, sibling));
	while (!list_empty(&obj->depends_on)) {
		dep = list_first_entry(&obj->depends_on, struct nvsim_dep, of_user);
		list_del(&dep->of_user);
		list_del(&dep->of_target);
		kfree(dep);
	}
	nvsim_debug("free client %x handle %x class %x\n", obj->client->handle, obj->handle,
		    obj->class);
	if (obj->chan)
		nvsim_chan_destroy(obj->chan);
	if (obj->tsg)
		nvsim_tsg_put(obj->tsg);
	if (obj->evbuf)
		nvsim_evbuf_free(obj->evbuf);
	if (obj->kmap)
		vunmap(obj->kmap);
	nvsim_unmap_windows(obj);
	if (obj->space)
		nvsim_space_put(obj->space);
	nvsim_mem_put(obj->mem);
	list_del(&obj->sibling);
	xa_erase(&obj->client->objects, obj->handle);
	kfree(obj);
	atomic_long_dec(&nvsim_live_objects);
}

u32 nvsim_rm_free(u32 root, u32 handle, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(root, who);
	struct nvsim_object *obj;

	if (!client)
		return nvsim_client_refusal(root);
	if (handle == root) {
		nvsim_client_destroy(client);
		return NV_OK;
	}
	obj = nvsim_object_find(client, handle);
	/* A handle that names nothing is no error to the driver. */
	if (obj)
		nvsim_object_free(obj);
	return NV_OK;
}
