// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compute: a runlist per engine of a card, walked in virtual time.
 *
 * Every change of state first advances the walk to now, event by event and at the exact nanosecond
 * of each. So shares do not depend on how late the thread wakes up. Work is seen at the next scan
 * of the rings, never earlier than it was written.
 */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/moduleparam.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include "nvsim.h"
#include "runlist.h"
#include "simcuda/ring.h"

#define KERNEL_MIN_NS	1000ull
#define KERNEL_MAX_NS	(3600ull * NSEC_PER_SEC)

static uint tick_us = 500;
module_param(tick_us, uint, 0644);
MODULE_PARM_DESC(tick_us, "completions are published at most this often, microseconds");

/* Of a switch, the part between the one's end and the other's start, seen on an H200. */
#define RESTORE_NS	(80ull * NSEC_PER_USEC)

/* Beyond this the doorbell is watched instead of the clock. */
#define ARM_NS		(1000ull * NSEC_PER_USEC)

/* ---- the walk ---- */

static bool chan_runnable(const struct nvsim_chan *ch)
{
	if (!ch->scheduled || ch->dead || ch->held || !ch->ring)
		return false;
	return ch->left_ns || (ch->get != ch->put && !ch->no_new);
}

static struct nvsim_chan *tsg_next_chan(struct nvsim_tsg *tsg)
{
	struct nvsim_chan *ch, *first = NULL;
	bool past = !tsg->last;

	/* A kernel under way goes on before its group starts another. */
	list_for_each_entry(ch, &tsg->channels, of_tsg)
		if (ch->left_ns && chan_runnable(ch))
			return ch;
	list_for_each_entry(ch, &tsg->channels, of_tsg) {
		if (chan_runnable(ch)) {
			if (past)
				return ch;
			if (!first)
				first = ch;
		}
		if (ch == tsg->last)
			past = true;
	}
	return first;
}

static bool tsg_runnable(struct nvsim_tsg *tsg)
{
	return tsg_next_chan(tsg);
}

static bool others_wait(struct runlist *rl)
{
	struct nvsim_tsg *tsg;

	list_for_each_entry(tsg, &rl->tsgs, of_runlist)
		if (tsg != rl->cur && tsg_runnable(tsg))
			return true;
	return false;
}

static struct nvsim_tsg *pick(struct runlist *rl)
{
	struct nvsim_tsg *tsg, *first = NULL;
	bool past = !rl->after;

	list_for_each_entry(tsg, &rl->tsgs, of_runlist) {
		if (tsg_runnable(tsg)) {
			if (past)
				return tsg;
			if (!first)
				first = tsg;
		}
		if (tsg == rl->after)
			past = true;
	}
	return first;
}

static void chan_start(struct nvsim_chan *ch)
{
	u64 ns = READ_ONCE(*(u64 *)(ch->ring + RING_ENTRIES + 8 * (ch->get % RING_SIZE)));

	ch->kernel_ns = clamp(ns, KERNEL_MIN_NS, KERNEL_MAX_NS);
	ch->left_ns = ch->kernel_ns;
	/* As the card does: GP_GET says what was fetched, not what is done. */
	ch->get++;
	WRITE_ONCE(*(u32 *)(ch->ring + RING_GET), ch->get);
}

static void chan_finish(struct nvsim_chan *ch)
{
	ch->completed++;
	ch->busy_ns += ch->kernel_ns;
	ch->tsg->last = ch;
	WRITE_ONCE(*(u64 *)(ch->ring + RING_BUSY), ch->busy_ns);
	/* a reader that sees the completion also sees the time that it took */
	smp_wmb();
	WRITE_ONCE(*(u64 *)(ch->ring + RING_COMPLETED), ch->completed);
}

void nvsim_slice_ends(struct runlist *rl)
{
	rl->after = rl->cur;
	rl->cur = NULL;
}

/* ---- what the log of context switches is told ---- */

static void context_note(const struct nvsim_tsg *tsg, bool end, u64 begun, u64 t)
{
	if (tsg->engine_type == NV2080_ENGINE_TYPE_GR0)
		nvsim_ctxsw_note(tsg->card->ctxsw, &tsg->owner, end, begun, t);
}

void nvsim_context_saved(struct runlist *rl, u64 begun, u64 t)
{
	if (!rl->resident)
		return;
	context_note(rl->resident, true, begun, t);
	rl->resident = NULL;
}

static void context_runs(struct runlist *rl, u64 t)
{
	if (rl->resident == rl->cur)
		return;
	nvsim_context_saved(rl, rl->asked_t, t);	/* a switch that was cut short */
	context_note(rl->cur, false, min(rl->saved_t, t), t);
	rl->saved_t = U64_MAX;
	rl->resident = rl->cur;
}

static void runlist_advance(struct runlist *rl, u64 t, u64 now)
{
	struct nvsim_chan *ch;
	u64 d;

	while (t < now) {
		if (!rl->cur) {
			rl->cur = pick(rl);
			if (!rl->cur)
				return;
			rl->slice_left = rl->cur->slice_ns;
			rl->asked_t = t;
			rl->saved_t = U64_MAX;
			if (rl->loaded && rl->loaded != rl->cur) {
				rl->switch_left = (u64)nvsim_ctxsw_us * NSEC_PER_USEC;
				rl->switches++;
			}
			rl->loaded = rl->cur;
		}
		if (rl->switch_left) {
			d = min(rl->switch_left, now - t);
			if (rl->saved_t == U64_MAX && rl->switch_left - d <= RESTORE_NS) {
				rl->saved_t = t + rl->switch_left -
					      min(rl->switch_left, RESTORE_NS);
				nvsim_context_saved(rl, rl->asked_t, rl->saved_t);
			}
			rl->switch_left -= d;
			rl->switch_ns += d;
			t += d;
			continue;
		}
		ch = tsg_runnable(rl->cur) ? tsg_next_chan(rl->cur) : NULL;
		if (!ch) {
			nvsim_slice_ends(rl);	/* what is left of the slice is lost */
			continue;
		}
		context_runs(rl, t);
		if (!ch->left_ns)
			chan_start(ch);
		d = min(ch->left_ns, now - t);
		if (rl->slice_left <= d) {
			if (others_wait(rl))
				d = rl->slice_left;
			else
				rl->slice_left = d + rl->cur->slice_ns;
		}
		t += d;
		ch->left_ns -= d;
		rl->slice_left -= d;
		rl->busy_ns += d;
		rl->cur->busy_ns += d;
		if (!ch->left_ns)
			chan_finish(ch);
		if (!rl->slice_left)
			nvsim_slice_ends(rl);
	}
}

void nvsim_engine_advance(struct nvsim_engine *e)
{
	u64 now = ktime_get_ns();
	int i;

	if (now <= e->t)
		return;
	for (i = 0; i < NVSIM_MAX_RUNLISTS; i++)
		runlist_advance(&e->rl[i], e->t, now);
	e->t = now;
}

/* Take note of what clients have submitted since. */
static void engine_scan(struct nvsim_engine *e)
{
	struct nvsim_tsg *tsg;
	struct nvsim_chan *ch;
	u32 put;
	int i;

	for (i = 0; i < NVSIM_MAX_RUNLISTS; i++)
		list_for_each_entry(tsg, &e->rl[i].tsgs, of_runlist)
			list_for_each_entry(ch, &tsg->channels, of_tsg) {
				if (!ch->ring)
					continue;
				put = READ_ONCE(*(u32 *)(ch->ring + RING_PUT));
				if (put - ch->get <= RING_SIZE)
					ch->put = put;
			}
	smp_rmb();	/* the entries were written before the put pointer */
}

/* Nanoseconds until something is to be done; U64_MAX: nothing to run. */
static u64 engine_next_event(struct nvsim_engine *e)
{
	u64 next = U64_MAX;
	int i;

	for (i = 0; i < NVSIM_MAX_RUNLISTS; i++) {
		struct runlist *rl = &e->rl[i];
		struct nvsim_chan *ch;

		if (!rl->cur) {
			if (pick(rl))
				return 0;
			continue;
		}
		ch = tsg_runnable(rl->cur) ? tsg_next_chan(rl->cur) : NULL;
		if (!ch) {
			if (pick(rl))
				return 0;
			continue;
		}
		next = min(next, rl->switch_left + (ch->left_ns ?: KERNEL_MIN_NS));
		if (others_wait(rl))
			next = min(next, rl->switch_left + rl->slice_left);
	}
	return next;
}

static u64 engine_step(struct nvsim_engine *e)
{
	u64 next;

	spin_lock(&e->lock);
	nvsim_engine_advance(e);
	engine_scan(e);
	next = engine_next_event(e);
	spin_unlock(&e->lock);
	return next;
}

static int engine_thread(void *arg)
{
	struct nvsim_engine *e = arg;
	u64 next;

	while (!kthread_should_stop()) {
		WRITE_ONCE(e->kicked, false);
		smp_mb();	/* a ring after this scan sets kicked again */
		next = engine_step(e);
		if (next > ARM_NS) {
			/*
			 * Long or no work: let the doorbell wake us. A ring between the
			 * scan and the unmapping leaves its work for the second scan; a
			 * later one faults.
			 */
			nvsim_doorbell_arm(e->card);
			next = engine_step(e);
		}
		if (next == U64_MAX)
			wait_event_interruptible(e->wait, READ_ONCE(e->kicked) ||
						 kthread_should_stop());
		else
			wait_event_interruptible_hrtimeout(
				e->wait,
				(next > ARM_NS && READ_ONCE(e->kicked)) || kthread_should_stop(),
				ns_to_ktime(max(next, (u64)tick_us * NSEC_PER_USEC)));
	}
	return 0;
}

void nvsim_engine_kick(struct nvsim_card *card)
{
	WRITE_ONCE(card->engine->kicked, true);
	wake_up(&card->engine->wait);
}

int nvsim_engine_init(struct nvsim_card *card)
{
	struct nvsim_engine *e = kzalloc(sizeof(*e), GFP_KERNEL);
	int i;

	if (!e)
		return -ENOMEM;
	e->card = card;
	spin_lock_init(&e->lock);
	init_waitqueue_head(&e->wait);
	for (i = 0; i < NVSIM_MAX_RUNLISTS; i++)
		INIT_LIST_HEAD(&e->rl[i].tsgs);
	e->t = ktime_get_ns();
	if (nvsim_ctxsw_init(card)) {
		kfree(e);
		return -ENOMEM;
	}
	card->engine = e;
	e->thread = kthread_run(engine_thread, e, "nvsim/%u", card->index);
	if (IS_ERR(e->thread)) {
		nvsim_ctxsw_exit(card);
		kfree(e);
		card->engine = NULL;
		return -ENOMEM;
	}
	return 0;
}

void nvsim_engine_exit(struct nvsim_card *card)
{
	if (!card->engine)
		return;
	kthread_stop(card->engine->thread);
	nvsim_ctxsw_exit(card);
	WARN_ON(card->engine->nchans);
	kfree(card->engine);
	card->engine = NULL;
}

/* ---- figures ---- */

void nvsim_engine_settle(struct nvsim_card *card, void (*fn)(struct nvsim_ctxsw *log))
{
	struct nvsim_engine *e = card->engine;

	spin_lock(&e->lock);
	nvsim_engine_advance(e);
	fn(card->ctxsw);
	spin_unlock(&e->lock);
}

static u32 scheduled_channels(const struct nvsim_tsg *tsg)
{
	const struct nvsim_chan *ch;
	u32 count = 0;

	list_for_each_entry(ch, &tsg->channels, of_tsg)
		count += ch->scheduled;
	return count;
}

/* Of these, those that FIFO_DISABLE_CHANNELS keeps from running. Context: e->lock */
static u32 shut_channels(const struct nvsim_tsg *tsg)
{
	const struct nvsim_chan *ch;
	u32 count = 0;

	list_for_each_entry(ch, &tsg->channels, of_tsg)
		count += ch->scheduled && ch->disabled;
	return count;
}

void nvsim_engine_show(struct nvsim_card *card, struct seq_file *m)
{
	struct nvsim_engine *e = card->engine;
	struct nvsim_tsg *tsg;
	int i;

	spin_lock(&e->lock);
	nvsim_engine_advance(e);
	for (i = 0; i < NVSIM_MAX_RUNLISTS; i++) {
		struct runlist *rl = &e->rl[i];

		if (list_empty(&rl->tsgs) && !rl->busy_ns)
			continue;
		seq_printf(m, "runlist %d busy_ns %llu switch_ns %llu switches %llu\n", i,
			   rl->busy_ns, rl->switch_ns, rl->switches);
		list_for_each_entry(tsg, &rl->tsgs, of_runlist)
			seq_printf(m, " group %u slice_us %llu busy_ns %llu channels %u interleave %u engine %u scheduled %u shut %u pid %u cilp %u\n",
				   tsg->id, div_u64(tsg->slice_ns, NSEC_PER_USEC), tsg->busy_ns,
				   tsg->nchans, tsg->interleave, tsg->engine_type,
				   scheduled_channels(tsg), shut_channels(tsg), tsg->owner.pid,
				   tsg->cilp);
	}
	spin_unlock(&e->lock);
}
