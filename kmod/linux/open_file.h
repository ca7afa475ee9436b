/* SPDX-License-Identifier: GPL-2.0-only */
/* Open files of containers: which container, which number in its tenant. */
#ifndef CGPU_LINUX_OPEN_FILE_H
#define CGPU_LINUX_OPEN_FILE_H

#include <linux/types.h>

#include "core/call/call.h"
#include "registry.h"
#include "state.h"

struct file;
struct mmu_notifier;

struct cgpu_open_file;

int cgpu_open_files_begin(void **part);
void cgpu_open_files_adopt(void *part);
/* No container may exist. */
void cgpu_open_files_end(void);
u64 cgpu_open_files_digest(u64 digest);

/* Return: 0, -ENOMEM. Takes a reference of the container. */
int cgpu_open_file_add(struct file *file, struct cgpu_container *container, u32 device,
		       u32 minor);
/*
 * Return: the entry, or NULL: no container's. Valid as long as the caller
 * holds the file.
 */
struct cgpu_open_file *cgpu_open_file_find(struct file *file);
/* At release: out of the table, so that nobody finds it any more. */
struct cgpu_open_file *cgpu_open_file_take(struct file *file);
/* After the driver's release: closes it in the tenant and frees the entry. */
void cgpu_open_file_close(struct cgpu_open_file *open_file);

struct cgpu_container *cgpu_open_file_container(struct cgpu_open_file *open_file);
u32 cgpu_open_file_number(struct cgpu_open_file *open_file);
u32 cgpu_open_file_device(struct cgpu_open_file *open_file);

/*
 * After UVM_INITIALIZE succeeded: follows unmapping in current's mm, so that
 * managed memory is uncharged when it goes. Return: 0, -ENOMEM, -EINTR.
 */
int cgpu_open_file_watch_mm(struct cgpu_open_file *open_file);
/* Before and after the driver's mmap; mmap_lock is held. */
int cgpu_open_file_mmap(struct cgpu_open_file *open_file, u64 start, u64 length_bytes);
void cgpu_open_file_munmap(struct cgpu_open_file *open_file, u64 start, u64 length_bytes);
/* Something went from the mm that one of them watches. */
void cgpu_open_file_unmapped(struct mmu_notifier *notifier, u64 start, u64 length_bytes);

/*
 * A dma-buf exported from the container's memory: its file cannot be hooked,
 * so the entry holds a reference and looks from time to time whether it is
 * the last. `call`: its export, which kept a place for it. Return: number of the
 * file in the tenant, 0: no memory.
 */
u32 cgpu_open_file_watch_dmabuf(struct file *file, struct cgpu_container *container,
				struct cgpu_call *call);
/* Drops dma-bufs that nobody else has any more. Called by the reaper. */
void cgpu_open_file_sweep(void);

#endif
