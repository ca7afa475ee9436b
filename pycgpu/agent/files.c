// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which open file a descriptor of a tenant is, and when it is gone, without
 * holding it: a duplicate would keep the driver from cleaning up.
 *
 * An epoll instance does that. It holds no reference on the files that it
 * watches and forgets a file at its last close; kcmp(KCMP_EPOLL_TFD) tells
 * whether a descriptor is a watched file, and fdinfo lists those still there.
 * A file is watched under a descriptor of ours that is closed at once; its
 * number, door.tfd_base + the core's number of the file, finds it again.
 *
 * A driver whose UVM device cannot be polled leaves no such way: there a
 * duplicate is held while somebody has the file.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "door.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

enum {
	NVIDIA_MAJOR = 195,
	NVIDIACTL_MINOR = 255,
	RECENT_NS = 5000000,
	SPANS = 2048
};

/* TFD numbers are shared by all containers for the moment of watching */
static pthread_mutex_t tfd_lock = PTHREAD_MUTEX_INITIALIZER;

static long same_table(int a, int b)
{
	return syscall(SYS_kcmp, a, b, KCMP_FILES, 0, 0);
}

static int tgid_of(int tid)
{
	char path[64], line[128];
	int tgid = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Tgid: %d", &tgid) == 1)
			break;
	fclose(file);
	return tgid;
}

/* Context: files_lock. */
static struct process *process_add(struct container *c, int pid)
{
	struct process *p;
	int pidfd;

	for (p = c->processes; p; p = p->next)
		if (p->pid == pid && p->pidfd >= 0 &&
		    !syscall(SYS_pidfd_send_signal, p->pidfd, 0, NULL, 0))
			return p;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p) {
		close(pidfd);
		return NULL;
	}
	p->pid = pid;
	p->pidfd = pidfd;
	p->next = c->processes;
	c->processes = p;
	return p;
}

/*
 * The process of a thread. A thread may have a table of descriptors of its own:
 * then *thread_table is set, and the process' table says nothing.
 */
struct process *process_of(struct container *c, int tid, bool *thread_table)
{
	struct process *p;
	int slot = tid % TIDS, pid;

	*thread_table = false;
	pthread_mutex_lock(&c->files_lock);
	p = c->tid[slot].tid == tid ? c->tid[slot].process : NULL;
	if (!p || p->pidfd < 0 || (p->pid != tid && same_table(p->pid, tid))) {
		pid = tgid_of(tid);
		p = pid > 0 ? process_add(c, pid) : NULL;
		if (p) {
			c->tid[slot].tid = tid;
			c->tid[slot].process = p;
			*thread_table = pid != tid && same_table(pid, tid);
		}
	}
	pthread_mutex_unlock(&c->files_lock);
	return p;
}

int duplicate(struct container *c, struct process *p, int tid, bool thread_table, int fd)
{
	int pidfd, got, err;

	if (!thread_table) {
		pthread_mutex_lock(&c->files_lock);
		got = p->pidfd < 0 ? -1 :
		      (int)syscall(SYS_pidfd_getfd, p->pidfd, fd, 0);
		err = p->pidfd < 0 ? ESRCH : errno;
		pthread_mutex_unlock(&c->files_lock);
		return got < 0 ? -err : got;
	}
	/* Linux 6.9 and newer; before, such a thread is refused */
	pidfd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
	if (pidfd < 0)
		return -EPERM;
	got = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	err = errno;
	close(pidfd);
	return got < 0 ? -err : got;
}

int device_of(int fd, uint32_t *minor_out)
{
	struct stat st;

	*minor_out = 0;
	if (fstat(fd, &st) || !S_ISCHR(st.st_mode))
		return -1;
	if (major(st.st_rdev) == NVIDIA_MAJOR) {
		if (minor(st.st_rdev) == NVIDIACTL_MINOR)
			return CGPU_DEVICE_CTL;
		*minor_out = minor(st.st_rdev);
		return *minor_out < CGPU_MAX_CARDS ? CGPU_DEVICE_GPU : -1;
	}
	/* minor 1 is the tools' device, which has no memory */
	return door.uvm_major && major(st.st_rdev) == door.uvm_major &&
	       !minor(st.st_rdev) ? CGPU_DEVICE_UVM : -1;
}

/* Context: files_lock. */
static bool is_file(struct container *c, uint32_t number, int local)
{
	struct file *file = &c->file[number];
	struct kcmp_epoll_slot slot = { (uint32_t)c->epoll, (uint32_t)door.tfd_base + number, 0 };
	int self = getpid();

	if (file->held >= 0)
		return !syscall(SYS_kcmp, self, self, KCMP_FILE, local, file->held);
	return !syscall(SYS_kcmp, self, self, KCMP_EPOLL_TFD, local, &slot);
}

/* Context: files_lock. */
static bool watch(struct container *c, uint32_t number, int local)
{
	struct epoll_event none = { .events = 0, .data.u64 = number };
	struct file *file = &c->file[number];
	int err = 0;

	file->held = -1;
	pthread_mutex_lock(&tfd_lock);
	if (dup3(local, door.tfd_base + (int)number, O_CLOEXEC) < 0) {
		err = errno;
	} else {
		if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, door.tfd_base + (int)number, &none))
			err = errno;
		close(door.tfd_base + (int)number);
	}
	pthread_mutex_unlock(&tfd_lock);
	if (err == EPERM) {
		file->held = fcntl(local, F_DUPFD_CLOEXEC, 0);
		return file->held >= 0;
	}
	return !err;
}

uint32_t file_of(struct container *c, struct process *p, int fd, int local, uint32_t device,
		 uint32_t minor, struct cgpu_call *exported_by)
{
	uint32_t number = 0, i;

	pthread_mutex_lock(&c->files_lock);
	if (fd >= 0 && fd < FDS && p->file[fd] && c->file[p->file[fd]].used &&
	    is_file(c, p->file[fd], local))
		number = p->file[fd];
	for (i = 1; !number && i < FILES_MAX; i++)
		if (c->file[i].used && c->file[i].device == device &&
		    c->file[i].minor == minor && is_file(c, i, local))
			number = i;
	if (!number) {
		pthread_mutex_lock(&door.lock);
		make_room(c);
		number = exported_by ? cgpu_call_open_dmabuf(&c->tenant, exported_by) :
			 cgpu_tenant_open(&c->tenant, device, minor, (uint32_t)p->pid);
		pthread_mutex_unlock(&door.lock);
		if (number && !watch(c, number, local)) {
			pthread_mutex_lock(&door.lock);
			cgpu_tenant_close(&c->tenant, number);
			pthread_mutex_unlock(&door.lock);
			number = 0;
		}
		if (number) {
			c->file[number].used = true;
			c->file[number].device = device;
			c->file[number].minor = minor;
		}
	}
	if (number) {
		if (fd >= 0 && fd < FDS)
			p->file[fd] = number;
		c->file[number].process = p;
		c->file[number].fd = fd;
	}
	pthread_mutex_unlock(&c->files_lock);
	return number;
}

int file_duplicate(struct container *c, uint32_t number)
{
	struct file *file = &c->file[number];
	int got = -ESRCH;

	pthread_mutex_lock(&c->files_lock);
	if (number < FILES_MAX && file->used && file->process && file->process->pidfd >= 0) {
		got = (int)syscall(SYS_pidfd_getfd, file->process->pidfd, file->fd, 0);
		if (got < 0) {
			got = -errno;
		} else if (!is_file(c, number, got)) {
			close(got);
			got = -EBADF;
		}
	}
	pthread_mutex_unlock(&c->files_lock);
	return got;
}

/* ------------------------------------------------------------ what is gone */

/* Does any process have the file that `held` is? Context: files_lock. */
static bool has_holder(struct container *c, struct file *file)
{
	int self = getpid();
	struct dirent *entry;
	bool found = false;
	DIR *proc;

	if (file->process && file->process->pidfd >= 0 &&
	    !syscall(SYS_kcmp, file->process->pid, self, KCMP_FILE, file->fd, file->held))
		return true;
	/* inherited by a child, or sent: rare, and then worth a look at everybody */
	proc = opendir("/proc");
	while (proc && !found && (entry = readdir(proc))) {
		char path[300], target[64];
		int pid = atoi(entry->d_name);
		struct dirent *link;
		DIR *fds;

		if (pid <= 0 || pid == self)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd", pid);
		fds = opendir(path);
		while (fds && !found && (link = readdir(fds))) {
			ssize_t length;

			snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, link->d_name);
			length = readlink(path, target, sizeof(target) - 1);
			if (length <= 0)
				continue;
			target[length] = 0;
			if (!strstr(target, "nvidia-uvm") ||
			    syscall(SYS_kcmp, pid, self, KCMP_FILE, atoi(link->d_name),
				    file->held))
				continue;
			found = true;
			if (process_exists(c, pid)) {
				file->process = process_add(c, pid);
				file->fd = atoi(link->d_name);
			}
		}
		if (fds)
			closedir(fds);
	}
	if (proc)
		closedir(proc);
	return found;
}

/* Context: files_lock. */
static void gone(struct container *c, uint32_t number)
{
	if (c->file[number].held >= 0)
		close(c->file[number].held);
	c->file[number].used = false;
	pthread_mutex_lock(&door.lock);
	cgpu_tenant_close(&c->tenant, number);
	cgpu_tenant_close_waiting(&c->tenant);
	pthread_mutex_unlock(&door.lock);
}

/* Context: files_lock. */
static void sweep_watched(struct container *c)
{
	static __thread uint8_t alive[FILES_MAX];
	char path[64], line[256];
	uint32_t i;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", c->epoll);
	info = fopen(path, "re");
	if (!info)
		return;
	memset(alive, 0, sizeof(alive));
	while (fgets(line, sizeof(line), info)) {
		unsigned tfd, events;
		unsigned long long data;

		if (sscanf(line, "tfd: %u events: %x data: %llx", &tfd, &events, &data) == 3 &&
		    data < FILES_MAX)
			alive[data] = 1;
	}
	fclose(info);
	for (i = 1; i < FILES_MAX; i++)
		if (c->file[i].used && c->file[i].held < 0 && !alive[i])
			gone(c, i);
}

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

void files_mapped(struct container *c, uint32_t number, uint64_t base)
{
	pthread_mutex_lock(&c->files_lock);
	c->recent[c->recent_next].file = number;
	c->recent[c->recent_next].base = base;
	c->recent[c->recent_next].when_ns = now_ns();
	c->recent_next = (c->recent_next + 1) % 64;
	pthread_mutex_unlock(&c->files_lock);
}

/* Waits until no mmap is so recent that it may not have happened yet. */
void files_settle(struct container *c)
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

/*
 * Managed memory is unmapped by munmap, by another mapping over it, by exec and
 * by exit, none of which is worth a notification each. What /proc says is
 * mapped is taken instead, before anything is refused and once a second. The
 * other way round it finds what was mapped past us, by a descriptor exchanged
 * between our look at it and the kernel's. Return: false: that does not fit.
 * Context: files_lock.
 */
static bool sweep_managed(struct container *c, uint32_t number)
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
		    r->kind == CGPU_RANGE_EXPORT || r->kind == CGPU_RANGE_CREATED)
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

void files_sweep(struct container *c, bool managed)
{
	struct process *p;
	bool escaped = false;
	uint32_t i;

	pthread_mutex_lock(&c->files_lock);
	for (p = c->processes; p; p = p->next) {
		if (p->pidfd < 0 || !syscall(SYS_pidfd_send_signal, p->pidfd, 0, NULL, 0))
			continue;
		close(p->pidfd);
		p->pidfd = -1;
	}
	sweep_watched(c);
	for (i = 1; i < FILES_MAX; i++) {
		if (!c->file[i].used || c->file[i].device != CGPU_DEVICE_UVM)
			continue;
		if (c->file[i].held >= 0 && !has_holder(c, &c->file[i]))
			gone(c, i);
		else if (managed && !sweep_managed(c, i))
			escaped = true;
	}
	c->dirty = false;
	c->swept_ns = now_ns();
	pthread_mutex_unlock(&c->files_lock);
	pthread_mutex_lock(&door.lock);
	door.count.sweeps++;
	refresh(c);
	pthread_mutex_unlock(&door.lock);
	if (escaped)
		processes_kill(c, "mapped managed memory past its limit");
}

void files_end(struct container *c)
{
	struct process *p, *next;
	uint32_t i;

	pthread_mutex_lock(&c->files_lock);
	for (i = 1; i < FILES_MAX; i++)
		if (c->file[i].used)
			gone(c, i);
	for (p = c->processes; p; p = next) {
		next = p->next;
		if (p->pidfd >= 0)
			close(p->pidfd);
		free(p);
	}
	c->processes = NULL;
	memset(c->tid, 0, sizeof(c->tid));
	pthread_mutex_unlock(&c->files_lock);
	close(c->epoll);
}

void processes_kill(struct container *c, const char *why)
{
	struct process *p;

	pthread_mutex_lock(&c->files_lock);
	for (p = c->processes; p; p = p->next)
		if (p->pidfd >= 0 &&
		    !syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0))
			event("killed id=%s pid=%d %s", c->id, p->pid, why);
	pthread_mutex_unlock(&c->files_lock);
}

/* Context: files_lock. */
bool process_exists(struct container *c, int pid)
{
	struct process *p;

	for (p = c->processes; p; p = p->next)
		if (p->pid == pid && p->pidfd >= 0)
			return true;
	return false;
}
