// SPDX-License-Identifier: GPL-2.0-only
/* EXPORT_TO_DMABUF_FD: each dma-buf holds the memory of the objects in it. */
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>
#include "compat.h"
#include "nvsim.h"

NVSIM_IMPORT_NS_DMA_BUF();

struct export {
	unsigned int count, total;
	struct nvsim_mem *mem[NV_DMABUF_EXPORT_MAX_HANDLES];
};

static void export_release(struct export *ex)
{
	unsigned int i;

	for (i = 0; i < ex->count; i++)
		nvsim_mem_put(ex->mem[i]);
	kfree(ex);
}

/* There is no device to attach: importers are refused, the lifetime is real. */
static struct sg_table *export_map(struct dma_buf_attachment *at, enum dma_data_direction dir)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void export_unmap(struct dma_buf_attachment *at, struct sg_table *sgt,
			 enum dma_data_direction dir)
{
}

static void export_dmabuf_release(struct dma_buf *dmabuf)
{
	export_release(dmabuf->priv);
}

static const struct dma_buf_ops export_ops = {
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.release = export_dmabuf_release,
};

static u32 add_handles(struct export *ex, struct nvsim_card *card, u32 hClient,
		       const u32 *handles, u32 num, u32 index, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(hClient, who);
	struct nvsim_object *obj;
	u32 i;

	if (!client)
		return NV_ERR_INVALID_CLIENT;
	if (!num || num > ex->total || index != ex->count || num > ex->total - ex->count)
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < num; i++) {
		obj = nvsim_object_find(client, handles[i]);
		if (!obj || !obj->mem)
			return NV_ERR_OBJECT_NOT_FOUND;
		if (obj->mem->card != card)
			return NV_ERR_INVALID_DEVICE;
	}
	for (i = 0; i < num; i++)
		ex->mem[ex->count++] =
			nvsim_mem_get(nvsim_object_find(client, handles[i])->mem);
	return NV_OK;
}

u32 nv_dma_buf_export(struct nvsim_card *card, void *arg, const struct nvsim_caller *who)
{
	struct { s32 fd; u32 hClient, totalObjects, numObjects, index, pad;
		 u64 totalSize; } *p = arg;
	const u32 *handles = arg + (nvsim_branch >= 570 ? 36 : 32);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	struct export *ex;
	u32 status;
	int fd;

	if (!p->totalObjects || p->totalObjects > NV_DMABUF_EXPORT_MAX_HANDLES || !p->totalSize)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->fd >= 0) {
		/* Later calls add to the dma-buf that the first one made. */
		dmabuf = dma_buf_get(p->fd);
		if (IS_ERR(dmabuf) || dmabuf->ops != &export_ops) {
			if (!IS_ERR(dmabuf))
				dma_buf_put(dmabuf);
			return NV_ERR_INVALID_ARGUMENT;
		}
		mutex_lock(&rm_lock);
		status = add_handles(dmabuf->priv, card, p->hClient, handles, p->numObjects,
				     p->index, who);
		mutex_unlock(&rm_lock);
		dma_buf_put(dmabuf);
		return status;
	}
	ex = kzalloc(sizeof(*ex), GFP_KERNEL);
	if (!ex)
		return NV_ERR_NO_MEMORY;
	ex->total = p->totalObjects;
	mutex_lock(&rm_lock);
	status = add_handles(ex, card, p->hClient, handles, p->numObjects, 0, who);
	mutex_unlock(&rm_lock);
	if (status != NV_OK)
		goto err;
	info.ops = &export_ops;
	info.size = PAGE_ALIGN(p->totalSize);
	info.flags = O_RDWR | O_CLOEXEC;
	info.priv = ex;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		status = NV_ERR_NO_MEMORY;
		goto err;
	}
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0) {
		dma_buf_put(dmabuf);
		return NV_ERR_NO_MEMORY;
	}
	p->fd = fd;
	return NV_OK;
err:
	export_release(ex);
	return status;
}
