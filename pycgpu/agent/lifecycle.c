// SPDX-License-Identifier: GPL-2.0-only
/*
 * How containers come and go. One is created by `create`, for a process or a cgroup,
 * and lives until the last process that carries its seccomp filter is gone, which the
 * kernel tells by hanging up the listener; without a listener, until what it was
 * created for has ended. A thread looks ten times a second, and at once when the last
 * listener's thread of one has left: until then its memory is charged to nobody who is
 * listed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "door.h"

enum {
	OBJECTS_MAX = 1 << 18,
	LOOK_NS = 100000000,
	SWEEP_NS = 1000000000,
	UNPOPULATED_GRACE_S = 60
};

static pthread_t housekeeper;

static void container_free(struct container *c)
{
	uint32_t table;

	userd_end(c);
	for (table = 0; table < CGPU_TABLE_COUNT; table++)
		free(cgpu_tenant_storage(&c->tenant, table));
	if (c->watched_pidfd >= 0)
		close(c->watched_pidfd);
	free(c);
}

static int create_container(struct cgpu_create *create)
{
	struct container *c = calloc(1, sizeof(*c));
	int err = 0;

	if (!c)
		return -ENOMEM;
	strcpy(c->id, create->id);
	c->watched_pidfd = c->epoll = -1;
	c->created_ns = now_ns();
	pthread_mutex_init(&c->files_lock, NULL);
	cgpu_tenant_init(&c->tenant, OBJECTS_MAX);
	c->tenant.files_max = door.files_max;
	if (create->pid) {
		c->watched_pidfd = (int)syscall(SYS_pidfd_open, create->pid, 0);
		if (c->watched_pidfd < 0)
			err = -ESRCH;
	} else {
		struct stat st;

		strcpy(c->cgroup, create->cgroup);
		if (stat(c->cgroup, &st) || !S_ISDIR(st.st_mode))
			err = -ENOENT;
	}
	if (!err) {
		c->epoll = epoll_create1(EPOLL_CLOEXEC);
		if (c->epoll < 0)
			err = -errno;
	}
	if (!err) {
		pthread_mutex_lock(&door.lock);
		err = registry_add(c, create);
		pthread_mutex_unlock(&door.lock);
	}
	if (err) {
		if (c->epoll >= 0)
			close(c->epoll);
		container_free(c);
		return err;
	}
	event("create id=%s", create->id);
	return 0;
}

static int destroy_container(const char *id)
{
	struct container *c;
	int err = 0;

	pthread_mutex_lock(&door.lock);
	c = find_container(id);
	if (!c)
		err = -ENOENT;
	else if (!cgpu_tenant_idle(&c->tenant))
		err = -EBUSY;
	else
		unlist(c);
	pthread_mutex_unlock(&door.lock);
	return err;
}

int cgpu_agent_command(const char *text, int length)
{
	struct cgpu_command command;
	struct container *c;
	int err;

	if (length <= 0 || length > CGPU_COMMAND_MAX)
		return -EINVAL;
	memset(&command, 0, sizeof(command));
	err = cgpu_parse_inst_ctl(text, (size_t)length, &command);
	if (err)
		return err;
	if (command.verb == CGPU_VERB_CREATE)
		return create_container(&command.create);
	/* what its processes closed a moment ago shall not keep it */
	pthread_rwlock_rdlock(&door.life);
	pthread_mutex_lock(&door.lock);
	c = find_container(command.create.id);
	pthread_mutex_unlock(&door.lock);
	if (c)
		files_sweep(c, true);
	pthread_rwlock_unlock(&door.life);
	return destroy_container(command.create.id);
}

int cgpu_agent_attach(const char *id, int listener)
{
	struct container *c;
	int err = 0;

	pthread_rwlock_rdlock(&door.life);
	pthread_mutex_lock(&door.lock);
	c = find_container(id);
	if (!c)
		err = -ENOENT;
	else if (c->listeners >= LISTENERS_MAX)
		err = -ENOSPC;
	else
		err = listener_start(c, listener);
	pthread_mutex_unlock(&door.lock);
	pthread_rwlock_unlock(&door.life);
	return err;
}

/* ----------------------------------------------------------------- the end */

static bool cgroup_is_empty(const char *path)
{
	char name[1100];
	FILE *file;
	int pid, found;

	snprintf(name, sizeof(name), "%s/cgroup.procs", path);
	file = fopen(name, "re");
	if (!file)
		return true;
	found = fscanf(file, "%d", &pid) == 1;
	fclose(file);
	return !found;
}

/* A container without a listener ends with what it was created for. */
static bool unattached_ended(struct container *c)
{
	if (c->watched_pidfd >= 0)
		return syscall(SYS_pidfd_send_signal, c->watched_pidfd, 0, NULL, 0) != 0;
	if (!cgroup_is_empty(c->cgroup)) {
		c->populated = true;
		return false;
	}
	return c->populated ||
	       now_ns() - c->created_ns > UNPOPULATED_GRACE_S * 1000000000ULL;
}

static void look_at(int slot)
{
	struct container *c = door.container[slot];
	bool ended, sweep, managed;

	pthread_mutex_lock(&door.lock);
	if (!c->ending && !c->attached && unattached_ended(c))
		unlist(c);
	ended = c->ending && !c->workers;
	send_again(c);
	pthread_mutex_unlock(&door.lock);
	if (ended) {
		files_end(c);
		pthread_rwlock_wrlock(&door.life);
		pthread_mutex_lock(&door.lock);
		door.container[slot] = NULL;
		pthread_mutex_unlock(&door.lock);
		pthread_rwlock_unlock(&door.life);
		container_free(c);
		return;
	}
	pthread_mutex_lock(&c->files_lock);
	for (struct process *p = c->processes; p; p = p->next)
		if (p->pidfd >= 0 && syscall(SYS_pidfd_send_signal, p->pidfd, 0, NULL, 0))
			c->dirty = true;
	/* a thousand lines of /proc/PID/maps take a millisecond and more */
	managed = c->dirty || is_audit_due(c->managed_ns, c->called_ns);
	sweep = c->dirty || (c->processes && now_ns() - c->swept_ns > SWEEP_NS);
	pthread_mutex_unlock(&c->files_lock);
	if (sweep)
		files_sweep(c, managed);
	if (c->processes)
		audit(c);
}

/* Context: door.lock, released meanwhile. */
static void wait_for_leaver(uint64_t until_ns)
{
	struct timespec at = { (time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000) };

	pthread_cond_timedwait(&door.leaves, &door.lock, &at);
}

static void *housekeep(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "cgpud-lifecycle");
	while (door.running) {
		int i;

		for (i = 0; i < CONTAINERS_MAX; i++)
			if (door.container[i])
				look_at(i);
		pthread_mutex_lock(&door.lock);
		if (!door.left)
			wait_for_leaver(now_ns() + LOOK_NS);
		door.left = false;
		pthread_mutex_unlock(&door.lock);
	}
	return NULL;
}

void lifecycle_start(void)
{
	pthread_create(&housekeeper, NULL, housekeep, NULL);
}

void lifecycle_stop(void)
{
	pthread_join(housekeeper, NULL);
}
