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
/* The pid is still the one that waits for this answer, so what we read was its. */
bool is_valid(const struct flight *f);
/* The caller uses the driver: it stays known. Return: 0, -EINTR, -EAGAIN: too many do. */
int keep_process(struct flight *f);
/* file_of(); the file is not forgotten while the call is in hand. */
uint32_t keep_file(struct flight *f, int fd, int local, uint32_t device, uint32_t minor,
		   struct cgpu_call *exported_by);
/* Only the card's room was in the way, and the call has waited for it: it is judged again. */
bool waits_for_room(struct flight *f, const struct cgpu_shortage *shortage, struct cgpu_wait *wait);
/* What the call has is free. */
void let_go_of(struct flight *f);

/* report.c */
/* `fate`: of a call that no list names, unknown or refused. */
void tell_unlisted(struct flight *f, const struct cgpu_unlisted *unlisted, const char *fate);
/* And ends the process, where that is what it shall do. */
void tell_shortage(struct flight *f, const struct cgpu_shortage *shortage);
/* Of a call with an answer; nothing if that is NV_OK. */
void report(struct flight *f);

/* ioctl.c: what an agent that has ended had begun, from STAGE_DECIDED on. */
struct answer on_ioctl_again(struct flight *f);
/* The core is as it was before that; the call is judged anew. */
void take_back(struct flight *f);

/* ioctl.c, mmap.c: the data are the notification's. */
struct answer on_ioctl(struct flight *f, const struct seccomp_data *data);
struct answer on_mmap(struct flight *f, const struct seccomp_data *data);
/* perform.c */

bool copy_in(struct flight *f, uint64_t from, void *to, size_t size);
/* true: the agent performs it; else it goes on in the tenant, or is refused. */
bool performs(const struct flight *f);
/* true: it can neither be performed nor go on without a way around what was decided. */
bool refuses(const struct flight *f);
/*
 * Copies what the argument points to. Nothing is judged, and nothing goes on, that
 * could not be read. Return: 0, -EFAULT, -EINVAL, -ENOMEM.
 */
int perform_read(struct flight *f);
/* Asks the driver. Return: what its ioctl returned, or -EFAULT. */
int perform(struct flight *f);
/* In an agent that goes on: did the driver answer? Then *f is as after perform(). */
bool was_performed(struct flight *f);
/* A dma-buf that the driver made in our table and that the tenant may not have yet, or -1. */
int exported_here(const struct flight *f);
/* What the driver and the core left, to the tenant. Return: 0, -EFAULT. */
int deliver(struct flight *f);
void undo(struct flight *f);

/* listener.c */
/* Context: door.lock. The listener is the container's from here on. Return: -errno. */
int listener_start(struct container *c, int fd);
/* Of listeners of an agent before, and what they had in hand. */
void listeners_adopt(struct container *c);
/* Threads for those. Context: door.lock. Return: -errno. */
int listeners_resume(struct container *c);
/* For a process that has no agent's threads: EPERM to who waits, and to what was in hand. */
void listeners_each(const struct container *c, void (*tell)(int fd));
void listeners_refuse(const struct container *c);
uint64_t listeners_fold(uint64_t digest);
void listeners_each_descriptor(const struct container *c, void (*tell)(int fd));

/* refused.c */
struct state_segment refused_segment(void);
/* Of a listener's calls the first gets EPERM. Return: false: nobody is there any more. */
bool listener_refuse(int fd);
void refused_each(void (*tell)(int fd));
/* Answers those of an agent before, and those that come. */
void refused_resume(void);

#endif
