// SPDX-License-Identifier: GPL-2.0-only
/*
 * The containers: who is there, and what the scheduler is told of them. Here a
 * container is what carries its seccomp filter; lifecycle.c says when it ends.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "state/door.h"

enum {
	/* a slice that is set before its group runs does not last */
	RESEND_NS = 20000000,
	/* no sooner again: sending takes the driver's time, and so a neighbour's */
	RESEND_AGAIN_NS = 250000000
};

struct container *find_container(const char *id)
{
	struct container *named = NULL;
	int i;

	for (i = 0; i < CONTAINERS_MAX; i++) {
		if (!door.container[i] || door.container[i]->ending)
			continue;
		if (!strcmp(door.container[i]->id, id))
			return door.container[i];
		if (!strcmp(door.container[i]->name, id))
			named = door.container[i];
	}
	return named;
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

/* @id: whose request it was; NULL: the last container went. */
static void tell_policies(const char *id)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (door.host.policy_moved >> minor & 1)
			event("policy gpu=%u value=%s%s%s", minor,
			      cgpu_policy_name(door.host.card[minor].policy),
			      id ? " id=" : "", id ? id : "");
}

int registry_add(struct container *c, struct cgpu_create *create)
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
	if (err)
		return err;
	make_room(c);
	change_begin(c, NULL);
	change_keep(&door.host, sizeof(door.host));
	change_keep(&door.container[free_slot], sizeof(c));
	err = cgpu_host_admit(&door.host, create, &minor);
	if (!err) {
		memcpy(c->grant, create->grant, sizeof(c->grant));
		cgpu_grants_apply(c->grant, &c->tenant.ledger);
		door.container[free_slot] = c;
	}
	change_end();
	if (err)
		return err;
	tell_policies(c->id);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (c->grant[minor].present)
			sync_card(minor);
	return 0;
}

void unlist(struct container *c)
{
	uint32_t minor;

	change_begin(NULL, NULL);
	change_keep(&door.host, sizeof(door.host));
	change_keep(&c->ending, sizeof(c->ending));
	c->ending = true;
	cgpu_host_release(&door.host, c->grant);
	change_end();
	tell_policies(NULL);
	pthread_cond_signal(&c->slices);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (c->grant[minor].present) {
			cgpu_sched_remove(&door.sched[minor], c->grant[minor].instance, now_ns());
			demand_forget(minor, c->grant[minor].instance);
		}
	pthread_cond_broadcast(&door.changed);
	door.ended_ns = now_ns();
	event("destroy id=%s", c->id);
}

/* ------------------------------------------------------------------ tenants */

void make_room(struct container *c)
{
	uint32_t table, capacity;
	size_t bytes;

	for (table = 0; table < CGPU_TABLE_COUNT; table++) {
		while ((bytes = cgpu_tenant_wants(&c->tenant, table, &capacity))) {
			void *storage = arena_alloc(bytes), *old;

			if (!storage)
				break;
			change_begin_growth(c);
			old = cgpu_tenant_grow(&c->tenant, table, storage, capacity);
			change_end();
			arena_free(old);
		}
	}
}

void let_go(struct container *c)
{
	bool more;

	while (c->tenant.first_over) {
		change_begin(c, NULL);
		more = cgpu_tenant_close_step(&c->tenant);
		change_end();
		if (!more)
			return;
		pthread_mutex_unlock(&door.lock);
		sched_yield();
		pthread_mutex_lock(&door.lock);
	}
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
		member = cgpu_grant_member(card, &c->grant[minor]);
		cgpu_sched_set(&door.sched[minor], c->grant[minor].instance, &member, now);
		c->tenant.ledger.account[minor].slices_owned =
			card->policy != CGPU_POLICY_NATIVE && door.gate;
	}
	pthread_cond_broadcast(&door.changed);
}

void refresh(struct container *c)
{
	const struct cgpu_objects *objects = &c->tenant.objects;
	uint32_t groups[CGPU_MAX_CARDS] = { 0 }, channels[CGPU_MAX_CARDS] = { 0 };
	bool renewed = c->tenant.objects.runnable_changes != c->runnable_changes;
	uint32_t i;

	c->runnable_changes = c->tenant.objects.runnable_changes;
	for (i = objects->first_runnable; i; i = cgpu_object_at(objects, i)->next_runnable) {
		const struct cgpu_object *o = cgpu_object_at(objects, i);

		if (o->card >= CGPU_MAX_CARDS)
			continue;
		if (is_gated_group(o, o->card))
			groups[o->card]++;
		else if (cgpu_tenant_is_gated(o, o->card))
			channels[o->card]++;
	}
	for (i = 0; i < CGPU_MAX_CARDS; i++) {
		bool open = objects->devices[i];

		if (!c->grant[i].present || c->ending)
			continue;
		/* one for another leaves their number */
		if (renewed) {
			cgpu_sched_renewed(&door.sched[i], c->grant[i].instance);
			pthread_cond_broadcast(&door.changed);
		}
		if (open == c->open[i] && groups[i] == c->groups[i] &&
		    channels[i] == c->channels[i])
			continue;
		c->open[i] = open;
		c->groups[i] = groups[i];
		c->channels[i] = channels[i];
		cgpu_sched_open(&door.sched[i], c->grant[i].instance, open, groups[i],
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

void send_again(struct container *c)
{
	uint32_t i;

	if (!c->resend_ns || now_ns() <= c->resend_ns)
		return;
	c->resend_ns = 0;
	c->resent_ns = now_ns();
	for (i = 0; i < CGPU_MAX_CARDS; i++)
		if (c->grant[i].present && c->groups[i] && !c->ending) {
			cgpu_sched_reapply(&door.sched[i], c->grant[i].instance, now_ns());
			/* what is shut stays shut */
			if (cgpu_sched_may_run(&door.sched[i], c->grant[i].instance))
				door.reopen[i] |= 1ULL << c->grant[i].instance;
		}
	pthread_cond_broadcast(&door.changed);
}
