/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A container's channels, or those of all containers of a group, are taken off a card and put
 * back, and their channel groups get their timeslices. governor.c decides when.
 */
#ifndef CGPU_LINUX_GATE_H
#define CGPU_LINUX_GATE_H

#include <linux/rtmutex.h>

#include "door/bridge.h"
#include "core/memory/tenant.h"
#include "core/rm/abi.h"
#include "core/sched/sched.h"

struct cgpu_container;
struct cgpu_gpu;

enum { CGPU_GATE_HANDLES = 1024 }; /* groups of one container on one card */

/* One card's gates. */
struct cgpu_gates {
	u32 minor;
	const struct cgpu_bridge_ops *bridge;
	struct cgpu_rm_card rm;
	struct rt_mutex rm_lock; /* rm.stack has one user at a time */
	struct rt_mutex lock;    /* outside rm_lock and container->lock */
	struct cgpu_handle handles[CGPU_GATE_HANDLES]; /* of the card's thread */
	struct nv_fifo_disable_channels params;        /* of the card's thread */
};

/**
 * cgpu_gates_open() - open a card through the bridge
 * @gates: zeroed
 * @bridge: stays until cgpu_gates_close()
 * @minor: the card's
 * @gpu: what cgpu_discover() learned of it
 *
 * Context: sleeps, maybe for seconds.
 * Return: 0, -EIO, -ENOMEM.
 */
int cgpu_gates_open(struct cgpu_gates *gates, const struct cgpu_bridge_ops *bridge, u32 minor,
		    const struct cgpu_gpu *gpu);

/** cgpu_gates_close() - end what cgpu_gates_open() began; gates stay as they are */
void cgpu_gates_close(struct cgpu_gates *gates);

/** cgpu_gates_adopt() - take over from another core what cgpu_gates_open() made */
void cgpu_gates_adopt(struct cgpu_gates *gates, const struct cgpu_bridge_ops *bridge);

/**
 * cgpu_gates_control() - an RM control with kernel privilege
 * @gates: the card
 * @hClient: any client
 * @hObject: an object of it
 * @cmd: the control
 * @params: kernel memory, or NULL
 * @size: of @params, bytes
 *
 * Context: sleeps.
 * Return: NVIDIA's status.
 */
u32 cgpu_gates_control(struct cgpu_gates *gates, u32 hClient, u32 hObject, u32 cmd,
		       void *params, u32 size);

/**
 * cgpu_gate_slot() - shut or open the gate of a container, or of all of a group
 * @gates: the card
 * @slot: the scheduler's number; nothing happens if there is none
 * @shut: false: open
 *
 * Context: the card's thread; sleeps.
 * Return: 0, -EIO: the driver refused.
 */
int cgpu_gate_slot(struct cgpu_gates *gates, u32 slot, bool shut);

/**
 * cgpu_gate_slices() - set the timeslice of a container's channel groups
 * @gates: the card
 * @slot: as in cgpu_gate_slot()
 * @slice_us: microseconds
 *
 * Context: the card's thread; sleeps.
 * Return: 0, -EIO: the driver refused.
 */
int cgpu_gate_slices(struct cgpu_gates *gates, u32 slot, u32 slice_us);

/**
 * cgpu_gate_assert() - put every channel of the card into the state it is marked with
 * @gates: the card
 *
 * Needed if something else may have moved gates.
 *
 * Context: the card's thread; sleeps.
 */
void cgpu_gate_assert(struct cgpu_gates *gates);

/**
 * cgpu_gates_hold() - no gate of the card moves until cgpu_gates_release()
 * @gates: the card
 *
 * A waiter lends its priority to the holder.
 *
 * Context: sleeps; the lock of a container may be taken after it, not before.
 */
void cgpu_gates_hold(struct cgpu_gates *gates);
void cgpu_gates_release(struct cgpu_gates *gates);

/**
 * cgpu_gate_new() - shut the gate of a container's new channels
 * @gates: the card
 * @container: whose gate is shut already
 *
 * Context: sleeps; between cgpu_gates_hold() and cgpu_gates_release().
 * Return: 0, -ENOMEM, -EIO: the driver refused.
 */
int cgpu_gate_new(struct cgpu_gates *gates, struct cgpu_container *container);

#endif
