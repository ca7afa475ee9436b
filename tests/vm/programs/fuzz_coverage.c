/* SPDX-License-Identifier: MIT */
/*
 * Which of our modules' code calls reach (KCOV), and what reached new code:
 * the numbers drawn for it are kept, and later drawn again, changed. So what a
 * random call finds in 1 of 10000 is where the next begins.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <fcntl.h>
#include <linux/kcov.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	THREADS_MOST = 64,
	FD_FIRST = 100, /* tenants close and replace those below */
	TRACE_WORDS = 32 << 10,
	EDGES_BITS = 18,
	KEPT = 1024,
};

struct corpus {
	atomic_uint kept;
	atomic_ulong edges;
	atomic_uchar seen[1 << EDGES_BITS];
	/* written and read without a lock: a half of each of two is a tape, too */
	struct tape tape[KEPT];
};

static struct corpus *corpus;
static struct { int fd; unsigned long *trace; } threads[THREADS_MOST];
static bool blind;
static __thread unsigned long *trace;
static __thread struct tape tape;

bool coverage_prepare(u32 count, bool unguided)
{
	u32 index;
	int fd;

	if (count > THREADS_MOST)
		return false;
	blind = unguided;
	corpus = mmap(NULL, sizeof(*corpus), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (corpus == MAP_FAILED)
		return false;
	for (index = 0; index < count; index++) {
		fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return true; /* no KCOV: calls as they come */
		threads[index].fd = fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST);
		close(fd);
		if (threads[index].fd < 0 ||
		    ioctl(threads[index].fd, KCOV_INIT_TRACE, (unsigned long)TRACE_WORDS))
			return false;
		threads[index].trace = mmap(NULL, TRACE_WORDS * sizeof(long),
					    PROT_READ | PROT_WRITE, MAP_SHARED,
					    threads[index].fd, 0);
		if (threads[index].trace == MAP_FAILED)
			return false;
	}
	return true;
}

void coverage_thread(u32 index)
{
	if (index < THREADS_MOST && threads[index].trace &&
	    !ioctl(threads[index].fd, KCOV_ENABLE, KCOV_TRACE_PC))
		trace = threads[index].trace;
}

static void change(struct random *random)
{
	u32 at = below(random, tape.length), from;
	const struct tape *other;

	switch (below(random, 4)) {
	case 0: /* the rest is drawn anew */
		tape.length = at;
		break;
	case 1: /* or another one's */
		other = &corpus->tape[below(random, KEPT)];
		from = below(random, TAPE_WORDS);
		if (other->length <= TAPE_WORDS && from < other->length) {
			tape.length = at + other->length - from;
			if (tape.length > TAPE_WORDS)
				tape.length = TAPE_WORDS;
			memcpy(tape.word + at, other->word + from,
			       (tape.length - at) * sizeof(*tape.word));
		}
		break;
	default:
		tape.word[at] = random_u64(random);
	}
}

void coverage_begin(struct random *random)
{
	u32 kept = atomic_load(&corpus->kept), changes;

	random->tape = NULL;
	if (!trace)
		return;
	tape.length = 0;
	if (!blind && kept && below(random, 4)) {
		tape = corpus->tape[below(random, kept < KEPT ? kept : KEPT)];
		if (tape.length > TAPE_WORDS)
			tape.length = TAPE_WORDS;
		for (changes = 1 + below(random, 4); changes && tape.length; changes--)
			change(random);
	}
	tape.at = 0;
	random->tape = &tape;
	__atomic_store_n(trace, 0, __ATOMIC_RELAXED);
}

void coverage_end(struct random *random)
{
	unsigned long count, before = 0, at, pc, edge;
	bool is_new = false;

	random->tape = NULL;
	if (!trace)
		return;
	count = __atomic_load_n(trace, __ATOMIC_RELAXED);
	for (at = 1; at <= count && at < TRACE_WORDS; at++) {
		pc = trace[at] * 0x9e3779b97f4a7c15;
		edge = (pc ^ before >> 1) >> (64 - EDGES_BITS);
		before = pc;
		if (atomic_load(&corpus->seen[edge]) || atomic_exchange(&corpus->seen[edge], 1))
			continue;
		atomic_fetch_add(&corpus->edges, 1);
		is_new = true;
	}
	if (is_new) {
		/* what was not drawn again did nothing for it */
		tape.length = tape.at;
		corpus->tape[atomic_fetch_add(&corpus->kept, 1) % KEPT] = tape;
	}
}

u64 coverage_edges(void)
{
	return atomic_load(&corpus->edges);
}

u32 coverage_kept(void)
{
	return atomic_load(&corpus->kept);
}
