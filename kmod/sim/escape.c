// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ioctl entry. Only the number and the size of a command count; type and
 * direction are ignored, as in the driver. The argument is copied in whole and
 * back whole; RM's verdict is a status inside it and the call returns 0.
 */
#include <linux/capability.h>
#include <linux/file.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "nvsim.h"

#define MAX_CONTROL_PARAMS (1u << 20)
/* Above the layout of every command whose size is not checked. */
#define MIN_CONTROL_PARAMS 512u

static void caller_of(struct nvsim_file *nf, struct nvsim_caller *who)
{
	who->owner = READ_ONCE(nf->ctl) ?: nf;
	who->priv = capable(CAP_SYS_ADMIN) ? NVSIM_USER_ROOT : NVSIM_USER;
	who->user_params = true;
}

/* ---- between the memory of a caller and RM: as rm_ioctl() below, the real driver's names ---- */

noinline u32 os_memcpy_from_user(void *to, const void __user *from, u32 bytes)
{
	return copy_from_user(to, from, bytes) ? NV_ERR_INVALID_ADDRESS : NV_OK;
}

noinline u32 os_memcpy_to_user(void __user *to, const void *from, u32 bytes)
{
	return copy_to_user(to, from, bytes) ? NV_ERR_INVALID_ADDRESS : NV_OK;
}

/* ---- RM_ALLOC, both forms ---- */

static int escape_alloc(struct nvsim_file *nf, void *arg, size_t size,
			const struct nvsim_caller *who)
{
	struct nvos64 *p64 = arg;
	struct nvos21 *p21 = arg;
	bool wide = size == sizeof(*p64);
	void __user *uparams = u64_to_user_ptr(p21->pAllocParms);
	void *params = NULL;
	u32 status, class, rights;
	int psize;

	if (size != sizeof(*p21) && size != sizeof(*p64))
		return -EINVAL;
	class = p21->hClass;
	switch (class) {
	case NV01_ROOT:
	case NV01_ROOT_NON_PRIV:
	case NV01_ROOT_CLIENT:
		if (nf->card)
			return -EINVAL;
		p21->hClass = class = NV01_ROOT_CLIENT;
		break;
	case NV01_EVENT:
	case NV01_EVENT_OS_EVENT:
	case NV01_EVENT_KERNEL_CALLBACK:
	case NV01_EVENT_KERNEL_CALLBACK_EX:
		break;
	default:
		if (nf->card)
			return -EINVAL;
	}
	psize = nvsim_alloc_params_size(class);
	if (psize && uparams) {
		/* Layouts of all branches fit: the tail that a branch lacks reads as 0. */
		params = kzalloc(max_t(size_t, psize, 512), GFP_KERNEL);
		if (!params) {
			status = NV_ERR_NO_MEMORY;
			goto out;
		}
		nvsim_pause(NVSIM_PAUSE_PARAMS, NV_ESC_RM_ALLOC);
		if (os_memcpy_from_user(params, uparams, psize)) {
			status = NV_ERR_INVALID_ADDRESS;
			goto out;
		}
	}
	/* A size without parameters, and rights that cannot be read, come before any object. */
	if (psize && class != NV01_ROOT_CLIENT && !uparams &&
	    (wide ? p64->paramsSize : p21->paramsSize)) {
		status = NV_ERR_INVALID_ARGUMENT;
		goto out;
	}
	if (wide && p64->pRightsRequested &&
	    os_memcpy_from_user(&rights, u64_to_user_ptr(p64->pRightsRequested),
				sizeof(rights))) {
		status = NV_ERR_INVALID_ADDRESS;
		goto out;
	}
	mutex_lock(&rm_lock);
	status = nvsim_rm_alloc(p21->hRoot, p21->hObjectParent, &p21->hObjectNew, class, params,
				psize, who);
	mutex_unlock(&rm_lock);
	if (status == NV_OK && params && os_memcpy_to_user(uparams, params, psize))
		status = NV_ERR_INVALID_ADDRESS;
out:
	nvsim_debug("alloc root %x parent %x new %x class %x size %u -> %x\n", p21->hRoot,
		    p21->hObjectParent, p21->hObjectNew, class,
		    wide ? p64->paramsSize : p21->paramsSize, status);
	kfree(params);
	if (wide)
		p64->status = status;
	else
		p21->status = status;
	return 0;
}

/* ---- RM_CONTROL ---- */

struct embedded_list { u64 uptr, bytes; void *copy; };

static void embedded_put(const struct nvsim_embedded *emb, void *params,
			 struct embedded_list *list, bool store, u32 *status)
{
	u32 i;

	for (i = 0; i < emb->nptrs; i++) {
		if (store && list[i].copy &&
		    os_memcpy_to_user(u64_to_user_ptr(list[i].uptr), list[i].copy, list[i].bytes))
			*status = NV_ERR_INVALID_ADDRESS;
		*(u64 *)(params + emb->ptr_at + 8 * i) = list[i].uptr;
		kvfree(list[i].copy);
	}
}

/* Replaces the user pointers inside the parameters by copies in the kernel. */
static u32 embedded_get(const struct nvsim_embedded *emb, void *params, struct embedded_list *list)
{
	u32 i, count = *(u32 *)(params + emb->count_at), status = NV_OK;
	u64 *ptr;

	for (i = 0; i < emb->nptrs; i++) {
		ptr = params + emb->ptr_at + 8 * i;
		list[i] = (struct embedded_list){ *ptr, (u64)count * emb->elem_size, NULL };
		*ptr = 0;
		if (!list[i].uptr || !count || status != NV_OK)
			continue;
		if (count > emb->max) {
			status = NV_ERR_INVALID_ARGUMENT;
			continue;
		}
		list[i].copy = kvzalloc(list[i].bytes, GFP_KERNEL);
		if (!list[i].copy)
			status = NV_ERR_NO_MEMORY;
		else if (os_memcpy_from_user(list[i].copy, u64_to_user_ptr(list[i].uptr),
					     list[i].bytes))
			status = NV_ERR_INVALID_ADDRESS;
		*ptr = (uintptr_t)list[i].copy;
	}
	return status;
}

static void escape_control(struct nvos54 *p, const struct nvsim_caller *who)
{
	const struct nvsim_embedded *emb = nvsim_control_embedded(p->cmd);
	struct embedded_list list[NVSIM_MAX_EMBEDDED] = {};
	void __user *uparams = u64_to_user_ptr(p->params);
	void *params;

	if (!(p->cmd & 0xffff)) {	/* nothing to do, whatever else it says */
		p->status = NV_OK;
		return;
	}
	if (!p->paramsSize != !p->params || p->paramsSize > MAX_CONTROL_PARAMS) {
		p->status = NV_ERR_INVALID_ARGUMENT;
		return;
	}
	/* Whole layouts fit: a caller that says less gives zeroes, and gets as much as he said. */
	params = kvzalloc(max(p->paramsSize, MIN_CONTROL_PARAMS), GFP_KERNEL);
	if (!params) {
		p->status = NV_ERR_NO_MEMORY;
		return;
	}
	nvsim_pause(NVSIM_PAUSE_PARAMS, NV_ESC_RM_CONTROL);
	if (os_memcpy_from_user(params, uparams, p->paramsSize)) {
		p->status = NV_ERR_INVALID_ADDRESS;
		goto out;
	}
	if (emb && p->paramsSize < emb->ptr_at + 8 * emb->nptrs)
		emb = NULL;
	p->status = emb ? embedded_get(emb, params, list) : NV_OK;
	if (p->status == NV_OK) {
		mutex_lock(&rm_lock);
		p->status = nvsim_rm_control(p, params, who);
		mutex_unlock(&rm_lock);
		nvsim_pause(NVSIM_PAUSE_ANSWER, p->cmd);
	}
	if (emb)
		embedded_put(emb, params, list, p->status == NV_OK, &p->status);
	if (p->status == NV_OK && os_memcpy_to_user(uparams, params, p->paramsSize))
		p->status = NV_ERR_INVALID_ADDRESS;
out:
	kvfree(params);
}

/* ---- the others ---- */

static int escape_card_info(struct nvsim_file *nf, void *arg, size_t size)
{
	struct nv_ioctl_card_info *ci = arg;
	size_t n = size / sizeof(*ci);
	int i;

	if (nf->card)
		return -EINVAL;
	memset(ci, 0, n * sizeof(*ci));
	if (n < nvsim_ncards)
		return -EINVAL;
	for (i = 0; i < nvsim_ncards; i++) {
		const struct nvsim_card *card = &nvsim_cards[i];

		ci[i].valid = 1;
		ci[i].bus = card->bus;
		ci[i].vendor_id = 0x10de;
		ci[i].device_id = card->model->device_id;
		ci[i].gpu_id = card->gpu_id;
		ci[i].interrupt_line = 11;
		ci[i].reg_address = 0xf0000000ull + ((u64)i << 25);
		ci[i].reg_size = 16 << 20;
		ci[i].fb_address = (1ull << 40) * (i + 1);
		ci[i].fb_size = (u64)card->model->bar1_mib << 20;
		ci[i].minor_number = card->minor;
	}
	return 0;
}

static int escape_version(struct nvsim_file *nf, void *arg, size_t size)
{
	struct nv_ioctl_version *v = arg;
	size_t dot = strcspn(nvsim_version, ".") + 1;

	if (nf->card || size != sizeof(*v))
		return -EINVAL;
	v->reply = 1;
	if (v->cmd != '2') {
		v->str[sizeof(v->str) - 1] = '\0';
		if (v->cmd == '1' && !strncmp(v->str, nvsim_version, dot))
			return 0;
		if (!strcmp(v->str, nvsim_version))
			return 0;
		pr_err("NVRM: API mismatch: the client has the version %s, this module %s\n",
		       v->str, nvsim_version);
		strscpy(v->str, nvsim_version, sizeof(v->str));
		return -EINVAL;
	}
	strscpy(v->str, nvsim_version, sizeof(v->str));
	return 0;
}

static int escape_register_fd(struct nvsim_file *nf, void *arg, size_t size)
{
	struct nvsim_file *ctl;
	struct file *ref;
	int ret = -EINVAL;

	if (size != sizeof(s32))
		return -EINVAL;
	mutex_lock(&rm_lock);
	if (nf->ctl)
		goto out;
	ctl = nv_get_file_private(*(s32 *)arg, true, &ref);
	if (!ctl)
		goto out;
	if (ctl == nf || ctl->ctl) {
		fput(ref);
		goto out;
	}
	nf->ctl_filp = ref;
	WRITE_ONCE(nf->ctl, ctl);
	ret = 0;
out:
	mutex_unlock(&rm_lock);
	return ret;
}

static int escape_attach_gpus(struct nvsim_file *nf, void *arg, size_t size)
{
	u32 *ids = arg;
	size_t i, n = size / sizeof(u32);
	int ret = 0;

	if (nf->card || !n || size % sizeof(u32))
		return -EINVAL;
	mutex_lock(&rm_lock);
	if (nf->nattached) {
		ret = -EINVAL;
		goto out;
	}
	for (i = 0; i < n; i++) {
		if (ids[i] && nvsim_gpu_get(ids[i])) {
			while (i--)
				if (ids[i])
					nvsim_gpu_put(ids[i]);
			ret = -EINVAL;
			goto out;
		}
	}
	nf->attached = kmemdup(ids, size, GFP_KERNEL);
	if (nf->attached)
		nf->nattached = n;
	else
		ret = -ENOMEM;
out:
	mutex_unlock(&rm_lock);
	return ret;
}

/* ---- what is accepted and not simulated: the objects that it names are looked for ---- */

enum named { NAMED_NOTHING, NAMED_CLIENT, NAMED_DEVICE, NAMED_OTHER };

/* Return: `none` where there is no such client at all. */
static u32 look(u32 hClient, u32 hObject, u32 none, const struct nvsim_caller *who,
		enum named *what)
{
	struct nvsim_client *client;
	struct nvsim_object *obj;
	u32 status = NV_OK;

	mutex_lock(&rm_lock);
	client = nvsim_client_validate(hClient, who);
	if (!client) {
		status = nvsim_client_find(hClient) ? NV_ERR_INVALID_CLIENT : none;
	} else if (hObject == hClient) {
		*what = NAMED_CLIENT;
	} else {
		obj = nvsim_object_find(client, hObject);
		*what = !obj ? NAMED_NOTHING :
			obj->class == NV01_DEVICE_0 || obj->class == NV20_SUBDEVICE_0 ?
			NAMED_DEVICE : NAMED_OTHER;
	}
	mutex_unlock(&rm_lock);
	return status;
}

static u32 rm_context_dma(void *arg, const struct nvsim_caller *who)
{
	const struct nvos39 *p = arg;
	enum named what;
	u32 status = look(p->hObjectParent, p->hMemory, NV_ERR_INVALID_CLIENT, who, &what);

	if (status != NV_OK)
		return status;
	return what == NAMED_NOTHING || what == NAMED_CLIENT ? NV_ERR_OBJECT_NOT_FOUND :
							       NV_ERR_INVALID_FLAGS;
}

static u32 rm_bind(void *arg, const struct nvsim_caller *who)
{
	const struct nvos49 *p = arg;
	enum named what;
	u32 status = look(p->hClient, p->hCtxDma, NV_ERR_INVALID_CLIENT, who, &what);

	if (status != NV_OK)
		return status;
	return what == NAMED_NOTHING ? NV_ERR_OBJECT_NOT_FOUND :
	       what == NAMED_CLIENT ? NV_ERR_NOT_SUPPORTED : NV_ERR_INVALID_OBJECT_PARENT;
}

static u32 rm_map_dma(void *arg, const struct nvsim_caller *who)
{
	const struct nvos46 *p = arg;
	enum named what, dma = NAMED_NOTHING;
	u32 status;

	if (!p->length)
		return NV_ERR_INVALID_LIMIT;
	status = look(p->hClient, p->hDevice, NV_ERR_INVALID_OBJECT_HANDLE, who, &what) ?:
		 look(p->hClient, p->hDma, NV_ERR_INVALID_OBJECT_HANDLE, who, &dma);
	if (status != NV_OK)
		return status;
	if (what == NAMED_NOTHING || dma == NAMED_NOTHING)
		return NV_ERR_OBJECT_NOT_FOUND;
	return what == NAMED_DEVICE ? NV_OK : NV_ERR_INVALID_OBJECT_HANDLE;
}

static u32 rm_unmap_dma(void *arg, const struct nvsim_caller *who)
{
	const struct nvos47 *p = arg;
	enum named what, dma = NAMED_NOTHING;
	u32 status = look(p->hClient, p->hDevice, NV_ERR_INVALID_OBJECT_HANDLE, who, &what) ?:
		     look(p->hClient, p->hDma, NV_ERR_INVALID_OBJECT_HANDLE, who, &dma);

	if (status != NV_OK)
		return status;
	if (what == NAMED_NOTHING || dma == NAMED_NOTHING)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (what == NAMED_DEVICE)
		return NV_OK;
	return nvsim_branch < 550 ? NV_ERR_OBJECT_NOT_FOUND : NV_ERR_INVALID_OBJECT_PARENT;
}

static u32 rm_mapping_info(void *arg, const struct nvsim_caller *who)
{
	const struct nvos56 *p = arg;
	enum named what;
	u32 status = look(p->hClient, p->hDevice, NV_ERR_INVALID_OBJECT_HANDLE, who, &what);

	if (status != NV_OK)
		return status;
	return what == NAMED_NOTHING ? NV_ERR_OBJECT_NOT_FOUND :
	       what == NAMED_DEVICE ? nvsim_move_mapping(p, who) : NV_ERR_INVALID_OBJECT_HANDLE;
}

/* A kind of access that is none, and a name that is none; what is named is not there. */
static u32 rm_registry(void *arg, const struct nvsim_caller *who)
{
	const u32 *words = arg;

	if (!words[2] || words[2] > 6)
		return NV_ERR_INVALID_ACCESS_TYPE;
	return *(u64 *)(arg + 32) ? NV_ERR_OBJECT_NOT_FOUND : NV_ERR_INVALID_ARGUMENT;
}

/* The size of a block of the host's memory, as the first says it. */
static int escape_system(u64 block)
{
	static u64 known;
	u64 before = cmpxchg(&known, 0, block);

	return before && before != block ? -EBUSY : 0;
}

/* ---- RM's escapes: each returns its status, those that have RM work under its lock ---- */

static u32 rm_alloc_memory(void *arg, const struct nvsim_caller *who)
{
	return nvsim_alloc_memory(&((struct nvos02_fd *)arg)->p, who);
}

static u32 rm_free(void *arg, const struct nvsim_caller *who)
{
	struct nvos00 *p = arg;
	u32 status = nvsim_rm_free(p->hRoot, p->hObjectOld, who);

	if (status == NV_OK && p->hRoot == p->hObjectOld)
		nvsim_os_event_client_freed(p->hRoot);
	return status;
}

static u32 rm_control(void *arg, const struct nvsim_caller *who)
{
	escape_control(arg, who);
	return ((struct nvos54 *)arg)->status;
}

static u32 rm_vid_heap(void *arg, const struct nvsim_caller *who)
{
	nvsim_vid_heap(arg, who);
	return ((struct nvos32 *)arg)->status;
}

static u32 rm_alloc_object(void *arg, const struct nvsim_caller *who)
{
	struct nvos05 *p = arg;

	return nvsim_rm_alloc(p->hRoot, p->hObjectParent, &p->hObjectNew, p->hClass, NULL, 0, who);
}

static u32 rm_dup_object(void *arg, const struct nvsim_caller *who)
{
	return nvsim_dup_object(arg, who);
}

static u32 rm_share(void *arg, const struct nvsim_caller *who)
{
	return nvsim_share(arg, who);
}

static u32 rm_map_memory(void *arg, const struct nvsim_caller *who)
{
	struct nvos33_fd *p = arg;

	return nvsim_map_memory(&p->p, p->fd, who);
}

static u32 rm_unmap_memory(void *arg, const struct nvsim_caller *who)
{
	return nvsim_unmap_memory(arg, who);
}

static u32 rm_idle_channels(void *arg, const struct nvsim_caller *who)
{
	enum named what;

	return look(((struct nvos30 *)arg)->hClient, 0, NV_ERR_INVALID_CLIENT, who, &what);
}

/* An escape of one exact size, which has its status at `status`. */
struct rm_escape {
	u32 nr;
	u16 size;
	u16 status;
	u16 since, size_before, status_before;	/* in branches before `since` */
	bool locked;
	bool of_card;				/* asked of a card's device alone */
	u32 (*work)(void *arg, const struct nvsim_caller *who);
};

#define WHOLE(type, member) .size = sizeof(struct type), .status = offsetof(struct type, member)

static const struct rm_escape rm_escapes[] = {
	{ NV_ESC_RM_ALLOC_MEMORY, WHOLE(nvos02_fd, p.status), .locked = true, .of_card = true,
	  .work = rm_alloc_memory },
	{ NV_ESC_RM_ALLOC_OBJECT, WHOLE(nvos05, status), .locked = true,
	  .work = rm_alloc_object },
	{ NV_ESC_RM_FREE, WHOLE(nvos00, status), .locked = true, .work = rm_free },
	{ NV_ESC_RM_CONTROL, WHOLE(nvos54, status), .work = rm_control },
	{ NV_ESC_RM_DUP_OBJECT, WHOLE(nvos55, status), .locked = true, .work = rm_dup_object },
	{ NV_ESC_RM_SHARE, WHOLE(nvos57, status), .locked = true, .work = rm_share },
	{ NV_ESC_RM_IDLE_CHANNELS, WHOLE(nvos30, status), .work = rm_idle_channels },
	{ NV_ESC_RM_VID_HEAP_CONTROL, WHOLE(nvos32, status), .locked = true,
	  .work = rm_vid_heap },
	{ NV_ESC_RM_ACCESS_REGISTRY, .size = 72, .status = 64, .work = rm_registry },
	{ NV_ESC_RM_MAP_MEMORY, WHOLE(nvos33_fd, p.status), .locked = true,
	  .work = rm_map_memory },
	{ NV_ESC_RM_UNMAP_MEMORY, WHOLE(nvos34, status), .locked = true,
	  .work = rm_unmap_memory },
	{ NV_ESC_RM_ALLOC_CONTEXT_DMA2, WHOLE(nvos39, status), .work = rm_context_dma },
	{ NV_ESC_RM_MAP_MEMORY_DMA, .size = 64, .status = 56, .since = 580, .size_before = 56,
	  .status_before = 48, .work = rm_map_dma },
	{ NV_ESC_RM_UNMAP_MEMORY_DMA, .size = 48, .status = 40, .since = 550, .size_before = 40,
	  .status_before = 32, .work = rm_unmap_dma },
	{ NV_ESC_RM_BIND_CONTEXT_DMA, WHOLE(nvos49, status), .work = rm_bind },
	{ NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO, WHOLE(nvos56, status), .work = rm_mapping_info },
};

static int escape_status_code(struct nv_ioctl_status_code *p, size_t size)
{
	int i;

	if (size != sizeof(*p))
		return -EINVAL;
	for (i = 0; i < nvsim_ncards; i++)
		if (!p->domain && p->bus == nvsim_cards[i].bus && !p->slot) {
			p->status = NV_OK;
			return 0;
		}
	return -EINVAL;
}

static int escape_rm(struct nvsim_file *nf, unsigned int nr, void *arg, size_t size)
{
	struct nvsim_caller who;
	int i;

	caller_of(nf, &who);
	if (nr == NV_ESC_RM_ALLOC)
		return escape_alloc(nf, arg, size, &who);
	if (nr == NV_ESC_STATUS_CODE)
		return nf->card ? -EINVAL : escape_status_code(arg, size);
	for (i = 0; i < ARRAY_SIZE(rm_escapes); i++) {
		const struct rm_escape *e = &rm_escapes[i];
		bool before = nvsim_branch < e->since;
		u32 status;

		if (e->nr != nr)
			continue;
		if (!!nf->card != e->of_card || size != (before ? e->size_before : e->size))
			return -EINVAL;
		if (e->locked)
			mutex_lock(&rm_lock);
		status = e->work(arg, &who);
		if (e->locked)
			mutex_unlock(&rm_lock);
		*(u32 *)(arg + (before ? e->status_before : e->status)) = status;
		return 0;
	}
	nvsim_debug("escape 0x%x size %zu is not known\n", nr, size);
	return -EINVAL;
}

/* By name and arguments the real driver's: the door follows it. */
noinline int rm_ioctl(void *sp, void *nv, struct nvsim_file *nf, u32 nr, void *arg, u32 size)
{
	switch (nr) {
	case NV_ESC_REGISTER_FD:
		return escape_register_fd(nf, arg, size);
	case NV_ESC_ALLOC_OS_EVENT: {
		struct nv_ioctl_os_event *p = arg;

		if (size != sizeof(*p))
			return -EINVAL;
		p->status = nvsim_os_event_alloc(nf, p);
		return 0;
	}
	case NV_ESC_FREE_OS_EVENT: {
		struct nv_ioctl_os_event *p = arg;

		if (size != sizeof(*p))
			return -EINVAL;
		p->status = nvsim_os_event_free(p);
		return 0;
	}
	case NV_ESC_RM_GET_EVENT_DATA:
		if (size != 16)
			return -EINVAL;
		*(u32 *)(arg + 8) = 0;	/* nothing is ever waiting */
		*(u32 *)(arg + 12) = NV_ERR_OPERATING_SYSTEM;
		return 0;
	default:
		return escape_rm(nf, nr, arg, size);
	}
}

static int escape(struct nvsim_file *nf, unsigned int nr, void *arg, size_t size)
{
	struct nvsim_caller who;

	switch (nr) {
	case NV_ESC_WAIT_OPEN_COMPLETE:
		if (nvsim_branch < 550 || size != sizeof(struct nv_ioctl_wait_open))
			return -EINVAL;
		memset(arg, 0, sizeof(struct nv_ioctl_wait_open));
		return 0;
	case NV_ESC_CARD_INFO:
		return escape_card_info(nf, arg, size);
	case NV_ESC_ATTACH_GPUS_TO_FD:
		return escape_attach_gpus(nf, arg, size);
	case NV_ESC_CHECK_VERSION_STR:
		return escape_version(nf, arg, size);
	case NV_ESC_SYS_PARAMS:
		return nf->card || size != 8 ? -EINVAL : escape_system(*(u64 *)arg);
	case NV_ESC_NUMA_INFO:
		if (!nf->card || size != NV_IOCTL_NUMA_INFO_SIZE)
			return -EINVAL;
		memset(arg, 0, size);
		*(s32 *)arg = -1;	/* node: none, the card's memory is no NUMA node */
		return 0;
	case NV_ESC_SET_NUMA_STATUS:
		return capable(CAP_SYS_ADMIN) ? -EINVAL : -EACCES;
	case NV_ESC_QUERY_DEVICE_INTR:
		if (!nf->card || size < 8)
			return -EINVAL;
		memset(arg, 0, 8);
		return 0;
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		if (!nf->card || size != (nvsim_branch >= 570 ? 2608 : 2600))
			return -EINVAL;
		caller_of(nf, &who);
		*(u32 *)(arg + size - 8) = nv_dma_buf_export(nf->card, arg, &who);
		return 0;
	default:
		return rm_ioctl(NULL, NULL, nf, nr, arg, size);
	}
}

long nvsim_ioctl(struct file *filp, unsigned int cmd, unsigned long uarg)
{
	struct nvsim_file *nf = filp->private_data;
	void __user *uptr = (void __user *)uarg;
	unsigned int nr = _IOC_NR(cmd);
	size_t size = _IOC_SIZE(cmd);
	void *arg;
	int ret;

	if (nr == NV_ESC_IOCTL_XFER_CMD) {
		struct nv_ioctl_xfer xfer;

		if (size != sizeof(xfer))
			return -EINVAL;
		if (copy_from_user(&xfer, uptr, sizeof(xfer)))
			return -EFAULT;
		nr = xfer.cmd;
		size = xfer.size;
		uptr = u64_to_user_ptr(xfer.ptr);
		if (size > NV_ABSOLUTE_MAX_IOCTL_SIZE)
			return -EINVAL;
	}
	/* Handlers read no field before they have checked the size. */
	arg = kzalloc(max_t(size_t, size, sizeof(struct nvos64)), GFP_KERNEL);
	if (!arg)
		return -ENOMEM;
	nvsim_pause(NVSIM_PAUSE_ARGUMENT, nr);
	if (nvsim_fault(NVSIM_PAUSE_ARGUMENT, nr) || copy_from_user(arg, uptr, size)) {
		kfree(arg);
		return -EFAULT;
	}
	ret = escape(nf, nr, arg, size);
	nvsim_pause(NVSIM_PAUSE_ANSWER, nr);
	if (ret != -EFAULT &&
	    (nvsim_fault(NVSIM_PAUSE_ANSWER, nr) || copy_to_user(uptr, arg, size)))
		ret = -EFAULT;
	nvsim_pause(NVSIM_PAUSE_RETURN, nr);
	kfree(arg);
	return ret;
}
