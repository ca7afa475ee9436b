/* SPDX-License-Identifier: GPL-2.0-only */
/* A limit was in the way of what a tenant asked for. */
#ifndef CGPU_LINUX_SHORTAGE_H
#define CGPU_LINUX_SHORTAGE_H

#include "registry.h"

/**
 * cgpu_shortage_report() - report it, and end the process if the grant says so
 * @container: whose limit
 * @shortage: on a card
 *
 * It concerns current's request. Context: may hold mmap_lock, not container->lock.
 */
void cgpu_shortage_report(struct cgpu_container *container, const struct cgpu_shortage *shortage);

#endif
