/* SPDX-License-Identifier: GPL-2.0-only */
/* Checks a driver that is newer than all known ones. */
#ifndef CGPU_LINUX_VERIFY_H
#define CGPU_LINUX_VERIFY_H

/**
 * cgpu_verify_driver() - check the hooked driver, unless it is known or was checked
 *
 * A driver that has failed is not checked again until it is loaded again. Verdicts are in the
 * kernel's log and in `events`.
 *
 * Context: a privileged process with an mm, without locks; sleeps; opens the driver's files.
 * Return: 0: limits hold, or there is no driver; -EOPNOTSUPP.
 */
int cgpu_verify_driver(void);

#endif
