// SPDX-License-Identifier: GPL-2.0-only
/*
 * OS events: a client's request to be woken through a file. As in the real driver, the host has one
 * list. An entry is known by client and a number that stands for a descriptor and is never looked
 * up. It goes with the file through which it was requested, or with its client if RM_FREE frees
 * that. The simulation raises none.
 */
#include <linux/poll.h>
#include <linux/slab.h>
#include "nvsim.h"

struct os_event {
	struct list_head of_host;
	u32 hClient;
	u32 fd;
	struct nvsim_file *nf;
};

static LIST_HEAD(os_events); /* under rm_lock */

static struct os_event *find(u32 hClient, u32 fd)
{
	struct os_event *ev;

	list_for_each_entry(ev, &os_events, of_host)
		if (ev->hClient == hClient && ev->fd == fd)
			return ev;
	return NULL;
}

bool nvsim_os_event_exists(u32 hClient, u32 fd)
{
	return find(hClient, fd);
}

u32 nvsim_os_event_alloc(struct nvsim_file *nf, struct nv_ioctl_os_event *p)
{
	struct os_event *ev = kzalloc(sizeof(*ev), GFP_KERNEL);
	u32 status = NV_OK;

	if (!ev)
		return NV_ERR_NO_MEMORY;
	ev->hClient = p->hClient;
	ev->fd = p->fd;
	ev->nf = nf;
	mutex_lock(&rm_lock);
	if (find(p->hClient, p->fd))
		status = NV_ERR_INSUFFICIENT_RESOURCES;
	else
		list_add(&ev->of_host, &os_events);
	mutex_unlock(&rm_lock);
	if (status != NV_OK)
		kfree(ev);
	return status;
}

u32 nvsim_os_event_free(struct nv_ioctl_os_event *p)
{
	u32 status = NV_ERR_INVALID_EVENT;
	struct os_event *ev;

	mutex_lock(&rm_lock);
	ev = find(p->hClient, p->fd);
	if (ev) {
		list_del(&ev->of_host);
		kfree(ev);
		status = NV_OK;
	}
	mutex_unlock(&rm_lock);
	return status;
}

/* Those of a file; NULL: of a client. Context: rm_lock. */
static void release(const struct nvsim_file *nf, u32 hClient)
{
	struct os_event *ev, *next;

	list_for_each_entry_safe(ev, next, &os_events, of_host)
		if (nf ? ev->nf == nf : ev->hClient == hClient) {
			list_del(&ev->of_host);
			kfree(ev);
		}
}

void nvsim_os_event_release(struct nvsim_file *nf)
{
	mutex_lock(&rm_lock);
	release(nf, 0);
	mutex_unlock(&rm_lock);
}

void nvsim_os_event_client_freed(u32 hClient)
{
	release(NULL, hClient);
}

__poll_t nvsim_poll(struct file *filp, struct poll_table_struct *wait)
{
	struct nvsim_file *nf = filp->private_data;

	poll_wait(filp, &nf->wait, wait);
	return 0;
}
