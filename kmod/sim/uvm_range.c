// SPDX-License-Identifier: GPL-2.0-only
/* Ranges of a UVM address space: external mappings, managed memory, pools. */
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include "uvm.h"

/* All spaces and what of theirs lies on a card. */
static DEFINE_MUTEX(managed_lock);
static LIST_HEAD(spaces);

struct uvm_space *uvm_space_create(struct address_space *mapping)
{
	struct uvm_space *s = kzalloc(sizeof(*s), GFP_KERNEL);

	if (!s)
		return NULL;
	mutex_init(&s->lock);
	INIT_LIST_HEAD(&s->ranges);
	xa_init_flags(&s->groups, XA_FLAGS_ALLOC1);
	xa_init(&s->pages);
	xa_init(&s->resident);
	s->mapping = mapping;
	s->mm = current->mm;
	mmgrab(s->mm);
	mutex_lock(&managed_lock);
	list_add(&s->all, &spaces);
	mutex_unlock(&managed_lock);
	return s;
}

static void mapping_free(struct uvm_mapping *m)
{
	list_del(&m->node);
	nvsim_mem_put(m->mem);
	kfree(m);
}

static void range_free(struct uvm_range *r)
{
	while (!list_empty(&r->mappings))
		mapping_free(list_first_entry(&r->mappings, struct uvm_mapping, node));
	list_del(&r->node);
	kfree(r);
}

/* ---- residency: a block's value is card index and 64 KiB units ---- */

static void *res_value(struct nvsim_card *card, u64 bytes)
{
	return xa_mk_value((bytes >> 16) << 4 | card->index);
}

static struct nvsim_card *res_card(void *v)
{
	return nvsim_uvm_card_at(xa_to_value(v) & 0xf);
}

static u64 res_bytes(void *v)
{
	return (u64)(xa_to_value(v) >> 4) << 16;
}

static void block_leave_card(struct uvm_space *s, u64 block)
{
	void *v;

	lockdep_assert_held(&managed_lock);
	v = xa_erase(&s->resident, block);
	if (v)
		nvsim_pma_give(res_card(v), res_bytes(v));
}

/* Push managed blocks of anyone off a card until `bytes` are free. */
static u64 evict_locked(struct nvsim_card *card, u64 bytes)
{
	struct uvm_space *s;
	unsigned long block;
	u64 moved = 0;
	void *v;

	list_for_each_entry(s, &spaces, all)
		xa_for_each(&s->resident, block, v) {
			if (moved >= bytes)
				return moved;
			if (res_card(v) != card)
				continue;
			moved += res_bytes(v);
			block_leave_card(s, block);
		}
	return moved;
}

u64 uvm_evict(struct nvsim_card *card, u64 bytes)
{
	u64 moved;

	mutex_lock(&managed_lock);
	moved = evict_locked(card, bytes);
	mutex_unlock(&managed_lock);
	return moved;
}

void uvm_space_destroy(struct uvm_space *s)
{
	struct page *page;
	unsigned long index;
	void *v;
	int i;

	while (!list_empty(&s->ranges))
		range_free(list_first_entry(&s->ranges, struct uvm_range, node));
	for (i = 0; i < NVSIM_MAX_CARDS; i++)
		if (s->gpus & (1u << i))
			uvm_card_unregister(s, nvsim_uvm_card_at(i));
	mutex_lock(&managed_lock);
	list_del(&s->all);
	xa_for_each(&s->resident, index, v)
		block_leave_card(s, index);
	mutex_unlock(&managed_lock);
	xa_for_each(&s->pages, index, page)
		put_page(page);
	xa_destroy(&s->resident);
	xa_destroy(&s->pages);
	xa_destroy(&s->groups);
	mmdrop(s->mm);
	kfree(s);
}

/* ---- ranges ---- */

struct uvm_range *uvm_range_at(struct uvm_space *s, u64 address)
{
	struct uvm_range *r;

	list_for_each_entry(r, &s->ranges, node)
		if (address >= r->start && address <= r->end)
			return r;
	return NULL;
}

static struct uvm_range *range_new(struct uvm_space *s, u64 start, u64 end,
				   enum uvm_range_type type)
{
	struct uvm_range *r = kzalloc(sizeof(*r), GFP_KERNEL);

	if (!r)
		return NULL;
	r->start = start;
	r->end = end;
	r->type = type;
	INIT_LIST_HEAD(&r->mappings);
	list_add(&r->node, &s->ranges);
	return r;
}

u32 uvm_range_create(struct uvm_space *s, u64 start, u64 length, enum uvm_range_type type)
{
	struct uvm_range *r;
	u64 end = start + length - 1;

	if (!length || start & ~PAGE_MASK || length & ~PAGE_MASK || end < start)
		return NV_ERR_INVALID_ADDRESS;
	list_for_each_entry(r, &s->ranges, node)
		if (start <= r->end && end >= r->start)
			return NV_ERR_UVM_ADDRESS_IN_USE;
	return range_new(s, start, end, type) ? NV_OK : NV_ERR_NO_MEMORY;
}

u32 uvm_range_free(struct uvm_space *s, u64 start, u64 length)
{
	struct uvm_range *r = uvm_range_at(s, start);

	if (!r || r->start != start || r->end != start + length - 1 || r->type == UVM_MANAGED)
		return NV_ERR_INVALID_ADDRESS;
	if (r->type == UVM_POOL)
		unmap_mapping_range(s->mapping, start, length, 1);
	range_free(r);
	return NV_OK;
}

/* ---- external mappings ---- */

static struct uvm_mapping *mapping_new(struct uvm_range *r, u64 start, u64 end,
				       struct nvsim_card *card, struct nvsim_mem *mem)
{
	struct uvm_mapping *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return NULL;
	m->start = start;
	m->end = end;
	m->card = card;
	m->mem = nvsim_mem_get(mem);
	list_add(&m->node, &r->mappings);
	return m;
}

/* Take [start, end] out of the card's mappings, splitting those that stick out. */
static u32 mappings_cut(struct uvm_range *r, u64 start, u64 end, struct nvsim_card *card)
{
	struct uvm_mapping *m, *next;

	list_for_each_entry_safe(m, next, &r->mappings, node) {
		if (m->card != card || start > m->end || end < m->start)
			continue;
		if (m->start < start && m->end > end) {
			if (!mapping_new(r, end + 1, m->end, card, m->mem))
				return NV_ERR_NO_MEMORY;
			m->end = start - 1;
		} else if (m->start < start) {
			m->end = start - 1;
		} else if (m->end > end) {
			m->start = end + 1;
		} else {
			mapping_free(m);
		}
	}
	return NV_OK;
}

static struct uvm_range *external_range(struct uvm_space *s, u64 start, u64 length)
{
	struct uvm_range *r = uvm_range_at(s, start);
	u64 end = start + length - 1;

	if (!length || start & ~PAGE_MASK || length & ~PAGE_MASK || end < start)
		return NULL;
	if (!r || r->type != UVM_EXTERNAL || end > r->end)
		return NULL;
	return r;
}

u32 uvm_external_map(struct uvm_space *s, u64 start, u64 length, u64 offset,
		     struct nvsim_card *card, struct nvsim_mem *mem)
{
	struct uvm_range *r = external_range(s, start, length);
	u32 status;

	if (!r)
		return NV_ERR_INVALID_ADDRESS;
	if (mem && (offset >= mem->size || length > mem->size - offset))
		return NV_ERR_INVALID_OFFSET;
	status = mappings_cut(r, start, start + length - 1, card);
	if (status != NV_OK || !mem)
		return status;
	return mapping_new(r, start, start + length - 1, card, mem) ? NV_OK : NV_ERR_NO_MEMORY;
}

u32 uvm_external_unmap(struct uvm_space *s, u64 start, u64 length, struct nvsim_card *card)
{
	struct uvm_range *r = external_range(s, start, length);

	return r ? mappings_cut(r, start, start + length - 1, card) : NV_ERR_INVALID_ADDRESS;
}

/* ---- cards of a space; the first space on a card takes memory for UVM itself ---- */

u32 uvm_card_register(struct uvm_space *s, struct nvsim_card *card)
{
	u32 status = NV_OK;

	if (s->gpus & (1u << card->index))
		return NV_OK;
	mutex_lock(&managed_lock);
	if (!card->uvm_users && !nvsim_pma_try(card, NVSIM_UVM_BYTES))
		status = NV_ERR_NO_MEMORY;
	else
		card->uvm_users++;
	mutex_unlock(&managed_lock);
	if (status == NV_OK)
		s->gpus |= 1u << card->index;
	return status;
}

/* Managed memory there goes to the host, mapped memory is unmapped. */
void uvm_card_unregister(struct uvm_space *s, struct nvsim_card *card)
{
	struct uvm_range *r;
	unsigned long block;
	void *v;

	list_for_each_entry(r, &s->ranges, node)
		mappings_cut(r, r->start, r->end, card);
	mutex_lock(&managed_lock);
	xa_for_each(&s->resident, block, v)
		if (res_card(v) == card)
			block_leave_card(s, block);
	if (!--card->uvm_users)
		nvsim_pma_give(card, NVSIM_UVM_BYTES);
	mutex_unlock(&managed_lock);
	s->gpus &= ~(1u << card->index);
	s->vaspaces &= ~(1u << card->index);
}

/* ---- managed memory ---- */

static bool block_used(struct uvm_space *s, u64 block)
{
	struct uvm_range *r;
	u64 start = block << UVM_BLOCK_SHIFT, end = start + UVM_BLOCK_SIZE - 1;

	list_for_each_entry(r, &s->ranges, node)
		if (r->type == UVM_MANAGED && start <= r->end && end >= r->start)
			return true;
	return false;
}

/* [start, end] is unmapped by the process: the ranges shrink, the memory goes back. */
void uvm_managed_cut(struct uvm_space *s, u64 start, u64 end)
{
	struct uvm_range *r, *next;
	struct page *page;
	unsigned long index;
	u64 block;

	list_for_each_entry_safe(r, next, &s->ranges, node) {
		if (r->type != UVM_MANAGED || start > r->end || end < r->start)
			continue;
		if (r->start < start && r->end > end) {
			/* Without memory for the upper part it is dropped: its pages go. */
			range_new(s, end + 1, r->end, UVM_MANAGED);
			r->end = start - 1;
		} else if (r->start < start) {
			r->end = start - 1;
		} else if (r->end > end) {
			r->start = end + 1;
		} else {
			range_free(r);
		}
	}
	xa_for_each_range(&s->pages, index, page, start >> PAGE_SHIFT, end >> PAGE_SHIFT) {
		xa_erase(&s->pages, index);
		put_page(page);
	}
	mutex_lock(&managed_lock);
	for (block = start >> UVM_BLOCK_SHIFT; block <= end >> UVM_BLOCK_SHIFT; block++)
		if (xa_load(&s->resident, block) && !block_used(s, block))
			block_leave_card(s, block);
	mutex_unlock(&managed_lock);
}

static u32 block_to_card(struct uvm_space *s, u64 block, u64 bytes, struct nvsim_card *card)
{
	void *v;

	lockdep_assert_held(&managed_lock);
	v = xa_load(&s->resident, block);
	if (v && res_card(v) == card && res_bytes(v) >= bytes)
		return NV_OK;
	block_leave_card(s, block);
	if (!nvsim_pma_try(card, bytes)) {
		evict_locked(card, bytes);
		if (!nvsim_pma_try(card, bytes))
			return NV_ERR_NO_MEMORY;
	}
	if (xa_is_err(xa_store(&s->resident, block, res_value(card, bytes), GFP_KERNEL))) {
		nvsim_pma_give(card, bytes);
		return NV_ERR_NO_MEMORY;
	}
	return NV_OK;
}

/* card NULL: to the host. */
u32 uvm_managed_migrate(struct uvm_space *s, u64 start, u64 length, struct nvsim_card *card)
{
	u64 end = start + length - 1, at, block, lo, hi;
	struct uvm_range *r;
	u32 status = NV_OK;

	if (!length || end < start)
		return NV_ERR_INVALID_ADDRESS;
	for (at = start; at <= end && at >= start; at = r->end + 1) {
		r = uvm_range_at(s, at);
		if (!r || r->type != UVM_MANAGED)
			return NV_ERR_INVALID_ADDRESS;
	}
	if (card)
		unmap_mapping_range(s->mapping, start, length, 1);
	mutex_lock(&managed_lock);
	for (block = start >> UVM_BLOCK_SHIFT; block <= end >> UVM_BLOCK_SHIFT; block++) {
		if (!card) {
			block_leave_card(s, block);
			continue;
		}
		r = uvm_range_at(s, max(start, block << UVM_BLOCK_SHIFT));
		lo = max(r->start, block << UVM_BLOCK_SHIFT);
		hi = min(r->end, ((block + 1) << UVM_BLOCK_SHIFT) - 1);
		status = block_to_card(s, block, ALIGN(hi - lo + 1, SZ_64K), card);
		if (status != NV_OK)
			break;
	}
	mutex_unlock(&managed_lock);
	return status;
}

/* The host page for a CPU access; a block that was on a card comes back for it. */
struct page *uvm_page(struct uvm_space *s, u64 address)
{
	struct page *page, *old;

	mutex_lock(&managed_lock);
	block_leave_card(s, address >> UVM_BLOCK_SHIFT);
	mutex_unlock(&managed_lock);
	page = xa_load(&s->pages, address >> PAGE_SHIFT);
	if (page)
		return page;
	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!page)
		return NULL;
	old = xa_cmpxchg(&s->pages, address >> PAGE_SHIFT, NULL, page, GFP_KERNEL);
	if (old) {
		put_page(page);
		return xa_is_err(old) ? NULL : old;
	}
	return page;
}
