// SPDX-License-Identifier: GPL-2.0-only
/*
 * Timeslices are set through a duplicate of the tenant's file, because they name an object of the
 * tenant's client. A thread that asks for the duplicate waits while the file's process executes a
 * program. So each container has a thread that sends its slices, and gates do not wait.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "card/card.h"
#include "driver/driver.h"
#include "gate/gate.h"
#include "tenant/tenant.h"

enum {
	PRIORITY = 10 /* as the gates' threads, which once sent the slices */
};

struct group {
	uint32_t file;
	uint32_t hClient;
	uint32_t hGroup;
};

/*
 * A group that opens first runs for the whole window, so that no time is lost to switches within
 * it. Several leads have a part of the window each. Context: door.lock.
 */
static uint64_t slice_in_window(const struct container *c, uint32_t minor, uint64_t slice_us)
{
	const struct cgpu_sched *s = &door.sched[minor];
	uint64_t window_ns, leads;

	if (!rotates(c, minor))
		return slice_us;
	leads = leads_in_window(c, minor);
	if (leads < 2)
		return 2 * s->plan.period_ns / 1000;
	/* the window holds half a slice more: no slice ends while the next tenant's gate opens */
	window_ns = s->plan.spread_ns / CGPU_PPM * s->share[c->grant[minor].entity].share_ppm;
	slice_us = 2 * window_ns / (2 * leads + 1) / 1000;
	return slice_us < CGPU_SCHED_SLICE_US_CUDA ? CGPU_SCHED_SLICE_US_CUDA : slice_us;
}

/* Context: door.lock. Return: to free(), NULL: no memory. */
static struct group *groups_of(const struct container *c, uint32_t minor, uint32_t *count)
{
	const struct cgpu_objects *objects = &c->tenant.objects;
	struct group *groups = malloc((objects->runnables + 1) * sizeof(*groups));
	uint32_t i, client;

	*count = 0;
	for (i = objects->first_runnable; groups && i;
	     i = cgpu_object_at(objects, i)->next_runnable) {
		const struct cgpu_object *o = cgpu_object_at(objects, i);

		if (!is_gated_group(o, minor))
			continue;
		client = cgpu_object_find(objects, o->hClient, o->hClient);
		groups[(*count)++] = (struct group){
			client ? cgpu_object_at(objects, client)->file : 0, o->hClient, o->hObject,
		};
	}
	return groups;
}

static void send(struct container *c, const struct group *group, uint64_t slice_us)
{
	int fd;

	c->asking_ns = now_ns();
	fd = file_duplicate(c, group->file);
	c->asking_ns = 0;
	if (fd < 0)
		return; /* the file's process ends */
	if (rm_control(fd, group->hClient, group->hGroup, NVA06C_CTRL_CMD_SET_TIMESLICE, &slice_us,
		       sizeof(slice_us)))
		__atomic_fetch_add(&door.count.slice_errors, 1, __ATOMIC_RELAXED);
	close(fd);
	__atomic_fetch_add(&door.count.slice_calls, 1, __ATOMIC_RELAXED);
}

/* Context: door.lock, released meanwhile. Return: false: no slice was to be sent. */
static bool send_wanted(struct container *c, uint32_t minor)
{
	struct group *groups;
	uint64_t slice_us;
	uint32_t count, i;

	if (!c->slice_us[minor])
		return false;
	slice_us = slice_in_window(c, minor, c->slice_us[minor]);
	c->slice_us[minor] = 0;
	groups = groups_of(c, minor, &count);
	if (!groups)
		resend(c);
	pthread_mutex_unlock(&door.lock);
	for (i = 0; i < count; i++)
		send(c, &groups[i], slice_us);
	free(groups);
	pthread_mutex_lock(&door.lock);
	return true;
}

static void *send_on(void *data)
{
	struct sched_param priority = { .sched_priority = PRIORITY };
	struct container *c = data;
	uint32_t minor;
	bool sent;

	prctl(PR_SET_NAME, "cgpud-slices");
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
	pthread_mutex_lock(&door.lock);
	while (!c->ending) {
		for (minor = 0, sent = false; minor < CGPU_MAX_CARDS; minor++)
			sent |= send_wanted(c, minor);
		if (!sent && !c->ending)
			pthread_cond_wait(&c->slices, &door.lock);
	}
	worker_left(c);
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

void slices_want(uint32_t minor, uint64_t mask, uint64_t slice_us)
{
	int k;

	pthread_mutex_lock(&door.lock);
	for (k = 0; k < CONTAINERS_MAX; k++) {
		struct container *c = door.container[k];

		if (!c || c->ending || !c->grant[minor].present ||
		    !(mask & 1ULL << c->grant[minor].entity))
			continue;
		c->slice_us[minor] = slice_us;
		pthread_cond_signal(&c->slices);
	}
	pthread_mutex_unlock(&door.lock);
}

int slices_start(struct container *c)
{
	pthread_t thread;
	int err;

	pthread_mutex_lock(&door.lock);
	err = pthread_create(&thread, NULL, send_on, c);
	if (!err) {
		pthread_detach(thread);
		c->workers++;
	}
	pthread_mutex_unlock(&door.lock);
	return -err;
}
