/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory in a process's address space that the driver can use for one call and that nothing else
 * can write: an ioctl's argument lies there while the driver works on it.
 */
#ifndef CGPU_DOOR_SCRATCH_H
#define CGPU_DOOR_SCRATCH_H

#include <linux/types.h>

enum {
	CGPU_SCRATCH_ARGS_BYTES = 16384,
	CGPU_SCRATCH_PARAMS_BYTES = 4096,
	/* behind the argument of a control, of 32 bytes, for a list that it points to */
	CGPU_SCRATCH_LIST_BYTES = 1024,
	CGPU_SCRATCH_LIST_PLACE = CGPU_SCRATCH_ARGS_BYTES - CGPU_SCRATCH_LIST_BYTES,
	CGPU_SCRATCH_RECORD_BYTES = 1024,
};

struct cgpu_scratch_area;
struct file;

typedef long (*cgpu_ask_fn)(struct file *file, unsigned int cmd, unsigned long arg);

/**
 * struct cgpu_scratch - one call's buffer
 * @area: of which it is a part
 * @index: which
 * @args: kernel only, CGPU_SCRATCH_ARGS_BYTES: what the driver is to be asked, then its answer
 * @params: likewise, CGPU_SCRATCH_PARAMS_BYTES, right behind @args
 * @before: kernel only, CGPU_SCRATCH_PARAMS_BYTES, the caller's own
 * @record: kernel only, CGPU_SCRATCH_RECORD_BYTES, what the buffer's holder keeps of the call
 * @args_user: where the driver finds @args, only by cgpu_scratch_ask()
 * @params_user: where it finds @params
 * @args_bytes: of @args, set by the caller, as is all that follows
 * @params_bytes: of @params
 * @list_bytes: at CGPU_SCRATCH_LIST_PLACE in @args
 * @through_rm: it is one of RM's own escapes, whose argument goes to rm_ioctl()
 * @lost: set by cgpu_scratch_ask(): what the driver did is not known
 */
struct cgpu_scratch {
	struct cgpu_scratch_area *area;
	unsigned int index;
	u8 *args;
	u8 *params;
	u8 *before;
	u8 *record;
	unsigned long args_user;
	unsigned long params_user;
	u32 args_bytes;
	u32 params_bytes;
	u32 list_bytes;
	bool through_rm;
	bool lost;
};

/** cgpu_scratch_exit() - no buffer is in use and no process has an area mapped any more */
void cgpu_scratch_exit(void);

/**
 * cgpu_scratch_get() - a buffer in current's address space
 * @scratch: filled in; of no bytes yet
 * @sealed: the process is not trusted to leave it alone
 *
 * Context: process with an mm; sleeps; takes mmap_lock, but not for @sealed.
 * Return: 0, -ENOMEM, -EINTR, -ESRCH: no mm, -EAGAIN: none is free that is sealed.
 */
int cgpu_scratch_get(struct cgpu_scratch *scratch, bool sealed);

/**
 * cgpu_scratch_add() - more sealed buffers in current's address space
 *
 * Context: behind no drain; sleeps; takes mmap_lock.
 * Return: 0, -ENOMEM, -EINTR.
 */
int cgpu_scratch_add(void);

/**
 * cgpu_scratch_ask() - have the driver work on a buffer
 * @scratch: its bytes say what is asked; afterwards they are the driver's answer
 * @driver: the driver's own ioctl
 * @file: of the driver
 * @cmd: as the driver is to see it
 *
 * What was asked is what the driver reads, and what it answered is what is found
 * afterwards, whatever other threads of the process do: see scratch.c and answer.h.
 *
 * Context: as cgpu_scratch_get(), by the same task.
 * Return: what the driver returned; with @scratch->lost -EFAULT: its answer did not arrive
 * (the process is being killed); -ENOMEM: it was not asked.
 */
long cgpu_scratch_ask(struct cgpu_scratch *scratch, cgpu_ask_fn driver, struct file *file,
		      unsigned int cmd);

/**
 * cgpu_scratch_put() - give a buffer back
 * @scratch: of cgpu_scratch_get()
 *
 * Return: true: the process unmapped it meanwhile, on a kernel that cannot refuse
 * that; what the driver read and wrote may then have been memory of the process.
 */
bool cgpu_scratch_put(struct cgpu_scratch *scratch);

/**
 * cgpu_scratch_forget() - unmap current's areas that are not sealed
 *
 * Called for a process of the host that needed one once.
 */
void cgpu_scratch_forget(void);

#endif
