// SPDX-License-Identifier: GPL-2.0-only
/*
 * From 6.10 on VM_SEALED does what mseal() does: munmap, mremap, mprotect and mmap(MAP_FIXED) over
 * the mapping are EPERM, and it goes with its address space.
 *
 * Before, a mapping's own operations cannot prevent that it is unmapped whole. ->close comes
 * afterwards, and if it waited for a call that in turn waits for mmap_lock, it would wait for ever.
 * All ways to unmap part of a living address space (munmap, mmap, mremap, shmat, brk,
 * remap_file_pages) end in one function of the kernel. So a probe at its entry lets it answer EPERM
 * before anything has changed. The probe is set with the first mapping that is to be sealed. From
 * then on every unmapping on the host costs one look-up in a hash table.
 */
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/printk.h>

#include "../compat/compat.h"
#include "entry.h"
#include "errand.h"
#include "seal.h"

#ifdef VM_SEALED

int cgpu_seal_begin(cgpu_sealed_fn is_sealed)
{
	return 0;
}

void cgpu_seal_vma(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_SEALED);
}

void cgpu_seal_exit(void)
{
}

#else

/* Where the function that unmaps finds what it is asked for. */
struct unmapper {
	const char *symbol;
	size_t mm, start, last;  /* in struct pt_regs */
	bool last_is_length;
};

#define ARGUMENT(name) offsetof(struct pt_regs, name)

static const struct unmapper unmappers[] = {
	/* 6.3 to 6.9: (vmi, vma, mm, start, end, …) */
	{ "do_vmi_align_munmap", ARGUMENT(dx), ARGUMENT(cx), ARGUMENT(r8), false },
	/* 6.0 to 6.2: (mas, vma, mm, start, end, …) */
	{ "do_mas_align_munmap", ARGUMENT(dx), ARGUMENT(cx), ARGUMENT(r8), false },
	/* before: (mm, start, length, …) */
	{ "__do_munmap", ARGUMENT(di), ARGUMENT(si), ARGUMENT(dx), true },
};

static const struct unmapper *unmapper; /* that is probed, or tried */
static cgpu_sealed_fn sealed;
static bool probed, hopeless;

/* Runs in the place of the function that unmaps. */
static noinline notrace int refuse(void)
{
	return -EPERM;
}

static unsigned long argument(const struct pt_regs *regs, size_t offset)
{
	return *(const unsigned long *)((const u8 *)regs + offset);
}

static bool on_unmap(struct pt_regs *regs)
{
	const struct mm_struct *mm = (void *)argument(regs, unmapper->mm);
	unsigned long start = argument(regs, unmapper->start);
	unsigned long end = argument(regs, unmapper->last);

	if (unmapper->last_is_length)
		end += start;
	if (likely(!sealed(mm, start, end)))
		return false;
	regs->ip = (unsigned long)refuse;
	return true;
}

static struct cgpu_entry entry = { .handler = on_unmap };
static struct cgpu_entries entries = { .entry = &entry, .count = 1 };

static int set_probe(void)
{
	const char *symbol;
	int err = -ENOENT;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(unmappers); i++) {
		unmapper = &unmappers[i];
		entry.symbol = unmapper->symbol;
		err = cgpu_entries_follow(&entries, &symbol);
		if (!err || cgpu_entries_may_come(err))
			break;
	}
	return err;
}

static int begin(void)
{
	int err;

	if (probed || hopeless)
		return 0;
	err = set_probe();
	/* for want of memory, or of ftrace, it is tried again by the next call */
	if (cgpu_entries_may_come(err))
		return err;
	if (err) {
		pr_warn("cgpu: private copies cannot be sealed (%d): who unmaps one under a call is killed\n",
			err);
		WRITE_ONCE(hopeless, true);
	} else {
		WRITE_ONCE(probed, true);
	}
	return 0;
}

static DEFINE_CGPU_ERRAND(begin_errand, begin);

int cgpu_seal_begin(cgpu_sealed_fn is_sealed)
{
	int err = 0;

	WRITE_ONCE(sealed, is_sealed);
	while (!err && !READ_ONCE(probed)) {
		if (READ_ONCE(hopeless))
			return -EOPNOTSUPP;
		err = cgpu_errand_send(&begin_errand);
	}
	return err;
}

void cgpu_seal_vma(struct vm_area_struct *vma)
{
}

void cgpu_seal_exit(void)
{
	cgpu_errand_end(&begin_errand);
	if (probed)
		cgpu_entries_leave(&entries);
	probed = false;
}

#endif
