// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver compares a file's f_op with its own table, so the table stays and the
 * pointers in it are replaced. Files that were open before are covered too. The RM
 * driver's table is writable; UVM's is const and is written through an alias mapping
 * of its pages.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#include "target.h"

/*
 * The pages of a table that may be read-only are plain memory, so a second, writable mapping of
 * them does. It is kept while the table is hooked: unloading must not need memory to put the
 * driver's pointers back.
 *
 * Return: where the table can be written, NULL: no memory.
 */
static struct file_operations *map_alias(const struct file_operations *fops)
{
	const void *first = (void *)((unsigned long)fops & PAGE_MASK);
	const void *last = (void *)(((unsigned long)(fops + 1) - 1) & PAGE_MASK);
	struct page *pages[] = { vmalloc_to_page(first), vmalloc_to_page(last) };
	u8 *alias;

	BUILD_BUG_ON(sizeof(*fops) > PAGE_SIZE);
	if (!pages[0] || !pages[1])
		return NULL;
	alias = vmap(pages, first == last ? 1 : 2, VM_MAP, PAGE_KERNEL);
	return alias ? (void *)(alias + offset_in_page(fops)) : NULL;
}

static void unmap_alias(struct file_operations *alias)
{
	vunmap((void *)((unsigned long)alias & PAGE_MASK));
}

/* the members of struct file_operations that a replacement may fill */
static const size_t members[] = {
	offsetof(struct file_operations, open),
	offsetof(struct file_operations, release),
	offsetof(struct file_operations, unlocked_ioctl),
	offsetof(struct file_operations, compat_ioctl),
	offsetof(struct file_operations, mmap),
};

static const void **member_of(const struct file_operations *fops, size_t offset)
{
	return (const void **)((u8 *)fops + offset);
}

void cgpu_target_restore(struct cgpu_target *target)
{
	size_t i;

	if (!target->fops)
		return;
	for (i = 0; i < ARRAY_SIZE(members); i++) {
		const void *ours = *member_of(target->replacement, members[i]);
		const void **there = member_of(target->fops, members[i]);

		if (!ours || !*member_of(&target->original, members[i]))
			continue;
		if (READ_ONCE(*there) != ours)
			pr_warn("cgpu: somebody hooked %s after us; leaving that pointer\n",
				target->module);
		else
			WRITE_ONCE(*member_of(target->alias, members[i]),
				   *member_of(&target->original, members[i]));
	}
	target->fops = NULL;
	unmap_alias(target->alias);
	target->alias = NULL;
}

int cgpu_target_patch(struct cgpu_target *target, const struct file_operations *fops)
{
	size_t i;

	if (!fops->owner)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(members); i++) {
		const void *there = *member_of(fops, members[i]);

		if (*member_of(target->replacement, members[i]) && there &&
		    !within_module((unsigned long)there, fops->owner)) {
			pr_err("cgpu: %s: a pointer of the driver lies outside its module: hooked by somebody else\n",
			       target->module);
			return -EINVAL;
		}
	}
	target->alias = map_alias(fops);
	if (!target->alias)
		return -ENOMEM;
	target->original = *fops;
	target->fops = (struct file_operations *)fops;
	for (i = 0; i < ARRAY_SIZE(members); i++) {
		const void *ours = *member_of(target->replacement, members[i]);

		/* what the driver does not serve stays unserved */
		if (ours && *member_of(&target->original, members[i]))
			WRITE_ONCE(*member_of(target->alias, members[i]), ours);
	}
	return 0;
}
