/* SPDX-License-Identifier: MIT */
/* Where the pretended driver's file has the USERD of a client: driver and program map it. */
#ifndef CGPU_PRETENDED_USERD_H
#define CGPU_PRETENDED_USERD_H

enum { USERD_MEMORY = 0x20, USERD_BYTES = 64 << 10 };

#define USERD_AT(hClient) ((1 << 20) + (off_t)((hClient) & 0xf) * USERD_BYTES)

#endif
