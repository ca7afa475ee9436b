// SPDX-License-Identifier: GPL-2.0-only
/*
 * A card has a governor while both it and the bridge are known. Callers find the governor inside an
 * SRCU section, which its end waits for. So they hold no lock that its start or end needs.
 */
#include <linux/err.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/suspend.h>

#include "core/tree/nodes.h"
#include "door/bridge.h"
#include "door/door.h"
#include "governor.h"
#include "governors.h"
#include "tree.h"

/* The state that one core hands to the next. */
struct governors {
	struct mutex lock;
	struct cgpu_governor *at[CGPU_MAX_CARDS]; /* written under lock */
};

static struct governors *governors;
static const struct cgpu_bridge_ops *bridge; /* under governors->lock; fixed while a governor is */
/* held by users of a governor that do not hold governors->lock */
DEFINE_STATIC_SRCU(governors_srcu);

/* ----------------------------------------------------------- begin and end */

/* Context: governors->lock. */
static void start(u32 minor, const struct cgpu_gpu *gpu)
{
	struct cgpu_governor *governor;

	if (governors->at[minor])
		return;
	governor = cgpu_governor_start(bridge, minor, gpu);
	if (IS_ERR(governor)) {
		pr_warn("cgpu: card %u: no compute control (%ld); tried again with its next container\n",
			minor, PTR_ERR(governor));
		return;
	}
	WRITE_ONCE(governors->at[minor], governor);
	/* catches up on changes that no governor was told of */
	cgpu_governor_poke(governor);
}

/* Context: governors->lock. */
static void stop(u32 minor)
{
	struct cgpu_governor *governor = governors->at[minor];

	if (!governor)
		return;
	/* first no other task can shut a gate, then they all open */
	WRITE_ONCE(governors->at[minor], NULL);
	synchronize_srcu(&governors_srcu);
	cgpu_governor_stop(governor);
}

/* Starts what is missing. Context: sleeps; governors->lock. */
static void start_all(void)
{
	struct cgpu_gpu gpu[CGPU_MAX_CARDS];
	u32 minor;

	rt_mutex_lock(&cgpu_registry->lock);
	memcpy(gpu, cgpu_registry->host.topology.gpu, sizeof(gpu));
	rt_mutex_unlock(&cgpu_registry->lock);
	/* a card that did not answer has nothing to govern */
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (gpu[minor].present && gpu[minor].total_bytes)
			start(minor, &gpu[minor]);
}

static void set_features(bool present)
{
	cgpu_tree_set_feature(CGPU_FEATURE_SLICES, present);
	cgpu_tree_set_feature(CGPU_FEATURE_GATE, present);
}

void cgpu_governors_bridge(const struct cgpu_bridge_ops *ops)
{
	u32 minor;

	mutex_lock(&governors->lock);
	if (ops) {
		bridge = ops;
		start_all();
	} else {
		for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
			stop(minor);
		bridge = NULL;
	}
	set_features(ops);
	mutex_unlock(&governors->lock);
}

void cgpu_governors_card_known(void)
{
	mutex_lock(&governors->lock);
	if (bridge)
		start_all();
	mutex_unlock(&governors->lock);
}

/* ----------------------------------------------------------------- events */

/* Return: NULL: nothing governs the card; with *idx for srcu_read_unlock() anyway. */
static struct cgpu_governor *enter(u32 minor, int *idx)
	__acquires(&governors_srcu)
{
	*idx = srcu_read_lock(&governors_srcu);
	return minor < CGPU_MAX_CARDS ? READ_ONCE(governors->at[minor]) : NULL;
}

static void leave(int idx)
	__releases(&governors_srcu)
{
	srcu_read_unlock(&governors_srcu, idx);
}

void cgpu_governors_poke(u32 minor)
{
	int idx;
	struct cgpu_governor *governor = enter(minor, &idx);

	if (governor)
		cgpu_governor_poke(governor);
	leave(idx);
}

void cgpu_governors_poke_container(struct cgpu_container *container)
{
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (container->grant[minor].present)
			cgpu_governors_poke(minor);
}

void cgpu_governors_begin_container(struct cgpu_container *container)
{
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		int idx;
		struct cgpu_governor *governor = enter(minor, &idx);

		if (governor && container->grant[minor].present)
			cgpu_governor_begin(governor, container->grant[minor].instance);
		leave(idx);
	}
}

void cgpu_governors_took(struct cgpu_container *container, u64 ns)
{
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		int idx;
		struct cgpu_governor *governor = enter(minor, &idx);

		if (governor && container->grant[minor].present)
			cgpu_governor_took(governor, container->grant[minor].entity, ns);
		leave(idx);
	}
}

void cgpu_governors_assert(void)
{
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		cgpu_governor_doubt(minor);
		cgpu_governors_poke(minor);
	}
}

bool cgpu_governors_stat(struct cgpu_container *container, u32 minor,
			 struct cgpu_sched_stat *stat)
{
	int idx;
	struct cgpu_governor *governor = enter(minor, &idx);

	/* it is the leader's */
	if (container && cgpu_grant_is_member(&container->grant[minor]))
		governor = NULL;
	if (governor)
		cgpu_governor_stat(governor, container ? container->grant[minor].instance :
							 CGPU_SCHED_NONE, stat);
	leave(idx);
	return governor;
}

void cgpu_governors_hold_new(struct cgpu_container *container, u32 minor)
{
	int idx;
	struct cgpu_governor *governor = enter(minor, &idx);

	if (governor)
		cgpu_governor_hold_new(governor, container);
	leave(idx);
}

void cgpu_governors_schedule(struct cgpu_container *container, u32 minor,
			     void (*ask)(void *data), void *data)
{
	int idx;
	struct cgpu_governor *governor = enter(minor, &idx);

	if (governor && container->grant[minor].present)
		cgpu_governor_schedule(governor, container, ask, data);
	else
		ask(data);
	leave(idx);
}

u32 cgpu_governors_control(u32 minor, u32 hClient, u32 hObject, u32 cmd, void *params, u32 size)
{
	int idx;
	struct cgpu_governor *governor = enter(minor, &idx);
	u32 status = governor ? cgpu_governor_control(governor, hClient, hObject, cmd, params,
						      size) : NV_OK;

	leave(idx);
	return status;
}

/* ----------------------------------------------------------------- suspend */

static int on_suspend(struct notifier_block *block, unsigned long event, void *unused)
{
	bool suspend = event == PM_SUSPEND_PREPARE || event == PM_HIBERNATION_PREPARE;
	u32 minor;

	if (!suspend && event != PM_POST_SUSPEND && event != PM_POST_HIBERNATION)
		return NOTIFY_DONE;
	mutex_lock(&governors->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (governors->at[minor])
			cgpu_governor_suspend(governors->at[minor], suspend);
	mutex_unlock(&governors->lock);
	return NOTIFY_OK;
}

static struct notifier_block suspend_block = { .notifier_call = on_suspend };

int cgpu_governors_watch(void)
{
	return register_pm_notifier(&suspend_block);
}

/* ------------------------------------------------------------------- state */

int cgpu_governors_begin(void **part)
{
	governors = kvzalloc(sizeof(*governors), GFP_KERNEL);
	if (!governors)
		return -ENOMEM;
	cgpu_governors_adopt(governors);
	*part = governors;
	return 0;
}

void cgpu_governors_adopt(void *part)
{
	u32 minor;

	governors = part;
	bridge = cgpu_door_bridge();
	mutex_init(&governors->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (governors->at[minor])
			cgpu_governor_adopt(governors->at[minor], bridge);
}

void cgpu_governors_end(void)
{
	cgpu_governors_bridge(NULL);
	kvfree(governors);
}

static void end_threads(void)
{
	u32 minor;

	mutex_lock(&governors->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (governors->at[minor])
			cgpu_governor_leave(governors->at[minor]);
	mutex_unlock(&governors->lock);
}

void cgpu_governors_quiesce(void)
{
	unregister_pm_notifier(&suspend_block);
	end_threads();
}

void cgpu_governors_settle(void)
{
	/* of a card that became known between quiesce and the closing of the drains */
	end_threads();
}

void cgpu_governors_resume(void)
{
	u32 minor;

	mutex_lock(&governors->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		struct cgpu_governor *governor = governors->at[minor];

		if (!governor)
			continue;
		/* settings may have changed while no thread ran */
		cgpu_governor_poke(governor);
		if (cgpu_governor_run(governor))
			stop(minor);
	}
	mutex_unlock(&governors->lock);
	if (cgpu_governors_watch())
		pr_warn("cgpu: gates will not open for a suspend\n");
}

u64 cgpu_governors_digest(u64 digest)
{
	digest = cgpu_digest(digest, sizeof(struct governors));
	return cgpu_governor_digest(digest);
}
