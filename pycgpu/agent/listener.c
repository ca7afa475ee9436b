// SPDX-License-Identifier: GPL-2.0-only
/*
 * A listener hears of the system calls that one seccomp filter notifies. One of its
 * workers at a time waits for a call, and answers it as ioctl.c and mmap.c say.
 *
 * Workers run without what the driver gives a caller rights by: a tenant gains none
 * through us.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/audit.h>
#include <linux/capability.h>

#include "flight.h"

#ifdef __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#else
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif

/* one per filter of the container's; every worker of it holds it */
struct listener {
	struct container *c;
	int fd;
	uint32_t workers;          /* under door.lock */
	uint32_t waiting;          /* those of them that have no call in hand */
	bool gone;                 /* its last process is; under receiving */
	pthread_mutex_t receiving; /* held by the worker that waits for a notification */
};

bool is_valid(const struct flight *f)
{
	return !ioctl(f->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &f->id);
}

int keep_process(struct flight *f)
{
	struct process *kept;

	/* else its number may be another's by now, and of another container */
	if (!is_valid(f))
		return -EINTR;
	kept = process_keep(f->c, f->process, f->tid);
	if (!kept)
		return -EAGAIN;
	f->process = kept;
	return 0;
}

uint32_t keep_file(struct flight *f, int fd, int local, uint32_t device, uint32_t minor,
		   struct cgpu_call *exported_by)
{
	uint32_t number = file_of(f->c, f->process, fd, local, device, minor, exported_by);

	if (number)
		f->file[f->file_count++] = number;
	return number;
}

static struct answer on_call(struct flight *f, const struct seccomp_notif *n)
{
	struct answer answer;

	/* an OCI profile may let other instruction sets in, which number arguments otherwise */
	if (n->data.arch != NATIVE_ARCH || (n->data.nr != SYS_mmap && n->data.nr != SYS_ioctl))
		return fail(-EPERM);
	f->tid = (int)n->pid;
	f->id = n->id;
	f->fd = f->named = -1;
	f->file_count = 0;
	f->wrapped = false;
	memset(&f->call, 0, sizeof(f->call));
	f->call.card = CGPU_NO_CARD;
	f->process = process_of(f->c, f->tid, &f->thread_table);
	if (!f->process)
		return fail(-ESRCH);
	answer = n->data.nr == SYS_mmap ? on_mmap(f, &n->data) : on_ioctl(f, &n->data);
	if (f->fd >= 0)
		close(f->fd);
	if (f->named >= 0)
		close(f->named);
	while (f->file_count)
		file_put(f->c, f->file[--f->file_count]);
	process_put(f->c, f->process);
	return answer;
}

/* -------------------------------------------------------------- the worker */

/*
 * What the driver asks the calling thread for: an administrator; who may set how often a group
 * comes in the runlist (RS_ACCESS_NICE); who may watch the whole card (RS_ACCESS_PERFMON).
 */
static void drop_rights(void)
{
	enum { PERFMON = 38 }; /* CAP_PERFMON, Linux 5.8 */
	static const unsigned int rights[] = { CAP_SYS_ADMIN, CAP_SYS_NICE, PERFMON };
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2];
	unsigned int i;

	/* of this thread alone; without capabilities there is nothing to drop */
	if (syscall(SYS_capget, &header, caps))
		return;
	for (i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		caps[CAP_TO_INDEX(rights[i])].effective &= ~CAP_TO_MASK(rights[i]);
	syscall(SYS_capset, &header, caps);
}

/* Return: 1: a notification, 0: none after all, -1: the last process is gone, or no listener. */
static int receive(struct listener *l, struct seccomp_notif *n)
{
	struct pollfd p = { l->fd, POLLIN, 0 };
	int got = 0;

	pthread_mutex_lock(&l->receiving);
	if (l->c->ending || l->gone) {
		got = -1;
	} else if (poll(&p, 1, 1000) > 0) {
		memset(n, 0, sizeof(*n));
		if (!(p.revents & POLLIN))
			got = -1;
		else if (!ioctl(l->fd, SECCOMP_IOCTL_NOTIF_RECV, n))
			got = 1;
		else if (errno != ENOENT && errno != EINTR && errno != EAGAIN)
			got = -1; /* whoever waits at such a file never ends */
		l->gone = got < 0;
	}
	pthread_mutex_unlock(&l->receiving);
	return got;
}

void worker_left(struct container *c)
{
	if (!--c->workers) {
		keeper_call(c);
		pthread_cond_broadcast(&door.leaves);
	}
}

/* Context: door.lock. */
static void leave(struct listener *l)
{
	struct container *c = l->c;

	if (!--l->workers) {
		/* who lives is not left to itself because its container ends */
		if (l->gone)
			close(l->fd);
		else
			cgpu_agent_refuse(c->id, l->fd);
		pthread_mutex_destroy(&l->receiving);
		free(l);
		c->listeners--;
	}
	if (!c->listeners && !c->ending)
		unlist(c);
	worker_left(c);
}

static void *work(void *data);

/* Context: door.lock. Return: 0, -EAGAIN. */
static int start_worker(struct listener *l)
{
	pthread_t worker;

	if (pthread_create(&worker, NULL, work, l))
		return -EAGAIN;
	pthread_detach(worker);
	l->workers++;
	l->c->workers++;
	__atomic_add_fetch(&l->waiting, 1, __ATOMIC_RELAXED);
	return 0;
}

/*
 * A call may last, so another worker waits for the next one. There are no more than have been
 * needed: a container has hundreds of listeners, and most of them no calls.
 */
static void recruit(struct listener *l)
{
	struct container *c = l->c;

	pthread_mutex_lock(&door.lock);
	if (!l->waiting && l->workers < WORKERS && c->workers - c->listeners < SPARE_WORKERS)
		start_worker(l);
	pthread_mutex_unlock(&door.lock);
}

static void *work(void *data)
{
	struct listener *l = data;
	struct container *c = l->c;
	struct flight *f = calloc(1, sizeof(*f));
	struct seccomp_notif n;
	int got;

	prctl(PR_SET_NAME, "cgpud-listener");
	drop_rights();
	while (f && door.running && (got = receive(l, &n)) >= 0) {
		struct seccomp_notif_resp response = { 0 };
		struct answer answer;
		uint64_t start;

		if (!got)
			continue;
		start = now_ns();
		if (!__atomic_sub_fetch(&l->waiting, 1, __ATOMIC_RELAXED))
			recruit(l);
		f->c = c;
		f->listener = l->fd;
		answer = on_call(f, &n);
		response.id = n.id;
		if (answer.forward)
			response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		else
			response.error = answer.error;
		c->called_ns = now_ns();
		if (answer.forward && f->call.req.op == CGPU_OP_ALLOC)
			c->carried_ns = c->called_ns;
		/* ENOENT: the caller was killed meanwhile */
		ioctl(l->fd, SECCOMP_IOCTL_NOTIF_SEND, &response);
		__atomic_add_fetch(&l->waiting, 1, __ATOMIC_RELAXED);
		pthread_mutex_lock(&door.lock);
		door.count.calls++;
		door.count.continued += answer.forward;
		door.count.busy_ns += now_ns() - start;
		pthread_mutex_unlock(&door.lock);
	}
	if (f) {
		free(f->params);
		free(f->before);
	}
	free(f);
	pthread_mutex_lock(&door.lock);
	leave(l);
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

int listener_start(struct container *c, int fd)
{
	uint64_t flags = 1; /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6 */
	struct listener *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->c = c;
	l->fd = fd;
	pthread_mutex_init(&l->receiving, NULL);
	ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags);
	if (start_worker(l)) {
		pthread_mutex_destroy(&l->receiving);
		free(l);
		return -EAGAIN;
	}
	c->listeners++;
	c->attached = true;
	return 0;
}
