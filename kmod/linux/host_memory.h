/* SPDX-License-Identifier: GPL-2.0-only */
/* How much memory of the host the driver may take for a container. */
#ifndef CGPU_LINUX_HOST_MEMORY_H
#define CGPU_LINUX_HOST_MEMORY_H

#include <linux/types.h>

/**
 * cgpu_host_memory_max_bytes() - limit of current's memory cgroup, and of those above it
 *
 * The cgroup's usage does not include the driver's memory, so a container can have as much again.
 *
 * Return: bytes, 0: it has none.
 */
u64 cgpu_host_memory_max_bytes(void);

#endif
