// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells which open file a tenant's descriptor is, and when that file is gone, without holding it. A
 * duplicate would keep the driver from cleaning up.
 *
 * An epoll instance does that. It holds no reference on the files that it watches, and forgets a
 * file at its last close. kcmp(KCMP_EPOLL_TFD) tells whether a descriptor is a watched file, and
 * fdinfo lists those still there. A file is watched under a descriptor of ours that is closed at
 * once. Its number, door.tfd_base + the core's number of the file, finds it again.
 *
 * If the driver's UVM device cannot be polled this way is closed. Then the agent holds a duplicate
 * while a process has the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "host/host.h"
#include "tenant/tenant.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

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
		file->held = fcntl(local, F_DUPFD_CLOEXEC, STATE_FD_FIRST);
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
		/* before it is watched: a watched file outside the table would stay watched */
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

/* Returns a pidfd of the process that had it last, and its numbers. The caller closes the pidfd. */
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

int duplicate(struct container *c, struct process *p, int tid, bool thread_table, int fd,
	      uint32_t *device, uint32_t *minor)
{
	int pidfd, got = 0;

	/* for a file seen there before, the other look agrees and takes three times as long */
	if (!file_is_known(c, p, tid, fd))
		got = device_behind(tid, fd, minor);
	if (got < 0)
		return got;
	if (!thread_table)
		return device_take(c, p->pidfd, fd, device, minor);
	/* Linux 6.9 and newer; an older kernel refuses such a thread */
	pidfd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
	if (pidfd < 0)
		return -EPERM;
	got = device_take(c, pidfd, fd, device, minor);
	close(pidfd);
	return got;
}

/* ------------------------------------------------------------ what is gone */

void file_gone(struct container *c, uint32_t number)
{
	int held = c->file[number].held;

	managed_unbind(c, number);
	c->file[number].used = false;
	/* a number that the state has never names another file */
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

void files_end(struct container *c)
{
	uint32_t i;

	/* other processes may have been sent the file */
	for (i = 1; i < FILES_MAX; i++)
		if (c->file[i].used && c->file[i].held >= 0)
			managed_withdraw(c, i);
	pthread_mutex_lock(&c->files_lock);
	for (i = 1; i < FILES_MAX; i++)
		if (c->file[i].used)
			file_gone(c, i);
	processes_end(c);
	pthread_mutex_unlock(&c->files_lock);
	close(c->epoll);
}

/* Return: NULL if it is no longer listed. */
static struct process *still_listed(struct container *c, struct process *wanted)
{
	struct process *p;

	for (p = c->processes; p && p != wanted; p = p->next)
		;
	return p;
}

/* Drops what was under way, and every file of the core's that is not in this table. */
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
