/* SPDX-License-Identifier: GPL-2.0-only */
/* A card's runlists (runlist.c) and the groups and channels that stand in them (channel.c). */
#ifndef NVSIM_RUNLIST_H
#define NVSIM_RUNLIST_H

#include "nvsim.h"

struct nvsim_chan {
	struct list_head of_tsg;
	struct nvsim_tsg *tsg;
	struct nvsim_mem *mem;		/* pinned; NULL: takes no work */
	u8 *ring;
	u32 get, put;			/* put as of the last scan */
	u64 left_ns;			/* of the kernel under way; 0: none */
	u64 kernel_ns;
	u64 completed, busy_ns;
	bool scheduled;
	bool held;			/* off the hardware */
	u32 disabled;			/* so many disables without their enable */
	bool no_new;			/* finishes the kernel under way only */
	bool dead;
	u32 id;
};

struct runlist;

struct nvsim_tsg {
	unsigned int objects;		/* that stand for it; rm_lock */
	struct list_head of_runlist;
	struct nvsim_card *card;
	struct runlist *rl;
	struct list_head channels;
	struct nvsim_chan *last;	/* channel whose kernel ran last; the next one follows */
	struct nvsim_ctxsw_owner owner;
	u64 slice_ns;
	u64 busy_ns;
	u32 engine_type, id, interleave, nchans;
	bool scheduled;			/* as a whole */
	bool cilp;			/* interrupted in the middle of a block */
	u64 hidden_bytes;
};

struct runlist {
	struct list_head tsgs;
	struct nvsim_tsg *cur;		/* has the engine */
	struct nvsim_tsg *after;	/* the search for the next begins behind it */
	struct nvsim_tsg *loaded;	/* whose context is on the engine */
	struct nvsim_tsg *resident;	/* the log has its start and not its end */
	u64 asked_t, saved_t;		/* of the switch under way, for the log */
	u64 slice_left, switch_left;
	u64 busy_ns, switch_ns, switches;
};

struct nvsim_engine {
	struct nvsim_card *card;
	spinlock_t lock;		/* all of the below and every tsg and chan of the card */
	u64 t;				/* virtual time reached, ns of ktime */
	struct runlist rl[NVSIM_MAX_RUNLISTS];
	u32 next_tsg, next_chan;
	unsigned int nchans;
	struct task_struct *thread;
	wait_queue_head_t wait;
	bool kicked;
};

/* Walks the runlists up to now. Context: e->lock, for all of these */
void nvsim_engine_advance(struct nvsim_engine *e);
void nvsim_slice_ends(struct runlist *rl);
/* The context on the engine was saved at @t, as was asked at @begun: told to the log. */
void nvsim_context_saved(struct runlist *rl, u64 begun, u64 t);

#endif
