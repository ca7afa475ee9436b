// SPDX-License-Identifier: GPL-2.0-only
#include <linux/compiler.h>
#include <linux/kernel.h>

#include "door/door.h"
#include "driver.h"

static struct cgpu_abi abi;
static enum { TRUSTED, ON_TRIAL, FAILED } verdict;

const struct cgpu_abi *cgpu_driver_abi(void)
{
	return &abi;
}

int cgpu_driver_known(const char *version)
{
	/* by its name of before it had to pass a check: unknown_driver=newest */
	int err = cgpu_abi_find(version, cgpu_door_force_branch(), &abi);

	WRITE_ONCE(verdict, !err && abi.guarded ? ON_TRIAL : TRUSTED);
	if (!err && abi.guarded)
		pr_warn("cgpu: driver %s is newer than all known: it is checked against the layouts of branch %u before a container gets a card (unknown_driver=newest)\n",
			version, abi.branch);
	return err;
}

bool cgpu_driver_trusted(void)
{
	return READ_ONCE(verdict) == TRUSTED;
}

bool cgpu_driver_on_trial(void)
{
	return READ_ONCE(verdict) == ON_TRIAL;
}

void cgpu_driver_judged(bool passed)
{
	WRITE_ONCE(verdict, passed ? TRUSTED : FAILED);
}
