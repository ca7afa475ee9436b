// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A sorted array of slot indices: finding is a binary search, inserting a
 * memmove of 4 bytes per range (about 2 µs for 10000 ranges), which is less
 * than the driver needs to map anything.
 *
 * Ranges of one file overlap only where memory is mapped on two cards at the
 * same address. Whoever looks for an address therefore starts `longest_bytes`
 * before it.
 */
#include "core/memory/ranges.h"

void cgpu_ranges_init(struct cgpu_ranges *ranges)
{
	memset(ranges, 0, sizeof(*ranges));
	cgpu_table_init(&ranges->slots, sizeof(struct cgpu_range));
}

size_t cgpu_ranges_bytes(uint32_t capacity)
{
	return (size_t)capacity * (sizeof(struct cgpu_range) + sizeof(uint32_t));
}

void *cgpu_ranges_grow(struct cgpu_ranges *ranges, void *storage, uint32_t capacity)
{
	uint32_t *old_order = ranges->order;
	void *old = cgpu_table_grow(&ranges->slots, storage, capacity);

	ranges->order = (uint32_t *)((uint8_t *)storage +
				     (size_t)capacity * sizeof(struct cgpu_range));
	if (old)
		memcpy(ranges->order, old_order, ranges->count * sizeof(uint32_t));
	return old;
}

struct cgpu_range *cgpu_range_at(const struct cgpu_ranges *ranges, uint32_t index)
{
	return cgpu_table_slot(&ranges->slots, index);
}

/*
 * As if all pages had 4 KiB, which base, offset and memory can be chosen for: 8 bytes for
 * each, as much for each 512 tables, and a table begun on each of the three lower levels.
 * Above them one covers 128 TiB.
 */
uint64_t cgpu_range_tables(uint64_t length_bytes)
{
	return (length_bytes >> 9) + (length_bytes >> 18) + 3 * 4096;
}

static void count_tables(struct cgpu_ranges *ranges, const struct cgpu_range *range, bool there)
{
	uint32_t card = range->card < CGPU_MAX_CARDS ? range->card : CGPU_MAX_CARDS;
	uint64_t bytes = cgpu_range_tables(range->length_bytes);

	if (range->kind != CGPU_RANGE_EXTERNAL && range->kind != CGPU_RANGE_MANAGED)
		return;
	ranges->tables_bytes[card] += there ? bytes : -bytes;
	ranges->tables_changed = true;
}

/* position in `order` of the first range of `file` with base ≥ `base` */
static uint32_t position_of(const struct cgpu_ranges *ranges, uint32_t file,
			    uint64_t base)
{
	uint32_t low = 0, high = ranges->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct cgpu_range *range =
			cgpu_range_at(ranges, ranges->order[middle]);

		if (range->file < file || (range->file == file && range->base < base))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* where a range that covers `base` may begin at the earliest */
static uint32_t search_from(const struct cgpu_ranges *ranges, uint32_t file,
			    uint64_t base)
{
	return position_of(ranges, file, base > ranges->longest_bytes ?
				   base - ranges->longest_bytes : 0);
}

/* Return: how many blocks `first` to `last` managed memory of `file` touches. */
static uint64_t managed_blocks(const struct cgpu_ranges *ranges, uint32_t file, uint64_t first,
			       uint64_t last)
{
	uint32_t position = search_from(ranges, file, first * CGPU_MANAGED_BLOCK_BYTES);
	uint64_t blocks = 0, from, to;

	for (; position < ranges->count; position++) {
		const struct cgpu_range *range =
			cgpu_range_at(ranges, ranges->order[position]);

		from = range->base / CGPU_MANAGED_BLOCK_BYTES;
		if (range->file != file || from > last)
			break;
		if (range->kind != CGPU_RANGE_MANAGED)
			continue;
		to = (range->base + range->length_bytes - 1) / CGPU_MANAGED_BLOCK_BYTES;
		from = from > first ? from : first;
		to = to < last ? to : last;
		if (to < from)
			continue;
		blocks += to - from + 1;
		/* no block twice */
		first = to + 1;
	}
	return blocks;
}

uint64_t cgpu_range_managed(const struct cgpu_ranges *ranges, uint32_t file, uint64_t base,
			    uint64_t length_bytes)
{
	uint64_t first = base / CGPU_MANAGED_BLOCK_BYTES;
	uint64_t last = (base + length_bytes - 1) / CGPU_MANAGED_BLOCK_BYTES;

	return (last - first + 1 - managed_blocks(ranges, file, first, last)) *
	       CGPU_MANAGED_BLOCK_BYTES;
}

static int insert(struct cgpu_ranges *ranges, const struct cgpu_range *added)
{
	uint32_t index = cgpu_table_take(&ranges->slots);
	uint32_t position;

	if (!index)
		return -ENOMEM;
	*cgpu_range_at(ranges, index) = *added;
	position = position_of(ranges, added->file, added->base);
	memmove(&ranges->order[position + 1], &ranges->order[position],
		(ranges->count - position) * sizeof(uint32_t));
	ranges->order[position] = index;
	ranges->count++;
	count_tables(ranges, added, true);
	if (added->length_bytes > ranges->longest_bytes)
		ranges->longest_bytes = added->length_bytes;
	return 0;
}

int cgpu_range_add(struct cgpu_ranges *ranges, uint32_t kind, uint32_t file,
		   uint64_t base, uint64_t length_bytes, uint32_t charge, uint32_t card)
{
	struct cgpu_range added = {
		.kind = kind, .file = file, .charge = charge, .card = card,
		.serial = ranges->serial + 1, .base = base, .length_bytes = length_bytes,
	};
	int err;

	if (length_bytes > UINT64_MAX - base)
		return -EINVAL;
	err = insert(ranges, &added);
	if (!err)
		ranges->serial++;
	return err;
}

static void drop(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger, uint32_t index)
{
	count_tables(ranges, cgpu_range_at(ranges, index), false);
	if (cgpu_range_at(ranges, index)->charge)
		cgpu_charge_put(ledger, cgpu_range_at(ranges, index)->charge);
	cgpu_table_give(&ranges->slots, index);
}

static void remove_at(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
		      uint32_t position)
{
	drop(ranges, ledger, ranges->order[position]);
	ranges->count--;
	memmove(&ranges->order[position], &ranges->order[position + 1],
		(ranges->count - position) * sizeof(uint32_t));
}

/* The part of a range from `end` on, as one of its own. Return: its slot, 0: no room. */
static uint32_t split_tail(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			   const struct cgpu_range *range, uint64_t end)
{
	uint32_t index = cgpu_table_take(&ranges->slots);
	struct cgpu_range *tail = cgpu_range_at(ranges, index);

	if (!index)
		return 0;
	*tail = *range;
	tail->base = end;
	tail->length_bytes = range->base + range->length_bytes - end;
	if (tail->charge)
		cgpu_charge_get(ledger, tail->charge);
	count_tables(ranges, tail, true);
	return index;
}

/* Once through all of them, for there may be many. */
uint64_t cgpu_range_cut(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			uint32_t file, uint32_t kinds, uint32_t card, uint64_t serial,
			uint64_t base, uint64_t length_bytes)
{
	uint64_t end = length_bytes > UINT64_MAX - base ? UINT64_MAX : base + length_bytes;
	uint32_t position = search_from(ranges, file, base), kept = position;
	uint32_t moved = 0, moved_count = 0; /* slots that begin at `end` now, chained */
	uint64_t first = base / CGPU_MANAGED_BLOCK_BYTES;
	uint64_t last = (end - 1) / CGPU_MANAGED_BLOCK_BYTES;
	bool managed = kinds & (1u << CGPU_RANGE_MANAGED);
	uint64_t blocks = managed ? managed_blocks(ranges, file, first, last) : 0;

	for (; position < ranges->count; position++) {
		uint32_t index = ranges->order[position];
		struct cgpu_range *range = cgpu_range_at(ranges, index);
		uint64_t range_end = range->base + range->length_bytes;
		uint32_t tail;

		if (range->file != file || range->base >= end)
			break;
		if (!(kinds & (1u << range->kind)) || range->serial > serial ||
		    range_end <= base ||
		    (card != CGPU_ANY_CARD && range->card != card)) {
			ranges->order[kept++] = index;
			continue;
		}
		tail = 0;
		if (range->base < base) {
			ranges->order[kept++] = index;
			if (range_end > end) {
				tail = split_tail(ranges, ledger, range, end);
				if (!tail)
					continue;
			}
			count_tables(ranges, range, false);
			range->length_bytes = base - range->base;
			count_tables(ranges, range, true);
		} else if (range_end > end) {
			count_tables(ranges, range, false);
			range->base = end;
			range->length_bytes = range_end - end;
			count_tables(ranges, range, true);
			tail = index;
		}
		if (tail) {
			cgpu_range_at(ranges, tail)->chain = moved;
			moved = tail;
			moved_count++;
		} else if (range->base >= base) {
			drop(ranges, ledger, index);
		}
	}
	memmove(&ranges->order[kept + moved_count], &ranges->order[position],
		(ranges->count - position) * sizeof(uint32_t));
	ranges->count += kept + moved_count - position;
	for (; moved; moved = cgpu_range_at(ranges, moved)->chain)
		ranges->order[kept++] = moved;
	return managed ? (blocks - managed_blocks(ranges, file, first, last)) *
				 CGPU_MANAGED_BLOCK_BYTES : 0;
}

bool cgpu_range_exported(const struct cgpu_ranges *ranges, uint32_t file,
			 uint64_t index, uint32_t *charge)
{
	uint32_t position = position_of(ranges, file, index);
	const struct cgpu_range *range;

	if (position >= ranges->count)
		return false;
	range = cgpu_range_at(ranges, ranges->order[position]);
	if (range->file != file || range->base != index || range->kind != CGPU_RANGE_EXPORT)
		return false;
	*charge = range->charge;
	return true;
}

/* Return: its place in `order`, `count`: there is none. */
static uint32_t oldest(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
		       uint64_t base)
{
	uint32_t position = position_of(ranges, file, base), best = ranges->count;
	uint64_t serial = UINT64_MAX;

	for (; position < ranges->count; position++) {
		const struct cgpu_range *range =
			cgpu_range_at(ranges, ranges->order[position]);

		if (range->file != file || range->base != base)
			break;
		if (range->kind == kind && range->serial < serial) {
			serial = range->serial;
			best = position;
		}
	}
	return best;
}

uint64_t cgpu_range_oldest(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			   uint64_t base)
{
	uint32_t position = oldest(ranges, file, kind, base);

	return position < ranges->count ?
		       cgpu_range_at(ranges, ranges->order[position])->serial : UINT64_MAX;
}

void cgpu_range_drop_oldest(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			    uint32_t file, uint32_t kind, uint64_t base)
{
	uint32_t position = oldest(ranges, file, kind, base);

	if (position < ranges->count)
		remove_at(ranges, ledger, position);
}

bool cgpu_range_covers(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
		       uint64_t base, uint64_t length_bytes)
{
	uint32_t position;

	if (length_bytes > UINT64_MAX - base)
		return false;
	for (position = search_from(ranges, file, base); position < ranges->count;
	     position++) {
		const struct cgpu_range *range =
			cgpu_range_at(ranges, ranges->order[position]);

		if (range->file != file || range->base > base)
			break;
		if (range->kind == kind &&
		    range->base + range->length_bytes >= base + length_bytes)
			return true;
	}
	return false;
}

uint64_t cgpu_range_length(const struct cgpu_ranges *ranges, uint32_t file,
			   uint32_t kinds, uint64_t base)
{
	uint32_t position;
	uint64_t length_bytes = 0;

	for (position = position_of(ranges, file, base); position < ranges->count;
	     position++) {
		const struct cgpu_range *range =
			cgpu_range_at(ranges, ranges->order[position]);

		if (range->file != file || range->base != base)
			break;
		if (kinds & (1u << range->kind) &&
		    (!length_bytes || range->length_bytes < length_bytes))
			length_bytes = range->length_bytes;
	}
	return length_bytes;
}

bool cgpu_range_overlaps(const struct cgpu_ranges *ranges, uint32_t file,
			 uint32_t kinds, uint64_t base, uint64_t length_bytes)
{
	uint64_t end = length_bytes > UINT64_MAX - base ? UINT64_MAX : base + length_bytes;
	uint32_t position;

	for (position = search_from(ranges, file, base); position < ranges->count;
	     position++) {
		const struct cgpu_range *range =
			cgpu_range_at(ranges, ranges->order[position]);

		if (range->file != file || range->base >= end)
			break;
		if (kinds & (1u << range->kind) && range->base + range->length_bytes > base)
			return true;
	}
	return false;
}
