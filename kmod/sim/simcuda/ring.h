/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a channel's work is given to the simulated card, read by ../runlist.c.
 *
 * The ring stands in for GPFIFO and pushbuffers, for there is no hardware to
 * read them: one page at userdOffset of the memory given as hUserdMemory.
 * GP_GET and GP_PUT are where Volta's USERD has them, the rest is ours.
 */
#ifndef NVSIM_RING_H
#define NVSIM_RING_H

#define RING_GET	0x088	/* u32 GP_GET: kernels fetched so far, by the card */
#define RING_PUT	0x08c	/* u32 GP_PUT: kernels submitted so far, by the client */
#define RING_COMPLETED	0x100	/* u64: kernels completed */
#define RING_BUSY	0x108	/* u64: engine time they took, ns */
#define RING_ENTRIES	0x400	/* u64 each: length of kernel number n at n % RING_SIZE, ns */
#define RING_SIZE	256
#define RING_BYTES	4096

#endif
