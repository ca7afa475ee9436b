// SPDX-License-Identifier: GPL-2.0-only
/*
 * Managed memory is unmapped by munmap, by another mapping over it, by exec and
 * by exit, none of which is worth a notification each. What /proc says is
 * mapped is taken instead, before anything is refused and once a second. The
 * other way round it finds what was mapped past us, by a descriptor exchanged
 * between our look at it and the kernel's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "door.h"

enum {
	RECENT_NS = 5000000,
	SPANS = 2048
};

struct span {
	uint64_t base, end;
};

/* Shared mappings of the UVM device. Return: number, -1: the process is gone. */
static int mappings(int pid, struct span *spans, int max)
{
	unsigned long long base, end;
	char path[64], line[512], mode[8];
	unsigned dev_major, dev_minor;
	int count = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps)
		return -1;
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
	fclose(maps);
	return count;
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
	struct process *p = c->file[number].process;
	int count, all = 0, own = 0, n, i;
	bool fits = true;
	uint32_t k;

	count = p && p->pidfd >= 0 ? mappings(p->pid, mapped, SPANS) : 0;
	if (count < 0)
		count = 0;
	pthread_mutex_lock(&door.lock);
	make_room(c);
	for (k = 0; k < c->tenant.ranges.count && all < SPANS; k++) {
		struct cgpu_range *r = cgpu_range_at(&c->tenant.ranges,
						     c->tenant.ranges.order[k]);
		struct span span = { r->base, r->base + r->length_bytes };

		/* a process has more than one file of the device; all map into it */
		if (r->file >= FILES_MAX || c->file[r->file].process != p ||
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
