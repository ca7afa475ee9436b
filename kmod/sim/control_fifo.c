// SPDX-License-Identifier: GPL-2.0-only
/*
 * Controls of channels and channel groups. Latencies are those measured on an
 * H200: 0.53 to 0.80 ms to shut 8 channels, 0.30 ms to open them, 0.2 to 0.4 ms
 * for SET_TIMESLICE and PREEMPT.
 */
#include "nvsim.h"

static u32 tsg_schedule(struct nvsim_ctl *c)
{
	nvsim_tsg_schedule(c->obj->tsg, *(u8 *)c->p);
	return NV_OK;
}

static u32 tsg_nothing(struct nvsim_ctl *c)
{
	return NV_OK;
}

static u32 tsg_set_timeslice(struct nvsim_ctl *c)
{
	nvsim_latency_us(300);
	return nvsim_tsg_set_timeslice(c->obj->tsg, *(u64 *)c->p);
}

static u32 tsg_get_timeslice(struct nvsim_ctl *c)
{
	*(u64 *)c->p = nvsim_tsg_timeslice_us(c->obj->tsg);
	return NV_OK;
}

static u32 tsg_preempt(struct nvsim_ctl *c)
{
	struct { u8 wait, manual, pad[2]; u32 timeout_us; } *p = c->p;

	if (p->manual && p->timeout_us > 1000000)
		return NV_ERR_INVALID_ARGUMENT;
	nvsim_latency_us(300);
	nvsim_tsg_preempt(c->obj->tsg);
	return NV_OK;
}

static u32 tsg_get_info(struct nvsim_ctl *c)
{
	*(u32 *)c->p = nvsim_tsg_id(c->obj->tsg);
	return NV_OK;
}

static u32 tsg_set_interleave(struct nvsim_ctl *c)
{
	if (*(u32 *)c->p > 2)
		return NV_ERR_INVALID_ARGUMENT;
	nvsim_tsg_set_interleave(c->obj->tsg, *(u32 *)c->p);
	return NV_OK;
}

static u32 tsg_get_interleave(struct nvsim_ctl *c)
{
	*(u32 *)c->p = nvsim_tsg_interleave(c->obj->tsg);
	return NV_OK;
}

/* ---- channels ---- */

static struct nvsim_tsg *tsg_of(struct nvsim_object *obj)
{
	return obj->tsg ?: obj->parent->tsg;
}

static u32 chan_schedule(struct nvsim_ctl *c)
{
	nvsim_chan_schedule(c->obj->chan, *(u8 *)c->p);
	return NV_OK;
}

static u32 chan_set_interleave(struct nvsim_ctl *c)
{
	if (*(u32 *)c->p > 2)
		return NV_ERR_INVALID_ARGUMENT;
	nvsim_tsg_set_interleave(tsg_of(c->obj), *(u32 *)c->p);
	return NV_OK;
}

static u32 chan_restart_runlist(struct nvsim_ctl *c)
{
	nvsim_latency_us(300);
	nvsim_tsg_restart(tsg_of(c->obj), *(u8 *)c->p);
	return NV_OK;
}

static u32 chan_stop(struct nvsim_ctl *c)
{
	nvsim_chan_kill(c->obj->chan);
	return NV_OK;
}

static u32 chan_token(struct nvsim_ctl *c)
{
	*(u32 *)c->p = nvsim_chan_id(c->obj->chan);
	return NV_OK;
}

/*
 * The lists may name anyone's channels: the stock driver does not compare them
 * with the caller's client (seen on an H200), so neither do we.
 */
static u32 disable_channels(struct nvsim_ctl *c)
{
	struct nv_fifo_disable_channels *p = c->p;
	struct nvsim_client *client;
	struct nvsim_object *obj;
	u32 i;

	static_assert(sizeof(*p) == 536);
	if (p->numChannels > 64)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->pRunlistPreemptEvent && c->who->priv != NVSIM_KERNEL)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	for (i = 0; i < p->numChannels; i++) {
		client = nvsim_client_find(p->hClientList[i]);
		if (!client)
			return NV_ERR_INVALID_CLIENT;
		obj = nvsim_object_find(client, p->hChannelList[i]);
		if (!obj || !obj->chan)
			return NV_ERR_INVALID_CHANNEL;
	}
	nvsim_latency_us(p->bDisable ? 600 : 300);
	for (i = 0; i < p->numChannels; i++) {
		client = nvsim_client_find(p->hClientList[i]);
		obj = nvsim_object_find(client, p->hChannelList[i]);
		nvsim_chan_disable(obj->chan, p->bDisable, p->bOnlyDisableScheduling,
				   p->bRewindGpPut);
	}
	return NV_OK;
}

static u32 preemption_mode(struct nvsim_ctl *c)
{
	struct nv_gr_preemption_mode *p = c->p;
	struct nvsim_object *obj;

	if (c->size < offsetof(struct nv_gr_preemption_mode, grRouteInfo))
		return NV_ERR_INVALID_ARGUMENT;
	obj = nvsim_object_find(c->client, p->hChannel);
	if (!obj || !(obj->tsg || obj->chan))
		return NV_ERR_INVALID_ARGUMENT;
	return p->flags & 1 && p->cilpPreemptMode == 2 ? nvsim_tsg_set_cilp(tsg_of(obj)) : NV_OK;
}

const struct nvsim_ctl_entry nvsim_fifo_controls[] = {
	CTL4(0xa06c0101, CTL_ANY, 2, 2, 2, 3, tsg_schedule),
	CTL(0xa06c0102, CTL_ANY, 4, tsg_nothing),		/* BIND */
	CTL(0xa06c0103, CTL_ANY, 8, tsg_set_timeslice),
	CTL(0xa06c0104, CTL_ANY, 8, tsg_get_timeslice),
	CTL(0xa06c0105, CTL_ANY, 8, tsg_preempt),
	CTL(0xa06c0106, CTL_ANY, 4, tsg_get_info),
	CTL(0xa06c0107, CTL_NICE, 4, tsg_set_interleave),
	CTL(0xa06c0108, CTL_ANY, 4, tsg_get_interleave),
	CTL(0xa06c0110, CTL_NICE, 1, tsg_nothing),		/* MAKE_REALTIME */
	CTL4(0xa06f0103, CTL_ANY, 2, 2, 2, 3, chan_schedule),
	CTL(0xa06f0104, CTL_ANY, 4, tsg_nothing),		/* BIND */
	CTL(0xa06f0109, CTL_NICE, 4, chan_set_interleave),
	CTL(0xa06f0111, CTL_NICE, 2, chan_restart_runlist),
	CTL(0xa06f0112, CTL_ANY, 1, chan_stop),
	CTL(0xc36f0108, CTL_ANY, 4, chan_token),		/* GET_WORK_SUBMIT_TOKEN */
	CTL(0xc36f010a, CTL_ANY, 0, tsg_nothing),		/* SET_WORK_SUBMIT_TOKEN_INDEX */
	CTL(0x906f0102, CTL_ANY, 0, chan_stop),			/* RESET_CHANNEL */
	CTL(0x2080110b, CTL_ANY, 536, disable_channels),
	CTL(0x20801115, CTL_NICE, 8, tsg_nothing),		/* RUNLIST_SET_SCHED_POLICY */
	CTL(0x20801117, CTL_KERNEL, 1, tsg_nothing),		/* DISABLE_USERMODE_CHANNELS */
	CTL(0x2080012c, CTL_KERNEL, 20, tsg_nothing),		/* GPU_EVICT_CTX */
	CTL(0x20801210, CTL_ANY, 0, preemption_mode),
	CTL(0x0080170f, CTL_ANY, 16, tsg_nothing),		/* SET_CHANNEL_PROPERTIES */
	CTL(0x00801711, CTL_ROOT, 4, tsg_nothing),		/* STOP_RUNLIST */
	CTL(0x00801712, CTL_ROOT, 4, tsg_nothing),		/* START_RUNLIST */
	CTL(0x00801714, CTL_ANY, 16396, tsg_nothing),		/* IDLE_CHANNELS */
	{}
};
