// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulated nvidia-uvm.ko: devices, ioctls, managed mmap. Commands are
 * bare integers without size; the driver knows each struct's size itself.
 */
#include <linux/cdev.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "compat.h"
#include "uvm.h"

enum {
	UVM_INIT_FLAGS_DISABLE_HMM = 1,
	UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE = 2,
	UVM_INIT_FLAGS_MASK = 3,
};

static unsigned int hmm_spaces;
module_param(hmm_spaces, uint, 0444);
MODULE_PARM_DESC(hmm_spaces, "va_spaces that were made with HMM; the simulation moves nothing");

struct uvm_file {
	struct uvm_space *space;	/* after UVM_INITIALIZE */
	struct file *space_file;	/* after UVM_MM_INITIALIZE: holds the other file */
	u64 flags;
	struct address_space mapping;
	struct mutex init_lock;
};

static const struct file_operations uvm_fops;

/* Return: NV_OK: it is one, with an address space of its own. */
u32 uvm_file_check(struct file *file)
{
	if (file->f_op != &uvm_fops)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	return READ_ONCE(((struct uvm_file *)file->private_data)->space) ?
	       NV_OK : NV_ERR_ILLEGAL_ACTION;
}

static int uvm_open(struct inode *inode, struct file *filp)
{
	struct uvm_file *uf = kzalloc(sizeof(*uf), GFP_KERNEL);

	if (!uf)
		return -ENOMEM;
	mutex_init(&uf->init_lock);
	address_space_init_once(&uf->mapping);
	uf->mapping.host = inode;
	uf->mapping.a_ops = inode->i_mapping->a_ops;
	filp->f_mapping = &uf->mapping;
	filp->private_data = uf;
	return 0;
}

static int uvm_release(struct inode *inode, struct file *filp)
{
	struct uvm_file *uf = filp->private_data;

	if (uf->space)
		uvm_space_destroy(uf->space);
	if (uf->space_file) {
		struct uvm_file *of = uf->space_file->private_data;

		/* what is mapped there was kept, also beyond its process */
		mmput(of->space->mm);
		fput(uf->space_file);
	}
	kfree(uf);
	return 0;
}

/* ---- commands; each gets its struct in kernel memory and returns rmStatus ---- */

#define U32P(p, o) (*(u32 *)((u8 *)(p) + (o)))
#define U64P(p, o) (*(u64 *)((u8 *)(p) + (o)))

static u32 uvm_initialize(struct uvm_file *uf, void *p)
{
	u32 status = NV_OK;

	mutex_lock(&uf->init_lock);
	if (uf->space_file || U64P(p, 0) & ~(u64)UVM_INIT_FLAGS_MASK) {
		status = NV_ERR_INVALID_ARGUMENT;
	} else if (uf->space) {
		if (uf->flags != U64P(p, 0))
			status = NV_ERR_INVALID_ARGUMENT;
	} else if (!current->mm) {
		status = NV_ERR_INVALID_STATE;
	} else {
		uf->flags = U64P(p, 0);
		if (!(uf->flags & UVM_INIT_FLAGS_DISABLE_HMM))
			hmm_spaces++;
		uf->space = uvm_space_create(&uf->mapping);
		if (!uf->space)
			status = NV_ERR_NO_MEMORY;
	}
	mutex_unlock(&uf->init_lock);
	return status;
}

static u32 uvm_mm_initialize(struct uvm_file *uf, void *p)
{
	struct file *other = fget(U32P(p, 0));
	struct uvm_file *of;
	u32 status = NV_OK;

	if (!other)
		return NV_ERR_INVALID_ARGUMENT;
	of = other->private_data;
	/* Told by the file operations alone: a substitute of them is a stranger. */
	if (other->f_op != &uvm_fops || !READ_ONCE(of->space)) {
		fput(other);
		return NV_ERR_INVALID_ARGUMENT;
	}
	mutex_lock(&uf->init_lock);
	if (uf->space || uf->space_file) {
		status = NV_ERR_IN_USE;
	} else {
		mutex_lock(&of->space->lock);
		if (of->space->mm_fd_taken)
			status = NV_ERR_INVALID_STATE;
		else if (!mmget_not_zero(of->space->mm))
			status = NV_ERR_PAGE_TABLE_NOT_AVAIL;
		else
			of->space->mm_fd_taken = true;
		mutex_unlock(&of->space->lock);
		if (status == NV_OK) {
			uf->space_file = other;
			other = NULL;
		}
	}
	mutex_unlock(&uf->init_lock);
	if (other)
		fput(other);
	return status;
}

static u32 uvm_api_register_gpu(void *p, struct uvm_space *s)
{
	struct nvsim_card *card = nvsim_uvm_card(p);

	if (!card)
		return NV_ERR_GENERIC;
	if (!nvsim_uvm_gpu_accessible(card))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	*((u8 *)p + 16) = 0;		/* numaEnabled */
	U32P(p, 20) = (u32)-1;		/* numaNodeId */
	return uvm_card_register(s, card);
}

static u32 registered(struct uvm_space *s, const u8 *uuid, struct nvsim_card **card)
{
	*card = nvsim_uvm_card(uuid);
	if (!*card || !(s->gpus & (1u << (*card)->index)))
		return NV_ERR_INVALID_DEVICE;
	return NV_OK;
}

static u32 uvm_api_unregister_gpu(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;
	u32 status = registered(s, p, &card);

	if (status == NV_OK)
		uvm_card_unregister(s, card);
	return status;
}

static u32 uvm_api_register_gpu_va_space(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;
	u32 status = registered(s, p, &card);

	if (status != NV_OK)
		return status;
	if (s->vaspaces & (1u << card->index))
		return NV_ERR_INVALID_DEVICE;
	mutex_unlock(&s->lock);		/* rm_lock is not taken under it */
	status = nvsim_uvm_check_vaspace(U32P(p, 20), U32P(p, 24), p);
	mutex_lock(&s->lock);
	if (status == NV_OK)
		s->vaspaces |= 1u << card->index;
	return status;
}

static u32 uvm_api_unregister_gpu_va_space(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;
	u32 status = registered(s, p, &card);

	if (status == NV_OK)
		s->vaspaces &= ~(1u << card->index);
	return status;
}

static u32 uvm_api_register_channel(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;
	u32 status = registered(s, p, &card);

	if (status != NV_OK)
		return status;
	if (!(s->vaspaces & (1u << card->index)))
		return NV_ERR_INVALID_DEVICE;
	mutex_unlock(&s->lock);
	status = nvsim_uvm_retain_channel(U32P(p, 20), U32P(p, 24), p);
	mutex_lock(&s->lock);
	return status;
}

static u32 uvm_api_unregister_channel(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;

	/* from 590 on it names no card */
	return nvsim_uvm_branch() < 590 && registered(s, p, &card) ? NV_ERR_INVALID_CHANNEL :
								      NV_OK;
}

static u32 uvm_api_map_external_allocation(void *p, struct uvm_space *s)
{
	u32 entries = nvsim_uvm_branch() == 535 ? 32 : 256;
	u32 tail = 24 + entries * 36;
	u64 count = U64P(p, tail), i;
	struct nvsim_mem *mem;
	struct nvsim_card *card;
	u32 status;

	if (!count || count > entries)
		return NV_ERR_INVALID_ARGUMENT;
	mutex_unlock(&s->lock);
	/* A duplicate in UVM's own client: from here on RM_FREE releases nothing. */
	status = nvsim_uvm_dup_memory(U32P(p, tail + 12), U32P(p, tail + 16), &mem);
	mutex_lock(&s->lock);
	if (status != NV_OK)
		return status;
	for (i = 0; i < count && status == NV_OK; i++) {
		status = registered(s, (u8 *)p + 24 + 36 * i, &card);
		if (status == NV_OK && !(s->vaspaces & (1u << card->index)))
			status = NV_ERR_INVALID_DEVICE;
		if (status == NV_OK)
			status = uvm_external_map(s, U64P(p, 0), U64P(p, 8), U64P(p, 16), card,
						  mem);
	}
	nvsim_mem_put(mem);
	return status;
}

static u32 uvm_api_map_external_sparse(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;
	u32 status = uvm_range_at(s, U64P(p, 0)) ? registered(s, (u8 *)p + 16, &card) :
						   NV_ERR_INVALID_ADDRESS;

	return status ?: uvm_external_map(s, U64P(p, 0), U64P(p, 8), 0, card, NULL);
}

static u32 uvm_api_unmap_external(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;
	u32 status = uvm_range_at(s, U64P(p, 0)) ? registered(s, (u8 *)p + 16, &card) :
						   NV_ERR_INVALID_ADDRESS;

	return status ?: uvm_external_unmap(s, U64P(p, 0), U64P(p, 8), card);
}

static u32 uvm_api_create_external_range(void *p, struct uvm_space *s)
{
	return uvm_range_create(s, U64P(p, 0), U64P(p, 8), UVM_EXTERNAL);
}

static u32 uvm_api_alloc_semaphore_pool(void *p, struct uvm_space *s)
{
	return uvm_range_create(s, U64P(p, 0), U64P(p, 8), UVM_POOL);
}

static u32 uvm_api_map_dynamic_parallelism_region(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;

	return registered(s, (u8 *)p + 16, &card) ?:
	       uvm_range_create(s, U64P(p, 0), U64P(p, 8), UVM_PARALLELISM);
}

static u32 uvm_api_free(void *p, struct uvm_space *s)
{
	const struct uvm_range *r = uvm_range_at(s, U64P(p, 0));

	/* from 590 on by its base alone */
	if (nvsim_uvm_branch() >= 590)
		return r ? uvm_range_free(s, U64P(p, 0), r->end - r->start + 1) :
			   NV_ERR_INVALID_ADDRESS;
	return uvm_range_free(s, U64P(p, 0), U64P(p, 8));
}

static u32 uvm_validate(void *p, struct uvm_space *s)
{
	struct uvm_range *r = uvm_range_at(s, U64P(p, 0));

	return r && U64P(p, 8) && U64P(p, 0) + U64P(p, 8) - 1 <= r->end ?
	       NV_OK : NV_ERR_INVALID_ADDRESS;
}

static struct vm_operations_struct uvm_vm_ops_managed;

/* UVM knows its mappings by their operations: a hook that replaces them breaks it. */
static bool vma_is_managed(u64 address)
{
	struct vm_area_struct *vma;
	bool ours;

	if (!current->mm)
		return false;
	mmap_read_lock(current->mm);
	vma = find_vma(current->mm, address);
	ours = vma && vma->vm_start <= address && vma->vm_ops == &uvm_vm_ops_managed;
	mmap_read_unlock(current->mm);
	return ours;
}

static u32 uvm_migrate(void *p, struct uvm_space *s)
{
	struct nvsim_card *card = nvsim_uvm_card((u8 *)p + 16);
	bool managed;

	if (card && !(s->vaspaces & (1u << card->index)))
		return NV_ERR_INVALID_DEVICE;
	mutex_unlock(&s->lock);		/* mmap_lock comes before it */
	managed = vma_is_managed(U64P(p, 0));
	mutex_lock(&s->lock);
	if (!managed)
		return NV_ERR_INVALID_ADDRESS;
	return uvm_managed_migrate(s, U64P(p, 0), U64P(p, 8), card);
}

static u32 uvm_pageable(void *p, struct uvm_space *s)
{
	*(u8 *)p = 0;			/* no access to pageable memory */
	return NV_OK;
}

static u32 uvm_pageable_gpu(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;

	*((u8 *)p + 16) = 0;
	return registered(s, p, &card);
}

static u32 uvm_accept(void *p, struct uvm_space *s)
{
	return NV_OK;
}

/* Calls on managed memory: only its presence is simulated. */
static u32 uvm_advise(void *p, struct uvm_space *s)
{
	return uvm_range_at(s, U64P(p, 0)) ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

static u32 uvm_peers(void *p, struct uvm_space *s)
{
	struct nvsim_card *card;

	return registered(s, p, &card) ?: registered(s, (u8 *)p + 16, &card);
}

static u32 uvm_range_group(void *p, struct uvm_space *s)
{
	u32 id;

	if (xa_alloc(&s->groups, &id, xa_mk_value(1), XA_LIMIT(1, U32_MAX), GFP_KERNEL))
		return NV_ERR_NO_MEMORY;
	U64P(p, 0) = id;
	return NV_OK;
}

static u32 uvm_range_group_destroy(void *p, struct uvm_space *s)
{
	return xa_erase(&s->groups, U64P(p, 0)) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

/* 610 has none any more. */
static bool is_of_range_groups(u32 cmd)
{
	return cmd == UVM_CREATE_RANGE_GROUP || cmd == UVM_DESTROY_RANGE_GROUP ||
	       cmd == UVM_SET_RANGE_GROUP;
}

/* Group 0 is none: memory leaves its own. */
static u32 uvm_range_group_set(void *p, struct uvm_space *s)
{
	return !U64P(p, 0) || xa_load(&s->groups, U64P(p, 0)) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

struct uvm_command {
	u32 cmd, size535, size, status_at;	/* status_at counts from the end */
	u32 (*fn)(void *p, struct uvm_space *s);
};

static const struct uvm_command commands[] = {
	{ UVM_REGISTER_GPU, 40, 40, 4, uvm_api_register_gpu },
	{ UVM_UNREGISTER_GPU, 20, 20, 4, uvm_api_unregister_gpu },
	{ UVM_REGISTER_GPU_VASPACE, 32, 32, 4, uvm_api_register_gpu_va_space },
	{ UVM_UNREGISTER_GPU_VASPACE, 20, 20, 4, uvm_api_unregister_gpu_va_space },
	{ UVM_REGISTER_CHANNEL, 56, 56, 8, uvm_api_register_channel },
	{ UVM_UNREGISTER_CHANNEL, 28, 28, 4, uvm_api_unregister_channel },
	{ UVM_CREATE_EXTERNAL_RANGE, 24, 24, 8, uvm_api_create_external_range },
	{ UVM_MAP_EXTERNAL_ALLOCATION, 1200, 9264, 4, uvm_api_map_external_allocation },
	{ UVM_UNMAP_EXTERNAL, 40, 40, 8, uvm_api_unmap_external },
	{ UVM_MAP_EXTERNAL_SPARSE, 40, 40, 8, uvm_api_map_external_sparse },
	{ UVM_FREE, 24, 24, 8, uvm_api_free },
	{ UVM_ALLOC_SEMAPHORE_POOL, 1184, 9248, 8, uvm_api_alloc_semaphore_pool },
	{ UVM_MAP_DYNAMIC_PARALLELISM_REGION, 40, 40, 8, uvm_api_map_dynamic_parallelism_region },
	{ UVM_MIGRATE, 80, 80, 8, uvm_migrate },
	{ UVM_SET_PREFERRED_LOCATION, 40, 40, 4, uvm_advise },
	{ UVM_UNSET_PREFERRED_LOCATION, 24, 24, 8, uvm_advise },
	{ UVM_SET_ACCESSED_BY, 40, 40, 8, uvm_advise },
	{ UVM_UNSET_ACCESSED_BY, 40, 40, 8, uvm_advise },
	{ UVM_ENABLE_READ_DUPLICATION, 24, 24, 8, uvm_advise },
	{ UVM_DISABLE_READ_DUPLICATION, 24, 24, 8, uvm_advise },
	{ UVM_CREATE_RANGE_GROUP, 16, 16, 8, uvm_range_group },
	{ UVM_DESTROY_RANGE_GROUP, 16, 16, 8, uvm_range_group_destroy },
	{ UVM_SET_RANGE_GROUP, 32, 32, 8, uvm_range_group_set },
	{ UVM_ENABLE_PEER_ACCESS, 36, 36, 4, uvm_peers },
	{ UVM_DISABLE_PEER_ACCESS, 36, 36, 4, uvm_peers },
	{ UVM_PAGEABLE_MEM_ACCESS, 8, 8, 4, uvm_pageable },
	{ UVM_PAGEABLE_MEM_ACCESS_ON_GPU, 24, 24, 4, uvm_pageable_gpu },
	{ UVM_POPULATE_PAGEABLE, 24, 24, 8, uvm_accept },
	{ UVM_VALIDATE_VA_RANGE, 24, 24, 8, uvm_validate },
	{ UVM_CLEAN_UP_ZOMBIE_RESOURCES, 4, 4, 4, uvm_accept },
};

static long uvm_ioctl(struct file *filp, unsigned int cmd, unsigned long uarg)
{
	struct uvm_file *uf = filp->private_data;
	void __user *uptr = (void __user *)uarg;
	const struct uvm_command *c = NULL;
	struct uvm_space *s;
	u32 size, status_at, status;
	void *p;
	int i, ret = 0;

	switch (cmd) {
	case UVM_DEINITIALIZE:
		return 0;
	case UVM_INITIALIZE:
		size = 16;
		status_at = 8;
		break;
	case UVM_MM_INITIALIZE:
		size = 8;
		status_at = 4;
		break;
	default:
		for (i = 0; i < ARRAY_SIZE(commands); i++)
			if (commands[i].cmd == cmd)
				c = &commands[i];
		if (!c || (nvsim_uvm_branch() >= 610 && is_of_range_groups(cmd)))
			return -EINVAL;
		size = nvsim_uvm_branch() == 535 ? c->size535 : c->size;
		if (cmd == UVM_FREE && nvsim_uvm_branch() >= 590)
			size = 16;
		if (cmd == UVM_UNREGISTER_CHANNEL && nvsim_uvm_branch() >= 590)
			size = 12;
		status_at = size - c->status_at;
		/* 535 has the status of SET_PREFERRED_LOCATION at 32, later ones at 36. */
		if (cmd == UVM_SET_PREFERRED_LOCATION && nvsim_uvm_branch() == 535)
			status_at = 32;
	}
	p = kvzalloc(size, GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	nvsim_pause(NVSIM_PAUSE_ARGUMENT, cmd);
	if (nvsim_fault(NVSIM_PAUSE_ARGUMENT, cmd) || copy_from_user(p, uptr, size)) {
		ret = -EFAULT;
		goto out;
	}
	if (cmd == UVM_INITIALIZE) {
		status = uvm_initialize(uf, p);
	} else if (cmd == UVM_MM_INITIALIZE) {
		status = uvm_mm_initialize(uf, p);
	} else {
		s = READ_ONCE(uf->space);
		if (!s) {
			/* This one is of the process alone, and needs no space. */
			status = cmd == UVM_POPULATE_PAGEABLE ? NV_OK : NV_ERR_ILLEGAL_ACTION;
		} else {
			mutex_lock(&s->lock);
			status = c->fn(p, s);
			mutex_unlock(&s->lock);
		}
	}
	U32P(p, status_at) = status;
	if (nvsim_fault(NVSIM_PAUSE_ANSWER, cmd) || copy_to_user(uptr, p, size))
		ret = -EFAULT;
	nvsim_pause(NVSIM_PAUSE_RETURN, cmd);
out:
	kvfree(p);
	return ret;
}

/* ---- mmap: managed memory, or the CPU's view of a semaphore pool ---- */

static struct uvm_space *space_of(struct vm_area_struct *vma)
{
	return ((struct uvm_file *)vma->vm_file->private_data)->space;
}

static bool vma_in_place(struct vm_area_struct *vma)
{
	return vma->vm_start == vma->vm_pgoff << PAGE_SHIFT && vma->vm_mm == space_of(vma)->mm;
}

static vm_fault_t uvm_vm_fault(struct vm_fault *vmf)
{
	struct uvm_space *s = space_of(vmf->vma);
	struct page *page;

	/* A copy after fork or a moved one has no range behind it. */
	if (!vma_in_place(vmf->vma))
		return VM_FAULT_SIGBUS;
	mutex_lock(&s->lock);
	page = uvm_range_at(s, vmf->address) ? uvm_page(s, vmf->address) : NULL;
	if (page)
		get_page(page);
	mutex_unlock(&s->lock);
	if (!page)
		return VM_FAULT_SIGBUS;
	vmf->page = page;
	return 0;
}

static void uvm_vm_close_managed(struct vm_area_struct *vma)
{
	const struct uvm_file *uf = vma->vm_file->private_data;
	struct uvm_space *s = space_of(vma);

	if (!vma_in_place(vma))
		return;
	/* The mm ends: state that several processes share stays as long as one has the file. */
	if (!current->mm && uf->flags & UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE)
		return;
	mutex_lock(&s->lock);
	uvm_managed_cut(s, vma->vm_start, vma->vm_end - 1);
	mutex_unlock(&s->lock);
}

static struct vm_operations_struct uvm_vm_ops_managed = {
	.close = uvm_vm_close_managed,
	.fault = uvm_vm_fault,
};

static struct vm_operations_struct uvm_vm_ops_semaphore_pool = {
	.fault = uvm_vm_fault,
};

static int uvm_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct uvm_space *s = ((struct uvm_file *)filp->private_data)->space;
	const unsigned long want = VM_SHARED | VM_READ | VM_WRITE;
	struct uvm_range *r;
	u32 status;
	int ret = 0;

	if (!s)
		return -EBADFD;
	if (s->mm != current->mm)
		return -EOPNOTSUPP;
	if (vma->vm_start != vma->vm_pgoff << PAGE_SHIFT || (vma->vm_flags & want) != want)
		return -EINVAL;
	vm_flags_set(vma, VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTCOPY);
	vma->vm_ops = &uvm_vm_ops_managed;
	mutex_lock(&s->lock);
	status = uvm_range_create(s, vma->vm_start, vma->vm_end - vma->vm_start, UVM_MANAGED);
	if (status == NV_ERR_UVM_ADDRESS_IN_USE) {
		r = uvm_range_at(s, vma->vm_start);
		if (r && r->type == UVM_POOL && r->start == vma->vm_start &&
		    r->end == vma->vm_end - 1)
			vma->vm_ops = &uvm_vm_ops_semaphore_pool;
		else
			ret = -EINVAL;
	} else if (status != NV_OK) {
		ret = -ENOMEM;
	}
	mutex_unlock(&s->lock);
	return ret;
}

static const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.open = uvm_open,
	.release = uvm_release,
	.mmap = uvm_mmap,
	.unlocked_ioctl = uvm_ioctl,
	.compat_ioctl = uvm_ioctl,
};

static dev_t uvm_dev;
static struct cdev uvm_cdev, tools_cdev;

static int __init nvsim_uvm_init(void)
{
	int ret;

	ret = alloc_chrdev_region(&uvm_dev, 0, 2, "nvidia-uvm");
	if (ret)
		return ret;
	cdev_init(&uvm_cdev, &uvm_fops);
	uvm_cdev.owner = THIS_MODULE;
	ret = cdev_add(&uvm_cdev, uvm_dev, 1);
	if (ret)
		goto err_region;
	cdev_init(&tools_cdev, &uvm_tools_fops);
	tools_cdev.owner = THIS_MODULE;
	ret = cdev_add(&tools_cdev, uvm_dev + 1, 1);
	if (ret)
		goto err_cdev;
	nvsim_uvm_set_evict(uvm_evict);
	return 0;
err_cdev:
	cdev_del(&uvm_cdev);
err_region:
	unregister_chrdev_region(uvm_dev, 2);
	return ret;
}

static void __exit nvsim_uvm_exit(void)
{
	nvsim_uvm_set_evict(NULL);
	cdev_del(&tools_cdev);
	cdev_del(&uvm_cdev);
	unregister_chrdev_region(uvm_dev, 2);
}

module_init(nvsim_uvm_init);
module_exit(nvsim_uvm_exit);
MODULE_DESCRIPTION("Simulated NVIDIA unified memory for tests without a GPU");
MODULE_LICENSE("GPL");
