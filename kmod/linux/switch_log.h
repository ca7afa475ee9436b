/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The driver's log of one card's context switches, bound to the client that the
 * bridge holds there. The driver writes its memory; it goes with the client.
 */
#ifndef CGPU_LINUX_SWITCH_LOG_H
#define CGPU_LINUX_SWITCH_LOG_H

#include "door/bridge.h"
#include "core/sched/switch_log.h"

struct cgpu_card_log {
	u32 buffer;         /* handle; 0: the driver keeps no log */
	const void *header;
	const void *ring;
	struct cgpu_switch_log log;
	struct cgpu_switch_log_use use[CGPU_SWITCH_LOG_USES];
};

/**
 * cgpu_card_log_open() - let the driver write its log for us
 * @log: zeroed
 * @bridge: has opened @card
 * @card: our client there
 * @minor: the card
 *
 * Without a log `used_ns` stays 0 and windows of idle containers are lost; a line in
 * the kernel's log says so.
 *
 * Context: sleeps; @card's lock held. The driver hides other users' processes from all
 * but administrators, so the caller is a thread of the kernel.
 */
void cgpu_card_log_open(struct cgpu_card_log *log, const struct cgpu_bridge_ops *bridge,
			struct cgpu_rm_card *card, u32 minor);

/**
 * cgpu_card_log_read() - tell the scheduler what was used
 * @log: open
 * @sched: of the card
 * @minor: the card
 * @asked_ns: when the driver was asked for its records
 *
 * Context: registry.lock, and the scheduler's lock.
 */
void cgpu_card_log_read(struct cgpu_card_log *log, struct cgpu_sched *sched, u32 minor,
			u64 asked_ns);

#endif
