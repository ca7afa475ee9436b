// SPDX-License-Identifier: GPL-2.0-only
/*
 * A listener hears of the system calls that one seccomp filter notifies. One of its workers at a
 * time waits for a call, and answers it as ioctl.c and mmap.c say.
 *
 * Workers run without the capabilities by which the driver gives a caller rights. So a tenant gains
 * none through us.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/audit.h>
#include <linux/capability.h>

#include "agent.h"
#include "call/call.h"
#include "card/card.h"
#include "tenant/tenant.h"

#ifdef __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#else
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif

/* one per filter of the container's, in the state; every worker of it holds it */
struct listener {
	struct listener *next;     /* under door.lock, */
	struct container *c;
	int fd;
	uint32_t workers;          /* and this; each has a flight */
	uint32_t waiting;          /* the workers that have no call in hand */
	bool gone;                 /* its last process is gone; under receiving */
	pthread_mutex_t receiving; /* held by the worker that waits for a notification */
	struct flight *flight[WORKERS];
};

static struct answer judge(struct flight *f)
{
	const struct seccomp_notif *n = &f->notif;
	struct answer answer;

	/* an OCI profile may let in other instruction sets, which number arguments differently */
	if (n->data.arch != NATIVE_ARCH || (n->data.nr != SYS_mmap && n->data.nr != SYS_ioctl))
		return fail(-EPERM);
	f->tid = (int)n->pid;
	f->id = n->id;
	f->fd = f->named = f->dmabuf = f->handed = -1;
	f->file_count = 0;
	f->wrapped = false;
	memset(&f->call, 0, sizeof(f->call));
	f->call.card = CGPU_NO_CARD;
	f->process = process_of(f->c, f->tid, &f->thread_table);
	if (!f->process)
		return fail(-ESRCH);
	answer = n->data.nr == SYS_mmap ? on_mmap(f, &n->data) : on_ioctl(f, &n->data);
	let_go_of(f);
	return answer;
}

/* The calls that an agent before had in hand. */
static struct answer judge_again(struct flight *f)
{
	struct answer answer;

	if (f->stage.at < STAGE_PERFORMED && !was_performed(f)) {
		f->again |= f->stage.at == STAGE_ASKED;
		take_back(f);
		let_go_of(f);
		return judge(f);
	}
	f->fd = file_duplicate(f->c, f->call.file);
	answer = on_ioctl_again(f);
	let_go_of(f);
	return answer;
}

/* -------------------------------------------------------------- the worker */

/*
 * The driver asks the calling thread for these capabilities. They make it an administrator, let it
 * set how often a group comes in the runlist (RS_ACCESS_NICE), or watch the whole card
 * (RS_ACCESS_PERFMON).
 */
static void drop_rights(void)
{
	enum { PERFMON = 38 }; /* CAP_PERFMON, Linux 5.8 */
	static const unsigned int rights[] = { CAP_SYS_ADMIN, CAP_SYS_NICE, PERFMON };
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2];
	unsigned int i;

	/* of this thread alone; without capabilities nothing is to be dropped */
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
			got = -1; /* a wait at such a file never ends */
		l->gone = got < 0;
	}
	pthread_mutex_unlock(&l->receiving);
	return got;
}

static void *work(void *data);

/* A thread for a call that is in hand, or for the next. Context: door.lock. Return: 0, -EAGAIN. */
static int start_worker(struct listener *l, struct flight *f)
{
	pthread_t worker;

	if (pthread_create(&worker, NULL, work, f))
		return -EAGAIN;
	pthread_detach(worker);
	l->workers++;
	l->c->workers++;
	__atomic_add_fetch(&l->waiting, 1, __ATOMIC_RELAXED);
	return 0;
}

/* Context: door.lock. Return: NULL: the container has as many as it may, or no memory is left. */
static struct flight *make_flight(struct listener *l)
{
	struct flight *f;
	int i;

	for (i = 0; i < WORKERS && l->flight[i]; i++)
		;
	f = i < WORKERS ? arena_alloc(sizeof(*f)) : NULL;
	if (!f)
		return NULL;
	f->c = l->c;
	f->listener_of = l;
	f->listener = l->fd;
	f->fd = f->named = f->dmabuf = -1;
	l->flight[i] = f;
	return f;
}

static void free_flight(struct flight *f)
{
	struct listener *l = f->listener_of;
	int i;

	for (i = 0; i < WORKERS; i++)
		if (l->flight[i] == f)
			l->flight[i] = NULL;
	arena_free(f->params);
	arena_free(f->before);
	arena_free(f);
}

/*
 * A call may last, so another worker waits for the next one. There are only as many as have been
 * needed: a container has hundreds of listeners, and most get no calls.
 */
static void recruit(struct listener *l)
{
	struct container *c = l->c;
	struct flight *f = NULL;

	pthread_mutex_lock(&door.lock);
	if (!l->waiting && l->workers < WORKERS && c->workers - c->listeners < SPARE_WORKERS)
		f = make_flight(l);
	if (f && start_worker(l, f))
		free_flight(f);
	pthread_mutex_unlock(&door.lock);
}

/* Context: door.lock. */
static void leave(struct flight *f)
{
	struct listener *l = f->listener_of, **at;
	struct container *c = l->c;
	bool gone = l->gone;
	int fd = l->fd;

	free_flight(f);
	if (!--l->workers) {
		for (at = &c->listener; *at != l; at = &(*at)->next)
			;
		*at = l->next;
		c->listeners--;
		pthread_mutex_destroy(&l->receiving);
		/*
		 * processes that outlive their container do not become free to answer their own
		 * calls
		 */
		if (!gone)
			cgpu_agent_refuse(c->id, fd);
		arena_free(l);
		/* a number that the state has never names another file */
		if (gone)
			close(fd);
	}
	if (!c->listeners && !c->ending && !has_members(c))
		unlist(c);
	worker_left(c);
}

/* Answers the call in hand, which an agent before this one may have begun. */
static void answer(struct flight *f)
{
	struct container *c = f->c;
	struct seccomp_notif_resp response = { .id = f->notif.id };
	struct listener *l = f->listener_of;
	uint64_t start = now_ns();

	if (!__atomic_sub_fetch(&l->waiting, 1, __ATOMIC_RELAXED))
		recruit(l);
	if (f->stage.at != STAGE_ANSWERED)
		f->answer = f->stage.at == STAGE_RECEIVED ? judge(f) : judge_again(f);
	f->stage.at = STAGE_ANSWERED;
	if (f->answer.forward)
		response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else
		response.error = f->answer.error;
	c->called_ns = now_ns();
	if (f->answer.forward && f->call.req.op == CGPU_OP_ALLOC)
		c->carried_ns = c->called_ns;
	/* ENOENT: the caller was killed meanwhile, or it was answered before an agent ended */
	ioctl(f->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
	f->notif.id = 0;
	__atomic_add_fetch(&l->waiting, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&door.lock);
	door.count.calls++;
	door.count.continued += f->answer.forward;
	door.count.busy_ns += now_ns() - start;
	pthread_mutex_unlock(&door.lock);
}

static void *work(void *data)
{
	struct flight *f = data;
	struct listener *l = f->listener_of;
	int got = 0;

	prctl(PR_SET_NAME, "cgpud-listener");
	drop_rights();
	while (door.running && got >= 0) {
		if (f->notif.id) {
			answer(f);
			continue;
		}
		memset(&f->stage, 0, sizeof(f->stage));
		f->again = false;
		got = receive(l, &f->notif);
	}
	/* the next agent resumes the call */
	if (!door.running)
		return NULL;
	pthread_mutex_lock(&door.lock);
	leave(f);
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

int listener_start(struct container *c, int fd)
{
	uint64_t flags = 1; /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6 */
	struct listener *l = arena_alloc(sizeof(*l));
	struct flight *f;

	if (!l)
		return -ENOMEM;
	l->c = c;
	l->fd = fd;
	pthread_mutex_init(&l->receiving, NULL);
	ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags);
	f = make_flight(l);
	if (!f || start_worker(l, f)) {
		if (f)
			free_flight(f);
		pthread_mutex_destroy(&l->receiving);
		arena_free(l);
		return -EAGAIN;
	}
	l->next = c->listener;
	c->listener = l;
	c->listeners++;
	c->attached = true;
	return 0;
}

/* ------------------------------------------------- after an agent before */

static void flight_adopt(struct container *c, struct flight *f)
{
	uint32_t i;

	arena_keep(f);
	arena_keep(f->params);
	arena_keep(f->before);
	f->fd = f->named = -1;
	if (!f->notif.id || f->stage.at == STAGE_RECEIVED || f->stage.at == STAGE_ANSWERED) {
		f->file_count = 0;
		f->process = NULL;
		return;
	}
	for (i = 0; i < f->file_count; i++)
		c->file[f->file[i]].users++;
	f->process->users++;
}

void listeners_adopt(struct container *c)
{
	struct listener *l;
	int i;

	c->listeners = 0;
	for (l = c->listener; l; l = l->next) {
		arena_keep(l);
		pthread_mutex_init(&l->receiving, NULL);
		l->workers = l->waiting = 0;
		l->gone = false;
		c->listeners++;
		for (i = 0; i < WORKERS; i++)
			if (l->flight[i])
				flight_adopt(c, l->flight[i]);
	}
	c->attached |= c->listeners;
}

int listeners_resume(struct container *c)
{
	struct listener *l;
	int err = 0, i;

	for (l = c->listener; l; l = l->next) {
		for (i = 0; i < WORKERS; i++)
			if (l->flight[i] && start_worker(l, l->flight[i]))
				err = -EAGAIN;
		if (!l->workers && (!make_flight(l) || start_worker(l, l->flight[0])))
			err = -EAGAIN;
	}
	return err;
}

void listeners_each(const struct container *c, void (*tell)(int fd))
{
	const struct listener *l;

	for (l = c->listener; l; l = l->next)
		tell(l->fd);
}

static void refuse(const struct flight *f)
{
	struct seccomp_notif_resp response = { .id = f->notif.id, .error = -EPERM };

	if (f->notif.id)
		ioctl(f->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

void listeners_refuse(const struct container *c)
{
	const struct listener *l;
	int i;

	for (l = c->listener; l; l = l->next)
		for (i = 0; i < WORKERS; i++)
			if (l->flight[i])
				refuse(l->flight[i]);
}

void listeners_each_descriptor(const struct container *c, void (*tell)(int fd))
{
	const struct listener *l;
	int i;

	listeners_each(c, tell);
	for (l = c->listener; l; l = l->next)
		for (i = 0; i < WORKERS; i++)
			if (l->flight[i] && l->flight[i]->notif.id)
				tell(exported_here(l->flight[i]));
}

uint64_t listeners_fold(uint64_t digest)
{
	return state_fold(digest, sizeof(struct listener));
}
