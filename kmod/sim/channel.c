// SPDX-License-Identifier: GPL-2.0-only
/*
 * Channel groups and channels: how they come and go, and what controls change in them.
 * Every change first walks the card's runlists up to now.
 */
#include <linux/math64.h>
#include <linux/slab.h>
#include "nvsim.h"
#include "runlist.h"
#include "simcuda/ring.h"

#define DEFAULT_SLICE_NS	(1024ull * NSEC_PER_USEC)
/* CUDA's own 2048 us comes from CUDA's SET_TIMESLICE. */

/* Memory of a context that no ioctl shows, as measured on an H200. */
#define HIDDEN_GROUP_BYTES	nvsim_hidden(4416ull << 10)	/* a group on the graphics engine */
#define HIDDEN_CHANNEL_BYTES	nvsim_hidden(64ull << 10)

/* ---- groups ---- */

static struct nvsim_engine *lock_advanced(struct nvsim_tsg *tsg)
	__acquires(&tsg->card->engine->lock)
{
	struct nvsim_engine *e = tsg->card->engine;

	spin_lock(&e->lock);
	nvsim_engine_advance(e);
	return e;
}

static void unlock_kick(struct nvsim_engine *e)
	__releases(&e->lock)
{
	spin_unlock(&e->lock);
	nvsim_engine_kick(e->card);
}

struct nvsim_tsg *nvsim_tsg_create(struct nvsim_card *card, u32 engine_type,
				   const struct nvsim_client *owner)
{
	struct nvsim_engine *e = card->engine;
	struct nvsim_tsg *tsg;
	u32 index = 0;

	if (engine_type >= NV2080_ENGINE_TYPE_COPY0 && engine_type <= NV2080_ENGINE_TYPE_COPY_LAST)
		index = 1 + engine_type - NV2080_ENGINE_TYPE_COPY0;
	else if (engine_type != NV2080_ENGINE_TYPE_GR0)
		return NULL;
	tsg = kzalloc(sizeof(*tsg), GFP_KERNEL);
	if (!tsg)
		return NULL;
	if (engine_type == NV2080_ENGINE_TYPE_GR0) {
		if (!nvsim_pma_take(card, HIDDEN_GROUP_BYTES)) {
			kfree(tsg);
			return NULL;
		}
		tsg->hidden_bytes = HIDDEN_GROUP_BYTES;
	}
	tsg->objects = 1;
	tsg->card = card;
	tsg->engine_type = engine_type;
	tsg->slice_ns = DEFAULT_SLICE_NS;
	INIT_LIST_HEAD(&tsg->channels);
	spin_lock(&e->lock);
	nvsim_engine_advance(e);
	tsg->id = e->next_tsg++;
	tsg->owner = (struct nvsim_ctxsw_owner){ tsg->id, owner->tgid, owner->euid,
						 owner->kernel };
	tsg->rl = &e->rl[index];
	list_add_tail(&tsg->of_runlist, &tsg->rl->tsgs);
	spin_unlock(&e->lock);
	return tsg;
}

struct nvsim_tsg *nvsim_tsg_get(struct nvsim_tsg *tsg)
{
	lockdep_assert_held(&rm_lock);
	tsg->objects++;
	return tsg;
}

void nvsim_tsg_put(struct nvsim_tsg *tsg)
{
	struct nvsim_engine *e;
	struct runlist *rl;

	lockdep_assert_held(&rm_lock);
	if (--tsg->objects)
		return;
	e = lock_advanced(tsg);
	rl = tsg->rl;

	if (rl->after == tsg) {
		/* The search begins where it would have. */
		rl->after = list_is_first(&tsg->of_runlist, &rl->tsgs) ?
			    NULL : list_prev_entry(tsg, of_runlist);
	}
	if (rl->cur == tsg) {
		rl->cur = NULL;
		rl->switch_left = 0;
	}
	if (rl->loaded == tsg)
		rl->loaded = NULL;
	if (rl->resident == tsg)
		nvsim_context_saved(rl, e->t, e->t);
	list_del(&tsg->of_runlist);
	unlock_kick(e);
	if (tsg->hidden_bytes)
		nvsim_pma_give(tsg->card, tsg->hidden_bytes);
	WARN_ON(!list_empty(&tsg->channels));
	kfree(tsg);
}

u32 nvsim_tsg_id(struct nvsim_tsg *tsg) { return tsg->id; }
u32 nvsim_tsg_engine(struct nvsim_tsg *tsg) { return tsg->engine_type; }
u32 nvsim_tsg_interleave(struct nvsim_tsg *tsg) { return tsg->interleave; }

/* Without a channel a group has no context (H100, 580.159.04). */
u32 nvsim_tsg_set_cilp(struct nvsim_tsg *tsg)
{
	if (!tsg->nchans)
		return NV_ERR_INVALID_ARGUMENT;
	tsg->cilp = true;
	return NV_OK;
}

void nvsim_tsg_set_interleave(struct nvsim_tsg *tsg, u32 level) { tsg->interleave = level; }

u64 nvsim_tsg_timeslice_us(struct nvsim_tsg *tsg)
{
	return div_u64(tsg->slice_ns, NSEC_PER_USEC);
}

u32 nvsim_tsg_set_timeslice(struct nvsim_tsg *tsg, u64 us)
{
	struct nvsim_engine *e;

	if (!us || us > 10ull * USEC_PER_SEC)
		return NV_ERR_INVALID_ARGUMENT;
	e = lock_advanced(tsg);
	tsg->slice_ns = us * NSEC_PER_USEC;
	if (tsg->rl->cur == tsg)
		tsg->rl->slice_left = min(tsg->rl->slice_left, tsg->slice_ns);
	unlock_kick(e);
	return NV_OK;
}

/* Ends the slice; the group stays in the runlist. */
void nvsim_tsg_preempt(struct nvsim_tsg *tsg)
{
	struct nvsim_engine *e = lock_advanced(tsg);

	if (tsg->rl->cur == tsg) {
		tsg->rl->switch_left = 0;
		nvsim_slice_ends(tsg->rl);
	}
	unlock_kick(e);
}

/* Expires the current slice and starts the runlist from its head. */
void nvsim_tsg_restart(struct nvsim_tsg *tsg, bool force)
{
	struct nvsim_engine *e = lock_advanced(tsg);

	if (force || tsg->rl->cur != tsg) {
		tsg->rl->cur = NULL;
		tsg->rl->after = NULL;
		tsg->rl->switch_left = 0;
	}
	unlock_kick(e);
}

/*
 * A channel does not run before it is scheduled, by itself or with its group. Its first time,
 * and its group's own, take back each disable before. Later ones leave them as they are (H200,
 * 580.159.04: disabled, then scheduled again, by its group, by itself, or unscheduled first).
 */
static void enable_channel(struct nvsim_chan *ch, bool first)
{
	if (ch->scheduled && !first)
		return;
	ch->scheduled = true;
	ch->disabled = 0;
	ch->no_new = false;
	ch->held = false;
}

void nvsim_chan_schedule(struct nvsim_chan *ch, bool enable)
{
	struct nvsim_engine *e;

	if (!enable)
		return;
	e = lock_advanced(ch->tsg);
	enable_channel(ch, false);
	unlock_kick(e);
}

void nvsim_tsg_schedule(struct nvsim_tsg *tsg, bool enable)
{
	struct nvsim_engine *e;
	struct nvsim_chan *ch;

	if (!enable)
		return;
	e = lock_advanced(tsg);
	list_for_each_entry(ch, &tsg->channels, of_tsg)
		enable_channel(ch, !tsg->scheduled);
	tsg->scheduled = true;
	unlock_kick(e);
}

/* ---- channels ---- */

struct nvsim_chan *nvsim_chan_create(struct nvsim_tsg *tsg, struct nvsim_mem *userd, u64 offset)
{
	struct nvsim_chan *ch = kzalloc(sizeof(*ch), GFP_KERNEL);
	struct nvsim_engine *e;
	struct page *page;

	if (!ch)
		return NULL;
	if (!nvsim_pma_take(tsg->card, HIDDEN_CHANNEL_BYTES)) {
		kfree(ch);
		return NULL;
	}
	ch->tsg = tsg;
	if (userd) {
		page = nvsim_mem_page(userd, offset >> PAGE_SHIFT);
		if (!page)
			goto err;
		ch->mem = nvsim_mem_pin(userd);
		ch->ring = page_address(page);
		/* A page used before by another channel starts afresh. */
		WRITE_ONCE(*(u32 *)(ch->ring + RING_GET), 0);
		WRITE_ONCE(*(u32 *)(ch->ring + RING_PUT), 0);
		WRITE_ONCE(*(u64 *)(ch->ring + RING_COMPLETED), 0);
		WRITE_ONCE(*(u64 *)(ch->ring + RING_BUSY), 0);
	}
	e = lock_advanced(tsg);
	ch->id = e->next_chan++;
	e->nchans++;
	tsg->nchans++;
	list_add_tail(&ch->of_tsg, &tsg->channels);
	spin_unlock(&e->lock);
	return ch;
err:
	nvsim_pma_give(tsg->card, HIDDEN_CHANNEL_BYTES);
	kfree(ch);
	return NULL;
}

void nvsim_chan_destroy(struct nvsim_chan *ch)
{
	struct nvsim_engine *e = lock_advanced(ch->tsg);

	if (ch->tsg->last == ch)
		ch->tsg->last = NULL;
	ch->tsg->nchans--;
	ch->tsg->cilp &= ch->tsg->nchans > 0; /* the context went with the last */
	e->nchans--;
	list_del(&ch->of_tsg);
	unlock_kick(e);
	nvsim_pma_give(ch->tsg->card, HIDDEN_CHANNEL_BYTES);
	nvsim_mem_unpin(ch->mem);
	kfree(ch);
}

u32 nvsim_chan_id(struct nvsim_chan *ch) { return ch->id; }

static bool tsg_held(const struct nvsim_tsg *tsg)
{
	const struct nvsim_chan *ch;

	list_for_each_entry(ch, &tsg->channels, of_tsg)
		if (ch->scheduled && ch->ring && !ch->dead && !ch->held)
			return false;
	return true;
}

/*
 * FIFO_DISABLE_CHANNELS. Without only_scheduling the channel leaves the engine
 * at once, in the middle of a kernel if need be, and keeps its progress; with
 * it a kernel under way runs on to its end, however long.
 */
void nvsim_chan_disable(struct nvsim_chan *ch, bool disable, bool only_scheduling, bool rewind)
{
	struct nvsim_engine *e = lock_advanced(ch->tsg);

	/* counted, as on an H200: disabled twice takes two enables */
	if (disable) {
		ch->disabled++;
		ch->no_new = true;
		if (!only_scheduling)
			ch->held = true;
		/* With its last channel a context leaves the engine, wanted or not. */
		if (ch->tsg->rl->resident == ch->tsg && tsg_held(ch->tsg))
			nvsim_context_saved(ch->tsg->rl, e->t, e->t);
	} else if (!ch->disabled || !--ch->disabled) {
		ch->no_new = false;
		ch->held = false;
	}
	if (rewind && ch->ring) {
		ch->put = READ_ONCE(*(u32 *)(ch->ring + RING_PUT));
		ch->get = ch->put;
		ch->left_ns = 0;
		WRITE_ONCE(*(u32 *)(ch->ring + RING_GET), ch->get);
	}
	unlock_kick(e);
}

void nvsim_chan_kill(struct nvsim_chan *ch)
{
	struct nvsim_engine *e = lock_advanced(ch->tsg);

	ch->dead = true;
	ch->left_ns = 0;
	unlock_kick(e);
}
