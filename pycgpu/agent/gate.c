// SPDX-License-Identifier: GPL-2.0-only
/*
 * Carries out what the engine decides. Gates go through the agent's own client;
 * timeslices through a duplicate of the tenant's file, for they name an object
 * of the tenant's client.
 *
 * The watchdog is a process that shares the control file, and so the client, and
 * a page with all that is shut. When the agent is gone, however that came, it
 * opens them and exits.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "door.h"

enum {
	SHUT_MAX = 16384,
	GRAPHICS_ENGINE = 1,
	PRIORITY = 10,
	/*
	 * Of a call that shuts channels, so much passes for each after the card has
	 * stopped. On an H200 one process beside eight, 8 channels each, had 51.6 %
	 * of what was done with nothing here, 49.4 % with 2700.
	 */
	AFTER_STOP_NS = 2000,
	FEW_CHANNELS = 8,
	/* every group of a container has had its turn by then */
	ROUND_NS = 200000000
};

struct channel {
	uint32_t hClient;
	uint32_t hChannel;
};

/* shared with the watchdog */
struct shut {
	_Atomic uint32_t count;
	struct channel channel[SHUT_MAX];
};

static struct shut *shut; /* by minor */
static int watchdog_pipe = -1;
static pthread_t thread[CGPU_MAX_CARDS];
static bool started[CGPU_MAX_CARDS];

/* Return: the driver's status. */
static uint32_t gate(uint32_t minor, bool disable, const struct channel *channels, uint32_t count)
{
	uint8_t params[FIFO_DISABLE_BYTES];
	uint32_t status = 0, done, i;

	for (done = 0; done < count; done += FIFO_DISABLE_MAX) {
		uint32_t n = count - done < FIFO_DISABLE_MAX ? count - done : FIFO_DISABLE_MAX;
		uint32_t got;

		memset(params, 0, sizeof(params));
		params[0] = disable;
		cgpu_put32(params, FIFO_DISABLE_NUM, n);
		for (i = 0; i < n; i++) {
			cgpu_put32(params, FIFO_DISABLE_CLIENTS + 4 * i, channels[done + i].hClient);
			cgpu_put32(params, FIFO_DISABLE_CHANNELS + 4 * i, channels[done + i].hChannel);
		}
		got = rm_control(rm_ctl_fd(), rm_client(), rm_subdevice(minor),
				 NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, params, sizeof(params));
		if (got)
			status = got;
	}
	return status;
}

static void watch_over(int fd)
{
	uint32_t minor, i, count;
	char byte;

	setsid();
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	prctl(PR_SET_NAME, "cgpud-watchdog");
	while (read(fd, &byte, 1) < 0 && errno == EINTR)
		;
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		count = atomic_load(&shut[minor].count);
		/* one at a time: a channel that is gone must not spoil the others' call */
		if (count && gate(minor, false, shut[minor].channel, count))
			for (i = 0; i < count; i++)
				gate(minor, false, &shut[minor].channel[i], 1);
	}
	_exit(0);
}

int watchdog_start(void)
{
	int ends[2];
	pid_t pid;

	shut = mmap(NULL, CGPU_MAX_CARDS * sizeof(*shut), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shut == MAP_FAILED)
		return -errno;
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		close(ends[1]);
		watch_over(ends[0]);
	}
	close(ends[0]);
	watchdog_pipe = ends[1];
	door.gate = true;
	return 0;
}

/* ---------------------------------------------------------------- the engine */

static bool is_group(const struct cgpu_object *o, uint32_t minor)
{
	return o->hClient && o->card == minor && o->hClass == KEPLER_CHANNEL_GROUP_A &&
	       o->engineType == GRAPHICS_ENGINE && o->flags & CGPU_OBJECT_SCHEDULED;
}

/* Containers that have windows of their own, and several groups to run in them. */
static bool takes_turns(const struct container *c, uint32_t minor)
{
	return c->groups[minor] > 1 && door.sched[minor].mode == CGPU_SCHED_WINDOWS &&
	       !door.sched[minor].share[c->grant[minor].instance].pooled;
}

/*
 * The card starts a tenant's groups from the first of those it finds open, so
 * that the last would never run where a window is shorter than all their slices
 * (seen on an H200: of eight processes in windows of 5 ms three to five ran).
 * Hence one opens ahead of the others, another in each window.
 * Context: door.lock. Return: its object, 0: none.
 */
static uint32_t turn_of(const struct container *c, uint32_t minor)
{
	uint32_t left = c->turn_of[minor] % c->groups[minor], i;

	for (i = 1; i < c->tenant.objects.slots.touched; i++)
		if (is_group(cgpu_object_at(&c->tenant.objects, i), minor) && !left--)
			return i;
	return 0;
}

/* Groups that run in one window. Context: door.lock. */
static uint32_t turns_of(const struct container *c, uint32_t minor)
{
	uint64_t round_ns = c->groups[minor] * door.sched[minor].period_ns;

	return (uint32_t)((round_ns + ROUND_NS - 1) / ROUND_NS);
}

/*
 * `partly` not NULL: of containers that take turns the next group only; they are
 * added to it. Context: door.lock. Return: channels of the containers in `mask`.
 */
static uint32_t gather(uint32_t minor, uint64_t mask, uint64_t *partly, struct channel *out)
{
	uint32_t count = 0, i;
	int k, pass;

	for (k = 0; k < CONTAINERS_MAX; k++) {
		struct container *c = door.container[k];
		uint32_t group = 0;

		if (!c || c->ending || !c->grant[minor].present ||
		    !(mask & 1ULL << c->grant[minor].instance))
			continue;
		if (takes_turns(c, minor)) {
			if (partly) {
				c->turn_of[minor] += turns_of(c, minor);
				*partly |= 1ULL << c->grant[minor].instance;
			}
			group = turn_of(c, minor);
		}
		/* the group that ran stops last: what the call takes before is its time */
		for (pass = group && !partly; pass >= 0; pass--)
			for (i = 1; i < c->tenant.objects.slots.touched && count < SHUT_MAX; i++) {
				struct cgpu_object *o = cgpu_object_at(&c->tenant.objects, i);

				if (o->card == minor && is_gated(c, o) &&
				    (!group || (o->parent == group) == !pass))
					out[count++] = (struct channel){ o->hClient, o->hObject };
			}
	}
	return count;
}

static uint32_t find_shut(const struct shut *list, uint32_t count, struct channel channel)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (list->channel[i].hClient == channel.hClient &&
		    list->channel[i].hChannel == channel.hChannel)
			break;
	return i;
}

/* Keeps the watchdog's list, which has what is shut or is about to be. */
static void note_shut(uint32_t minor, const struct channel *channels, uint32_t count, bool add)
{
	struct shut *list = &shut[minor];
	uint32_t n = atomic_load(&list->count), i, at;

	for (i = 0; i < count; i++) {
		at = find_shut(list, n, channels[i]);
		if (add && at == n && n < SHUT_MAX) {
			list->channel[n] = channels[i];
			atomic_store(&list->count, ++n);
		} else if (!add && at < n) {
			list->channel[at] = list->channel[n - 1];
			atomic_store(&list->count, --n);
		}
	}
}

/* Channels that were freed while they were shut leave the list. Context: door.lock. */
static void forget_freed(uint32_t minor)
{
	struct shut *list = &shut[minor];
	uint32_t n = atomic_load(&list->count), i;
	bool alive;
	int k;

	for (i = 0; i < n;) {
		struct channel channel = list->channel[i];

		for (k = 0, alive = false; k < CONTAINERS_MAX && !alive; k++)
			alive = door.container[k] &&
				cgpu_object_find(&door.container[k]->tenant.objects,
						 channel.hClient, channel.hChannel);
		if (alive) {
			i++;
			continue;
		}
		list->channel[i] = list->channel[n - 1];
		atomic_store(&list->count, --n);
	}
}

/* Drops what is as it shall be. Return: number left. */
static uint32_t not_yet(uint32_t minor, bool disable, struct channel *channels, uint32_t count)
{
	const struct shut *list = &shut[minor];
	uint32_t n = atomic_load(&list->count), left = 0, i;

	for (i = 0; i < count; i++)
		if ((find_shut(list, n, channels[i]) < n) != disable)
			channels[left++] = channels[i];
	return left;
}

/* A tenant that opens its own channels is told so and nothing happens. Context: door.lock. */
static void tell_core(uint32_t minor, uint64_t mask, bool disable)
{
	int k;

	for (k = 0; k < CONTAINERS_MAX; k++) {
		struct container *c = door.container[k];

		if (c && !c->ending && c->grant[minor].present &&
		    mask & 1ULL << c->grant[minor].instance)
			c->tenant.ledger.account[minor].gate_shut = disable;
	}
}

/*
 * The card counts: a channel that is shut twice has to be opened twice (seen on
 * an H200: tenants stood still for good). So what is shut is not shut again.
 * `partly`: see gather(). Return: number of channels.
 */
static uint32_t move_gates(uint32_t minor, uint64_t mask, bool disable, uint64_t *partly)
{
	static __thread struct channel channels[SHUT_MAX];
	uint32_t status, count, i;

	pthread_mutex_lock(&door.lock);
	forget_freed(minor);
	tell_core(minor, mask, disable);
	count = gather(minor, mask, partly, channels);
	pthread_mutex_unlock(&door.lock);
	count = not_yet(minor, disable, channels, count);
	if (disable)
		note_shut(minor, channels, count, true);
	status = gate(minor, disable, channels, count);
	if (status) {
		/*
		 * One that its owner freed meanwhile fails the call: one by one, so
		 * that it keeps no other from its state. Opened first, so that all
		 * are shut once, whatever the call did before it failed.
		 */
		for (i = 0, status = 0; i < count; i++) {
			if (disable)
				gate(minor, false, &channels[i], 1);
			if (gate(minor, disable, &channels[i], 1))
				status = 1;
		}
		if (status)
			__atomic_fetch_add(&door.count.gate_errors, 1, __ATOMIC_RELAXED);
	}
	if (!disable)
		note_shut(minor, channels, count, false);
	return count;
}

struct group {
	struct container *c;
	uint32_t file;
	uint32_t hClient;
	uint32_t hGroup;
	uint64_t slice_us;
};

/*
 * Whoever opens first runs for the whole window, so that nothing is lost to
 * switches within it, or for its part of it. Context: door.lock.
 */
static uint64_t slice_in_window(const struct container *c, uint32_t minor, uint64_t slice_us)
{
	const struct cgpu_sched *s = &door.sched[minor];
	uint64_t window_ns, turns;

	if (!takes_turns(c, minor))
		return slice_us;
	turns = turns_of(c, minor);
	if (turns < 2)
		return 2 * s->period_ns / 1000;
	/* half a slice more than fits: none ends while the next tenant's gate opens */
	window_ns = s->spread_ns / CGPU_PPM * s->share[c->grant[minor].instance].share_ppm;
	slice_us = 2 * window_ns / (2 * turns + 1) / 1000;
	return slice_us < CGPU_SCHED_SLICE_US_CUDA ? CGPU_SCHED_SLICE_US_CUDA : slice_us;
}

static void set_slices(uint32_t minor, uint64_t mask, uint64_t slice_us)
{
	static __thread struct group groups[1024];
	uint32_t count = 0, i;
	int k;

	pthread_mutex_lock(&door.lock);
	for (k = 0; k < CONTAINERS_MAX; k++) {
		struct container *c = door.container[k];

		if (!c || c->ending || !c->grant[minor].present ||
		    !(mask & 1ULL << c->grant[minor].instance))
			continue;
		for (i = 1; i < c->tenant.objects.slots.touched && count < 1024; i++) {
			struct cgpu_object *o = cgpu_object_at(&c->tenant.objects, i);

			if (is_group(o, minor)) {
				uint32_t client = cgpu_object_find(&c->tenant.objects, o->hClient,
								   o->hClient);

				client = client ? cgpu_object_at(&c->tenant.objects,
								 client)->file : 0;
				groups[count++] = (struct group){
					c, client, o->hClient, o->hObject,
					slice_in_window(c, minor, slice_us),
				};
			}
		}
	}
	pthread_mutex_unlock(&door.lock);
	for (i = 0; i < count; i++) {
		int fd = file_duplicate(groups[i].c, groups[i].file);

		if (fd < 0)
			continue; /* its process ends */
		if (rm_control(fd, groups[i].hClient, groups[i].hGroup,
			       NVA06C_CTRL_CMD_SET_TIMESLICE, &groups[i].slice_us,
			       sizeof(groups[i].slice_us)))
			__atomic_fetch_add(&door.count.slice_errors, 1, __ATOMIC_RELAXED);
		close(fd);
		__atomic_fetch_add(&door.count.slice_calls, 1, __ATOMIC_RELAXED);
	}
}

/* Return: containers whose gate has still to open wholly. */
static uint64_t carry_out(uint32_t minor, const struct cgpu_sched_action *action)
{
	uint64_t start = now_ns(), end, took, after = 0, partly = 0;
	uint32_t count;

	pthread_rwlock_rdlock(&door.life);
	if (action->kind == CGPU_SCHED_SLICE) {
		set_slices(minor, action->mask, action->slice_us);
	} else if (action->kind == CGPU_SCHED_OPEN) {
		move_gates(minor, action->mask, false, &partly);
	} else {
		count = move_gates(minor, action->mask, true, NULL);
		if (count > FEW_CHANNELS)
			after = (count - FEW_CHANNELS) * AFTER_STOP_NS;
	}
	pthread_rwlock_unlock(&door.life);
	end = now_ns();
	took = end - start;
	pthread_mutex_lock(&door.lock);
	cgpu_sched_done(&door.sched[minor], action, start,
			end - (after < took / 2 ? after : took / 2), 0);
	if (action->kind != CGPU_SCHED_SLICE) {
		door.count.gate_calls++;
		door.count.gate_ns += took;
		if (took > door.count.gate_max_ns)
			door.count.gate_max_ns = took;
	}
	pthread_mutex_unlock(&door.lock);
	return partly;
}

static void open_wholly(uint32_t minor, uint64_t mask)
{
	pthread_rwlock_rdlock(&door.life);
	move_gates(minor, mask, false, NULL);
	pthread_rwlock_unlock(&door.life);
}

/* Context: door.lock, released while waiting. */
static void wait_until(uint64_t wake_ns)
{
	struct timespec at;
	uint64_t now = now_ns();

	/* look in once a second even if nothing is planned */
	if (wake_ns > now + 1000000000)
		wake_ns = now + 1000000000;
	at.tv_sec = (time_t)(wake_ns / 1000000000);
	at.tv_nsec = (long)(wake_ns % 1000000000);
	pthread_cond_timedwait(&door.changed, &door.lock, &at);
}

static void *drive(void *data)
{
	uint32_t minor = (uint32_t)(uintptr_t)data, count, i;
	struct cgpu_sched_action actions[CGPU_SCHED_ACTIONS];
	struct sched_param priority = { .sched_priority = PRIORITY };
	uint64_t wake, partly;

	/* a window must not wait for programs on the processor; refused, it may */
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority))
		prctl(PR_SET_TIMERSLACK, 1000);
	pthread_mutex_lock(&door.lock);
	while (door.running) {
		if (door.reopen[minor]) {
			uint64_t mask = door.reopen[minor];

			door.reopen[minor] = 0;
			pthread_mutex_unlock(&door.lock);
			open_wholly(minor, mask);
			pthread_mutex_lock(&door.lock);
		}
		count = cgpu_sched_tick(&door.sched[minor], now_ns(), actions, &wake);
		if (!count) {
			uint64_t due = ctxsw_follow(minor);

			if (due)
				wait_until(due < wake ? due : wake);
			continue;
		}
		pthread_mutex_unlock(&door.lock);
		for (i = 0, partly = 0; i < count; i++) {
			if (actions[i].kind == CGPU_SCHED_SHUT)
				partly &= ~actions[i].mask;
			partly |= carry_out(minor, &actions[i]);
		}
		if (partly)
			open_wholly(minor, partly);
		pthread_mutex_lock(&door.lock);
	}
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

void gates_start(void)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		if (!door.host.card[minor].present)
			continue;
		ctxsw_open(minor);
		sync_card(minor);
		started[minor] = !pthread_create(&thread[minor], NULL, drive,
						 (void *)(uintptr_t)minor);
	}
}

void gates_stop(void)
{
	uint32_t minor;

	pthread_mutex_lock(&door.lock);
	pthread_cond_broadcast(&door.changed);
	pthread_mutex_unlock(&door.lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (started[minor])
			pthread_join(thread[minor], NULL);
	/* the watchdog opens what is shut */
	close(watchdog_pipe);
}
