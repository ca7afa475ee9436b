// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The size of page tables depends on the page size, and on the neighbours of a mapping. So each
 * range counts with its maximum (cgpu_range_tables()), and of the sum as much is free as honest
 * programs may need.
 */
#include "core/memory/page_tables.h"

static uint64_t beyond_the_free(const struct cgpu_account *account, uint64_t bytes)
{
	uint64_t free_bytes = CGPU_FREE_TABLES_BYTES + (account->max_bytes >> 7);

	return account->unlimited || bytes <= free_bytes ? 0 : bytes - free_bytes;
}

static uint64_t counted(const struct cgpu_ledger *ledger, const struct cgpu_ranges *ranges,
			uint32_t card)
{
	return ranges->tables_bytes[card] + ranges->tables_bytes[CGPU_MAX_CARDS] +
	       ledger->account[card].tables_promised_bytes;
}

static void settle(struct cgpu_ledger *ledger, const struct cgpu_ranges *ranges, uint32_t card)
{
	struct cgpu_account *account = &ledger->account[card];
	uint64_t bytes = beyond_the_free(account, counted(ledger, ranges, card));

	if (!account->present)
		return;
	if (bytes < account->tables_bytes)
		cgpu_account_uncharge(ledger, card, account->tables_bytes - bytes);
	else
		account->current_bytes += bytes - account->tables_bytes;
	account->tables_bytes = bytes;
	if (account->current_bytes > account->peak_bytes)
		account->peak_bytes = account->current_bytes;
}

int cgpu_page_tables_promise(struct cgpu_ledger *ledger, struct cgpu_ranges *ranges,
			     uint32_t cards, uint64_t bytes)
{
	uint32_t card;

	for (card = 0; card < CGPU_MAX_CARDS; card++) {
		struct cgpu_account *account = &ledger->account[card];
		uint64_t wanted;

		if (!(cards & (1u << card)) || !account->present)
			continue;
		wanted = beyond_the_free(account, counted(ledger, ranges, card) + bytes);
		if (wanted > account->tables_bytes) {
			if (cgpu_account_charge(ledger, card,
						wanted - account->tables_bytes))
				goto undo;
			account->tables_bytes = wanted;
		}
		account->tables_promised_bytes += bytes;
	}
	return 0;
undo:
	cgpu_page_tables_release(ledger, ranges, cards & ((1u << card) - 1), bytes);
	cgpu_page_tables_settle(ledger, ranges);
	return -ENOSPC;
}

void cgpu_page_tables_release(struct cgpu_ledger *ledger, struct cgpu_ranges *ranges,
			      uint32_t cards, uint64_t bytes)
{
	uint32_t card;

	for (card = 0; card < CGPU_MAX_CARDS; card++)
		if (cards & (1u << card) && ledger->account[card].present)
			ledger->account[card].tables_promised_bytes -= bytes;
	ranges->tables_changed = true;
}

void cgpu_page_tables_settle(struct cgpu_ledger *ledger, struct cgpu_ranges *ranges)
{
	uint32_t card;

	if (!ranges->tables_changed)
		return;
	ranges->tables_changed = false;
	for (card = 0; card < CGPU_MAX_CARDS; card++)
		settle(ledger, ranges, card);
}
