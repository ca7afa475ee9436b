/* SPDX-License-Identifier: GPL-2.0-only */
/* Handlers at the entries of functions that are not ours. */
#ifndef CGPU_DOOR_ENTRY_H
#define CGPU_DOOR_ENTRY_H

#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/types.h>

/**
 * struct cgpu_entry - of one function
 * @symbol: "module:function"
 * @handler: called before it; true: @regs say where to go on in its place. Context: a probe;
 *	cgpu_probe_lock() is for locks
 * @optional: not every version has it
 * @probe: addr NULL: nothing is there
 */
struct cgpu_entry {
	const char *symbol;
	bool (*handler)(struct pt_regs *regs);
	bool optional;
	struct kprobe probe;
};

/**
 * struct cgpu_entries - of functions that are followed together
 * @entry: them
 * @count: of them
 * @ops: by which those that ftrace knows are followed: 117 instructions a call where a
 *	kprobe took 191 (scripts/dev bench-hook, 6.1)
 * @traced: @ops is registered
 */
struct cgpu_entries {
	struct cgpu_entry *entry;
	size_t count;
#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS
	struct ftrace_ops ops;
	bool traced;
#endif
};

/**
 * cgpu_entries_follow() - all of them, or none
 * @entries: none is followed
 * @failed: on an error of which function
 *
 * Context: sleeps. One caller at a time.
 * Return: 0; -EBUSY: ftrace is off, or a live patch has one of them, which the kernel's log
 * says; another -errno.
 */
int cgpu_entries_follow(struct cgpu_entries *entries, const char **failed);

/** cgpu_entries_may_come() - Return: what failed with @err may not fail the next time. */
static inline bool cgpu_entries_may_come(int err)
{
	return err == -ENOMEM || err == -EBUSY;
}

/** cgpu_entries_leave() - Context: as cgpu_entries_follow(); no handler runs afterwards. */
void cgpu_entries_leave(struct cgpu_entries *entries);

#endif
