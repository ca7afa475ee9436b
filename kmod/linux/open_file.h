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

/**
 * cgpu_open_file_add() - a file that a container has opened
 * @file: the driver's
 * @container: the entry holds a reference
 * @device: enum cgpu_device
 * @minor: of the device
 *
 * Return: 0, -ENOMEM, -EACCES: the container was removed meanwhile.
 */
int cgpu_open_file_add(struct file *file, struct cgpu_container *container, u32 device,
		       u32 minor);

/**
 * cgpu_open_file_find() - the entry of a file
 * @file: held by the caller; the entry is valid as long
 *
 * Return: the entry, or NULL: no container's.
 */
struct cgpu_open_file *cgpu_open_file_find(struct file *file);

/**
 * cgpu_open_file_take() - at release: take the entry out of the table
 * @file: the driver is about to release it
 *
 * Return: for cgpu_open_file_close(), or NULL: no container's.
 */
struct cgpu_open_file *cgpu_open_file_take(struct file *file);

/**
 * cgpu_open_file_close() - after the driver's release: close the file in the tenant
 * @open_file: of cgpu_open_file_take(); freed
 */
void cgpu_open_file_close(struct cgpu_open_file *open_file);

struct cgpu_container *cgpu_open_file_container(struct cgpu_open_file *open_file);
u32 cgpu_open_file_number(struct cgpu_open_file *open_file);
u32 cgpu_open_file_device(struct cgpu_open_file *open_file);

/**
 * cgpu_open_file_watch() - what current's mm unmaps is to be followed
 * @open_file: of the UVM device, after UVM_INITIALIZE succeeded
 *
 * So managed memory is uncharged when it is unmapped.
 *
 * Return: for cgpu_pass.watch, then cgpu_open_file_watched(); NULL: that was done before.
 */
struct mmu_notifier *cgpu_open_file_watch(struct cgpu_open_file *open_file);

/**
 * cgpu_open_file_watched() - what came of it
 * @open_file: as above
 * @err: 0: it is followed
 *
 * Return: @err.
 */
int cgpu_open_file_watched(struct cgpu_open_file *open_file, int err);

/**
 * cgpu_open_file_mmap() - before the driver's mmap: charge managed memory
 * @open_file: of the UVM device
 * @start: where it will be
 * @length_bytes: how much
 *
 * Context: mmap_lock held for writing.
 * Return: 0, or the errno of cgpu_tenant_mmap(): the driver is not asked.
 */
int cgpu_open_file_mmap(struct cgpu_open_file *open_file, u64 start, u64 length_bytes);

/**
 * cgpu_open_file_mapped() - after the driver's mmap
 * @open_file: as in cgpu_open_file_mmap()
 * @start: likewise
 * @length_bytes: likewise
 * @done: false: it failed, so that the charge is taken back
 *
 * Context: mmap_lock held for writing.
 */
void cgpu_open_file_mapped(struct cgpu_open_file *open_file, u64 start, u64 length_bytes,
			   bool done);

/**
 * cgpu_open_file_unmapped() - something went from a watched mm
 * @notifier: of cgpu_open_file_watch()
 * @start: from where
 * @length_bytes: how much
 */
void cgpu_open_file_unmapped(struct mmu_notifier *notifier, u64 start, u64 length_bytes);

/** cgpu_open_file_reserve() - the memory of an entry, or NULL; kfree() where it is not used */
struct cgpu_open_file *cgpu_open_file_reserve(void);

/**
 * cgpu_open_file_watch_dmabuf() - a dma-buf exported from a container's memory
 * @file: the dma-buf's
 * @container: whose memory it is
 * @call: the export, which kept a place for it
 * @reserved: of cgpu_open_file_reserve(), NULL where it is used
 *
 * Its file cannot be hooked, so the entry holds a reference and looks from time to
 * time whether it is the last.
 *
 * Return: number of the file in the tenant, 0: there is no place for it.
 */
u32 cgpu_open_file_watch_dmabuf(struct file *file, struct cgpu_container *container,
				struct cgpu_call *call, struct cgpu_open_file **reserved);

/** cgpu_open_file_sweep() - drop dma-bufs that are held here alone; the reaper calls it */
void cgpu_open_file_sweep(void);

#endif
