// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver copies an ioctl's argument from user memory a second time, after
 * the hook has read it. If another thread writes in between, the hook decides
 * on one request and the driver does another. So the driver is handed a copy:
 * pages of the kernel, mapped below TASK_SIZE (copy_from_user() accepts the
 * address) by entries without the user bit (the process faults on it, the
 * kernel does not).
 *
 * What the process may try on an area, and what stops it:
 *
 * - reading, writing: no user bit; no permissions, and none to be had (VM_MAY*
 *   cleared); nor a protection key, which would take the kernel's access away
 *   (->mprotect);
 * - ptrace, /proc/self/mem, process_vm_writev, O_DIRECT, userfaultfd, KSM and the
 *   reclaiming kinds of madvise: VM_IO | VM_PFNMAP has no struct page to offer;
 * - fork: VM_DONTCOPY;
 * - mremap: ->mremap; splitting: ->may_split;
 * - munmap, mmap(MAP_FIXED) and whatever else unmaps: sealed, see seal.c. On a
 *   kernel that offers no way to, ->close notices, and the call that used the area
 *   is treated as an attack.
 *
 * What nothing stops: a system call of another thread that copies to, or from, an
 * address which it is given. It runs with the kernel's rights, as the driver does:
 * docs/threat-model.md, row 1.
 *
 * So the pages are there as long as the process is, and the driver needs no
 * mmap_lock to reach them. An area of a process of the host, which asks the driver
 * for its cards once, is not sealed, so that it can be taken away again.
 *
 * An area belongs to one mm and is found by it; it goes with the mm. Areas
 * are counted: one reference of the mapping, one of each slot in use.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>

#include "../compat/compat.h"
#include "scratch.h"
#include "seal.h"

#ifndef CONFIG_X86_64
#error "scratch.c knows the page table bits of x86-64 only"
#endif

enum {
	SLOTS = 8,
	SLOT_BYTES = CGPU_SLOT_ARGS_BYTES + CGPU_SLOT_PARAMS_BYTES,
	AREA_BYTES = SLOTS * SLOT_BYTES,
	/* a process with more ioctls in flight than this gets -ENOMEM */
	AREAS_PER_MM = 64,
};

struct cgpu_scratch_area {
	struct hlist_node node;
	struct kref refs;
	struct mm_struct *mm;      /* key only, never dereferenced */
	u8 *pages;                 /* AREA_BYTES, vmalloc */
	u8 *before;                /* SLOTS * CGPU_SLOT_PARAMS_BYTES */
	unsigned long user;        /* where the process has it */
	unsigned long busy;        /* bit per slot, under areas_lock */
	unsigned int mappings;     /* under areas_lock; 2 while mremap() tries its luck */
	bool closed;               /* under areas_lock */
	bool sealed;
};

static DEFINE_HASHTABLE(areas, 8);
/* raw: taken by the probe of seal.c too */
static DEFINE_RAW_SPINLOCK(areas_lock);

static void area_free(struct kref *refs)
{
	struct cgpu_scratch_area *area = container_of(refs, struct cgpu_scratch_area, refs);

	vfree(area->pages);
	vfree(area->before);
	kfree(area);
}

/* mremap() copies the mapping before it asks ->mremap, and drops the copy */
static void area_open(struct vm_area_struct *vma)
{
	struct cgpu_scratch_area *area = vma->vm_private_data;

	kref_get(&area->refs);
	raw_spin_lock(&areas_lock);
	area->mappings++;
	raw_spin_unlock(&areas_lock);
}

static void area_close(struct vm_area_struct *vma)
{
	struct cgpu_scratch_area *area = vma->vm_private_data;

	raw_spin_lock(&areas_lock);
	if (!--area->mappings) {
		area->closed = true;
		if (!hlist_unhashed(&area->node))
			hash_del(&area->node);
	}
	raw_spin_unlock(&areas_lock);
	kref_put(&area->refs, area_free);
}

static int area_may_split(struct vm_area_struct *vma, unsigned long address)
{
	return -EINVAL;
}

static int area_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

#ifdef CGPU_HAS_VM_OPS_MPROTECT
static int area_mprotect(struct vm_area_struct *vma, unsigned long start, unsigned long end,
			 unsigned long flags)
{
	return -EPERM;
}
#endif

static vm_fault_t area_fault(struct vm_fault *vmf)
{
	return VM_FAULT_SIGBUS;
}

static const struct vm_operations_struct area_vm_ops = {
	.open = area_open,
	.close = area_close,
	.may_split = area_may_split,
	.mremap = area_mremap,
#ifdef CGPU_HAS_VM_OPS_MPROTECT
	.mprotect = area_mprotect,
#endif
	.fault = area_fault,
};

static int area_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct cgpu_scratch_area *area = file->private_data;
	pgprot_t prot = __pgprot(pgprot_val(PAGE_SHARED) & ~_PAGE_USER);
	unsigned long offset;
	int err;

	/* only cgpu_slot_get() maps it, once */
	if (!area || area->mm != vma->vm_mm || vma->vm_end - vma->vm_start != AREA_BYTES)
		return -EINVAL;
	vm_flags_clear(vma, VM_READ | VM_WRITE | VM_EXEC |
			    VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC);
	vm_flags_set(vma, VM_IO | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	for (offset = 0; offset < AREA_BYTES; offset += PAGE_SIZE) {
		err = remap_pfn_range(vma, vma->vm_start + offset,
				      vmalloc_to_pfn(area->pages + offset), PAGE_SIZE, prot);
		if (err)
			return err;
	}
	if (area->sealed)
		cgpu_seal_vma(vma);
	file->private_data = NULL;
	area->user = vma->vm_start;
	vma->vm_private_data = area;
	vma->vm_ops = &area_vm_ops;
	area->mappings = 1;
	kref_get(&area->refs); /* the mapping's, dropped by area_close() */
	/* sealed before mmap_lock is let go */
	raw_spin_lock(&areas_lock);
	hash_add(areas, &area->node, (unsigned long)area->mm);
	raw_spin_unlock(&areas_lock);
	return 0;
}

static const struct file_operations area_fops = {
	.owner = THIS_MODULE,
	.mmap = area_mmap,
};

static bool is_sealed(const struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct cgpu_scratch_area *area;
	bool found = false;

	if (hlist_empty(&areas[hash_min((unsigned long)mm, HASH_BITS(areas))]))
		return false;
	raw_spin_lock(&areas_lock);
	hash_for_each_possible(areas, area, node, (unsigned long)mm)
		found |= area->mm == mm && area->sealed && start < area->user + AREA_BYTES &&
			 area->user < end;
	raw_spin_unlock(&areas_lock);
	return found;
}

/* Return: a mapped area with its first slot taken, and a reference for it. */
static struct cgpu_scratch_area *area_new(bool seal)
{
	struct cgpu_scratch_area *area;
	struct file *file;
	unsigned long address;

	area = kzalloc(sizeof(*area), GFP_KERNEL_ACCOUNT);
	if (!area)
		return ERR_PTR(-ENOMEM);
	if (seal)
		cgpu_seal_begin(is_sealed); /* else ->close has to do */
	kref_init(&area->refs);
	area->mm = current->mm;
	area->busy = 1;
	area->sealed = seal;
	area->pages = __vmalloc(AREA_BYTES, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	area->before = __vmalloc(SLOTS * CGPU_SLOT_PARAMS_BYTES,
				 GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!area->pages || !area->before)
		goto no_memory;

	file = anon_inode_getfile("[cgpu]", &area_fops, area, O_RDWR);
	if (IS_ERR(file))
		goto no_memory;
	address = vm_mmap(file, 0, AREA_BYTES, PROT_NONE, MAP_SHARED, 0);
	fput(file); /* the mapping keeps it */
	if (IS_ERR_VALUE(address)) {
		kref_put(&area->refs, area_free);
		return ERR_PTR(address);
	}
	return area;

no_memory:
	kref_put(&area->refs, area_free);
	return ERR_PTR(-ENOMEM);
}

int cgpu_slot_get(struct cgpu_slot *slot, bool sealed)
{
	struct cgpu_scratch_area *area, *found = NULL;
	unsigned int index = 0, count = 0;

	if (!current->mm)
		return -ESRCH;
	raw_spin_lock(&areas_lock);
	hash_for_each_possible(areas, area, node, (unsigned long)current->mm) {
		if (area->mm != current->mm || area->sealed != sealed)
			continue;
		count++;
		index = ffz(area->busy);
		if (index < SLOTS) {
			area->busy |= 1ul << index;
			kref_get(&area->refs);
			found = area;
			break;
		}
	}
	raw_spin_unlock(&areas_lock);

	if (!found) {
		if (count >= AREAS_PER_MM)
			return -ENOMEM;
		found = area_new(sealed);
		if (IS_ERR(found))
			return PTR_ERR(found);
		index = 0;
	}
	slot->area = found;
	slot->index = index;
	slot->args = found->pages + index * SLOT_BYTES;
	slot->params = slot->args + CGPU_SLOT_ARGS_BYTES;
	slot->before = found->before + index * CGPU_SLOT_PARAMS_BYTES;
	slot->args_user = found->user + index * SLOT_BYTES;
	slot->params_user = slot->args_user + CGPU_SLOT_ARGS_BYTES;
	return 0;
}
EXPORT_SYMBOL_GPL(cgpu_slot_get);

bool cgpu_slot_put(struct cgpu_slot *slot)
{
	struct cgpu_scratch_area *area = slot->area;
	bool closed;

	raw_spin_lock(&areas_lock);
	closed = area->closed;
	area->busy &= ~(1ul << slot->index);
	raw_spin_unlock(&areas_lock);
	kref_put(&area->refs, area_free);
	return closed;
}
EXPORT_SYMBOL_GPL(cgpu_slot_put);

void cgpu_scratch_forget(void)
{
	struct cgpu_scratch_area *area;
	unsigned long user;

	do {
		user = 0;
		raw_spin_lock(&areas_lock);
		hash_for_each_possible(areas, area, node, (unsigned long)current->mm)
			if (area->mm == current->mm && !area->sealed && !area->busy)
				user = area->user;
		raw_spin_unlock(&areas_lock);
	} while (user && !vm_munmap(user, AREA_BYTES));
}
EXPORT_SYMBOL_GPL(cgpu_scratch_forget);

void cgpu_scratch_exit(void)
{
	BUILD_BUG_ON(SLOT_BYTES % PAGE_SIZE);
	cgpu_seal_exit();
	WARN_ON(!hash_empty(areas));
}
