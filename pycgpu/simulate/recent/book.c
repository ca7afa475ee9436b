// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "recent/book.h"

#define SLOTS 64

void cgpu_book_init(struct cgpu_book *b, uint64_t now_ns)
{
	memset(b, 0, sizeof(*b));
	b->bin = now_ns / CGPU_RECENT_BIN_NS;
	b->at_ns = b->settled_ns = now_ns;
}

void cgpu_book_forget(struct cgpu_book *b, uint32_t slot)
{
	memset(&b->entry[slot], 0, sizeof(b->entry[slot]));
}

void cgpu_book_turn(struct cgpu_book *b, uint64_t now_ns)
{
	uint64_t bin = now_ns / CGPU_RECENT_BIN_NS, passed = bin > b->bin ? bin - b->bin : 0;
	uint32_t i, at;

	if (now_ns > b->at_ns)
		b->at_ns = now_ns;
	if (passed > CGPU_RECENT_BINS)
		passed = CGPU_RECENT_BINS;
	for (; passed; passed--) {
		b->bin++;
		at = b->bin % CGPU_RECENT_BINS;
		for (i = 0; i < SLOTS; i++) {
			struct cgpu_book_entry *e = &b->entry[i];

			e->used_ns -= e->used_bin_ns[at];
			e->used_bin_ns[at] = 0;
		}
	}
	if (bin > b->bin)
		b->bin = bin;
}

static void add(struct cgpu_book *b, struct cgpu_book_entry *e, uint64_t used_ns)
{
	uint32_t at = b->bin % CGPU_RECENT_BINS;

	/* of a log that was read late there is more than a second at once */
	if (used_ns > CGPU_RECENT_SPAN_NS)
		used_ns = CGPU_RECENT_SPAN_NS;
	e->used_bin_ns[at] += (uint32_t)used_ns;
	e->used_ns += used_ns;
}

void cgpu_book_hold(struct cgpu_book *b, uint32_t slot, uint64_t ns)
{
	b->entry[slot].held_ns += ns;
}

void cgpu_book_ran(struct cgpu_book *b, uint32_t slot, uint64_t ns)
{
	b->entry[slot].ran_ns += ns;
	b->entry[slot].ever_ns += ns;
}

void cgpu_book_cost(struct cgpu_book *b, uint32_t slot, uint64_t ns)
{
	add(b, &b->entry[slot], ns);
}

void cgpu_book_settle(struct cgpu_book *b, bool owned, uint64_t free, uint64_t now_ns)
{
	uint64_t all_ns = 0;
	uint32_t i;

	cgpu_book_turn(b, now_ns);
	for (i = 0; i < SLOTS; i++)
		all_ns += b->entry[i].ran_ns;
	for (i = 0; i < SLOTS; i++) {
		struct cgpu_book_entry *e = &b->entry[i];
		/* a window is its owner's; on demand it waited where another ran meanwhile */
		uint64_t ran_ns = e->ran_ns || (all_ns && !owned) ? e->ran_ns : e->held_ns;

		/* a moment ago its gate opened: its context is being loaded */
		if (!e->ran_ns && ran_ns < CGPU_RECENT_WINDOW_MIN_NS) {
			e->held_ns = ran_ns;
			continue;
		}
		add(b, e, free >> i & 1 ? 0 : ran_ns);
		e->behind_ns -= (int64_t)ran_ns;
		e->held_ns = e->ran_ns = 0;
	}
	b->settled_ns = now_ns;
}

/* The oldest bin is forgotten little by little. */
static uint64_t kept(const struct cgpu_book *b, uint64_t sum_ns, const uint32_t *bin_ns)
{
	uint64_t gone = b->at_ns % CGPU_RECENT_BIN_NS;
	uint64_t oldest = bin_ns[(b->bin + 1) % CGPU_RECENT_BINS];

	return sum_ns - oldest * gone / CGPU_RECENT_BIN_NS;
}

uint64_t cgpu_book_used(const struct cgpu_book *b, uint32_t slot)
{
	const struct cgpu_book_entry *e = &b->entry[slot];

	return kept(b, e->used_ns, e->used_bin_ns) + e->held_ns;
}

void cgpu_book_due(struct cgpu_book *b, uint32_t slot, uint64_t ns)
{
	b->entry[slot].behind_ns += (int64_t)ns;
}

int64_t cgpu_book_behind(const struct cgpu_book *b, uint32_t slot)
{
	return b->entry[slot].behind_ns - (int64_t)b->entry[slot].held_ns;
}

uint64_t cgpu_book_lately(const struct cgpu_book *b, uint32_t slot)
{
	const struct cgpu_book_entry *e = &b->entry[slot];
	uint64_t ns = e->held_ns;
	uint32_t k;

	for (k = 0; k < CGPU_RECENT_PACE_BINS; k++)
		ns += e->used_bin_ns[(b->bin + CGPU_RECENT_BINS - k) % CGPU_RECENT_BINS];
	return ns;
}

void cgpu_book_level(struct cgpu_book *b, const uint32_t *due_ppm, bool even)
{
	uint64_t all_ns = 0;
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		all_ns += due_ppm[i] ? cgpu_book_used(b, i) : 0;
	for (i = 0; i < SLOTS && even; i++)
		b->entry[i].behind_ns = 0;
	for (i = 0; i < SLOTS && !even; i++)
		b->entry[i].behind_ns = (int64_t)(all_ns * due_ppm[i] / 1000000) -
					(int64_t)cgpu_book_used(b, i) +
					(int64_t)b->entry[i].held_ns;
}

void cgpu_book_cap(struct cgpu_book *b, uint32_t slot, int64_t least_ns, int64_t most_ns)
{
	if (b->entry[slot].behind_ns > most_ns)
		b->entry[slot].behind_ns = most_ns;
	if (b->entry[slot].behind_ns < least_ns)
		b->entry[slot].behind_ns = least_ns;
}

void cgpu_book_balance(struct cgpu_book *b, const uint32_t *due_ppm)
{
	int64_t sum = 0;
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		sum += due_ppm[i] ? b->entry[i].behind_ns : 0;
	for (i = 0; i < SLOTS; i++)
		b->entry[i].behind_ns -= sum / 1000 * due_ppm[i] / 1000;
}
