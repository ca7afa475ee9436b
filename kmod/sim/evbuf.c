// SPDX-License-Identifier: GPL-2.0-only
/*
 * NV_EVENT_BUFFER: a ring of records in a client's own memory, filled by the
 * driver and read by the client through a mapping, without a call for a record.
 * The only events here are a card's context switches.
 */
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "nvsim.h"

#define RECORD_BYTES	sizeof(struct nv_fecs_entry)

DEFINE_MUTEX(evbuf_lock);

struct nvsim_evbuf {			/* evbuf_lock */
	struct nv_event_buffer_header *header;
	u8 *records;
	u32 size, count;		/* of a record, bytes; of records */
	u16 seqno;
	bool enabled, keep_newest;
};

/*
 * The memory is cleared when it is first mapped for the driver's own use. It
 * cannot be freed before the buffer that depends on it.
 */
static u32 take_memory(struct nvsim_object *obj, struct nvsim_object *memory, u64 bytes, void **at)
{
	*at = NULL;
	if (!obj->client->kernel && !memory->mem->user_read_only)
		return NV_ERR_INVALID_ARGUMENT;
	if (memory->mem->size < bytes)
		return NV_ERR_INVALID_ARGUMENT;
	*at = nvsim_mem_vmap(memory->mem);
	if (!*at)
		return NV_ERR_NO_MEMORY;
	memset(*at, 0, memory->mem->size);
	return nvsim_object_depend(obj, memory) ? NV_ERR_NO_MEMORY : NV_OK;
}

u32 nvsim_evbuf_make(struct nvsim_object *obj, struct nv_event_buffer_alloc *p)
{
	struct nvsim_object *header, *records, *subdevice;
	struct nvsim_evbuf *buf;
	u32 bytes, status;
	void *at;

	p->bufferHeader = p->recordBuffer = p->vardataBuffer = 0;
	if (!p->hBufferHeader)
		return NV_ERR_NOT_SUPPORTED;	/* the driver's own memory: not on Linux */
	if (!p->hRecordBuffer || !p->vardataBufferSize != !p->hVardataBuffer)
		return NV_ERR_INVALID_ARGUMENT;
	header = nvsim_object_find(obj->client, p->hBufferHeader);
	records = nvsim_object_find(obj->client, p->hRecordBuffer);
	if (!header || !records)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (header->class != records->class)
		return NV_ERR_INVALID_ARGUMENT;
	if (header->class != NV01_MEMORY_DEVICELESS || p->vardataBufferSize ||
	    p->notificationHandle)
		return NV_ERR_NOT_SUPPORTED;
	if (!p->recordSize || !p->recordCount ||
	    check_mul_overflow(p->recordSize, p->recordCount, &bytes) ||
	    p->recordsFreeThreshold > p->recordCount || p->vardataFreeThreshold)
		return NV_ERR_INVALID_ARGUMENT;
	subdevice = nvsim_object_find(obj->client, p->hSubDevice);
	if (!subdevice || subdevice->class != NV20_SUBDEVICE_0)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	buf = kzalloc(sizeof(*buf), GFP_KERNEL);
	if (!buf)
		return NV_ERR_NO_MEMORY;
	/* A failure below frees the object, and with it what has been mapped. */
	obj->evbuf = buf;
	buf->size = p->recordSize;
	buf->count = p->recordCount;
	status = take_memory(obj, header, sizeof(*buf->header), &at);
	buf->header = at;
	if (status != NV_OK)
		return status;
	status = take_memory(obj, records, bytes, &at);
	buf->records = at;
	return status;
}

void nvsim_evbuf_free(struct nvsim_evbuf *buf)
{
	nvsim_ctxsw_unbind(buf);
	vunmap(buf->records);
	vunmap(buf->header);
	kfree(buf);
}

/* So many records are lost before they came here. */
void nvsim_evbuf_skip(struct nvsim_evbuf *buf, u32 records)
{
	buf->seqno += records;
}

/*
 * recordGet is the client's and moves by UPDATE_GET alone; a buffer that keeps
 * the newest is overwritten without regard to it.
 */
void nvsim_evbuf_add(struct nvsim_evbuf *buf, struct nv_fecs_record_v2 *record)
{
	const struct nv_event_buffer_record head = {
		.type = NV_EVENT_BUFFER_RECORD_TYPE_FECS_CTX_SWITCH_V2 };
	u32 put = READ_ONCE(buf->header->recordPut), next = (put + 1) % buf->count;
	u8 *at;

	record->seqno = buf->seqno++;
	if (!buf->enabled || put >= buf->count)
		return;
	if (!buf->keep_newest && next == buf->header->recordGet) {
		buf->header->recordDropcount++;
		return;
	}
	at = buf->records + (size_t)put * buf->size;
	memcpy(at, &head, sizeof(head));
	memcpy(at + sizeof(head), record, sizeof(*record));
	/* the reader takes the records up to here */
	smp_store_release(&buf->header->recordPut, next);
}

/* ---- controls ---- */

static u32 enable_events(struct nvsim_ctl *c)
{
	struct nv_event_buffer_enable *p = c->p;
	struct nvsim_evbuf *buf = c->obj->evbuf;

	if (p->flags & ~(NV_EVENT_BUFFER_FLAG_KEEP_OLDEST | NV_EVENT_BUFFER_FLAG_KEEP_NEWEST))
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&evbuf_lock);
	buf->enabled = p->enable;
	if (p->flags)
		buf->keep_newest = p->flags & NV_EVENT_BUFFER_FLAG_KEEP_NEWEST;
	mutex_unlock(&evbuf_lock);
	return NV_OK;
}

static u32 update_get(struct nvsim_ctl *c)
{
	struct { u32 recordBufferGet, varDataBufferGet; } *p = c->p;
	struct nvsim_evbuf *buf = c->obj->evbuf;
	struct nv_event_buffer_header *h = buf->header;

	if (p->recordBufferGet >= buf->count || p->varDataBufferGet)
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&evbuf_lock);
	h->recordGet = p->recordBufferGet;
	h->recordCount = (h->recordPut + buf->count - h->recordGet) % buf->count;
	h->recordDropcount = 0;
	h->vardataDropcount = 0;
	mutex_unlock(&evbuf_lock);
	return NV_OK;
}

static u32 flush(struct nvsim_ctl *c)
{
	nvsim_ctxsw_flush();
	return NV_OK;
}

static u32 bind_fecs(struct nvsim_ctl *c)
{
	struct nv_fecs_bind_evtbuf *p = c->p;
	struct nvsim_object *obj = nvsim_object_find(c->client, p->hEventBuffer);

	p->reasonCode = 0;
	if (!obj)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!obj->evbuf)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	/* The driver would write past the end of the last record. */
	if (obj->evbuf->size < RECORD_BYTES)
		return NV_ERR_INVALID_ARGUMENT;
	return nvsim_ctxsw_bind(c->card, obj->evbuf, p->bAllUsers, p->levelOfDetail,
				p->eventFilter, c->client, c->who);
}

const struct nvsim_ctl_entry nvsim_evbuf_controls[] = {
	CTL(0x20801238, CTL_ANY, 24, bind_fecs),
	CTL(0x90cd0101, CTL_ANY, 8, enable_events),
	CTL(0x90cd0102, CTL_ANY, 8, update_get),
	CTL(0x90cd0104, CTL_ANY, 0, flush),
	{}
};
