// SPDX-License-Identifier: GPL-2.0-only
/*
 * Thin: takes the locks, gathers what a node shows, and lets core/tree/nodes make
 * or read the text, in the kernel's memory: user memory is never touched under a
 * lock.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "core/tree/inst_ctl.h"
#include "core/tree/nodes.h"
#include "demand.h"
#include "discover.h"
#include "door/events.h"
#include "governors.h"
#include "lifecycle.h"
#include "node_file.h"
#include "parking.h"
#include "registry.h"
#include "tree.h"
#include "verify.h"

enum {
	HOLDERS_FIRST = 2 * CGPU_HELD_STEP,
	HOLDERS_MAX = 1 << 16,
};

/* A file that a later core made, which was given up. */
static bool is_unknown(const struct cgpu_tree_entry *entry)
{
	return entry->node >= CGPU_NODE_COUNT;
}

/*
 * The ledger's pid may have been reused since: a process outside the container is not its holder.
 */
static void find_holder(struct cgpu_container *container, const struct cgpu_process *process,
			struct cgpu_holder *holder)
{
	struct task_struct *task;
	struct pid *pid;

	*holder = (struct cgpu_holder){ .pid = process->pid, .bytes = process->bytes };
	rcu_read_lock();
	pid = get_pid(find_pid_ns(process->pid, &init_pid_ns));
	rcu_read_unlock();
	task = get_pid_task(pid, PIDTYPE_TGID);
	if (task && cgpu_container_has(container, task)) {
		holder->container_pid = container->pid_ns ?
					pid_nr_ns(pid, container->pid_ns) :
					pid->numbers[pid->level].nr;
		get_task_comm(holder->comm, task);
	}
	if (task)
		put_task_struct(task);
	put_pid(pid);
}

/* Makes room for another step of cgpu_tenant_held(). Return: false: no memory, or list full. */
static bool make_step(struct cgpu_process **processes, u32 *count, u32 *max)
{
	struct cgpu_process *larger;
	u32 wanted = *max ? 2 * *max : HOLDERS_FIRST;

	if (*count + CGPU_HELD_STEP > *max)
		*count = cgpu_processes_sum(*processes, *count);
	if (*count + CGPU_HELD_STEP <= *max)
		return true;
	if (wanted > HOLDERS_MAX)
		return false;
	larger = kvmalloc_array(wanted, sizeof(*larger), GFP_KERNEL_ACCOUNT);
	if (!larger)
		return false;
	if (*count)
		memcpy(larger, *processes, *count * sizeof(*larger));
	kvfree(*processes);
	*processes = larger;
	*max = wanted;
	return true;
}

/*
 * A container's own process may ask for their number, too. Gates wait for the container's lock, so
 * it is released after each step.
 */
static struct cgpu_process *processes_of(struct cgpu_container *container, u32 minor,
					 u32 *count)
{
	struct cgpu_process *processes = NULL;
	u32 max = 0, from = 0;

	*count = 0;
	do {
		if (!make_step(&processes, count, &max))
			break;
		rt_mutex_lock(&container->lock);
		*count += cgpu_tenant_held(&container->tenant, minor, &from, processes + *count);
		rt_mutex_unlock(&container->lock);
		cond_resched();
	} while (from);
	if (processes)
		*count = cgpu_processes_sum(processes, *count);
	return processes;
}

/* Return: the processes that hold the card, by pid, to kvfree(), or NULL: no memory. */
static struct cgpu_holder *holders_of(struct cgpu_container *container, u32 minor, u32 *count)
{
	struct cgpu_process *processes = processes_of(container, minor, count);
	struct cgpu_holder *holders;
	u32 index;

	if (!processes)
		return NULL;
	holders = kvmalloc_array(*count + 1, sizeof(*holders), GFP_KERNEL_ACCOUNT);
	for (index = 0; holders && index < *count; index++)
		find_holder(container, &processes[index], &holders[index]);
	kvfree(processes);
	return holders;
}

/* Caller holds registry.lock. */
static void add_usage(struct cgpu_view *view)
{
	struct cgpu_container *container;

	list_for_each_entry(container, &cgpu_registry->containers, node) {
		rt_mutex_lock(&container->lock);
		cgpu_usage_add(&view->usage, &container->tenant.ledger, view->minor);
		rt_mutex_unlock(&container->lock);
	}
}

/* Return: 0 with the locks taken that `view` needs, -ENODEV: its subject is gone. */
static int lock_view(const struct cgpu_tree_entry *entry, struct cgpu_view *view)
{
	struct cgpu_container *container = entry->container;

	rt_mutex_lock(&cgpu_registry->lock);
	if (container ? container->removed :
	    cgpu_node_table[entry->node].place == CGPU_PLACE_CARD &&
	    !cgpu_registry->host.card[entry->minor].present) {
		rt_mutex_unlock(&cgpu_registry->lock);
		return -ENODEV;
	}
	view->version = CGPU_VERSION;
	view->features = cgpu_tree_features();
	view->host = &cgpu_registry->host;
	view->minor = entry->minor;
	if (cgpu_node_table[entry->node].wants_usage)
		add_usage(view);
	if (container) {
		rt_mutex_lock(&container->lock);
		view->id = container->id;
		view->group = container->group;
		view->grant = &container->grant[entry->minor];
		view->account = &container->tenant.ledger.account[entry->minor];
		view->host_bytes = container->tenant.ledger.account[CGPU_HOST].current_bytes;
		view->park_state = container->tenant.ledger.park_state;
		view->parking = &container->tenant.parking;
	}
	return 0;
}

static void unlock_view(const struct cgpu_tree_entry *entry)
{
	if (entry->container)
		rt_mutex_unlock(&entry->container->lock);
	rt_mutex_unlock(&cgpu_registry->lock);
}

enum { COMPUTE_STATS = 8, STATS = COMPUTE_STATS + 1 };

/* What the scheduler counts. Return: how many; 0: the card has no governor. */
static u32 compute_stats(const struct cgpu_tree_entry *entry, struct cgpu_stat *stats)
{
	struct cgpu_sched_stat now;
	u32 count = 0;

	if (!cgpu_governors_stat(entry->container, entry->minor, &now))
		return 0;
	if (!entry->container) {
		stats[count++] = (struct cgpu_stat){ "used_ns", now.used_ns };
		return count;
	}
	stats[count++] = (struct cgpu_stat){ "granted_ns", now.granted_ns };
	stats[count++] = (struct cgpu_stat){ "used_ns", now.used_ns };
	stats[count++] = (struct cgpu_stat){ "throttled_ns", now.throttled_ns };
	stats[count++] = (struct cgpu_stat){ "waited_ns", now.waited_ns };
	stats[count++] = (struct cgpu_stat){ "switches", now.switches };
	stats[count++] = (struct cgpu_stat){ "overruns", now.overruns };
	/* values have no sign: what it owes, and what it is owed */
	stats[count++] = (struct cgpu_stat){ "debt_ns", now.lag_ns < 0 ? -now.lag_ns : 0 };
	stats[count++] = (struct cgpu_stat){ "credit_ns", now.lag_ns > 0 ? now.lag_ns : 0 };
	return count;
}

/* The figure that shows that a container is idle, if it is to be parked when it is. */
static u32 idle_stats(const struct cgpu_tree_entry *entry, struct cgpu_stat *stats)
{
	struct cgpu_container *container = entry->container;
	u64 submitted;

	if (!container || !READ_ONCE(container->grant[entry->minor].idle_park_s) ||
	    !cgpu_demand_is_still(container, entry->minor, &submitted))
		return 0;
	*stats = (struct cgpu_stat){ "submitted", submitted };
	return 1;
}

int cgpu_node_file_show(struct seq_file *seq)
{
	const struct cgpu_tree_entry *entry = seq->private;
	struct cgpu_holder *holders = NULL;
	struct cgpu_away *away = NULL;
	u32 away_max = READ_ONCE(cgpu_registry->count);
	struct cgpu_stat stats[STATS];
	struct cgpu_view view = {};
	struct cgpu_view_copy *copy;
	size_t size;
	char *buf;
	int used = -ENOMEM;

	if (is_unknown(entry))
		return -ENODEV;
	copy = kmalloc(sizeof(*copy), GFP_KERNEL_ACCOUNT);
	if (!copy)
		return -ENOMEM;
	if (cgpu_node_table[entry->node].wants_holders) {
		holders = holders_of(entry->container, entry->minor, &view.holder_count);
		if (!holders)
			goto out;
		view.holders = holders;
	}
	if (cgpu_node_table[entry->node].wants_stats) {
		view.stats = stats;
		view.stat_count = compute_stats(entry, stats);
		view.stat_count += idle_stats(entry, stats + view.stat_count);
	}
	if (cgpu_node_table[entry->node].wants_away && away_max) {
		away = kvmalloc_array(away_max, sizeof(*away), GFP_KERNEL_ACCOUNT);
		if (!away)
			goto out;
	}
	size = seq_get_buf(seq, &buf);
	used = lock_view(entry, &view);
	if (used)
		goto out;
	if (away)
		view.away_count = cgpu_containers_away(away, away_max);
	view.away = away;
	cgpu_view_detach(&view, copy);
	unlock_view(entry);
	used = cgpu_node_show(&view, entry->node, buf, size);
	/* -1 has us called again with twice the buffer */
	if (used >= 0 || used == -ENOSPC)
		seq_commit(seq, used < 0 ? -1 : used);
out:
	kvfree(away);
	kvfree(holders);
	kfree(copy);
	return used < 0 && used != -ENOSPC ? used : 0;
}

static enum cgpu_asker asker_of(const struct cgpu_tree_entry *entry)
{
	/* before all others: a container may stand in another */
	if (entry->container && cgpu_container_has(entry->container, current))
		return CGPU_ASKER_OWN;
	return cgpu_container_is_managed(current) ? CGPU_ASKER_OTHER : CGPU_ASKER_HOST;
}

/*
 * Root in a container also owns these files, if its runtime shows it this /proc. So the asking
 * process counts, and not the file's owner and mode.
 */
int cgpu_node_file_open(void *data, bool write)
{
	bool privileged = capable(CAP_SYS_ADMIN);
	struct cgpu_tree_entry *entry = data;
	int err;

	if (is_unknown(entry))
		return -ENODEV;
	err = cgpu_node_open(entry->node, asker_of(entry), write, privileged);
	if (err)
		return err;
	/*
	 * A reader of this file wants the cards, and asking the driver takes a process. A process
	 * with another /dev than the host's could have us wait on what it finds there.
	 */
	if (entry->node == CGPU_NODE_INST_CTL && privileged) {
		cgpu_discover(0);
		cgpu_verify_driver();
	}
	cgpu_tree_entry_get(entry);
	return 0;
}

void cgpu_node_file_release(void *data)
{
	cgpu_tree_entry_put(data);
}

int cgpu_node_file_open_events(void)
{
	struct cgpu_tree_entry entry = { .node = CGPU_NODE_EVENTS };

	return cgpu_node_open(entry.node, asker_of(&entry), false, false);
}

static void tell_of_server(const struct cgpu_command *command)
{
	char line[CGPU_SERVER_LINE];

	cgpu_server_line(&command->news, command->create.id, line);
	cgpu_event("%s", line);
}

static int run_command(const char *text, size_t length)
{
	struct cgpu_command *command = kmalloc(sizeof(*command), GFP_KERNEL);
	int err;

	if (!command)
		return -ENOMEM;
	err = cgpu_parse_inst_ctl(text, length, command);
	if (!err && command->verb == CGPU_VERB_SERVER)
		tell_of_server(command);
	else if (!err && command->verb == CGPU_VERB_MOVE)
		err = cgpu_container_move(command->create.id, &command->move);
	else if (!err)
		err = command->verb == CGPU_VERB_CREATE ?
		      cgpu_container_create(&command->create) :
		      cgpu_container_destroy(command->create.id);
	kfree(command);
	return err;
}

static int store_value(const struct cgpu_tree_entry *entry, const char *text, size_t length)
{
	const char *name = cgpu_node_table[entry->node].name;
	struct cgpu_view view = {};
	int err;

	err = lock_view(entry, &view);
	if (err)
		return err;
	err = cgpu_node_store(&view, entry->node, text, length);
	/* under the lock: lines come in the order of what they tell */
	if (!err && entry->container)
		cgpu_event("set %u/%s/%s %.*s", entry->minor, entry->container->id, name,
			   (int)strcspn(text, "\n"), text);
	else if (!err)
		cgpu_event("set %u/%s %.*s", entry->minor, name,
			   (int)strcspn(text, "\n"), text);
	if (!err && !entry->container)
		cgpu_registry_note_moving();
	unlock_view(entry);
	if (!err)
		cgpu_governors_poke(entry->minor);
	return err;
}

int cgpu_node_file_write(void *data, const char *text, size_t size)
{
	const struct cgpu_tree_entry *entry = data;
	bool command = entry->node == CGPU_NODE_INST_CTL;

	if (is_unknown(entry))
		return -ENODEV;
	if (size > (command ? CGPU_COMMAND_MAX : CGPU_VALUE_MAX))
		return -EINVAL;
	return command ? run_command(text, size) : store_value(entry, text, size);
}
