// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver copies an ioctl's argument from user memory a second time, after
 * the hook has read it. If another thread writes in between, the hook decides
 * on one request and the driver does another. So the driver is handed a copy:
 * pages of the kernel, mapped below TASK_SIZE (copy_from_user() accepts the
 * address) by entries without the user bit (the process faults on it, the
 * kernel does not).
 *
 * The kernel also writes on a process's behalf: another thread's read() from a pipe into an address
 * would change a copy as no instruction of the process can. So the entries exist for one call at a
 * time and are read-only. The driver's own writing, at the call's end, faults and is let through
 * only for the task whose call it is. The answer has been taken elsewhere by then (answer.c): pages
 * that are writable hold nothing that will be read.
 *
 * For RM's own calls, which are most and are followed further, nothing is mapped. Only the
 * addresses are used, by which the driver's copying is recognised as ours. The driver's ioctl reads
 * and writes an argument without effect, which is always mapped. In the caller's memory it might
 * wait for a page for any time, with a channel group scheduled that the core does not know of.
 *
 * What else a process may try on an area, and what stops it:
 *
 * - reading, writing: no user bit. A read during a call faults until it is over;
 *   no permissions to be had, nor a protection key, which would take the kernel's
 *   access away (->mprotect; before 5.11 there is VM_MAY* for the one, and the other
 *   is noticed);
 * - ptrace, /proc/self/mem, process_vm_writev, O_DIRECT, userfaultfd, KSM and the
 *   reclaiming kinds of madvise: VM_IO | VM_PFNMAP has no struct page to offer;
 * - fork: VM_DONTCOPY;
 * - mremap: ->mremap; splitting: ->may_split;
 * - munmap, mmap(MAP_FIXED) and whatever else unmaps: sealed, see seal.c. On a
 *   kernel that offers no way to, ->close notices, and the call that used the area
 *   is treated as an attack.
 *
 * So the pages are there as long as the call is. An area of a process of the host,
 * which asks the driver for its cards once, is not sealed, so that it can be taken
 * away again.
 *
 * An area belongs to one mm and is found by it; it goes with the mm. Areas
 * are counted: one reference of the mapping, one of each buffer in use.
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
#include "answer.h"
#include "probe_lock.h"
#include "scratch.h"
#include "seal.h"

#ifndef CONFIG_X86_64
#error "scratch.c knows the page table bits of x86-64 only"
#endif

enum {
	BUFFERS = 4,
	BUFFER_BYTES = CGPU_SCRATCH_ARGS_BYTES + CGPU_SCRATCH_PARAMS_BYTES,
	AREA_BYTES = BUFFERS * BUFFER_BYTES,
	/* of a buffer, what the driver is not shown */
	BEHIND_BYTES = CGPU_SCRATCH_PARAMS_BYTES + CGPU_SCRATCH_RECORD_BYTES,
	ALL_BUFFERS = (1 << BUFFERS) - 1,
	/* a size by which the two mappings of an area are told apart */
	BLANK_BYTES = CGPU_SCRATCH_ARGS_BYTES,
	MAPPINGS = 2,
	/* a process with more ioctls in flight than they have buffers gets -ENOMEM */
	AREAS_PER_MM = 128,
	UNMAP_TRIES = 64,
};

struct cgpu_scratch_area {
	struct hlist_node node;
	struct kref refs;
	struct mm_struct *mm;      /* key only, never dereferenced */
	u8 *pages;                 /* AREA_BYTES, vmalloc: what the driver sees */
	u8 *work;                  /* AREA_BYTES, likewise laid out: what the core sees */
	u8 *behind;                /* BUFFERS * BEHIND_BYTES */
	u8 *blank;                 /* PAGE_SIZE: what becomes of any argument */
	unsigned long user;        /* where the process has `pages` */
	unsigned long blank_user;  /* BLANK_BYTES of nothing but `blank` */
	unsigned long busy;        /* bit per buffer, under areas_lock */
	unsigned int mappings;     /* under areas_lock; one more while mremap() tries its luck */
	bool closed;               /* under areas_lock */
	bool sealed;
	/* whose call is in the driver: set before its pages are mapped, until they are not */
	struct cgpu_answer *asked[BUFFERS];
};

static DEFINE_HASHTABLE(areas, 8);
/* raw: taken by the probe of seal.c too */
static DEFINE_RAW_SPINLOCK(areas_lock);

static void area_free(struct kref *refs)
{
	struct cgpu_scratch_area *area = container_of(refs, struct cgpu_scratch_area, refs);

	vfree(area->pages);
	vfree(area->work);
	vfree(area->behind);
	vfree(area->blank);
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
	if (--area->mappings < MAPPINGS) {
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

#ifdef CGPU_HAVE_VM_OPS_MPROTECT
static int area_mprotect(struct vm_area_struct *vma, unsigned long start, unsigned long end,
			 unsigned long flags)
{
	return -EPERM;
}
#endif

static vm_fault_t area_fault(struct vm_fault *vmf)
{
	return VM_FAULT_SIGSEGV;
}

/* The kernel writes to a page that is mapped for a call. */
static vm_fault_t area_pfn_mkwrite(struct vm_fault *vmf)
{
	struct cgpu_scratch_area *area = vmf->vma->vm_private_data;
	unsigned long offset = vmf->address - area->user;
	struct cgpu_answer *answer = READ_ONCE(area->asked[offset / BUFFER_BYTES]);

	/* compared only: it may be another task's, and gone */
	if (vmf->flags & FAULT_FLAG_USER || !answer || answer != cgpu_answer_of_current())
		return VM_FAULT_SIGSEGV;
	/* the argument is what a driver writes last */
	if (offset % BUFFER_BYTES < PAGE_SIZE)
		cgpu_answer_take(answer);
	return 0;
}

static const struct vm_operations_struct area_vm_ops = {
	.open = area_open,
	.close = area_close,
	.may_split = area_may_split,
	.mremap = area_mremap,
#ifdef CGPU_HAVE_VM_OPS_MPROTECT
	.mprotect = area_mprotect,
#endif
	.fault = area_fault,
	.pfn_mkwrite = area_pfn_mkwrite,
};

/* Always there: writing to it changes nothing. */
static int map_blank(struct vm_area_struct *vma, struct cgpu_scratch_area *area)
{
	const pgprot_t prot = __pgprot(pgprot_val(PAGE_SHARED) & ~_PAGE_USER);
	unsigned long offset;
	int err;

	vm_flags_clear(vma, VM_READ | VM_WRITE | VM_EXEC |
			    VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC);
	for (offset = 0; offset < BLANK_BYTES; offset += PAGE_SIZE) {
		err = remap_pfn_range(vma, vma->vm_start + offset,
				      vmalloc_to_pfn(area->blank), PAGE_SIZE, prot);
		if (err)
			return err;
	}
	area->blank_user = vma->vm_start;
	return 0;
}

/* Nothing is there before a call. */
static void map_pages(struct vm_area_struct *vma, struct cgpu_scratch_area *area)
{
	vm_flags_clear(vma, VM_READ | VM_EXEC | VM_MAYREAD | VM_MAYEXEC);
#ifndef CGPU_HAVE_VM_OPS_MPROTECT
	vm_flags_clear(vma, VM_MAYWRITE);
#endif
	/* VM_WRITE: otherwise the driver's writing would not get as far as ->pfn_mkwrite */
	vm_flags_set(vma, VM_WRITE | VM_PFNMAP);
	area->user = vma->vm_start;
}

static int area_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct cgpu_scratch_area *area = file->private_data;
	const unsigned long bytes = vma->vm_end - vma->vm_start;
	int err = 0;

	/* only cgpu_scratch_get() maps it, each part once */
	if (!area || area->mm != vma->vm_mm || (bytes != AREA_BYTES && bytes != BLANK_BYTES))
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	if (bytes == BLANK_BYTES)
		err = map_blank(vma, area);
	else
		map_pages(vma, area);
	if (err)
		return err;
	if (area->sealed)
		cgpu_seal_vma(vma);
	file->private_data = NULL;
	vma->vm_private_data = area;
	vma->vm_ops = &area_vm_ops;
	kref_get(&area->refs); /* the mapping's, dropped by area_close() */
	/* sealed before mmap_lock is let go */
	raw_spin_lock(&areas_lock);
	/* it can still fail, under mmap_lock: only the mapping task has a buffer of it so far */
	if (++area->mappings == MAPPINGS)
		hash_add(areas, &area->node, (unsigned long)area->mm);
	raw_spin_unlock(&areas_lock);
	return 0;
}

static const struct file_operations area_fops = {
	.owner = THIS_MODULE,
	.mmap = area_mmap,
};

/* Context: a probe. */
static bool is_sealed(const struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct cgpu_scratch_area *area;
	unsigned long flags;
	bool found = false;

	if (hlist_empty(&areas[hash_min((unsigned long)mm, HASH_BITS(areas))]))
		return false;
	flags = cgpu_probe_lock(&areas_lock);
	hash_for_each_possible(areas, area, node, (unsigned long)mm)
		found |= area->mm == mm && area->sealed &&
			 ((start < area->user + AREA_BYTES && area->user < end) ||
			  (start < area->blank_user + BLANK_BYTES && area->blank_user < end));
	cgpu_probe_unlock(&areas_lock, flags);
	return found;
}

/* Return: where current has that much of it now, or -errno. */
static unsigned long map_area(struct cgpu_scratch_area *area, unsigned long bytes)
{
	struct file *file = anon_inode_getfile("[cgpu]", &area_fops, area, O_RDWR);
	unsigned long address;

	if (IS_ERR(file))
		return PTR_ERR(file);
	address = vm_mmap(file, 0, bytes, PROT_NONE, MAP_SHARED, 0);
	fput(file); /* the mapping keeps it */
	return address;
}

/*
 * A mapping that stays holds this module for as long as the process lives. A sealed mapping is not
 * undone; the kernel fails to undo any other only for lack of memory.
 */
static int unmap_area(unsigned long address, unsigned long bytes)
{
	int tries = UNMAP_TRIES, err;

	do
		err = vm_munmap(address, bytes);
	while (err == -ENOMEM && --tries);
	return err;
}

/* Its buffers but the first may be had by other threads. */
static void open_buffers(struct cgpu_scratch_area *area)
{
	raw_spin_lock(&areas_lock);
	area->busy = 1;
	raw_spin_unlock(&areas_lock);
}

/*
 * On failure the area is unmapped again. No other thread may have a call in it by then, because
 * that would look as if the process had taken it away.
 *
 * Return: a mapped area with its first buffer taken, and a reference for it.
 */
static struct cgpu_scratch_area *area_new(bool seal)
{
	/* a container at the limit of its memory cgroup has nothing to tell the host's log */
	const gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	struct cgpu_scratch_area *area;
	unsigned long address = -ENOMEM;
	int err;

	area = kzalloc(sizeof(*area), GFP_KERNEL_ACCOUNT);
	if (!area)
		return ERR_PTR(-ENOMEM);
	kref_init(&area->refs);
	/* if it cannot be sealed at all, ->close must suffice */
	err = seal ? cgpu_seal_begin(is_sealed) : 0;
	if (err && err != -EOPNOTSUPP) {
		address = err;
		goto fail;
	}
	area->mm = current->mm;
	area->busy = ALL_BUFFERS;
	area->sealed = seal;
	area->pages = __vmalloc(AREA_BYTES, gfp);
	area->work = __vmalloc(AREA_BYTES, gfp);
	area->behind = __vmalloc(BUFFERS * BEHIND_BYTES, gfp);
	area->blank = __vmalloc(PAGE_SIZE, gfp);
	if (!area->pages || !area->work || !area->behind || !area->blank)
		goto fail;

	address = map_area(area, BLANK_BYTES);
	if (IS_ERR_VALUE(address))
		goto fail;
	address = map_area(area, AREA_BYTES);
	if (!IS_ERR_VALUE(address)) {
		open_buffers(area);
		return area;
	}
	/* sealed, it stays until the process ends */
	unmap_area(area->blank_user, BLANK_BYTES);
fail:
	kref_put(&area->refs, area_free);
	return ERR_PTR(address);
}

int cgpu_scratch_get(struct cgpu_scratch *scratch, bool sealed)
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
		if (index < BUFFERS) {
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
		/* mmap_lock may be held for long, by a tenant's other thread */
		if (sealed)
			return -EAGAIN;
		found = area_new(false);
		if (IS_ERR(found))
			return PTR_ERR(found);
		index = 0;
	}
	*scratch = (struct cgpu_scratch){
		.area = found,
		.index = index,
		.args = found->work + index * BUFFER_BYTES,
		.params = found->work + index * BUFFER_BYTES + CGPU_SCRATCH_ARGS_BYTES,
		.before = found->behind + index * BEHIND_BYTES,
		.record = found->behind + index * BEHIND_BYTES + CGPU_SCRATCH_PARAMS_BYTES,
		.args_user = found->user + index * BUFFER_BYTES,
		.params_user = found->user + index * BUFFER_BYTES + CGPU_SCRATCH_ARGS_BYTES,
	};
	return 0;
}
EXPORT_SYMBOL_GPL(cgpu_scratch_get);

int cgpu_scratch_add(void)
{
	struct cgpu_scratch_area *area = area_new(true);
	struct cgpu_scratch scratch = { .area = area };

	if (IS_ERR(area))
		return PTR_ERR(area);
	/* its first buffer is whoever's is first */
	cgpu_scratch_put(&scratch);
	return 0;
}

/* Part of a buffer, and of its area's pages. */
struct part {
	u32 offset;
	u32 bytes;
};

enum { PARTS = 3 };

/* Context: mmap_lock. Return: NULL: the process has unmapped it, or changed it. */
static struct vm_area_struct *vma_of(const struct cgpu_scratch_area *area)
{
	struct vm_area_struct *vma = find_vma(current->mm, area->user);

	return vma && vma->vm_ops == &area_vm_ops && vma->vm_private_data == area &&
	       vma->vm_start == area->user && vma->vm_flags & VM_WRITE ? vma : NULL;
}

/* Return: 0, -ENOMEM, -EFAULT: there is no mapping any more. */
static int map_part(struct vm_area_struct *vma, const struct cgpu_scratch_area *area,
		    unsigned long offset, u32 bytes)
{
	const pgprot_t prot = __pgprot(pgprot_val(PAGE_READONLY) & ~_PAGE_USER);
	const unsigned long end = offset + bytes;

	for (offset &= PAGE_MASK; offset < end; offset += PAGE_SIZE)
		if (vmf_insert_pfn_prot(vma, area->user + offset,
					vmalloc_to_pfn(area->pages + offset), prot) &
		    VM_FAULT_ERROR)
			return -ENOMEM;
	return 0;
}

static int map_parts(const struct cgpu_scratch_area *area, u32 buffer_offset,
		     const struct part *parts, unsigned int count)
{
	struct vm_area_struct *vma;
	unsigned int i;
	int err = 0;

	mmap_read_lock(current->mm);
	vma = vma_of(area);
	if (!vma)
		err = -EFAULT;
	for (i = 0; i < count && !err; i++)
		if (parts[i].bytes)
			err = map_part(vma, area, buffer_offset + parts[i].offset,
				       parts[i].bytes);
	mmap_read_unlock(current->mm);
	return err;
}

/* Return: true: the process has unmapped or changed the mapping. */
static bool unmap_parts(const struct cgpu_scratch_area *area, u32 buffer_offset)
{
	struct vm_area_struct *vma;

	mmap_read_lock(current->mm);
	vma = vma_of(area);
	if (vma)
		zap_special_vma_range(vma, area->user + buffer_offset, BUFFER_BYTES);
	mmap_read_unlock(current->mm);
	return !vma;
}

/* The area is not the process's any more, or never was what the driver looked at. */
static void set_closed(struct cgpu_scratch_area *area)
{
	raw_spin_lock(&areas_lock);
	area->closed = true;
	raw_spin_unlock(&areas_lock);
}

/* Has the driver work on pages that are mapped for this call. */
static long ask_by_pages(struct cgpu_scratch *scratch, struct cgpu_answer *answer,
			 cgpu_ask_fn driver, struct file *file, unsigned int cmd)
{
	struct cgpu_scratch_area *area = scratch->area;
	const u32 offset = scratch->index * BUFFER_BYTES;
	u8 *pages = area->pages + offset;
	/* what the driver does not copy by itself */
	const unsigned int count = answer->copies ? 1 : PARTS;
	const struct part parts[PARTS] = {
		{ 0, scratch->args_bytes },
		{ CGPU_SCRATCH_LIST_PLACE, scratch->list_bytes },
		{ CGPU_SCRATCH_ARGS_BYTES, scratch->params_bytes },
	};
	unsigned int i;
	long result;

	for (i = 0; i < count; i++)
		memcpy(pages + parts[i].offset, scratch->args + parts[i].offset, parts[i].bytes);
	WRITE_ONCE(area->asked[scratch->index], answer);
	result = map_parts(area, offset, parts, count);
	if (!result) {
		result = driver(file, cmd, scratch->args_user);
		scratch->lost = result == -EFAULT && !answer->taken;
	}
	if (unmap_parts(area, offset))
		set_closed(area);
	WRITE_ONCE(area->asked[scratch->index], NULL);
	for (i = answer->taken; i < count; i++)
		memcpy(scratch->args + parts[i].offset, pages + parts[i].offset, parts[i].bytes);
	return result;
}

/* The driver's ioctl copies what is of no consequence, and RM works on ours. */
static long ask_by_rm(struct cgpu_scratch *scratch, const struct cgpu_answer *answer,
		      cgpu_ask_fn driver, struct file *file, unsigned int cmd)
{
	long result = driver(file, cmd, scratch->area->blank_user);

	/* it worked on the other, which is no driver that we know */
	if (!result && !answer->taken)
		set_closed(scratch->area);
	return result;
}

long cgpu_scratch_ask(struct cgpu_scratch *scratch, cgpu_ask_fn driver, struct file *file,
		      unsigned int cmd)
{
	struct cgpu_answer answer = {
		.user = scratch->args_user,
		.to = scratch->args,
		.bytes = BUFFER_BYTES,
		.args_bytes = scratch->args_bytes,
		.through_rm = scratch->through_rm,
		.alone = !scratch->params_bytes && !scratch->list_bytes,
	};
	long result;

	result = scratch->area->sealed ? cgpu_answer_follow() : 0;
	if (result)
		return result;
	cgpu_answer_begin(&answer);
	result = answer.through_rm ?
		ask_by_rm(scratch, &answer, driver, file, cmd) :
		ask_by_pages(scratch, &answer, driver, file, cmd);
	cgpu_answer_end(&answer);
	/* only the copy back failed: delivering the answer will show that */
	return result == -EFAULT && answer.taken ? 0 : result;
}
EXPORT_SYMBOL_GPL(cgpu_scratch_ask);

bool cgpu_scratch_put(struct cgpu_scratch *scratch)
{
	struct cgpu_scratch_area *area = scratch->area;
	bool closed;

	raw_spin_lock(&areas_lock);
	closed = area->closed;
	area->busy &= ~(1ul << scratch->index);
	raw_spin_unlock(&areas_lock);
	kref_put(&area->refs, area_free);
	return closed;
}
EXPORT_SYMBOL_GPL(cgpu_scratch_put);

void cgpu_scratch_forget(void)
{
	struct cgpu_scratch_area *area;
	unsigned long user, blank;

	do {
		user = 0;
		raw_spin_lock(&areas_lock);
		hash_for_each_possible(areas, area, node, (unsigned long)current->mm) {
			if (area->mm == current->mm && !area->sealed && !area->busy) {
				user = area->user;
				blank = area->blank_user;
			}
		}
		raw_spin_unlock(&areas_lock);
	} while (user && !unmap_area(user, AREA_BYTES) && !unmap_area(blank, BLANK_BYTES));
}
EXPORT_SYMBOL_GPL(cgpu_scratch_forget);

void cgpu_scratch_exit(void)
{
	BUILD_BUG_ON(BUFFER_BYTES % PAGE_SIZE);
	cgpu_seal_exit();
	WARN_ON(!hash_empty(areas));
}
