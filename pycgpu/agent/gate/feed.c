// SPDX-License-Identifier: GPL-2.0-only
/* What the scheduler is told of containers: promises, open cards, new groups. */
#include "gate/gate.h"

#include "core/sched/gang.h"

enum {
	/* a slice that is set before its group runs does not last */
	RESEND_NS = 20000000,
	/* no sooner again: sending takes the driver's time, and so a neighbour's */
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
		/* one for another leaves their number */
		if (renewed) {
			cgpu_sched_renewed(&door.sched[i], c->grant[i].instance);
			pthread_cond_broadcast(&door.changed);
		}
		if (open == c->open[i] && groups[i] == c->groups[i] &&
		    channels[i] == c->channels[i] && gang == c->gang)
			continue;
		c->open[i] = open;
		c->groups[i] = groups[i];
		c->channels[i] = channels[i];
		cgpu_sched_open(&door.sched[i], c->grant[i].instance, open, groups[i],
				now_ns());
		cgpu_sched_gang(&door.sched[i], c->grant[i].instance, gang, now_ns());
		resend(c);
		pthread_cond_broadcast(&door.changed);
	}
	c->gang = gang;
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
