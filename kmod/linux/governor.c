// SPDX-License-Identifier: GPL-2.0-only
/*
 * One kernel thread per card asks the scheduler what to do and does it (gate.c). It reports how
 * long the calls took, who used the card (the driver's log of context switches) and who has work
 * (USERD). In between it sleeps until the next end of a window, or until it is poked.
 *
 * Locks: governor->lock guards the scheduler and is never held across an RM call; it nests inside
 * registry.lock and outside container->lock. The thread waits for rt_mutexes only. A holder
 * inherits its priority, so neither busy neighbours nor its cgroup's cpu.max keep it off a
 * processor meanwhile.
 *
 * Every gate opens on any failure. The scheduler does that if an action fails or does not return;
 * suspend and the end of the bridge or the module do it here.
 */
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "core/sched/gang.h"
#include "core/sched/loop.h"
#include "demand.h"
#include "gate.h"
#include "governor.h"
#include "switch_log.h"

enum {
	PHASE_NS = 1300000,
	/* a driver that refuses to open gates is asked this often at the end */
	LAST_TRIES = 16,
};

/* One card under a scheduler; one core hands it to the next. */
struct cgpu_governor {
	u32 minor;
	struct rt_mutex lock;
	struct cgpu_sched sched;
	struct task_struct *thread;
	wait_queue_head_t wake;
	bool poked;
	bool lends; /* lends its priority to the holder of the gates */
	bool settled;            /* the last tick asked for nothing */
	bool stopping;           /* opens every gate, then ends */
	bool leaving;            /* ends and leaves the gates to another core's thread */
	u32 changes[CGPU_SCHED_SLOTS]; /* the tenant's runnable_changes as last seen */
	struct cgpu_sched_action actions[CGPU_SCHED_ACTIONS];
	bool log_tried;
	struct cgpu_card_log log;
	struct cgpu_demand demand; /* of the thread */
	struct cgpu_gates gates;
};

static bool doubtful[CGPU_MAX_CARDS]; /* its gates may not be as they are marked */

/* --------------------------------------------------- what the scheduler sees */

/* The sums over an entity's containers on the card. */
struct holding {
	u32 groups, changes, cards; /* bit set: where it has groups */
	bool open, shut;
};

/* Is it that entity's? Context: registry.lock. */
static bool is_of(const struct cgpu_governor *governor, const struct cgpu_container *container,
		  u32 slot)
{
	const struct cgpu_grant *grant = &container->grant[governor->minor];

	return grant->present && grant->entity == slot;
}

static void add_holding(struct cgpu_governor *governor, struct cgpu_container *container,
			bool owned, struct holding *held)
{
	struct cgpu_tenant *tenant = &container->tenant;
	struct cgpu_container *leader;
	u32 minor;

	rt_mutex_lock(&container->lock);
	leader = cgpu_container_lock_leader(container);
	if (leader)
		cgpu_object_inherit(&tenant->objects, &leader->tenant.objects);
	cgpu_container_unlock_leader(leader);
	tenant->ledger.account[governor->minor].slices_owned = owned;
	held->changes = held->changes * 31 + tenant->objects.runnable_changes;
	held->groups += cgpu_tenant_groups(tenant, governor->minor, NULL, 0);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (container->grant[minor].present && cgpu_tenant_groups(tenant, minor, NULL, 0))
			held->cards |= BIT(minor);
	held->open |= cgpu_tenant_has_open(tenant, governor->minor);
	held->shut |= tenant->ledger.account[governor->minor].gate_shut;
	rt_mutex_unlock(&container->lock);
}

/* `first`: the container whose number the entity has: one alone, or a group's leader. */
static void feed_entity(struct cgpu_governor *governor, const struct cgpu_container *first,
			bool owned, u64 now_ns)
{
	const struct cgpu_grant *grant = &first->grant[governor->minor];
	struct cgpu_policy_member member =
		cgpu_grant_member(&cgpu_registry->host.card[governor->minor], grant);
	struct cgpu_container *container;
	struct holding held = {};
	bool is_new = !governor->sched.slot[grant->instance].present;

	list_for_each_entry(container, &cgpu_registry->containers, node)
		if (is_of(governor, container, grant->entity))
			add_holding(governor, container, owned, &held);
	if (is_new) {
		cgpu_demand_forget(&governor->demand, grant->instance);
		governor->changes[grant->instance] = 0;
	}
	cgpu_sched_set(&governor->sched, grant->instance, &member, now_ns);
	cgpu_sched_open(&governor->sched, grant->instance, held.open, held.groups, now_ns);
	cgpu_sched_gang(&governor->sched, grant->instance,
			cgpu_gang_number(first->id, hweight32(held.cards)), now_ns);
	/* replacing a group keeps their number, but neither slice nor gate */
	if (held.changes != governor->changes[grant->instance])
		cgpu_sched_reapply(&governor->sched, grant->instance, now_ns);
	governor->changes[grant->instance] = held.changes;
	/* it was shut under its group's number */
	if (is_new && held.shut)
		cgpu_sched_held(&governor->sched, grant->instance, now_ns);

	/* the scheduler forgets the gate of a container that closed the card */
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		if (!is_of(governor, container, grant->entity))
			continue;
		rt_mutex_lock(&container->lock);
		container->tenant.ledger.account[governor->minor].gate_shut =
			!cgpu_sched_may_run(&governor->sched, grant->instance);
		rt_mutex_unlock(&container->lock);
	}
}

/* Tells the scheduler everything anew; it finds out what changed. */
static void feed(struct cgpu_governor *governor)
{
	const struct cgpu_card *card = &cgpu_registry->host.card[governor->minor];
	struct cgpu_container *container;
	u64 now_ns = ktime_get_ns();
	u64 present = 0;
	u32 slot;

	rt_mutex_lock(&cgpu_registry->lock);
	rt_mutex_lock(&governor->lock);
	cgpu_sched_card(&governor->sched, card->policy, card->max_inst, card->timeslice_us,
			now_ns);
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		slot = container->grant[governor->minor].instance;
		if (!is_of(governor, container, slot))
			continue;
		present |= 1ull << slot;
		feed_entity(governor, container, card->policy != CGPU_POLICY_NATIVE, now_ns);
	}
	for (slot = 0; slot < CGPU_SCHED_SLOTS; slot++)
		if (!(present >> slot & 1))
			cgpu_sched_remove(&governor->sched, slot, now_ns);
	rt_mutex_unlock(&governor->lock);
	rt_mutex_unlock(&cgpu_registry->lock);
}

/* ---------------------------------------------------------- what it decides */

static void perform(struct cgpu_governor *governor, struct cgpu_loop *loop)
{
	const struct cgpu_sched_action *action = &loop->action[loop->taken];
	u64 start_ns = ktime_get_ns();
	int err = 0, one;
	u32 slot;

	for (slot = 0; slot < CGPU_SCHED_SLOTS; slot++) {
		if (!(action->mask >> slot & 1))
			continue;
		one = action->kind == CGPU_SCHED_SLICE ?
			cgpu_gate_slices(&governor->gates, slot, action->slice_us) :
			cgpu_gate_slot(&governor->gates, slot, action->kind == CGPU_SCHED_SHUT);
		err = one ? one : err;
	}
	if (err)
		pr_warn_ratelimited("cgpu: card %u: the driver refused %s; all gates open\n",
				    governor->minor,
				    action->kind == CGPU_SCHED_SLICE ? "a timeslice" : "a gate");
	rt_mutex_lock(&governor->lock);
	cgpu_loop_done(loop, CGPU_LOOP_MOVE, start_ns, ktime_get_ns(), err);
	rt_mutex_unlock(&governor->lock);
}

/* ----------------------------------------------------------- what it learns */

/* Return: when the driver was asked: the locks may have to be waited for afterwards. */
static u64 flush_log(struct cgpu_governor *governor)
{
	u64 asked_ns = ktime_get_ns();

	cgpu_gates_control(&governor->gates, governor->gates.rm.hClient, governor->log.buffer,
			   NV_EVENT_BUFFER_CTRL_CMD_FLUSH, NULL, 0);
	return asked_ns;
}

/* Totals as of now: a context switch is not told by itself for 33 ms. */
static void refresh_log(struct cgpu_governor *governor)
{
	u64 asked_ns;

	/* open_log() publishes the buffer when it is set up */
	if (!smp_load_acquire(&governor->log.buffer) ||
	    ktime_get_ns() - READ_ONCE(governor->log.log.read_ns) < CGPU_SWITCH_LOG_FRESH_NS)
		return;
	asked_ns = flush_log(governor);
	rt_mutex_lock(&cgpu_registry->lock);
	rt_mutex_lock(&governor->lock);
	cgpu_card_log_read(&governor->log, &governor->sched, governor->minor, asked_ns);
	rt_mutex_unlock(&governor->lock);
	rt_mutex_unlock(&cgpu_registry->lock);
}

static void read_log(struct cgpu_governor *governor, struct cgpu_loop *loop)
{
	u64 asked_ns = flush_log(governor);
	/* a thread that creates a container must not delay the next hand-over */
	bool may = rt_mutex_trylock(&cgpu_registry->lock);

	rt_mutex_lock(&governor->lock);
	if (may)
		cgpu_card_log_read(&governor->log, &governor->sched, governor->minor, asked_ns);
	cgpu_loop_done(loop, CGPU_LOOP_READ, asked_ns, ktime_get_ns(), may ? 0 : -EBUSY);
	rt_mutex_unlock(&governor->lock);
	if (may)
		rt_mutex_unlock(&cgpu_registry->lock);
}

static void look(struct cgpu_governor *governor, struct cgpu_loop *loop)
{
	u64 start_ns = ktime_get_ns();

	cgpu_demand_look(&governor->demand, loop->mask, governor->minor);
	rt_mutex_lock(&governor->lock);
	cgpu_loop_done(loop, CGPU_LOOP_LOOK, start_ns, ktime_get_ns(), 0);
	rt_mutex_unlock(&governor->lock);
}

/* The thread does this: the driver hides other users' processes from all but administrators. */
static void open_log(struct cgpu_governor *governor)
{
	if (governor->log_tried)
		return;
	governor->log_tried = true;
	rt_mutex_lock(&governor->gates.rm_lock);
	cgpu_card_log_open(&governor->log, governor->gates.bridge, &governor->gates.rm,
			   governor->minor);
	rt_mutex_unlock(&governor->gates.rm_lock);
}

/* --------------------------------------------------------------- the thread */

static bool is_wanted(struct cgpu_governor *governor)
{
	return READ_ONCE(governor->poked) || READ_ONCE(governor->stopping) ||
	       READ_ONCE(governor->leaving);
}

static void sleep_until(struct cgpu_governor *governor, u64 wake_ns)
{
	u64 now_ns = ktime_get_ns();
	ktime_t left = wake_ns > now_ns ? ns_to_ktime(min_t(u64, wake_ns - now_ns, KTIME_MAX))
					: 0;

	if (wake_ns == U64_MAX)
		wait_event_interruptible(governor->wake, is_wanted(governor));
	else if (left)
		wait_event_interruptible_hrtimeout(governor->wake,
						   is_wanted(governor), left);
}

/* Return: what is next; the actions that the scheduler asked for are done. */
static enum cgpu_loop_step act(struct cgpu_governor *governor, struct cgpu_loop *loop, bool suspend)
{
	enum cgpu_loop_step step;

	rt_mutex_lock(&governor->lock);
	if (suspend)
		cgpu_sched_suspend(&governor->sched, true, ktime_get_ns());
	step = cgpu_loop_next(loop, ktime_get_ns());
	rt_mutex_unlock(&governor->lock);
	while (loop->taken < loop->count)
		perform(governor, loop);
	return step;
}

/* Context: no other task acts for the card. */
static void open_all(struct cgpu_governor *governor)
{
	struct cgpu_loop loop = { .sched = &governor->sched, .action = governor->actions };
	u32 tries = 0;

	while (act(governor, &loop, true) == CGPU_LOOP_MOVE && ++tries < LAST_TRIES)
		;
}

static int govern(void *data)
{
	struct cgpu_governor *governor = data;
	struct cgpu_loop loop = {
		.sched = &governor->sched,
		.demand = &governor->demand,
		.action = governor->actions,
	};
	enum cgpu_loop_step step;

	open_log(governor);
	loop.log = governor->log.buffer ? &governor->log.log : NULL;
	while (!READ_ONCE(governor->stopping) && !READ_ONCE(governor->leaving)) {
		if (xchg(&governor->poked, false))
			feed(governor);
		if (xchg(&governor->lends, false)) {
			cgpu_gates_hold(&governor->gates);
			cgpu_gates_release(&governor->gates);
		}
		if (xchg(&doubtful[governor->minor], false))
			cgpu_gate_assert(&governor->gates);
		step = act(governor, &loop, false);
		WRITE_ONCE(governor->settled, step != CGPU_LOOP_MOVE);
		if (step != CGPU_LOOP_MOVE)
			wake_up(&governor->wake); /* cgpu_governor_suspend() waits for it */
		if (step == CGPU_LOOP_READ)
			read_log(governor, &loop);
		else if (step == CGPU_LOOP_LOOK)
			look(governor, &loop);
		else if (step == CGPU_LOOP_WAIT)
			sleep_until(governor, min(loop.wake_ns, loop.due_ns));
	}
	if (READ_ONCE(governor->stopping))
		open_all(governor);
	/* the caller of kthread_stop() waits for the end */
	wait_event_interruptible(governor->wake, kthread_should_stop());
	return 0;
}

int cgpu_governor_run(struct cgpu_governor *governor)
{
	struct task_struct *thread;

	/* of a card that became known while a switch was tried, which failed */
	if (governor->thread)
		return 0;
	thread = kthread_create(govern, governor, "cgpu/%u", governor->minor);
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	governor->thread = thread;
	/* windows of some milliseconds must begin on time, as an interrupt thread's */
	sched_set_fifo_low(thread);
	wake_up_process(thread);
	return 0;
}

/* Context: the gates stay as they are, or `stopping` is set. */
static void end_thread(struct cgpu_governor *governor)
{
	wake_up(&governor->wake);
	kthread_stop(governor->thread);
	governor->thread = NULL;
}

void cgpu_governor_leave(struct cgpu_governor *governor)
{
	if (!governor->thread)
		return;
	WRITE_ONCE(governor->leaving, true);
	end_thread(governor);
	WRITE_ONCE(governor->leaving, false);
}

/* -------------------------------------------------------------- begin and end */

static void init_locks(struct cgpu_governor *governor)
{
	rt_mutex_init(&governor->lock);
	init_waitqueue_head(&governor->wake);
}

struct cgpu_governor *cgpu_governor_start(const struct cgpu_bridge_ops *bridge, u32 minor,
					  const struct cgpu_gpu *gpu)
{
	struct cgpu_governor *governor = kvzalloc(sizeof(*governor), GFP_KERNEL);
	int err;

	if (!governor)
		return ERR_PTR(-ENOMEM);
	governor->minor = minor;
	init_locks(governor);
	governor->poked = true;
	cgpu_sched_init(&governor->sched, ktime_get_ns());
	cgpu_demand_init(&governor->demand);
	/* a gate call locks all cards of the host: their windows must not end together */
	governor->sched.config.phase_ns = minor * PHASE_NS;
	err = cgpu_gates_open(&governor->gates, bridge, minor, gpu);
	if (err)
		goto free;
	err = cgpu_governor_run(governor);
	if (err)
		goto close;
	return governor;
close:
	cgpu_gates_close(&governor->gates);
free:
	kvfree(governor);
	return ERR_PTR(err);
}

static void disown(u32 minor)
{
	struct cgpu_container *container;

	rt_mutex_lock(&cgpu_registry->lock);
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		rt_mutex_lock(&container->lock);
		container->tenant.ledger.account[minor].slices_owned = false;
		container->tenant.ledger.account[minor].gate_shut = false;
		rt_mutex_unlock(&container->lock);
	}
	rt_mutex_unlock(&cgpu_registry->lock);
}

void cgpu_governor_stop(struct cgpu_governor *governor)
{
	u32 minor = governor->minor;

	if (governor->thread) {
		WRITE_ONCE(governor->stopping, true);
		end_thread(governor);
	} else {
		open_all(governor);
	}
	cgpu_gates_close(&governor->gates);
	disown(minor);
	kvfree(governor);
}

void cgpu_governor_adopt(struct cgpu_governor *governor, const struct cgpu_bridge_ops *bridge)
{
	init_locks(governor);
	cgpu_gates_adopt(&governor->gates, bridge);
}

u64 cgpu_governor_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct cgpu_governor));
	digest = cgpu_digest(digest, sizeof(struct cgpu_sched));
	digest = cgpu_digest(digest, sizeof(struct cgpu_gates));
	return cgpu_digest(digest, offsetof(struct cgpu_governor, thread));
}

/* --------------------------------------------------------------------- events */

void cgpu_governor_poke(struct cgpu_governor *governor)
{
	WRITE_ONCE(governor->poked, true);
	wake_up(&governor->wake);
}

void cgpu_governor_doubt(u32 minor)
{
	WRITE_ONCE(doubtful[minor], true);
}

void cgpu_governor_stat(struct cgpu_governor *governor, u32 slot, struct cgpu_sched_stat *stat)
{
	refresh_log(governor);
	rt_mutex_lock(&governor->lock);
	cgpu_sched_stat(&governor->sched, slot, ktime_get_ns(), stat);
	rt_mutex_unlock(&governor->lock);
}

void cgpu_governor_took(struct cgpu_governor *governor, u32 slot, u64 ns)
{
	rt_mutex_lock(&governor->lock);
	cgpu_sched_took(&governor->sched, slot, ns, ktime_get_ns());
	rt_mutex_unlock(&governor->lock);
}

void cgpu_governor_begin(struct cgpu_governor *governor, u32 slot)
{
	rt_mutex_lock(&governor->lock);
	cgpu_sched_remove(&governor->sched, slot, ktime_get_ns());
	rt_mutex_unlock(&governor->lock);
	cgpu_governor_poke(governor);
}

static bool may_run(struct cgpu_governor *governor, u32 slot)
{
	bool may;

	rt_mutex_lock(&governor->lock);
	may = cgpu_sched_may_run(&governor->sched, slot);
	rt_mutex_unlock(&governor->lock);
	return may;
}

/* Context: the gates are held. Return: false: nothing is shut. */
static bool shut_new(struct cgpu_governor *governor, struct cgpu_container *container)
{
	if (may_run(governor, container->grant[governor->minor].entity))
		return false;
	/* the thread has memory of its own */
	if (cgpu_gate_new(&governor->gates, container) == -ENOMEM)
		cgpu_governor_doubt(governor->minor);
	return true;
}

static void tell_held(struct cgpu_governor *governor, struct cgpu_container *container)
{
	/* if its window began meanwhile, the scheduler opens them */
	rt_mutex_lock(&governor->lock);
	cgpu_sched_held(&governor->sched, container->grant[governor->minor].entity, ktime_get_ns());
	rt_mutex_unlock(&governor->lock);
	cgpu_governor_poke(governor);
}

void cgpu_governor_hold_new(struct cgpu_governor *governor, struct cgpu_container *container)
{
	if (may_run(governor, container->grant[governor->minor].entity))
		return;
	cgpu_gates_hold(&governor->gates);
	shut_new(governor, container);
	cgpu_gates_release(&governor->gates);
	tell_held(governor, container);
}

void cgpu_governor_schedule(struct cgpu_governor *governor, struct cgpu_container *container,
			    void (*ask)(void *data), void *data)
{
	bool shut;

	cgpu_gates_hold(&governor->gates);
	/* without it, its container's load could keep it off the processor and the gates open */
	WRITE_ONCE(governor->lends, true);
	cgpu_governor_poke(governor);
	ask(data);
	shut = shut_new(governor, container);
	cgpu_gates_release(&governor->gates);
	if (shut)
		tell_held(governor, container);
}

u32 cgpu_governor_control(struct cgpu_governor *governor, u32 hClient, u32 hObject, u32 cmd,
			  void *params, u32 size)
{
	return cgpu_gates_control(&governor->gates, hClient, hObject, cmd, params, size);
}

void cgpu_governor_suspend(struct cgpu_governor *governor, bool suspend)
{
	rt_mutex_lock(&governor->lock);
	cgpu_sched_suspend(&governor->sched, suspend, ktime_get_ns());
	WRITE_ONCE(governor->settled, false);
	rt_mutex_unlock(&governor->lock);
	cgpu_governor_poke(governor);
	/* the driver must find its channels as it left them */
	if (suspend)
		wait_event_timeout(governor->wake, READ_ONCE(governor->settled), HZ);
}
