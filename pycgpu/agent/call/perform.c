// SPDX-License-Identifier: GPL-2.0-only
/*
 * Performs a tenant's call on a duplicate of its file, with copies of all that the driver reads. So
 * no thread of the tenant can change what was decided on, or which file it is about.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include "call/call.h"
#include "driver/driver.h"
#include "tenant/tenant.h"

enum {
	CLASS_BYTES_READ = 4096, /* bytes read of a class whose size the agent does not know */
	/* GPU_GET_PID_INFO: count, then entries of pid, index, result, figures, instance */
	PID_INFO_FIRST = 8,
	PID_INFO_BYTES = 72,
	PID_INFO_FIGURES = 16,
	PID_INFO_INSTANCE = 64,
	PID_INFO_MAX = 200
};

/* A value that is no status of the driver's. */
#define NOT_ANSWERED 0xc9b0aa55u

bool copy_in(struct flight *f, uint64_t from, void *to, size_t size)
{
	struct iovec local = { to, size }, remote = { (void *)(uintptr_t)from, size };

	return !size || process_vm_readv(f->tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static bool copy_out(int mem, uint64_t to, const void *from, size_t size)
{
	return !size || pwrite(mem, from, size, (off_t)to) == (ssize_t)size;
}

static bool is_root_class(uint32_t hClass)
{
	return hClass == NV01_ROOT || hClass == NV01_ROOT_NON_PRIV || hClass == NV01_ROOT_CLIENT;
}

/* escapes that the core does not interpret, without a pointer or a descriptor */
static bool is_flat(uint32_t nr)
{
	switch (nr) {
	case NV_ESC_CARD_INFO:
	case NV_ESC_CHECK_VERSION_STR:
	case NV_ESC_ATTACH_GPUS_TO_FD:
	case NV_ESC_SYS_PARAMS:
	case NV_ESC_WAIT_OPEN_COMPLETE:
		return true;
	default:
		return false;
	}
}

bool performs(const struct flight *f)
{
	const struct cgpu_request *req = &f->call.req;

	if (req->op == CGPU_OP_ALLOC) {
		/* the driver ties a client to the process that allocates it */
		if (is_root_class(req->hClass))
			return false;
		/* the driver asserts that a device is allocated by its client's process */
		return f->wrapped || req->hClass != NV01_DEVICE_0;
	}
	return cgpu_op_performable(req->op) ||
	       (f->device != CGPU_DEVICE_UVM && is_flat(req->nr));
}

bool refuses(const struct flight *f)
{
	const struct cgpu_request *req = &f->call.req;

	switch (req->op) {
	case CGPU_OP_CONTROL:
		return req->flags & NVOS54_FLAGS_FINN_SERIALIZED ||
		       cgpu_control_rule(req->cmd)->opaque;
	case CGPU_OP_ALLOC:
		/* object.c says why a tenant may not choose a client's number */
		if (cgpu_class_rule(req->hClass)->opaque ||
		    (is_root_class(req->hClass) && (req->nr != NV_ESC_RM_ALLOC || req->hClient)))
			return true;
		break;
	case CGPU_OP_HEAP_ALLOC:
		return req->hClass == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
	case CGPU_OP_EXPORT_DMABUF:
		/* into an existing dma-buf: the driver would look for it among our descriptors */
		return req->fd != -1;
	case CGPU_OP_UVM_INITIALIZE:
		/* a shared address space maps into any process, and outlives them all */
		return req->flags & ~(uint32_t)UVM_INIT_FLAGS_DISABLE_HMM;
	case CGPU_OP_HEAP_OTHER:
		return true;
	default:
		break;
	}
	/* the driver would look at the wrapper again, which could hold any call by then */
	return f->wrapped && !performs(f);
}

/* ------------------------------------------------------------ what is read */

/* No command of UVM's points to parameters. */
static const struct cgpu_ioctl_rule *escape_of(const struct flight *f)
{
	static const struct cgpu_ioctl_rule none;

	return f->device != CGPU_DEVICE_UVM && f->call.req.nr < CGPU_ESCAPES ?
	       &cgpu_escapes[f->call.req.nr] : &none;
}

static bool make_params(struct flight *f, uint32_t bytes)
{
	uint32_t capacity = bytes < CLASS_BYTES ? CLASS_BYTES : bytes;

	if (capacity > f->params_capacity) {
		uint8_t *params = f->params, *before = f->before;

		f->params_capacity = 0;
		f->params = f->before = NULL;
		arena_free(params);
		arena_free(before);
		f->params = arena_alloc(capacity);
		f->before = arena_alloc(capacity);
		f->params_capacity = f->params && f->before ? capacity : 0;
	}
	if (capacity > f->params_capacity)
		return false;
	memset(f->params, 0, capacity);
	return true;
}

/* The driver knows a class's size and reads no more; the agent may not know it. */
static int read_class(struct flight *f, uint32_t known_bytes)
{
	struct iovec local = { f->params, known_bytes ? known_bytes : CLASS_BYTES_READ };
	struct iovec remote = { (void *)(uintptr_t)f->params_at, local.iov_len };
	ssize_t got = process_vm_readv(f->tid, &local, 1, &remote, 1, 0);

	if (got <= 0 || (known_bytes && got != (ssize_t)known_bytes))
		return -EFAULT;
	f->params_bytes = (uint32_t)got;
	return 0;
}

/* Reads the lists, whose pointers would otherwise point into the agent. */
static int read_lists(struct flight *f)
{
	const struct cgpu_pointer *p = cgpu_control_rule(f->call.req.cmd)->pointer;
	uint32_t used = 0;
	int i;

	for (i = 0; i < CGPU_POINTERS_MAX && p[i].at; i++) {
		uint32_t place = p[i].at - 1u;
		uint64_t at, bytes;

		/* the driver refuses parameters of the wrong size */
		if (place + 8 > f->params_bytes)
			return -EINVAL;
		at = cgpu_get64(f->params, place);
		if (!at)
			continue;
		bytes = p[i].count ? (uint64_t)cgpu_get32(f->params, p[i].count - 1u) *
				     p[i].element_bytes : 0;
		if (bytes > LISTS_BYTES - used)
			return -EINVAL;
		if (!copy_in(f, at, f->lists + used, bytes))
			return -EFAULT;
		f->list[f->list_count].at = at;
		f->list[f->list_count].offset = used;
		f->list[f->list_count].bytes = (uint32_t)bytes;
		f->list[f->list_count++].pointer = place;
		used += (uint32_t)(bytes + 7) & ~7u;
	}
	return 0;
}

/* Where the call names a descriptor of the tenant, NULL: it names none. */
static uint8_t *descriptor_of(struct flight *f)
{
	const struct cgpu_request *req = &f->call.req;
	uint32_t place;

	if (req->op == CGPU_OP_REGISTER_FD)
		return f->args;
	/* the driver of 535 to 595 does not look at it */
	if (req->op == CGPU_OP_UVM_REGISTER_GPU)
		return f->args + offsetof(struct uvm_register_gpu, rmCtrlFd);
	place = req->op == CGPU_OP_CONTROL ? cgpu_control_rule(req->cmd)->fd : 0;
	return place && place + 3 <= f->params_bytes ? f->params + place - 1 : NULL;
}

/* Where the call names a descriptor of nvidia-caps, NULL: it names none. */
static uint8_t *capability_of(struct flight *f)
{
	const struct cgpu_request *req = &f->call.req;
	uint32_t place;

	place = req->op == CGPU_OP_ALLOC && f->params_at ?
		cgpu_class_rule(req->hClass)->capability : 0;
	return place ? f->params + place - 1 : NULL;
}

static uint32_t lists_end(const struct flight *f)
{
	return f->list_count ? f->list[f->list_count - 1].offset +
			       f->list[f->list_count - 1].bytes : 0;
}

int perform_read(struct flight *f)
{
	struct cgpu_request *req = &f->call.req;
	uint8_t *descriptor;
	int err = 0;

	f->params_at = 0;
	f->params_bytes = f->list_count = 0;
	f->call.args = f->args;
	if (escape_of(f)->params)
		f->params_at = cgpu_get64(f->args, escape_of(f)->params - 1u);
	if (!f->params_at)
		return 0;
	if (req->op == CGPU_OP_CONTROL) {
		f->params_bytes = cgpu_get32(f->args, offsetof(struct nvos54, paramsSize));
		if (f->params_bytes > PARAMS_BYTES_MAX)
			return -EINVAL;
	}
	if (!make_params(f, f->params_bytes))
		return -ENOMEM;
	if (req->op == CGPU_OP_ALLOC)
		err = read_class(f, req->params_size);
	else if (!copy_in(f, f->params_at, f->params, f->params_bytes))
		err = -EFAULT;
	if (!err && req->op == CGPU_OP_CONTROL)
		err = read_lists(f);
	if (err)
		return err;
	memcpy(f->before, f->params, f->params_bytes);
	memcpy(f->lists_before, f->lists, lists_end(f));
	if (req->params_size) {
		f->call.params = f->params;
		f->call.before = f->before;
		cgpu_decode_params(&door.abi, f->params, req->params_size, req);
	}
	descriptor = descriptor_of(f);
	if (descriptor)
		req->fd = (int32_t)cgpu_get32(descriptor, 0);
	return 0;
}

/* ------------------------------------------------------------- the call */

/* Removes the pids of other containers. */
static void filter_pids(struct flight *f)
{
	uint32_t count = cgpu_get32(f->params, CGPU_GPU_PIDS_COUNT), kept = 0, i;

	for (i = 0; i < count && i < CGPU_GPU_PIDS_MAX; i++) {
		uint32_t pid = cgpu_get32(f->params, CGPU_GPU_PIDS_TABLE + 4 * i);

		if (process_exists(f->c, (int)pid))
			cgpu_put32(f->params, CGPU_GPU_PIDS_TABLE + 4 * kept++, pid);
	}
	cgpu_put32(f->params, CGPU_GPU_PIDS_COUNT, kept);
	for (i = kept; i < count && i < CGPU_GPU_PIDS_MAX; i++)
		cgpu_put32(f->params, CGPU_GPU_PIDS_TABLE + 4 * i, 0);
}

/* Other containers' processes look as if they hold nothing. */
static void hide_others(struct flight *f)
{
	uint32_t count = cgpu_get32(f->params, 0), i;

	for (i = 0; i < count && i < PID_INFO_MAX; i++) {
		uint32_t at = PID_INFO_FIRST + PID_INFO_BYTES * i;
		uint8_t *entry = f->params + at;

		if (at + PID_INFO_BYTES > f->params_bytes)
			break;
		if (process_exists(f->c, (int)cgpu_get32(entry, 0)))
			continue;
		memset(entry + PID_INFO_FIGURES, 0, PID_INFO_INSTANCE - PID_INFO_FIGURES);
		memset(entry + PID_INFO_INSTANCE, 0xff, PID_INFO_BYTES - PID_INFO_INSTANCE);
	}
}

/* Where the argument points to the rights that a handle gets, 0: nowhere. */
static uint32_t rights_place(const struct flight *f)
{
	return f->call.req.args_size == sizeof(struct nvos64) ? escape_of(f)->rights : 0;
}

/* Replaces the tenant's pointers and descriptors by ours. Return: -EFAULT. */
static int point_here(struct flight *f)
{
	uint32_t status_at = f->call.req.status_offset, i;
	uint8_t *descriptor = descriptor_of(f), *cap = capability_of(f);

	f->rights_at = rights_place(f) ? cgpu_get64(f->args, rights_place(f) - 1) : 0;
	if (f->rights_at && !copy_in(f, f->rights_at, f->rights, RIGHTS_BYTES))
		return -EFAULT;
	if (f->rights_at)
		cgpu_put64(f->args, rights_place(f) - 1, (uintptr_t)f->rights);
	if (f->params_at)
		cgpu_put64(f->args, escape_of(f)->params - 1u, (uintptr_t)f->params);
	for (i = 0; i < f->list_count; i++)
		cgpu_put64(f->params, f->list[i].pointer, f->list[i].bytes ?
			   (uintptr_t)f->lists + f->list[i].offset : 0);
	/* the tenant's number must not name a descriptor of ours */
	if (descriptor)
		cgpu_put32(descriptor, 0, (uint32_t)f->named);
	f->capability = cap ? cgpu_get64(cap, 0) : 0;
	if (cap)
		cgpu_put64(cap, 0, UINT64_MAX);
	if (status_at != CGPU_NO_OFFSET)
		cgpu_put32(f->args, status_at, NOT_ANSWERED);
	return 0;
}

static void point_back(struct flight *f)
{
	uint8_t *descriptor = descriptor_of(f), *cap = capability_of(f);
	uint32_t i;

	if (cap)
		cgpu_put64(cap, 0, f->capability);
	if (descriptor)
		cgpu_put32(descriptor, 0, (uint32_t)f->call.req.fd);
	for (i = 0; i < f->list_count; i++)
		cgpu_put64(f->params, f->list[i].pointer, f->list[i].at);
	if (rights_place(f))
		cgpu_put64(f->args, rights_place(f) - 1, f->rights_at);
	if (f->params_at)
		cgpu_put64(f->args, escape_of(f)->params - 1u, f->params_at);
}

static bool is_answered(const struct flight *f)
{
	uint32_t status_at = f->call.req.status_offset;

	return status_at != CGPU_NO_OFFSET && cgpu_get32(f->args, status_at) != NOT_ANSWERED;
}

/* The driver's answer, as the tenant may see it. */
static void make_presentable(struct flight *f)
{
	struct cgpu_request *req = &f->call.req;

	point_back(f);
	if (f->stage.result || req->op != CGPU_OP_CONTROL)
		return;
	if (req->cmd == NV2080_CTRL_CMD_GPU_GET_PIDS &&
	    req->params_size >= CGPU_GPU_PIDS_TABLE + 4 * CGPU_GPU_PIDS_MAX)
		filter_pids(f);
	if (req->cmd == NV2080_CTRL_CMD_GPU_GET_PID_INFO && f->params_at)
		hide_others(f);
}

/*
 * The driver takes these calls once for a file, and a second time fails with EINVAL alone. No
 * status tells whether an agent that has ended made the first. A file that the core knows as
 * registered is refused as before.
 */
static bool was_done_before(struct flight *f)
{
	bool registered;

	if (f->device == CGPU_DEVICE_UVM || !f->again || f->stage.result != -EINVAL)
		return false;
	if (f->call.req.op != CGPU_OP_REGISTER_FD)
		return f->call.req.nr == NV_ESC_ATTACH_GPUS_TO_FD;
	pthread_mutex_lock(&door.lock);
	registered = cgpu_tenant_file(&f->c->tenant, f->call.file)->registered;
	pthread_mutex_unlock(&door.lock);
	return !registered;
}

int perform(struct flight *f)
{
	struct cgpu_request *req = &f->call.req;
	int err;

	if (req->op == CGPU_OP_CONTROL && req->cmd == NV2080_CTRL_CMD_FB_GET_INFO) {
		if (!req->list_size || f->list_count != 1 || req->list_size > f->list[0].bytes)
			return -EINVAL;
		f->call.list = f->lists;
	}
	err = point_here(f);
	if (err)
		return err;
	f->stage.at = STAGE_ASKED;
	f->stage.result = ioctl(f->fd, f->cmd, f->args) ? -errno : 0;
	if (was_done_before(f))
		f->stage.result = 0;
	if (req->status_offset != CGPU_NO_OFFSET && !is_answered(f))
		cgpu_put32(f->args, req->status_offset, req->status);
	make_presentable(f);
	return f->stage.result;
}

/*
 * The driver writes the status last, into memory that outlives the agent. An ioctl that has begun
 * ends before the agent does. So a status tells that all was done, and no status that nothing was.
 */
bool was_performed(struct flight *f)
{
	if (f->stage.at == STAGE_ASKED) {
		if (!is_answered(f))
			return false;
		f->stage.result = 0;
		make_presentable(f);
	}
	return f->stage.at >= STAGE_ASKED;
}

int exported_here(const struct flight *f)
{
	if (f->stage.at == STAGE_ASKED && f->dmabuf < 0 &&
	    f->call.req.op == CGPU_OP_EXPORT_DMABUF && is_answered(f) &&
	    !cgpu_get32(f->args, f->call.req.status_offset))
		return (int)cgpu_get32(f->args, 0);
	return f->stage.at >= STAGE_ASKED && f->stage.at < STAGE_ANSWERED ? f->dmabuf : -1;
}

/*
 * Copies only what changed: the driver writes no more than the class has, and the agent may not
 * know its size.
 */
static bool deliver_params(struct flight *f, int mem)
{
	uint32_t first = 0, end = f->params_bytes;

	while (first < end && f->params[first] == f->before[first])
		first++;
	while (end > first && f->params[end - 1] == f->before[end - 1])
		end--;
	return copy_out(mem, f->params_at + first, f->params + first, end - first);
}

static int deliver_to(struct flight *f, int mem)
{
	struct cgpu_request *req = &f->call.req;
	bool done = true;
	uint32_t i;

	for (i = 0; i < f->list_count; i++) {
		uint32_t at = f->list[i].offset, bytes = f->list[i].bytes;

		if (memcmp(f->lists + at, f->lists_before + at, bytes))
			done &= copy_out(mem, f->list[i].at, f->lists + at, bytes);
	}
	done &= deliver_params(f, mem);
	done &= copy_out(mem, f->arg, f->args, req->args_size);
	return done ? 0 : -EFAULT;
}

/*
 * The caller's number could name another process by now, even one of the host's: a killed process
 * leaves its number to a new one. The opened file stays the memory of the process that had the
 * number then. That was the caller if it still waits.
 */
int deliver(struct flight *f)
{
	char path[64];
	int mem, err;

	snprintf(path, sizeof(path), "/proc/%d/mem", f->tid);
	mem = open(path, O_WRONLY | O_CLOEXEC);
	if (mem < 0)
		return -EFAULT;
	err = is_valid(f) ? deliver_to(f, mem) : -EINTR;
	close(mem);
	return err;
}

void undo(struct flight *f)
{
	uint8_t args[16];

	cgpu_call_undo_args(&f->call, args);
	rm_ioctl(f->fd, NV_ESC_RM_FREE, args, sizeof(args));
}
