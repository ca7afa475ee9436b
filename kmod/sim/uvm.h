/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulated nvidia-uvm.ko.
 *
 * Locks, outermost first: the caller's mmap_lock, space->lock, managed_lock,
 * the card's pma_lock. Neither space->lock nor managed_lock is held over user
 * copies or over calls that take rm_lock; rm_lock may be held when managed_lock
 * is taken (an RM allocation that pushes managed pages out).
 */
#ifndef NVSIM_UVM_H
#define NVSIM_UVM_H

#include <linux/mutex.h>
#include "nvsim.h"

#define UVM_BLOCK_SHIFT	21
#define UVM_BLOCK_SIZE	(1ull << UVM_BLOCK_SHIFT)

enum uvm_range_type { UVM_EXTERNAL, UVM_MANAGED, UVM_POOL, UVM_PARALLELISM };

struct uvm_mapping {
	struct list_head node;
	u64 start, end;			/* inclusive end */
	struct nvsim_card *card;
	struct nvsim_mem *mem;		/* held: alive after RM_FREE */
};

struct uvm_range {
	struct list_head node;
	u64 start, end;			/* inclusive end */
	enum uvm_range_type type;
	struct list_head mappings;	/* external */
};

struct uvm_space {
	struct mutex lock;
	struct mm_struct *mm;		/* identity; grabbed */
	struct address_space *mapping;
	struct list_head ranges;	/* sorted by nothing; found by walking */
	u32 gpus, vaspaces;		/* bits by card index */
	struct xarray groups;		/* of ranges, by number */
	struct xarray pages;		/* host pages by address >> PAGE_SHIFT */
	struct list_head all;		/* managed_lock */
	struct xarray resident;		/* blocks on a card; managed_lock */
	bool mm_fd_taken;
};

struct uvm_space *uvm_space_create(struct address_space *mapping);
void uvm_space_destroy(struct uvm_space *space);

u32 uvm_range_create(struct uvm_space *s, u64 start, u64 length, enum uvm_range_type type);
struct uvm_range *uvm_range_at(struct uvm_space *s, u64 address);
u32 uvm_range_free(struct uvm_space *s, u64 start, u64 length);
u32 uvm_external_map(struct uvm_space *s, u64 start, u64 length, u64 offset,
		     struct nvsim_card *card, struct nvsim_mem *mem);
u32 uvm_external_unmap(struct uvm_space *s, u64 start, u64 length, struct nvsim_card *card);

u32 uvm_card_register(struct uvm_space *s, struct nvsim_card *card);
void uvm_card_unregister(struct uvm_space *s, struct nvsim_card *card);

void uvm_managed_cut(struct uvm_space *s, u64 start, u64 end);
u32 uvm_managed_migrate(struct uvm_space *s, u64 start, u64 length, struct nvsim_card *card);
struct page *uvm_page(struct uvm_space *s, u64 address);
u64 uvm_evict(struct nvsim_card *card, u64 bytes);

u32 uvm_file_check(struct file *file);
extern const struct file_operations uvm_tools_fops;

#endif
