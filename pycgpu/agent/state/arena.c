// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory file of the state, and which of its pages are in use. The state consists of whole
 * pages, because it is a few large things. An agent may be killed at any instruction, so there is
 * no free list. Either a page begins a run in use, or it does not.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state/state.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17 */
#endif

/* sparse: unused pages cost nothing */
#define PAGE_BYTES 4096ULL
#define PAGES (1ULL << 24)
#define HEAD_BYTES (64ULL << 20)
#define JOURNAL_BYTES (1ULL << 30)
#define RUNS_AT (STATE_AT + HEAD_BYTES)
#define JOURNAL_AT (RUNS_AT + PAGES * sizeof(uint32_t))
#define PAGES_AT (JOURNAL_AT + JOURNAL_BYTES)
#define STATE_BYTES (PAGES_AT - STATE_AT + PAGES * PAGE_BYTES)

#define KEPT 0x80000000u

static pthread_mutex_t arena_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t lowest; /* no page below is free */

/* By its first page: the length of the run in use that begins there, 0: none begins there. */
static uint32_t *runs(void)
{
	return (uint32_t *)RUNS_AT;
}

static uint64_t page_of(const void *at)
{
	return ((uintptr_t)at - PAGES_AT) / PAGE_BYTES;
}

int arena_map(int memory)
{
	void *at = mmap((void *)STATE_AT, STATE_BYTES, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, memory, 0);

	if (at == MAP_FAILED)
		return -errno;
	if (at != (void *)STATE_AT) {
		munmap(at, STATE_BYTES);
		return -EEXIST;
	}
	lowest = 0;
	journal_place((void *)JOURNAL_AT, JOURNAL_BYTES);
	return 0;
}

int arena_create(void)
{
	int memory = memfd_create("cgpu-agent", MFD_CLOEXEC), err = 0;

	if (memory < 0)
		return -errno;
	if (ftruncate(memory, (off_t)STATE_BYTES))
		err = -errno;
	if (!err)
		err = arena_map(memory);
	if (err) {
		close(memory);
		return err;
	}
	memcpy(state_head()->magic, "cgpuagnt", 8);
	state_head()->version = CGPU_AGENT_STATE_VERSION;
	state_head()->memory = memory;
	return 0;
}

int arena_place(const struct state_segment *segments, uint32_t count, bool adopt)
{
	uint64_t offset = PAGE_BYTES;
	uint32_t i;

	for (i = 0; i < count; i++) {
		void *place = (void *)(STATE_AT + offset);

		if (!adopt)
			memcpy(place, segments[i].at, segments[i].bytes);
		if (mmap(segments[i].at, segments[i].bytes, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, state_head()->memory,
			 (off_t)offset) == MAP_FAILED)
			return -errno;
		offset += segments[i].bytes;
	}
	return offset > HEAD_BYTES ? -E2BIG : 0;
}

void *arena_alloc(size_t bytes)
{
	uint64_t wanted = (bytes + PAGE_BYTES - 1) / PAGE_BYTES, at, free;
	void *found = NULL;

	pthread_mutex_lock(&arena_lock);
	for (at = lowest, free = 0; at + free < PAGES && free < wanted;) {
		if (!runs()[at + free]) {
			free++;
			continue;
		}
		at += free + runs()[at + free];
		free = 0;
	}
	if (free == wanted) {
		runs()[at] = (uint32_t)wanted;
		if (at == lowest)
			lowest = at + wanted;
		found = (void *)(PAGES_AT + at * PAGE_BYTES);
	}
	pthread_mutex_unlock(&arena_lock);
	return found;
}

/* Context: arena_lock. */
static void let_go_of(uint64_t page, uint64_t count)
{
	/* like new pages: zeroed, and returned to the kernel */
	madvise((void *)(PAGES_AT + page * PAGE_BYTES), count * PAGE_BYTES, MADV_REMOVE);
	runs()[page] = 0;
	if (page < lowest)
		lowest = page;
}

void arena_free(void *at)
{
	if (!at)
		return;
	pthread_mutex_lock(&arena_lock);
	let_go_of(page_of(at), runs()[page_of(at)]);
	pthread_mutex_unlock(&arena_lock);
}

void arena_keep(const void *at)
{
	if (at)
		runs()[page_of(at)] |= KEPT;
}

void arena_sweep(void)
{
	uint64_t page, free = 0;
	uint32_t run;

	/* pages are taken from below, so behind so many free pages all are free */
	for (page = 0; page < PAGES && free < PAGES / 256; page += run & ~KEPT ? run & ~KEPT : 1) {
		run = runs()[page];
		free = run ? 0 : free + 1;
		if (run & KEPT)
			runs()[page] = run & ~KEPT;
		else if (run)
			let_go_of(page, run);
	}
}

int state_descriptor(int fd)
{
	int high;

	if (fd < 0 || fd >= STATE_FD_FIRST)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STATE_FD_FIRST);
	close(fd);
	return high;
}
