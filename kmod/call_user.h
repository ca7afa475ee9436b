/* SPDX-License-Identifier: GPL-2.0-only */
/* One ioctl of a container's process: copy in, ask core; settle, copy out. */
#ifndef CGPU_CALL_USER_H
#define CGPU_CALL_USER_H

#include "door/door.h"
#include "open_file.h"
#include "state.h"

/*
 * Both may be called again, when a page was missing. Before the driver: either it is answered, or what the driver shall see is a
 * private copy and pass->token is set, or the call is none of ours.
 */
void cgpu_call_begin(struct cgpu_open_file *open_file, struct cgpu_pass *pass);
/* After it, with the driver's result, which becomes the ioctl's. */
void cgpu_call_end(struct cgpu_pass *pass);

u64 cgpu_call_user_digest(u64 digest);

#endif
