// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver compares a file's f_op with its own table, so the table stays and the
 * pointers in it are replaced. Files that were open before are covered too. The RM
 * driver's table is writable; UVM's is const and is written through an alias mapping
 * of its page.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#include "target.h"

/*
 * Writes one pointer into a table that may be read-only: its page is plain
 * memory, so a second, writable mapping of it does. The pointers of a table
 * are naturally aligned, hence in one page each.
 */
static int write_pointer(void *where, const void *value)
{
	unsigned long address = (unsigned long)where;
	struct page *page = vmalloc_to_page((void *)(address & PAGE_MASK));
	u8 *alias;

	if (!page)
		return -EFAULT;
	alias = vmap(&page, 1, VM_MAP, PAGE_KERNEL);
	if (!alias)
		return -ENOMEM;
	WRITE_ONCE(*(const void **)(alias + offset_in_page(address)), value);
	vunmap(alias);
	return 0;
}

/* the slots of struct file_operations that a replacement may fill */
static const size_t slots[] = {
	offsetof(struct file_operations, open),
	offsetof(struct file_operations, release),
	offsetof(struct file_operations, unlocked_ioctl),
	offsetof(struct file_operations, compat_ioctl),
	offsetof(struct file_operations, mmap),
};

static void **slot_of(const struct file_operations *fops, size_t offset)
{
	return (void **)((u8 *)fops + offset);
}

void cgpu_target_restore(struct cgpu_target *target)
{
	size_t i;

	if (!target->fops)
		return;
	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		void *ours = *slot_of(target->replacement, slots[i]);
		void **there = slot_of(target->fops, slots[i]);

		if (!ours || !*slot_of(&target->original, slots[i]))
			continue;
		if (READ_ONCE(*there) != ours)
			pr_warn("cgpu: somebody hooked %s after us; leaving that pointer\n",
				target->module);
		else
			write_pointer(there, *slot_of(&target->original, slots[i]));
	}
	target->fops = NULL;
}

int cgpu_target_patch(struct cgpu_target *target, const struct file_operations *fops)
{
	size_t i;
	int err;

	if (!fops->owner)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		void *there = *slot_of(fops, slots[i]);

		if (*slot_of(target->replacement, slots[i]) && there &&
		    !within_module((unsigned long)there, fops->owner)) {
			pr_err("cgpu: %s: a pointer of the driver lies outside its module: hooked by somebody else\n",
			       target->module);
			return -EINVAL;
		}
	}
	target->original = *fops;
	target->fops = (struct file_operations *)fops;
	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		void *ours = *slot_of(target->replacement, slots[i]);

		/* what the driver does not serve stays unserved */
		if (!ours || !*slot_of(&target->original, slots[i]))
			continue;
		err = write_pointer(slot_of(fops, slots[i]), ours);
		if (err) {
			cgpu_target_restore(target);
			return err;
		}
	}
	return 0;
}
