// SPDX-License-Identifier: GPL-2.0-only
/*
 * Managed memory is unmapped by munmap, by another mapping over it, by exec and
 * by exit, none of which is worth a notification each. What /proc says is
 * mapped is taken instead, before anything is refused and now and then. The
 * other way round it finds what was mapped past us, by a descriptor exchanged
 * between our look at it and the kernel's.
 *
 * The driver lets a file of the UVM device map into one address space alone: that of
 * the process that initialised it, which need not be the one that uses the file now,
 * and which outlives its process while somebody holds a file that UVM_MM_INITIALIZE
 * tied to it, or shares it. So that address space is followed, not a process: an open
 * /proc/PID/maps shows it whatever program the process executes, and when the process
 * is gone an open /proc/PID/mem still tells whether it lives, by the error of a read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "door.h"

enum {
	RECENT_NS = 5000000,
	SPANS = 2048
};

struct span {
	uint64_t base, end;
};

/* Shared mappings of the UVM device. Return: number, -1: the process is gone. */
static int mappings(int maps_fd, struct span *spans, int max)
{
	unsigned long long base, end;
	char line[512], mode[8];
	unsigned dev_major, dev_minor;
	int count = 0, copy;
	FILE *maps;

	copy = fcntl(maps_fd, F_DUPFD_CLOEXEC, 0);
	maps = copy < 0 ? NULL : fdopen(copy, "re");
	if (!maps) {
		if (copy >= 0)
			close(copy);
		return -1;
	}
	rewind(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "nvidia-uvm") || strstr(line, "nvidia-uvm-tools") ||
		    sscanf(line, "%llx-%llx %7s %*x %x:%x", &base, &end, mode, &dev_major,
			   &dev_minor) != 5)
			continue;
		if (count && spans[count - 1].end == base)
			spans[count - 1].end = end;
		else if (count < max)
			spans[count++] = (struct span){ base, end };
	}
	if (ferror(maps))
		count = -1;
	fclose(maps);
	return count;
}

/* Nothing is mapped at 0: EIO. Of an address space that is gone nothing is read at all. */
static bool lives(int mem_fd)
{
	char byte;

	return pread(mem_fd, &byte, 1, 0) != 0;
}

static int open_of(int id, const char *what)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", id, what);
	return open(path, O_RDONLY | O_CLOEXEC);
}

void managed_unbind(struct container *c, uint32_t number)
{
	struct file *file = &c->file[number];

	if (!file->owner)
		return;
	close(file->maps);
	close(file->mem);
	file->maps = file->mem = -1;
	file->owner = NULL;
	c->spaces--;
}

/* Context: files_lock. */
static int bind_space(struct container *c, uint32_t number, struct process *p, int tid)
{
	struct file *file = &c->file[number];
	int id = p->pid, maps, mem;
	char byte;

	if (file->owner && lives(file->mem))
		return file->owner == p ? -EALREADY : -EBUSY;
	managed_unbind(c, number);
	if (c->spaces == SPACES_MAX)
		return -EMFILE;
	maps = open_of(id, "maps");
	/* its first thread may have ended, and has no address space any more */
	if (maps < 0 || pread(maps, &byte, 1, 0) != 1) {
		if (maps >= 0)
			close(maps);
		id = tid;
		maps = open_of(id, "maps");
	}
	mem = open_of(id, "mem");
	if (maps < 0 || mem < 0) {
		if (maps >= 0)
			close(maps);
		if (mem >= 0)
			close(mem);
		return -EMFILE;
	}
	file->maps = maps;
	file->mem = mem;
	file->owner = p;
	c->spaces++;
	return 0;
}

int managed_bind(struct container *c, uint32_t number, struct process *p, int tid)
{
	int err;

	pthread_mutex_lock(&c->files_lock);
	err = bind_space(c, number, p, tid);
	pthread_mutex_unlock(&c->files_lock);
	return err;
}

bool managed_belongs(struct container *c, uint32_t number, const struct process *p)
{
	bool belongs;

	pthread_mutex_lock(&c->files_lock);
	belongs = !c->file[number].owner || c->file[number].owner == p;
	pthread_mutex_unlock(&c->files_lock);
	return belongs;
}

void managed_mapped(struct container *c, uint32_t number, uint64_t base)
{
	pthread_mutex_lock(&c->files_lock);
	c->recent[c->recent_next].file = number;
	c->recent[c->recent_next].base = base;
	c->recent[c->recent_next].when_ns = now_ns();
	c->recent_next = (c->recent_next + 1) % 64;
	pthread_mutex_unlock(&c->files_lock);
}

void managed_settle(struct container *c)
{
	uint64_t newest = 0, now = now_ns();
	struct timespec pause = { 0, 0 };
	uint32_t i;

	pthread_mutex_lock(&c->files_lock);
	for (i = 0; i < 64; i++)
		if (c->recent[i].when_ns > newest)
			newest = c->recent[i].when_ns;
	pthread_mutex_unlock(&c->files_lock);
	if (!newest || newest + RECENT_NS < now)
		return;
	pause.tv_nsec = (long)(newest + RECENT_NS - now) + 100000;
	nanosleep(&pause, NULL);
}

/* answered a moment ago: its mmap may not have happened yet */
static bool is_recent(struct container *c, uint32_t number, uint64_t base)
{
	uint64_t now = now_ns();
	uint32_t i;

	for (i = 0; i < 64; i++)
		if (c->recent[i].file == number && c->recent[i].base == base &&
		    c->recent[i].when_ns + RECENT_NS > now)
			return true;
	return false;
}

static int by_base(const void *a, const void *b)
{
	uint64_t x = ((const struct span *)a)->base, y = ((const struct span *)b)->base;

	return x < y ? -1 : x > y;
}

static void sort_spans(struct span *spans, int count)
{
	qsort(spans, (size_t)count, sizeof(*spans), by_base);
}

/* Takes `holes` out of the sorted `spans`. Return: their number, at most `max`. */
static int without(const struct span *spans, int count, const struct span *holes, int hole_count,
		   struct span *out, int max)
{
	int n = 0, i, j;

	for (i = 0; i < count; i++) {
		uint64_t at = spans[i].base;

		for (j = 0; j < hole_count && n < max && at < spans[i].end; j++) {
			if (holes[j].end <= at)
				continue;
			if (holes[j].base >= spans[i].end)
				break;
			if (holes[j].base > at)
				out[n++] = (struct span){ at, holes[j].base };
			at = holes[j].end;
		}
		if (at < spans[i].end && n < max)
			out[n++] = (struct span){ at, spans[i].end };
	}
	return n;
}

bool managed_sweep(struct container *c, uint32_t number)
{
	static __thread struct span mapped[SPANS], known[SPANS], managed[SPANS], diff[2 * SPANS];
	const struct file *file = &c->file[number];
	int count, all = 0, own = 0, n, i;
	bool fits = true;
	uint32_t k;

	/* of a file that nobody initialised nothing is mapped */
	count = file->owner ? mappings(file->maps, mapped, SPANS) : 0;
	if (count < 0 && lives(file->mem))
		return true; /* and all that was mapped there still is */
	if (count < 0)
		count = 0;
	pthread_mutex_lock(&door.lock);
	make_room(c);
	for (k = 0; k < c->tenant.ranges.count && all < SPANS; k++) {
		struct cgpu_range *r = cgpu_range_at(&c->tenant.ranges,
						     c->tenant.ranges.order[k]);
		struct span span = { r->base, r->base + r->length_bytes };

		/* a process has more than one file of the device; all map into it */
		if (r->file >= FILES_MAX || c->file[r->file].owner != file->owner ||
		    r->kind == CGPU_RANGE_EXPORT || r->kind == CGPU_RANGE_CREATED ||
		    r->kind == CGPU_RANGE_OS_EVENT)
			continue;
		known[all++] = span;
		if (r->file == number && r->kind == CGPU_RANGE_MANAGED &&
		    !is_recent(c, number, r->base))
			managed[own++] = span;
	}
	sort_spans(known, all);
	n = without(managed, own, mapped, count, diff, 2 * SPANS);
	for (i = 0; i < n; i++)
		cgpu_tenant_munmap(&c->tenant, number, diff[i].base, diff[i].end - diff[i].base);
	/* only a file with a card can have any */
	n = all < SPANS && cgpu_tenant_file(&c->tenant, number)->gpu_mask ?
	    without(mapped, count, known, all, diff, 2 * SPANS) : 0;
	for (i = 0; i < n; i++)
		if (cgpu_tenant_mmap(&c->tenant, number, diff[i].base,
				     diff[i].end - diff[i].base))
			fits = false;
	pthread_mutex_unlock(&door.lock);
	return fits;
}
