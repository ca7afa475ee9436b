// SPDX-License-Identifier: GPL-2.0-only
/* OS events: a client's wish to be woken through a file. The simulation raises none. */
#include <linux/file.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include "nvsim.h"

struct os_event {
	struct list_head of_file;
	u32 hClient;
	struct nvsim_file *nf;
	u32 fd;
};

u32 nvsim_os_event_alloc(struct nvsim_file *nf, struct nv_ioctl_os_event *p)
{
	struct os_event *ev, *old;
	struct nvsim_file *target;
	struct file *ref;
	u32 status = NV_OK;

	target = nvsim_file_get(p->fd, false, &ref);
	if (!target)
		target = nvsim_file_get(p->fd, true, &ref);
	if (!target)
		return NV_ERR_INVALID_ARGUMENT;
	ev = kzalloc(sizeof(*ev), GFP_KERNEL);
	if (!ev) {
		fput(ref);
		return NV_ERR_NO_MEMORY;
	}
	ev->hClient = p->hClient;
	ev->nf = target;
	ev->fd = p->fd;
	mutex_lock(&rm_lock);
	list_for_each_entry(old, &target->os_events, of_file)
		if (old->hClient == p->hClient)
			status = NV_ERR_INVALID_ARGUMENT;
	if (status == NV_OK)
		list_add(&ev->of_file, &target->os_events);
	mutex_unlock(&rm_lock);
	if (status != NV_OK)
		kfree(ev);
	fput(ref);
	return status;
}

u32 nvsim_os_event_free(struct nv_ioctl_os_event *p)
{
	struct nvsim_file *target;
	struct os_event *ev, *next;
	struct file *ref;
	u32 status = NV_ERR_INVALID_EVENT;

	target = nvsim_file_get(p->fd, false, &ref);
	if (!target)
		target = nvsim_file_get(p->fd, true, &ref);
	if (!target)
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&rm_lock);
	list_for_each_entry_safe(ev, next, &target->os_events, of_file)
		if (ev->hClient == p->hClient) {
			list_del(&ev->of_file);
			kfree(ev);
			status = NV_OK;
		}
	mutex_unlock(&rm_lock);
	fput(ref);
	return status;
}

void nvsim_os_event_release(struct nvsim_file *nf)
{
	struct os_event *ev, *next;

	mutex_lock(&rm_lock);
	list_for_each_entry_safe(ev, next, &nf->os_events, of_file) {
		list_del(&ev->of_file);
		kfree(ev);
	}
	mutex_unlock(&rm_lock);
}

__poll_t nvsim_poll(struct file *filp, struct poll_table_struct *wait)
{
	struct nvsim_file *nf = filp->private_data;

	poll_wait(filp, &nf->wait, wait);
	return 0;
}
