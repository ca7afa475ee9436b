// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds one call of a client at a step of its way through the driver, so that a
 * test can do there what a race does by luck.
 *
 * Written to the parameter: "<step> <number>", where the number is that of an
 * escape, or of a UVM command, in hexadecimal; the next call of that number is
 * held at that step. An empty line holds none. Either lets go who is held. Read:
 * "armed", "held", or an empty line: nobody is waited for.
 */
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
};

static DEFINE_SPINLOCK(pause_lock);
static DECLARE_WAIT_QUEUE_HEAD(released);
static bool armed, held;
static unsigned int step, number;
static unsigned long generation; /* of the parameter */

void nvsim_pause(enum nvsim_pause at, unsigned int nr)
{
	unsigned long mine;
	bool hold;

	if (likely(!READ_ONCE(armed)))
		return;
	spin_lock(&pause_lock);
	hold = armed && at == step && nr == number;
	mine = generation;
	if (hold) {
		armed = false;
		held = true;
	}
	spin_unlock(&pause_lock);
	if (hold)
		wait_event_killable(released, READ_ONCE(generation) != mine);
}
EXPORT_SYMBOL_GPL(nvsim_pause);

static int pause_set(const char *text, const struct kernel_param *param)
{
	char word[16] = "";
	unsigned int nr = 0, index = 0;

	if (*skip_spaces(text)) {
		if (sscanf(text, "%15s %x", word, &nr) != 2)
			return -EINVAL;
		while (index < NVSIM_PAUSE_COUNT && strcmp(word, steps[index]))
			index++;
		if (index == NVSIM_PAUSE_COUNT)
			return -EINVAL;
	}
	spin_lock(&pause_lock);
	WRITE_ONCE(generation, generation + 1);
	held = false;
	step = index;
	number = nr;
	WRITE_ONCE(armed, word[0] != '\0');
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
MODULE_PARM_DESC(pause, "hold the next call of an escape: <argument|params|answer|return> <number>");
