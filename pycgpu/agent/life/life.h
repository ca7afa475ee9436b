/* SPDX-License-Identifier: GPL-2.0-only */
/* The begin and the end of containers and of the agent. */
#ifndef CGPU_AGENT_LIFE_H
#define CGPU_AGENT_LIFE_H

#include "state/door.h"

/* lifecycle.c */
void lifecycle_start(void);
/* Those of an agent before: what they have, then their threads. */
void containers_adopt(void);
void containers_resume(void);

/* watchdog.c */
/*
 * Another process that has this one's descriptors: it keeps the state when this one ends, however
 * that comes. Context: no other thread of this process has begun to use the state. Return: -errno.
 */
int watchdog_start(void);
/* It has ended: another. Return: -errno. */
int watchdog_check(void);
/* That of this process; the one before has none to answer to. */
void watchdog_take_charge(void);
/* Descriptors that an agent needs to go on. */
void watchdog_each_descriptor(void (*tell)(int fd));

/* takeover.c */
/*
 * Adopts what an agent before left to its watchdog, or begins with nothing. Return: 0, -errno, and
 * @message[256] says why: nothing has changed.
 */
int takeover(char *message);
/* After watchdog_start(): the one before ends. */
void takeover_done(void);

#endif
