/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state that one agent leaves to the next: a memory file that the watchdog keeps while there is
 * no agent. arena.c maps it, journal.c makes changes of it whole or none, watchdog.c keeps it,
 * takeover.c adopts it. kmod/linux/state.h is its counterpart.
 *
 * It lies at the same address in every agent, so that pointers within it hold. It also names
 * descriptors by number, and the next agent has them by the same numbers.
 */
#ifndef CGPU_AGENT_STATE_H
#define CGPU_AGENT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Raise this with every change of the state's layout or meaning. The digest over sizes and offsets
 * catches a forgotten raise.
 */
#ifndef CGPU_AGENT_STATE_VERSION /* a test builds one that does not fit */
#define CGPU_AGENT_STATE_VERSION 6
#endif

/* In user space on x86-64 and arm64 with 48 bits; neither programs nor mmap() get there. */
#define STATE_AT 0x200000000000ULL

enum {
	/* No descriptor of the state has a smaller number: programs start with those. */
	STATE_FD_FIRST = 64
};

struct state {
	char magic[8];
	uint32_t version;
	uint32_t watchdog;       /* number of the watchdog in charge; counts */
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
 * Variables of the program that are part of the state. Their content is kept, or replaced by that
 * of an agent before. Each is a whole number of pages.
 */
struct state_segment {
	void *at;
	size_t bytes;
};

/*
 * Takes over a descriptor and gives it a number that no program begins with. A program may close
 * descriptors that it began with, and the kernel gives the smallest free number. Passes a negative
 * `fd` on. Return: -1 and errno: there is none.
 */
int state_descriptor(int fd);
/* Makes a new state. Return: 0, -errno. */
int arena_create(void);
/*
 * Maps the state of an agent before; the caller owns `memory`. Return: 0, -errno: nothing is
 * mapped.
 */
int arena_map(int memory);
/* Puts the variables into the state. Return: 0, -errno. */
int arena_place(const struct state_segment *segments, uint32_t count, bool adopt);
/* Zeroed, whole pages. Return: NULL: there are none. */
void *arena_alloc(size_t bytes);
void arena_free(void *at);
/* After an agent ended amid a change: arena_sweep() frees what arena_keep() did not keep. */
void arena_keep(const void *at);
void arena_sweep(void);

/* journal.c */
struct container;
struct flight;
void journal_place(void *at, size_t bytes);
/*
 * Begins a change of a container's books (NULL: of no container's) by this thread. It is done as a
 * whole or, if the agent ends before change_end(), not at all. `f` not NULL: the change includes
 * its call. The arena frees no memory meanwhile. Context: door.lock, not released before its end.
 */
void change_begin(struct container *c, struct flight *f);
/* Begins a change that moves tables to other memory, and leaves the old memory as it was. */
void change_begin_growth(struct container *c);
/* Extends the change to these books. */
void change_with(struct container *c);
/* Extends the change to this memory, which is as it was before the change. */
void change_keep(void *at, size_t bytes);
void change_end(void);
/* Undoes a change that did not end. Return: there was one. */
bool journal_undo(void);

#endif
