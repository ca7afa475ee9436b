// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds one call of a client at a step in the driver, so that a test can do there what a race does
 * by luck. Or it makes the copying at that step fail, as it does if a page is missing.
 *
 * Written to the parameter `pause`: "<step> <number>", where the number is that of an escape, of a
 * UVM command, for "answer" of a control, too, or, for "open" and "map", of a device, in
 * hexadecimal; the next call of that number is held at that step. An empty line holds none. Either
 * releases a held call. Read: "armed", "held", or an empty line: no call is awaited.
 *
 * `fault` likewise, "argument" or "answer": the next call's copying fails. Read: "armed", or an
 * empty line.
 *
 * `works_ms` not 0: each call that would be held works for so long instead, and does not wait.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/wait.h>
#include "nvsim.h"

static const char *const steps[NVSIM_PAUSE_COUNT] = {
	[NVSIM_PAUSE_ARGUMENT] = "argument",
	[NVSIM_PAUSE_PARAMS] = "params",
	[NVSIM_PAUSE_ANSWER] = "answer",
	[NVSIM_PAUSE_RETURN] = "return",
	[NVSIM_PAUSE_OPEN] = "open",
	[NVSIM_PAUSE_MAP] = "map",
};

static DEFINE_SPINLOCK(pause_lock);
static DECLARE_WAIT_QUEUE_HEAD(released);
static bool armed, held;
static unsigned int step, number;
static unsigned long generation; /* of the parameter */
static unsigned int works_ms;
module_param(works_ms, uint, 0600);
MODULE_PARM_DESC(works_ms, "milliseconds of a processor that a held call needs instead of waiting");

/* Counted, not timed: kept off the processor meanwhile, it takes so much longer. */
static void work(void)
{
	enum { STEP_US = 50 };
	unsigned int left = READ_ONCE(works_ms) * USEC_PER_MSEC / STEP_US;

	for (; left && !fatal_signal_pending(current); left--) {
		udelay(STEP_US);
		cond_resched();
	}
}

void nvsim_pause(enum nvsim_pause at, unsigned int nr)
{
	unsigned long mine;
	bool hold, works = READ_ONCE(works_ms);

	if (likely(!READ_ONCE(armed)))
		return;
	spin_lock(&pause_lock);
	hold = armed && at == step && nr == number;
	mine = generation;
	if (hold && !works) {
		armed = false;
		held = true;
	}
	spin_unlock(&pause_lock);
	if (hold && works)
		work();
	else if (hold)
		wait_event_killable(released, READ_ONCE(generation) != mine);
}
EXPORT_SYMBOL_GPL(nvsim_pause);

/* Return: 1, with what is meant; 0: an empty line; -EINVAL. */
static int parse(const char *text, unsigned int *at, unsigned int *nr)
{
	char word[16] = "";

	if (!*skip_spaces(text))
		return 0;
	if (sscanf(text, "%15s %x", word, nr) != 2)
		return -EINVAL;
	for (*at = 0; *at < NVSIM_PAUSE_COUNT; ++*at)
		if (!strcmp(word, steps[*at]))
			return 1;
	return -EINVAL;
}

static int pause_set(const char *text, const struct kernel_param *param)
{
	unsigned int nr = 0, index = 0;
	int given = parse(text, &index, &nr);

	if (given < 0)
		return given;
	spin_lock(&pause_lock);
	WRITE_ONCE(generation, generation + 1);
	held = false;
	step = index;
	number = nr;
	WRITE_ONCE(armed, given);
	spin_unlock(&pause_lock);
	wake_up_all(&released);
	return 0;
}

static int pause_get(char *text, const struct kernel_param *param)
{
	return scnprintf(text, PAGE_SIZE, "%s\n", READ_ONCE(armed) ? "armed" :
			 READ_ONCE(held) ? "held" : "");
}

static const struct kernel_param_ops pause_ops = { .set = pause_set, .get = pause_get };
module_param_cb(pause, &pause_ops, NULL, 0600);
MODULE_PARM_DESC(pause, "hold the next call of an escape, or the next opening or mapping of a minor: <argument|params|answer|return|open|map> <number>");

/* ---- the copying at a step fails ---- */

static bool faulty;
static unsigned int fault_step, fault_number; /* under pause_lock, as `faulty` */

bool nvsim_fault(enum nvsim_pause at, unsigned int nr)
{
	bool fails;

	if (likely(!READ_ONCE(faulty)))
		return false;
	spin_lock(&pause_lock);
	fails = faulty && at == fault_step && nr == fault_number;
	if (fails)
		faulty = false;
	spin_unlock(&pause_lock);
	return fails;
}
EXPORT_SYMBOL_GPL(nvsim_fault);

static int fault_set(const char *text, const struct kernel_param *param)
{
	unsigned int nr = 0, index = 0;
	int given = parse(text, &index, &nr);

	if (given < 0)
		return given;
	if (given && index != NVSIM_PAUSE_ARGUMENT && index != NVSIM_PAUSE_ANSWER)
		return -EINVAL;
	spin_lock(&pause_lock);
	fault_step = index;
	fault_number = nr;
	WRITE_ONCE(faulty, given);
	spin_unlock(&pause_lock);
	return 0;
}

static int fault_get(char *text, const struct kernel_param *param)
{
	return scnprintf(text, PAGE_SIZE, "%s\n", READ_ONCE(faulty) ? "armed" : "");
}

static const struct kernel_param_ops fault_ops = { .set = fault_set, .get = fault_get };
module_param_cb(fault, &fault_ops, NULL, 0600);
MODULE_PARM_DESC(fault, "the next call of an escape fails to copy: <argument|answer> <number>");
