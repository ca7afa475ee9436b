/* SPDX-License-Identifier: MIT */
/*
 * Whether the driver has given out more than is charged, and whether that is the sum of the
 * charges. While all containers' processes stand still (the freezer of cgroup v2) no call is under
 * way, and what is charged is what there is.
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
#include <time.h>
#include <unistd.h>

#define GROUP "/sys/fs/cgroup/fuzz"

enum {
	STEP_US = 5000,
	FREEZE_US = 20000000,
	RELEASE_S = 20,
	GET_PID_INFO = 0x2080018e,
	PIDS_MAX = 200,
};

/* NV2080_CTRL_GPU_GET_PID_INFO_PARAMS */
struct pid_info {
	u32 count, pad;
	struct { u32 pid, index, result, pad; u64 private, owned, others[4]; u32 ids[2]; } of[PIDS_MAX];
};

static long long free_bytes[CARDS];
static u32 times;
static long long most_bytes = LLONG_MIN;
static long long lost_most_bytes = LLONG_MIN;
static long long above_most_bytes = LLONG_MIN;

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

/*
 * As the host sees it, by a file that no child of ours inherits: what is free of the card, or, if
 * there is one, what the processes in `info` have of it. Return: -1: it cannot be told.
 */
static long long ask(int card, struct pid_info *info)
{
	struct sc_options options = { 0 };
	u64 bytes = 0, total;
	struct sc sc;
	bool told;
	u32 i;

	if (sc_open(&sc, card, &options))
		return -1;
	told = info ? !sc_rm_control(&sc, sc.subdevice, GET_PID_INFO, info, sizeof(*info)) :
		      !sc_mem_info(&sc, &bytes, &total);
	for (i = 0; info && i < info->count; i++)
		bytes += info->of[i].private + info->of[i].owned;
	sc_close(&sc);
	return told ? (long long)bytes : -1;
}

static long long free_of(int card)
{
	return ask(card, NULL);
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

	snprintf(path, sizeof(path), "%s/%d/memory", tree, card);
	return now < 0 ? LLONG_MAX : free_bytes[card] - now - number(path, "used ");
}

/* Return: the sum of the bytes in its lines. */
static long long charges_of(const char *procs)
{
	FILE *file = fopen(procs, "re");
	long long sum = 0, bytes;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%*d %*d %lld", &bytes) == 1)
			sum += bytes;
	if (file)
		fclose(file);
	return sum;
}

struct sums {
	int card;
	long long charged; /* of all containers */
	long long lost;    /* of one, at most: what its processes are charged above it */
};

static void add(const char *id, void *data)
{
	struct sums *sums = data;
	long long current, lost;
	char path[400];

	snprintf(path, sizeof(path), "%s/container/%s/%d/stat", tree, id, sums->card);
	current = number(path, "current_bytes ");
	if (current < 0)
		return; /* it has nothing of this card */
	sums->charged += current;
	snprintf(path, sizeof(path), "%s/container/%s/%d/procs", tree, id, sums->card);
	lost = charges_of(path) - current;
	sums->lost = lost > sums->lost ? lost : sums->lost;
}

/*
 * Return: by how much the charges of a container's processes come to more than the container is
 * charged, at most; it is charged for page tables, too, which are no process'. All containers
 * together are charged what is used of the card, else: LLONG_MAX.
 */
static long long lost_bytes(int card)
{
	struct sums sums = { .card = card, .lost = LLONG_MIN };
	char path[64];

	door_containers(add, &sums);
	snprintf(path, sizeof(path), "%s/%d/memory", tree, card);
	return sums.charged == number(path, "used ") ? sums.lost : LLONG_MAX;
}

bool weigh_failed(void)
{
	return most_bytes > 0 || above_most_bytes > 0 || lost_most_bytes > 0;
}

/* Files of who was killed a moment ago are yet to be released, and the agent to look. */
static bool may_be_late(time_t end_s)
{
	usleep(STEP_US);
	return !weigh_failed() && time(NULL) < end_s;
}

static ino_t pids_of(pid_t pid)
{
	struct stat namespace;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	return stat(path, &namespace) ? 0 : namespace.st_ino;
}

static void list_processes(pid_t first, struct pid_info *info)
{
	FILE *procs = fopen(GROUP "/cgroup.procs", "re");
	int pid;

	memset(info, 0, sizeof(*info));
	while (procs && info->count < PIDS_MAX && fscanf(procs, "%d", &pid) == 1)
		if (pids_of(pid) == pids_of(first))
			info->of[info->count++].pid = pid;
	if (procs)
		fclose(procs);
}

/* Return: what the driver says that its processes have, and it is not charged. */
static long long above_bytes(const char *id, pid_t first, int card)
{
	static struct pid_info info;
	long long held, current;
	char path[400];

	list_processes(first, &info);
	held = info.count ? ask(card, &info) : 0;
	snprintf(path, sizeof(path), "%s/container/%s/%d/stat", tree, id, card);
	current = number(path, "current_bytes ");
	return held < 0 ? LLONG_MAX : held - (current < 0 ? 0 : current);
}

void weigh_container(const char *id, pid_t first)
{
	time_t end_s = time(NULL) + RELEASE_S;
	long long above;
	int card;

	for (card = 0; card < CARDS; card++) {
		above = above_bytes(id, first, card);
		while (above > 0 && may_be_late(end_s))
			above = above_bytes(id, first, card);
		above_most_bytes = above > above_most_bytes ? above : above_most_bytes;
		if (above > 0)
			fprintf(stderr, "fuzz: %s has %lld bytes of card %d uncharged\n", id, above,
				card);
	}
}

void weigh(void)
{
	time_t end_s = time(NULL) + RELEASE_S;
	int card;

	for (card = 0; card < CARDS; card++) {
		long long bytes = uncharged_bytes(card), lost = lost_bytes(card);

		while (bytes > 0 && may_be_late(end_s))
			bytes = uncharged_bytes(card);
		while (lost > 0 && may_be_late(end_s))
			lost = lost_bytes(card);
		if (bytes > 0)
			fprintf(stderr, "fuzz: %lld bytes of card %d are charged to nobody\n",
				bytes, card);
		if (bytes > most_bytes)
			most_bytes = bytes;
		if (lost > lost_most_bytes)
			lost_most_bytes = lost;
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

long long weigh_above_bytes(void)
{
	return above_most_bytes;
}

long long weigh_lost_bytes(void)
{
	return lost_most_bytes;
}
