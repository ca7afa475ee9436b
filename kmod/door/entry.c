// SPDX-License-Identifier: GPL-2.0-only
/*
 * If a function begins with a place that the kernel keeps for ftrace, its handler is called from
 * there. A kprobe would be, too, but through a table of all probes and with more work than the
 * handlers' own. Any other function, such as those that NVIDIA delivers compiled, has a kprobe.
 */
#include <linux/errno.h>
#include <linux/printk.h>
#include <linux/ptrace.h>

#include "../compat/compat.h"
#include "entry.h"

static int on_probe(struct kprobe *probe, struct pt_regs *regs)
{
	return container_of(probe, struct cgpu_entry, probe)->handler(regs);
}

/* With it the kernel leaves an entry a place where the path may change. */
static void after_probe(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS

static bool is_ftraces(const struct cgpu_entry *entry)
{
	return entry->probe.addr && entry->probe.flags & KPROBE_FLAG_FTRACE;
}

static notrace void on_entry(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			     struct ftrace_regs *fregs)
{
	const struct cgpu_entries *entries = container_of(ops, struct cgpu_entries, ops);
	size_t i;

	for (i = 0; i < entries->count; i++)
		if ((unsigned long)entries->entry[i].probe.addr == ip) {
			entries->entry[i].handler(ftrace_get_regs(fregs));
			return;
		}
}

/* Follows the entries that ftrace knows, all at once: each change costs ftrace a walk of all. */
static int trace(struct cgpu_entries *entries)
{
	bool chosen = false;
	size_t i;
	int err;

	entries->ops = (struct ftrace_ops){
		.func = on_entry,
		/* never silenced by kernel.ftrace_enabled; no handler comes to an entry itself */
		.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY |
			 FTRACE_OPS_FL_PERMANENT | CGPU_FTRACE_NO_RECURSION,
	};
	for (i = 0; i < entries->count; i++) {
		if (!is_ftraces(&entries->entry[i]))
			continue;
		err = ftrace_set_filter_ip(&entries->ops,
					   (unsigned long)entries->entry[i].probe.addr, 0, 0);
		if (err)
			return err;
		chosen = true;
	}
	/* with nothing to choose from it would follow every function that there is */
	if (!chosen)
		return 0;
	err = register_ftrace_function(&entries->ops);
	entries->traced = !err;
	return err;
}

static void untrace(struct cgpu_entries *entries)
{
	if (entries->traced)
		unregister_ftrace_function(&entries->ops);
	entries->traced = false;
	/* what was chosen is memory */
	if (entries->ops.func)
		ftrace_set_filter(&entries->ops, NULL, 0, 1);
}

#else

static bool is_ftraces(const struct cgpu_entry *entry)
{
	return false;
}

static int trace(struct cgpu_entries *entries)
{
	return 0;
}

static void untrace(struct cgpu_entries *entries)
{
}

#endif

/* A probe that stays off tells where the function is, and whether ftrace knows it. */
static int find(struct cgpu_entry *entry)
{
	int err;

	entry->probe = (struct kprobe){
		.symbol_name = entry->symbol,
		.pre_handler = on_probe,
		.post_handler = after_probe,
		.flags = KPROBE_FLAG_DISABLED,
	};
	err = register_kprobe(&entry->probe);
	if (err)
		entry->probe.addr = NULL;
	else if (!is_ftraces(entry))
		err = enable_kprobe(&entry->probe);
	return err == -ENOENT && entry->optional ? 0 : err;
}

int cgpu_entries_follow(struct cgpu_entries *entries, const char **failed)
{
	size_t i;
	int err = 0;

	for (i = 0; i < entries->count && !err; i++) {
		*failed = entries->entry[i].symbol;
		err = find(&entries->entry[i]);
	}
	if (!err)
		err = trace(entries);
	if (err == -EBUSY)
		pr_warn_ratelimited("cgpu: %s cannot be followed while ftrace is off, or a live patch has it: sysctl kernel.ftrace_enabled=1\n",
				    *failed);
	if (err)
		cgpu_entries_leave(entries);
	return err;
}

void cgpu_entries_leave(struct cgpu_entries *entries)
{
	size_t i;

	untrace(entries);
	for (i = 0; i < entries->count; i++) {
		if (entries->entry[i].probe.addr)
			unregister_kprobe(&entries->entry[i].probe);
		entries->entry[i].probe.addr = NULL;
	}
}
