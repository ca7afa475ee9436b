/* SPDX-License-Identifier: GPL-2.0-only */
/* Takes channels off the card and puts them back, and informs the scheduler of them. */
#ifndef CGPU_AGENT_GATE_H
#define CGPU_AGENT_GATE_H

#include "state/door.h"

/* gate.c */
/* Opens the channels that an agent that is gone had shut. Context: no thread moves gates. */
void gates_open_all(void);
void gates_adopt(struct container *c);
struct state_segment gates_segment(void);
/* true for a group on the card that computes and may run */
bool is_gated_group(const struct cgpu_object *o, uint32_t minor);
/* The container has windows of its own, and several groups to run in them. Context: door.lock. */
bool rotates(const struct container *c, uint32_t minor);
/* Groups that lead in one window, one after the other. Context: door.lock. */
uint32_t leads_in_window(const struct container *c, uint32_t minor);
/*
 * Shuts or opens the gates of the containers in `mask`. With `partly`, containers that rotate open
 * only the next lead, and are added to it. Return: number of channels moved.
 */
uint32_t move_gates(uint32_t minor, uint64_t mask, bool disable, uint64_t *partly);
/*
 * Shuts the new channels of a container whose gate is shut, before their maker is told of them.
 * Otherwise making more channels would use up a neighbour's time, or outlast a spent quota.
 */
void shut_new_channels(struct container *c, uint32_t minor);
/*
 * The same for channels that `ask` has the driver schedule, which opens them. From before `ask`
 * until they are shut, no gate of the card's moves.
 */
void shut_scheduled_channels(struct container *c, uint32_t minor, void (*ask)(void *data),
			     void *data);

/* feed.c: informs the scheduler. Context: door.lock, for all of them */
void sync_card(uint32_t minor);
/* Tells the scheduler which channels the container has open. */
void refresh(struct container *c);
/* Tells the scheduler what a whole group has open; the container leads it, or is alone. */
void tell_open(struct container *c, uint32_t minor);
/* Groups are new, or their owner set a slice: the agent programs their slices again soon. */
void resend(struct container *c);
/* Programs the slices again, if it is time. */
void send_again(struct container *c);

#endif
