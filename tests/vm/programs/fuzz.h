/* SPDX-License-Identifier: MIT */
/* fuzz: what its tenants share, and what each side offers. See fuzz.c. */
#ifndef FUZZ_H
#define FUZZ_H

#include "simcuda.h"

#include <stdatomic.h>

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

struct random { u64 state; };

static inline u64 random_u64(struct random *random)
{
	random->state ^= random->state << 13;
	random->state ^= random->state >> 7;
	random->state ^= random->state << 17;
	return random->state;
}

static inline u32 below(struct random *random, u32 limit)
{
	return (u32)(random_u64(random) >> 32) % limit;
}

static inline struct random seeded(u64 seed)
{
	struct random random = { seed * 0x9e3779b97f4a7c15 + 0x2545f4914f6cdd1d };

	random_u64(&random);
	return random;
}

extern struct totals *totals;

/* fuzz_calls.c: one process of a container, with threads; it ends by itself or is killed. */
void fuzz_tenant(u64 seed, struct pool *pool) __attribute__((noreturn));

/* fuzz_tree.c: writes to and reads from the tree until it is killed. */
void fuzz_tree(u64 seed) __attribute__((noreturn));

#endif
