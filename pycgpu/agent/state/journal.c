// SPDX-License-Identifier: GPL-2.0-only
/*
 * An agent may be killed amid a change of a container's books. The journal saves what a change
 * touches beforehand; the next agent restores it if the change did not end. The core reaches what
 * it may change by cgpu_table_entry(), except the small head of its tables, and its hash buckets,
 * which it reports.
 *
 * A killed thread has done all that precedes its current instruction, so only the compiler must
 * keep the order.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state/flight.h"
#include "state/state.h"

enum {
	SEEN = 64,               /* the entries saved last, so that they are not saved again */
	LARGE_BYTES = 4 << 20    /* a larger journal is given back afterwards */
};

/* Follows the saved bytes, so that the newest entry is found first. */
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
/* The thread that changes books; a thread that reads the tables without door.lock is another. */
static const void *changer;

/* The core calls this for each slot that it looks at, so it is one compare and no call. */
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
	/* the room is many times a container's tables; beyond it a change could not be undone */
	if (journal->used + padded(bytes) + sizeof(struct entry) > room)
		abort();
	memcpy(was, at, bytes);
	*(struct entry *)(was + padded(bytes)) = (struct entry){ at, bytes };
	in_order();
	journal->used += padded(bytes) + sizeof(struct entry);
	in_order();
}

/* The core calls this before it changes something outside a table's head. */
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

/* The core reports changes of its lists of processes itself. */
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
	/* the oldest last: for memory saved twice it has the original */
	while (end) {
		entry = (const struct entry *)(journal->entries + end) - 1;
		end -= sizeof(*entry) + padded(entry->bytes);
		memcpy(entry->at, journal->entries + end, entry->bytes);
	}
	in_order();
	journal->open = 0;
	return true;
}
