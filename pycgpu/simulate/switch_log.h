/* SPDX-License-Identifier: MIT */
/* The driver's log of context switches, of one card of the model. */
#ifndef CGPU_SIMULATE_SWITCH_LOG_H
#define CGPU_SIMULATE_SWITCH_LOG_H

#include "core/types.h"
#include "core/sched/switch_log.h"

struct model_log {
	uint8_t *header, *ring; /* as the driver writes them; NULL: no log */
	uint32_t put, seqno;
	int32_t clock_ppm;      /* the card's clock is so much faster than the host's */
	uint32_t pid;           /* whose context is loaded; 0: nobody's */
	struct cgpu_switch_log log;
};

/* Return: 0, -ENOMEM. */
int model_log_open(struct model_log *log, int32_t clock_ppm);
void model_log_close(struct model_log *log);

/* A process's context was loaded; telling it of one that stays loaded is free. */
void model_log_load(struct model_log *log, uint32_t pid, uint64_t now_ns);
/* Whatever context was loaded is saved. */
void model_log_save(struct model_log *log, uint64_t now_ns);

/* The driver was asked for its records: what was written until now can be read. */
void model_log_flush(struct model_log *log);

#endif
