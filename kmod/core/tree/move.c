// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/tree/move.h"
#include "core/tree/text.h"

static uint32_t cards_of(const struct cgpu_grant *grants)
{
	uint32_t card, cards = 0;

	for (card = 0; card < CGPU_MAX_CARDS; card++)
		if (grants[card].present)
			cards |= 1u << card;
	return cards;
}

static uint32_t highest_priority(const struct cgpu_grant *grants)
{
	uint32_t card, highest = 0;

	for (card = 0; card < CGPU_MAX_CARDS; card++)
		if (grants[card].present && grants[card].priority > highest)
			highest = grants[card].priority;
	return highest;
}

void cgpu_rooms_begin(struct cgpu_room *rooms, const struct cgpu_host *host)
{
	uint32_t card;

	for (card = 0; card < CGPU_MAX_CARDS; card++) {
		const struct cgpu_gpu *gpu = &host->topology.gpu[card];

		rooms[card] = (struct cgpu_room){
			.card_bytes = gpu->total_bytes > gpu->reserved_bytes ?
				      gpu->total_bytes - gpu->reserved_bytes : 0,
			.foreign_bytes = host->card[card].foreign_bytes,
			.overcommitted = cgpu_card_is_overcommitted(&host->card[card]),
		};
	}
}

void cgpu_rooms_limit(const struct cgpu_room *rooms, struct cgpu_ledger *ledger)
{
	uint32_t card;

	for (card = 0; card < CGPU_MAX_CARDS; card++) {
		bool counts = rooms && (rooms[card].overcommitted || rooms[card].reserved_bytes);

		if (ledger->account[card].present)
			cgpu_ledger_limit_room(ledger, card, counts ? cgpu_room_left(&rooms[card]) :
							     UINT64_MAX);
	}
}

void cgpu_moving_begin(struct cgpu_moving *moving, const struct cgpu_move *move,
		       struct cgpu_host *host, struct cgpu_tenant *tenant,
		       const struct cgpu_grant *grants, uint64_t now_ns)
{
	uint32_t card;

	moving->move = move;
	moving->cards = cards_of(grants);
	moving->waited = tenant->parking.asked_ns != 0;
	moving->preceded = false;
	moving->took_ns = 0;
	if (move->step == CGPU_STEP_RETURN && tenant->ledger.park_state == CGPU_PARK_PARKED) {
		for (card = 0; card < CGPU_MAX_CARDS; card++)
			if (move->told & 1u << card)
				host->card[card].foreign_bytes = move->foreign_bytes[card];
		cgpu_parking_ask(tenant, highest_priority(grants), now_ns);
	}
	moving->own = tenant->parking;
	cgpu_rooms_begin(moving->rooms, host);
}

void cgpu_moving_beside(struct cgpu_moving *moving, const struct cgpu_tenant *tenant,
			const struct cgpu_grant *grants, bool ends)
{
	cgpu_room_add(moving->rooms, tenant);
	if (!ends && tenant->ledger.park_state == CGPU_PARK_PARKED &&
	    moving->cards & cards_of(grants) &&
	    cgpu_parking_precedes(&tenant->parking, &moving->own))
		moving->preceded = true;
}

static uint64_t parked_bytes(const struct cgpu_ledger *ledger)
{
	uint64_t bytes = 0;
	uint32_t card;

	for (card = 0; card < CGPU_MAX_CARDS; card++)
		bytes += ledger->account[card].parked_bytes;
	return bytes;
}

static int tell_no_room(struct cgpu_tenant *tenant)
{
	if (!tenant->parking.want_bytes)
		return -EBUSY;
	tenant->parking.want_bytes = 0;
	tenant->parking.no_room++;
	return 0;
}

static int come_back(const struct cgpu_moving *moving, struct cgpu_tenant *tenant,
		     uint64_t now_ns)
{
	if (tenant->ledger.park_state != CGPU_PARK_PARKED)
		return -EBUSY;
	if (moving->preceded) {
		tenant->parking.short_card = CGPU_NO_CARD;
		return -EAGAIN;
	}
	return cgpu_parking_reserve(tenant, moving->rooms, now_ns);
}

/* The event's word for a step; NULL: it is not reported. */
static const char *told(uint32_t step, uint32_t was, int err)
{
	if (err)
		return err == -EAGAIN ? "waits" : NULL;
	if (step == CGPU_STEP_PARKED)
		return "parked";
	if (step != CGPU_STEP_RUNNING)
		return NULL;
	return was == CGPU_PARK_RESUMING ? "resumed" :
	       was == CGPU_PARK_PARKING ? "not_parked" : "park_ended";
}

int cgpu_moving_end(struct cgpu_moving *moving, struct cgpu_tenant *tenant, const char *id,
		    uint64_t now_ns, char line[CGPU_MOVE_LINE])
{
	struct cgpu_text text = { .buf = line, .size = CGPU_MOVE_LINE - 1 };
	const struct cgpu_move *move = moving->move;
	const uint32_t was = tenant->ledger.park_state;
	const char *what;
	int err;

	line[0] = 0;
	switch (move->step) {
	case CGPU_STEP_PARK:
		err = cgpu_parking_begin(tenant, move->pid, move->count, move->hold, now_ns);
		break;
	case CGPU_STEP_PARKED:
		err = cgpu_parking_parked(tenant, now_ns);
		break;
	case CGPU_STEP_RETURN:
		err = come_back(moving, tenant, now_ns);
		break;
	case CGPU_STEP_NO_ROOM:
		err = tell_no_room(tenant);
		break;
	case CGPU_STEP_STAY:
		err = cgpu_parking_stay(tenant);
		break;
	default:
		err = cgpu_parking_end(tenant, now_ns);
		break;
	}
	moving->took_ns = tenant->parking.moved_ns - moving->own.moved_ns;
	what = told(move->step, was, err);
	if (!what || (err && moving->waited))
		return err;
	cgpu_put_string(&text, what);
	cgpu_put_string(&text, " id=");
	cgpu_put_string(&text, id);
	if (err || move->step == CGPU_STEP_PARKED)
		cgpu_put_value(&text, " bytes=", parked_bytes(&tenant->ledger));
	else if (was == CGPU_PARK_RESUMING)
		cgpu_put_value(&text, " waited_ms=", (now_ns - moving->own.asked_ns) / 1000000);
	line[text.used] = 0;
	return err;
}

bool cgpu_away_note(struct cgpu_away *away, const char *id, const struct cgpu_tenant *tenant)
{
	size_t index;

	if (tenant->ledger.park_state == CGPU_PARK_RUNNING && !cgpu_parking_wanting(tenant))
		return false;
	for (index = 0; index < CGPU_ID_MAX && id[index]; index++)
		away->id[index] = id[index];
	away->id[index] = 0;
	away->state = tenant->ledger.park_state;
	away->wanting_bytes = cgpu_parking_wanting(tenant);
	away->parked_bytes = parked_bytes(&tenant->ledger);
	away->parking = tenant->parking;
	return true;
}
