/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Locks that probes take, too. A probe may be a breakpoint, and lockdep takes whatever
 * runs in one for a non-maskable interrupt, in which nobody may wait for a lock. Here
 * it may: it is the call of some task that came to a probed function, and nobody who
 * holds such a lock comes to one. So lockdep is not asked. Who waits keeps its turn:
 * other tasks' calls, of which there is no end, do not hold it up.
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
