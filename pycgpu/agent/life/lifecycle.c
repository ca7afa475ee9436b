// SPDX-License-Identifier: GPL-2.0-only
/*
 * How containers come and go. `create` makes a container for a process or a cgroup. It lives until
 * the last process that carries its seccomp filter is gone: then the kernel hangs up the listener.
 * Without a listener it lives until the process or cgroup has ended.
 *
 * Each container has a thread that looks at it once a second. It also looks at once when asked,
 * when a process of the container ends, and when its last worker leaves: until the end is done no
 * listed container is charged for its memory. One thread looks for ended processes of all, ten
 * times a second, because waking a thread costs more than the look.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "call/call.h"
#include "card/card.h"
#include "gate/gate.h"
#include "life/life.h"
#include "tenant/tenant.h"

enum {
	OBJECTS_MAX = 1 << 18,
	LOOK_NS = 100000000,
	SWEEP_NS = 1000000000,
	ASK_PAUSE_NS = 10000000,
	UNPOPULATED_GRACE_S = 60
};

#define ASK_NS 3000000000ULL
/* a hung file system may hold a process' mappings, or its exec, for long */
#define LOOKING_MAX_NS 60000000000ULL

static pthread_t housekeeper;

static void container_free(struct container *c)
{
	uint32_t table;

	userd_end(c);
	clients_end(c);
	for (table = 0; table < CGPU_TABLE_COUNT; table++)
		arena_free(cgpu_tenant_storage(&c->tenant, table));
	if (c->watched_pidfd >= 0)
		close(c->watched_pidfd);
	arena_free(c);
}

static void end_container(struct container *c);
static void *keep(void *data);

static void init_locks(struct container *c)
{
	pthread_mutex_init(&c->sweep_lock, NULL);
	pthread_mutex_init(&c->look_lock, NULL);
	pthread_mutex_init(&c->files_lock, NULL);
	pthread_mutex_init(&c->process_lock, NULL);
	pthread_cond_init(&c->slices, NULL);
	cond_init(&c->keeper);
}

/* Starts the container's threads. Return: -errno. */
static int start_threads(struct container *c)
{
	pthread_t keeper;
	int err = slices_start(c);

	if (!err)
		err = -pthread_create(&keeper, NULL, keep, c);
	if (!err)
		pthread_detach(keeper);
	return err;
}

static int create_container(struct cgpu_create *create)
{
	struct container *c = arena_alloc(sizeof(*c));
	uint64_t seed;
	int err = 0;

	if (!c)
		return -ENOMEM;
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) {
		arena_free(c);
		return -EIO;
	}
	strcpy(c->id, create->id);
	c->watched_pidfd = c->epoll = -1;
	c->created_ns = now_ns();
	init_locks(c);
	cgpu_tenant_init(&c->tenant, OBJECTS_MAX, seed);
	c->tenant.files_max = door.files_max;
	if (create->pid) {
		c->watched_pidfd = state_descriptor((int)syscall(SYS_pidfd_open, create->pid, 0));
		if (c->watched_pidfd < 0)
			err = -ESRCH;
	} else {
		struct stat st;

		strcpy(c->cgroup, create->cgroup);
		if (stat(c->cgroup, &st) || !S_ISDIR(st.st_mode))
			err = -ENOENT;
	}
	if (!err) {
		c->epoll = state_descriptor(epoll_create1(EPOLL_CLOEXEC));
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
	tell_container("create", c);
	if (start_threads(c)) {
		pthread_mutex_lock(&door.lock);
		unlist(c);
		while (c->workers)
			cond_wait_until(&door.leaves, now_ns() + ASK_PAUSE_NS);
		pthread_mutex_unlock(&door.lock);
		end_container(c);
		return -EAGAIN;
	}
	return 0;
}

static bool has_ended(struct container *c);

static int destroy_container(const char *id)
{
	struct container *c;
	int err = 0;

	pthread_mutex_lock(&door.lock);
	c = find_container(id);
	if (!c)
		err = -ENOENT;
	else if (!cgpu_tenant_idle(&c->tenant) || has_members(c) ||
		 /* it has nothing open, but its processes come back */
		 (c->tenant.ledger.park_state != CGPU_PARK_RUNNING && !has_ended(c)))
		err = -EBUSY;
	else
		unlist(c);
	pthread_mutex_unlock(&door.lock);
	return err;
}

/* Has the keeper look through a container, and waits a bounded time for it. */
static void ask_keeper(const char *id)
{
	uint64_t asked = now_ns();
	struct container *c;
	bool waits = true;

	pthread_mutex_lock(&door.lock);
	while (waits && now_ns() - asked < ASK_NS) {
		c = find_container(id);
		waits = c && c->answered_ns < asked;
		if (waits && c->asked_ns < asked) {
			c->asked_ns = asked;
			keeper_call(c);
		}
		if (waits)
			cond_wait_until(&door.leaves, now_ns() + ASK_PAUSE_NS);
	}
	pthread_mutex_unlock(&door.lock);
}

static void tell_of_server(const struct cgpu_command *command)
{
	char line[CGPU_SERVER_LINE];

	cgpu_server_line(&command->news, command->create.id, line);
	event("%s", line);
}

int cgpu_agent_command(const char *text, int length)
{
	struct cgpu_command command;
	int err;

	if (length <= 0 || length > CGPU_COMMAND_MAX)
		return -EINVAL;
	memset(&command, 0, sizeof(command));
	err = cgpu_parse_inst_ctl(text, (size_t)length, &command);
	if (err)
		return err;
	if (command.verb == CGPU_VERB_CREATE)
		return create_container(&command.create);
	if (command.verb == CGPU_VERB_SERVER) {
		tell_of_server(&command);
		return 0;
	}
	if (command.verb == CGPU_VERB_MOVE)
		return container_move(command.create.id, &command.move);
	/* files that its processes closed a moment ago must not keep it */
	ask_keeper(command.create.id);
	return destroy_container(command.create.id);
}

int cgpu_agent_attach(const char *id, int listener)
{
	int fd = listener < STATE_FD_FIRST ?
		 fcntl(listener, F_DUPFD_CLOEXEC, STATE_FD_FIRST) : listener;
	struct container *c;
	int err = 0;

	if (fd < 0)
		return -errno;
	pthread_rwlock_rdlock(&door.life);
	pthread_mutex_lock(&door.lock);
	c = find_container(id);
	if (!c)
		err = -ENOENT;
	else if (c->listeners >= LISTENERS_MAX)
		err = -ENOSPC;
	else
		err = listener_start(c, fd);
	pthread_mutex_unlock(&door.lock);
	pthread_rwlock_unlock(&door.life);
	/* close the duplicate if that failed, otherwise the original */
	if (fd != listener)
		close(err ? fd : listener);
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

/* A container without a listener ends with the process or cgroup it was created for. */
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

/* A group's leader may have ended before its members, which run under its slots. */
static bool has_ended(struct container *c)
{
	return c->attached ? !c->listeners : unattached_ended(c);
}

static void end_container(struct container *c)
{
	int i;

	files_end(c);
	pthread_rwlock_wrlock(&door.life);
	pthread_mutex_lock(&door.lock);
	for (i = 0; i < CONTAINERS_MAX; i++)
		if (door.container[i] == c)
			door.container[i] = NULL;
	pthread_mutex_unlock(&door.lock);
	pthread_rwlock_unlock(&door.life);
	container_free(c);
}

/* Return: false: the container has ended. */
static bool look_at(struct container *c)
{
	bool ended, sweep, managed;
	uint64_t asked;

	pthread_mutex_lock(&door.lock);
	ended = c->ending && !c->workers;
	asked = c->asked_ns > c->answered_ns ? c->asked_ns : 0;
	pthread_mutex_unlock(&door.lock);
	if (ended)
		return false;
	if (processes_died(c))
		c->dirty = true;
	/* a thousand lines of /proc/PID/maps take a millisecond and more */
	managed = asked || c->dirty || is_audit_due(c->managed_ns, c->called_ns);
	/* an address space outlives the processes that are known */
	sweep = asked || c->dirty ||
		((c->processes || c->spaces) && now_ns() - c->swept_ns > SWEEP_NS);
	if (sweep)
		files_sweep(c, managed);
	if (asked) {
		pthread_mutex_lock(&door.lock);
		c->answered_ns = asked;
		pthread_cond_broadcast(&door.leaves);
		pthread_mutex_unlock(&door.lock);
	}
	return true;
}

/*
 * A container's own thread. Its work waits for the container's mappings, and takes time in
 * proportion to the container's files and processes.
 */
static void *keep(void *data)
{
	struct container *c = data;

	prctl(PR_SET_NAME, "cgpud-keeper");
	userd_borrow_again(c);
	while (door.running) {
		if (!look_at(c)) {
			end_container(c);
			return NULL;
		}
		pthread_mutex_lock(&door.lock);
		if (!c->wanted)
			cond_wait_until(&c->keeper, now_ns() + SWEEP_NS);
		c->wanted = false;
		pthread_mutex_unlock(&door.lock);
	}
	return NULL;
}

static bool is_stuck(const struct container *c)
{
	uint64_t looking = c->looking_ns, asking = c->asking_ns, now = now_ns();
	uint64_t withdrawing = c->withdrawing_ns;

	return (looking && now - looking > LOOKING_MAX_NS) ||
	       (withdrawing && now - withdrawing > LOOKING_MAX_NS) ||
	       (asking && now - asking > LOOKING_MAX_NS);
}

/* The checks that no tenant can delay. Context: door.life. */
static void look_over(struct container *c)
{
	bool died;

	if (c->processes)
		audit(c);
	if (is_stuck(c))
		processes_kill(c, "lets nobody see what it has");
	died = processes_died(c);
	holders_kill(c);
	pthread_mutex_lock(&door.lock);
	if (!c->ending && has_ended(c) && !has_members(c)) {
		unlist(c);
		keeper_call(c);
	}
	send_again(c);
	if (died)
		keeper_call(c);
	pthread_mutex_unlock(&door.lock);
}

/* ------------------------------------------- containers of an agent before */

static void adopt(struct container *c)
{
	struct cgpu_wait nobodys = { 0 };
	uint32_t table;

	/* a call that waited for room is judged anew, unless its caller has ended meanwhile */
	cgpu_wait_end(&nobodys, &c->tenant);
	arena_keep(c);
	for (table = 0; table < CGPU_TABLE_COUNT; table++)
		arena_keep(cgpu_tenant_storage(&c->tenant, table));
	arena_keep(c->clients);
	arena_keep(c->userds);
	init_locks(c);
	c->workers = 0;
	c->looking_ns = c->withdrawing_ns = c->asking_ns = 0;
	c->asked_ns = c->answered_ns = 0;
	c->wanted = c->dirty = true;
	c->exceeded = c->hunted = false;
	c->strangers = 0;
	c->unread = 0;
	memset(c->slice_us, 0, sizeof(c->slice_us));
	memset(c->open, 0, sizeof(c->open));
	memset(c->groups, 0, sizeof(c->groups));
	memset(c->channels, 0, sizeof(c->channels));
	processes_adopt(c);
	files_adopt(c);
	userd_adopt(c);
	gates_adopt(c);
	listeners_adopt(c);
}

void containers_adopt(void)
{
	int i;

	for (i = 0; i < CONTAINERS_MAX; i++)
		if (door.container[i])
			adopt(door.container[i]);
	arena_sweep();
}

void containers_resume(void)
{
	int i;

	for (i = 0; i < CONTAINERS_MAX; i++) {
		struct container *c = door.container[i];
		bool condemned;

		if (!c)
			continue;
		pthread_mutex_lock(&door.lock);
		refresh(c);
		condemned = c->condemned;
		/* the worker of holders.c resumes, also for a container that is ending */
		c->workers += condemned;
		/* without threads nothing answers its calls, and nothing ends it */
		if (listeners_resume(c))
			condemned = true;
		pthread_mutex_unlock(&door.lock);
		if (start_threads(c))
			condemned = true;
		if (condemned)
			processes_kill(c, "was being ended");
	}
}

static void *housekeep(void *unused)
{
	struct timespec pause = { 0, LOOK_NS };

	(void)unused;
	prctl(PR_SET_NAME, "cgpud-lifecycle");
	while (door.running) {
		int i;

		watchdog_check();
		for (i = 0; i < CONTAINERS_MAX; i++) {
			struct container *c;

			/* no container is freed under this lock */
			pthread_rwlock_rdlock(&door.life);
			c = door.container[i];
			if (c)
				look_over(c);
			pthread_rwlock_unlock(&door.life);
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

void lifecycle_start(void)
{
	pthread_create(&housekeeper, NULL, housekeep, NULL);
}
