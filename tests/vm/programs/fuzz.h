/* SPDX-License-Identifier: MIT */
/* fuzz: what its tenants share, and what each side offers. See fuzz.c. */
#ifndef FUZZ_H
#define FUZZ_H

#include "simcuda.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum { POOL_CLIENTS = 8, POOL_HANDLES = 128 };

/* Of everybody, in memory that all processes share. */
struct totals {
	atomic_ulong calls;     /* ioctls thrown */
	atomic_ulong granted;   /* of them, those that the driver answered with 0 */
	atomic_ulong maps;      /* mmap() that succeeded */
	atomic_ulong written;   /* writes to the tree that were taken */
	atomic_ulong refused;   /* and those that were not */
};

/* Of one container: handles that any of its processes may name, its own or not. */
struct pool {
	atomic_uint client[POOL_CLIENTS];
	atomic_uint handle[POOL_HANDLES];
};

enum { TAPE_WORDS = 256 };

/* Numbers that were drawn, to be drawn again. */
struct tape {
	u32 at, length;
	u64 word[TAPE_WORDS];
};

struct random {
	u64 state;
	struct tape *tape; /* NULL: nobody keeps them */
};

static inline u64 random_u64(struct random *random)
{
	struct tape *tape = random->tape;

	if (tape && tape->at < tape->length)
		return tape->word[tape->at++];
	random->state ^= random->state << 13;
	random->state ^= random->state >> 7;
	random->state ^= random->state << 17;
	if (tape && tape->at < TAPE_WORDS) {
		tape->word[tape->at++] = random->state;
		tape->length = tape->at;
	}
	return random->state;
}

static inline u32 below(struct random *random, u32 limit)
{
	return (u32)(random_u64(random) >> 32) % limit;
}

static inline struct random seeded(u64 seed)
{
	struct random random = { .state = seed * 0x9e3779b97f4a7c15 + 0x2545f4914f6cdd1d };

	random_u64(&random);
	return random;
}

extern struct totals *totals;

enum { CARDS = 2 };

/* fuzz.c: zeroed memory that all processes share. */
void *shared(size_t bytes);

/* fuzz_door.c: where the door's files are. */
extern const char *tree;
/* @filter_file: of the agent's seccomp program; NULL: the door is the module's. */
bool door_choose(const char *filter_file);
/*
 * Some calls go on, when they have been looked at, by a descriptor and in memory that others can
 * change: what comes of that is not held to its limits (docs/agent.md, "What it cannot do").
 */
bool door_lets_calls_go_on(void);
/* Emulated, the agent takes so many times as long for a call as the module. */
u32 door_slowness(void);
/* All that are there. */
void door_containers(void (*look)(const char *id, void *data), void *data);
/* Return: 0, or what errno says of it. */
int door_command(const char *text);

/* Of a container: its first process, and the way to it until it may work. */
struct entrance {
	int (*work)(void *data);
	void *data;
	pid_t pid;
	int ends[2];
};

/* Return: false: errno says why. */
bool door_begin(struct entrance *entrance);
/* Lets it work, in a container or not. Return: true: in one of that name. */
bool door_admit(struct entrance *entrance, const char *id, const char *grants);

/* fuzz_calls.c: threads of one process of a container */
enum { THREADS = 3 };
/*
 * fuzz_calls.c: one process of a container; it ends by itself or is killed.
 * @thread: of its threads the first, among all containers'
 */
void fuzz_tenant(u64 seed, struct pool *pool, u32 thread) __attribute__((noreturn));

/* fuzz_tree.c: writes to and reads from the tree until it is killed. */
void fuzz_tree(u64 seed) __attribute__((noreturn));

/*
 * fuzz_coverage.c: for @count threads, by those who may open KCOV; without KCOV nothing is seen
 * or guided. @unguided: what calls reach is seen and not used. Return: false: it cannot be.
 */
bool coverage_prepare(u32 count, bool unguided);
/* What the calling thread does is seen as that of the one of @index from now on. */
void coverage_thread(u32 index);
/* Around some calls: @random draws again what was worth it, or is kept if it is. */
void coverage_begin(struct random *random);
void coverage_end(struct random *random);
/* Different steps from one place of our code to the next, and the calls kept for them. */
u64 coverage_edges(void);
u32 coverage_kept(void);

/* fuzz_weigh.c: a file's text, of which @bytes - 1 are read. Return: false: errno says why. */
bool put(const char *file, const char *text);
bool get(const char *file, char *text, size_t bytes);

/* fuzz_weigh.c: with nobody at work yet. Return: false: it cannot be, errno says why. */
bool weigh_prepare(void);
/* It stands still while containers are weighed, and all that it starts from now on. */
bool weigh_add(pid_t pid);
/* Return: true: all of them stand still, until weigh_thaw(). */
bool weigh_freeze(void);
void weigh_thaw(void);
/* While all stand still: all who have memory of the driver's are in a container. */
void weigh(void);
u32 weigh_times(void);
/* Something of that was more than it may be: it would be so in each that follows. */
bool weigh_failed(void);
/* The most that was given out and not charged; below 0: more was charged each time. */
long long weigh_most_bytes(void);
/* Of one container: whether its processes have more, by the driver, than it is charged for. */
void weigh_container(const char *id, pid_t first);
long long weigh_above_bytes(void);
/* The most that a container's charges came to above what it was charged. */
long long weigh_lost_bytes(void);

/* fuzz_gate.c: after weigh_prepare(). Return: false: it cannot be. */
bool gate_prepare(void);
void gate_end(void);
/*
 * While all stand still; the cards have some other policy afterwards. Return: false: the one
 * above, or the tree, did not do as it was told.
 */
bool gate_look(struct random *random);
/* Groups that were looked at, in all; the most channels of theirs that could not be shut. */
u32 gate_looked(void);
u32 gate_open_most(void);

#endif
