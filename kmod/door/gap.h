/* SPDX-License-Identifier: GPL-2.0-only */
/* Between the loading of a driver's module and the hooking of its files. */
#ifndef CGPU_DOOR_GAP_H
#define CGPU_DOOR_GAP_H

#include <linux/types.h>

struct cgpu_target;

/**
 * cgpu_gap_guard() - the first container comes, or the last one goes
 * @containers: are there any?
 *
 * Context: any.
 */
void cgpu_gap_guard(bool containers);

/**
 * cgpu_gap_begin() - a module of the driver is there, or about to be, and not hooked
 * @target: its files
 *
 * While the host has a container of ours, no container opens what may be a file of
 * the driver's: EAGAIN.
 *
 * Context: sleeps.
 */
void cgpu_gap_begin(struct cgpu_target *target);

/**
 * cgpu_gap_end() - it is hooked, or gone
 * @target: as it began, or not
 *
 * Context: sleeps.
 */
void cgpu_gap_end(struct cgpu_target *target);

#endif
