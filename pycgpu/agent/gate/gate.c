// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes a container's channels off the card and puts them back, through the agent's own client.
 * governor.c says when.
 *
 * The state lists all channels that are shut, so that the watchdog, or an agent after this one, can
 * open them.
 */
#include <stdatomic.h>
#include <string.h>

#include "driver/driver.h"
#include "gate/gate.h"

enum {
	SHUT_MAX = 16384,
	NEW_MAX = 64,
	/* every group of a container has led by then */
	ROUND_NS = 200000000
};

struct shut {
	_Atomic uint32_t count;
	struct cgpu_handle channel[SHUT_MAX];
} __attribute__((aligned(4096)));

static struct shut shut[CGPU_MAX_CARDS];
/*
 * Held from when channels are marked until the driver has been told. Otherwise a gate that opens
 * and one that shuts could pass each other. Taken before door.lock.
 */
static pthread_mutex_t gate_lock[CGPU_MAX_CARDS];

/* Return: the driver's status. */
static uint32_t gate(uint32_t minor, bool disable, const struct cgpu_handle *channels,
		     uint32_t count)
{
	enum { ENTRIES_MAX = NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES };
	struct nv_fifo_disable_channels params;
	uint32_t status = 0, done, i;

	for (done = 0; done < count; done += ENTRIES_MAX) {
		uint32_t n = count - done < ENTRIES_MAX ? count - done : ENTRIES_MAX;
		uint32_t got;

		memset(&params, 0, sizeof(params));
		params.bDisable = disable;
		params.numChannels = n;
		for (i = 0; i < n; i++) {
			params.hClientList[i] = channels[done + i].hClient;
			params.hChannelList[i] = channels[done + i].hObject;
		}
		got = rm_control(rm_ctl_fd(), rm_client(), rm_subdevice(minor),
				 NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, &params, sizeof(params));
		if (got)
			status = got;
	}
	return status;
}

void gates_open_all(void)
{
	uint32_t minor, i, count;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		count = atomic_load(&shut[minor].count);
		/* one at a time: a channel that is gone must not spoil the call for the others */
		if (count && gate(minor, false, shut[minor].channel, count))
			for (i = 0; i < count; i++)
				gate(minor, false, &shut[minor].channel[i], 1);
		atomic_store(&shut[minor].count, 0);
	}
}

void gates_adopt(struct container *c)
{
	struct cgpu_objects *objects = &c->tenant.objects;
	uint32_t i;

	/* gates_open_all() has opened every channel that was shut */
	for (i = objects->first_runnable; i; i = cgpu_object_at(objects, i)->next_runnable)
		cgpu_object_at(objects, i)->flags &= ~(uint32_t)(CGPU_OBJECT_SHUT |
								 CGPU_OBJECT_REFUSED);
}

struct state_segment gates_segment(void)
{
	return (struct state_segment){ shut, sizeof(shut) };
}

/*
 * Priority inheritance, so that the governor never waits for a tenant's thread that waits for a
 * processor.
 */
__attribute__((constructor)) static void init_locks(void)
{
	pthread_mutexattr_t inherit;
	uint32_t minor;

	pthread_mutexattr_init(&inherit);
	pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		pthread_mutex_init(&gate_lock[minor], &inherit);
	pthread_mutexattr_destroy(&inherit);
}

bool is_gated_group(const struct cgpu_object *o, uint32_t minor)
{
	return o->hClient && o->card == minor && o->hClass == KEPLER_CHANNEL_GROUP_A &&
	       !(o->flags & CGPU_OBJECT_DUPLICATE) && cgpu_engine_computes(o->engineType) &&
	       o->flags & CGPU_OBJECT_SCHEDULED;
}

/* The sum over all containers that run under the container's slot. */
static uint32_t groups_in_slot(const struct container *c, uint32_t minor)
{
	uint32_t groups = 0;
	int k;

	for (k = 0; (k = next_in_slot(minor, c->grant[minor].entity, k)) < CONTAINERS_MAX; k++)
		groups += door.container[k]->groups[minor];
	return groups;
}

bool rotates(const struct container *c, uint32_t minor)
{
	return door.sched[minor].plan.mode == CGPU_SCHED_WINDOWS && groups_in_slot(c, minor) > 1;
}

/* A channel group that opens ahead of others, and the container that owns it. */
struct lead {
	const struct container *c; /* NULL: none */
	uint32_t object;
};

/*
 * The card starts a tenant's groups from the first of those it finds open. So the last would never
 * run if a window is shorter than all their slices. Seen on an H200: of eight processes in windows
 * of 5 ms three to five ran. Hence one group opens ahead of the others, another in each window.
 * Context: door.lock.
 */
static struct lead lead_of(const struct container *owner, uint32_t minor)
{
	uint32_t left = owner->lead[minor] % groups_in_slot(owner, minor), i;
	uint32_t slot = owner->grant[minor].entity;
	int k;

	for (k = 0; (k = next_in_slot(minor, slot, k)) < CONTAINERS_MAX; k++) {
		const struct container *c = door.container[k];
		const struct cgpu_objects *objects = &c->tenant.objects;

		for (i = objects->first_runnable; i; i = cgpu_object_at(objects, i)->next_runnable)
			if (is_gated_group(cgpu_object_at(objects, i), minor) && !left--)
				return (struct lead){ c, i };
	}
	return (struct lead){ NULL, 0 };
}

/*
 * A container knows a group by an identity of its own. Return: whether the container has channels
 * in the group.
 */
static bool identity_in(const struct container *c, const struct lead *lead, uint32_t *identity)
{
	const struct cgpu_object *group = cgpu_object_at(&lead->c->tenant.objects, lead->object);
	const struct cgpu_object *o = group;
	uint32_t i;

	if (c != lead->c) {
		for (i = c->tenant.objects.first_runnable; i; i = o->next_runnable) {
			o = cgpu_object_at(&c->tenant.objects, i);
			if (o->flags & CGPU_OBJECT_BORROWED && c->leader == lead->c &&
			    o->lender == lead->object && o->lender_serial == group->serial)
				break;
		}
		if (!i)
			return false;
	}
	*identity = o->identity;
	return true;
}

uint32_t leads_in_window(const struct container *c, uint32_t minor)
{
	uint64_t round_ns = groups_in_slot(c, minor) * door.sched[minor].plan.period_ns;

	return (uint32_t)((round_ns + ROUND_NS - 1) / ROUND_NS);
}

/*
 * Channels of one container: of one group alone (`its`), or of all others if `lead` is one. Return:
 * how many there are now.
 */
static uint32_t mark(struct container *c, uint32_t minor, bool disable, const struct lead *lead,
		     bool its, struct cgpu_handle *out, uint32_t count)
{
	uint32_t identity = 0, i;
	bool has = lead->c && identity_in(c, lead, &identity);
	struct cgpu_object *o;

	for (i = c->tenant.objects.first_runnable; i && count < SHUT_MAX; i = o->next_runnable) {
		o = cgpu_object_at(&c->tenant.objects, i);
		if ((lead->c && (has && o->identity == identity) != its) ||
		    !cgpu_tenant_mark(o, minor, disable))
			continue;
		out[count++] = (struct cgpu_handle){ o->hClient, o->hObject };
	}
	return count;
}

/*
 * Marks channels of the containers in `mask` whose state has to change. The card counts, so a
 * channel that is shut twice has to be opened twice (seen on an H200: tenants stood still for
 * good). With `partly`, containers that rotate open only the next lead, and are added to it.
 * Context: gate_lock, door.lock. Return: how many.
 */
static uint32_t gather(uint32_t minor, uint64_t mask, bool disable, uint64_t *partly,
		       struct cgpu_handle *out)
{
	uint32_t count = 0;
	int k, m, pass;

	for (k = 0; k < CONTAINERS_MAX; k++) {
		struct container *c = door.container[k];
		struct lead lead = { NULL, 0 };
		uint32_t slot;

		/* channels of a group's members move with those of its leader */
		if (!c || c->ending || !c->grant[minor].present || c->leader)
			continue;
		slot = c->grant[minor].entity;
		if (!(mask & 1ULL << slot))
			continue;
		for (m = 0; disable && (m = next_in_slot(minor, slot, m)) < CONTAINERS_MAX; m++)
			cgpu_tenant_gate_anew(&door.container[m]->tenant, minor);
		if (rotates(c, minor)) {
			if (partly) {
				c->lead[minor] += leads_in_window(c, minor);
				*partly |= 1ULL << slot;
			}
			lead = lead_of(c, minor);
		}
		/*
		 * the group that ran stops last: the time that the call takes before that is its
		 * time
		 */
		for (pass = lead.c && !partly; pass >= 0; pass--)
			for (m = 0; (m = next_in_slot(minor, slot, m)) < CONTAINERS_MAX; m++)
				count = mark(door.container[m], minor, disable, &lead, !pass, out,
					     count);
	}
	return count;
}

static uint32_t find_shut(const struct shut *list, uint32_t count, struct cgpu_handle channel)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (list->channel[i].hClient == channel.hClient &&
		    list->channel[i].hObject == channel.hObject)
			break;
	return i;
}

/* Keeps the watchdog's list of channels that are shut or about to be. */
static void note_shut(uint32_t minor, const struct cgpu_handle *channels, uint32_t count, bool add)
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

/* Removes channels from the list that were freed while they were shut. Context: door.lock. */
static void forget_freed(uint32_t minor)
{
	struct shut *list = &shut[minor];
	uint32_t n = atomic_load(&list->count), i;
	bool alive;
	int k;

	for (i = 0; i < n;) {
		struct cgpu_handle channel = list->channel[i];

		for (k = 0, alive = false; k < CONTAINERS_MAX && !alive; k++)
			alive = door.container[k] &&
				cgpu_object_find(&door.container[k]->tenant.objects,
						 channel.hClient, channel.hObject);
		if (alive) {
			i++;
			continue;
		}
		list->channel[i] = list->channel[n - 1];
		atomic_store(&list->count, --n);
	}
}

/* Context: gate_lock. */
static void not_shut(uint32_t minor, const struct cgpu_handle *channel)
{
	int k;

	note_shut(minor, channel, 1, false);
	pthread_mutex_lock(&door.lock);
	for (k = 0; k < CONTAINERS_MAX; k++)
		if (door.container[k])
			cgpu_tenant_not_shut(&door.container[k]->tenant, channel);
	pthread_mutex_unlock(&door.lock);
}

/* Context: gate_lock. */
static void tell(uint32_t minor, bool disable, const struct cgpu_handle *channels, uint32_t count)
{
	uint32_t status, i;

	if (disable)
		note_shut(minor, channels, count, true);
	status = gate(minor, disable, channels, count);
	if (status) {
		/*
		 * A channel that its owner freed meanwhile fails the call. So they go one by one,
		 * and the failure keeps no other channel from its state. Each is opened first, so
		 * that all are shut once, whatever the call did before it failed.
		 */
		for (i = 0, status = 0; i < count; i++) {
			if (disable)
				gate(minor, false, &channels[i], 1);
			if (!gate(minor, disable, &channels[i], 1))
				continue;
			status = 1;
			if (disable)
				not_shut(minor, &channels[i]);
		}
		if (status)
			__atomic_fetch_add(&door.count.gate_errors, 1, __ATOMIC_RELAXED);
	}
	if (!disable)
		note_shut(minor, channels, count, false);
}

uint32_t move_gates(uint32_t minor, uint64_t mask, bool disable, uint64_t *partly)
{
	static __thread struct cgpu_handle channels[SHUT_MAX];
	uint32_t count;

	pthread_mutex_lock(&gate_lock[minor]);
	pthread_mutex_lock(&door.lock);
	forget_freed(minor);
	count = gather(minor, mask, disable, partly, channels);
	pthread_mutex_unlock(&door.lock);
	tell(minor, disable, channels, count);
	pthread_mutex_unlock(&gate_lock[minor]);
	return count;
}

/* Context: gate_lock. Return: false: no channel is shut. */
static bool shut_new(struct container *c, uint32_t minor)
{
	struct cgpu_handle channels[NEW_MAX];
	uint32_t slot = c->grant[minor].entity, count;
	bool held = false;

	pthread_mutex_lock(&door.lock);
	cgpu_tenant_gate_anew(&c->tenant, minor);
	pthread_mutex_unlock(&door.lock);
	do {
		pthread_mutex_lock(&door.lock);
		count = c->ending || cgpu_sched_may_run(&door.sched[minor], slot) ? 0 :
			cgpu_tenant_gate(&c->tenant, minor, true, channels, NEW_MAX);
		pthread_mutex_unlock(&door.lock);
		tell(minor, true, channels, count);
		held |= count;
	} while (count == NEW_MAX);
	return held;
}

static void tell_held(struct container *c, uint32_t minor)
{
	/* if its turn began meanwhile, the engine opens them */
	pthread_mutex_lock(&door.lock);
	if (!c->ending)
		cgpu_sched_held(&door.sched[minor], c->grant[minor].entity, now_ns());
	pthread_cond_broadcast(&door.changed);
	pthread_mutex_unlock(&door.lock);
}

void shut_new_channels(struct container *c, uint32_t minor)
{
	bool held;

	pthread_mutex_lock(&gate_lock[minor]);
	held = shut_new(c, minor);
	pthread_mutex_unlock(&gate_lock[minor]);
	if (held)
		tell_held(c, minor);
}

void shut_scheduled_channels(struct container *c, uint32_t minor, void (*ask)(void *data),
			     void *data)
{
	bool held;

	if (minor >= CGPU_MAX_CARDS || !c->grant[minor].present) {
		ask(data);
		return;
	}
	pthread_mutex_lock(&gate_lock[minor]);
	ask(data);
	held = shut_new(c, minor);
	pthread_mutex_unlock(&gate_lock[minor]);
	if (held)
		tell_held(c, minor);
}
