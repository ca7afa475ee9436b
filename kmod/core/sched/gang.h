/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A gang is a container that computes on several cards. An all-reduce may end a step of its work on
 * all of them together. Time that it has on one card alone is then lost.
 */
#ifndef CGPU_CORE_SCHED_GANG_H
#define CGPU_CORE_SCHED_GANG_H

#include "core/types.h"
#include "core/sched/sched.h"

/*
 * The number of a container named @id, which computes on @cards cards. Return: the same on each
 * of them; 0: no gang.
 */
uint32_t cgpu_gang_number(const char *id, uint32_t cards);

/* Several gangs compete on this card, so their windows must be in step on all cards. */
bool cgpu_gangs_compete(const struct cgpu_sched *s);

/*
 * Whether @entity goes before @other in a period: gangs first, by a number that is the same on all
 * cards.
 */
bool cgpu_gang_precedes(const struct cgpu_sched *s, uint32_t entity, uint32_t other);

#endif
