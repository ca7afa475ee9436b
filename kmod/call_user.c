// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver works on a copy that the process cannot write (scratch.c); core
 * decides on the same bytes. Nothing of ours is held while it works.
 */
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "actuator.h"
#include "call_user.h"
#include "calls.h"
#include "core/call.h"
#include "door/events.h"
#include "door/scratch.h"

enum {
	NV_IOCTL_MAGIC = 'F',
	/* FB_GET_INFO: 128 entries of 8 bytes */
	LIST_BYTES_MAX = 1024,
};

/* One call, also while the driver works on it: another core may end it. */
struct flight {
	struct cgpu_call call;
	struct cgpu_slot slot;
	struct cgpu_open_file *open_file;
	struct cgpu_container *container;
	struct file *file;
	cgpu_ioctl_fn driver;
	void __user *arg;           /* the argument, unwrapped */
	struct file *fd;            /* file behind req.fd while the call lasts */
	bool blind;                 /* what it wraps is not interpreted */
	bool tampered;
};

u64 cgpu_call_user_digest(u64 digest)
{
	BUILD_BUG_ON((int)CGPU_ARGS_MAX > (int)CGPU_SLOT_ARGS_BYTES);
	BUILD_BUG_ON((int)CGPU_PARAMS_MAX > (int)CGPU_SLOT_PARAMS_BYTES);
	digest = cgpu_digest(digest, sizeof(struct flight));
	return cgpu_digest(digest, offsetof(struct flight, slot));
}

/*
 * A process that unmaps the scratch area under a call, or frees memory while
 * it maps it, tries to escape; what the driver did is not known any more.
 */
static void kill_container(struct cgpu_container *container, const char *why)
{
	struct task_struct *task;

	pr_warn_ratelimited("cgpu: container %s killed: %s\n", container->id, why);
	cgpu_event("killed id=%s pid=%d %s", container->id, task_tgid_nr(current), why);
	rcu_read_lock();
	for_each_process(task)
		if (cgpu_container_has(container, task))
			send_sig(SIGKILL, task, 1);
	rcu_read_unlock();
}

/* the container's own file behind a fd that the request names */
static void resolve_fd(struct flight *flight)
{
	struct cgpu_open_file *named;

	flight->call.fd_file = 0;
	if (flight->call.req.fd < 0)
		return;
	flight->fd = fget(flight->call.req.fd);
	if (!flight->fd)
		return;
	named = cgpu_open_file_find(flight->fd);
	if (named && cgpu_open_file_container(named) == flight->container)
		flight->call.fd_file = cgpu_open_file_number(named);
}

/* after the driver: does the fd still name the same file? */
static bool fd_unchanged(struct flight *flight)
{
	struct file *now;

	if (!flight->fd)
		return true;
	now = fget(flight->call.req.fd);
	if (now)
		fput(now);
	return now == flight->fd;
}

static int copy_params_in(struct flight *flight)
{
	struct cgpu_request *req = &flight->call.req;

	if (!req->params_size)
		return 0;
	if (copy_from_user(flight->slot.params, u64_to_user_ptr(req->params_ptr),
			   req->params_size))
		return -EFAULT;
	memcpy(flight->slot.before, flight->slot.params, req->params_size);
	flight->call.params = flight->slot.params;
	cgpu_put64(flight->slot.args, req->params_ptr_offset, flight->slot.params_user);
	cgpu_decode_params(cgpu_calls_abi(), flight->slot.params, req->params_size, req);
	return 0;
}

static int copy_params_out(struct flight *flight)
{
	struct cgpu_request *req = &flight->call.req;

	if (!req->params_size)
		return 0;
	cgpu_put64(flight->slot.args, req->params_ptr_offset, req->params_ptr);
	/* a caller's constant stays untouched, as the driver leaves it */
	if (!memcmp(flight->slot.before, flight->slot.params, req->params_size))
		return 0;
	return copy_to_user(u64_to_user_ptr(req->params_ptr), flight->slot.params,
			    req->params_size) ? -EFAULT : 0;
}

/* the list behind FB_GET_INFO's parameters: the caller's own memory */
static u8 *copy_list_in(struct flight *flight)
{
	struct cgpu_request *req = &flight->call.req;
	u8 *list;

	if (!req->list_size || req->list_size > LIST_BYTES_MAX)
		return NULL;
	list = memdup_user(u64_to_user_ptr(req->list_ptr), req->list_size);
	return IS_ERR(list) ? NULL : list;
}

/* RM_FREE of what the core does not want to exist */
static long undo(struct flight *flight)
{
	struct cgpu_slot slot;
	long ret = cgpu_slot_get(&slot);

	if (ret)
		return ret;
	cgpu_call_undo_args(&flight->call, slot.args);
	ret = flight->driver(flight->file,
			       _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC,
				    NV_ESC_RM_FREE, 16), slot.args_user);
	if (cgpu_slot_put(&slot))
		flight->tampered = true;
	return ret;
}

/* groups or channels came, went or were scheduled */
static void tell_engine(struct flight *flight)
{
	struct cgpu_container *container = flight->container;
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (container->grant[minor].present)
			cgpu_actuator_hold_new(container, minor);
	cgpu_actuator_poke_container(container);
}

static void settle(struct flight *flight, long result)
{
	struct cgpu_container *container = flight->container;
	struct cgpu_call *call = &flight->call;
	struct file *dmabuf = NULL;
	u32 changes;
	int verdict;

	if (call->req.op == CGPU_OP_EXPORT_DMABUF && !result &&
	    !cgpu_get32(call->args, call->req.status_offset)) {
		dmabuf = fget(cgpu_get32(call->args, 0));
		call->fd_file = dmabuf ? cgpu_open_file_watch_dmabuf(dmabuf, container) : 0;
	} else if (!fd_unchanged(flight)) {
		flight->tampered = true;
	}
	call->list = result ? NULL : copy_list_in(flight);

	cgpu_tenant_make_room(container);
	mutex_lock(&container->lock);
	changes = container->tenant.objects.runnable_changes;
	verdict = cgpu_call_post(&container->tenant, &cgpu_registry->host.topology, call,
				 result);
	changes -= container->tenant.objects.runnable_changes;
	mutex_unlock(&container->lock);
	if (changes)
		tell_engine(flight);

	if (verdict == CGPU_UNDO) {
		if (undo(flight))
			flight->tampered = true;
		mutex_lock(&container->lock);
		cgpu_call_undone(&container->tenant, call);
		mutex_unlock(&container->lock);
	}
	if (verdict == CGPU_KILL)
		flight->tampered = true;
	if (!result && call->req.op == CGPU_OP_UVM_INITIALIZE &&
	    !cgpu_get32(call->args, call->req.status_offset) &&
	    cgpu_open_file_watch_mm(flight->open_file))
		cgpu_put32(call->args, call->req.status_offset, NV_ERR_NO_MEMORY);
	if (call->list && copy_to_user(u64_to_user_ptr(call->req.list_ptr), call->list,
				       call->req.list_size))
		pr_debug("cgpu: list of the caller is not writable\n");
	kfree(call->list);
	if (dmabuf)
		fput(dmabuf);
}

static void report_refusal(struct flight *flight)
{
	struct cgpu_call *call = &flight->call;
	u32 status = call->req.status_offset == CGPU_NO_OFFSET ?
		NV_ERR_INSUFFICIENT_PERMISSIONS :
		cgpu_get32(call->args, call->req.status_offset);

	if (status == NV_OK)
		return;
	/* a tenant must not be able to push everybody else's lines out of `events` */
	if (!__ratelimit(&flight->container->refusals))
		goto kill;
	if (status == NV_ERR_NO_MEMORY)
		cgpu_event("oom id=%s gpu=%u pid=%d bytes=%llu", flight->container->id,
			   call->card, task_tgid_nr(current), call->req.size_bytes);
	else
		cgpu_event("refused id=%s pid=%d nr=%u cmd=%#x class=%#x status=%#x",
			   flight->container->id, task_tgid_nr(current), call->req.nr,
			   call->req.cmd, call->req.hClass, status);
kill:
	if (call->kill)
		send_sig(SIGKILL, current, 1);
}

/* Copies back what the core or the driver answered. Return: what the ioctl returns. */
static long deliver(struct flight *flight)
{
	long ret = copy_params_out(flight);

	if (copy_to_user(flight->arg, flight->call.args, flight->call.req.args_size))
		ret = -EFAULT;
	return ret;
}

/* The end of every flight. */
static void land(struct flight *flight)
{
	if (flight->fd)
		fput(flight->fd);
	if (cgpu_slot_put(&flight->slot))
		flight->tampered = true;
	if (flight->tampered)
		kill_container(flight->container, "raced its own ioctl");
	kfree(flight);
}

/* Return: 0: the driver shall work, 1: it is answered, `*ret` is the ioctl's result. */
static int depart(struct flight *flight, long *ret)
{
	struct cgpu_container *container = flight->container;
	struct cgpu_call *call = &flight->call;
	struct cgpu_request *req = &call->req;
	int verdict;

	if (copy_params_in(flight)) {
		/* as the driver answers; it must not look for itself */
		*ret = -EFAULT;
		if (req->status_offset == CGPU_NO_OFFSET)
			return 1;
		cgpu_put32(call->args, req->status_offset, NV_ERR_INVALID_ADDRESS);
		if (!copy_to_user(flight->arg, call->args, req->args_size))
			*ret = 0;
		return 1;
	}
	resolve_fd(flight);
	call->file = cgpu_open_file_number(flight->open_file);
	call->pid = task_tgid_nr(current);
	call->privileged = capable(CAP_SYS_ADMIN);

	cgpu_tenant_make_room(container);
	mutex_lock(&container->lock);
	verdict = cgpu_call_pre(&container->tenant, &cgpu_registry->host.topology, call);
	mutex_unlock(&container->lock);
	if (verdict != CGPU_ANSWER)
		return 0;
	report_refusal(flight);
	*ret = call->error ? call->error : deliver(flight);
	return 1;
}

/* UVM numbers carry no size; those of RM do, and only their number counts */
static u32 command_number(u32 device, unsigned int cmd)
{
	return device == CGPU_DEVICE_UVM ? cmd : _IOC_NR(cmd);
}

/* Return: as depart(). */
static int unwrap(struct flight *flight, struct cgpu_pass *pass, long *ret)
{
	u32 inner_cmd, inner_size;
	u64 inner_ptr;

	*ret = -EINVAL;
	if (_IOC_SIZE(pass->cmd) != 16)
		return 1;
	if (copy_from_user(flight->slot.args, flight->arg, 16)) {
		*ret = -EFAULT;
		return 1;
	}
	if (cgpu_decode_xfer(flight->slot.args, 16, &inner_cmd, &inner_size, &inner_ptr))
		return 1;
	if (!cgpu_interprets(inner_cmd)) {
		/* the wrapper stays a private copy, so that it cannot change to one */
		flight->blind = true;
		return 0;
	}
	flight->arg = u64_to_user_ptr(inner_ptr);
	if (copy_from_user(flight->slot.args, flight->arg, inner_size)) {
		*ret = -EFAULT;
		return 1;
	}
	if (cgpu_decode(cgpu_calls_abi(), cgpu_open_file_device(flight->open_file), inner_cmd,
			flight->slot.args, inner_size, &flight->call.req))
		return 1;
	pass->cmd = _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, inner_cmd, inner_size);
	return depart(flight, ret);
}

/* Return: as depart(). */
static int read_argument(struct flight *flight, struct cgpu_pass *pass, u32 size, long *ret)
{
	u32 device = cgpu_open_file_device(flight->open_file);
	u32 nr = command_number(device, pass->cmd);

	if (device != CGPU_DEVICE_UVM && nr == NV_ESC_IOCTL_XFER_CMD)
		return unwrap(flight, pass, ret);
	*ret = -EFAULT;
	if (copy_from_user(flight->slot.args, flight->arg, size))
		return 1;
	*ret = -EINVAL;
	if (cgpu_decode(cgpu_calls_abi(), device, nr, flight->slot.args, size,
			&flight->call.req))
		return 1;
	return depart(flight, ret);
}

static long begin(struct cgpu_open_file *open_file, struct cgpu_pass *pass, u32 size)
{
	struct flight *flight;
	long ret;

	/* too large for the stack: the held charges of an export */
	flight = kzalloc(sizeof(*flight), GFP_KERNEL);
	if (!flight)
		return -ENOMEM;
	ret = cgpu_slot_get(&flight->slot);
	if (ret) {
		kfree(flight);
		return ret;
	}
	flight->open_file = open_file;
	flight->container = cgpu_open_file_container(open_file);
	flight->file = pass->file;
	flight->driver = pass->driver;
	flight->arg = (void __user *)pass->arg;
	flight->call.args = flight->slot.args;
	if (read_argument(flight, pass, size, &ret)) {
		land(flight);
		return ret;
	}
	pass->arg = flight->slot.args_user;
	pass->token = flight;
	return 0;
}

void cgpu_call_begin(struct cgpu_open_file *open_file, struct cgpu_pass *pass)
{
	struct cgpu_container *container = cgpu_open_file_container(open_file);
	u32 size = cgpu_args_size(cgpu_calls_abi(), cgpu_open_file_device(open_file),
				  pass->cmd);

	/* a process of another container that was handed this file */
	if (!cgpu_container_has(container, current) && cgpu_container_is_managed(current)) {
		if (__ratelimit(&container->refusals))
			cgpu_event("refused id=%s pid=%d file of another container",
				   container->id, task_tgid_nr(current));
		pass->result = -EPERM;
		pass->answered = true;
	} else if (size) {
		pass->result = begin(open_file, pass, size);
		pass->answered = !pass->token;
	}
}

long cgpu_call_end(struct cgpu_pass *pass, long result)
{
	struct flight *flight = pass->token;

	if (!flight->blind) {
		settle(flight, result);
		if (!result)
			result = deliver(flight);
	}
	land(flight);
	return result;
}
