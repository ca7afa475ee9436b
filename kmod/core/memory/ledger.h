/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The memory that a container has taken of each card, and the memory that it may take. */
#ifndef CGPU_CORE_MEMORY_LEDGER_H
#define CGPU_CORE_MEMORY_LEDGER_H

#include "core/types.h"
#include "core/memory/table.h"

enum cgpu_ledger_limit {
	CGPU_MAX_CARDS = 32, /* /dev/nvidia0 … nvidia31 */
	/* in a card's place: the account of the host's memory, and those of each card's BAR1 */
	CGPU_HOST = CGPU_MAX_CARDS,
	CGPU_BAR1,
	CGPU_ACCOUNTS = CGPU_BAR1 + CGPU_MAX_CARDS,
	CGPU_NO_CARD = 0xff
};

/* Objects that take memory which no ioctl shows. They are counted for it. */
enum cgpu_unseen {
	CGPU_UNSEEN_GROUP,
	CGPU_UNSEEN_CHANNEL,
	CGPU_UNSEEN_VASPACE,
	CGPU_UNSEEN_KINDS
};

/* A container on one card. Bytes; current includes allocations in flight. */
struct cgpu_account {
	bool present;      /* the container was given this card */
	bool unlimited;    /* mem=max */
	bool uvm_disable;  /* managed memory is refused */
	bool oom_kill;     /* a process that asks for too much is killed */
	bool slices_owned; /* the scheduler programs timeslices and gates */
	bool admit_unknown; /* calls that no list names go to the driver, and are reported */
	bool gate_shut;    /* the scheduler has the container's channels off the card */
	uint64_t max_bytes;
	uint64_t current_bytes;
	uint64_t tables_bytes; /* of it, page tables that are not free: page_tables.h */
	uint64_t tables_promised_bytes; /* of mappings that the driver is making, free or not */
	uint64_t peak_bytes;
	uint64_t parked_bytes; /* off the card, and still the container's: parking.h */
	uint64_t slack_bytes;  /* more than that, which its processes may take as they come back */
	uint64_t leaving_bytes; /* of current, what is parked when it is freed */
	uint64_t room_bytes;   /* room of the card, less what is reserved for returns of others */
	uint64_t oom;      /* allocations answered with NV_ERR_NO_MEMORY */
	uint64_t refused;  /* other requests that were refused */
};

/*
 * One piece of physical video memory. It is charged to its creator once and stays charged until the
 * last of: RM object, duplicate, UVM mapping, exported fd, dma-buf. Objects that are counted, such
 * as groups, channels and address spaces, stay counted as long, even if they are charged nothing.
 */
struct cgpu_charge {
	uint32_t refs; /* chains free entries while unused */
	uint32_t card;
	uint32_t pid;  /* process that created it, host's number */
	uint32_t next; /* a mapping's: of those of the same object, 0: none */
	uint32_t kinds; /* it is counted as these: bit set of enum cgpu_unseen */
	uint64_t bytes;
	uint64_t base; /* a mapping's: its address, by which it is unmapped */
};

/* A limit that was in the way of a charge. */
struct cgpu_shortage {
	uint64_t bytes; /* asked for */
	uint32_t card;  /* or another account; CGPU_NO_CARD: none was */
	bool kill;      /* and that ends the process */
	bool room;      /* not a limit: the card has no room now, and a container may be parked */
};

/* Where a container's memory is. */
enum cgpu_park_state {
	CGPU_PARK_RUNNING,  /* on its cards */
	CGPU_PARK_PARKING,  /* on its way to the host, and its room is kept */
	CGPU_PARK_PARKED,   /* on the host */
	CGPU_PARK_RESUMING  /* on its way back, to room that is reserved */
};

struct cgpu_ledger {
	uint32_t park_state; /* enum cgpu_park_state */
	bool returns;        /* the call under judgement is made by a process that is parked */
	/*
	 * By card; the host's memory that the driver takes by itself, where no memory cgroup
	 * counts it, which no grant limits, but what cgpu_ledger_limit_host() was told last; and
	 * of each card's BAR1 what it maps, within what cgpu_ledger_limit_bar1() was told last.
	 */
	struct cgpu_account account[CGPU_ACCOUNTS];
	struct cgpu_shortage shortage; /* since the call, or the mmap, under judgement began */
	struct cgpu_table charges;
	uint32_t unseen[CGPU_UNSEEN_KINDS][CGPU_MAX_CARDS]; /* those that the driver makes, too */
};

void cgpu_ledger_init(struct cgpu_ledger *ledger);
/* Before a call, or an mmap, is judged. */
void cgpu_ledger_clear_shortage(struct cgpu_ledger *ledger);

/* The call that hit this shortage is judged again: it counts once. */
void cgpu_ledger_judge_again(struct cgpu_ledger *ledger, const struct cgpu_shortage *shortage);

/*
 * Sets the limit of the host's account, 0: none. A door sets it before a file is opened and before
 * a call of cgpu_call_takes_host().
 */
void cgpu_ledger_limit_host(struct cgpu_ledger *ledger, uint64_t max_bytes);

/* Sets how much of that card's BAR1 may be mapped, in bytes. */
void cgpu_ledger_limit_bar1(struct cgpu_ledger *ledger, uint32_t card, uint64_t max_bytes);

/* Sets how much room the card has; UINT64_MAX: only the limit counts. */
void cgpu_ledger_limit_room(struct cgpu_ledger *ledger, uint32_t card, uint64_t max_bytes);

/* The memory that it has, on the card and parked. */
uint64_t cgpu_account_held(const struct cgpu_account *account);

/*
 * Charges `bytes` to `card`, or another account. Return: 0, -ENOSPC above the limit (nothing
 * changed, oom counted, `shortage` says so), -ENODEV: not a card of this container.
 */
int cgpu_account_charge(struct cgpu_ledger *ledger, uint32_t card, uint64_t bytes);
void cgpu_account_uncharge(struct cgpu_ledger *ledger, uint32_t card, uint64_t bytes);

/* A new charge with one reference. Return: its index, or as above, -ENOMEM: full. */
int cgpu_charge_new(struct cgpu_ledger *ledger, uint32_t card, uint64_t bytes,
		    uint32_t pid, uint32_t *index);
/* false also of no charge */
bool cgpu_charge_is_of_host(const struct cgpu_ledger *ledger, uint32_t index);
/* Counts what it is charged for, until its last reference goes. */
void cgpu_charge_count(struct cgpu_ledger *ledger, uint32_t index, uint32_t kinds);
/* Sets what the driver really took. Return: 0, -ENOSPC (unchanged). */
int cgpu_charge_settle(struct cgpu_ledger *ledger, uint32_t index, uint64_t bytes);
struct cgpu_charge *cgpu_charge_at(const struct cgpu_ledger *ledger, uint32_t index);
void cgpu_charge_get(struct cgpu_ledger *ledger, uint32_t index);
void cgpu_charge_put(struct cgpu_ledger *ledger, uint32_t index);

/* The memory that the container may still take of a card it has, in bytes. */
uint64_t cgpu_account_free(const struct cgpu_account *account, uint64_t card_free_bytes);

#endif
