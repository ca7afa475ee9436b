// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A balanced tree (AVL) of the entries, in the order of file, kind, card where ranges have one,
 * address and age. Each knows the last address of all below it, so that ranges which end before the
 * one that is looked for are passed over together. Further ranges, of this file or of others, cost
 * one level for each doubling: a tenant that piles up ranges delays no other call.
 *
 * No recursion, and no random numbers, which a tenant might foresee.
 */
#include "core/memory/range_tree.h"

enum {
	DEPTH_MAX = 48 /* of 2^32 entries; 26 of 262144 */
};

struct cgpu_range *cgpu_range_at(const struct cgpu_ranges *ranges, uint32_t index)
{
	return cgpu_table_entry(&ranges->table, index);
}

bool cgpu_range_is_parted(uint32_t kind)
{
	return kind == CGPU_RANGE_EXTERNAL || kind == CGPU_RANGE_CHANNEL ||
	       kind == CGPU_RANGE_VASPACE;
}

uint32_t cgpu_range_lane(const struct cgpu_range *range)
{
	return cgpu_range_is_parted(range->kind) ? range->card : 0;
}

static struct cgpu_range *at(const struct cgpu_ranges *ranges, uint32_t index)
{
	return cgpu_range_at(ranges, index);
}

static uint32_t height(const struct cgpu_ranges *ranges, uint32_t index)
{
	return index ? at(ranges, index)->height : 0;
}

static uint64_t last_end(const struct cgpu_ranges *ranges, uint32_t index)
{
	return index ? at(ranges, index)->last_end : 0;
}

static int order64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int order(const struct cgpu_range *a, const struct cgpu_range *b)
{
	if (a->file != b->file)
		return order64(a->file, b->file);
	if (a->kind != b->kind)
		return order64(a->kind, b->kind);
	if (cgpu_range_lane(a) != cgpu_range_lane(b))
		return order64(cgpu_range_lane(a), cgpu_range_lane(b));
	if (a->base != b->base)
		return order64(a->base, b->base);
	return order64(a->serial, b->serial);
}

static void update(struct cgpu_ranges *ranges, uint32_t index)
{
	struct cgpu_range *range = at(ranges, index);
	uint32_t side;

	range->height = 1;
	range->last_end = range->base + range->length_bytes;
	for (side = 0; side < 2; side++) {
		uint32_t child = range->child[side];

		if (height(ranges, child) >= range->height)
			range->height = (uint16_t)(height(ranges, child) + 1);
		if (last_end(ranges, child) > range->last_end)
			range->last_end = last_end(ranges, child);
	}
}

/* Return: its child on that side, which is above it now. */
static uint32_t rotate(struct cgpu_ranges *ranges, uint32_t index, uint32_t side)
{
	struct cgpu_range *range = at(ranges, index);
	uint32_t child = range->child[side];

	range->child[side] = at(ranges, child)->child[!side];
	at(ranges, child)->child[!side] = index;
	update(ranges, index);
	update(ranges, child);
	return child;
}

/* Return: what is in its place. */
static uint32_t balance(struct cgpu_ranges *ranges, uint32_t index)
{
	struct cgpu_range *range = at(ranges, index);
	uint32_t left = height(ranges, range->child[0]), right = height(ranges, range->child[1]);
	uint32_t side = right > left, child = range->child[side];

	if (left > right + 1 || right > left + 1) {
		if (height(ranges, at(ranges, child)->child[!side]) >
		    height(ranges, at(ranges, child)->child[side]))
			range->child[side] = rotate(ranges, child, !side);
		return rotate(ranges, index, side);
	}
	update(ranges, index);
	return index;
}

/* Replaces entry number `depth` of the path, 0 the root, by another one. */
static void replace(struct cgpu_ranges *ranges, const uint32_t *path, uint32_t depth,
		    uint32_t index)
{
	struct cgpu_range *above;

	if (!depth) {
		ranges->root = index;
		return;
	}
	above = at(ranges, path[depth - 1]);
	above->child[above->child[1] == path[depth]] = index;
}

/* From the end of the path upwards; beyond `least` no further than anything changes. */
static void mend(struct cgpu_ranges *ranges, const uint32_t *path, uint32_t depth, uint32_t least)
{
	while (depth--) {
		uint64_t end_before = last_end(ranges, path[depth]);
		uint32_t height_before = height(ranges, path[depth]);
		uint32_t index = balance(ranges, path[depth]);

		if (index != path[depth])
			replace(ranges, path, depth, index);
		else if (depth <= least && height(ranges, index) == height_before &&
			 last_end(ranges, index) == end_before)
			return;
	}
}

/* Return: how long the path is to the place of `key`, or to its one above. */
static uint32_t descend(const struct cgpu_ranges *ranges, const struct cgpu_range *key,
			uint32_t *path)
{
	uint32_t depth = 0, index = ranges->root;

	while (index) {
		int where = order(at(ranges, index), key);

		path[depth++] = index;
		if (!where)
			break;
		index = at(ranges, index)->child[where < 0];
	}
	return depth;
}

void cgpu_range_tree_add(struct cgpu_ranges *ranges, uint32_t index)
{
	uint32_t path[DEPTH_MAX], depth = descend(ranges, at(ranges, index), path);
	struct cgpu_range *above = depth ? at(ranges, path[depth - 1]) : NULL;

	at(ranges, index)->child[0] = 0;
	at(ranges, index)->child[1] = 0;
	update(ranges, index);
	if (above)
		above->child[order(above, at(ranges, index)) < 0] = index;
	else
		ranges->root = index;
	mend(ranges, path, depth, depth);
}

void cgpu_range_tree_remove(struct cgpu_ranges *ranges, uint32_t index)
{
	const struct cgpu_range *range = at(ranges, index);
	uint32_t path[DEPTH_MAX], depth = descend(ranges, range, path), place = depth - 1;
	uint32_t next = range->child[1];
	struct cgpu_range *heir;

	if (!range->child[0] || !next) {
		replace(ranges, path, place, range->child[0] | next);
		mend(ranges, path, place, place);
		return;
	}
	for (; next; next = at(ranges, next)->child[0])
		path[depth++] = next;
	heir = at(ranges, path[--depth]);
	replace(ranges, path, depth, heir->child[1]);
	heir->child[0] = range->child[0];
	heir->child[1] = range->child[1];
	heir->height = range->height;
	heir->last_end = range->last_end;
	next = path[depth];
	replace(ranges, path, place, next);
	path[place] = next;
	mend(ranges, path, depth, place);
}

void cgpu_range_tree_trim(struct cgpu_ranges *ranges, uint32_t index, uint64_t length_bytes)
{
	uint32_t path[DEPTH_MAX], depth = descend(ranges, at(ranges, index), path);

	at(ranges, index)->length_bytes = length_bytes;
	mend(ranges, path, depth, depth);
}

uint32_t cgpu_range_tree_find(const struct cgpu_ranges *ranges, const struct cgpu_range *key,
			      uint64_t end)
{
	uint32_t index = ranges->root, best = 0;
	const struct cgpu_range *range;

	while (index) {
		range = at(ranges, index);
		if (order(range, key) < 0) {
			index = range->child[1];
			continue;
		}
		if (range->base + range->length_bytes >= end ||
		    (range->child[1] && last_end(ranges, range->child[1]) >= end))
			best = index;
		index = range->child[0];
	}
	if (!best || at(ranges, best)->base + at(ranges, best)->length_bytes >= end)
		return best;
	/* all behind it are behind `key`, too */
	for (index = at(ranges, best)->child[1];;) {
		range = at(ranges, index);
		if (range->child[0] && last_end(ranges, range->child[0]) >= end)
			index = range->child[0];
		else if (range->base + range->length_bytes >= end)
			return index;
		else
			index = range->child[1];
	}
}
