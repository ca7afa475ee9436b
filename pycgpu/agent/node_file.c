// SPDX-License-Identifier: GPL-2.0-only
/*
 * Gathers the contents of a tree node under door.lock. core/tree/nodes makes the text, and parses
 * what is written. kmod/linux/node_file.c is its counterpart.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "card/card.h"
#include "gate/gate.h"
#include "holder/holder.h"

static uint32_t add_stat(struct cgpu_stat *stats, uint32_t count, const char *key, uint64_t value)
{
	stats[count] = (struct cgpu_stat){ key, value };
	return count + 1;
}

static void show_stats(struct container *c, int minor, struct cgpu_view *view)
{
	static __thread struct cgpu_stat stats[16];
	uint64_t submitted;
	uint32_t n = 0;

	if (c && c->leader) {
		/* the group has its compute: core/tree/nodes.h */
		n = add_stat(stats, n, "channels", c->channels[minor]);
		n = add_stat(stats, n, "groups", c->groups[minor]);
	} else if (c) {
		struct cgpu_sched_stat s;

		cgpu_sched_stat(&door.sched[minor], c->grant[minor].instance, now_ns(), &s);
		n = add_stat(stats, n, "granted_ns", s.granted_ns);
		n = add_stat(stats, n, "used_ns", s.used_ns);
		n = add_stat(stats, n, "throttled_ns", s.throttled_ns);
		n = add_stat(stats, n, "waited_ns", s.waited_ns);
		n = add_stat(stats, n, "switches", s.switches);
		n = add_stat(stats, n, "overruns", s.overruns);
		n = add_stat(stats, n, "channels", c->channels[minor]);
		n = add_stat(stats, n, "groups", c->groups[minor]);
		if (parking_is_still(c, (uint32_t)minor, &submitted))
			n = add_stat(stats, n, "submitted", submitted);
	} else {
		n = add_stat(stats, n, "used_ns", door.sched[minor].used_ns);
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
	view->version = CGPU_VERSION;
	view->features = 1u << CGPU_FEATURE_PID | 1u << CGPU_FEATURE_CGROUP |
			 1u << CGPU_FEATURE_EVENTS | 1u << CGPU_FEATURE_MEMORY |
			 1u << CGPU_FEATURE_MANAGED |
			 1u << CGPU_FEATURE_PARK | (door.gate ? 1u << CGPU_FEATURE_SLICES |
			 1u << CGPU_FEATURE_GATE : 0);
	view->host = &door.host;
	view->minor = minor < 0 ? 0 : (uint32_t)minor;
	if (c) {
		view->id = c->id;
		view->group = container_group(c);
		view->grant = &c->grant[view->minor];
		view->account = &c->tenant.ledger.account[view->minor];
		view->host_bytes = c->tenant.ledger.account[CGPU_HOST].current_bytes;
		view->park_state = c->tenant.ledger.park_state;
		view->parking = &c->tenant.parking;
	}
	if (entry->wants_usage)
		for (i = 0; i < CONTAINERS_MAX; i++)
			if (door.container[i])
				cgpu_usage_add(&view->usage, &door.container[i]->tenant.ledger,
					       view->minor);
	if (entry->wants_stats && minor >= 0)
		show_stats(c, minor, view);
	return 0;
}

int cgpu_agent_show(int node, int minor, const char *id, char *buf, int size)
{
	bool of_card = minor >= 0 && minor < CGPU_MAX_CARDS;
	struct cgpu_holder *holders = NULL;
	struct cgpu_away *away = NULL;
	struct cgpu_view_copy copy;
	struct cgpu_view view;
	uint32_t count = 0;
	int used;

	if (node == CGPU_NODE_STAT && of_card)
		switch_log_refresh((uint32_t)minor);
	if (node >= 0 && node < CGPU_NODE_COUNT && cgpu_node_table[node].wants_holders && of_card) {
		holders = holders_of(id, (uint32_t)minor, &count);
		if (!holders)
			return -ENOMEM;
	}
	if (node >= 0 && node < CGPU_NODE_COUNT && cgpu_node_table[node].wants_away) {
		away = calloc(CONTAINERS_MAX, sizeof(*away));
		if (!away)
			return -ENOMEM;
	}
	used = lock_view(node, minor, id, &view);
	if (!used) {
		if (away)
			view.away_count = containers_away(away);
		view.away = away;
		view.holders = holders;
		view.holder_count = count;
		view.id = id;
		cgpu_view_detach(&view, &copy);
		pthread_mutex_unlock(&door.lock);
		used = cgpu_node_show(&view, (uint32_t)node, buf, (size_t)size);
	}
	free(holders);
	free(away);
	return used;
}

int cgpu_agent_store(int node, int minor, const char *id, const char *text, int length)
{
	struct container *c;
	struct cgpu_view view;
	int err;

	if (length > CGPU_VALUE_MAX)
		return -EINVAL;
	err = lock_view(node, minor, id, &view);
	if (err)
		return err;
	c = id[0] ? find_container(id) : NULL;
	change_begin(c, NULL);
	change_keep(&door.host, sizeof(door.host));
	if (c)
		change_keep(c->grant, sizeof(c->grant));
	err = cgpu_node_store(&view, (uint32_t)node, text, (size_t)length);
	change_end();
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
