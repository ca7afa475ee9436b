/* SPDX-License-Identifier: GPL-2.0-only */
/* Channels taken off the card and put back, and what the scheduler is told of them. */
#ifndef CGPU_AGENT_GATE_H
#define CGPU_AGENT_GATE_H

#include "state/door.h"

/* gate.c */
/* Opens what an agent that is gone had shut. Context: nobody moves gates. */
void gates_open_all(void);
void gates_adopt(struct container *c);
struct state_segment gates_segment(void);
/* true for a group on the card that computes and may run */
bool is_gated_group(const struct cgpu_object *o, uint32_t minor);
/* Has windows of its own, and several groups to run in them. Context: door.lock. */
bool rotates(const struct container *c, uint32_t minor);
/* Groups that lead in one window, one after the other. Context: door.lock. */
uint32_t leads_in_window(const struct container *c, uint32_t minor);
/*
 * Shuts or opens the gates of the containers in `mask`. `partly` not NULL: of those
 * that rotate only the next lead opens, and they are added to it. Return: number of
 * channels moved.
 */
uint32_t move_gates(uint32_t minor, uint64_t mask, bool disable, uint64_t *partly);
/*
 * A container whose gate is shut has new channels: they are shut before whoever made them
 * is told of them, for a neighbour's time, or a quota's end, lasts longer than making more.
 */
void shut_new_channels(struct container *c, uint32_t minor);
/*
 * The same for channels that `ask` has the driver schedule, which opens them: no gate of the
 * card's moves from before it until they are shut.
 */
void shut_scheduled_channels(struct container *c, uint32_t minor, void (*ask)(void *data),
			     void *data);

/* feed.c: what the scheduler is told. Context: door.lock, for all of them */
void sync_card(uint32_t minor);
/* Tells the scheduler what the container has open. */
void refresh(struct container *c);
/* What all of its group have open on a card, it being the group's or alone. */
void tell_open(struct container *c, uint32_t minor);
/* New groups were scheduled, or their owner set a slice: program them again, soon. */
void resend(struct container *c);
/* Programs them again, if it is time. */
void send_again(struct container *c);

#endif
