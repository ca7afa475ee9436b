/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The ranges of open files: UVM address ranges, memory exported as an fd, OS events. */
#ifndef CGPU_CORE_MEMORY_RANGES_H
#define CGPU_CORE_MEMORY_RANGES_H

#include "core/types.h"
#include "core/memory/ledger.h"
#include "core/memory/range_tree.h"

enum cgpu_range_filter {
	CGPU_ANY_CARD = 0xfe
};

enum cgpu_range_limit {
	CGPU_CUT_STEP = 256
};

enum {
	/*
	 * UVM allocates a card's memory in units of this size. After all but 4 KiB of each 2 MiB
	 * was unmapped again, the card still had 8 GiB less (H100, 580.159.04).
	 */
	CGPU_MANAGED_BLOCK_BYTES = 2 << 20
};

/* The most page tables that a mapping of this length can take, in bytes. */
uint64_t cgpu_range_tables(uint64_t length_bytes);

void cgpu_ranges_init(struct cgpu_ranges *ranges);

/* Adds a range; takes over one reference of `charge`. Return: 0, -ENOMEM: full. */
int cgpu_range_add(struct cgpu_ranges *ranges, uint32_t kind, uint32_t file,
		   uint64_t base, uint64_t length_bytes, uint32_t charge, uint32_t card);

/*
 * Takes [base, base + length) out of the ranges of `file` with a kind in
 * `kinds` (bit set) on `card` (or CGPU_ANY_CARD), trimming and splitting;
 * references of what vanished are dropped. Ranges newer than `serial` stay:
 * what was added while the driver was unmapping may have been mapped after it.
 * If a split finds no free entry, the range stays whole: charged too much,
 * never too little. Return: how much less managed memory takes, bytes.
 */
uint64_t cgpu_range_cut(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			uint32_t file, uint32_t kinds, uint32_t card, uint64_t serial,
			uint64_t base, uint64_t length_bytes);
/*
 * The same of all cards and ages, at most CGPU_CUT_STEP ranges at once, so that waiters for the
 * lock do not wait for all. `*more`: call it again.
 */
uint64_t cgpu_range_cut_step(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			     uint32_t file, uint32_t kinds, uint64_t base,
			     uint64_t length_bytes, bool *more);

/*
 * The bytes that managed memory at [base, base + length) would add, of all blocks that it touches
 * and no other of `file` does. Its end is no more than 2^63.
 */
uint64_t cgpu_range_managed(const struct cgpu_ranges *ranges, uint32_t file, uint64_t base,
			    uint64_t length_bytes);

/*
 * Finds a range of `kind` at that place of `file`. Return: false: none; true: `charge` is its
 * charge, 0 for an object that takes no video memory.
 */
bool cgpu_range_in_place(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			 uint64_t place, uint32_t *charge);
/* Gives the oldest range of `kind` that begins at `base` another kind, if there is one. */
void cgpu_range_turn(struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
		     uint32_t other_kind, uint64_t base);

/*
 * Return: the oldest that begins at `base` and is no older than `serial`, of a kind that has no
 * cards; 0: there is none.
 */
uint32_t cgpu_range_since(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			  uint64_t base, uint64_t serial);
/* Takes that entry out. */
void cgpu_range_drop(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger, uint32_t index);

/* Return: serial of the oldest range of `kind` that begins at `base`, UINT64_MAX: none. */
uint64_t cgpu_range_oldest(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			   uint64_t base);
/* Takes that one out. */
void cgpu_range_drop_oldest(struct cgpu_ranges *ranges, struct cgpu_ledger *ledger,
			    uint32_t file, uint32_t kind, uint64_t base);

/* true if [base, base + length) lies in one range of `kind` */
bool cgpu_range_covers(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
		       uint64_t base, uint64_t length_bytes);

/*
 * Length of the shortest range with a kind in `kinds` that begins at `base`: what the
 * driver frees there is at least as long. Return: 0: there is none.
 */
uint64_t cgpu_range_length(const struct cgpu_ranges *ranges, uint32_t file,
			   uint32_t kinds, uint64_t base);

/* true if a range with a kind in `kinds` shares an address with these */
bool cgpu_range_overlaps(const struct cgpu_ranges *ranges, uint32_t file,
			 uint32_t kinds, uint64_t base, uint64_t length_bytes);

/*
 * The first of that kind of `file` that is behind `after`, one that was found by this and may
 * be gone by now, or all zero. Return: 0: there is none.
 */
uint32_t cgpu_range_next(const struct cgpu_ranges *ranges, uint32_t file, uint32_t kind,
			 const struct cgpu_range *after);

#endif
