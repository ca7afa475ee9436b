// SPDX-License-Identifier: GPL-2.0-only
/*
 * parkable MIB...: a CUDA program with a context and an allocation of each size, which can be
 * checkpointed. It prints `ready` and answers each line by one:
 *
 *   work      what was written to each allocation is there; another content is written: `worked`
 *   more MIB  one more allocation: `has`, or `none`: the driver refuses
 *   less      the last one is freed: `freed`
 *   fail      its next checkpoint fails: `fails`
 *   halt      it stops itself amid its next return, as by SIGSTOP from beside: `halts`
 *   halt out  likewise amid its next checkpoint
 */
#define _GNU_SOURCE
#include "ring.h"
#include "simcuda.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECES		64
#define SEEN_BYTES	4096u	/* of each allocation: all of it would be written to memory */
#define NOT_SUPPORTED	801
#define OUT_OF_MEMORY	2

int cuInit(unsigned int flags);
int cuEnter(void);
int cuLeave(void);
void cuMoves(int (*leaves)(void), int (*returns)(void));

struct piece {
	struct sc_mem memory;
	u32 *seen;		/* through the processor's window to the card */
	u32 kept[SEEN_BYTES / sizeof(u32)];
	u64 size;
};

static struct sc sc;
static struct piece pieces[PIECES];
static unsigned int count, turn;
static bool fails, halts_back, halts_out;

static void halt(bool *wanted)
{
	if (*wanted)
		raise(SIGSTOP);
	*wanted = false;
}

static int take(struct piece *piece)
{
	struct sc_mem window;
	int ret = sc_malloc(&sc, piece->size, &piece->memory);

	if (ret)
		return ret;
	window = piece->memory;
	window.size = SEEN_BYTES;
	piece->seen = sc_mem_mmap(&sc, &window);
	if (!piece->seen)
		return -1;
	memcpy(piece->seen, piece->kept, SEEN_BYTES);
	return 0;
}

static int give(struct piece *piece)
{
	memcpy(piece->kept, piece->seen, SEEN_BYTES);
	munmap(piece->seen, SEEN_BYTES);
	return sc_free(&sc, &piece->memory);
}

static int program_leaves(void)
{
	unsigned int i;

	if (fails)
		return NOT_SUPPORTED;
	for (i = 0; i < count; i++) {
		if (give(&pieces[i]))
			return NOT_SUPPORTED;
		halt(&halts_out);
	}
	/* a mapping keeps its file open */
	munmap((void *)sc.rings, (size_t)SC_CHANNELS * RING_BYTES);
	sc_leave_card(&sc);
	sc_close(&sc);
	return 0;
}

/* In another order than they were made, so that no handle is the same. */
static int program_returns(void)
{
	unsigned int i = count;
	int ret = sc_open(&sc, 0, NULL) ?: sc_context(&sc);

	while (!ret && i) {
		ret = take(&pieces[--i]);
		halt(&halts_back);
	}
	if (!ret)
		return 0;
	fprintf(stderr, "parkable: not back: status %d at piece %u of %u\n", ret, i, count);
	sc_close(&sc);
	return OUT_OF_MEMORY;
}

static void fill(struct piece *piece)
{
	unsigned int at;

	for (at = 0; at < SEEN_BYTES / sizeof(u32); at++)
		piece->seen[at] = (turn * PIECES + (u32)(piece - pieces)) * 2654435761u + at;
}

static bool is_whole(const struct piece *piece)
{
	unsigned int at;

	for (at = 0; at < SEEN_BYTES / sizeof(u32); at++)
		if (piece->seen[at] !=
		    (turn * PIECES + (u32)(piece - pieces)) * 2654435761u + at)
			return false;
	return true;
}

static const char *work(void)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (!is_whole(&pieces[i]))
			return "another content";
	turn++;
	for (i = 0; i < count; i++)
		fill(&pieces[i]);
	return "worked";
}

static const char *more(u64 mib)
{
	struct piece *piece = &pieces[count];

	if (count == PIECES)
		return "none";
	piece->size = mib << 20;
	if (take(piece))
		return "none";
	fill(piece);
	count++;
	return "has";
}

static const char *less(void)
{
	return count && !give(&pieces[--count]) ? "freed" : "nothing to free";
}

static const char *obey(const char *line)
{
	if (!strncmp(line, "more ", 5))
		return more(strtoull(line + 5, NULL, 10));
	if (!strncmp(line, "less", 4))
		return less();
	if (!strncmp(line, "halt", 4)) {
		halts_out = !strncmp(line, "halt out", 8);
		halts_back = !halts_out;
		return "halts";
	}
	fails = !strncmp(line, "fail", 4);
	return fails ? "fails" : work();
}

int main(int argc, char **argv)
{
	const char *answer;
	char line[64];
	int i;

	cuMoves(program_leaves, program_returns);
	if (cuInit(0) || cuEnter() || sc_open(&sc, 0, NULL) || sc_context(&sc))
		return 2;
	for (i = 1; i < argc; i++)
		if (strcmp(more(strtoull(argv[i], NULL, 10)), "has"))
			return 2;
	if (cuLeave())
		return 3;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (cuEnter())
			return 3;
		answer = obey(line);
		if (cuLeave())
			return 3;
		puts(answer);
		fflush(stdout);
	}
	return 0;
}
