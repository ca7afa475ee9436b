// SPDX-License-Identifier: GPL-2.0-only
/*
 * The list of containers. Here a container is the processes under its seccomp filter; lifecycle.c
 * says when it ends.
 */
#include <errno.h>
#include <string.h>

#include "agent.h"
#include "card/card.h"
#include "gate/gate.h"
#include "tenant/tenant.h"

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

/* @id: the container that made the request; NULL: the last container went. */
static void tell_policies(const char *id)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (door.host.policy_moved >> minor & 1)
			event("policy gpu=%u value=%s%s%s", minor,
			      cgpu_policy_name(door.host.card[minor].policy),
			      id ? " id=" : "", id ? id : "");
}

bool has_members(const struct container *c)
{
	int i;

	if (c->tenant.role == CGPU_ROLE_LEADER)
		for (i = 0; i < CONTAINERS_MAX; i++)
			if (door.container[i] && door.container[i]->leader == c)
				return true;
	return false;
}

const char *container_group(const struct container *c)
{
	return c->leader ? c->leader->id : c->tenant.role == CGPU_ROLE_LEADER ? c->id : NULL;
}

void tell_container(const char *kind, const struct container *c)
{
	const char *group = container_group(c);

	event("%s id=%s%s%s", kind, c->id, group ? " group=" : "", group ? group : "");
}

/* Return: -ENOENT: there is no such container, -EINVAL: it leads no group. */
static int find_leader(struct container *c, struct cgpu_create *create)
{
	if (!create->group[0])
		return 0;
	if (!strcmp(create->group, c->id)) {
		c->tenant.role = CGPU_ROLE_LEADER;
		return 0;
	}
	c->leader = find_container(create->group);
	if (!c->leader)
		return -ENOENT;
	if (c->leader->tenant.role != CGPU_ROLE_LEADER)
		return -EINVAL;
	c->tenant.role = CGPU_ROLE_MEMBER;
	create->leader = c->leader->grant;
	return 0;
}

int registry_add(struct container *c, struct cgpu_create *create)
{
	uint32_t minor;
	int i, free_slot = -1, err;

	if (find_container(c->id))
		return -EEXIST;
	err = find_leader(c, create);
	if (err)
		return err;
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
	if (c->leader)
		change_keep(c->leader->grant, sizeof(c->leader->grant));
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
	struct container *leader = c->leader && !c->leader->ending ? c->leader : NULL;
	uint32_t minor;

	change_begin(NULL, NULL);
	change_keep(&door.host, sizeof(door.host));
	change_keep(&c->ending, sizeof(c->ending));
	if (leader)
		change_keep(leader->grant, sizeof(leader->grant));
	c->ending = true;
	cgpu_host_release(&door.host, c->grant, leader ? leader->grant : NULL);
	change_end();
	tell_policies(NULL);
	pthread_cond_signal(&c->slices);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (c->grant[minor].present && c->leader) {
			c->open[minor] = false;
			c->groups[minor] = c->channels[minor] = 0;
			tell_open(c, minor);
			sync_card(minor);
		} else if (c->grant[minor].present) {
			cgpu_sched_remove(&door.sched[minor], c->grant[minor].instance, now_ns());
			demand_forget(minor, c->grant[minor].instance);
		}
	pthread_cond_broadcast(&door.changed);
	door.ended_ns = now_ns();
	tell_container("destroy", c);
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
