/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A table of equal entries with a free list, in storage that the caller owns. */
#ifndef CGPU_CORE_MEMORY_TABLE_H
#define CGPU_CORE_MEMORY_TABLE_H

#include "core/types.h"

/*
 * Entries are named by index, so the storage may move. Index 0 is never handed
 * out and means "none". Every type of entry begins with a uint32_t that the table
 * uses to chain free entries; the rest of a free entry is zero.
 */
struct cgpu_table {
	uint8_t *entries;
	uint32_t entry_bytes;
	uint32_t capacity; /* entries, index 0 included */
	uint32_t touched;  /* entries 1 .. touched-1 were handed out once */
	uint32_t free;     /* head of the chain of returned entries */
	uint32_t used;
	uint32_t promised; /* free entries that calls in the driver will need */
};

void cgpu_table_init(struct cgpu_table *table, uint32_t entry_bytes);

/*
 * Moves the table into `storage` (entry_bytes * capacity bytes, capacity not
 * smaller than before). Return: the old storage for the caller to free.
 */
void *cgpu_table_grow(struct cgpu_table *table, void *storage, uint32_t capacity);

/*
 * Keeps `count` free entries for a call that cannot be taken back afterwards.
 * Return: false: there are not so many, and none is kept.
 */
bool cgpu_table_promise(struct cgpu_table *table, uint32_t count);
/* Ends a promise: the entries may be taken, first of all by the caller that promised them. */
void cgpu_table_release(struct cgpu_table *table, uint32_t count);

/* A zeroed entry that is not promised. Return: its index, 0: the table is full. */
uint32_t cgpu_table_take(struct cgpu_table *table);
void cgpu_table_give(struct cgpu_table *table, uint32_t index);
/* Return: entries that can be taken or promised. */
uint32_t cgpu_table_room(const struct cgpu_table *table);
/* A caller may change it. */
void *cgpu_table_entry(const struct cgpu_table *table, uint32_t index);

#endif
