// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/memory/table.h"

void cgpu_table_init(struct cgpu_table *table, uint32_t slot_bytes)
{
	*table = (struct cgpu_table){ .slot_bytes = slot_bytes, .touched = 1 };
}

void *cgpu_table_slot(const struct cgpu_table *table, uint32_t index)
{
	void *slot = table->slots + (size_t)index * table->slot_bytes;

	CGPU_TOUCHED(slot, table->slot_bytes);
	return slot;
}

void *cgpu_table_grow(struct cgpu_table *table, void *storage, uint32_t capacity)
{
	void *old = table->slots;

	if (old)
		memcpy(storage, old, (size_t)table->touched * table->slot_bytes);
	table->slots = storage;
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
		memcpy(&table->free, cgpu_table_slot(table, index), sizeof(table->free));
	else
		memset(cgpu_table_slot(table, index = table->touched++), 0,
		       table->slot_bytes);
	memset(cgpu_table_slot(table, index), 0, sizeof(uint32_t));
	table->used++;
	return index;
}

void cgpu_table_give(struct cgpu_table *table, uint32_t index)
{
	uint8_t *slot = cgpu_table_slot(table, index);

	memset(slot, 0, table->slot_bytes);
	memcpy(slot, &table->free, sizeof(table->free));
	table->free = index;
	table->used--;
}

uint32_t cgpu_table_room(const struct cgpu_table *table)
{
	return table->capacity ? table->capacity - 1 - table->used - table->promised : 0;
}
