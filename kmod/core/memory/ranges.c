// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/memory/ranges.h"

void cgpu_ranges_init(struct cgpu_ranges *ranges)
{
	memset(ranges, 0, sizeof(*ranges));
	cgpu_table_init(&ranges->table, sizeof(struct cgpu_range));
}

/*
 * Counts as if all pages had 4 KiB, which base, offset and memory can be chosen to cause. That is 8
 * bytes for each page, as much for each 512 tables, and a table begun on each of the three lower
 * levels. Above them one table covers 128 TiB.
 */
uint64_t cgpu_range_tables(uint64_t length_bytes)
{
	return (length_bytes >> 9) + (length_bytes >> 18) + 3 * 4096;
}

static void count_tables(struct cgpu_ranges *ranges, const struct cgpu_range *range, bool there)
{
	uint32_t card = range->card < CGPU_MAX_CARDS ? range->card : CGPU_MAX_CARDS;
	uint64_t bytes = cgpu_range_tables(range->length_bytes);

	if (range->kind == CGPU_RANGE_CREATED || range->kind == CGPU_RANGE_RESERVING)
		ranges->externals += there ? 1 : -1;
	if (range->kind != CGPU_RANGE_EXTERNAL && range->kind != CGPU_RANGE_MANAGED)
		return;
	ranges->tables_bytes[card] += there ? bytes : -bytes;
	ranges->tables_changed = true;
}

static bool is_of(const struct cgpu_range *range, uint32_t file, uint32_t kind)
{
	return range->file == file && range->kind == kind;
}

static void go_behind(struct cgpu_range *key, const struct cgpu_range *range)
{
	key->card = range->card;
	key->base = range->base;
	key->serial = range->serial + 1;
}

static void go_to_next_card(struct cgpu_range *key, const struct cgpu_range *range)
{
	key->card = range->card + 1;
	key->base = 0;
	key->serial = 0;
}

uint32_t cgpu_range_next(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			 const struct cgpu_range *after)
{
	struct cgpu_range key = { .file = file, .kind = (uint16_t)kind };
	uint32_t index;

	if (after->serial)
		go_behind(&key, after);
	index = cgpu_range_tree_find(ranges, &key, 0);
	return index && is_of(cgpu_range_at(ranges, index), file, kind) ? index : 0;
}

/*
 * The next one from `key` on, which goes behind it, that is of `card`, ends at `last` or later
 * and begins before `end`. Return: 0: there is none.
 */
static uint32_t next_in(const struct cgpu_ranges *ranges, struct cgpu_range *key, uint32_t card,
			uint64_t last, uint64_t end)
{
	uint32_t index;

	while ((index = cgpu_range_tree_find(ranges, key, last))) {
		const struct cgpu_range *range = cgpu_range_at(ranges, index);
		bool within = range->base < end;

		if (!is_of(range, key->file, key->kind))
			return 0;
		if (cgpu_range_is_parted(key->kind) && card != CGPU_ANY_CARD && range->card != card)
			return 0;
		if (!within && !cgpu_range_is_parted(key->kind))
			return 0;
		if (within)
			go_behind(key, range);
		else
			go_to_next_card(key, range);
		if (within && (card == CGPU_ANY_CARD || range->card == card))
			return index;
	}
	return 0;
}

static struct cgpu_range first_of(uint32_t file, uint32_t kind, uint32_t card)
{
	return (struct cgpu_range){
		.file = file, .kind = (uint16_t)kind, .card = card == CGPU_ANY_CARD ? 0 : card,
	};
}

/*
 * Return: how many blocks `first` to `last` managed memory of `file` touches. One look-up for each
 * contiguous piece of them, however many ranges that is.
 */
static uint64_t managed_blocks(const struct cgpu_ranges *ranges, uint32_t file, uint64_t first,
			       uint64_t last)
{
	const struct cgpu_range key = first_of(file, CGPU_RANGE_MANAGED, 0);
	uint64_t blocks = 0, from, to;

	while (first <= last) {
		uint32_t index = cgpu_range_tree_find(ranges, &key,
						      first * CGPU_MANAGED_BLOCK_BYTES + 1);
		const struct cgpu_range *range = cgpu_range_at(ranges, index);

		if (!index || !is_of(range, file, CGPU_RANGE_MANAGED))
			break;
		from = range->base / CGPU_MANAGED_BLOCK_BYTES;
		if (from > last)
			break;
		to = (range->base + range->length_bytes - 1) / CGPU_MANAGED_BLOCK_BYTES;
		from = from > first ? from : first;
		to = to < last ? to : last;
		blocks += to - from + 1;
		/* no block twice */
		first = to + 1;
	}
	return blocks;
}

/* Return: bytes of the blocks that these bytes touch and no managed memory of `file` does. */
static uint64_t untouched_bytes(const struct cgpu_ranges *ranges, uint32_t file, uint64_t base,
				uint64_t end)
{
	uint64_t first = base / CGPU_MANAGED_BLOCK_BYTES;
	uint64_t last = (end - 1) / CGPU_MANAGED_BLOCK_BYTES;

	return (last - first + 1 - managed_blocks(ranges, file, first, last)) *
	       CGPU_MANAGED_BLOCK_BYTES;
}

uint64_t cgpu_range_managed(const struct cgpu_ranges *ranges, uint32_t file, uint64_t base,
			    uint64_t length_bytes)
{
	return untouched_bytes(ranges, file, base, base + length_bytes);
}

static int insert(struct cgpu_ranges *ranges, const struct cgpu_range *added)
{
	uint32_t index = cgpu_table_take(&ranges->table);

	if (!index)
		return -ENOMEM;
	*cgpu_range_at(ranges, index) = *added;
	cgpu_range_tree_add(ranges, index);
	ranges->count++;
	count_tables(ranges, added, true);
	return 0;
}

int cgpu_range_add(struct cgpu_ranges *ranges, uint32_t kind, uint32_t file,
		   uint64_t base, uint64_t length_bytes, uint32_t charge, uint32_t card)
{
	struct cgpu_range added = {
		.kind = (uint16_t)kind, .file = file, .charge = charge, .card = card,
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

void cgpu_range_drop(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger, uint32_t index)
{
	cgpu_range_tree_remove(ranges, index);
	ranges->count--;
	count_tables(ranges, cgpu_range_at(ranges, index), false);
	if (cgpu_range_at(ranges, index)->charge)
		cgpu_charge_put(ledger, cgpu_range_at(ranges, index)->charge);
	cgpu_table_give(&ranges->table, index);
}

/* The part of a range from `end` on, as one of its own. Return: 0, -ENOMEM: no room. */
static int split_tail(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
		      const struct cgpu_range *range, uint64_t end)
{
	struct cgpu_range tail = *range;

	tail.base = end;
	tail.length_bytes = range->base + range->length_bytes - end;
	if (insert(ranges, &tail))
		return -ENOMEM;
	if (tail.charge)
		cgpu_charge_get(ledger, tail.charge);
	return 0;
}

/* Return: false: it had to be split, without room. */
static bool cut_one(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger, uint32_t index,
		    uint64_t base, uint64_t end)
{
	struct cgpu_range *range = cgpu_range_at(ranges, index);
	uint64_t range_end = range->base + range->length_bytes;

	if (range->base >= base && range_end <= end) {
		cgpu_range_drop(ranges, ledger, index);
		return true;
	}
	if (range->base < base && range_end > end && split_tail(ranges, ledger, range, end))
		return false;
	count_tables(ranges, range, false);
	if (range->base < base) {
		cgpu_range_tree_trim(ranges, index, base - range->base);
	} else {
		cgpu_range_tree_remove(ranges, index);
		range->base = end;
		range->length_bytes = range_end - end;
		cgpu_range_tree_add(ranges, index);
	}
	count_tables(ranges, range, true);
	return true;
}

struct cut {
	uint32_t file, card;
	uint64_t serial, base, end;
	uint32_t left; /* how many more ranges this may take */
};

/* Return: how much less managed memory takes, bytes. */
static uint64_t cut_kind(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			 struct cut *cut, uint32_t kind)
{
	struct cgpu_range key = first_of(cut->file, kind, cut->card);
	uint64_t bytes = 0, from, to;
	uint32_t index;

	while (cut->left &&
	       (index = next_in(ranges, &key, cut->card, cut->base + 1, cut->end))) {
		const struct cgpu_range *range = cgpu_range_at(ranges, index);

		if (range->serial > cut->serial)
			continue;
		from = range->base > cut->base ? range->base : cut->base;
		to = range->base + range->length_bytes;
		to = to < cut->end ? to : cut->end;
		if (!cut_one(ranges, ledger, index, cut->base, cut->end))
			continue;
		cut->left--;
		if (kind == CGPU_RANGE_MANAGED && from < to)
			bytes += untouched_bytes(ranges, cut->file, from, to);
	}
	return bytes;
}

static uint64_t cut_kinds(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			  struct cut *cut, uint32_t kinds)
{
	uint64_t bytes = 0;
	uint32_t kind;

	/* nothing ends behind the last address */
	for (kind = 0; kind < CGPU_RANGE_KINDS && cut->base < UINT64_MAX; kind++)
		if (kinds & (1u << kind))
			bytes += cut_kind(ranges, ledger, cut, kind);
	return bytes;
}

static uint64_t end_of(uint64_t base, uint64_t length_bytes)
{
	return length_bytes > UINT64_MAX - base ? UINT64_MAX : base + length_bytes;
}

uint64_t cgpu_range_cut(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			uint32_t file, uint32_t kinds, uint32_t card, uint64_t serial,
			uint64_t base, uint64_t length_bytes)
{
	struct cut cut = {
		.file = file, .card = card, .serial = serial, .base = base,
		.end = end_of(base, length_bytes), .left = ~0u,
	};

	return cut_kinds(ranges, ledger, &cut, kinds);
}

uint64_t cgpu_range_cut_step(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			     uint32_t file, uint32_t kinds, uint64_t base,
			     uint64_t length_bytes, bool *more)
{
	struct cut cut = {
		.file = file, .card = CGPU_ANY_CARD, .serial = UINT64_MAX, .base = base,
		.end = end_of(base, length_bytes), .left = CGPU_CUT_STEP,
	};
	uint64_t bytes = cut_kinds(ranges, ledger, &cut, kinds);

	*more = !cut.left;
	return bytes;
}

/* Return: its index, 0: there is none. */
static uint32_t oldest(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
		       uint64_t base)
{
	struct cgpu_range key = first_of(file, kind, CGPU_ANY_CARD);
	uint32_t best = 0, index;

	key.base = base;
	while ((index = cgpu_range_tree_find(ranges, &key, 0))) {
		const struct cgpu_range *range = cgpu_range_at(ranges, index);

		if (!is_of(range, file, kind))
			break;
		if (cgpu_range_lane(range) != cgpu_range_lane(&key)) {
			key.card = range->card;
			continue;
		}
		if (range->base == base &&
		    (!best || range->serial < cgpu_range_at(ranges, best)->serial))
			best = index;
		if (!cgpu_range_is_parted(kind))
			break;
		key.card++;
	}
	return best;
}

uint32_t cgpu_range_since(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			  uint64_t base, uint64_t serial)
{
	struct cgpu_range key = first_of(file, kind, CGPU_ANY_CARD);
	const struct cgpu_range *range;
	uint32_t index;

	key.base = base;
	key.serial = serial;
	index = cgpu_range_tree_find(ranges, &key, 0);
	range = cgpu_range_at(ranges, index);
	return index && is_of(range, file, kind) && range->base == base ? index : 0;
}

bool cgpu_range_in_place(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			 uint64_t place, uint32_t *charge)
{
	uint32_t found = oldest(ranges, file, kind, place);

	if (found)
		*charge = cgpu_range_at(ranges, found)->charge;
	return found;
}

void cgpu_range_turn(struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
		     uint32_t other_kind, uint64_t base)
{
	uint32_t index = oldest(ranges, file, kind, base);

	if (!index)
		return;
	cgpu_range_tree_remove(ranges, index);
	count_tables(ranges, cgpu_range_at(ranges, index), false);
	cgpu_range_at(ranges, index)->kind = (uint16_t)other_kind;
	count_tables(ranges, cgpu_range_at(ranges, index), true);
	cgpu_range_tree_add(ranges, index);
}

uint64_t cgpu_range_oldest(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			   uint64_t base)
{
	uint32_t index = oldest(ranges, file, kind, base);

	return index ? cgpu_range_at(ranges, index)->serial : UINT64_MAX;
}

void cgpu_range_drop_oldest(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			    uint32_t file, uint32_t kind, uint64_t base)
{
	uint32_t index = oldest(ranges, file, kind, base);

	if (index)
		cgpu_range_drop(ranges, ledger, index);
}

bool cgpu_range_covers(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
		       uint64_t base, uint64_t length_bytes)
{
	struct cgpu_range key = first_of(file, kind, CGPU_ANY_CARD);

	if (length_bytes > UINT64_MAX - base)
		return false;
	return next_in(ranges, &key, CGPU_ANY_CARD, base + length_bytes, base + 1);
}

/* Of one kind they do not overlap in the driver: there is one, or few. */
uint64_t cgpu_range_length(const struct cgpu_ranges *ranges, uint32_t file,
			   uint32_t kinds, uint64_t base)
{
	uint64_t length_bytes = 0;
	uint32_t kind, index;

	for (kind = 0; kind < CGPU_RANGE_KINDS; kind++) {
		struct cgpu_range key = first_of(file, kind, CGPU_ANY_CARD);

		if (!(kinds & (1u << kind)))
			continue;
		for (key.base = base; (index = cgpu_range_tree_find(ranges, &key, 0));) {
			const struct cgpu_range *range = cgpu_range_at(ranges, index);

			if (!is_of(range, file, kind) || range->base != base)
				break;
			if (!length_bytes || range->length_bytes < length_bytes)
				length_bytes = range->length_bytes;
			go_behind(&key, range);
		}
	}
	return length_bytes;
}

bool cgpu_range_overlaps(const struct cgpu_ranges *ranges, uint32_t file,
			 uint32_t kinds, uint64_t base, uint64_t length_bytes)
{
	uint32_t kind;

	for (kind = 0; kind < CGPU_RANGE_KINDS && base < UINT64_MAX; kind++) {
		struct cgpu_range key = first_of(file, kind, CGPU_ANY_CARD);

		if (kinds & (1u << kind) &&
		    next_in(ranges, &key, CGPU_ANY_CARD, base + 1, end_of(base, length_bytes)))
			return true;
	}
	return false;
}
