// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds the first call of one function of the kernel, or of a module, before it has
 * begun, so that a test can do there what a race does by luck.
 *
 * The parameter `at` names the function, which takes six words at most. `state` reads
 * "armed", "held" or "passed"; whatever is written to it lets go who is held. Unload it
 * when that call has returned.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>
#include <linux/wait.h>

enum { ARMED, HELD, PASSED };

typedef long (*function)(long a, long b, long c, long d, long e, long f);

static const char *const words[] = { "armed", "held", "passed" };
static atomic_t state = ATOMIC_INIT(ARMED);
static DECLARE_WAIT_QUEUE_HEAD(released);
static char *at;
static struct kprobe probe;

static noinline notrace long held(long a, long b, long c, long d, long e, long f)
{
	wait_event(released, atomic_read(&state) == PASSED);
	return ((function)probe.addr)(a, b, c, d, e, f);
}

static int on_call(struct kprobe *unused, struct pt_regs *regs)
{
	if (atomic_cmpxchg(&state, ARMED, HELD) != ARMED)
		return 0;
	instruction_pointer_set(regs, (unsigned long)held);
	return 1;
}

/* With it the kernel leaves an entry a place where the path may change. */
static void after_call(struct kprobe *unused, struct pt_regs *regs, unsigned long flags)
{
}

static int state_set(const char *text, const struct kernel_param *param)
{
	atomic_set(&state, PASSED);
	wake_up_all(&released);
	return 0;
}

static int state_get(char *text, const struct kernel_param *param)
{
	return scnprintf(text, PAGE_SIZE, "%s\n", words[atomic_read(&state)]);
}

static const struct kernel_param_ops state_ops = { .set = state_set, .get = state_get };
module_param_cb(state, &state_ops, NULL, 0600);
module_param(at, charp, 0444);

static int __init hold_init(void)
{
	probe.symbol_name = at;
	probe.pre_handler = on_call;
	probe.post_handler = after_call;
	return register_kprobe(&probe);
}

static void __exit hold_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(hold_init);
module_exit(hold_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Holds a call of a function for tests");
