// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kernel.h>

#include "door/door.h"
#include "driver.h"

static struct cgpu_abi abi;

const struct cgpu_abi *cgpu_driver_abi(void)
{
	return &abi;
}

int cgpu_driver_known(const char *version)
{
	int err = cgpu_abi_find(version, cgpu_door_force_branch(), &abi);

	if (!err && simple_strtoul(version, NULL, 10) != abi.branch)
		pr_warn_once("cgpu: driver %s is read as branch %u (force_branch). A call whose struct changed is refused, or read in the wrong place: memory may be charged wrongly, or the caller's overwritten\n",
			     version, abi.branch);
	return err;
}
