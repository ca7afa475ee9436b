// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A driver that finds no room as it restores a process loses it. So room is reserved before the
 * driver is asked, by the same ledger that judges every allocation, and under the same lock.
 */
#include "core/memory/parking.h"

void cgpu_room_add(struct cgpu_room *rooms, const struct cgpu_tenant *tenant)
{
	uint32_t card;

	for (card = 0; card < CGPU_MAX_CARDS; card++) {
		const struct cgpu_account *account = &tenant->ledger.account[card];

		rooms[card].used_bytes += account->current_bytes;
		rooms[card].reserved_bytes += cgpu_parking_reserved(&tenant->ledger, card);
	}
}

static uint64_t minus(uint64_t from, uint64_t bytes)
{
	return bytes < from ? from - bytes : 0;
}

uint64_t cgpu_room_left(const struct cgpu_room *room)
{
	if (!room->card_bytes)
		return UINT64_MAX;
	return minus(minus(minus(room->card_bytes, room->foreign_bytes), room->used_bytes),
		     room->reserved_bytes);
}

bool cgpu_parking_moves(const struct cgpu_ledger *ledger)
{
	return ledger->park_state == CGPU_PARK_PARKING ||
	       ledger->park_state == CGPU_PARK_RESUMING;
}

uint64_t cgpu_parking_reserved(const struct cgpu_ledger *ledger, uint32_t card)
{
	const struct cgpu_account *account = &ledger->account[card];

	return cgpu_parking_moves(ledger) ? account->parked_bytes + account->slack_bytes : 0;
}

static void change_state(struct cgpu_tenant *tenant, uint32_t state, uint64_t now_ns)
{
	struct cgpu_parking *parking = &tenant->parking;

	if (cgpu_parking_moves(&tenant->ledger))
		parking->moved_ns += now_ns - parking->since_ns;
	if (tenant->ledger.park_state == CGPU_PARK_RESUMING)
		parking->return_ns = now_ns - parking->since_ns;
	tenant->ledger.park_state = state;
	parking->since_ns = now_ns;
}

int cgpu_parking_begin(struct cgpu_tenant *tenant, const uint32_t *pids, uint32_t count,
		       bool held, uint64_t now_ns)
{
	uint32_t card;

	if (tenant->ledger.park_state != CGPU_PARK_RUNNING)
		return -EBUSY;
	if (tenant->role != CGPU_ROLE_ALONE)
		return -EXDEV;
	if (count > CGPU_PARKED_PROCESSES)
		return -E2BIG;
	memcpy(tenant->parking.pid, pids, count * sizeof(*pids));
	tenant->parking.count = count;
	tenant->parking.held = held;
	tenant->parking.asked_ns = 0;
	tenant->parking.short_card = CGPU_NO_CARD;
	for (card = 0; card < CGPU_MAX_CARDS; card++)
		tenant->ledger.account[card].leaving_bytes =
			tenant->ledger.account[card].current_bytes;
	change_state(tenant, CGPU_PARK_PARKING, now_ns);
	return 0;
}

int cgpu_parking_parked(struct cgpu_tenant *tenant, uint64_t now_ns)
{
	if (tenant->ledger.park_state != CGPU_PARK_PARKING)
		return -EBUSY;
	change_state(tenant, CGPU_PARK_PARKED, now_ns);
	return 0;
}

void cgpu_parking_ask(struct cgpu_tenant *tenant, uint32_t priority, uint64_t now_ns)
{
	tenant->parking.priority = priority;
	if (!tenant->parking.asked_ns)
		tenant->parking.asked_ns = now_ns;
}

int cgpu_parking_stay(struct cgpu_tenant *tenant)
{
	if (tenant->ledger.park_state != CGPU_PARK_PARKED || !tenant->parking.asked_ns)
		return -EBUSY;
	tenant->parking.asked_ns = 0;
	tenant->parking.short_card = CGPU_NO_CARD;
	/* its holder has asked for its return */
	tenant->parking.held = false;
	return 0;
}

bool cgpu_parking_precedes(const struct cgpu_parking *one, const struct cgpu_parking *other)
{
	if (!one->asked_ns || !other->asked_ns)
		return one->asked_ns;
	return one->priority != other->priority ? one->priority > other->priority :
						  one->asked_ns < other->asked_ns;
}

/*
 * However often a container comes back, it has no more than its limit and this slack: one that drew
 * on the slack the last time gets the rest.
 */
static uint64_t slack_bytes(const struct cgpu_account *account)
{
	uint64_t slack = CGPU_RETURN_SLACK_BYTES +
			 (account->parked_bytes >> CGPU_RETURN_SLACK_SHIFT);
	uint64_t over = minus(cgpu_account_held(account), account->max_bytes);

	if (!account->parked_bytes)
		return 0;
	return account->unlimited ? slack : minus(slack, over);
}

/*
 * The room that a return needs. A container with nearly all of a card would wait for its slack for
 * ever. It fits without, as it did before, and its reservation leaves nothing to others.
 */
static uint64_t room_bytes(const struct cgpu_account *account, uint64_t card_bytes)
{
	uint64_t bytes = account->parked_bytes + slack_bytes(account);

	if (!card_bytes || bytes <= card_bytes)
		return bytes;
	return account->parked_bytes < card_bytes ? account->parked_bytes : card_bytes;
}

int cgpu_parking_reserve(struct cgpu_tenant *tenant, const struct cgpu_room *rooms,
			 uint64_t now_ns)
{
	struct cgpu_account *accounts = tenant->ledger.account;
	uint32_t card;

	if (tenant->ledger.park_state != CGPU_PARK_PARKED)
		return -EBUSY;
	for (card = 0; card < CGPU_MAX_CARDS; card++) {
		const struct cgpu_account *account = &accounts[card];
		uint64_t left = cgpu_room_left(&rooms[card]);
		uint64_t needed = room_bytes(account, rooms[card].card_bytes);

		if (needed > left) {
			tenant->parking.short_card = card;
			tenant->parking.short_bytes = needed - left;
			return -EAGAIN;
		}
	}
	for (card = 0; card < CGPU_MAX_CARDS; card++)
		accounts[card].slack_bytes = slack_bytes(&accounts[card]);
	tenant->parking.short_card = CGPU_NO_CARD;
	change_state(tenant, CGPU_PARK_RESUMING, now_ns);
	return 0;
}

int cgpu_parking_end(struct cgpu_tenant *tenant, uint64_t now_ns)
{
	uint32_t card;

	if (tenant->ledger.park_state == CGPU_PARK_RUNNING)
		return -EBUSY;
	for (card = 0; card < CGPU_MAX_CARDS; card++) {
		tenant->ledger.account[card].parked_bytes = 0;
		tenant->ledger.account[card].slack_bytes = 0;
		tenant->ledger.account[card].leaving_bytes = 0;
	}
	tenant->parking.count = 0;
	tenant->parking.held = false;
	tenant->parking.asked_ns = 0;
	tenant->parking.short_card = CGPU_NO_CARD;
	change_state(tenant, CGPU_PARK_RUNNING, now_ns);
	return 0;
}

/* Called repeatedly while it waits: another call of the container may want room, too. */
static void want(struct cgpu_parking *parking, const struct cgpu_wait *wait)
{
	if (parking->want_bytes && parking->want_card != wait->card)
		return;
	parking->want_card = wait->card;
	if (wait->bytes > parking->want_bytes)
		parking->want_bytes = wait->bytes;
}

bool cgpu_wait_begin(struct cgpu_wait *wait, struct cgpu_tenant *tenant,
		     const struct cgpu_shortage *shortage, uint64_t now_ns)
{
	/* another call took the room: this one may wait for more until its time is over */
	bool again = wait->begun_ns && tenant->parking.no_room == wait->told &&
		     now_ns - wait->begun_ns < CGPU_WAIT_S * 1000000000ull;

	if (shortage->card >= CGPU_MAX_CARDS || !shortage->room || (wait->begun_ns && !again))
		return false;
	if (!again) {
		wait->begun_ns = now_ns;
		wait->told = tenant->parking.no_room;
	}
	wait->card = shortage->card;
	wait->bytes = shortage->bytes;
	want(&tenant->parking, wait);
	return true;
}

bool cgpu_wait_goes_on(struct cgpu_wait *wait, struct cgpu_tenant *tenant, uint64_t now_ns)
{
	if (!wait->bytes)
		return false;
	if (tenant->ledger.account[wait->card].room_bytes < wait->bytes &&
	    tenant->parking.no_room == wait->told &&
	    now_ns - wait->begun_ns < CGPU_WAIT_S * 1000000000ull) {
		want(&tenant->parking, wait);
		return true;
	}
	cgpu_wait_end(wait, tenant);
	return false;
}

void cgpu_wait_end(struct cgpu_wait *wait, struct cgpu_tenant *tenant)
{
	wait->bytes = 0;
	tenant->parking.want_bytes = 0;
}

uint64_t cgpu_parking_wanting(const struct cgpu_tenant *tenant)
{
	const struct cgpu_parking *parking = &tenant->parking;

	if (!parking->want_bytes || tenant->ledger.park_state != CGPU_PARK_RUNNING)
		return 0;
	return minus(parking->want_bytes, tenant->ledger.account[parking->want_card].room_bytes);
}
