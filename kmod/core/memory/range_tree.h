/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Ranges of addresses. It finds those that end behind an address without visiting the others. */
#ifndef CGPU_CORE_MEMORY_RANGE_TREE_H
#define CGPU_CORE_MEMORY_RANGE_TREE_H

#include "core/types.h"
#include "core/memory/ledger.h"
#include "core/memory/table.h"

enum cgpu_range_kind {
	CGPU_RANGE_EXTERNAL,  /* UVM mapping, of an RM memory object or of none */
	CGPU_RANGE_MANAGED,   /* cudaMallocManaged: no RM object */
	CGPU_RANGE_RESERVED,  /* semaphore pool, device P2P: its mmap is not managed */
	CGPU_RANGE_EXPORT,    /* base: index of the object in the exported fd */
	CGPU_RANGE_RESERVING, /* to become RESERVED or CREATED, if no one frees it meanwhile */
	CGPU_RANGE_FREEING,   /* UVM_FREE of it is in the driver */
	CGPU_RANGE_CREATED,   /* where EXTERNAL ones go: what UVM_FREE by base takes */
	/*
	 * base: client and number, by which the driver knows it. Any file may free it, so it is
	 * found among those of all files: as one of file 0, whose card is the file.
	 */
	CGPU_RANGE_OS_EVENT,
	/* what UVM keeps when its handles are gone */
	CGPU_RANGE_CHANNEL,   /* and its group; base: client and channel, as UVM knows it */
	CGPU_RANGE_VASPACE,   /* base: the card */
	CGPU_RANGE_ANNOUNCED, /* to become RESERVED, but no answer arrived: it may be there */
	CGPU_RANGE_MAPPED,    /* of the host's memory, for the processor; base: its charge */
	CGPU_RANGE_EXPORTING, /* to become EXPORT, in place of what is, when the driver says so */
	CGPU_RANGE_IMPORTING, /* places of a file that an import in the driver looks at */
	CGPU_RANGE_KINDS
};

struct cgpu_range {
	uint32_t chain;  /* chains free entries while unused; OS_EVENT: the file's next */
	uint16_t kind;   /* enum cgpu_range_kind */
	uint16_t height; /* of the tree of it and all below it */
	uint32_t file;
	uint32_t charge; /* 0: none */
	uint32_t card;   /* EXTERNAL, CHANNEL, VASPACE: its card, otherwise CGPU_NO_CARD */
	uint32_t prev;   /* OS_EVENT: the file's one before it */
	uint32_t child[2]; /* what is before it, and what is behind; 0: nothing */
	uint64_t serial; /* when it was added; a piece keeps it */
	uint64_t base;
	uint64_t length_bytes;
	uint64_t last_end; /* the greatest of it and all below it */
};

/* Several ranges may share an address (two cards). */
struct cgpu_ranges {
	struct cgpu_table table;
	uint32_t root;            /* of the tree of them, see range_tree.c */
	uint32_t count;
	uint64_t serial;          /* of the newest range */
	/* page tables of what is mapped, at most; the last: on whatever card */
	uint64_t tables_bytes[CGPU_MAX_CARDS + 1];
	bool tables_changed;
	uint32_t externals;       /* CREATED, and all that is RESERVING */
};

struct cgpu_range *cgpu_range_at(const struct cgpu_ranges *ranges, uint32_t index);
/* Ranges of that kind are on a card. */
bool cgpu_range_is_parted(uint32_t kind);
/* Where a file has ranges of that kind on several cards each card's have a tree's part. */
uint32_t cgpu_range_lane(const struct cgpu_range *range);

/* Adds a range that is filled in. No other may have its place: see order(). */
void cgpu_range_tree_add(struct cgpu_ranges *ranges, uint32_t index);
void cgpu_range_tree_remove(struct cgpu_ranges *ranges, uint32_t index);
/* Changes the end of a range; its beginning stays. */
void cgpu_range_tree_trim(struct cgpu_ranges *ranges, uint32_t index, uint64_t length_bytes);
/*
 * The first range at the place of `key` or behind it that ends at `end` or later, of any file and
 * kind. Return: 0: there is none.
 */
uint32_t cgpu_range_tree_find(const struct cgpu_ranges *ranges, const struct cgpu_range *key,
			      uint64_t end);

#endif
