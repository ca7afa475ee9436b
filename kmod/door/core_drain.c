// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page faults behind CALLS take mmap_lock, and those who hold mmap_lock come through MAPS: so CALLS
 * is closed and empty before MAPS is closed. Work that began behind CALLS and goes on is ended in
 * between: it may wait for memory, and so for an mmap_lock.
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/spinlock.h>

#include "core_drain.h"

enum {
	/* a caller behind the drain for longer than this has the switch tried again */
	DRAIN_LIMIT_NS = 100 * NSEC_PER_MSEC,
};

static DEFINE_PER_CPU(struct cgpu_drain_count, calls_count);
static DEFINE_PER_CPU(struct cgpu_drain_count, maps_count);
struct cgpu_drain cgpu_calls = CGPU_DRAIN_INIT(cgpu_calls, calls_count);
struct cgpu_drain cgpu_maps = CGPU_DRAIN_INIT(cgpu_maps, maps_count);

/* written while both drains are closed, or no call can be inside; and under pins_lock */
static const struct cgpu_core_ops *in_charge;
static DEFINE_SPINLOCK(pins_lock);
static unsigned int pins;       /* containers, open files of the tree, readers of events */
static bool started;            /* the core in charge stays until it is unloaded */

const struct cgpu_core_ops *cgpu_core_enter(struct cgpu_drain *drain)
{
	cgpu_drain_enter(drain);
	return READ_ONCE(in_charge);
}

const struct cgpu_core_ops *cgpu_core_in_charge(void)
{
	return READ_ONCE(in_charge);
}

static void get_core(const struct cgpu_core_ops *core)
{
	if (core)
		__module_get(core->owner);
}

static void put_core(const struct cgpu_core_ops *core)
{
	if (core)
		module_put(core->owner);
}

/* Caller holds pins_lock. Return: false: one of them is being unloaded. */
static bool get_both(void)
{
	if (!try_module_get(THIS_MODULE))
		return false;
	if (!in_charge || try_module_get(in_charge->owner))
		return true;
	module_put(THIS_MODULE);
	return false;
}

static bool pin(bool with_state)
{
	unsigned long flags;
	bool pinned;

	spin_lock_irqsave(&pins_lock, flags);
	pinned = (started || !with_state) && (pins || get_both());
	if (pinned)
		pins++;
	spin_unlock_irqrestore(&pins_lock, flags);
	return pinned;
}

bool cgpu_core_pin(void)
{
	return pin(false);
}

bool cgpu_core_pin_state(void)
{
	return pin(true);
}

void cgpu_core_unpin(void)
{
	unsigned long flags;

	spin_lock_irqsave(&pins_lock, flags);
	if (!--pins) {
		put_core(in_charge);
		module_put(THIS_MODULE);
	}
	spin_unlock_irqrestore(&pins_lock, flags);
}

void cgpu_core_replace(const struct cgpu_core_ops *core)
{
	unsigned long flags;

	spin_lock_irqsave(&pins_lock, flags);
	if (pins) {
		get_core(core);
		put_core(in_charge);
	}
	WRITE_ONCE(in_charge, core);
	if (!core)
		started = false;
	spin_unlock_irqrestore(&pins_lock, flags);
}

void cgpu_core_started(void)
{
	unsigned long flags;

	spin_lock_irqsave(&pins_lock, flags);
	started = true;
	spin_unlock_irqrestore(&pins_lock, flags);
}

int cgpu_core_close(void)
{
	int err = cgpu_drain_close(&cgpu_calls, DRAIN_LIMIT_NS);

	if (err)
		return err;
	cgpu_core_in_charge()->settle();
	err = cgpu_drain_close(&cgpu_maps, DRAIN_LIMIT_NS);
	if (err)
		cgpu_drain_open(&cgpu_calls);
	return err;
}

void cgpu_core_open(void)
{
	cgpu_drain_open(&cgpu_maps);
	cgpu_drain_open(&cgpu_calls);
}
