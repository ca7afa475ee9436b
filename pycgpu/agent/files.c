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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "door.h"

enum {
	NVIDIA_MAJOR = 195,
	NVIDIACTL_MINOR = 255
};

/* TFD numbers are shared by all containers for the moment of watching */
static pthread_mutex_t tfd_lock = PTHREAD_MUTEX_INITIALIZER;

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
			c->file[number].owner = NULL;
			c->file[number].maps = c->file[number].mem = -1;
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
	managed_unbind(c, number);
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
		else if (managed && !managed_sweep(c, i))
			escaped = true;
	}
	c->dirty = false;
	c->swept_ns = now_ns();
	if (managed)
		c->managed_ns = c->swept_ns;
	pthread_mutex_unlock(&c->files_lock);
	pthread_mutex_lock(&door.lock);
	door.count.sweeps++;
	refresh(c);
	pthread_mutex_unlock(&door.lock);
	userd_release(c);
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
