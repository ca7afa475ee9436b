/* SPDX-License-Identifier: MIT */
/*
 * Whether who is kept from a card has channels there that may run. Under `online` whoever is
 * below one that has work is kept from it: so one of our own stands above all others, and works
 * while they are looked at. They stand still (fuzz_weigh.c), and nobody makes, schedules or opens
 * anything meanwhile but the scheduler.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ABOVE "above"

enum {
	COMPUTES = 1,        /* NV2080_ENGINE_TYPE_GR0 */
	KERNEL_NS = 5000000,
	DEPTH = 8,           /* so many in the queue, lest it be seen empty */
	STEP_US = 2000,
	REST_US = 20000,
	LATE_US = 60000000,  /* under KASAN a call of the driver takes 20 times as long */
	HIGHEST = 15,        /* priority */
	POLICIES = 10,
};

enum order { REST, WORK, END };

/* In memory that it shares with us, and not on a pipe: tenants inherit those, and close them. */
static struct { atomic_int given, taken; } *order;
static struct entrance above;
static u32 looked;
static u32 open_most;

/* ---- the one above ---- */

static void fill(struct sc *sc)
{
	while (sc_queued(sc, 0) < DEPTH && sc_enqueue(sc, 0, KERNEL_NS))
		;
	sc_ring(sc, 0);
}

static int work_as_ordered(void *unused)
{
	struct sc_options options = { 0 };
	struct sc cards[CARDS];
	int card, given;

	(void)unused;
	for (card = 0; card < CARDS; card++)
		if (sc_open(&cards[card], card, &options) || sc_context(&cards[card]))
			return 1;
	for (;;) {
		given = order->given;
		if (given == END)
			return 0;
		for (card = 0; card < CARDS && given == WORK; card++)
			fill(&cards[card]);
		order->taken = given;
		usleep(given == WORK ? STEP_US : REST_US);
	}
}

static bool give(enum order given)
{
	u32 waited_us;

	order->given = given;
	for (waited_us = 0; waited_us < LATE_US; waited_us += STEP_US) {
		if (order->taken == (int)given)
			return true;
		usleep(STEP_US);
	}
	errno = ETIMEDOUT;
	return false;
}

bool gate_prepare(void)
{
	char grants[128];

	order = shared(sizeof(*order));
	/* it has not heard of anything yet */
	order->taken = END;
	above.work = work_as_ordered;
	snprintf(grants, sizeof(grants),
		 "gpu=0,mem=67108864,priority=%d gpu=1,mem=67108864,priority=%d", HIGHEST, HIGHEST);
	return door_begin(&above) && door_admit(&above, ABOVE, grants) && give(REST);
}

void gate_end(void)
{
	order->given = END;
	waitpid(above.pid, NULL, 0);
}

/* ---- those below ---- */

static bool set(int card, const char *id, const char *file, const char *text)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/container/%s/%d/%s", tree, id, card, file);
	return put(path, text);
}

static void lower(const char *id, void *data)
{
	set(*(int *)data, id, "priority", "0");
	set(*(int *)data, id, "quota_min", "0");
}

/*
 * Whatever the tree's rubbish has made of them, nobody has a part of the card as a floor, and one
 * has a higher priority than the others. Return: false: it can have no weight.
 */
static bool stand_below(int card)
{
	char priority[8];

	door_containers(lower, &card);
	snprintf(priority, sizeof(priority), "%d", HIGHEST);
	return set(card, ABOVE, "quota", "0") && set(card, ABOVE, "priority", priority) &&
	       set(card, ABOVE, "weight", "1");
}

/*
 * @cards: a bit set. @groups: how many there that compute have channels.
 * Return: their channels that may run, of all processes but the one above.
 */
static u32 open_channels(u32 cards, u32 *groups)
{
	FILE *file = fopen("/proc/driver/nvidia-sim", "re");
	u32 card = 0, channels, engine, scheduled, shut, open = 0;
	char line[256];
	int pid;

	*groups = 0;
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "card %u", &card) == 1)
			continue;
		if (sscanf(line,
			   " group %*u slice_us %*u busy_ns %*u channels %u interleave %*u engine %u scheduled %u shut %u pid %d",
			   &channels, &engine, &scheduled, &shut, &pid) != 5 ||
		    !(cards >> card & 1) || engine != COMPUTES || !scheduled || !channels ||
		    pid == above.pid)
			continue;
		++*groups;
		open += scheduled - shut;
	}
	if (file)
		fclose(file);
	return open;
}

bool gate_look(struct random *random)
{
	char path[CARDS][64], policy[16];
	u32 waited_us, groups, open, cards = 0;
	int card;

	if (!give(WORK))
		return false;
	for (card = 0; card < CARDS; card++) {
		snprintf(path[card], sizeof(path[card]), "%s/%d/policy", tree, card);
		if (!put(path[card], "online"))
			return false;
		cards |= stand_below(card) ? 1u << card : 0;
	}
	open = open_channels(cards, &groups);
	for (waited_us = 0; open && waited_us < LATE_US; waited_us += STEP_US) {
		usleep(STEP_US);
		open = open_channels(cards, &groups);
	}
	if (open > open_most)
		open_most = open;
	looked += groups;
	for (card = 0; card < CARDS; card++) {
		snprintf(policy, sizeof(policy), "%u", below(random, POLICIES));
		if (!put(path[card], policy))
			return false;
	}
	return give(REST);
}

u32 gate_looked(void)
{
	return looked;
}

u32 gate_open_most(void)
{
	return open_most;
}
