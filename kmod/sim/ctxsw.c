// SPDX-License-Identifier: GPL-2.0-only
/*
 * A card's log of context switches on the graphics engine: what the real card's
 * FECS writes and the driver passes on to the event buffers bound to it. The
 * runlist notes each context saved and loaded; records reach the buffers when
 * one is flushed and 30 times a second. While no buffer is bound nothing is
 * noted and no timer runs.
 */
#include <linux/capability.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include "nvsim.h"

#define LOG_ENTRIES	4096
#define LOG_PERIOD	msecs_to_jiffies(33)	/* fecs_event_list.c: about 30 Hz */

#define TAG(name)	BIT(NV_EVENT_BUFFER_FECS_##name)

struct entry {
	struct nvsim_ctxsw_owner owner;
	u64 begun, ns;
	bool end;
};

/* One buffer's subscription to the records of one user, or of all. */
struct bind {
	struct list_head node;
	struct nvsim_evbuf *buf;
	bool everyone;
	bool admin, kernel;		/* the binder's privilege: it decides what is hidden */
	bool kernel_client;
	kuid_t user;
	u32 mask;
};

struct nvsim_ctxsw {
	struct nvsim_card *card;
	struct list_head binds;		/* evbuf_lock */
	struct delayed_work timer;
	/* the engine's lock */
	bool on;
	u32 first, count;
	u32 lost;			/* overwritten since the last delivery */
	struct entry *ring;
};

void nvsim_ctxsw_note(struct nvsim_ctxsw *log, const struct nvsim_ctxsw_owner *owner, bool end,
		      u64 begun, u64 ns)
{
	if (!log->on)
		return;
	if (log->count == LOG_ENTRIES) {
		log->first = (log->first + 1) % LOG_ENTRIES;
		log->count--;
		log->lost++;
	}
	log->ring[(log->first + log->count++) % LOG_ENTRIES] =
		(struct entry){ *owner, begun, ns, end };
}

/* ---- to the buffers ---- */

static bool own_user(const struct bind *b, const struct entry *e)
{
	if (b->kernel_client || e->owner.kernel)
		return b->kernel_client && e->owner.kernel;
	return uid_eq(b->user, e->owner.user);
}

static void deliver(const struct bind *b, const struct entry *e, u8 tag, u64 ns)
{
	bool hide_kernel = !b->kernel && e->owner.kernel;
	bool hide_user = !b->admin && !own_user(b, e);
	bool hide = hide_kernel || hide_user;
	struct nv_fecs_record_v2 record = {
		.migGpuInstanceId = NV_EVENT_BUFFER_INVALID_MIG,
		.migComputeInstanceId = NV_EVENT_BUFFER_INVALID_MIG,
	};

	if (!b->everyone && !own_user(b, e))
		return;
	if (hide || !(BIT(tag) & b->mask)) {
		if ((hide || b->mask & TAG(SIMPLE_START)) &&
		    tag == NV_EVENT_BUFFER_FECS_CONTEXT_START)
			tag = NV_EVENT_BUFFER_FECS_SIMPLE_START;
		else if ((hide || b->mask & TAG(SIMPLE_END)) &&
			 tag == NV_EVENT_BUFFER_FECS_SAVE_END)
			tag = NV_EVENT_BUFFER_FECS_SIMPLE_END;
		else
			return;
	}
	record.tag = tag;
	if (hide) {
		record.pid = hide_kernel ? NV_EVENT_BUFFER_KERNEL_PID : NV_EVENT_BUFFER_HIDDEN_PID;
		record.context_id = hide_kernel ? NV_EVENT_BUFFER_KERNEL_CONTEXT :
						  NV_EVENT_BUFFER_HIDDEN_CONTEXT;
		/* some time within the switch; the driver has 0 where that took none */
		record.timestamp = e->ns > e->begun ?
			e->begun + get_random_u32() % (u32)(e->ns - e->begun) : 0;
	} else {
		record.pid = e->owner.pid;
		record.context_id = e->owner.context;
		record.timestamp = ns;
	}
	nvsim_evbuf_add(b->buf, &record);
}

static void drain(struct nvsim_ctxsw *log)
{
	const struct bind *b;

	if (log->lost)
		list_for_each_entry(b, &log->binds, node)
			nvsim_evbuf_skip(b->buf, log->lost);
	log->lost = 0;
	for (; log->count; log->count--, log->first = (log->first + 1) % LOG_ENTRIES) {
		const struct entry *e = &log->ring[log->first];

		list_for_each_entry(b, &log->binds, node)
			deliver(b, e, e->end ? NV_EVENT_BUFFER_FECS_CTXSW_REQ_BY_HOST :
				NV_EVENT_BUFFER_FECS_RESTORE_START, e->begun);
		list_for_each_entry(b, &log->binds, node)
			deliver(b, e, e->end ? NV_EVENT_BUFFER_FECS_SAVE_END :
				NV_EVENT_BUFFER_FECS_CONTEXT_START, e->ns);
	}
}

static void tick(struct work_struct *work)
{
	struct nvsim_ctxsw *log = container_of(to_delayed_work(work), struct nvsim_ctxsw, timer);

	mutex_lock(&evbuf_lock);
	if (!list_empty(&log->binds)) {
		nvsim_engine_settle(log->card, drain);
		schedule_delayed_work(&log->timer, LOG_PERIOD);
	}
	mutex_unlock(&evbuf_lock);
}

/* Of every card, whichever the buffer belongs to, as the driver does. */
void nvsim_ctxsw_flush(void)
{
	int i;

	mutex_lock(&evbuf_lock);
	for (i = 0; i < nvsim_ncards; i++)
		if (!list_empty(&nvsim_cards[i].ctxsw->binds))
			nvsim_engine_settle(&nvsim_cards[i], drain);
	mutex_unlock(&evbuf_lock);
}

/* ---- bound buffers ---- */

static void begin(struct nvsim_ctxsw *log)
{
	log->first = log->count = log->lost = 0;
	log->on = true;
}

static void cease(struct nvsim_ctxsw *log)
{
	log->on = false;
}

/* Only a kernel client may choose; the others get starts and ends. */
static u32 mask_of(u32 detail, u32 filter, const struct nvsim_caller *who)
{
	if (who->priv == NVSIM_KERNEL) {
		switch (detail) {
		case NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_FULL:
			return ~0u;
		case NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_COMPAT:
			return TAG(RESTORE_START) | TAG(CONTEXT_START) | TAG(CTXSW_REQ_BY_HOST);
		case NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_CUSTOM:
			return filter;
		}
	}
	return TAG(SIMPLE_START) | TAG(SIMPLE_END);
}

u32 nvsim_ctxsw_bind(struct nvsim_card *card, struct nvsim_evbuf *buf, bool all_users, u32 detail,
		     u32 filter, const struct nvsim_client *client,
		     const struct nvsim_caller *who)
{
	bool everyone = all_users || client->kernel;
	struct nvsim_ctxsw *log = card->ctxsw;
	struct bind *b;
	u32 status = NV_OK;

	mutex_lock(&evbuf_lock);
	list_for_each_entry(b, &log->binds, node)
		if (b->buf == buf && b->everyone == everyone)
			goto out;
	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!log->ring)
		log->ring = kvcalloc(LOG_ENTRIES, sizeof(*log->ring), GFP_KERNEL);
	if (!b || !log->ring) {
		kfree(b);
		status = NV_ERR_INSUFFICIENT_RESOURCES;
		goto out;
	}
	b->buf = buf;
	b->everyone = everyone;
	/* as the driver, of the process that calls, for a kernel client too */
	b->admin = capable(CAP_SYS_ADMIN);
	b->kernel = who->priv == NVSIM_KERNEL;
	b->kernel_client = client->kernel;
	b->user = client->euid;
	b->mask = mask_of(detail, filter, who);
	if (list_empty(&log->binds)) {
		nvsim_engine_settle(card, begin);
		schedule_delayed_work(&log->timer, LOG_PERIOD);
	}
	list_add_tail(&b->node, &log->binds);
out:
	mutex_unlock(&evbuf_lock);
	return status;
}

void nvsim_ctxsw_unbind(struct nvsim_evbuf *buf)
{
	struct nvsim_ctxsw *log;
	struct bind *b, *next;
	int i;

	mutex_lock(&evbuf_lock);
	for (i = 0; i < nvsim_ncards; i++) {
		log = nvsim_cards[i].ctxsw;
		if (list_empty(&log->binds))
			continue;
		list_for_each_entry_safe(b, next, &log->binds, node) {
			if (b->buf != buf)
				continue;
			list_del(&b->node);
			kfree(b);
		}
		/* A timer that is waiting for evbuf_lock finds nothing to do. */
		if (list_empty(&log->binds)) {
			cancel_delayed_work(&log->timer);
			nvsim_engine_settle(&nvsim_cards[i], cease);
		}
	}
	mutex_unlock(&evbuf_lock);
}

int nvsim_ctxsw_init(struct nvsim_card *card)
{
	struct nvsim_ctxsw *log = kzalloc(sizeof(*log), GFP_KERNEL);

	if (!log)
		return -ENOMEM;
	log->card = card;
	INIT_LIST_HEAD(&log->binds);
	INIT_DELAYED_WORK(&log->timer, tick);
	card->ctxsw = log;
	return 0;
}

void nvsim_ctxsw_exit(struct nvsim_card *card)
{
	struct nvsim_ctxsw *log = card->ctxsw;

	WARN_ON(!list_empty(&log->binds));
	cancel_delayed_work_sync(&log->timer);
	kvfree(log->ring);
	kfree(log);
	card->ctxsw = NULL;
}
