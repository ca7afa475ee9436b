/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The account: what each entity used of the last second. The log of context switches charges it,
 * and the clock forgets. Until the log has been read, what an entity seems to hold counts instead.
 */
#ifndef CGPU_SIMULATE_RECENT_BOOK_H
#define CGPU_SIMULATE_RECENT_BOOK_H

#include "core/types.h"
#include "recent/constants.h"

struct cgpu_book_entry {
	uint32_t used_bin_ns[101]; /* CGPU_RECENT_BINS */
	uint64_t used_ns;          /* sum of the bins */
	int64_t behind_ns;         /* windows by the clock: what was planned, less what it used */
	uint64_t held_ns;          /* since the log was read: it had the card alone */
	uint64_t ran_ns;           /* since then, by the log */
	uint64_t ever_ns;          /* by the log */
};

struct cgpu_book {
	uint64_t bin;              /* that is filled now */
	uint64_t at_ns;            /* the books are as of then */
	uint64_t settled_ns;       /* the log was read then */
	struct cgpu_book_entry entry[64];
};

void cgpu_book_init(struct cgpu_book *b, uint64_t now_ns);
void cgpu_book_forget(struct cgpu_book *b, uint32_t slot);

/* Time passes: what was used more than a second ago no longer counts. */
void cgpu_book_turn(struct cgpu_book *b, uint64_t now_ns);

/* The slot seems to have had the card for so long. */
void cgpu_book_hold(struct cgpu_book *b, uint32_t slot, uint64_t ns);
/* By the log it ran for so long. */
void cgpu_book_ran(struct cgpu_book *b, uint32_t slot, uint64_t ns);
/* It made others lose so much of the card. */
void cgpu_book_cost(struct cgpu_book *b, uint32_t slot, uint64_t ns);

/*
 * The log was read up to now. A slot that had the card alone and did not run is charged for that:
 * it seems to work, and pays for it. @owned: also where others ran meanwhile, for its windows are
 * nobody else's. A slot of @free is not charged.
 */
void cgpu_book_settle(struct cgpu_book *b, bool owned, uint64_t free, uint64_t now_ns);

/* By the clock's plan the slot was to have so much. */
void cgpu_book_due(struct cgpu_book *b, uint32_t slot, uint64_t ns);

/* Return: what the slot used of the last second. */
uint64_t cgpu_book_used(const struct cgpu_book *b, uint32_t slot);
/* Return: of that, what it used of the last CGPU_RECENT_PACE_BINS. */
uint64_t cgpu_book_lately(const struct cgpu_book *b, uint32_t slot);
/* Return: what was planned for it, less what it used. */
int64_t cgpu_book_behind(const struct cgpu_book *b, uint32_t slot);
/* The parts of @due_ppm fill the card: what all are behind by together is nobody's fault. */
void cgpu_book_balance(struct cgpu_book *b, const uint32_t *due_ppm);
/* A plan begins: each is behind by its part of what was used in the last second, or, @even, not. */
void cgpu_book_level(struct cgpu_book *b, const uint32_t *due_ppm, bool even);
/* Nothing is saved up by not using a window: within these bounds. */
void cgpu_book_cap(struct cgpu_book *b, uint32_t slot, int64_t least_ns, int64_t most_ns);

#endif
