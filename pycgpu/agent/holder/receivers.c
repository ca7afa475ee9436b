// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tenant can hand the driver's files, by a socket, to a program that is under no filter. The
 * agent's books do not show a process that uses such a file, so the agent looks for it:
 * - once a second in the driver's list of processes: each process there made a client, and each
 *   client of a tenant's is noted before it is there;
 * - every few seconds among the descriptors of all processes: for a process that has memory but
 *   nothing that the list shows, or uses another process' client.
 *
 * A process of the host's that opened the device itself is left alone. A process is ended if the
 * device rules of its cgroup forbid opening it, or if it has a file of a tenant's. The tenant that
 * the file came from ends with it.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/capability.h>

#include "agent.h"
#include "driver/driver.h"
#include "holder/holder.h"
#include "holder/holdings.h"
#include "host/opening.h"
#include "holder/member.h"
#include "tenant/tenant.h"

enum {
	/* login.defs: UID_MIN. Daemons may open the device and then become another user. */
	LOGIN_UID = 1000,
	OWN_MAX = 1024,
	TURN_NS = 100000000
};

#define LIST_NS 1000000000ULL
#define WALK_NS 5000000000ULL
/* one part in so many of one processor, unless there are millions of descriptors */
#define WALK_PART 20
#define WALK_MAX_NS 30000000000ULL
#define OWN_NS 10000000000ULL
/* for so long after the last container ended */
#define LATE_NS 60000000000ULL

static pthread_t looker;
/* Processes of the host's own, until the list is made anew. */
static struct { int pid; uint64_t start; } own[OWN_MAX];
static uint64_t own_ns;

/* When a process began, 0: it has ended. Start and number together identify a process. */
static uint64_t start_of(int pid)
{
	char path[64], text[1024], *at;
	unsigned long long start = 0;
	size_t got;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	got = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[got] = '\0';
	/* the process's name may contain any characters */
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d"
				  " %*d %*d %*d %llu", &start) != 1)
		return 0;
	return start;
}

static bool is_own(int pid)
{
	uint64_t now = now_ns();

	if (now - own_ns > OWN_NS) {
		memset(own, 0, sizeof(own));
		own_ns = now;
	}
	return own[pid % OWN_MAX].pid == pid && own[pid % OWN_MAX].start == start_of(pid);
}

static void note_own(int pid)
{
	own[pid % OWN_MAX].pid = pid;
	own[pid % OWN_MAX].start = start_of(pid);
}

/* Context: door.life. */
static bool is_tenants(int pid)
{
	struct container *c;
	bool its = false;
	int i;

	for (i = 0; i < CONTAINERS_MAX && !its; i++) {
		c = door.container[i];
		if (!c)
			continue;
		its = process_lives(c, pid);
		pthread_mutex_lock(&door.lock);
		its |= clients_has(c, (uint32_t)pid);
		pthread_mutex_unlock(&door.lock);
	}
	return its;
}

/* The host's administrator, who may use the device all the same. */
static bool is_administrator(int pid, const struct rights *rights)
{
	return rights->capabilities & 1ULL << CAP_SYS_ADMIN && !has_own(pid, "user");
}

/* The process has a file that it cannot have opened. `computes`: it has also made a client. */
static bool was_given(const struct holdings *h, const struct rights *rights, bool computes)
{
	/* for a process in a container the node has another mode */
	bool by_mode = computes && rights->uid >= LOGIN_UID && !rights->capabilities &&
		       !has_own(h->pid, "mnt") && !has_own(h->pid, "user");
	uint32_t i;

	for (i = 0; i < h->count; i++)
		if (may_open(h->pid, by_mode ? rights : NULL, h->held[i].device,
			     h->held[i].minor) == OPENING_MAY_NOT)
			return by_mode || !was_mounted(h->pid);
	return false;
}

/* Context: door.life. */
static void end_tenant(struct container *c, int pid)
{
	event("killed id=%s receiver=%d has its files of the driver", c->id, pid);
	fprintf(stderr, "cgpu: process %d uses a card by files of container %s: both are ended\n",
		pid, c->id);
	members_kill(c);
	processes_kill(c, "gave the driver's files away");
}

/* The tenants whose sockets it can have reached. Context: door.life. Return: how many. */
static int end_neighbours(int pid)
{
	struct members *members = calloc(1, sizeof(*members));
	int n, ended = 0;
	uint32_t i;

	for (n = 0; members && has_own(pid, "net") && n < CONTAINERS_MAX; n++) {
		if (!door.container[n])
			continue;
		members_of(door.container[n], members);
		for (i = 0; i < members->count; i++)
			if (share(members->pid[i], pid, "net"))
				break;
		if (i == members->count)
			continue;
		end_tenant(door.container[n], pid);
		ended++;
	}
	free(members);
	return ended;
}

/* Context: door.life. */
static void end(const struct holdings *h, int pidfd, int owner)
{
	const struct held *first = &h->held[0];
	struct pollfd gone = { pidfd, POLLIN, 0 };
	uint32_t minor;

	/* the descriptors may have been another process's */
	if (device_behind(first->tid, first->fd, &minor) != (int)first->device ||
	    poll(&gone, 1, 0) || is_tenants(h->pid))
		return;
	if (owner >= 0) {
		end_tenant(door.container[owner], h->pid);
	} else if (!end_neighbours(h->pid)) {
		event("killed id=- receiver=%d has files of the driver it cannot open", h->pid);
		fprintf(stderr, "cgpu: process %d uses a card by files that it cannot open, "
			"of no container that is there: it is ended\n", h->pid);
	}
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

/* Context: none of our locks, because the driver is asked. */
static bool has_memory(int pid)
{
	uint32_t number = (uint32_t)pid, minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (rm_subdevice(minor) && held_bytes(minor, &number, 1))
			return true;
	return false;
}

static void judge(const struct holdings *h, bool listed)
{
	int pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0), owner = -1;
	bool computes = listed || has_memory(h->pid), given;
	struct rights rights;

	pthread_rwlock_rdlock(&door.life);
	if (pidfd >= 0 && !is_tenants(h->pid) && rights_of(h->pid, &rights) &&
	    !is_administrator(h->pid, &rights)) {
		given = was_given(h, &rights, computes);
		/*
		 * A tenant's child that makes no call has the tenant's files, too. A program of the
		 * host's with a client by a file of its own may be sent memory.
		 */
		if (given || computes)
			owner = holdings_owner(h, !given);
		if (given || owner >= 0)
			end(h, pidfd, owner);
		else if (computes)
			note_own(h->pid);
	}
	pthread_rwlock_unlock(&door.life);
	if (pidfd >= 0)
		close(pidfd);
}

static void judge_listed(const struct holdings *h)
{
	judge(h, true);
}

static void judge_holder(const struct holdings *h)
{
	judge(h, false);
}

/* The processes that have a client with an object of a card, as the driver says. */
static void look_at_list(uint32_t minor)
{
	uint8_t params[CGPU_GPU_PIDS_BYTES] = { 0 };
	uint32_t count, i;
	bool known;
	int pid;

	cgpu_put32(params, CGPU_GPU_PIDS_CLASS, NV20_SUBDEVICE_0);
	if (rm_control(rm_ctl_fd(), rm_client(), rm_subdevice(minor),
		       NV2080_CTRL_CMD_GPU_GET_PIDS, params, sizeof(params)))
		return;
	count = cgpu_get32(params, CGPU_GPU_PIDS_COUNT);
	for (i = 0; i < count && i < CGPU_GPU_PIDS_MAX && door.running; i++) {
		pid = (int)cgpu_get32(params, CGPU_GPU_PIDS_TABLE + 4 * i);
		if (pid <= 0 || pid == getpid() || is_own(pid))
			continue;
		pthread_rwlock_rdlock(&door.life);
		known = is_tenants(pid);
		pthread_rwlock_unlock(&door.life);
		if (!known)
			holdings_each(pid, judge_listed);
	}
}

/* A process that was given a file may keep it for longer than the tenant lives. */
static bool has_tenants(void)
{
	unsigned long long ended_ns;

	return cgpu_agent_count(&ended_ns) || (ended_ns && now_ns() - ended_ns < LATE_NS);
}

static void *look(void *unused)
{
	struct timespec pause = { 0, TURN_NS };
	uint64_t list_ns = 0, walk_ns = 0, pause_ns = WALK_NS, begun;
	uint32_t minor;

	(void)unused;
	prctl(PR_SET_NAME, "cgpud-receivers");
	for (; door.running; nanosleep(&pause, NULL)) {
		if (!has_tenants())
			continue;
		if (now_ns() - list_ns > LIST_NS) {
			for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
				if (rm_subdevice(minor))
					look_at_list(minor);
			list_ns = now_ns();
		}
		if (now_ns() - walk_ns > pause_ns) {
			begun = now_ns();
			holdings_each(0, judge_holder);
			walk_ns = now_ns();
			pause_ns = WALK_PART * (walk_ns - begun);
			if (pause_ns < WALK_NS)
				pause_ns = WALK_NS;
			if (pause_ns > WALK_MAX_NS)
				pause_ns = WALK_MAX_NS;
		}
	}
	return NULL;
}

void receivers_start(void)
{
	pthread_create(&looker, NULL, look, NULL);
}
