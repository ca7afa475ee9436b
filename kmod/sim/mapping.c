// SPDX-License-Identifier: GPL-2.0-only
/*
 * MAP_MEMORY leaves one mapping context in the file behind the given fd; the
 * next mmap of that file takes it. Video memory and the doorbell go through a
 * card's file, system memory through a control file.
 */
#include <linux/file.h>
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "compat.h"
#include "nvsim.h"

#define USERMODE_SIZE	SZ_64K

/* Video memory that the processor sees through the card's BAR1. rm_lock. */
struct nvsim_window {
	struct list_head node;
	u64 linear, bytes;
};

/* Files whose context is the doorbell; the runlists unmap them to notice a ring. */
static DEFINE_MUTEX(doorbell_lock);
static LIST_HEAD(doorbell_files);

/* Whole pages of it: small ones where it is small, to waste none (kern_bus_gm107.c). */
static struct nvsim_window *window_new(struct nvsim_object *obj, const struct nvos33 *p)
{
	u64 bar1 = (u64)obj->card->model->bar1_mib << 20;
	u64 page = bar1 <= SZ_256M ? SZ_64K : SZ_2M;
	u64 bytes = ALIGN((p->offset & (page - 1)) + p->length, page);
	struct nvsim_window *window;

	if (bytes > bar1 - obj->card->bar1_used)
		return NULL;
	window = kmalloc(sizeof(*window), GFP_KERNEL);
	if (!window)
		return NULL;
	window->bytes = bytes;
	obj->card->bar1_used += bytes;
	list_add(&window->node, &obj->windows);
	return window;
}

static void window_free(struct nvsim_object *obj, struct nvsim_window *window)
{
	list_del(&window->node);
	obj->card->bar1_used -= window->bytes;
	kfree(window);
}

void nvsim_unmap_windows(struct nvsim_object *obj)
{
	while (!list_empty(&obj->windows))
		window_free(obj, list_first_entry(&obj->windows, struct nvsim_window, node));
}

u32 nvsim_map_memory(struct nvos33 *p, int fd, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(p->hClient, who);
	struct nvsim_object *obj, *dev;
	struct nvsim_window *window = NULL;
	struct nvsim_card *card = NULL;
	struct nvsim_file *nf;
	struct file *ref;
	bool usermode, read_only;
	u32 status = NV_OK;
	u64 size;

	if (!client)
		return nvsim_client_refusal(p->hClient);
	if (p->hMemory == p->hClient)
		return NV_ERR_NOT_SUPPORTED;
	obj = nvsim_object_find(client, p->hMemory);
	if (!obj)
		return NV_ERR_OBJECT_NOT_FOUND;
	usermode = nvsim_class_is_usermode(obj->class);
	if (!usermode && !obj->mem)
		return NV_ERR_INVALID_OBJECT;
	if (p->hDevice != p->hClient) {
		dev = nvsim_object_find(client, p->hDevice);
		if (!dev || (dev->class != NV01_DEVICE_0 && dev->class != NV20_SUBDEVICE_0))
			return NV_ERR_INVALID_OBJECT_PARENT;
		if (obj->class == NV01_MEMORY_DEVICELESS)
			return NV_ERR_INVALID_OBJECT_PARENT;
	}
	read_only = NVOS33_FLAGS_ACCESS(p->flags) == NVOS33_FLAGS_ACCESS_READ_ONLY;
	if (!usermode && obj->mem->user_read_only && !read_only)
		return NV_ERR_INVALID_ARGUMENT;
	size = usermode ? USERMODE_SIZE : obj->mem->size;
	if (!p->length || p->offset >= size || p->length > size - p->offset)
		return NV_ERR_INVALID_LIMIT;
	if (client->tgid != current->tgid)
		return NV_ERR_INVALID_CLIENT;
	if (usermode || obj->mem->card)
		card = obj->card;
	nf = nv_get_file_private(fd, !card, &ref);
	if (!nf)
		return NV_ERR_INVALID_ARGUMENT;
	if (nf->card != card) {
		fput(ref);
		return NV_ERR_INVALID_ARGUMENT;
	}
	if (card && !usermode) {
		window = window_new(obj, p);
		if (!window) {
			fput(ref);
			return NV_ERR_INSUFFICIENT_RESOURCES;
		}
	}
	mutex_lock(&nf->map_lock);
	if (nf->map.valid) {
		status = NV_ERR_STATE_IN_USE;
	} else {
		nf->map.valid = true;
		nf->map.usermode = usermode;
		nf->map.read_only = read_only;
		nf->map.mem = usermode ? NULL : nvsim_mem_pin(obj->mem);
		nf->map.page_index = p->offset >> PAGE_SHIFT;
		nf->map.length = PAGE_ALIGN((p->offset & ~PAGE_MASK) + p->length);
		p->pLinearAddress = (1ull << 40) + (obj->mem ? obj->mem->offset : 0) + p->offset;
	}
	mutex_unlock(&nf->map_lock);
	if (window && status == NV_OK)
		window->linear = p->pLinearAddress;
	else if (window)
		window_free(obj, window);
	if (status == NV_OK && usermode) {
		mutex_lock(&doorbell_lock);
		list_add(&nf->doorbell_node, &doorbell_files);
		mutex_unlock(&doorbell_lock);
	}
	fput(ref);
	return status;
}

u32 nvsim_unmap_memory(struct nvos34 *p, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(p->hClient, who);
	struct nvsim_window *window;
	struct nvsim_object *obj;

	if (!client)
		return nvsim_client_refusal(p->hClient);
	obj = nvsim_object_find(client, p->hMemory);
	if (!obj)
		return NV_ERR_OBJECT_NOT_FOUND;
	/* of no device: below its client alone, and there is no mapping of it to be found */
	if (obj->class == NV01_MEMORY_DEVICELESS)
		return p->hDevice == p->hClient ? NV_ERR_OBJECT_NOT_FOUND :
						  NV_ERR_INVALID_OBJECT_PARENT;
	list_for_each_entry(window, &obj->windows, node) {
		if (window->linear == p->pLinearAddress) {
			window_free(obj, window);
			return NV_OK;
		}
	}
	return obj->mem && obj->mem->card ? NV_ERR_OBJECT_NOT_FOUND : NV_OK;
}

u32 nvsim_move_mapping(const struct nvos56 *p, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(p->hClient, who);
	struct nvsim_object *obj = client ? nvsim_object_find(client, p->hMemory) : NULL;
	struct nvsim_window *window;

	if (!obj || !obj->mem || !obj->mem->card)
		return NV_OK;
	list_for_each_entry(window, &obj->windows, node) {
		if (window->linear == p->pOldCpuAddress) {
			window->linear = p->pNewCpuAddress;
			return NV_OK;
		}
	}
	return NV_ERR_OBJECT_NOT_FOUND;
}

/* ---- for kernel clients, of memory that belongs to no card ---- */

u32 nvsim_map_kernel(struct nvos33 *p, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(p->hClient, who);
	struct nvsim_object *obj;

	if (!client)
		return NV_ERR_INVALID_CLIENT;
	obj = nvsim_object_find(client, p->hMemory);
	if (!obj)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!client->kernel || obj->class != NV01_MEMORY_DEVICELESS ||
	    p->flags & NVOS33_FLAGS_MEM_SPACE_USER)
		return NV_ERR_NOT_SUPPORTED;
	if (p->hDevice != p->hClient)
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (p->offset >= obj->mem->size)
		return NV_ERR_INVALID_BASE;
	if (!p->length || p->length > obj->mem->size - p->offset)
		return NV_ERR_INVALID_LIMIT;
	if (!obj->kmap)
		obj->kmap = nvsim_mem_vmap(obj->mem);
	if (!obj->kmap)
		return NV_ERR_NO_MEMORY;
	obj->kmaps++;
	p->pLinearAddress = (uintptr_t)obj->kmap + p->offset;
	return NV_OK;
}

u32 nvsim_unmap_kernel(struct nvos34 *p, const struct nvsim_caller *who)
{
	struct nvsim_client *client = nvsim_client_validate(p->hClient, who);
	struct nvsim_object *obj;

	if (!client)
		return NV_ERR_INVALID_CLIENT;
	obj = nvsim_object_find(client, p->hMemory);
	if (!obj || obj->class != NV01_MEMORY_DEVICELESS)
		return nvsim_unmap_memory(p, who);
	if (!obj->kmaps || p->pLinearAddress - (uintptr_t)obj->kmap >= obj->mem->size)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!--obj->kmaps) {
		vunmap(obj->kmap);
		obj->kmap = NULL;
	}
	return NV_OK;
}

void nvsim_mapping_release(struct nvsim_file *nf)
{
	mutex_lock(&doorbell_lock);
	list_del_init(&nf->doorbell_node);
	mutex_unlock(&doorbell_lock);
	nvsim_mem_unpin(nf->map.mem);
}

void nvsim_doorbell_arm(struct nvsim_card *card)
{
	struct nvsim_file *nf;

	mutex_lock(&doorbell_lock);
	list_for_each_entry(nf, &doorbell_files, doorbell_node)
		if (nf->card == card)
			unmap_mapping_range(&nf->mapping, 0, 0, 1);
	mutex_unlock(&doorbell_lock);
}

static void nvidia_vma_open(struct vm_area_struct *vma)
{
}

static void nvidia_vma_release(struct vm_area_struct *vma)
{
}

static vm_fault_t nvidia_fault(struct vm_fault *vmf)
{
	struct nvsim_file *nf = vmf->vma->vm_file->private_data;
	struct page *page;

	if (nf->map.usermode) {
		page = nf->card->doorbell;
		/* The ring's new put pointer was written before the doorbell. */
		nvsim_engine_kick(nf->card);
	} else if (vmf->pgoff >= nf->map.length >> PAGE_SHIFT) {
		return VM_FAULT_SIGBUS;
	} else {
		page = nvsim_mem_page(nf->map.mem, nf->map.page_index + vmf->pgoff);
		if (!page)
			return VM_FAULT_SIGBUS;
	}
	get_page(page);
	vmf->page = page;
	return 0;
}

/* Serves /proc/PID/mem and the like, because the real driver's mappings of a card have no pages. */
static int nvidia_vma_access(struct vm_area_struct *vma, unsigned long addr, void *buf, int len,
			     int write)
{
	struct nvsim_file *nf = vma->vm_file->private_data;
	u64 offset = addr - vma->vm_start;
	struct page *page;
	u8 *at;

	/* the mapping's context is read by a null pointer there, until 595.71.05 */
	if (WARN_ON_ONCE(nvsim_branch == 595))
		return -EFAULT;
	if (nf->map.usermode || offset >= nf->map.length)
		return -EINVAL;
	/* and before 570 a card's memory was read at the mapping's beginning */
	if (nf->card && nvsim_branch < 570)
		offset = offset_in_page(offset);
	page = nvsim_mem_page(nf->map.mem, nf->map.page_index + (offset >> PAGE_SHIFT));
	if (!page)
		return -ENOMEM;
	at = page_address(page) + offset_in_page(offset);
	len = min_t(int, len, PAGE_SIZE - offset_in_page(offset));
	if (write)
		memcpy(at, buf, len);
	else
		memcpy(buf, at, len);
	return len;
}

static struct vm_operations_struct nv_vm_ops = {
	.open = nvidia_vma_open,
	.close = nvidia_vma_release,
	.access = nvidia_vma_access,
	.fault = nvidia_fault,
};

/* As the real driver, which has no page of a mapping wait for a fault; what is large may. */
static int populate(struct nvsim_file *nf, struct vm_area_struct *vma)
{
	unsigned long at;
	int ret = 0;

	if (nf->map.usermode || vma->vm_end - vma->vm_start > SZ_2M)
		return 0;
	for (at = vma->vm_start; !ret && at < vma->vm_end; at += PAGE_SIZE) {
		struct page *page = nvsim_mem_page(nf->map.mem, nf->map.page_index +
						   ((at - vma->vm_start) >> PAGE_SHIFT));

		ret = page ? vm_insert_page(vma, at, page) : -ENOMEM;
	}
	return ret;
}

int nvsim_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct nvsim_file *nf = filp->private_data;
	u64 length = vma->vm_end - vma->vm_start;
	int ret = 0;

	nvsim_pause(NVSIM_PAUSE_MAP, nf->minor);
	/* A file that carries exported objects maps nothing. */
	if (nf->exports)
		return -EINVAL;
	mutex_lock(&nf->map_lock);
	if (!nf->map.valid || vma->vm_pgoff)
		ret = -EINVAL;
	else if (nf->card && length != nf->map.length)
		ret = -ENXIO;
	else if (length > nf->map.length)
		ret = -ERANGE;
	mutex_unlock(&nf->map_lock);
	if (ret)
		return ret;
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	/* others get at a card's memory by nvidia_vma_access() alone */
	if (nf->card)
		vm_flags_set(vma, VM_IO);
	if (nf->map.read_only) {
		vm_flags_clear(vma, VM_WRITE | VM_MAYWRITE);
		vma->vm_page_prot = vm_get_page_prot(vma->vm_flags);
	}
	vma->vm_ops = &nv_vm_ops;
	return populate(nf, vma);
}
