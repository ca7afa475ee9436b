// SPDX-License-Identifier: GPL-2.0-only
/*
 * One kernel thread a card asks the scheduler what to do and does it: gates by
 * FIFO_DISABLE_CHANNELS through a client of our own, which may name anybody's
 * channels, timeslices by SET_TIMESLICE on the tenant's group.
 *
 * Locks: governor->lock guards the scheduler and is never held across an RM call;
 * it nests inside registry.lock and outside container->lock. gates_lock keeps
 * the gates of a card in step with what the tenants' channels are marked as, and
 * is held across the calls that move them, by nobody but their callers. Handles are
 * copied out under container->lock right before a call; between the two their
 * owner may free them, which the driver answers with a status that is ignored
 * for that container: what is gone needs no gate.
 *
 * Whatever fails, every gate opens: the scheduler does that for an action that
 * fails or does not return; suspend, the bridge's and the module's end do it
 * here.
 */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/suspend.h>
#include <linux/wait.h>

#include "demand.h"
#include "governor.h"
#include "core/tree/nodes.h"
#include "core/rm/abi.h"
#include "door/door.h"
#include "door/events.h"
#include "switch_log.h"
#include "tree.h"

enum {
	HANDLES_MAX = 1024,  /* groups of one container on one card */
	PHASE_NS = 1300000,
	/* a driver that refuses to open gates is asked this often at the end */
	LAST_TRIES = 16,
};

/* One card under a scheduler. */
struct governor {
	u32 minor;
	struct cgpu_rm_card rm;
	struct mutex lock;
	struct cgpu_sched sched;
	struct task_struct *thread;
	wait_queue_head_t wake;
	bool poked;
	bool settled;            /* the last tick asked for nothing */
	bool stopping;           /* opens every gate, then ends */
	bool leaving;            /* ends and leaves the gates to another core's thread */
	struct mutex rm_lock;    /* rm.stack has one user at a time */
	struct mutex gates_lock; /* outside rm_lock and container->lock */
	u32 changes[CGPU_SCHED_SLOTS]; /* the tenant's runnable_changes as last seen */
	struct cgpu_sched_action actions[CGPU_SCHED_ACTIONS];
	bool log_tried;
	struct cgpu_card_log log;
	struct cgpu_demand demand;               /* of the thread */
	struct cgpu_handle handles[HANDLES_MAX];  /* of the thread */
	u8 params[FIFO_DISABLE_BYTES];
};

/* Handed from core to core. */
struct governors {
	struct mutex lock;
	struct governor *at[CGPU_MAX_CARDS]; /* written under lock */
};

static struct governors *governors;
static const struct cgpu_bridge_ops *bridge; /* under governors->lock; fixed while a governor is */
static bool doubtful[CGPU_MAX_CARDS]; /* its gates may not be as they are marked */
/* whoever uses a governor without governors->lock is inside this */
DEFINE_STATIC_SRCU(governors_srcu);

static struct governor *governor_of(u32 minor)
{
	return minor < CGPU_MAX_CARDS ? READ_ONCE(governors->at[minor]) : NULL;
}

/* --------------------------------------------------- what the scheduler sees */

static void feed_container(struct governor *governor, struct cgpu_container *container,
			   bool owned, u64 now_ns)
{
	const struct cgpu_grant *grant = &container->grant[governor->minor];
	struct cgpu_policy_member member = {
		.weight = grant->weight, .quota = grant->quota,
		.quota_min = grant->quota_min, .priority = grant->priority,
	};
	u32 groups, changes;
	bool open;

	mutex_lock(&container->lock);
	container->tenant.ledger.account[governor->minor].slices_owned = owned;
	changes = container->tenant.objects.runnable_changes;
	groups = cgpu_tenant_groups(&container->tenant, governor->minor, NULL, 0);
	open = cgpu_tenant_has_open(&container->tenant, governor->minor);
	mutex_unlock(&container->lock);
	cgpu_sched_set(&governor->sched, grant->instance, &member, now_ns);
	cgpu_sched_open(&governor->sched, grant->instance, open, groups, now_ns);
	/* one group for another leaves their number, and neither slice nor gate */
	if (changes != governor->changes[grant->instance])
		cgpu_sched_reapply(&governor->sched, grant->instance, now_ns);
	governor->changes[grant->instance] = changes;

	/* the scheduler forgets the gate of a container that closed the card */
	mutex_lock(&container->lock);
	container->tenant.ledger.account[governor->minor].gate_shut =
		!cgpu_sched_may_run(&governor->sched, grant->instance);
	mutex_unlock(&container->lock);
}

/* Tells the scheduler everything anew; it finds out what changed. */
static void feed(struct governor *governor)
{
	const struct cgpu_card *card = &cgpu_registry->host.card[governor->minor];
	struct cgpu_container *container;
	u64 now_ns = ktime_get_ns();
	u64 present = 0;
	u32 slot;

	mutex_lock(&cgpu_registry->lock);
	mutex_lock(&governor->lock);
	cgpu_sched_card(&governor->sched, card->policy, card->max_inst, card->timeslice_us,
			now_ns);
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		if (!container->grant[governor->minor].present)
			continue;
		present |= 1ull << container->grant[governor->minor].instance;
		feed_container(governor, container, card->policy != CGPU_POLICY_NATIVE,
			       now_ns);
	}
	for (slot = 0; slot < CGPU_SCHED_SLOTS; slot++)
		if (governor->sched.slot[slot].present && !(present >> slot & 1)) {
			cgpu_sched_remove(&governor->sched, slot, now_ns);
			cgpu_demand_forget(&governor->demand, slot);
		}
	mutex_unlock(&governor->lock);
	mutex_unlock(&cgpu_registry->lock);
}

/* ---------------------------------------------------------- what it decides */

static u32 control(struct governor *governor, u32 hClient, u32 hObject, u32 cmd,
		   void *params, u32 size)
{
	u32 status;

	mutex_lock(&governor->rm_lock);
	status = bridge->control(&governor->rm, hClient, hObject, cmd, params, size);
	mutex_unlock(&governor->rm_lock);
	return status;
}

/* Return: true if the driver refused because a handle is no longer there. */
static bool is_gone(u32 status)
{
	return status == NV_ERR_INVALID_CLIENT || status == NV_ERR_OBJECT_NOT_FOUND ||
	       status == NV_ERR_INVALID_OBJECT_HANDLE || status == NV_ERR_INVALID_CHANNEL;
}

static u32 gate_call(struct governor *governor, u8 *params,
		     const struct cgpu_handle *handles, u32 count, bool shut)
{
	u32 i;

	memset(params, 0, FIFO_DISABLE_BYTES);
	params[0] = shut;
	cgpu_put32(params, FIFO_DISABLE_NUM, count);
	for (i = 0; i < count; i++) {
		cgpu_put32(params, FIFO_DISABLE_CLIENTS + 4 * i, handles[i].hClient);
		cgpu_put32(params, FIFO_DISABLE_CHANNELS + 4 * i, handles[i].hObject);
	}
	return control(governor, governor->rm.hClient, governor->rm.hSubdevice,
		       NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, params, FIFO_DISABLE_BYTES);
}

/* Return: 0, -EIO: the driver refused for another reason than a handle that went. */
static int gate_each(struct governor *governor, u8 *params, const struct cgpu_handle *handles,
		     u32 count, bool shut)
{
	int err = 0;
	u32 i;

	for (i = 0; i < count; i++) {
		u32 status;

		/* whatever the call for all did before it failed: shut once, not twice */
		if (shut)
			gate_call(governor, params, handles + i, 1, false);
		status = gate_call(governor, params, handles + i, 1, shut);
		if (status && !is_gone(status))
			err = -EIO;
	}
	return err;
}

/* Return: as gate_each(). */
static int gate_container(struct governor *governor, struct cgpu_container *container,
			  struct cgpu_handle *handles, u8 *params, bool shut)
{
	int err = 0, one;
	u32 count;

	/* else a gate that is opened and one that is shut could pass each other */
	mutex_lock(&governor->gates_lock);
	do {
		mutex_lock(&container->lock);
		count = cgpu_tenant_gate(&container->tenant, governor->minor, shut, handles,
					 FIFO_DISABLE_MAX);
		mutex_unlock(&container->lock);
		/* one that is gone meanwhile makes the driver refuse all */
		one = count && gate_call(governor, params, handles, count, shut) ?
			gate_each(governor, params, handles, count, shut) : 0;
		err = one ? one : err;
	} while (count == FIFO_DISABLE_MAX);
	mutex_unlock(&governor->gates_lock);
	return err;
}

/*
 * Somebody else may have moved gates: every channel is told again what it is marked
 * as. Context: the thread.
 */
static void assert_gates(struct governor *governor)
{
	struct cgpu_container *container;
	u32 slot, count;
	bool shut;

	for (slot = 0; slot < CGPU_SCHED_SLOTS; slot++) {
		container = cgpu_container_in(governor->minor, slot);
		if (!container)
			continue;
		mutex_lock(&governor->gates_lock);
		mutex_lock(&container->lock);
		shut = container->tenant.ledger.account[governor->minor].gate_shut;
		/* the first only marks what the second marks back, and names */
		cgpu_tenant_gate(&container->tenant, governor->minor, !shut, governor->handles,
				 HANDLES_MAX);
		count = cgpu_tenant_gate(&container->tenant, governor->minor, shut,
					 governor->handles, HANDLES_MAX);
		mutex_unlock(&container->lock);
		gate_each(governor, governor->params, governor->handles, count, shut);
		mutex_unlock(&governor->gates_lock);
		cgpu_container_put(container);
	}
}

static int gate_slot(struct governor *governor, u32 slot, bool shut)
{
	struct cgpu_container *container = cgpu_container_in(governor->minor, slot);
	int err;

	if (!container)
		return 0;
	mutex_lock(&container->lock);
	/* a tenant that re-enables its channels is told so and nothing happens */
	container->tenant.ledger.account[governor->minor].gate_shut = shut;
	mutex_unlock(&container->lock);
	err = gate_container(governor, container, governor->handles, governor->params, shut);
	cgpu_container_put(container);
	return err;
}

static int slice_slot(struct governor *governor, u32 slot, u32 slice_us)
{
	struct cgpu_container *container = cgpu_container_in(governor->minor, slot);
	u64 params = slice_us;
	u32 count, i;
	int err = 0;

	if (!container)
		return 0;
	mutex_lock(&container->lock);
	count = cgpu_tenant_groups(&container->tenant, governor->minor, governor->handles,
				   HANDLES_MAX);
	mutex_unlock(&container->lock);
	count = min_t(u32, count, HANDLES_MAX);
	for (i = 0; i < count; i++) {
		u32 status = control(governor, governor->handles[i].hClient,
				     governor->handles[i].hObject,
				     NVA06C_CTRL_CMD_SET_TIMESLICE, &params, sizeof(params));

		if (status && !is_gone(status))
			err = -EIO;
	}
	cgpu_container_put(container);
	return err;
}

static void perform(struct governor *governor, const struct cgpu_sched_action *action)
{
	u64 start_ns = ktime_get_ns();
	int err = 0, one;
	u32 slot;

	for (slot = 0; slot < CGPU_SCHED_SLOTS; slot++) {
		if (!(action->mask >> slot & 1))
			continue;
		one = action->kind == CGPU_SCHED_SLICE ?
			slice_slot(governor, slot, action->slice_us) :
			gate_slot(governor, slot, action->kind == CGPU_SCHED_SHUT);
		err = one ? one : err;
	}
	if (err)
		pr_warn_ratelimited("cgpu: card %u: the driver refused %s; all gates open\n",
				    governor->minor,
				    action->kind == CGPU_SCHED_SLICE ? "a timeslice" : "a gate");
	mutex_lock(&governor->lock);
	cgpu_sched_done(&governor->sched, action, start_ns, ktime_get_ns(), err);
	mutex_unlock(&governor->lock);
}

/* ---------------------------------------------------------- what it learns */

/* Context: registry.lock. */
static void read_log(struct governor *governor, u64 asked_ns, bool judge)
{
	mutex_lock(&governor->lock);
	cgpu_card_log_read(&governor->log, &governor->sched, governor->minor, asked_ns);
	if (judge)
		cgpu_switch_log_judge(&governor->log.log, &governor->sched, ktime_get_ns());
	mutex_unlock(&governor->lock);
}

/* Return: when the driver was asked: the locks may have to be waited for afterwards. */
static u64 flush_log(struct governor *governor)
{
	u64 asked_ns = ktime_get_ns();

	control(governor, governor->rm.hClient, governor->log.buffer,
		NV_EVENT_BUFFER_CTRL_CMD_FLUSH, NULL, 0);
	return asked_ns;
}

/* Totals as of now: a context switch is not told by itself for 33 ms. */
static void refresh_log(struct governor *governor)
{
	u64 asked_ns;

	/* open_log() publishes the buffer when it is set up */
	if (!smp_load_acquire(&governor->log.buffer) ||
	    ktime_get_ns() - READ_ONCE(governor->log.log.read_ns) < CGPU_SWITCH_LOG_FRESH_NS)
		return;
	asked_ns = flush_log(governor);
	mutex_lock(&cgpu_registry->lock);
	read_log(governor, asked_ns, false);
	mutex_unlock(&cgpu_registry->lock);
}

/* Return: when to look again, 0: the scheduler was told something. */
static u64 follow_log(struct governor *governor)
{
	u64 due_ns, asked_ns;

	if (!governor->log.buffer)
		return U64_MAX;
	mutex_lock(&governor->lock);
	due_ns = cgpu_switch_log_due(&governor->log.log, &governor->sched, ktime_get_ns());
	mutex_unlock(&governor->lock);
	if (ktime_get_ns() < due_ns)
		return due_ns;
	asked_ns = flush_log(governor);
	/* whoever creates a container must not delay the next hand-over */
	if (!mutex_trylock(&cgpu_registry->lock))
		return ktime_get_ns() + CGPU_SWITCH_LOG_LOOK_NS;
	read_log(governor, asked_ns, true);
	mutex_unlock(&cgpu_registry->lock);
	return 0;
}

/* By the thread: the driver hides other users' processes from whoever is no administrator. */
static void open_log(struct governor *governor)
{
	if (governor->log_tried)
		return;
	governor->log_tried = true;
	mutex_lock(&governor->rm_lock);
	cgpu_card_log_open(&governor->log, bridge, &governor->rm, governor->minor);
	mutex_unlock(&governor->rm_lock);
}

static bool is_wanted(struct governor *governor)
{
	return READ_ONCE(governor->poked) || READ_ONCE(governor->stopping) ||
	       READ_ONCE(governor->leaving);
}

static void sleep_until(struct governor *governor, u64 wake_ns)
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

/* Return: how many actions the scheduler asked for; they are done. */
static u32 act(struct governor *governor, bool suspend, u64 *wake_ns)
{
	u32 count, i;

	mutex_lock(&governor->lock);
	if (suspend)
		cgpu_sched_suspend(&governor->sched, true, ktime_get_ns());
	count = cgpu_sched_tick(&governor->sched, ktime_get_ns(), governor->actions, wake_ns);
	mutex_unlock(&governor->lock);
	for (i = 0; i < count; i++)
		perform(governor, &governor->actions[i]);
	return count;
}

/* Context: nobody else acts for the card. */
static void open_all(struct governor *governor)
{
	u32 tries = 0;
	u64 wake_ns;

	while (act(governor, true, &wake_ns) && ++tries < LAST_TRIES)
		;
}

static int govern(void *data)
{
	struct governor *governor = data;
	u64 wake_ns, due_ns, look_ns;
	u32 count;

	open_log(governor);
	while (!READ_ONCE(governor->stopping) && !READ_ONCE(governor->leaving)) {
		if (xchg(&governor->poked, false))
			feed(governor);
		if (xchg(&doubtful[governor->minor], false))
			assert_gates(governor);
		count = act(governor, false, &wake_ns);
		WRITE_ONCE(governor->settled, !count);
		if (!count) {
			wake_up(&governor->wake); /* on_suspend() waits for it */
			due_ns = follow_log(governor);
			look_ns = cgpu_demand_follow(&governor->demand, &governor->sched,
						     &governor->lock, governor->minor);
			if (due_ns && look_ns)
				sleep_until(governor, min3(wake_ns, due_ns, look_ns));
		}
	}
	if (READ_ONCE(governor->stopping))
		open_all(governor);
	/* whoever stops us waits for the end */
	wait_event_interruptible(governor->wake, kthread_should_stop());
	return 0;
}

/* -------------------------------------------------------- begin and end */

static int run_thread(struct governor *governor)
{
	struct task_struct *thread = kthread_create(govern, governor, "cgpu/%u",
						    governor->minor);

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	governor->thread = thread;
	/* windows of some milliseconds must begin on time, as an interrupt thread's */
	sched_set_fifo_low(thread);
	wake_up_process(thread);
	return 0;
}

/* Context: governors->lock. */
static int start_governor(u32 minor, const struct cgpu_gpu *gpu)
{
	struct governor *governor;
	int err;

	if (governors->at[minor])
		return 0;
	governor = kvzalloc(sizeof(*governor), GFP_KERNEL);
	if (!governor)
		return -ENOMEM;
	governor->minor = minor;
	mutex_init(&governor->lock);
	mutex_init(&governor->rm_lock);
	mutex_init(&governor->gates_lock);
	init_waitqueue_head(&governor->wake);
	governor->poked = true;
	cgpu_sched_init(&governor->sched, ktime_get_ns());
	cgpu_demand_init(&governor->demand);
	/* a gate call locks all cards of the host: their windows must not end together */
	governor->sched.config.phase_ns = minor * PHASE_NS;
	err = bridge->open_card(&governor->rm, gpu->gpu_id, gpu->device_instance);
	if (err)
		goto free;
	err = run_thread(governor);
	if (err) {
		bridge->close_card(&governor->rm);
		goto free;
	}
	WRITE_ONCE(governors->at[minor], governor);
	/* what changed while nobody could be told */
	WRITE_ONCE(governor->poked, true);
	wake_up(&governor->wake);
	return 0;
free:
	kvfree(governor);
	return err;
}

static void disown(u32 minor)
{
	struct cgpu_container *container;

	mutex_lock(&cgpu_registry->lock);
	list_for_each_entry(container, &cgpu_registry->containers, node) {
		mutex_lock(&container->lock);
		container->tenant.ledger.account[minor].slices_owned = false;
		container->tenant.ledger.account[minor].gate_shut = false;
		mutex_unlock(&container->lock);
	}
	mutex_unlock(&cgpu_registry->lock);
}

/* Context: governors->lock. */
static void stop_governor(u32 minor)
{
	struct governor *governor = governors->at[minor];

	if (!governor)
		return;
	/* first nobody else can shut a gate, then the thread opens them all */
	WRITE_ONCE(governors->at[minor], NULL);
	synchronize_srcu(&governors_srcu);
	if (governor->thread) {
		WRITE_ONCE(governor->stopping, true);
		wake_up(&governor->wake);
		kthread_stop(governor->thread);
	} else {
		open_all(governor);
	}
	bridge->close_card(&governor->rm);
	disown(minor);
	kvfree(governor);
}

/* Starts what is missing. Context: sleeps; governors->lock. */
static void start_all(void)
{
	struct cgpu_gpu gpu[CGPU_MAX_CARDS];
	u32 minor;

	mutex_lock(&cgpu_registry->lock);
	memcpy(gpu, cgpu_registry->host.topology.gpu, sizeof(gpu));
	mutex_unlock(&cgpu_registry->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		/* a card that did not answer has nothing to govern */
		if (!gpu[minor].present || !gpu[minor].total_bytes)
			continue;
		if (start_governor(minor, &gpu[minor]))
			pr_warn("cgpu: card %u: no compute control: the driver does not open it\n",
				minor);
	}
}

static void set_features(bool present)
{
	cgpu_tree_set_feature(CGPU_FEATURE_SLICES, present);
	cgpu_tree_set_feature(CGPU_FEATURE_GATE, present);
}

void cgpu_governor_bridge(const struct cgpu_bridge_ops *ops)
{
	u32 minor;

	mutex_lock(&governors->lock);
	if (ops) {
		bridge = ops;
		start_all();
	} else {
		for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
			stop_governor(minor);
		bridge = NULL;
	}
	set_features(ops);
	mutex_unlock(&governors->lock);
}

void cgpu_governor_card_known(void)
{
	mutex_lock(&governors->lock);
	if (bridge)
		start_all();
	mutex_unlock(&governors->lock);
}

/* ----------------------------------------------------------------- events */

static void poke(struct governor *governor)
{
	WRITE_ONCE(governor->poked, true);
	wake_up(&governor->wake);
}

void cgpu_governor_poke(u32 minor)
{
	int idx = srcu_read_lock(&governors_srcu);
	struct governor *governor = governor_of(minor);

	if (governor)
		poke(governor);
	srcu_read_unlock(&governors_srcu, idx);
}

void cgpu_governor_poke_container(struct cgpu_container *container)
{
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (container->grant[minor].present)
			cgpu_governor_poke(minor);
}

void cgpu_governor_assert(void)
{
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		WRITE_ONCE(doubtful[minor], true);
		cgpu_governor_poke(minor);
	}
}

bool cgpu_governor_stat(struct cgpu_container *container, u32 minor,
			struct cgpu_sched_stat *stat)
{
	int idx = srcu_read_lock(&governors_srcu);
	struct governor *governor = governor_of(minor);

	if (governor) {
		refresh_log(governor);
		mutex_lock(&governor->lock);
		cgpu_sched_stat(&governor->sched, container->grant[minor].instance,
				ktime_get_ns(), stat);
		mutex_unlock(&governor->lock);
	}
	srcu_read_unlock(&governors_srcu, idx);
	return governor != NULL;
}

static bool may_run(struct governor *governor, u32 slot)
{
	bool may;

	mutex_lock(&governor->lock);
	may = cgpu_sched_may_run(&governor->sched, slot);
	mutex_unlock(&governor->lock);
	return may;
}

static void hold_new(struct governor *governor, struct cgpu_container *container)
{
	u32 slot = container->grant[governor->minor].instance;
	struct cgpu_handle *handles;
	u8 *params;

	handles = kcalloc(FIFO_DISABLE_MAX, sizeof(*handles), GFP_KERNEL);
	params = kzalloc(FIFO_DISABLE_BYTES, GFP_KERNEL);
	if (handles && params) {
		gate_container(governor, container, handles, params, true);
		/* if its window began meanwhile, the scheduler opens them */
		mutex_lock(&governor->lock);
		cgpu_sched_held(&governor->sched, slot, ktime_get_ns());
		mutex_unlock(&governor->lock);
		poke(governor);
	}
	kfree(params);
	kfree(handles);
}

void cgpu_governor_hold_new(struct cgpu_container *container, u32 minor)
{
	int idx = srcu_read_lock(&governors_srcu);
	struct governor *governor = governor_of(minor);

	if (governor && !may_run(governor, container->grant[minor].instance))
		hold_new(governor, container);
	srcu_read_unlock(&governors_srcu, idx);
}

/* ----------------------------------------------------------------- suspend */

static int on_suspend(struct notifier_block *block, unsigned long event, void *unused)
{
	bool suspend = event == PM_SUSPEND_PREPARE || event == PM_HIBERNATION_PREPARE;
	u32 minor;

	if (!suspend && event != PM_POST_SUSPEND && event != PM_POST_HIBERNATION)
		return NOTIFY_DONE;
	mutex_lock(&governors->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		struct governor *governor = governors->at[minor];

		if (!governor)
			continue;
		mutex_lock(&governor->lock);
		cgpu_sched_suspend(&governor->sched, suspend, ktime_get_ns());
		WRITE_ONCE(governor->settled, false);
		mutex_unlock(&governor->lock);
		poke(governor);
		/* the driver must find its channels as it left them */
		if (suspend)
			wait_event_timeout(governor->wake, READ_ONCE(governor->settled), HZ);
	}
	mutex_unlock(&governors->lock);
	return NOTIFY_OK;
}

static struct notifier_block suspend_block = { .notifier_call = on_suspend };

/* ------------------------------------------------------------------- state */

int cgpu_governor_begin(void **part)
{
	governors = kvzalloc(sizeof(*governors), GFP_KERNEL);
	if (!governors)
		return -ENOMEM;
	cgpu_governor_adopt(governors);
	*part = governors;
	return 0;
}

void cgpu_governor_adopt(void *part)
{
	u32 minor;

	governors = part;
	bridge = cgpu_door_bridge();
	mutex_init(&governors->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		struct governor *governor = governors->at[minor];

		if (!governor)
			continue;
		mutex_init(&governor->lock);
		mutex_init(&governor->rm_lock);
		mutex_init(&governor->gates_lock);
		init_waitqueue_head(&governor->wake);
	}
}

void cgpu_governor_end(void)
{
	cgpu_governor_bridge(NULL);
	kvfree(governors);
}

int cgpu_governor_watch(void)
{
	return register_pm_notifier(&suspend_block);
}

static void stop_threads(void)
{
	u32 minor;

	mutex_lock(&governors->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		struct governor *governor = governors->at[minor];

		if (!governor || !governor->thread)
			continue;
		WRITE_ONCE(governor->leaving, true);
		wake_up(&governor->wake);
		kthread_stop(governor->thread);
		governor->thread = NULL;
	}
	mutex_unlock(&governors->lock);
}

void cgpu_governor_quiesce(void)
{
	unregister_pm_notifier(&suspend_block);
	stop_threads();
}

void cgpu_governor_settle(void)
{
	/* of a card that became known between quiesce and the closing of the gates */
	stop_threads();
}

void cgpu_governor_resume(void)
{
	u32 minor;

	mutex_lock(&governors->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		struct governor *governor = governors->at[minor];

		if (!governor)
			continue;
		WRITE_ONCE(governor->leaving, false);
		/* settings may have changed while nobody was there to be told */
		WRITE_ONCE(governor->poked, true);
		if (run_thread(governor))
			stop_governor(minor);
	}
	mutex_unlock(&governors->lock);
	if (cgpu_governor_watch())
		pr_warn("cgpu: gates will not open for a suspend\n");
}

u64 cgpu_governor_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct governors));
	digest = cgpu_digest(digest, sizeof(struct governor));
	digest = cgpu_digest(digest, sizeof(struct cgpu_sched));
	return cgpu_digest(digest, offsetof(struct governor, thread));
}
