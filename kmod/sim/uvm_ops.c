// SPDX-License-Identifier: GPL-2.0-only
/* The calls of nvidia-uvm.ko into nvidia.ko: duplicates of memory, checks of names. */
#include <linux/module.h>
#include "nvsim.h"

/*
 * UVM duplicates memory into a client of its own, whose privilege to duplicate
 * anything is given up in favour of the current process's: by default only
 * its own clients' objects pass.
 */
u32 nvsim_uvm_dup_memory(u32 hClient, u32 hMemory, struct nvsim_mem **mem)
{
	struct nvsim_client *client;
	struct nvsim_object *obj;
	u32 status = NV_OK, i;
	bool allowed;

	mutex_lock(&rm_lock);
	client = nvsim_client_find(hClient);
	obj = client ? nvsim_object_find(client, hMemory) : NULL;
	if (!client) {
		status = NV_ERR_INVALID_CLIENT;
	} else if (!obj || !obj->mem) {
		status = NV_ERR_OBJECT_NOT_FOUND;
	} else {
		allowed = client->tgid == current->tgid;
		for (i = 0; i < client->shares.count && !allowed; i++)
			allowed = client->shares.list[i].type == RS_SHARE_TYPE_ALL ||
				  (client->shares.list[i].type == RS_SHARE_TYPE_OS_SECURITY_TOKEN &&
				   uid_eq(client->euid, current_euid()));
		if (allowed)
			*mem = nvsim_mem_get(obj->mem);
		else
			status = NV_ERR_INSUFFICIENT_PERMISSIONS;
	}
	mutex_unlock(&rm_lock);
	return status;
}
EXPORT_SYMBOL_GPL(nvsim_uvm_dup_memory);

static u32 check(u32 hClient, u32 handle, const u8 *uuid, bool channel)
{
	struct nvsim_client *client;
	struct nvsim_object *obj;
	u32 status = NV_OK;

	mutex_lock(&rm_lock);
	client = nvsim_client_find(hClient);
	obj = client ? nvsim_object_find(client, handle) : NULL;
	if (!client)
		status = NV_ERR_INVALID_CLIENT;
	else if (!obj || (channel ? !obj->chan : obj->class != FERMI_VASPACE_A))
		status = NV_ERR_OBJECT_NOT_FOUND;
	else if (client->tgid != current->tgid)
		status = NV_ERR_INSUFFICIENT_PERMISSIONS;
	else if (obj->card != nvsim_card_by_uuid(uuid))
		status = NV_ERR_INVALID_DEVICE;
	mutex_unlock(&rm_lock);
	return status;
}

u32 nvsim_uvm_check_vaspace(u32 hClient, u32 hVaSpace, const u8 *uuid)
{
	return check(hClient, hVaSpace, uuid, false);
}
EXPORT_SYMBOL_GPL(nvsim_uvm_check_vaspace);

u32 nvsim_uvm_retain_channel(u32 hClient, u32 hChannel, const u8 *uuid)
{
	return check(hClient, hChannel, uuid, true);
}
EXPORT_SYMBOL_GPL(nvsim_uvm_retain_channel);

struct nvsim_card *nvsim_uvm_card(const u8 *uuid)
{
	return nvsim_card_by_uuid(uuid);
}
EXPORT_SYMBOL_GPL(nvsim_uvm_card);

struct nvsim_card *nvsim_uvm_card_at(u32 index)
{
	return nvsim_card_by_minor(index);
}
EXPORT_SYMBOL_GPL(nvsim_uvm_card_at);

bool nvsim_uvm_gpu_accessible(struct nvsim_card *card)
{
	return nvsim_gpu_accessible(card);
}
EXPORT_SYMBOL_GPL(nvsim_uvm_gpu_accessible);

int nvsim_uvm_branch(void)
{
	return nvsim_branch;
}
EXPORT_SYMBOL_GPL(nvsim_uvm_branch);

void nvsim_uvm_set_evict(nvsim_evict_fn fn)
{
	/* Allocations that may call it hold the lock, so none is under way after. */
	mutex_lock(&rm_lock);
	nvsim_pma_set_evict(fn);
	mutex_unlock(&rm_lock);
}
EXPORT_SYMBOL_GPL(nvsim_uvm_set_evict);
