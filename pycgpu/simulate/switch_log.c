// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "switch_log.h"
#include "core/rm/abi.h"

/* the card's clock is not the host's */
#define EPOCH_NS 1795265305000000000ULL

int model_log_open(struct model_log *log, int32_t clock_ppm)
{
	log->clock_ppm = clock_ppm;
	log->header = calloc(1, CGPU_SWITCH_LOG_HEADER_BYTES);
	log->ring = calloc(1, CGPU_SWITCH_LOG_RING_BYTES);
	cgpu_switch_log_init(&log->log);
	return log->header && log->ring ? 0 : -ENOMEM;
}

void model_log_close(struct model_log *log)
{
	free(log->header);
	free(log->ring);
}

static void put_number(uint8_t *at, uint64_t number, uint32_t bytes)
{
	for (; bytes; bytes--, number >>= 8)
		*at++ = (uint8_t)number;
}

static void write_record(struct model_log *log, uint8_t tag, uint64_t now_ns)
{
	uint8_t *record = log->ring + log->put * CGPU_SWITCH_LOG_RECORD_BYTES;

	record[NV_EVENT_BUFFER_FECS_TAG] = tag;
	put_number(record + NV_EVENT_BUFFER_FECS_SEQNO, log->seqno, 2);
	put_number(record + NV_EVENT_BUFFER_FECS_PID, log->pid, 4);
	put_number(record + NV_EVENT_BUFFER_FECS_TIMESTAMP,
		   EPOCH_NS + now_ns + (uint64_t)((int64_t)now_ns / 1000000 * log->clock_ppm), 8);
	log->put = (log->put + 1) % CGPU_SWITCH_LOG_RECORDS;
	log->seqno++;
}

void model_log_load(struct model_log *log, uint32_t pid, uint64_t now_ns)
{
	if (!log->ring || log->pid == pid)
		return;
	log->pid = pid;
	write_record(log, NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START, now_ns);
}

void model_log_save(struct model_log *log, uint64_t now_ns)
{
	if (!log->ring || !log->pid)
		return;
	write_record(log, NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END, now_ns);
	log->pid = 0;
}

void model_log_flush(struct model_log *log)
{
	put_number(log->header + NV_EVENT_BUFFER_HEADER_RECORD_PUT, log->put, 4);
}
