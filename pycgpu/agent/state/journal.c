// SPDX-License-Identifier: GPL-2.0-only
/*
 * An agent may be killed amid a change of a container's books. What a change touches is written
 * down before, as it was, and put back by the next agent if the change was not ended. The core
 * gets to all that it may change by cgpu_table_entry(), but for the head of its tables, which
 * is small, and its hash buckets, of which it tells.
 *
 * A thread that is killed has done all that comes before the instruction that it was at, so only
 * the compiler must keep to the order.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state/flight.h"
#include "state/state.h"

enum {
	SEEN = 64,               /* of what was written down last, so that it is not again */
	LARGE_BYTES = 4 << 20    /* is given back afterwards */
};

/* What stood somewhere, and behind that this: so the newest is found first. */
struct entry {
	uint8_t *at;
	uint64_t bytes;
};

struct journal {
	uint64_t open;
	uint64_t used;
	uint8_t entries[];
};

static struct journal *journal;
static size_t room;
/* under door.lock */
static const void *seen[SEEN];
/* The thread that changes books: one that reads the core's tables without door.lock does not. */
static const void *changer;

/* The core asks this of each slot that it looks at: one compare, and no call. */
static bool is_changing(void)
{
	return changer == __builtin_thread_pointer();
}

void journal_place(void *at, size_t bytes)
{
	journal = at;
	room = bytes - sizeof(*journal);
}

static void in_order(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

static uint64_t padded(uint64_t bytes)
{
	return (bytes + 7) & ~7ULL;
}

void change_keep(void *at, size_t bytes)
{
	uint8_t *was = journal ? journal->entries + journal->used : NULL;

	if (!is_changing())
		return;
	/* many times what a container's tables have: without it a change could not be undone */
	if (journal->used + padded(bytes) + sizeof(struct entry) > room)
		abort();
	memcpy(was, at, bytes);
	*(struct entry *)(was + padded(bytes)) = (struct entry){ at, bytes };
	in_order();
	journal->used += padded(bytes) + sizeof(struct entry);
	in_order();
}

/* What the core says before it changes something that is no part of a table's head. */
void cgpu_touched(void *at, size_t bytes);
void cgpu_touched(void *at, size_t bytes)
{
	uint32_t i;

	if (!is_changing())
		return;
	i = (uint32_t)((uintptr_t)at >> 4) % SEEN;
	if (seen[i] == at)
		return;
	seen[i] = at;
	change_keep(at, bytes);
}

/* Of its lists of processes the core tells. */
static void keep_books(struct cgpu_tenant *tenant)
{
	size_t lists = offsetof(struct cgpu_tenant, objects.processes);
	size_t behind = lists + sizeof(tenant->objects.processes);

	change_keep(tenant, lists);
	change_keep((uint8_t *)tenant + behind, sizeof(*tenant) - behind);
}

static void begin(struct container *c)
{
	memset(seen, 0, sizeof(seen));
	journal->used = 0;
	in_order();
	journal->open = 1;
	in_order();
	changer = __builtin_thread_pointer();
	if (c)
		keep_books(&c->tenant);
}

void change_with(struct container *c)
{
	keep_books(&c->tenant);
}

void change_begin(struct container *c, struct flight *f)
{
	if (!journal)
		return;
	begin(c);
	if (!f)
		return;
	change_keep(&f->stage, sizeof(f->stage));
	change_keep(&f->call, sizeof(f->call));
	change_keep(f->args, f->call.req.args_size);
}

void change_begin_growth(struct container *c)
{
	if (!journal)
		return;
	begin(c);
	changer = NULL;
}

void change_end(void)
{
	if (!journal)
		return;
	changer = NULL;
	in_order();
	journal->open = 0;
	in_order();
	if (journal->used > LARGE_BYTES)
		madvise((uint8_t *)journal + LARGE_BYTES, (journal->used - LARGE_BYTES) & ~4095ULL,
			MADV_REMOVE);
}

bool journal_undo(void)
{
	const struct entry *entry;
	uint64_t end = journal->used;

	if (!journal->open)
		return false;
	/* the oldest last: of what was written down twice that is as it was before */
	while (end) {
		entry = (const struct entry *)(journal->entries + end) - 1;
		end -= sizeof(*entry) + padded(entry->bytes);
		memcpy(entry->at, journal->entries + end, entry->bytes);
	}
	in_order();
	journal->open = 0;
	return true;
}
