/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who has work. A GPU has no enqueue event, so this is a guess, by each channel's USERD and by
 * the log of context switches: awake, asleep, or unknown. It may be wrong; accounts do not
 * depend on it.
 *
 * Unknown: nothing was submitted for the entity's patience while its gate was open. It sleeps, or
 * is at work that it submitted before. Its gate stays open beside the others' until the log tells:
 * one that is loaded again after another was is at work; one that is not loaded again in a round of
 * the runlist sleeps.
 */
#ifndef CGPU_SIMULATE_RECENT_OBSERVE_H
#define CGPU_SIMULATE_RECENT_OBSERVE_H

#include "core/types.h"
#include "recent/constants.h"

enum cgpu_observe_state { CGPU_OBSERVE_UNKNOWN, CGPU_OBSERVE_AWAKE, CGPU_OBSERVE_ASLEEP };

/* What a door keeps beside each compute channel; zeroed when the channel comes. */
struct cgpu_observe_channel {
	uint32_t put;
	bool known, moves;
};

struct cgpu_observe_slot {
	uint32_t state;
	uint64_t since_ns;    /* it is in it since */
	uint64_t moved_ns;    /* its last look that found work, or its gate's opening */
	uint64_t silent_ns;   /* it works so long without a submission, as was seen */
	uint32_t shorts;      /* of 256 gaps between submissions that were worth waiting for */
	bool worked;          /* it was awake since it opened the card */
	bool empties;         /* its last look with an open gate found nothing */
	bool found;           /* at work, by the log; the next look tells without a submission */
	uint64_t slept_ns;    /* when it last was found asleep, or woke; 0: never */
	bool others_ran;      /* in its doubt, */
	bool unloaded;        /* or its gate was shut for a moment */
	uint64_t others_ns;   /* since then */
	uint64_t woke_ns;     /* from a sleep of some length; 0: never */
	uint32_t waits, moves; /* looks in a row that found something queued, and a submission */
	/* of the look under way */
	uint32_t at;
	bool moved, queued;
};

struct cgpu_observe {
	uint64_t looks;
	struct cgpu_observe_slot slot[64];
	uint32_t loads[64];   /* since the log was read last, by the log */
};

void cgpu_observe_reset(struct cgpu_observe *o, uint32_t slot, uint64_t now_ns);

/* Whether that channel is to be read in this look; asked once for each. */
bool cgpu_observe_wants(struct cgpu_observe *o, uint32_t slot,
			const struct cgpu_observe_channel *channel);
void cgpu_observe_sample(struct cgpu_observe *o, uint32_t slot,
			 struct cgpu_observe_channel *channel, uint32_t get, uint32_t put);

/*
 * The slot was looked at. @open: its gate is, since @open_ns. Return: its state changed.
 */
bool cgpu_observe_looked(struct cgpu_observe *o, uint32_t slot, bool open, uint64_t open_ns,
			 uint64_t now_ns);

/* Its gate opened: what others ran before says nothing of its doubt. */
void cgpu_observe_opened(struct cgpu_observe *o, uint32_t slot);
/* It has slept behind a shut gate for long: in case that was wrong, the log is asked again. */
bool cgpu_observe_doubt(struct cgpu_observe *o, uint32_t slot, uint64_t now_ns);
/* Nobody else runs: its gate was shut, which unloads its context, or is @open again. */
void cgpu_observe_unloaded(struct cgpu_observe *o, uint32_t slot, bool open, uint64_t now_ns);

/*
 * The log was read. @open: slots whose gates are open all the while, @round_ns: of the runlist
 * among those, @still_ns: since when no gate moved. Return: some state changed.
 */
bool cgpu_observe_logged(struct cgpu_observe *o, uint64_t open, uint64_t round_ns,
			 uint64_t still_ns, uint64_t now_ns);

/* It slept of late, or may sleep. */
bool cgpu_observe_pauses(const struct cgpu_observe *o, uint32_t slot, uint64_t now_ns);

#endif
