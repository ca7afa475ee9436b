/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory in a process's address space that the kernel can use and the process
 * cannot: where an ioctl's argument lies while the driver works on it.
 */
#ifndef CGPU_DOOR_SCRATCH_H
#define CGPU_DOOR_SCRATCH_H

#include <linux/types.h>

enum {
	CGPU_SLOT_ARGS_BYTES = 16384,
	CGPU_SLOT_PARAMS_BYTES = 4096,
};

struct cgpu_scratch_area;

/* One call's worth. `*_user` is the address to give to the driver. */
struct cgpu_slot {
	struct cgpu_scratch_area *area;
	unsigned int index;
	u8 *args;                  /* CGPU_SLOT_ARGS_BYTES */
	u8 *params;                /* CGPU_SLOT_PARAMS_BYTES */
	u8 *before;                /* CGPU_SLOT_PARAMS_BYTES, kernel only */
	unsigned long args_user;
	unsigned long params_user;
};

/** cgpu_scratch_exit() - no slot is in use and no process has an area mapped any more */
void cgpu_scratch_exit(void);

/**
 * cgpu_slot_get() - a slot in current's address space
 * @slot: filled in
 * @sealed: the process is not trusted to leave it alone
 *
 * Context: process with an mm; sleeps; takes mmap_lock.
 * Return: 0, -ENOMEM, -EINTR, -ESRCH: no mm.
 */
int cgpu_slot_get(struct cgpu_slot *slot, bool sealed);

/**
 * cgpu_slot_put() - give a slot back
 * @slot: of cgpu_slot_get()
 *
 * Return: true: the process unmapped it meanwhile, on a kernel that cannot refuse
 * that; what the driver read and wrote may then have been memory of the process.
 */
bool cgpu_slot_put(struct cgpu_slot *slot);

/**
 * cgpu_scratch_forget() - unmap current's areas that are not sealed
 *
 * For a process of the host that needed one once.
 */
void cgpu_scratch_forget(void);

#endif
