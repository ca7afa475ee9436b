/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* How what was picked is made to run: the period, its windows, slices. Keeps no books. */
#ifndef CGPU_SIMULATE_RECENT_ACTUATE_H
#define CGPU_SIMULATE_RECENT_ACTUATE_H

#include "recent/recent.h"

/* Lays out the period for r->due_ppm. */
void cgpu_actuate_period(struct cgpu_recent *r, uint64_t now_ns);
/* By the clock: the slots' windows of the time up to @now_ns are due. */
void cgpu_actuate_due(struct cgpu_recent *r, uint64_t now_ns);
/* By the clock: chooses r->next and r->next_end_ns for when the open window ends, @then_ns. */
void cgpu_actuate_window(struct cgpu_recent *r, uint64_t then_ns);
/* On demand: how long the slot's turn is. */
uint64_t cgpu_actuate_turn_ns(const struct cgpu_recent *r, uint32_t slot);
/* Sets each slot's wanted_us. */
void cgpu_actuate_slices(struct cgpu_recent *r);

#endif
