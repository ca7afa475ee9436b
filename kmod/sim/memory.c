// SPDX-License-Identifier: GPL-2.0-only
/*
 * Physical memory. A card's memory is counted, not backed: a page of host memory is made for a page
 * of video memory when the CPU first touches it.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "nvsim.h"

#define PMA_GRAIN	SZ_64K
#define MAX_SYSTEM_BYTES	(1ull << 40)

atomic_long_t nvsim_live_mem;

/* UVM's: move managed pages off the card until `bytes` are free; returns bytes moved. */
static nvsim_evict_fn evict;

static ulong grain_bytes;
module_param(grain_bytes, ulong, 0644);
MODULE_PARM_DESC(grain_bytes, "memory of cards comes out in multiples of it, a power of two; 0: of pages");

static bool hidden = true;
module_param(hidden, bool, 0444);
MODULE_PARM_DESC(hidden, "the driver's own memory, which no ioctl shows, is taken from a card");

u64 nvsim_hidden(u64 bytes)
{
	return hidden ? bytes : 0;
}
EXPORT_SYMBOL_GPL(nvsim_hidden);

void nvsim_pma_set_evict(nvsim_evict_fn fn)
{
	WRITE_ONCE(evict, fn);
}

/* Allocates without evicting managed pages: UVM itself calls this. */
bool nvsim_pma_try(struct nvsim_card *card, u64 bytes)
{
	bool ok;

	spin_lock(&card->pma_lock);
	ok = card->pma_free >= bytes;
	if (ok)
		card->pma_free -= bytes;
	spin_unlock(&card->pma_lock);
	return ok;
}

bool nvsim_pma_take(struct nvsim_card *card, u64 bytes)
{
	nvsim_evict_fn fn;

	if (nvsim_pma_try(card, bytes))
		return true;
	/* The driver asks UVM to push managed pages to the host before it fails. */
	fn = READ_ONCE(evict);
	if (bytes <= card->pma_total && fn && fn(card, bytes))
		return nvsim_pma_try(card, bytes);
	return false;
}

void nvsim_pma_give(struct nvsim_card *card, u64 bytes)
{
	spin_lock(&card->pma_lock);
	card->pma_free += bytes;
	WARN_ON_ONCE(card->pma_free > card->pma_total);
	spin_unlock(&card->pma_lock);
}

u64 nvsim_pma_free_bytes(struct nvsim_card *card)
{
	u64 bytes;

	spin_lock(&card->pma_lock);
	bytes = card->pma_free;
	spin_unlock(&card->pma_lock);
	return bytes;
}

/*
 * The size that the driver reports back: rounded up to the page size, which by
 * default is 2 MiB from 2 MiB on and 64 KiB below. 0 if it does not fit a u64.
 */
u64 nvsim_round_size(u64 size, u32 attr, u32 attr2, u64 *page_size)
{
	u64 page;

	switch (NVOS32_ATTR_PAGE_SIZE(attr)) {
	case 1: page = SZ_4K; break;
	case 2: page = SZ_64K; break;
	case 3: page = NVOS32_ATTR2_PAGE_SIZE_HUGE(attr2) == 2 ? SZ_512M : SZ_2M; break;
	default: page = size >= SZ_2M ? SZ_2M : SZ_64K; break;
	}
	*page_size = page;
	page = max_t(u64, page, grain_bytes);
	if (!size || size > U64_MAX - page)
		return 0;
	return ALIGN(size, page);
}

struct nvsim_mem *nvsim_mem_alloc(struct nvsim_card *card, u32 class, u64 size, u32 *status)
{
	struct nvsim_mem *mem;

	if (!card && size > MAX_SYSTEM_BYTES) {
		*status = NV_ERR_NO_MEMORY;
		return NULL;
	}
	mem = kzalloc(sizeof(*mem), GFP_KERNEL);
	if (!mem) {
		*status = NV_ERR_NO_MEMORY;
		return NULL;
	}
	kref_init(&mem->ref);
	atomic_set(&mem->holders, 1);
	xa_init(&mem->pages);
	mem->class = class;
	mem->size = size;
	mem->card = card;
	if (card) {
		mem->charged = ALIGN(size, PMA_GRAIN);
		if (!nvsim_pma_take(card, mem->charged)) {
			kfree(mem);
			*status = NV_ERR_NO_MEMORY;
			return NULL;
		}
		spin_lock(&card->pma_lock);
		mem->offset = card->next_offset % card->pma_total;
		card->next_offset += mem->charged;
		spin_unlock(&card->pma_lock);
	}
	atomic_long_inc(&nvsim_live_mem);
	*status = NV_OK;
	return mem;
}

static void mem_release(struct kref *ref)
{
	struct nvsim_mem *mem = container_of(ref, struct nvsim_mem, ref);
	struct page *page;
	unsigned long index;

	xa_for_each(&mem->pages, index, page)
		put_page(page);
	xa_destroy(&mem->pages);
	kfree(mem);
	atomic_long_dec(&nvsim_live_mem);
}

/* A holder keeps the video memory allocated: an object, a duplicate, an export. */
struct nvsim_mem *nvsim_mem_get(struct nvsim_mem *mem)
{
	atomic_inc(&mem->holders);
	return mem;
}
EXPORT_SYMBOL_GPL(nvsim_mem_get);

void nvsim_mem_put(struct nvsim_mem *mem)
{
	if (!mem || !atomic_dec_and_test(&mem->holders))
		return;
	if (mem->card)
		nvsim_pma_give(mem->card, mem->charged);
	kref_put(&mem->ref, mem_release);
}
EXPORT_SYMBOL_GPL(nvsim_mem_put);

/*
 * A pin keeps the pages for a CPU mapping, not the allocation: as on the real
 * card, a mapping left behind after RM_FREE does not count against memory.
 */
struct nvsim_mem *nvsim_mem_pin(struct nvsim_mem *mem)
{
	kref_get(&mem->ref);
	return mem;
}

void nvsim_mem_unpin(struct nvsim_mem *mem)
{
	if (mem)
		kref_put(&mem->ref, mem_release);
}
EXPORT_SYMBOL_GPL(nvsim_mem_unpin);

/* The page behind an offset, made if need be. The caller's pin on mem keeps it. */
struct page *nvsim_mem_page(struct nvsim_mem *mem, pgoff_t index)
{
	struct page *page, *old;

	if (index >= DIV_ROUND_UP(mem->size, PAGE_SIZE))
		return NULL;
	page = xa_load(&mem->pages, index);
	if (page)
		return page;
	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!page)
		return NULL;
	old = xa_cmpxchg(&mem->pages, index, NULL, page, GFP_KERNEL);
	if (old) {
		put_page(page);
		return xa_is_err(old) ? NULL : old;
	}
	return page;
}

void *nvsim_mem_vmap(struct nvsim_mem *mem)
{
	unsigned int i, n = DIV_ROUND_UP(mem->size, PAGE_SIZE);
	struct page **pages = kvmalloc_array(n, sizeof(*pages), GFP_KERNEL);
	void *at = NULL;

	if (!pages)
		return NULL;
	for (i = 0; i < n; i++) {
		pages[i] = nvsim_mem_page(mem, i);
		if (!pages[i])
			goto out;
	}
	at = vmap(pages, n, VM_MAP, PAGE_KERNEL);
out:
	kvfree(pages);
	return at;
}

EXPORT_SYMBOL_GPL(nvsim_pma_try);
EXPORT_SYMBOL_GPL(nvsim_pma_give);
