/* SPDX-License-Identifier: GPL-2.0-only */
/* One ioctl of a container's process: copy in, ask core; settle, copy out. */
#ifndef CGPU_LINUX_IOCTL_H
#define CGPU_LINUX_IOCTL_H

#include "door/door.h"
#include "open_file.h"
#include "state.h"

/**
 * cgpu_call_begin() - before the driver
 * @open_file: the container's file that the call came through
 * @pass: the call
 *
 * Either it is answered, or what the driver is to see is a private copy and
 * pass->token is set, or the call is none of ours. Called again when a page was
 * missing.
 */
void cgpu_call_begin(struct cgpu_open_file *open_file, struct cgpu_pass *pass);

/**
 * cgpu_call_end() - after the driver
 * @pass: with the driver's result, which becomes the ioctl's
 *
 * Called again when a page was missing.
 */
void cgpu_call_end(struct cgpu_pass *pass);

u64 cgpu_ioctl_digest(u64 digest);

#endif
