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
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "gate/gate.h"
#include "host/host.h"
#include "tenant/tenant.h"

enum {
	/* who holds files of a container that was killed is looked for until nobody is found */
	HOLDERS_LOOKS = 3,
	HOLDERS_PAUSE_NS = 100000000,
	HOLDERS_PAUSE_MAX_NS = 999999999,
	/* a million descriptors take five seconds and more to look at */
	CALL_PATIENCE_NS = 500000000
};

#define OWN_PATIENCE_NS 10000000000ULL

/* TFD numbers are shared by all containers for the moment of watching */
static pthread_mutex_t tfd_lock = PTHREAD_MUTEX_INITIALIZER;

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
	uint64_t host_bytes;
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
		host_bytes = memory_limit(p->pid);
		pthread_mutex_lock(&door.lock);
		make_room(c);
		change_begin(c, NULL);
		if (exported_by)
			change_keep(exported_by, sizeof(*exported_by));
		cgpu_ledger_limit_host(&c->tenant.ledger, host_bytes);
		number = exported_by ? cgpu_call_open_dmabuf(&c->tenant, exported_by) :
			 cgpu_tenant_open(&c->tenant, device, minor, (uint32_t)p->pid);
		change_end();
		pthread_mutex_unlock(&door.lock);
		/* before it is watched: what is watched and no file of ours would stay so */
		if (number) {
			c->file[number].device = device;
			c->file[number].minor = minor;
			c->file[number].owner = NULL;
			c->file[number].space++;
			c->file[number].held = c->file[number].maps = c->file[number].mem = -1;
			c->file[number].process = p;
			c->file[number].fd = fd;
			c->file[number].users = 0;
			c->file[number].used = true;
		}
		if (number && !watch(c, number, local)) {
			c->file[number].used = false;
			pthread_mutex_lock(&door.lock);
			change_begin(c, NULL);
			cgpu_tenant_close(&c->tenant, number);
			change_end();
			let_go(c);
			pthread_mutex_unlock(&door.lock);
			number = 0;
		}
	}
	if (number) {
		c->file[number].seen++;
		c->file[number].users++;
		if (fd >= 0 && fd < FDS)
			p->file[fd] = number;
		c->file[number].process = p;
		c->file[number].fd = fd;
	}
	pthread_mutex_unlock(&c->files_lock);
	return number;
}

void file_put(struct container *c, uint32_t number)
{
	pthread_mutex_lock(&c->files_lock);
	c->file[number].users--;
	pthread_mutex_unlock(&c->files_lock);
}

/* A pidfd of the process that had it last, the caller's to close, and its numbers. */
static int last_seen(struct container *c, uint32_t number, int *pid, int *fd)
{
	struct file *file = &c->file[number];
	int pidfd = -ESRCH;

	pthread_mutex_lock(&c->files_lock);
	if (number < FILES_MAX && file->used && file->process && file->process->pidfd >= 0) {
		*fd = file->fd;
		*pid = file->process->pid;
		pidfd = fcntl(file->process->pidfd, F_DUPFD_CLOEXEC, 0);
		if (pidfd < 0)
			pidfd = -errno;
	}
	pthread_mutex_unlock(&c->files_lock);
	return pidfd;
}

int file_duplicate(struct container *c, uint32_t number)
{
	int pid, fd, pidfd = last_seen(c, number, &pid, &fd), got;
	uint32_t device, minor;
	bool same;

	if (pidfd < 0)
		return pidfd;
	got = device_behind(pid, fd, &minor);
	if (got >= 0)
		got = device_take(c, pidfd, fd, &device, &minor);
	close(pidfd);
	if (got < 0)
		return got;
	pthread_mutex_lock(&c->files_lock);
	same = c->file[number].used && is_file(c, number, got);
	pthread_mutex_unlock(&c->files_lock);
	if (same)
		return got;
	close(got);
	return -EBADF;
}

/* ------------------------------------------------------------ what is gone */

bool file_is_at(struct container *c, uint32_t number, int held, int tid, int fd)
{
	struct kcmp_epoll_slot slot = { (uint32_t)c->epoll, (uint32_t)door.tfd_base + number, 0 };
	int self = getpid();

	if (held >= 0)
		return !syscall(SYS_kcmp, tid, self, KCMP_FILE, fd, held);
	return !syscall(SYS_kcmp, tid, self, KCMP_EPOLL_TFD, fd, &slot);
}

bool file_is_known(struct container *c, const struct process *p, int tid, int fd)
{
	uint32_t number = fd >= 0 && fd < FDS ? p->file[fd] : 0;

	return number && c->file[number].used &&
	       file_is_at(c, number, c->file[number].held, tid, fd);
}

bool is_shortage(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOMEM;
}

/* What is done with a descriptor that is one of the driver's. Return: true: no more. */
typedef bool (*found_fn)(struct container *c, int pid, int tid, int fd, int device,
			 uint32_t minor, void *data);

/* A look at what descriptors there are, of which anybody may have millions. */
struct round {
	struct container *c;
	found_fn found;
	void *data;
	uint64_t end_ns;         /* 0: none */
	bool ran_out;            /* of time */
};

static bool is_late(struct round *r)
{
	r->ran_out |= r->end_ns && now_ns() > r->end_ns;
	return r->ran_out;
}

/* Return: what `found` did last; true: it could not be looked at, or not to its end. */
static bool descriptors(struct round *r, int pid, int tid)
{
	struct dirent *link;
	bool enough = false, first = true;
	uint32_t minor;
	char path[64];
	int device, fd;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", tid);
	fds = opendir(path);
	enough = !fds && is_shortage(errno);
	while (fds && !enough && (link = readdir(fds))) {
		if (link->d_name[0] == '.')
			continue;
		fd = atoi(link->d_name);
		device = device_behind(tid, fd, &minor);
		if (device >= 0 && first && device_shares_table(getpid(), tid))
			break;
		first &= device < 0;
		enough = is_late(r) ||
			 (device >= 0 && r->found(r->c, pid, tid, fd, device, minor, r->data));
	}
	if (fds)
		closedir(fds);
	return enough;
}

/*
 * A process's first thread may have ended, and has no descriptors any more; and any may have
 * made a table of its own. Return: as above.
 */
static bool threads(struct round *r, int pid)
{
	struct dirent *entry;
	bool enough = false;
	int last = 0, tid;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	enough = !tasks && is_shortage(errno);
	while (tasks && !enough && (entry = readdir(tasks))) {
		tid = atoi(entry->d_name);
		enough = is_late(r);
		if (enough || tid <= 0 ||
		    (last && !syscall(SYS_kcmp, last, tid, KCMP_FILES, 0, 0)))
			continue;
		enough = descriptors(r, pid, tid);
		last = tid;
	}
	if (tasks)
		closedir(tasks);
	return enough;
}

/* Asks every process but this one. Return: as above. */
static bool everybody(struct round *r)
{
	int self = getpid(), pid;
	struct dirent *entry;
	bool enough = false;
	DIR *proc;

	proc = opendir("/proc");
	enough = !proc;
	while (proc && !enough && (entry = readdir(proc))) {
		pid = atoi(entry->d_name);
		if (pid > 0 && pid != self)
			enough = threads(r, pid);
	}
	if (proc)
		closedir(proc);
	return enough;
}

/* A file that nobody was found to have where it was seen last. */
struct lost {
	uint32_t number, seen;
	int held;
	bool found;
};

/* All of a container's, by the kernel's order of files. */
struct search {
	struct lost lost[FILES_MAX];
	uint32_t count, left;
};

static int in_order(const void *a, const void *b)
{
	int self = getpid();
	long order = syscall(SYS_kcmp, self, self, KCMP_FILE, ((const struct lost *)a)->held,
			     ((const struct lost *)b)->held);

	return order == 1 ? -1 : order != 0;
}

static struct lost *find_lost(struct search *search, int tid, int fd)
{
	uint32_t low = 0, high = search->count;
	int self = getpid();

	while (low < high) {
		uint32_t middle = (low + high) / 2;
		long order = syscall(SYS_kcmp, tid, self, KCMP_FILE, fd,
				     search->lost[middle].held);

		if (!order)
			return &search->lost[middle];
		/* -1: it is gone meanwhile */
		if (order < 0)
			return NULL;
		if (order == 1)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

static bool holds(struct container *c, int pid, int tid, int fd, int device, uint32_t minor,
		  void *data)
{
	struct search *search = data;
	struct lost *lost;

	(void)minor;
	lost = device == CGPU_DEVICE_UVM ? find_lost(search, tid, fd) : NULL;
	if (!lost)
		return false;
	/* by a process's number its first thread's table is meant */
	if (tid == pid && process_exists(c, pid)) {
		pthread_mutex_lock(&c->files_lock);
		c->file[lost->number].process = process_add(c, pid);
		c->file[lost->number].fd = fd;
		pthread_mutex_unlock(&c->files_lock);
	}
	search->left -= !lost->found;
	lost->found = true;
	return !search->left;
}

/* Context: files_lock. */
static void gone(struct container *c, uint32_t number)
{
	int held = c->file[number].held;

	managed_unbind(c, number);
	c->file[number].used = false;
	/* a number that the state has is never another's */
	if (held >= 0)
		close(held);
	pthread_mutex_lock(&door.lock);
	change_begin(c, NULL);
	cgpu_tenant_close(&c->tenant, number);
	change_end();
	clients_forget(c, number);
	let_go(c);
	pthread_mutex_unlock(&door.lock);
}

/* Context: look_lock. */
static void forget(struct container *c, uint32_t number, uint32_t seen)
{
	if (!managed_withdraw(c, number))
		return;
	pthread_mutex_lock(&c->files_lock);
	/* one that came to somebody meanwhile is no more gone */
	if (c->file[number].seen == seen && !c->file[number].users)
		gone(c, number);
	pthread_mutex_unlock(&c->files_lock);
}

/* Of what nobody has where it was last; what cannot be seen is given up. Context: look_lock. */
static void list_lost(struct container *c, struct search *search)
{
	uint32_t i;

	for (i = 1; i < FILES_MAX; i++) {
		struct file *file = &c->file[i];
		struct lost lost = { .number = i };
		int pid, fd;
		bool skip, blind;

		if (!file->used || file->held < 0)
			continue;
		blind = managed_is_blind(c, i);
		pthread_mutex_lock(&c->files_lock);
		skip = !file->used || file->held < 0 || file->users;
		lost.seen = file->seen;
		lost.held = file->held;
		pid = file->process && file->process->pidfd >= 0 ? file->process->pid : 0;
		fd = file->fd;
		pthread_mutex_unlock(&c->files_lock);
		if (!skip && blind)
			forget(c, i, lost.seen);
		else if (!skip && !(pid && file_is_at(c, i, lost.held, pid, fd)))
			search->lost[search->count++] = lost;
	}
	search->left = search->count;
	qsort(search->lost, search->count, sizeof(search->lost[0]), in_order);
}

/* The next of the container's files that may be this one, and a duplicate of its `held`. */
static uint32_t find_file(struct container *c, uint32_t number, uint32_t device, uint32_t minor,
			  int *held)
{
	const struct file *file;

	pthread_mutex_lock(&c->files_lock);
	for (; number < FILES_MAX; number++) {
		file = &c->file[number];
		if (file->used && file->device == device && file->minor == minor)
			break;
	}
	*held = number < FILES_MAX && c->file[number].held >= 0 ?
		fcntl(c->file[number].held, F_DUPFD_CLOEXEC, 0) : -1;
	pthread_mutex_unlock(&c->files_lock);
	return number;
}

static bool kill_holder(struct container *c, int pid, int tid, int fd, int device,
			uint32_t minor, void *data)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	uint32_t i = 1, *killed = data;
	bool its = false;
	int held;

	for (; pidfd >= 0 && !its; i++) {
		i = find_file(c, i, (uint32_t)device, minor, &held);
		if (i == FILES_MAX)
			break;
		its = file_is_at(c, i, held, tid, fd);
		if (held >= 0)
			close(held);
	}
	if (its && !syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0))
		++*killed;
	if (pidfd >= 0)
		close(pidfd);
	return false;
}

static void *kill_holders(void *data)
{
	struct container *c = data;
	struct timespec pause = { 0, HOLDERS_PAUSE_NS };
	uint32_t killed, none = 0;

	prctl(PR_SET_NAME, "cgpud-end");
	/* what is killed still has its files for a moment, and may have given them on */
	while (door.running && none < HOLDERS_LOOKS) {
		struct round all = { c, kill_holder, &killed, 0, false };

		killed = 0;
		everybody(&all);
		none = killed ? 0 : none + 1;
		nanosleep(&pause, NULL);
		/* or does not end for as long as a file system of its own likes */
		pause.tv_nsec = pause.tv_nsec < HOLDERS_PAUSE_MAX_NS / 2 ?
				2 * pause.tv_nsec : HOLDERS_PAUSE_MAX_NS;
	}
	pthread_mutex_lock(&door.lock);
	c->condemned = false;
	worker_left(c);
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

void holders_kill(struct container *c)
{
	pthread_t thread;

	pthread_mutex_lock(&door.lock);
	if (!c->condemned && !c->ending && !pthread_create(&thread, NULL, kill_holders, c)) {
		pthread_detach(thread);
		c->condemned = true;
		c->workers++;
	}
	pthread_mutex_unlock(&door.lock);
}

/* Context: files_lock. */
static void sweep_watched(struct container *c)
{
	static __thread uint8_t alive[FILES_MAX];
	char path[64], line[256];
	uint32_t i;
	FILE *info;
	bool read;

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
	read = !ferror(info);
	fclose(info);
	for (i = 1; read && i < FILES_MAX; i++)
		if (c->file[i].used && c->file[i].held < 0 && !alive[i])
			gone(c, i);
}

/* Those that use the driver come first. */
static bool its_own(struct round *r)
{
	uint32_t pids[PROCESSES_MAX], count = process_numbers(r->c, pids), i;
	bool enough = false;

	for (i = 0; i < count && !enough; i++)
		enough = threads(r, (int)pids[i]);
	return enough;
}

/*
 * What a child inherited or somebody was sent is found by a look at everybody's descriptors: one
 * for all such files, and for so long, as anybody may have millions. Who is looked for longer is
 * taken for gone if it is the container's own thread that looks. Context: look_lock.
 */
static void sweep_held(struct container *c, uint64_t patience_ns, bool own)
{
	struct search *search = calloc(1, sizeof(*search));
	struct round all = { c, holds, search, now_ns() + patience_ns, false };
	bool looked;
	uint32_t i;

	if (!search)
		return;
	list_lost(c, search);
	looked = search->count && !its_own(&all) && !everybody(&all);
	looked |= all.ran_out && own;
	for (i = 0; looked && i < search->count; i++) {
		const struct lost *lost = &search->lost[i];

		if (!lost->found)
			forget(c, lost->number, lost->seen);
	}
	free(search);
}

static bool take_in_time(pthread_mutex_t *lock, uint64_t patience_ns)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)(((uint64_t)until.tv_nsec + patience_ns) / 1000000000);
	until.tv_nsec = (long)(((uint64_t)until.tv_nsec + patience_ns) % 1000000000);
	return !pthread_mutex_timedlock(lock, &until);
}

/* `own`: by the container's own thread, for which nobody waits. */
static void sweep(struct container *c, bool managed, bool own)
{
	uint64_t patience_ns = own ? OWN_PATIENCE_NS : CALL_PATIENCE_NS;
	const char *why = NULL;

	/* of two looks at what is mapped the older must not be taken for the newer */
	pthread_mutex_lock(&c->sweep_lock);
	pthread_mutex_lock(&c->files_lock);
	processes_reap(c);
	sweep_watched(c);
	c->dirty = false;
	pthread_mutex_unlock(&c->files_lock);
	c->swept_ns = now_ns();
	if (managed) {
		c->managed_ns = c->swept_ns;
		why = managed_sweep(c);
	}
	pthread_mutex_unlock(&c->sweep_lock);
	if (why)
		processes_kill(c, why);
	if (take_in_time(&c->look_lock, patience_ns)) {
		sweep_held(c, patience_ns, own);
		pthread_mutex_unlock(&c->look_lock);
	}
	pthread_mutex_lock(&door.lock);
	door.count.sweeps++;
	refresh(c);
	pthread_mutex_unlock(&door.lock);
	userd_release(c);
}

void files_sweep(struct container *c, bool managed)
{
	sweep(c, managed, true);
}

void files_sweep_for_call(struct container *c, bool managed)
{
	sweep(c, managed, false);
}

void files_end(struct container *c)
{
	uint32_t i;

	/* others may have been sent one */
	for (i = 1; i < FILES_MAX; i++)
		if (c->file[i].used && c->file[i].held >= 0)
			managed_withdraw(c, i);
	pthread_mutex_lock(&c->files_lock);
	for (i = 1; i < FILES_MAX; i++)
		if (c->file[i].used)
			gone(c, i);
	processes_end(c);
	pthread_mutex_unlock(&c->files_lock);
	close(c->epoll);
}

/* NULL if it is listed no more. */
static struct process *still_listed(struct container *c, struct process *wanted)
{
	struct process *p;

	for (p = c->processes; p && p != wanted; p = p->next)
		;
	return p;
}

/* What was under way is nobody's, and no file is the core's that is none here. */
void files_adopt(struct container *c)
{
	uint32_t i;

	c->spaces = 0;
	for (i = 1; i < FILES_MAX; i++) {
		struct file *file = &c->file[i];

		if (!file->used)
			continue;
		file->users = 0;
		file->process = still_listed(c, file->process);
		file->owner = still_listed(c, file->owner);
		c->spaces += file->owner != NULL;
	}
	pthread_mutex_lock(&door.lock);
	for (i = 1; i < c->tenant.files.touched && i < FILES_MAX; i++) {
		const struct cgpu_file *file = cgpu_tenant_file(&c->tenant, i);

		if (c->file[i].used || (!file->device && !file->root) || file->closing)
			continue;
		change_begin(c, NULL);
		cgpu_tenant_close(&c->tenant, i);
		change_end();
		clients_forget(c, i);
	}
	let_go(c);
	pthread_mutex_unlock(&door.lock);
}
