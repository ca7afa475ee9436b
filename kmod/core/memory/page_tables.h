/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Page tables of UVM's mappings, which lie in the card's memory and are no object of RM's. */
#ifndef CGPU_CORE_MEMORY_PAGE_TABLES_H
#define CGPU_CORE_MEMORY_PAGE_TABLES_H

#include "core/types.h"
#include "core/memory/ledger.h"
#include "core/memory/ranges.h"

enum cgpu_page_tables_limit {
	/*
	 * Free on each card, with 1/128 of the limit beside it: as much as mappings of 2 MiB count,
	 * if no memory is mapped twice. So a container that maps what it has pays nothing.
	 */
	CGPU_FREE_TABLES_BYTES = 64 << 20
};

/*
 * Before the driver maps: charges what `bytes` more are beyond the free ones, on each of
 * `cards` (bit set) that the container has. Return: 0, -ENOSPC (nothing changed, oom counted).
 */
int cgpu_page_tables_promise(struct cgpu_ledger *ledger, struct cgpu_ranges *ranges,
			     uint32_t cards, uint64_t bytes);
/* The driver has mapped, or has not; cgpu_page_tables_settle() when the ranges tell which. */
void cgpu_page_tables_release(struct cgpu_ledger *ledger, struct cgpu_ranges *ranges,
			      uint32_t cards, uint64_t bytes);
/* Charges by the present contents of the ranges. */
void cgpu_page_tables_settle(struct cgpu_ledger *ledger, struct cgpu_ranges *ranges);

#endif
