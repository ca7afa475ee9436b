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

/**
 * cgpu_driver_trusted() - may a container have a card?
 *
 * Return: false: the layouts are those of another branch, and the driver has not shown yet
 * that it has them, or has shown that it has not.
 */
bool cgpu_driver_trusted(void);

/** cgpu_driver_on_trial() - has the driver still to be checked? */
bool cgpu_driver_on_trial(void);

/**
 * cgpu_driver_judged() - the verdict, until another driver is hooked
 * @passed: the driver has the layouts
 */
void cgpu_driver_judged(bool passed);

#endif
