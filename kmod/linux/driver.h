/* SPDX-License-Identifier: GPL-2.0-only */
/* The layouts of the driver that is hooked. */
#ifndef CGPU_LINUX_DRIVER_H
#define CGPU_LINUX_DRIVER_H

#include "core/rm/versions.h"

/**
 * cgpu_driver_known() - choose the layouts for a version of the driver
 * @version: as the driver's module carries it, "550.163.01"
 *
 * Return: 0, -EOPNOTSUPP: none for this version.
 */
int cgpu_driver_known(const char *version);

/**
 * cgpu_driver_abi() - the layouts that were chosen last
 *
 * Return: never NULL; all zero before the first choice.
 */
const struct cgpu_abi *cgpu_driver_abi(void);

#endif
