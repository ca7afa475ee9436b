// SPDX-License-Identifier: GPL-2.0-only
/* RM clients: handles, ownership by the open file, share policies. */
#include <linux/cred.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include "nvsim.h"

#define CLIENT_HANDLE_BASE	0xc1d00000u
#define CLIENT_HANDLE_MAX	0xfffffu
#define KERNEL_CLIENT_BASE	0xc1e00000u

DEFINE_MUTEX(rm_lock);
static DEFINE_XARRAY_ALLOC(clients);
static u32 next_user, next_kernel;

static bool reuse_handles;
module_param(reuse_handles, bool, 0644);
MODULE_PARM_DESC(reuse_handles, "give out the lowest free client handle instead of the next one");

struct nvsim_client *nvsim_client_find(u32 handle)
{
	return xa_load(&clients, handle);
}

/*
 * The driver's own test: the client's creating file must be the caller's.
 * No pid, no uid. A kernel caller may name any client.
 */
struct nvsim_client *nvsim_client_validate(u32 handle, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_find(handle);

	if (!client)
		return NULL;
	if (who->priv == NVSIM_KERNEL)
		return client;
	return client->owner == who->owner ? client : NULL;
}

u32 nvsim_client_refusal(u32 handle)
{
	return nvsim_client_find(handle) ? NV_ERR_INVALID_CLIENT : NV_ERR_INVALID_OBJECT_HANDLE;
}

u32 nvsim_client_create(u32 *handle, const struct nvsim_caller *who, struct nvsim_client **out)
{
	bool kernel = who->priv == NVSIM_KERNEL;
	u32 base = kernel ? KERNEL_CLIENT_BASE : CLIENT_HANDLE_BASE;
	struct nvsim_client *client;
	u32 id;
	int ret;

	client = kzalloc(sizeof(*client), GFP_KERNEL);
	if (!client)
		return NV_ERR_NO_MEMORY;
	xa_init(&client->objects);
	INIT_LIST_HEAD(&client->roots);
	INIT_LIST_HEAD(&client->owner_node);
	client->kernel = kernel;
	client->owner = who->owner;
	client->tgid = current->tgid;
	client->euid = current_euid();
	if (*handle) {
		id = *handle;
		ret = xa_insert(&clients, id, client, GFP_KERNEL);
		if (ret == -EBUSY) {
			kfree(client);
			return NV_ERR_INSERT_DUPLICATE_NAME;
		}
	} else {
		if (reuse_handles)
			ret = xa_alloc(&clients, &id, client,
				       XA_LIMIT(base, base + CLIENT_HANDLE_MAX), GFP_KERNEL);
		else
			ret = xa_alloc_cyclic(&clients, &id, client,
					      XA_LIMIT(base, base + CLIENT_HANDLE_MAX),
					      kernel ? &next_kernel : &next_user, GFP_KERNEL);
	}
	if (ret < 0) {
		kfree(client);
		return NV_ERR_INSUFFICIENT_RESOURCES;
	}
	client->handle = id;
	client->pid = get_task_pid(current, PIDTYPE_TGID);
	strscpy(client->name, current->comm, sizeof(client->name));
	if (who->owner)
		list_add_tail(&client->owner_node, &who->owner->clients);
	client->shares.list[0] = (struct nv_share_policy){
		.accessMask = RS_ACCESS_DUP_OBJECT, .type = RS_SHARE_TYPE_PID };
	client->shares.count = 1;
	atomic_long_inc(&nvsim_live_objects);
	*handle = id;
	*out = client;
	return NV_OK;
}

void nvsim_client_destroy(struct nvsim_client *client)
{
	while (!list_empty(&client->roots))
		nvsim_object_free(list_last_entry(&client->roots, struct nvsim_object, sibling));
	WARN_ON(!xa_empty(&client->objects));
	xa_destroy(&client->objects);
	list_del(&client->owner_node);
	xa_erase(&clients, client->handle);
	put_pid(client->pid);
	kfree(client);
	atomic_long_dec(&nvsim_live_objects);
}

/* The last reference to a control file is gone: so are its clients. */
void nvsim_clients_of_file(struct nvsim_file *owner)
{
	mutex_lock(&rm_lock);
	while (!list_empty(&owner->clients))
		nvsim_client_destroy(list_first_entry(&owner->clients, struct nvsim_client,
						      owner_node));
	mutex_unlock(&rm_lock);
}

void nvsim_clients_each(void (*fn)(struct nvsim_client *, void *), void *arg)
{
	struct nvsim_client *client;
	unsigned long index;

	lockdep_assert_held(&rm_lock);
	xa_for_each(&clients, index, client)
		fn(client, arg);
}
