// SPDX-License-Identifier: GPL-2.0-only
/* Controls of a card that tell memory and processes, which a hook rewrites. */
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/string.h>
#include "nvsim.h"

#define KIB(bytes) ((u32)((bytes) >> 10))

static u32 fb_info(struct nvsim_ctl *c, u32 index, u32 *data)
{
	struct nvsim_card *card = c->card;

	switch (index) {
	case 0x05: *data = card->model->bar1_mib << 10; break;	/* BAR1_SIZE */
	case 0x07:						/* RAM_SIZE */
	case 0x08:						/* TOTAL_RAM_SIZE */
	case 0x20: *data = KIB(card->board); break;		/* USABLE_RAM_SIZE */
	case 0x09: *data = KIB(card->pma_total); break;		/* HEAP_SIZE */
	case 0x0a:						/* MAPPABLE_HEAP_SIZE */
	case 0x0b: *data = card->model->bus_width; break;	/* BUS_WIDTH */
	case 0x0d: *data = card->model->ram_type; break;	/* RAM_TYPE */
	case 0x12:						/* LARGEST_FREE_REGION_SIZE */
	case 0x16: *data = KIB(nvsim_pma_free_bytes(card)); break; /* HEAP_FREE */
	case 0x1d:						/* BAR1_AVAIL_SIZE */
		*data = (card->model->bar1_mib << 10) - KIB(card->bar1_used);
		break;
	case 0x0c:						/* RAM_CFG */
	case 0x06: case 0x0e: case 0x0f: case 0x10: case 0x11: case 0x13: case 0x14: case 0x15:
	case 0x17: case 0x18: case 0x19: case 0x1a: case 0x1b: case 0x1c: case 0x1e: case 0x1f:
	case 0x21: case 0x22: case 0x23: case 0x24: case 0x25: case 0x26: case 0x27: case 0x28:
	case 0x29: case 0x2a: case 0x2b: case 0x2c: case 0x2d: case 0x2e: case 0x2f: case 0x30:
	case 0x31: case 0x32: case 0x33: case 0x34: case 0x35: case 0x36: case 0x37: case 0x38:
	case 0x39: case 0x3a: case 0x3b:
		*data = 0;
		break;
	default:
		return NV_ERR_INVALID_ARGUMENT;
	}
	return NV_OK;
}

static u32 fb_get_info(struct nvsim_ctl *c)
{
	struct { u32 n, pad; u64 list; } *p = c->p;

	if (p->n && !p->list)
		return NV_ERR_INVALID_ARGUMENT;
	return nvsim_info_at_pointer(c, fb_info);
}

static u32 fb_get_info_v2(struct nvsim_ctl *c)
{
	return nvsim_info_in_place(c, fb_info);
}

/* ---- processes ---- */

static struct pid_namespace *callers_ns(const struct nvsim_caller *who)
{
	return who->user_params ? task_active_pid_ns(current) : &init_pid_ns;
}

static bool client_uses(struct nvsim_client *client, struct nvsim_card *card, u32 class)
{
	struct nvsim_object *obj;
	unsigned long index;

	xa_for_each(&client->objects, index, obj) {
		if (obj->card != card)
			continue;
		/* A channel class stands for any channel of the card. */
		if (obj->class == class || (nvsim_class_is_channel(class) && obj->chan))
			return true;
	}
	return false;
}

struct pid_list { struct nvsim_card *card; u32 class; struct pid_namespace *ns; u32 *table, n; };

static void collect_pid(struct nvsim_client *client, void *arg)
{
	struct pid_list *l = arg;
	pid_t pid;
	u32 i;

	if (client->kernel || !client_uses(client, l->card, l->class))
		return;
	pid = pid_nr_ns(client->pid, l->ns);
	if (!pid)
		return;		/* not visible there */
	for (i = 0; i < l->n; i++)
		if (l->table[i] == pid)
			return;
	if (l->n < 950)
		l->table[l->n++] = pid;
}

static u32 gpu_get_pids(struct nvsim_ctl *c)
{
	struct { u32 idType, id, count, table[950]; } *p = c->p;
	struct pid_list l = { .card = c->card, .class = p->id, .ns = callers_ns(c->who),
			      .table = p->table };

	if (p->idType)
		return NV_ERR_NOT_SUPPORTED;	/* guests of a virtual machine */
	nvsim_clients_each(collect_pid, &l);
	p->count = l.n;
	return NV_OK;
}

struct pid_usage {
	struct nvsim_card *card;
	struct pid *pid;
	u64 private, owned, duped;
	bool seen;
};

static void collect_usage(struct nvsim_client *client, void *arg)
{
	struct pid_usage *u = arg;
	struct nvsim_object *obj;
	unsigned long index;

	if (client->kernel || client->pid != u->pid)
		return;
	u->seen = true;
	xa_for_each(&client->objects, index, obj) {
		if (!obj->mem || obj->mem->card != u->card)
			continue;
		/* UVM's duplicate counts: what CUDA has mapped is "shared, owned". */
		if (obj->duplicate)
			u->duped += obj->mem->charged;
		else if (atomic_read(&obj->mem->holders) > 1)
			u->owned += obj->mem->charged;
		else
			u->private += obj->mem->charged;
	}
}

static u32 gpu_get_pid_info(struct nvsim_ctl *c)
{
	struct { u32 count, pad; struct { u32 pid, index, result, pad; u64 data[6]; u32 ci, gi; }
		 list[200]; } *p = c->p;
	struct pid_namespace *ns = callers_ns(c->who);
	u32 i;

	if (!p->count || p->count > 200)
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < p->count; i++) {
		struct pid_usage u = { .card = c->card };

		memset(p->list[i].data, 0, sizeof(p->list[i].data));
		if (p->list[i].index) {
			p->list[i].result = NV_ERR_INVALID_ARGUMENT;
			continue;
		}
		rcu_read_lock();
		u.pid = find_pid_ns(p->list[i].pid, ns);
		rcu_read_unlock();
		if (u.pid)
			nvsim_clients_each(collect_usage, &u);
		p->list[i].data[0] = u.private;
		p->list[i].data[1] = u.owned;
		p->list[i].data[2] = u.duped;
		p->list[i].result = NV_OK;
		/* Not partitioned: the whole card. */
		p->list[i].ci = 0xffffffff;
		p->list[i].gi = 0xffffffff;
	}
	return NV_OK;
}

/* ---- memory objects ---- */

static u32 surface_info(struct nvsim_ctl *c, u32 index, u32 *data)
{
	*data = index == 4 ? c->obj->mem->size >> 12 : 0;	/* size, 4 KiB pages */
	return NV_OK;
}

static u32 get_surface_info(struct nvsim_ctl *c)
{
	struct { u32 n, pad; u64 list; } *p = c->p;

	if (!p->list)
		return NV_ERR_INVALID_ARGUMENT;
	return nvsim_info_at_pointer(c, surface_info);
}

const struct nvsim_ctl_entry nvsim_gpu_controls[] = {
	CTL(0x20801301, CTL_ANY, 16, fb_get_info),
	CTL4(0x20801303, CTL_ANY, 436, 444, 460, 1028, fb_get_info_v2),
	CTL(0x2080018d, CTL_ANY, 3812, gpu_get_pids),
	CTL(0x2080018e, CTL_ANY, 14408, gpu_get_pid_info),
	CTL(0x20800301, CTL_ANY, 20, nvsim_ctl_ok), /* EVENT_SET_NOTIFICATION: there are none */
	CTL(0x00410110, CTL_ANY, 16, get_surface_info),
	{}
};
