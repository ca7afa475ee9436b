/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Numbers in NVIDIA's structures, read and written by byte offset: the buffer comes from a process,
 * a trace or a fuzzer and need not be aligned. x86-64 and arm64 are little-endian, as the
 * structures are.
 */
#ifndef CGPU_CORE_BYTES_H
#define CGPU_CORE_BYTES_H

#include "core/types.h"

uint16_t cgpu_get16(const void *bytes, uint32_t offset);
uint32_t cgpu_get32(const void *bytes, uint32_t offset);
uint64_t cgpu_get64(const void *bytes, uint32_t offset);
void cgpu_put32(void *bytes, uint32_t offset, uint32_t value);
void cgpu_put64(void *bytes, uint32_t offset, uint64_t value);

#endif
