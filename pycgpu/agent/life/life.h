/* SPDX-License-Identifier: GPL-2.0-only */
/* The begin and the end of containers and of the agent. */
#ifndef CGPU_AGENT_LIFE_H
#define CGPU_AGENT_LIFE_H

#include "state/door.h"

/* lifecycle.c */
void lifecycle_start(void);
/* Adopts what containers of an agent before have, then starts their threads. */
void containers_adopt(void);
void containers_resume(void);

/* watchdog.c */
/*
 * Starts another process that has this one's descriptors: it keeps the state when this one ends,
 * however that comes. Context: no other thread of this process has begun to use the state. Return:
 * -errno.
 */
int watchdog_start(void);
/* Starts another watchdog if it has ended. Return: -errno. */
int watchdog_check(void);
/* Puts this process's watchdog in charge; the one before no longer counts. */
void watchdog_take_charge(void);
/* The descriptors that an agent needs to resume. */
void watchdog_each_descriptor(void (*tell)(int fd));

/* takeover.c */
/*
 * Adopts what an agent before left to its watchdog, or begins with nothing. Return: 0, -errno, and
 * @message[256] says why: nothing has changed.
 */
int takeover(char *message);
/* After watchdog_start(): ends the watchdog of the agent before. */
void takeover_done(void);

#endif
