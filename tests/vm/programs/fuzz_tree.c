/* SPDX-License-Identifier: MIT */
/* What is written to, and read from, the tree meanwhile: mostly rubbish, sometimes valid. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HELD = 8, TEXT = 5000 };

static int held[HELD] = { -1, -1, -1, -1, -1, -1, -1, -1 };

/* Goes down from the root to some file. Return: false: ended at a directory without any. */
static bool some_file(struct random *random, char *path, size_t size)
{
	snprintf(path, size, "%s", tree);
	for (;;) {
		struct dirent *entry, chosen;
		DIR *directory = opendir(path);
		u32 seen = 0;

		if (!directory)
			return errno == ENOTDIR;
		while ((entry = readdir(directory)))
			if (entry->d_name[0] != '.' && !below(random, ++seen))
				chosen = *entry;
		closedir(directory);
		if (!seen)
			return false;
		strncat(path, "/", size - strlen(path) - 1);
		strncat(path, chosen.d_name, size - strlen(path) - 1);
	}
}

static u32 rubbish(struct random *random, char *text)
{
	u32 length = below(random, below(random, 20) ? 80 : TEXT), i;

	for (i = 0; i < length; i++)
		text[i] = random_u64(random);
	return length;
}

static u32 value(struct random *random, char *text)
{
	static const char *const words[] = {
		"0", "1", "2", "3", "4", "5", "100", "-1", "max", "min", "default", "none", "",
		"18446744073709551615", "18446744073709551616", "0x10", "67108864", "1073741824",
		"kill", "fail", "1 2", " 7", "7 ", "08", "1000000", "\n", "y", "n", "64",
	};

	return sprintf(text, "%s%s", words[below(random, sizeof(words) / sizeof(*words))],
		       below(random, 4) ? "\n" : "");
}

static u32 command(struct random *random, char *text)
{
	static const char *const clauses[] = {
		"gpu=0,mem=67108864", "gpu=1,mem=max", "gpu=0,mem=max", "gpu=9,mem=1", "gpu=0",
		"pid=1", "pid=0", "pid=99999999", "cgroup=/", "cgroup=/nowhere", "gpu=0,mem=0",
		"gpu=1,mem=4096,weight=1,quota=10", "gpu=1,mem=1048576,priority=9", "=", "pid=",
		"gpu=0,mem=268435456,weight=2,quota=50,quota_min=10", "mem=1", "gpu=,mem=",
	};
	u32 count = below(random, 5), length;

	if (!below(random, 4)) /* somebody's, before or after he is who he shall be */
		return sprintf(text, "create fuzz-%u pid=%u gpu=%u,mem=%u", below(random, 2000),
			       below(random, 4000), below(random, 2), below(random, 1 << 30));
	/* now and then it hits one that is at work */
	length = sprintf(text, "%s fuzz-%u", below(random, 3) ? "create" : "destroy",
			 below(random, 2000));
	while (count--)
		length += sprintf(text + length, " %s",
				  clauses[below(random, sizeof(clauses) / sizeof(*clauses))]);
	return length;
}

static void write_some(struct random *random, const char *path)
{
	static char text[TEXT + 1];
	u32 kind = below(random, 8), length;
	ssize_t ret;
	int fd = open(path, O_WRONLY | O_NONBLOCK);

	if (fd < 0)
		return;
	if (strstr(path, "inst_ctl") && kind)
		length = command(random, text);
	else if (kind > 1)
		length = value(random, text);
	else
		length = rubbish(random, text);
	ret = kind == 7 ? write(fd, (void *)(random_u64(random) >> 17), 100) :
			  write(fd, text, length);
	atomic_fetch_add(ret > 0 ? &totals->written : &totals->refused, 1);
	close(fd);
}

static void read_some(struct random *random, const char *path)
{
	static char text[TEXT];
	u32 slot = below(random, HELD);
	struct pollfd ready = { .events = POLLIN };
	void *at;

	if (held[slot] >= 0)
		close(held[slot]);
	held[slot] = open(path, O_RDONLY | O_NONBLOCK);
	/* another one, whose directory may be gone by now */
	slot = below(random, HELD);
	if (held[slot] < 0)
		return;
	ready.fd = held[slot];
	poll(&ready, 1, 0);
	if (pread(held[slot], text, below(random, TEXT), below(random, 3) * below(random, 300)) < 0 ||
	    read(held[slot], text, below(random, TEXT)) < 0)
		atomic_fetch_add(&totals->refused, 1);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, held[slot], 0);
	if (at != MAP_FAILED)
		munmap(at, 4096);
}

void fuzz_tree(u64 seed)
{
	struct random random = seeded(seed);
	char path[512];

	for (;;) {
		if (!some_file(&random, path, sizeof(path)))
			continue;
		/* an upgrade that somebody has begun is left to him */
		if (below(&random, 2) || strstr(path, "upgrade"))
			read_some(&random, path);
		else
			write_some(&random, path);
		usleep(below(&random, 500));
	}
}
