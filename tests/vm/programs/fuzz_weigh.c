/* SPDX-License-Identifier: MIT */
/*
 * Whether the driver has given out more than is charged. While all containers' processes stand
 * still (the freezer of cgroup v2) no call is under way, and what is charged is what there is.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP "/sys/fs/cgroup/fuzz"

enum { CARDS = 2, STEP_US = 5000, FREEZE_US = 20000000, RELEASE_US = 20000000 };

static long long free_bytes[CARDS];
static u32 times;
static long long most_bytes = LLONG_MIN;

bool put(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

bool get(const char *file, char *text, size_t bytes)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, bytes - 1);

	if (fd >= 0)
		close(fd);
	if (got < 0)
		return false;
	text[got] = 0;
	return true;
}

/* Return: what follows `key` in `file`; -1: nothing does. */
static long long number(const char *file, const char *key)
{
	char text[1024], *at;

	if (!get(file, text, sizeof(text)))
		return -1;
	at = strstr(text, key);
	return at ? strtoll(at + strlen(key), NULL, 10) : -1;
}

/* As the host sees it, by a file that no child of ours inherits. Return: -1: it cannot be told. */
static long long free_of(int card)
{
	struct sc_options options = { 0 };
	struct sc sc;
	u64 bytes, total;
	bool told;

	if (sc_open(&sc, card, &options))
		return -1;
	told = !sc_mem_info(&sc, &bytes, &total);
	sc_close(&sc);
	return told ? (long long)bytes : -1;
}

bool weigh_prepare(void)
{
	int card;

	if (mkdir(GROUP, 0755) && errno != EEXIST)
		return false;
	for (card = 0; card < CARDS; card++) {
		free_bytes[card] = free_of(card);
		if (free_bytes[card] < 0)
			return false;
	}
	return true;
}

bool weigh_add(pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	return put(GROUP "/cgroup.procs", text);
}

bool weigh_freeze(void)
{
	u32 waited_us;

	if (!put(GROUP "/cgroup.freeze", "1"))
		return false;
	for (waited_us = 0; waited_us < FREEZE_US; waited_us += STEP_US) {
		if (number(GROUP "/cgroup.events", "frozen ") == 1)
			return true;
		usleep(STEP_US);
	}
	return false;
}

void weigh_thaw(void)
{
	put(GROUP "/cgroup.freeze", "0");
}

/* Return: what the driver has given out of it and nobody is charged for. */
static long long uncharged_bytes(int card)
{
	long long now = free_of(card);
	char path[64];

	snprintf(path, sizeof(path), "/proc/cgpu_km/%d/memory", card);
	return now < 0 ? LLONG_MAX : free_bytes[card] - now - number(path, "used ");
}

void weigh(void)
{
	u32 waited_us;
	int card;

	for (card = 0; card < CARDS; card++) {
		long long bytes = uncharged_bytes(card);

		/* files of who was killed a moment ago are yet to be released */
		for (waited_us = 0; bytes > 0 && waited_us < RELEASE_US; waited_us += STEP_US) {
			usleep(STEP_US);
			bytes = uncharged_bytes(card);
		}
		if (bytes > most_bytes)
			most_bytes = bytes;
	}
	times++;
}

u32 weigh_times(void)
{
	return times;
}

long long weigh_most_bytes(void)
{
	return most_bytes;
}
