/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What one agent leaves to the next: a memory file that the watchdog keeps while there is
 * none. arena.c maps it, journal.c makes changes of it whole or none, watchdog.c keeps it,
 * takeover.c adopts it. kmod/linux/state.h is its counterpart.
 *
 * It lies at the same address in every agent, so that pointers within it hold. What else it
 * has are numbers of descriptors, which the next agent has by the same numbers.
 */
#ifndef CGPU_AGENT_STATE_H
#define CGPU_AGENT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Raised with every change of what lies in it or of what that means. The digest over sizes and
 * places catches who forgets it.
 */
#ifndef CGPU_AGENT_STATE_VERSION /* a test builds one that does not fit */
#define CGPU_AGENT_STATE_VERSION 6
#endif

/* Of user space on x86-64 and arm64 with 48 bits; neither programs nor mmap() get there. */
#define STATE_AT 0x200000000000ULL

enum {
	/* No descriptor of the state has a smaller number: those are what programs start with. */
	STATE_FD_FIRST = 64
};

struct state {
	char magic[8];
	uint32_t version;
	uint32_t watchdog;       /* number of the one that is in charge; counts */
	uint64_t digest;
	int memory;              /* descriptors: this file, */
	int socket;              /* and where the watchdog is asked */
	uint64_t segments_end;
};

static inline struct state *state_head(void)
{
	return (struct state *)STATE_AT;
}

/* FNV-1a, a word at a time. */
static inline uint64_t state_fold(uint64_t digest, uint64_t word)
{
	return (digest ^ word) * 0x100000001b3ull;
}

/* arena.c */
/*
 * Variables of the program that are part of the state: what stands in them is kept, or, from an
 * agent before, replaced. Each is a whole number of pages.
 */
struct state_segment {
	void *at;
	size_t bytes;
};

/*
 * Takes over a descriptor and gives it a number that no program begins with: what a program had
 * open at its start it may close, and the kernel gives the smallest number that is free. Passes
 * what is below 0 on. Return: -1 and errno: there is none.
 */
int state_descriptor(int fd);
/* A new one. Return: 0, -errno. */
int arena_create(void);
/* That of an agent before; `memory` is the caller's. Return: 0, -errno: nothing is mapped. */
int arena_map(int memory);
/* Puts the variables into its place. Return: 0, -errno. */
int arena_place(const struct state_segment *segments, uint32_t count, bool adopt);
/* Zeroed, whole pages. Return: NULL. */
void *arena_alloc(size_t bytes);
void arena_free(void *at);
/* After an agent ended amid anything: what is not kept is free. */
void arena_keep(const void *at);
void arena_sweep(void);

/* journal.c */
struct container;
struct flight;
void journal_place(void *at, size_t bytes);
/*
 * A change of a container's books (NULL: of nobody's) by this thread, which is done as a whole
 * or, if the agent ends before change_end(), not at all. `f` not NULL: its call's part, too. No
 * memory of the arena is freed meanwhile. Context: door.lock, not released before its end.
 */
void change_begin(struct container *c, struct flight *f);
/* One that moves tables to other memory, and leaves what they were in as it was. */
void change_begin_growth(struct container *c);
/* The same change is one of these books, too. */
void change_with(struct container *c);
/* Of more than that: as it is before the change. */
void change_keep(void *at, size_t bytes);
void change_end(void);
/* Makes what was not ended undone. Return: there was something. */
bool journal_undo(void);

#endif
