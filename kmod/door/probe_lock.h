/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Locks that probes take, too. A probe may be a breakpoint, and lockdep takes its handler for a
 * non-maskable interrupt, which may not wait for a lock. Here the handler may wait: a task called a
 * probed function, and no holder of such a lock calls one. So lockdep is not asked. Waiters are
 * served in turn, so an endless stream of other tasks' calls does not hold one up.
 */
#ifndef CGPU_DOOR_PROBE_LOCK_H
#define CGPU_DOOR_PROBE_LOCK_H

#include <linux/irqflags.h>
#include <linux/spinlock.h>

/**
 * cgpu_probe_lock() - take a lock in a probe
 * @lock: held elsewhere for some instructions, none of which is probed
 *
 * Return: for cgpu_probe_unlock().
 */
static inline unsigned long cgpu_probe_lock(raw_spinlock_t *lock)
	__acquires(lock)
{
	unsigned long flags;

	local_irq_save(flags);
	arch_spin_lock(&lock->raw_lock);
	__acquire(lock);
	return flags;
}

static inline void cgpu_probe_unlock(raw_spinlock_t *lock, unsigned long flags)
	__releases(lock)
{
	__release(lock);
	arch_spin_unlock(&lock->raw_lock);
	local_irq_restore(flags);
}

#endif
