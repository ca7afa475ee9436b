/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which ranges end behind an address, without a look at the others. */
#ifndef CGPU_CORE_MEMORY_RANGE_TREE_H
#define CGPU_CORE_MEMORY_RANGE_TREE_H

#include "core/types.h"
#include "core/memory/ranges.h"

/* A range that is filled in, and whose place no other has: see cgpu_range_order(). */
void cgpu_range_tree_add(struct cgpu_ranges *ranges, uint32_t index);
void cgpu_range_tree_remove(struct cgpu_ranges *ranges, uint32_t index);
/* It ends elsewhere now; where it begins it stays. */
void cgpu_range_tree_trim(struct cgpu_ranges *ranges, uint32_t index, uint64_t length_bytes);
/*
 * The first at the place of `key` or behind it that ends at `end` or later, whatever file and
 * kind it is of. Return: 0: there is none.
 */
uint32_t cgpu_range_tree_find(const struct cgpu_ranges *ranges, const struct cgpu_range *key,
			      uint64_t end);

#endif
