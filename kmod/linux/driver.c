// SPDX-License-Identifier: GPL-2.0-only
#include "door/door.h"
#include "driver.h"

static struct cgpu_abi abi;

const struct cgpu_abi *cgpu_driver_abi(void)
{
	return &abi;
}

int cgpu_driver_known(const char *version)
{
	return cgpu_abi_find(version, cgpu_door_force_branch(), &abi);
}
