// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registry of containers. Here a container is what carries its seccomp filter:
 * it lives until the last process that does is gone, which the kernel tells by
 * hanging up the listener.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "door.h"

enum {
	OBJECTS_MAX = 1 << 18,
	SWEEP_NS = 1000000000,
	UNPOPULATED_GRACE_S = 60,
	/* a slice that is set before its group runs does not last */
	RESEND_NS = 20000000,
	/* no sooner again: sending takes the driver's time, and so a neighbour's */
	RESEND_AGAIN_NS = 250000000,
	/* what the module keeps: docs/tree.md */
	EVENT_LINES = 512,
	EVENT_BYTES = 255,
	GRAPHICS_ENGINE = 1, /* NV2080_ENGINE_TYPE_GRAPHICS */
	HOLDERS_MAX = 4096,
	DESCRIPTORS = 65536
};

struct door door = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.life = PTHREAD_RWLOCK_INITIALIZER,
};

static char event_line[EVENT_LINES][EVENT_BYTES];
static unsigned long long event_end; /* lines so far */
static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t event_came = PTHREAD_COND_INITIALIZER;
static pthread_t housekeeper;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static unsigned long long wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec;
}

void event(const char *format, ...)
{
	char line[EVENT_BYTES - 1];
	va_list args;
	int used, i;

	used = snprintf(line, sizeof(line), "%llu ", wall_ns());
	va_start(args, format);
	vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
	va_end(args);
	for (i = 0; line[i]; i++)
		if (line[i] < ' ')
			line[i] = '?';
	line[i] = '\n';
	pthread_mutex_lock(&event_lock);
	memcpy(event_line[event_end % EVENT_LINES], line, (size_t)i + 1);
	event_line[event_end++ % EVENT_LINES][i + 1] = 0;
	pthread_cond_broadcast(&event_came);
	pthread_mutex_unlock(&event_lock);
}

int cgpu_agent_events(unsigned long long *position, char *buf, int size, int timeout_ms)
{
	unsigned long long until_ns = wall_ns() + (unsigned long long)timeout_ms * 1000000;
	struct timespec until = { (time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000) };
	int used = 0;

	pthread_mutex_lock(&event_lock);
	while (*position >= event_end &&
	       !pthread_cond_timedwait(&event_came, &event_lock, &until))
		;
	if (size < EVENT_BYTES) {
		used = -EINVAL;
	} else if (event_end > *position + EVENT_LINES) {
		used = sprintf(buf, "%llu lost %llu\n", wall_ns(),
			       event_end - EVENT_LINES - *position);
		*position = event_end - EVENT_LINES;
	}
	while (used >= 0 && *position < event_end) {
		const char *line = event_line[*position % EVENT_LINES];
		int length = (int)strlen(line);

		if (used + length > size)
			break;
		memcpy(buf + used, line, (size_t)length);
		used += length;
		++*position;
	}
	pthread_mutex_unlock(&event_lock);
	return used;
}

/* ---------------------------------------------------------------- tenants */

void make_room(struct container *c)
{
	uint32_t table, capacity;
	size_t bytes;

	for (table = 0; table < CGPU_TABLE_COUNT; table++) {
		while ((bytes = cgpu_tenant_wants(&c->tenant, table, &capacity))) {
			void *storage = calloc(1, bytes);

			if (!storage)
				break;
			free(cgpu_tenant_grow(&c->tenant, table, storage, capacity));
		}
	}
}

static struct cgpu_policy_member member_of(const struct cgpu_grant *grant)
{
	return (struct cgpu_policy_member){
		.weight = grant->weight, .quota = grant->quota,
		.quota_min = grant->quota_min, .priority = grant->priority,
	};
}

void sync_card(uint32_t minor)
{
	struct cgpu_card *card = &door.host.card[minor];
	uint64_t now = now_ns();
	int i;

	cgpu_sched_card(&door.sched[minor], card->policy, card->max_inst, card->timeslice_us,
			now);
	for (i = 0; i < CONTAINERS_MAX; i++) {
		struct container *c = door.container[i];
		struct cgpu_policy_member member;

		if (!c || !c->grant[minor].present || c->ending)
			continue;
		member = member_of(&c->grant[minor]);
		cgpu_sched_set(&door.sched[minor], c->grant[minor].instance, &member, now);
		c->tenant.ledger.account[minor].slices_owned =
			card->policy != CGPU_POLICY_NATIVE && door.gate;
	}
	pthread_cond_broadcast(&door.changed);
}

/* Tells the engine what the container has open. Context: door.lock. */
void refresh(struct container *c)
{
	struct cgpu_table *slots = &c->tenant.objects.slots;
	uint32_t groups[CGPU_MAX_CARDS] = { 0 }, channels[CGPU_MAX_CARDS] = { 0 };
	bool open[CGPU_MAX_CARDS] = { false };
	uint32_t i;

	for (i = 1; i < slots->touched; i++) {
		struct cgpu_object *o = cgpu_object_at(&c->tenant.objects, i);

		if (!o->hClient || o->card >= CGPU_MAX_CARDS)
			continue;
		if (o->hClass == NV01_DEVICE_0)
			open[o->card] = true;
		else if (o->hClass == KEPLER_CHANNEL_GROUP_A &&
			 !(o->flags & CGPU_OBJECT_DUPLICATE) &&
			 o->engineType == GRAPHICS_ENGINE && o->flags & CGPU_OBJECT_SCHEDULED)
			groups[o->card]++;
		else if (cgpu_tenant_is_gated(o, o->card))
			channels[o->card]++;
	}
	for (i = 0; i < CGPU_MAX_CARDS; i++) {
		if (!c->grant[i].present || c->ending ||
		    (open[i] == c->open[i] && groups[i] == c->groups[i] &&
		     channels[i] == c->channels[i]))
			continue;
		c->open[i] = open[i];
		c->groups[i] = groups[i];
		c->channels[i] = channels[i];
		cgpu_sched_open(&door.sched[i], c->grant[i].instance, open[i], groups[i],
				now_ns());
		resend(c);
		pthread_cond_broadcast(&door.changed);
	}
}

void resend(struct container *c)
{
	uint64_t soon_ns = now_ns() + RESEND_NS, again_ns = c->resent_ns + RESEND_AGAIN_NS;

	c->resend_ns = again_ns > soon_ns ? again_ns : soon_ns;
}

static void send_again(struct container *c)
{
	uint32_t i;

	c->resend_ns = 0;
	c->resent_ns = now_ns();
	for (i = 0; i < CGPU_MAX_CARDS; i++)
		if (c->grant[i].present && c->groups[i] && !c->ending) {
			cgpu_sched_reapply(&door.sched[i], c->grant[i].instance, now_ns());
			door.reopen[i] |= 1ULL << c->grant[i].instance;
		}
	pthread_cond_broadcast(&door.changed);
}

static struct container *find_container(const char *id)
{
	int i;

	for (i = 0; i < CONTAINERS_MAX; i++)
		if (door.container[i] && !door.container[i]->ending &&
		    !strcmp(door.container[i]->id, id))
			return door.container[i];
	return NULL;
}

static int choose_name(struct container *c)
{
	uint32_t digits = CGPU_SHORT_ID;
	bool clash;
	int i;

	do {
		clash = false;
		if (cgpu_short_name(c->id, digits, c->name) == strlen(c->id))
			digits = CGPU_ID_MAX;
		for (i = 0; i < CONTAINERS_MAX; i++)
			clash |= door.container[i] && !door.container[i]->ending &&
				 !strcmp(door.container[i]->name, c->name);
	} while (clash && ++digits <= CGPU_ID_MAX);
	return clash ? -EEXIST : 0;
}

/* Context: door.lock. */
static int admit(struct container *c, struct cgpu_create *create)
{
	uint32_t minor;
	int i, free_slot = -1, err;

	if (find_container(c->id))
		return -EEXIST;
	for (i = CONTAINERS_MAX - 1; i >= 0; i--)
		if (!door.container[i])
			free_slot = i;
	if (free_slot < 0)
		return -ENOSPC;
	err = choose_name(c);
	if (!err)
		err = cgpu_host_admit(&door.host, create, &minor);
	if (err)
		return err;
	memcpy(c->grant, create->grant, sizeof(c->grant));
	cgpu_grants_apply(c->grant, &c->tenant.ledger);
	make_room(c);
	door.container[free_slot] = c;
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (c->grant[minor].present)
			sync_card(minor);
	return 0;
}

static void container_free(struct container *c)
{
	uint32_t table;

	for (table = 0; table < CGPU_TABLE_COUNT; table++)
		free(cgpu_tenant_storage(&c->tenant, table));
	if (c->watched_pidfd >= 0)
		close(c->watched_pidfd);
	demand_end(c);
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
		err = admit(c, create);
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

/* Its promises return at once, its files when they are gone. */
void unlist(struct container *c)
{
	uint32_t minor;

	c->ending = true;
	cgpu_host_release(&door.host, c->grant);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (c->grant[minor].present) {
			cgpu_sched_remove(&door.sched[minor], c->grant[minor].instance, now_ns());
			demand_forget(minor, c->grant[minor].instance);
		}
	pthread_cond_broadcast(&door.changed);
	door.ended_ns = now_ns();
	event("destroy id=%s", c->id);
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

/* ---------------------------------------------------------------- the tree */

static void show_holders(struct container *c, int minor, struct cgpu_view *view)
{
	static __thread struct cgpu_holder holders[HOLDERS_MAX];
	static __thread struct cgpu_process processes[HOLDERS_MAX];
	uint32_t i, count;

	count = cgpu_tenant_processes(&c->tenant, (uint32_t)minor, processes, HOLDERS_MAX);
	for (i = 0; i < count; i++) {
		struct cgpu_holder *holder = &holders[i];
		char path[64], line[128];
		FILE *file;
		int pid;

		*holder = (struct cgpu_holder){ .pid = processes[i].pid,
						.bytes = processes[i].bytes };
		snprintf(path, sizeof(path), "/proc/%u/status", holder->pid);
		file = fopen(path, "re");
		while (file && fgets(line, sizeof(line), file)) {
			char *last;

			sscanf(line, "Name: %15[^\n]", holder->comm);
			/* the innermost namespace's number stands last */
			last = strncmp(line, "NSpid:", 6) ? NULL : strrchr(line, '\t');
			if (last && sscanf(last, "%d", &pid) == 1)
				holder->container_pid = (uint32_t)pid;
		}
		if (file)
			fclose(file);
	}
	view->holders = holders;
	view->holder_count = count;
}

static uint32_t add_stat(struct cgpu_stat *stats, uint32_t count, const char *key, uint64_t value)
{
	stats[count] = (struct cgpu_stat){ key, value };
	return count + 1;
}

static void show_stats(struct container *c, int minor, struct cgpu_view *view)
{
	static __thread struct cgpu_stat stats[16];
	uint32_t n = 0;

	if (c) {
		struct cgpu_sched_stat s;

		cgpu_sched_stat(&door.sched[minor], c->grant[minor].instance, now_ns(), &s);
		n = add_stat(stats, n, "granted_ns", s.granted_ns);
		n = add_stat(stats, n, "used_ns", s.used_ns);
		n = add_stat(stats, n, "throttled_ns", s.throttled_ns);
		n = add_stat(stats, n, "switches", s.switches);
		n = add_stat(stats, n, "overruns", s.overruns);
		n = add_stat(stats, n, "channels", c->channels[minor]);
		n = add_stat(stats, n, "groups", c->groups[minor]);
	} else {
		n = add_stat(stats, n, "mode", door.sched[minor].plan.mode);
		n = add_stat(stats, n, "period_ns", door.sched[minor].plan.period_ns);
		n = add_stat(stats, n, "gate_calls", door.count.gate_calls);
		n = add_stat(stats, n, "gate_ns", door.count.gate_ns);
		n = add_stat(stats, n, "gate_max_ns", door.count.gate_max_ns);
		n = add_stat(stats, n, "gate_errors", door.count.gate_errors);
	}
	view->stats = stats;
	view->stat_count = n;
}

/* Return: 0 with door.lock held and `view` filled in, or -errno. */
static int lock_view(int node, int minor, const char *id, struct cgpu_view *view)
{
	const struct cgpu_node_entry *entry;
	struct container *c = NULL;
	int i;

	if (node < 0 || node >= CGPU_NODE_COUNT)
		return -EINVAL;
	entry = &cgpu_node_table[node];
	memset(view, 0, sizeof(*view));
	pthread_mutex_lock(&door.lock);
	if (id[0])
		c = find_container(id);
	if ((id[0] && !c) || minor >= CGPU_MAX_CARDS ||
	    (minor >= 0 && !door.host.card[minor].present) ||
	    (c && minor >= 0 && !c->grant[minor].present)) {
		pthread_mutex_unlock(&door.lock);
		return -ENOENT;
	}
	view->version = door.version;
	view->features = 1u << CGPU_FEATURE_PID | 1u << CGPU_FEATURE_CGROUP |
			 1u << CGPU_FEATURE_EVENTS | 1u << CGPU_FEATURE_MEMORY |
			 1u << CGPU_FEATURE_MANAGED | (door.gate ? 1u << CGPU_FEATURE_SLICES |
			 1u << CGPU_FEATURE_GATE : 0);
	view->host = &door.host;
	view->minor = minor < 0 ? 0 : (uint32_t)minor;
	if (c) {
		view->id = c->id;
		view->grant = &c->grant[view->minor];
		view->account = &c->tenant.ledger.account[view->minor];
	}
	if (entry->wants_usage)
		for (i = 0; i < CONTAINERS_MAX; i++)
			if (door.container[i])
				cgpu_usage_add(
					&view->usage,
					&door.container[i]->tenant.ledger.account[view->minor]);
	if (entry->wants_holders && c)
		show_holders(c, minor, view);
	if (entry->wants_stats && minor >= 0)
		show_stats(c, minor, view);
	return 0;
}

int cgpu_agent_show(int node, int minor, const char *id, char *buf, int size)
{
	struct cgpu_view view;
	int used;

	if (node == CGPU_NODE_STAT && minor >= 0 && minor < CGPU_MAX_CARDS)
		switch_log_refresh((uint32_t)minor);
	used = lock_view(node, minor, id, &view);
	if (used)
		return used;
	used = cgpu_node_show(&view, (uint32_t)node, buf, (size_t)size);
	pthread_mutex_unlock(&door.lock);
	return used;
}

int cgpu_agent_store(int node, int minor, const char *id, const char *text, int length)
{
	struct cgpu_view view;
	int err;

	if (length > CGPU_VALUE_MAX)
		return -EINVAL;
	err = lock_view(node, minor, id, &view);
	if (err)
		return err;
	err = cgpu_node_store(&view, (uint32_t)node, text, (size_t)length);
	if (!err && minor >= 0)
		sync_card((uint32_t)minor);
	if (!err)
		event("set %d/%s%s%s %.*s", minor, id, id[0] ? "/" : "",
		      cgpu_node_table[node].name, (int)strcspn(text, "\n"), text);
	pthread_mutex_unlock(&door.lock);
	return err;
}

int cgpu_agent_cards(char *buf, int size)
{
	int used = 0, i;

	buf[0] = 0;
	for (i = 0; i < CGPU_MAX_CARDS; i++)
		if (door.host.card[i].present)
			used += snprintf(buf + used, (size_t)(size - used), "%d\n", i);
	return used;
}

int cgpu_agent_containers(char *buf, int size)
{
	int used = 0, i, minor;

	buf[0] = 0;
	pthread_mutex_lock(&door.lock);
	for (i = 0; i < CONTAINERS_MAX; i++) {
		struct container *c = door.container[i];

		if (!c || c->ending || used > size - 256)
			continue;
		used += sprintf(buf + used, "%s %s", c->id, c->name);
		for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
			if (c->grant[minor].present)
				used += sprintf(buf + used, " %d", minor);
		used += sprintf(buf + used, "\n");
	}
	pthread_mutex_unlock(&door.lock);
	return used;
}

int cgpu_agent_node(int node, char *name, int *mode, int *place)
{
	if (node < 0 || node >= CGPU_NODE_COUNT)
		return -ENOENT;
	strcpy(name, cgpu_node_table[node].name);
	*mode = cgpu_node_table[node].mode;
	*place = cgpu_node_table[node].place;
	return 0;
}

int cgpu_agent_count(unsigned long long *ended_ns)
{
	int count = 0, i;

	pthread_mutex_lock(&door.lock);
	for (i = 0; i < CONTAINERS_MAX; i++)
		count += door.container[i] != NULL;
	*ended_ns = door.ended_ns;
	pthread_mutex_unlock(&door.lock);
	return count;
}

int cgpu_agent_counters(char *buf, int size)
{
	int used;

	pthread_mutex_lock(&door.lock);
	used = snprintf(buf, (size_t)size,
			"calls %llu\nperformed %llu\ncontinued %llu\nanswered %llu\nbusy_ns %llu\n"
			"gate_calls %llu\ngate_ns %llu\ngate_max_ns %llu\ngate_errors %llu\n"
			"slice_calls %llu\nslice_errors %llu\nsweeps %llu\n"
			"looks %llu\nlook_ns %llu\nlook_reads %llu\nlook_errors %llu\n"
			"wakes %llu\n",
			(unsigned long long)door.count.calls,
			(unsigned long long)door.count.performed,
			(unsigned long long)door.count.continued,
			(unsigned long long)door.count.answered,
			(unsigned long long)door.count.busy_ns,
			(unsigned long long)door.count.gate_calls,
			(unsigned long long)door.count.gate_ns,
			(unsigned long long)door.count.gate_max_ns,
			(unsigned long long)door.count.gate_errors,
			(unsigned long long)door.count.slice_calls,
			(unsigned long long)door.count.slice_errors,
			(unsigned long long)door.count.sweeps,
			(unsigned long long)door.count.looks,
			(unsigned long long)door.count.look_ns,
			(unsigned long long)door.count.look_reads,
			(unsigned long long)door.count.look_errors,
			(unsigned long long)door.count.wakes);
	pthread_mutex_unlock(&door.lock);
	return used;
}

/* ------------------------------------------------------------ housekeeping */

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
	bool ended = false;

	pthread_mutex_lock(&door.lock);
	if (!c->ending && !c->attached && unattached_ended(c))
		unlist(c);
	ended = c->ending && !c->workers;
	if (c->resend_ns && now_ns() > c->resend_ns)
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
	ended = c->dirty || (c->processes && now_ns() - c->swept_ns > SWEEP_NS);
	pthread_mutex_unlock(&c->files_lock);
	if (ended)
		files_sweep(c, true);
	if (c->processes)
		audit(c);
}

static void *housekeep(void *unused)
{
	(void)unused;
	while (door.running) {
		struct timespec pause = { 0, 10000000 };
		int i;

		for (i = 0; i < CONTAINERS_MAX; i++)
			if (door.container[i])
				look_at(i);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int cgpu_agent_start(int force_branch, char *message)
{
	struct rlimit files;
	pthread_condattr_t monotonic;
	uint32_t minor;
	int err;

	message[0] = 0;
	/* root may raise its own limit, unless a capability was taken from it */
	files = (struct rlimit){ DESCRIPTORS, DESCRIPTORS };
	if (setrlimit(RLIMIT_NOFILE, &files) && !getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	door.tfd_base = (int)(files.rlim_cur < DESCRIPTORS ? files.rlim_cur / 2 :
							     DESCRIPTORS / 2);
	door.files_max = door.tfd_base < FILES_MAX ? (uint32_t)door.tfd_base : FILES_MAX;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&door.changed, &monotonic);
	err = rm_open(force_branch, message);
	if (err)
		return err;
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		cgpu_sched_init(&door.sched[minor], now_ns());
	err = watchdog_start();
	if (err) {
		snprintf(message, 256, "the watchdog does not start: %s", strerror(-err));
		rm_close();
		return err;
	}
	door.running = true;
	governors_start();
	pthread_create(&housekeeper, NULL, housekeep, NULL);
	return 0;
}

void cgpu_agent_stop(void)
{
	if (!door.running)
		return;
	door.running = false;
	pthread_join(housekeeper, NULL);
	governors_stop();
	rm_close();
}
