// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A charge is taken before the driver is asked, with an upper bound of what
 * it will take, and settled afterwards to what it took: so the sum is never
 * above the limit, not even between two racing calls.
 */
#include "core/memory/ledger.h"

void cgpu_ledger_init(struct cgpu_ledger *ledger)
{
	uint32_t card;

	memset(ledger->account, 0, sizeof(ledger->account));
	memset(ledger->unseen, 0, sizeof(ledger->unseen));
	ledger->account[CGPU_HOST].present = true;
	ledger->park_state = CGPU_PARK_RUNNING;
	ledger->returns = false;
	for (card = 0; card < CGPU_ACCOUNTS; card++)
		ledger->account[card].room_bytes = UINT64_MAX;
	cgpu_ledger_limit_host(ledger, 0);
	cgpu_ledger_clear_shortage(ledger);
	cgpu_table_init(&ledger->charges, sizeof(struct cgpu_charge));
}

void cgpu_ledger_clear_shortage(struct cgpu_ledger *ledger)
{
	ledger->shortage = (struct cgpu_shortage){ .card = CGPU_NO_CARD };
}

void cgpu_ledger_judge_again(struct cgpu_ledger *ledger, const struct cgpu_shortage *shortage)
{
	if (shortage->bytes && shortage->card < CGPU_ACCOUNTS)
		ledger->account[shortage->card].oom--;
}

void cgpu_ledger_limit_host(struct cgpu_ledger *ledger, uint64_t max_bytes)
{
	ledger->account[CGPU_HOST].max_bytes = max_bytes;
	ledger->account[CGPU_HOST].unlimited = !max_bytes;
}

void cgpu_ledger_limit_bar1(struct cgpu_ledger *ledger, uint32_t card, uint64_t max_bytes)
{
	ledger->account[CGPU_BAR1 + card].present = true;
	ledger->account[CGPU_BAR1 + card].max_bytes = max_bytes;
}

void cgpu_ledger_limit_room(struct cgpu_ledger *ledger, uint32_t card, uint64_t max_bytes)
{
	ledger->account[card].room_bytes = max_bytes;
}

struct cgpu_charge *cgpu_charge_at(const struct cgpu_ledger *ledger, uint32_t index)
{
	return cgpu_table_entry(&ledger->charges, index);
}

uint64_t cgpu_account_held(const struct cgpu_account *account)
{
	/* no charge takes the sum beyond 64 bits */
	return account->current_bytes + account->parked_bytes;
}

/* Subtracts first: bytes comes from the tenant, and the sum may be near 2^64. */
static bool is_allowed(const struct cgpu_account *account, uint64_t bytes)
{
	uint64_t held = cgpu_account_held(account);

	if (bytes > UINT64_MAX - held)
		return false;
	return account->unlimited ||
	       (held <= account->max_bytes && bytes <= account->max_bytes - held);
}

/* The part that a returning process takes of the container's own room. Return: at most `bytes`. */
static uint64_t reserved_for(const struct cgpu_ledger *ledger, uint32_t card, uint64_t bytes)
{
	const struct cgpu_account *account = &ledger->account[card];
	uint64_t own = account->parked_bytes + account->slack_bytes;

	if (!ledger->returns || card >= CGPU_MAX_CARDS)
		return 0;
	return bytes < own ? bytes : own;
}

static void draw(struct cgpu_account *account, uint64_t bytes)
{
	uint64_t parked = bytes < account->parked_bytes ? bytes : account->parked_bytes;

	account->parked_bytes -= parked;
	account->slack_bytes -= bytes - parked;
}

int cgpu_account_charge(struct cgpu_ledger *ledger, uint32_t card, uint64_t bytes)
{
	struct cgpu_account *account;
	uint64_t own;
	bool allowed;

	if (card >= CGPU_ACCOUNTS || !ledger->account[card].present)
		return -ENODEV;
	account = &ledger->account[card];
	own = reserved_for(ledger, card, bytes);
	/* its own room was judged before, whatever its limit is by now */
	allowed = bytes <= own || is_allowed(account, bytes - own);
	if (!allowed || (bytes > own && bytes - own > account->room_bytes)) {
		account->oom++;
		ledger->shortage = (struct cgpu_shortage){
			.bytes = bytes, .card = card, .kill = account->oom_kill, .room = allowed,
		};
		return -ENOSPC;
	}
	draw(account, own);
	/* growth until it is locked is parked, too; memory taken back may be freed again */
	if (card < CGPU_MAX_CARDS)
		account->leaving_bytes += ledger->park_state == CGPU_PARK_PARKING ? bytes : own;
	account->current_bytes += bytes;
	if (account->current_bytes > account->peak_bytes)
		account->peak_bytes = account->current_bytes;
	return 0;
}

void cgpu_account_uncharge(struct cgpu_ledger *ledger, uint32_t card, uint64_t bytes)
{
	struct cgpu_account *account = &ledger->account[card];
	uint64_t parked = bytes < account->leaving_bytes ? bytes : account->leaving_bytes;

	account->current_bytes -= bytes;
	/* whichever process freed it: no more is kept than the leaving ones had */
	account->leaving_bytes -= parked;
	account->parked_bytes += parked;
}

int cgpu_charge_new(struct cgpu_ledger *ledger, uint32_t card, uint64_t bytes,
		    uint32_t pid, uint32_t *index)
{
	struct cgpu_charge *charge;
	int err;

	if (!cgpu_table_room(&ledger->charges))
		return -ENOMEM;
	err = cgpu_account_charge(ledger, card, bytes);
	if (err)
		return err;
	*index = cgpu_table_take(&ledger->charges);
	charge = cgpu_charge_at(ledger, *index);
	*charge = (struct cgpu_charge){
		.refs = 1, .card = card, .pid = pid, .bytes = bytes
	};
	return 0;
}

bool cgpu_charge_is_of_host(const struct cgpu_ledger *ledger, uint32_t index)
{
	return index && cgpu_charge_at(ledger, index)->card == CGPU_HOST;
}

/* `by`: 1 or -1 */
static void count(struct cgpu_ledger *ledger, const struct cgpu_charge *charge, uint32_t by)
{
	uint32_t kind;

	for (kind = 0; kind < CGPU_UNSEEN_KINDS; kind++)
		if (charge->kinds & (1u << kind))
			ledger->unseen[kind][charge->card] += by;
}

void cgpu_charge_count(struct cgpu_ledger *ledger, uint32_t index, uint32_t kinds)
{
	cgpu_charge_at(ledger, index)->kinds = kinds;
	count(ledger, cgpu_charge_at(ledger, index), 1);
}

int cgpu_charge_settle(struct cgpu_ledger *ledger, uint32_t index, uint64_t bytes)
{
	struct cgpu_charge *charge = cgpu_charge_at(ledger, index);
	int err;

	if (bytes > charge->bytes) {
		err = cgpu_account_charge(ledger, charge->card, bytes - charge->bytes);
		if (err)
			return err;
	} else {
		cgpu_account_uncharge(ledger, charge->card, charge->bytes - bytes);
	}
	charge->bytes = bytes;
	return 0;
}

void cgpu_charge_get(struct cgpu_ledger *ledger, uint32_t index)
{
	cgpu_charge_at(ledger, index)->refs++;
}

void cgpu_charge_put(struct cgpu_ledger *ledger, uint32_t index)
{
	struct cgpu_charge *charge = cgpu_charge_at(ledger, index);

	if (--charge->refs)
		return;
	cgpu_account_uncharge(ledger, charge->card, charge->bytes);
	count(ledger, charge, (uint32_t)-1);
	cgpu_table_give(&ledger->charges, index);
}

uint64_t cgpu_account_free(const struct cgpu_account *account, uint64_t card_free_bytes)
{
	uint64_t own;

	if (account->unlimited)
		return card_free_bytes;
	if (cgpu_account_held(account) >= account->max_bytes)
		return 0;
	own = account->max_bytes - cgpu_account_held(account);
	return own < card_free_bytes ? own : card_free_bytes;
}
