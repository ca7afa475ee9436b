// SPDX-License-Identifier: GPL-2.0-only
/*
 * Listeners without a container, while processes live under their filter: all their calls get
 * EPERM, until the last process has ended.
 *
 * If such a listener were closed, its calls would fail with ENOSYS. But the kernel then lets the
 * processes have another listener, by which they answer their own calls. The filter refuses that,
 * too; neither relies on the other.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include "agent.h"
#include "call/call.h"

enum {
	/* a limit a tenant, so that no tenant takes another's place */
	REFUSED_MAX = 256,
	SLOTS = REFUSED_MAX * CONTAINERS_MAX,
	EVENTS = 64
};

struct refused {
	int fd;                  /* the descriptor + 1; 0: none */
	uint32_t tenant;
};

/* part of the state, so whole pages */
static struct refused refused[SLOTS] __attribute__((aligned(4096)));
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int epoll = -1;
static bool answering;

/* FNV-1a */
static uint32_t tenant_of(const char *id)
{
	uint32_t hash = 0x811c9dc5;

	while (*id)
		hash = (hash ^ (uint8_t)*id++) * 0x01000193;
	return hash;
}

/* Return: a free slot, SLOTS: the tenant has its share. Context: lock. */
static uint32_t find_slot(uint32_t tenant)
{
	uint32_t i, its = 0, found = SLOTS;

	for (i = 0; i < SLOTS; i++) {
		if (!refused[i].fd)
			found = found == SLOTS ? i : found;
		else
			its += refused[i].tenant == tenant;
	}
	return its < REFUSED_MAX ? found : SLOTS;
}

static void drop(uint32_t slot)
{
	int fd;

	pthread_mutex_lock(&lock);
	fd = refused[slot].fd - 1;
	refused[slot].fd = 0;
	/* a number that the state has never names another file */
	close(fd);
	pthread_mutex_unlock(&lock);
}

/* Return: false: no process is left. */
bool listener_refuse(int listener)
{
	struct seccomp_notif_resp response = { .error = -EPERM };
	struct seccomp_notif n;

	memset(&n, 0, sizeof(n));
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n))
		return errno == ENOENT || errno == EINTR || errno == EAGAIN;
	response.id = n.id;
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
	return true;
}

/* Answers one call of each listener in turn: none waits for all of another's. */
static void *answer(void *unused)
{
	struct epoll_event ready[EVENTS];
	int count, i;

	(void)unused;
	prctl(PR_SET_NAME, "cgpud-refused");
	for (;;) {
		count = epoll_wait(epoll, ready, EVENTS, -1);
		for (i = 0; i < count; i++) {
			uint32_t slot = ready[i].data.u32;

			if (!(ready[i].events & EPOLLIN) || !listener_refuse(refused[slot].fd - 1))
				drop(slot);
		}
	}
	return NULL;
}

/* Context: lock. */
static void begin(void)
{
	pthread_t thread;

	if (epoll < 0)
		epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0 || answering || pthread_create(&thread, NULL, answer, NULL))
		return;
	pthread_detach(thread);
	answering = true;
}

static bool is_listener(int fd)
{
	uint64_t none = 0;

	return ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &none) && errno == ENOENT;
}

void cgpu_agent_refuse(const char *id, int fd)
{
	struct epoll_event call = { .events = EPOLLIN };
	bool kept = false;
	uint32_t slot;

	fd = state_descriptor(fd);
	pthread_mutex_lock(&lock);
	begin();
	slot = is_listener(fd) ? find_slot(tenant_of(id)) : SLOTS;
	call.data.u32 = slot;
	if (slot < SLOTS) {
		/* before it is watched, because it may be answered at once */
		refused[slot] = (struct refused){ fd + 1, tenant_of(id) };
		kept = epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &call);
		if (!kept)
			refused[slot].fd = 0;
	}
	pthread_mutex_unlock(&lock);
	if (!kept)
		close(fd);
}

struct state_segment refused_segment(void)
{
	return (struct state_segment){ refused, sizeof(refused) };
}

void refused_each(void (*tell)(int fd))
{
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		if (refused[i].fd)
			tell(refused[i].fd - 1);
}

void refused_resume(void)
{
	struct epoll_event call = { .events = EPOLLIN };

	pthread_mutex_lock(&lock);
	/* even without listeners: a later one must not depend on a thread being free then */
	begin();
	for (call.data.u32 = 0; call.data.u32 < SLOTS; call.data.u32++) {
		if (!refused[call.data.u32].fd)
			continue;
		epoll_ctl(epoll, EPOLL_CTL_ADD, refused[call.data.u32].fd - 1, &call);
	}
	pthread_mutex_unlock(&lock);
}
