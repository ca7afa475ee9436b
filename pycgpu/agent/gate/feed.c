// SPDX-License-Identifier: GPL-2.0-only
/*
 * Informs the scheduler of containers: promises, open cards, new groups. A container group is one
 * to the scheduler, by the leader's slots.
 */
#include "gate/gate.h"

#include "core/sched/gang.h"

enum {
	/* a slice that is set before its group runs does not last */
	RESEND_NS = 20000000,
	/* not before this has passed: sending takes the driver's time, and so a neighbour's */
	RESEND_AGAIN_NS = 250000000
};

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
		if (!c->leader)
			cgpu_sched_set(&door.sched[minor], c->grant[minor].instance, &member, now);
		c->tenant.ledger.account[minor].slices_owned =
			card->policy != CGPU_POLICY_NATIVE && door.gate;
	}
	pthread_cond_broadcast(&door.changed);
}

void tell_open(struct container *c, uint32_t minor)
{
	uint32_t slot = c->grant[minor].entity, groups = 0;
	bool open = false;
	int k;

	for (k = 0; (k = next_in_slot(minor, slot, k)) < CONTAINERS_MAX; k++) {
		open |= door.container[k]->open[minor];
		groups += door.container[k]->groups[minor];
	}
	cgpu_sched_open(&door.sched[minor], slot, open, groups, now_ns());
}

/* A channel group that the leader has freed becomes its members' own. */
static void hand_down(struct container *leader)
{
	int i;

	for (i = 0; i < CONTAINERS_MAX; i++) {
		struct container *c = door.container[i];

		if (!c || c->leader != leader)
			continue;
		cgpu_object_inherit(&c->tenant.objects, &leader->tenant.objects);
		refresh(c);
	}
}

void refresh(struct container *c)
{
	const struct cgpu_objects *objects = &c->tenant.objects;
	uint32_t groups[CGPU_MAX_CARDS] = { 0 }, channels[CGPU_MAX_CARDS] = { 0 };
	bool renewed = c->tenant.objects.runnable_changes != c->runnable_changes;
	uint32_t i, cards = 0, gang;

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
	for (i = 0; i < CGPU_MAX_CARDS; i++)
		cards += groups[i] != 0;
	gang = cgpu_gang_number(c->id, cards);
	for (i = 0; i < CGPU_MAX_CARDS; i++) {
		bool open = objects->devices[i];

		if (!c->grant[i].present || c->ending)
			continue;
		/* a group that replaces another leaves the number unchanged */
		if (renewed) {
			cgpu_sched_renewed(&door.sched[i], c->grant[i].entity);
			pthread_cond_broadcast(&door.changed);
		}
		if (open == c->open[i] && groups[i] == c->groups[i] &&
		    channels[i] == c->channels[i] && gang == c->gang)
			continue;
		c->open[i] = open;
		c->groups[i] = groups[i];
		c->channels[i] = channels[i];
		tell_open(c, i);
		/* a group is a gang by the cards of its server */
		if (!c->leader)
			cgpu_sched_gang(&door.sched[i], c->grant[i].entity, gang, now_ns());
		resend(c->leader ? c->leader : c);
		pthread_cond_broadcast(&door.changed);
	}
	c->gang = gang;
	if (renewed && c->tenant.role == CGPU_ROLE_LEADER)
		hand_down(c);
}

void resend(struct container *c)
{
	uint64_t soon_ns = now_ns() + RESEND_NS, again_ns = c->resent_ns + RESEND_AGAIN_NS;

	c->resend_ns = again_ns > soon_ns ? again_ns : soon_ns;
}

/* True if a container of the group does; `c` leads the group, or is alone. */
static bool runs_groups(const struct container *c, uint32_t minor)
{
	int k;

	for (k = 0; (k = next_in_slot(minor, c->grant[minor].entity, k)) < CONTAINERS_MAX; k++)
		if (door.container[k]->groups[minor])
			return true;
	return false;
}

void send_again(struct container *c)
{
	uint32_t i;

	if (!c->resend_ns || now_ns() <= c->resend_ns)
		return;
	c->resend_ns = 0;
	c->resent_ns = now_ns();
	for (i = 0; i < CGPU_MAX_CARDS; i++)
		if (c->grant[i].present && runs_groups(c, i) && !c->ending) {
			cgpu_sched_reapply(&door.sched[i], c->grant[i].entity, now_ns());
			/* what is shut stays shut */
			if (cgpu_sched_may_run(&door.sched[i], c->grant[i].entity))
				door.reopen[i] |= 1ULL << c->grant[i].entity;
		}
	pthread_cond_broadcast(&door.changed);
}
