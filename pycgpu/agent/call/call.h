/* SPDX-License-Identifier: GPL-2.0-only */
/* One notified call: received, decided, performed and answered. */
#ifndef CGPU_AGENT_CALL_H
#define CGPU_AGENT_CALL_H

#include "state/flight.h"

static const struct answer CONTINUE = { true, 0 };

static inline struct answer fail(int error)
{
	return (struct answer){ false, error };
}

/* kept.c */
/* The pid still names the process that waits for this answer, so what we read was its own. */
bool is_valid(const struct flight *f);
/* Keeps the caller known, because it uses the driver. Return: 0, -EINTR, -EAGAIN: too many do. */
int keep_process(struct flight *f);
/* As file_of(); the file is not forgotten while the call is in hand. */
uint32_t keep_file(struct flight *f, int fd, int local, uint32_t device, uint32_t minor,
		   struct cgpu_call *exported_by);
/* True if only the card's room was in the way and the call has waited for it: judge it again. */
bool waits_for_room(struct flight *f, const struct cgpu_shortage *shortage, struct cgpu_wait *wait);
/* Frees what the call holds. */
void let_go_of(struct flight *f);

/* report.c */
/* `fate` of a call that no list names: unknown or refused. */
void tell_unlisted(struct flight *f, const struct cgpu_unlisted *unlisted, const char *fate);
/* Also ends the process, if the shortage demands it. */
void tell_shortage(struct flight *f, const struct cgpu_shortage *shortage);
/* Reports a call with an answer, unless that is NV_OK. */
void report(struct flight *f);

/* ioctl.c: resumes a call that an agent before had begun, from STAGE_DECIDED on. */
struct answer on_ioctl_again(struct flight *f);
/* Restores the core to before the decision; the call is judged anew. */
void take_back(struct flight *f);

/* ioctl.c, mmap.c: the data are the notification's. */
struct answer on_ioctl(struct flight *f, const struct seccomp_data *data);
struct answer on_mmap(struct flight *f, const struct seccomp_data *data);
/* perform.c */

bool copy_in(struct flight *f, uint64_t from, void *to, size_t size);
/* true: the agent performs the call; otherwise the tenant does, or it is refused. */
bool performs(const struct flight *f);
/*
 * true: the call can neither be performed nor go on, because the tenant could get around a
 * decision.
 */
bool refuses(const struct flight *f);
/*
 * Copies what the argument points to. A call that cannot be read is not judged, and does not go on.
 * Return: 0, -EFAULT, -EINVAL, -ENOMEM.
 */
int perform_read(struct flight *f);
/* Asks the driver. Return: what its ioctl returned, or -EFAULT. */
int perform(struct flight *f);
/* In an agent that resumes: did the driver answer? Then *f is as after perform(). */
bool was_performed(struct flight *f);
/* A dma-buf made in our table that the tenant may not have yet, or -1. */
int exported_here(const struct flight *f);
/* Copies to the tenant what the driver and the core left. Return: 0, -EFAULT. */
int deliver(struct flight *f);
void undo(struct flight *f);

/* listener.c */
/* Context: door.lock. The listener is the container's from here on. Return: -errno. */
int listener_start(struct container *c, int fd);
/* Adopts the listeners of an agent before, and their calls in hand. */
void listeners_adopt(struct container *c);
/* Starts threads for the adopted listeners. Context: door.lock. Return: -errno. */
int listeners_resume(struct container *c);
/* For a process without an agent's threads: EPERM to waiting calls and to those in hand. */
void listeners_each(const struct container *c, void (*tell)(int fd));
void listeners_refuse(const struct container *c);
uint64_t listeners_fold(uint64_t digest);
void listeners_each_descriptor(const struct container *c, void (*tell)(int fd));

/* refused.c */
struct state_segment refused_segment(void);
/* Answers the listener's first call with EPERM. Return: false: no process is left. */
bool listener_refuse(int fd);
void refused_each(void (*tell)(int fd));
/* Answers calls of the listeners of an agent before, and of those that come. */
void refused_resume(void);

#endif
