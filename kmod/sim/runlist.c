// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compute: a runlist per engine of a card, walked in virtual time.
 *
 * Every change of state first advances the walk to now, event by event and at
 * the exact nanosecond of each event, so shares do not depend on how late the
 * thread wakes up. Work is seen at the next scan of the rings, never earlier
 * than it was written.
 */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/moduleparam.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include "nvsim.h"
#include "simcuda/ring.h"

#define KERNEL_MIN_NS	1000ull
#define KERNEL_MAX_NS	(3600ull * NSEC_PER_SEC)
#define DEFAULT_SLICE_NS	(1024ull * NSEC_PER_USEC)
/* CUDA's own 2048 us comes from CUDA's SET_TIMESLICE. */

/* What no ioctl shows of a context, as measured on an H200. */
#define HIDDEN_GROUP_BYTES	(4416ull << 10)	/* a group on the graphics engine */
#define HIDDEN_CHANNEL_BYTES	(64ull << 10)

static uint tick_us = 500;
module_param(tick_us, uint, 0644);
MODULE_PARM_DESC(tick_us, "completions are published at most this often, microseconds");

/* Of a switch, the part between the one's end and the other's start, seen on an H200. */
#define RESTORE_NS	(80ull * NSEC_PER_USEC)

/* Beyond this the doorbell is watched instead of the clock. */
#define ARM_NS		(1000ull * NSEC_PER_USEC)

struct nvsim_chan {
	struct list_head of_tsg;
	struct nvsim_tsg *tsg;
	struct nvsim_mem *mem;		/* pinned; NULL: takes no work */
	u8 *ring;
	u32 get, put;			/* put as of the last scan */
	u64 left_ns;			/* of the kernel under way; 0: none */
	u64 kernel_ns;
	u64 completed, busy_ns;
	bool held;			/* off the hardware */
	u32 disabled;			/* so many disables without their enable */
	bool no_new;			/* finishes the kernel under way only */
	bool dead;
	u32 id;
};

struct runlist;

struct nvsim_tsg {
	struct list_head of_runlist;
	struct nvsim_card *card;
	struct runlist *rl;
	struct list_head channels;
	struct nvsim_chan *last;	/* whose kernel ran last; the next one's is next */
	struct nvsim_ctxsw_owner owner;
	u64 slice_ns;
	u64 busy_ns;
	u32 engine_type, id, interleave, nchans;
	bool scheduled;
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

/* ---- the walk ---- */

static bool chan_runnable(const struct nvsim_chan *ch)
{
	if (ch->dead || ch->held || !ch->ring)
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
	return tsg->scheduled && tsg_next_chan(tsg);
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
	/* who sees the completion sees the time that it took */
	smp_wmb();
	WRITE_ONCE(*(u64 *)(ch->ring + RING_COMPLETED), ch->completed);
}

static void slice_ends(struct runlist *rl)
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

static void context_saved(struct runlist *rl, u64 begun, u64 t)
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
	context_saved(rl, rl->asked_t, t);	/* a switch that was cut short */
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
				context_saved(rl, rl->asked_t, rl->saved_t);
			}
			rl->switch_left -= d;
			rl->switch_ns += d;
			t += d;
			continue;
		}
		ch = tsg_runnable(rl->cur) ? tsg_next_chan(rl->cur) : NULL;
		if (!ch) {
			slice_ends(rl);	/* what is left of the slice is lost */
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
			slice_ends(rl);
	}
}

static void engine_advance(struct nvsim_engine *e)
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
	engine_advance(e);
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

/* ---- groups ---- */

static struct nvsim_engine *lock_advanced(struct nvsim_tsg *tsg)
	__acquires(&tsg->card->engine->lock)
{
	struct nvsim_engine *e = tsg->card->engine;

	spin_lock(&e->lock);
	engine_advance(e);
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
	tsg->card = card;
	tsg->engine_type = engine_type;
	tsg->slice_ns = DEFAULT_SLICE_NS;
	INIT_LIST_HEAD(&tsg->channels);
	spin_lock(&e->lock);
	engine_advance(e);
	tsg->id = e->next_tsg++;
	tsg->owner = (struct nvsim_ctxsw_owner){ tsg->id, owner->tgid, owner->euid,
						 owner->kernel };
	tsg->rl = &e->rl[index];
	list_add_tail(&tsg->of_runlist, &tsg->rl->tsgs);
	spin_unlock(&e->lock);
	return tsg;
}

void nvsim_tsg_destroy(struct nvsim_tsg *tsg)
{
	struct nvsim_engine *e = lock_advanced(tsg);
	struct runlist *rl = tsg->rl;

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
		context_saved(rl, e->t, e->t);
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
		slice_ends(tsg->rl);
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
 * Nothing runs before the first enable. A later disable returned success on an
 * H200 and stopped nothing, so it stops nothing here.
 */
void nvsim_tsg_schedule(struct nvsim_tsg *tsg, bool enable)
{
	struct nvsim_engine *e;

	if (!enable)
		return;
	e = lock_advanced(tsg);
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
		if (ch->ring && !ch->dead && !ch->held)
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
			context_saved(ch->tsg->rl, e->t, e->t);
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

/* ---- figures ---- */

void nvsim_engine_settle(struct nvsim_card *card, void (*fn)(struct nvsim_ctxsw *log))
{
	struct nvsim_engine *e = card->engine;

	spin_lock(&e->lock);
	engine_advance(e);
	fn(card->ctxsw);
	spin_unlock(&e->lock);
}

void nvsim_engine_show(struct nvsim_card *card, struct seq_file *m)
{
	struct nvsim_engine *e = card->engine;
	struct nvsim_tsg *tsg;
	int i;

	spin_lock(&e->lock);
	engine_advance(e);
	for (i = 0; i < NVSIM_MAX_RUNLISTS; i++) {
		struct runlist *rl = &e->rl[i];

		if (list_empty(&rl->tsgs) && !rl->busy_ns)
			continue;
		seq_printf(m, "runlist %d busy_ns %llu switch_ns %llu switches %llu\n", i,
			   rl->busy_ns, rl->switch_ns, rl->switches);
		list_for_each_entry(tsg, &rl->tsgs, of_runlist)
			seq_printf(m, " group %u slice_us %llu busy_ns %llu channels %u interleave %u\n",
				   tsg->id, div_u64(tsg->slice_ns, NSEC_PER_USEC), tsg->busy_ns,
				   tsg->nchans, tsg->interleave);
	}
	spin_unlock(&e->lock);
}
