/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small stand-in for libcuda: the same ioctls in the same order, as recorded
 * from CUDA 13 on an H200. Statuses are NVIDIA's (0: done, 0x51: out of memory);
 * negative values are -errno of the ioctl itself.
 */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stdbool.h>
#include "rm.h"

#define SC_GR_CHANNELS		8
#define SC_COPY_GROUPS		3
#define SC_COPY_CHANNELS	4
#define SC_CHANNELS		(SC_GR_CHANNELS + SC_COPY_GROUPS * SC_COPY_CHANNELS)

/* What an MPS server has for its clients: a group that computes, and memory. */
struct sc_server { u32 client, group, memory[2]; };

struct sc_options {
	bool serves;		/* the context is an MPS server's: its `server` is filled in */
	struct sc_server server; /* whose client the context is; client 0: nobody's */
	bool by_channel;	/* channels get to run one by one, not by their group */
	bool by_duplicate;	/* of a duplicate of theirs, in the same client */
	bool duplicates;	/* what can be duplicated is there by a duplicate alone */
	bool any_engine;	/* the group that computes names no engine */
	bool old_alloc;		/* RM_ALLOC in its 32-byte form */
	bool xfer;		/* every command wrapped in IOCTL_XFER_CMD */
	int heap;		/* 2, 6 or 14: allocate by that VID_HEAP_CONTROL function */
	bool video_userd;	/* USERD in the card's memory, as CUDA has it */
	unsigned int uvm_flags;	/* of UVM_INITIALIZE */
	bool free_userd;	/* its memory is freed while the channels run */
	u64 early_ns;		/* a kernel that is there when the channels get to run */
};

struct sc {
	struct sc_options opt;
	int minor, branch;
	char version[64];
	int ctl, gpu, gpu2, uvm, uvm_mm;
	u32 client, device, subdevice, vaspace, usermode, userd, share;
	struct sc_server server;
	u32 group[1 + SC_COPY_GROUPS], channel[SC_CHANNELS], token[SC_CHANNELS];
	u32 device_instance, gpu_id, next_handle;
	u32 compute_class, channel_class, copy_class, usermode_class;
	u8 uuid[16];
	char name[64];
	volatile u8 *doorbell, *rings;
	u64 next_va;
};

struct sc_mem { u32 handle; u64 size, va; };

int sc_open(struct sc *sc, int minor, const struct sc_options *opt);	/* client and device */
int sc_context(struct sc *sc);		/* all the rest of a CUDA context */
int sc_renew(struct sc *sc, int channel, bool same_handle); /* of the computing group: another */
void sc_close(struct sc *sc);
/* Keeps the client and all that it has, of which nothing can be rung or mapped any more. */
void sc_leave_card(struct sc *sc);

int sc_rm_alloc(struct sc *sc, u32 parent, u32 *handle, u32 class, void *params, u32 size);
int sc_rm_alloc_client(struct sc *sc, u32 *client);
int sc_rm_alloc_in(struct sc *sc, u32 client, u32 parent, u32 *handle, u32 class, void *params,
		   u32 size);
int sc_rm_free(struct sc *sc, u32 client, u32 handle);
int sc_rm_control(struct sc *sc, u32 object, u32 cmd, void *params, u32 size);
int sc_rm_dup(struct sc *sc, u32 client, u32 parent, u32 *handle, u32 src_client, u32 src);
int sc_rm_share(struct sc *sc, u32 handle, u32 type);
int sc_rm_alloc_memory(struct sc *sc, u32 class, u64 *limit);
int sc_vid_heap_info(struct sc *sc, u64 *total, u64 *free);
int sc_uvm(struct sc *sc, u32 cmd, void *params, u32 status_at);

int sc_mem_alloc(struct sc *sc, u64 size, struct sc_mem *mem);		/* memory alone */
int sc_mem_free(struct sc *sc, struct sc_mem *mem);
int sc_mem_map(struct sc *sc, struct sc_mem *mem);			/* UVM external map */
int sc_mem_unmap(struct sc *sc, struct sc_mem *mem);
int sc_malloc(struct sc *sc, u64 size, struct sc_mem *mem);		/* as cudaMalloc */
int sc_free(struct sc *sc, struct sc_mem *mem);
void *sc_mem_mmap(struct sc *sc, const struct sc_mem *mem);		/* CPU view */
int sc_export(struct sc *sc, const struct sc_mem *mem, int *fd);
int sc_import(struct sc *sc, int fd, struct sc_mem *mem);
/* A file with places for many, as a memory pool is shared by; handle 0 empties a place. */
int sc_carrier(struct sc *sc, unsigned int places, int *fd);
int sc_carry(struct sc *sc, int fd, unsigned int place, u32 handle);
/* All that is there, imported: `found` of the first places had something. */
int sc_carried(struct sc *sc, int fd, unsigned int places, unsigned int *found);
int sc_dmabuf(struct sc *sc, const struct sc_mem *mem, int *fd);

void *sc_managed(struct sc *sc, u64 size);				/* NULL: errno */
int sc_prefetch(struct sc *sc, void *p, u64 size, bool to_card);
int sc_managed_free(void *p, u64 size);

int sc_fb_info(struct sc *sc, const u32 *index, u32 *kib, int n);
int sc_mem_info(struct sc *sc, u64 *free, u64 *total);			/* as cuMemGetInfo */

/* Queue one kernel on a channel; false: the queue is full. It starts after sc_ring(). */
bool sc_enqueue(struct sc *sc, int channel, u64 ns);
void sc_ring(struct sc *sc, int channel);
u64 sc_completed(struct sc *sc, int channel);
u64 sc_busy_ns(struct sc *sc, int channel);
u32 sc_queued(struct sc *sc, int channel);

#endif
