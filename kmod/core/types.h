/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Integer types, memory primitives and errno for the core: the only place
 * where the core knows whether it is built into the kernel or into user space.
 */
#ifndef CGPU_CORE_TYPES_H
#define CGPU_CORE_TYPES_H

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/types.h>
#ifndef UINT64_MAX
#define UINT64_MAX U64_MAX
#endif
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#endif

/*
 * A host that may be killed amid a change defines the name of a function. It is told what is about
 * to change, so that the host can restore it.
 */
#ifdef CGPU_TOUCHED
void CGPU_TOUCHED(void *at, size_t bytes);
#else
#define CGPU_TOUCHED(at, bytes) ((void)(at))
#endif

#endif
