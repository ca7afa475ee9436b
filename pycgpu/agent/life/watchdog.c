// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that has the agent's table of descriptors and its state, and does nothing while the
 * agent lives. When the agent has ended, however that came, the table is the watchdog's alone.
 * Listeners stay open, so that no tenant is free and its calls wait. The watchdog opens gates, and
 * closes all that the state does not name, which would keep the driver from cleaning up. Then it
 * gives the state to the next agent that asks, and ends. If no agent comes for long it refuses
 * calls; when the last tenant has ended it ends.
 *
 * One of the agent's threads makes it by clone(), so it takes no lock of the agent's and allocates
 * no memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "call/call.h"
#include "driver/driver.h"
#include "gate/gate.h"
#include "life/life.h"
#include "life/handover.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum {
	NUMBERS = 1 << 20,       /* no descriptor has a greater one: fs.nr_open */
	WORD_BITS = 64,
	EVENTS = 64,
	ENDED_MS = 100,
	DRIVER_MS = 400,
	CLOSE_MS = 500,
	CLOSE_TRIES = 16,
	SUCCESSOR_TRIES = 5,
	SUCCESSOR_PAUSE_MS = 500,
	SHUT_MS = 10,
	STARTING_MS = 100,
	LOOK_MS = 1000
};

static uint64_t hold_ns, patience_ns = 60000000000ULL;
static char **successor;
static char *log_path;
static pid_t watchdog;
static int agent = -1;
static uint32_t number;

/* Only the watchdog uses the variables below. */
static uint64_t named[NUMBERS / WORD_BITS];
static int events = -1;
static uint32_t listeners;

static void name(int fd)
{
	if (fd >= 0 && fd < NUMBERS)
		named[fd / WORD_BITS] |= 1ULL << fd % WORD_BITS;
}

static bool is_named(unsigned int fd)
{
	return named[fd / WORD_BITS] >> fd % WORD_BITS & 1;
}

/* linux/dirent.h: struct linux_dirent64 */
struct entry {
	uint64_t inode;
	int64_t offset;
	unsigned short bytes;
	unsigned char type;
	char name[];
};

/* Return: -1: the name is no number. */
static int number_in(const char *name)
{
	int number = 0;

	for (; *name; name++) {
		if (*name < '0' || *name > '9' || number >= NUMBERS)
			return -1;
		number = 10 * number + *name - '0';
	}
	return number;
}

static void close_between(unsigned int first, unsigned int end)
{
	unsigned int fd;

	if (first >= end || !syscall(SYS_close_range, first, end - 1, 0))
		return;
	/* before Linux 5.9 */
	for (fd = first; fd < end; fd++)
		close((int)fd);
}

void watchdog_each_descriptor(void (*tell)(int fd))
{
	const struct process *p;
	int k, i;

	tell(state_head()->memory);
	tell(state_head()->socket);
	refused_each(tell);
	for (k = 0; k < CONTAINERS_MAX; k++) {
		const struct container *c = door.container[k];

		if (!c)
			continue;
		tell(c->watched_pidfd);
		tell(c->epoll);
		listeners_each_descriptor(c, tell);
		for (p = c->processes; p; p = p->next)
			tell(p->pidfd);
		for (i = 1; i < FILES_MAX; i++) {
			if (!c->file[i].used)
				continue;
			tell(c->file[i].held);
			tell(c->file[i].maps);
			tell(c->file[i].mem);
		}
	}
}

/* One by one, so that a process killed amid it closes no more. */
static void close_unnamed(void)
{
	static char entries[1 << 15];
	int list = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long got, at;

	while (list >= 0 && (got = syscall(SYS_getdents64, list, entries, sizeof(entries))) > 0) {
		for (at = 0; at < got;) {
			const struct entry *entry = (const struct entry *)(entries + at);
			int fd = number_in(entry->name);

			at += entry->bytes;
			if (fd >= 0 && fd < NUMBERS && fd != list && !is_named((unsigned int)fd))
				close(fd);
		}
	}
	close(list);
}

static bool ends_soon(pid_t pid)
{
	int ms;

	for (ms = 0; ms < CLOSE_MS; ms++) {
		if (waitpid(pid, NULL, WNOHANG))
			return true;
		poll(NULL, 0, 1);
	}
	return false;
}

/*
 * Closes unnamed descriptors in another process that shares the table. One of them may be a file of
 * a tenant's own file system that the agent had no time to give to stranger.c; closing it may wait
 * for ever. If that process waits, the next one closes the rest.
 */
static void close_unnamed_aside(void)
{
	int tries;

	watchdog_each_descriptor(name);
	rm_each_descriptor(name);
	for (tries = 0; tries < CLOSE_TRIES; tries++) {
		pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);

		if (pid <= 0)
			close_unnamed();
		if (!pid)
			_exit(0);
		if (pid < 0 || ends_soon(pid))
			return;
		/* a process that was only slow must not close descriptors opened from here on */
		kill(pid, SIGKILL);
		ends_soon(pid);
	}
}

/*
 * A thread that reads a tenant's memory may wait for a file system of the tenant's. No signal ends
 * that wait, so the agent does not end either. But the agent's first thread reads none: when it has
 * ended, no other thread runs on.
 */
static bool has_first_thread_ended(pid_t pid)
{
	char path[32], text[512], *state;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[got < 0 ? 0 : got] = 0;
	/* behind the name, which may contain parentheses */
	state = strrchr(text, ')');
	return state && (state[2] == 'Z' || state[2] == 'X');
}

enum { OF_LISTENER = 1, OF_ASKER };

static void follow(int fd, uint32_t what, uint32_t kind)
{
	uint64_t number_and_kind = (uint64_t)kind << 32 | (uint32_t)fd;
	struct epoll_event event = { .events = what, .data.u64 = number_and_kind };

	if (epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) && errno == EEXIST)
		epoll_ctl(events, EPOLL_CTL_MOD, fd, &event);
}

static void follow_listener(int fd)
{
	follow(fd, 0, OF_LISTENER); /* the kernel reports the end of its last process in any case */
	listeners++;
}

static void follow_refused(int fd)
{
	follow(fd, EPOLLIN, OF_LISTENER);
	listeners++;
}

static void hear_listener(int fd)
{
	follow(fd, EPOLLIN, OF_LISTENER);
}

static void each_listener(void (*tell)(int fd))
{
	int k;

	for (k = 0; k < CONTAINERS_MAX; k++)
		if (door.container[k])
			listeners_each(door.container[k], tell);
}

static void refuse_calls(void)
{
	int k;

	for (k = 0; k < CONTAINERS_MAX; k++)
		if (door.container[k])
			listeners_refuse(door.container[k]);
	each_listener(hear_listener);
}

/* ------------------------------------------------------------- the next agent */

/* Return: the successor's process, which ends once the agent is ready or has failed; 0: none. */
static pid_t start_successor(void)
{
	/* with a table of its own, because the program that it executes closes what it inherits */
	long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	int input, output;

	if (pid)
		return pid < 0 ? 0 : (pid_t)pid;
	setsid();
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	input = open("/dev/null", O_RDWR);
	output = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
	dup2(output < 0 ? input : output, 1);
	dup2(output < 0 ? input : output, 2);
	if (input)
		dup2(input, 0);
	execvp(successor[0], successor);
	_exit(127);
}

static int connection = -1;
static bool sent;

static void send_descriptor(int fd)
{
	if (sent && fd >= 0 && fcntl(fd, F_GETFD) >= 0)
		sent = handover_send(connection, fd, fd);
}

static bool is_roots(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && !peer.uid;
}

static void greet(void)
{
	struct timeval patience = { 10, 0 };
	struct watchdog_hello hello = {
		.version = state_head()->version,
		.digest = state_head()->digest,
		.pid = getpid(),
		.memory = state_head()->memory,
	};
	int fd = accept4(state_head()->socket, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (connection >= 0 || !is_roots(fd)) {
		close(fd);
		return;
	}
	connection = fd;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	memcpy(hello.magic, state_head()->magic, sizeof(hello.magic));
	if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello))
		follow(fd, EPOLLIN, OF_ASKER);
	else
		close(fd), connection = -1;
}

static void leave(void)
{
	gates_open_all();
	close_between(0, NUMBERS);
	_exit(0);
}

static void hear(void)
{
	char byte;

	switch (recv(connection, &byte, 1, 0) == 1 ? byte : 0) {
	case WATCHDOG_TAKE:
		sent = true;
		watchdog_each_descriptor(send_descriptor);
		if (sent && handover_send(connection, -1, -1))
			return;
		break;
	case WATCHDOG_END:
		leave();
	}
	/*
	 * The agent that asked ended before it was in charge, or another is in charge. In the
	 * latter case a process may still share this table and wait for ever (stranger.c), so close
	 * all.
	 */
	if (state_head()->watchdog != number) {
		close_between(0, NUMBERS);
		_exit(0);
	}
	close(connection);
	connection = -1;
}

/* ------------------------------------------------------------------- its life */

static void serve(uint64_t since_ns, bool shut)
{
	bool refuses = false;
	int tries = 0, count, i;
	uint64_t next_ns = since_ns;
	struct epoll_event event[EVENTS];
	uint32_t tenants;
	pid_t starting = 0;

	events = epoll_create1(EPOLL_CLOEXEC);
	each_listener(follow_listener);
	tenants = listeners;
	refused_each(follow_refused);
	follow(state_head()->socket, EPOLLIN, OF_ASKER);
	while (listeners) {
		uint64_t now = now_ns();

		if (shut && now - since_ns >= hold_ns) {
			gates_open_all();
			shut = false;
		}
		if (starting && waitpid(starting, NULL, WNOHANG))
			starting = 0;
		/* refused listeners need no agent */
		if (successor && tenants && !starting && tries < SUCCESSOR_TRIES &&
		    now >= next_ns) {
			starting = start_successor();
			next_ns = now + SUCCESSOR_PAUSE_MS * 1000000ULL * (1ULL << ++tries);
		}
		if (!refuses && now - since_ns >= patience_ns) {
			refuse_calls();
			refuses = true;
		}
		count = epoll_wait(events, event, EVENTS,
				   shut ? SHUT_MS : starting ? STARTING_MS : LOOK_MS);
		for (i = 0; i < count; i++) {
			int fd = (int)(uint32_t)event[i].data.u64;
			bool asks = event[i].data.u64 >> 32 == OF_ASKER;

			if (asks && fd == state_head()->socket) {
				greet();
			} else if (asks && fd == connection) {
				hear();
			} else if (!asks && (!(event[i].events & EPOLLIN) ||
					     !listener_refuse(fd))) {
				epoll_ctl(events, EPOLL_CTL_DEL, fd, NULL);
				listeners--;
			}
		}
	}
	leave();
}

static void watch(void)
{
	struct pollfd end = { agent, POLLIN, 0 };
	pid_t pid = getppid();
	uint64_t since_ns;

	setsid();
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_NAME, "cgpud-watchdog");
	while (poll(&end, 1, ENDED_MS) <= 0 && !has_first_thread_ended(pid))
		;
	/* a thread in the driver gets its answer within this time: see was_performed() */
	poll(&end, 1, DRIVER_MS);
	/* this watchdog never was in charge, or is no longer */
	if (state_head()->watchdog != number)
		_exit(0);
	since_ns = now_ns();
	if (!hold_ns)
		gates_open_all();
	close_unnamed_aside();
	serve(since_ns, hold_ns);
}

int watchdog_start(void)
{
	long pid;

	if (agent < 0)
		agent = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (agent < 0)
		return -errno;
	number = state_head()->watchdog + 1;
	pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (pid < 0)
		return -errno;
	if (!pid)
		watch();
	watchdog = (pid_t)pid;
	door.gate = true;
	return 0;
}

void watchdog_take_charge(void)
{
	state_head()->watchdog = number;
}

int watchdog_check(void)
{
	int err;

	if (!watchdog || waitpid(watchdog, NULL, WNOHANG) != watchdog)
		return 0;
	watchdog = 0;
	err = watchdog_start();
	if (!err)
		watchdog_take_charge();
	event("watchdog ended, and %s", err ? "no other starts" : "another keeps watch");
	return err;
}

int cgpu_agent_watchdog(int hold_ms, int patience_ms)
{
	hold_ns = (uint64_t)hold_ms * 1000000;
	patience_ns = (uint64_t)patience_ms * 1000000;
	return 0;
}

int cgpu_agent_successor(const char *log, const char *const *command)
{
	int count = 0, i;

	while (command[count])
		count++;
	successor = calloc((size_t)count + 1, sizeof(*successor));
	log_path = strdup(log);
	for (i = 0; successor && i < count; i++)
		successor[i] = strdup(command[i]);
	return successor && log_path ? 0 : -ENOMEM;
}
