// SPDX-License-Identifier: GPL-2.0-only
/*
 * Managed memory is unmapped by munmap, by another mapping over it, by exec and by exit; notifying
 * each would cost too much. The agent reads from /proc what is mapped, before it refuses anything
 * and now and then. The same look finds memory that was mapped past us, through a descriptor
 * exchanged between our look and the kernel's.
 *
 * The driver lets a UVM file map into one address space alone: that of the process that initialised
 * it. That process need not be the one that uses the file now. The address space outlives its
 * process while another process shares it, or holds a file that UVM_MM_INITIALIZE tied to it. So
 * the agent follows the address space, not a process. An open /proc/PID/maps shows it whatever
 * program the process executes. When the process is gone, the error of a read from an open
 * /proc/PID/mem still tells whether it lives.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "core/rm/abi.h"
#include "core/rm/structs.h"
#include "driver/driver.h"
#include "tenant/tenant.h"

enum {
	RECENT_NS = 5000000,
	SPANS_FIRST = 256,
	STEP = 256, /* ranges listed at once */
	AT_ONCE_NS = 500000 /* then a thread that waits for door.lock gets it */
};

/*
 * If a file's process has ended the agent no longer sees its address space, though another process
 * begun in it may map into it. Then the address space loses its cards. A container that gives
 * them back to it all the time is ended.
 */
#define BLIND_MAX_NS 10000000000ULL
#define BLIND_END_NS 60000000000ULL

struct span {
	uint64_t base, end;
};

/* A look at what /proc shows of a file's address space. */
struct look {
	uint64_t began_ns;
	uint64_t newest; /* serial of the newest range at that time */
};

/* Holds every span: one left out would count as unmapped. */
struct spans {
	struct span *at;
	uint32_t count, capacity;
	bool lost; /* there was no memory for a span */
};

static void add_span(struct spans *spans, uint64_t base, uint64_t end)
{
	uint32_t capacity = spans->capacity ? 2 * spans->capacity : SPANS_FIRST;
	struct span *at;

	if (spans->count == spans->capacity) {
		at = realloc(spans->at, capacity * sizeof(*at));
		if (!at) {
			spans->lost = true;
			return;
		}
		spans->at = at;
		spans->capacity = capacity;
	}
	spans->at[spans->count++] = (struct span){ base, end };
}

/*
 * Shared mappings of the UVM device. The driver makes none whose offset in the file is not its
 * address. The tenant chooses the file name that is shown: it can rename or bind a node, and make
 * another. Return: false: nothing can be read.
 */
static bool mappings(int maps_fd, struct spans *spans)
{
	unsigned long long base, end, offset;
	char *line = NULL, mode[8];
	size_t size = 0;
	FILE *maps = fdopen(maps_fd, "re");
	bool read;

	if (!maps) {
		close(maps_fd);
		return false;
	}
	rewind(maps);
	while (getline(&line, &size, maps) > 0) {
		if (sscanf(line, "%llx-%llx %7s %llx", &base, &end, mode, &offset) != 4 ||
		    mode[3] != 's' || offset != base)
			continue;
		if (spans->count && spans->at[spans->count - 1].end == base)
			spans->at[spans->count - 1].end = end;
		else
			add_span(spans, base, end);
	}
	read = !ferror(maps);
	free(line);
	fclose(maps);
	return read;
}

/* Address 0 is never mapped: a read gives EIO; it gives 0 bytes if the address space is gone. */
static bool lives(int mem_fd)
{
	char byte;

	return pread(mem_fd, &byte, 1, 0) != 0;
}

static int open_of(int id, const char *what)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", id, what);
	return state_descriptor(open(path, O_RDONLY | O_CLOEXEC));
}

void managed_unbind(struct container *c, uint32_t number)
{
	struct file *file = &c->file[number];
	int maps = file->maps, mem = file->mem;

	if (!file->owner)
		return;
	file->owner = NULL;
	file->maps = file->mem = -1;
	file->blind_ns = 0;
	file->space++;
	c->spaces--;
	/* a number that the state has never names another file */
	close(maps);
	close(mem);
}

/* A duplicate of the file's `mem`, or -1; *space is the address space that it is bound to. */
static int bound_to(struct container *c, uint32_t number, struct process **owner,
		    uint32_t *space)
{
	struct file *file = &c->file[number];
	int mem;

	pthread_mutex_lock(&c->files_lock);
	*owner = file->owner;
	*space = file->space;
	mem = file->owner ? fcntl(file->mem, F_DUPFD_CLOEXEC, 0) : -1;
	pthread_mutex_unlock(&c->files_lock);
	return mem;
}

/* Return: 0, -EMFILE, -EAGAIN: it is bound to another address space by now. */
static int bind_space(struct container *c, uint32_t number, uint32_t space,
		      struct process *p, int maps, int mem)
{
	struct file *file = &c->file[number];
	int err = 0;

	pthread_mutex_lock(&c->files_lock);
	if (file->space != space) {
		err = -EAGAIN;
	} else {
		managed_unbind(c, number);
		if (c->spaces == SPACES_MAX)
			err = -EMFILE;
	}
	if (!err) {
		file->maps = maps;
		file->mem = mem;
		file->owner = p;
		file->space++;
		c->spaces++;
	}
	pthread_mutex_unlock(&c->files_lock);
	return err;
}

/* The driver's answer to a call that changes nothing: no card has this number. */
static bool is_initialized(int fd)
{
	struct uvm_unregister_gpu params = { .rmStatus = NV_ERR_ILLEGAL_ACTION };

	ioctl(fd, UVM_UNREGISTER_GPU, &params);
	return params.rmStatus != NV_ERR_ILLEGAL_ACTION;
}

int managed_bind(struct container *c, uint32_t number, struct process *p, int tid, int fd)
{
	bool initialized = is_initialized(fd);
	int err = -EAGAIN, maps, mem, old;
	struct process *owner;
	uint32_t space;
	char byte;
	bool alive, unseen;

	maps = open_of(p->pid, "maps");
	mem = open_of(p->pid, "mem");
	/* the process's first thread may have ended, and then has no address space */
	if (maps < 0 || pread(maps, &byte, 1, 0) != 1) {
		if (maps >= 0)
			close(maps);
		if (mem >= 0)
			close(mem);
		maps = open_of(tid, "maps");
		mem = open_of(tid, "mem");
	}
	if (maps < 0 || mem < 0)
		err = -EMFILE;
	while (err == -EAGAIN) {
		old = bound_to(c, number, &owner, &space);
		alive = old < 0 ? owner != NULL : lives(old);
		if (old >= 0)
			close(old);
		unseen = initialized && !owner;
		if (alive || unseen)
			err = alive && owner == p ? -EALREADY : -EBUSY;
		else
			err = bind_space(c, number, space, p, maps, mem);
	}
	if (err && maps >= 0)
		close(maps);
	if (err && mem >= 0)
		close(mem);
	/* a signal came before the driver had seen the first one */
	return err == -EALREADY && !initialized ? 0 : err;
}

/*
 * A file's address space may live though no process has a descriptor of the file. A mapping, a call
 * that is under way, an unreceived message or an io_uring can keep the file open, and nothing
 * tells. So the address space loses its cards before the file is forgotten, and UVM gives back what
 * it has of their memory. For an address space that is gone, closing the file does the same. Waits
 * for as long as a tenant holds the lock of its mappings.
 */
bool managed_withdraw(struct container *c, uint32_t number)
{
	bool asked = true;
	uint32_t minor;

	/* on another device the number is another call's */
	if (c->file[number].device != CGPU_DEVICE_UVM)
		return true;
	c->withdrawing_ns = now_ns();
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		struct uvm_unregister_gpu params = { 0 };

		if (!rm_device(minor))
			continue;
		memcpy(&params.gpu, door.host.topology.gpu[minor].uuid, sizeof(params.gpu));
		/* refused: it has no such card, or is not an address space */
		asked &= !ioctl(c->file[number].held, UVM_UNREGISTER_GPU, &params);
	}
	c->withdrawing_ns = 0;
	return asked;
}

bool managed_is_blind(struct container *c, uint32_t number)
{
	uint64_t since;

	pthread_mutex_lock(&c->files_lock);
	since = c->file[number].used ? c->file[number].blind_ns : 0;
	pthread_mutex_unlock(&c->files_lock);
	return since && now_ns() - since > BLIND_MAX_NS;
}

bool managed_belongs(struct container *c, uint32_t number, const struct process *p)
{
	bool belongs;

	pthread_mutex_lock(&c->files_lock);
	belongs = c->file[number].owner == p;
	pthread_mutex_unlock(&c->files_lock);
	return belongs;
}

bool managed_is_bound(struct container *c, uint32_t number)
{
	bool bound;

	pthread_mutex_lock(&c->files_lock);
	bound = c->file[number].owner;
	pthread_mutex_unlock(&c->files_lock);
	return bound;
}

void managed_told(struct container *c, uint32_t number, uint64_t flags)
{
	pthread_mutex_lock(&c->files_lock);
	c->file[number].flags = flags;
	pthread_mutex_unlock(&c->files_lock);
}

bool managed_is_as_told(struct container *c, uint32_t number, int fd)
{
	struct uvm_initialize params = { .rmStatus = NV_ERR_ILLEGAL_ACTION };
	bool bound;

	pthread_mutex_lock(&c->files_lock);
	bound = c->file[number].owner;
	params.flags = c->file[number].flags;
	pthread_mutex_unlock(&c->files_lock);
	/* for an initialised file the driver says only whether the flags are the same */
	return bound && is_initialized(fd) && !ioctl(fd, UVM_INITIALIZE, &params) &&
	       params.rmStatus == NV_OK;
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

/*
 * True if the call was answered after the look began, or shortly before: its mmap may not have
 * happened then. Also true if more calls are recent than are remembered.
 */
static bool is_recent(struct container *c, uint32_t number, uint64_t base, uint64_t began_ns)
{
	uint32_t i;

	if (c->recent[c->recent_next].when_ns + RECENT_NS > began_ns)
		return true;
	for (i = 0; i < 64; i++)
		if (c->recent[i].file == number && c->recent[i].base == base &&
		    c->recent[i].when_ns + RECENT_NS > began_ns)
			return true;
	return false;
}

/* `spans` without `holes`, both sorted. */
static void without(const struct spans *spans, const struct spans *holes, struct spans *out)
{
	uint32_t first = 0, i, j;

	out->count = 0;
	for (i = 0; i < spans->count; i++) {
		uint64_t at = spans->at[i].base, end = spans->at[i].end;

		while (first < holes->count && holes->at[first].end <= at)
			first++;
		for (j = first; j < holes->count && holes->at[j].base < end && at < end; j++) {
			if (holes->at[j].end <= at)
				continue;
			if (holes->at[j].base > at)
				add_span(out, at, holes->at[j].base);
			at = holes->at[j].end;
		}
		if (at < end)
			add_span(out, at, end);
	}
}

/*
 * The managed memory that the ledger has of a file, sorted. With `look`, only what had been mapped
 * before it. Releases door.lock after each step, because a walk over many ranges takes long.
 * Context: files_lock.
 */
static void list(struct container *c, uint32_t number, const struct look *look,
		 struct spans *spans)
{
	const struct cgpu_ranges *ranges = &c->tenant.ranges;
	struct cgpu_range step[STEP], last = { 0 };
	uint32_t count, index, i;

	do {
		pthread_mutex_lock(&door.lock);
		for (count = 0; count < STEP; count++) {
			index = cgpu_range_next(ranges, number, CGPU_RANGE_MANAGED, &last);
			if (!index)
				break;
			step[count] = last = *cgpu_range_at(ranges, index);
		}
		pthread_mutex_unlock(&door.lock);
		for (i = 0; i < count; i++)
			if (!look || (step[i].serial <= look->newest &&
				      !is_recent(c, number, step[i].base, look->began_ns)))
				add_span(spans, step[i].base, step[i].base + step[i].length_bytes);
	} while (count == STEP);
}

static uint32_t cards_of(struct container *c, uint32_t number)
{
	uint32_t cards;

	pthread_mutex_lock(&door.lock);
	cards = cgpu_tenant_file(&c->tenant, number)->gpu_mask;
	pthread_mutex_unlock(&door.lock);
	return cards;
}

/* Of many ranges each takes little. Context: door.lock, since then. */
static void let_others(uint64_t *since_ns)
{
	if (now_ns() - *since_ns < AT_ONCE_NS)
		return;
	pthread_mutex_unlock(&door.lock);
	sched_yield();
	pthread_mutex_lock(&door.lock);
	*since_ns = now_ns();
}

/* Context: files_lock. Return: false: what was mapped past us does not fit. */
static bool compare(struct container *c, uint32_t number, const struct spans *mapped,
		    const struct look *look)
{
	struct spans known = { 0 }, managed = { 0 }, diff = { 0 };
	uint32_t cards = cards_of(c, number), i;
	bool fits = true, more;
	uint64_t since_ns;

	list(c, number, look, &managed);
	without(&managed, mapped, &diff);
	pthread_mutex_lock(&door.lock);
	since_ns = now_ns();
	make_room(c);
	/* without memory no range counts as gone or as new */
	for (i = 0; i < diff.count && !mapped->lost; i++) {
		do {
			change_begin(c, NULL);
			more = cgpu_tenant_munmap(&c->tenant, number, diff.at[i].base,
						  diff.at[i].end - diff.at[i].base);
			change_end();
			let_others(&since_ns);
		} while (more);
	}
	pthread_mutex_unlock(&door.lock);
	/*
	 * Only a file with a card can have any. The announcements of another file of the process
	 * are not known. That file may have mapped it in the address space from before an exec, and
	 * the agent could not tell the two apart.
	 */
	if (cards)
		list(c, number, NULL, &known);
	diff.count = 0;
	if (cards && !known.lost)
		without(mapped, &known, &diff);
	pthread_mutex_lock(&door.lock);
	since_ns = now_ns();
	for (i = 0; i < diff.count; i++) {
		change_begin(c, NULL);
		if (cgpu_tenant_mmap(&c->tenant, number, diff.at[i].base,
				     diff.at[i].end - diff.at[i].base))
			fits = false;
		change_end();
		let_others(&since_ns);
		make_room(c);
	}
	pthread_mutex_unlock(&door.lock);
	free(known.at);
	free(managed.at);
	free(diff.at);
	return fits;
}

/* Return: NULL, or what the container did. */
static const char *sweep_file(struct container *c, uint32_t number)
{
	struct file *file = &c->file[number];
	struct spans mapped = { 0 };
	int maps = -1, mem = -1;
	bool used, read = true, blind = false;
	struct look look = { .began_ns = now_ns() };
	const char *why = NULL;
	uint32_t space;

	pthread_mutex_lock(&door.lock);
	look.newest = c->tenant.ranges.serial;
	pthread_mutex_unlock(&door.lock);
	pthread_mutex_lock(&c->files_lock);
	used = file->used && file->device == CGPU_DEVICE_UVM;
	space = file->space;
	if (used && file->owner) {
		maps = fcntl(file->maps, F_DUPFD_CLOEXEC, 0);
		mem = fcntl(file->mem, F_DUPFD_CLOEXEC, 0);
		read = maps >= 0 && mem >= 0;
	}
	pthread_mutex_unlock(&c->files_lock);
	/* a file that no process has initialised has no mappings */
	if (maps >= 0 && mem >= 0) {
		/* if it cannot be read and lives, all its mappings are still there */
		read = mappings(maps, &mapped);
		maps = -1;
		if (!read && !lives(mem)) {
			mapped.count = 0;
			read = true;
		}
		blind = !read;
	}
	pthread_mutex_lock(&c->files_lock);
	if (used && file->used && file->space == space) {
		if (read && !compare(c, number, &mapped, &look))
			why = "mapped managed memory past its limit";
		if (blind && file->blind_ns && look.began_ns - file->blind_ns > BLIND_END_NS)
			why = "lets nobody see what it has mapped";
		if (!blind)
			file->blind_ns = 0;
		else if (!file->blind_ns)
			file->blind_ns = look.began_ns;
	}
	pthread_mutex_unlock(&c->files_lock);
	if (maps >= 0)
		close(maps);
	if (mem >= 0)
		close(mem);
	free(mapped.at);
	return why;
}

const char *managed_sweep(struct container *c)
{
	const char *why = NULL, *found;
	uint32_t i;

	c->looking_ns = now_ns();
	for (i = 1; i < FILES_MAX; i++) {
		found = c->file[i].used && c->file[i].device == CGPU_DEVICE_UVM ?
			sweep_file(c, i) : NULL;
		why = found ? found : why;
	}
	c->looking_ns = 0;
	return why;
}
