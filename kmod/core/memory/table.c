// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/memory/table.h"

void cgpu_table_init(struct cgpu_table *table, uint32_t entry_bytes)
{
	*table = (struct cgpu_table){ .entry_bytes = entry_bytes, .touched = 1 };
}

void *cgpu_table_entry(const struct cgpu_table *table, uint32_t index)
{
	void *entry = table->entries + (size_t)index * table->entry_bytes;

	CGPU_TOUCHED(entry, table->entry_bytes);
	return entry;
}

void *cgpu_table_grow(struct cgpu_table *table, void *storage, uint32_t capacity)
{
	void *old = table->entries;

	if (old)
		memcpy(storage, old, (size_t)table->touched * table->entry_bytes);
	table->entries = storage;
	table->capacity = capacity;
	return old;
}

bool cgpu_table_promise(struct cgpu_table *table, uint32_t count)
{
	if (cgpu_table_room(table) < count)
		return false;
	table->promised += count;
	return true;
}

void cgpu_table_release(struct cgpu_table *table, uint32_t count)
{
	table->promised -= count;
}

uint32_t cgpu_table_take(struct cgpu_table *table)
{
	uint32_t index = table->free;

	if (!cgpu_table_room(table))
		return 0;
	if (index)
		memcpy(&table->free, cgpu_table_entry(table, index), sizeof(table->free));
	else
		memset(cgpu_table_entry(table, index = table->touched++), 0,
		       table->entry_bytes);
	memset(cgpu_table_entry(table, index), 0, sizeof(uint32_t));
	table->used++;
	return index;
}

void cgpu_table_give(struct cgpu_table *table, uint32_t index)
{
	uint8_t *entry = cgpu_table_entry(table, index);

	memset(entry, 0, table->entry_bytes);
	memcpy(entry, &table->free, sizeof(table->free));
	table->free = index;
	table->used--;
}

uint32_t cgpu_table_room(const struct cgpu_table *table)
{
	return table->capacity ? table->capacity - 1 - table->used - table->promised : 0;
}
