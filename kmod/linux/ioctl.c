// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver works on a copy that no other thread can write (scratch.c), and core decides on the
 * same bytes. No lock of ours is held meanwhile, except for GPFIFO_SCHEDULE.
 */
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "demand.h"
#include "driver.h"
#include "governors.h"
#include "host_memory.h"
#include "ioctl.h"
#include "parking.h"
#include "shortage.h"
#include "core/call/call.h"
#include "core/memory/parking.h"
#include "door/events.h"
#include "door/notice.h"
#include "door/scratch.h"

enum {
	NV_IOCTL_MAGIC = 'F',
	UNDO_BYTES = 16,            /* NVOS00_PARAMETERS */
	UNDO_TRIES = 64,
	CLASS_BYTES = 512,          /* none has more of those that the core does not read */
	/* FB_GET_INFO: 128 entries of 8 bytes, behind a pointer at 8 in its parameters */
	LIST_POINTER = 8,
};

/*
 * One call, also while the driver works on it: another core may end it. It lies in the call's
 * scratch, which saves an allocation per call.
 */
struct flight {
	struct cgpu_call call;
	struct cgpu_scratch scratch;
	struct cgpu_open_file *open_file;
	struct cgpu_container *container;
	struct cgpu_container *leader; /* of its group, with a reference, where the call needs it */
	struct file *file;
	cgpu_ioctl_fn driver;
	unsigned int cmd;           /* unwrapped, as is arg */
	void __user *arg;
	struct file *fd;            /* file behind req.fd while the call lasts */
	int result;                 /* of the driver, where the core has asked it */
	/* for the dma-buf that the driver makes: what it has exported is not taken back */
	struct cgpu_open_file *reserved;
	bool blind;                 /* what it wraps is not interpreted */
	bool answered;              /* by the core: the driver was not asked */
	bool settled;
	bool watches;               /* the door has been asked to follow current's mm */
	bool tampered;              /* it may have been another call than was looked at */
	bool kept;                  /* by the driver, what should be undone */
};

u64 cgpu_ioctl_digest(u64 digest)
{
	BUILD_BUG_ON((int)CGPU_ARGS_MAX > (int)CGPU_SCRATCH_ARGS_BYTES);
	BUILD_BUG_ON((int)CGPU_PARAMS_MAX > (int)CGPU_SCRATCH_PARAMS_BYTES);
	BUILD_BUG_ON(sizeof(struct flight) > CGPU_SCRATCH_RECORD_BYTES);
	BUILD_BUG_ON(sizeof(struct cgpu_wait) > sizeof(((struct cgpu_pass *)0)->wait));
	digest = cgpu_digest(digest, sizeof(struct flight));
	return cgpu_digest(digest, offsetof(struct flight, scratch));
}

/*
 * What a tenant's call did is unknown, or cannot be undone: its limits hold only if the tenant
 * ends. Lack of memory and absent pages never lead here.
 */
static void kill_container(struct cgpu_container *container, const char *why)
{
	struct task_struct *task;

	pr_warn_ratelimited("cgpu: container %s killed: %s\n", container->id, why);
	cgpu_event("killed id=%s pid=%d %s", container->id, task_tgid_nr(current), why);
	cgpu_notice("cgpu: killed this container: process %d (%s) %s", task_tgid_vnr(current),
		    current->comm, why);
	rcu_read_lock();
	/* to any thread that is left: a signal to a leader that has ended is lost */
	for_each_process(task)
		if (cgpu_container_has(container, task))
			kill_pid(task_tgid(task), SIGKILL, 1);
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

/*
 * Code behind a drain does not wait for a page: it asks the door for a missing one. Return: 0,
 * -EAGAIN: the door was asked, -EFAULT: the page cannot be had.
 */
static int miss(struct cgpu_pass *pass, const void __user *at, size_t bytes, bool write)
{
	if (pass->unreachable)
		return -EFAULT;
	pass->fault_at = (void __user *)at;
	pass->fault_bytes = bytes;
	pass->fault_write = write;
	return -EAGAIN;
}

static int copy_in(struct cgpu_pass *pass, void *to, const void __user *from, size_t bytes)
{
	unsigned long left = bytes;

	pagefault_disable();
	if (access_ok(from, bytes))
		left = __copy_from_user_inatomic(to, from, bytes);
	pagefault_enable();
	return left ? miss(pass, from, bytes, false) : 0;
}

static int copy_out(struct cgpu_pass *pass, void __user *to, const void *from, size_t bytes)
{
	unsigned long left = bytes;

	pagefault_disable();
	if (access_ok(to, bytes))
		left = __copy_to_user_inatomic(to, from, bytes);
	pagefault_enable();
	return left ? miss(pass, to, bytes, true) : 0;
}

/*
 * The driver writes the card's true figures into a private copy of this list. The caller gets what
 * the core makes of that.
 */
static int copy_list_in(struct flight *flight, struct cgpu_pass *pass)
{
	struct cgpu_request *req = &flight->call.req;
	u8 *list = flight->scratch.args + CGPU_SCRATCH_LIST_PLACE;
	int err;

	if (!req->list_size)
		return 0;
	err = copy_in(pass, list, u64_to_user_ptr(req->list_ptr), req->list_size);
	if (err)
		return err;
	flight->call.list = list;
	flight->scratch.list_bytes = req->list_size;
	cgpu_put64(flight->scratch.params, LIST_POINTER,
		   flight->scratch.args_user + CGPU_SCRATCH_LIST_PLACE);
	return 0;
}

/*
 * For a class that the core does not read, only the driver knows the parameters' size, and it reads
 * no more: what follows in the caller's memory does no harm. If the driver fails to write them back
 * to the caller, the object stays, and the core is not told.
 */
static int copy_class_in(struct flight *flight, struct cgpu_pass *pass)
{
	struct cgpu_request *req = &flight->call.req;
	u8 *params = flight->scratch.params;
	u8 __user *from = u64_to_user_ptr(req->params_ptr);
	const u32 near = min_t(u32, CLASS_BYTES, PAGE_SIZE - offset_in_page(from));
	int err = copy_in(pass, params, from, near);

	if (err)
		return err;
	memset(params + near, 0, CLASS_BYTES - near);
	req->params_size = near;
	err = near < CLASS_BYTES ? copy_in(pass, params + near, from + near, CLASS_BYTES - near) :
				   0;
	if (!err)
		req->params_size = CLASS_BYTES;
	return err == -EFAULT ? 0 : err;
}

static int copy_params_in(struct flight *flight, struct cgpu_pass *pass)
{
	struct cgpu_request *req = &flight->call.req;
	bool unread = req->op == CGPU_OP_ALLOC && req->params_ptr && !req->params_size;
	int err;

	if (!req->params_size && !unread)
		return 0;
	err = unread ? copy_class_in(flight, pass) :
		       copy_in(pass, flight->scratch.params, u64_to_user_ptr(req->params_ptr),
			       req->params_size);
	if (err)
		return err;
	memcpy(flight->scratch.before, flight->scratch.params, req->params_size);
	flight->call.params = flight->scratch.params;
	flight->call.before = flight->scratch.before;
	flight->scratch.params_bytes = req->params_size;
	cgpu_put64(flight->scratch.args, req->params_ptr_offset, flight->scratch.params_user);
	cgpu_decode_params(cgpu_driver_abi(), flight->scratch.params, req->params_size, req);
	return copy_list_in(flight, pass);
}

static int copy_params_out(struct flight *flight, struct cgpu_pass *pass)
{
	struct cgpu_request *req = &flight->call.req;
	const u8 *before = flight->scratch.before, *params = flight->scratch.params;
	u32 first = 0, end = req->params_size;

	if (!req->params_size)
		return 0;
	cgpu_put64(flight->scratch.args, req->params_ptr_offset, req->params_ptr);
	if (flight->call.list)
		cgpu_put64(flight->scratch.params, LIST_POINTER, req->list_ptr);
	/* like the driver, do not write to a caller's constant */
	if (!memcmp(before, params, req->params_size))
		return 0;
	/* what may lie behind a class's parameters is not the call's */
	if (req->op == CGPU_OP_ALLOC) {
		while (before[first] == params[first])
			first++;
		while (before[end - 1] == params[end - 1])
			end--;
	}
	return copy_out(pass, (u8 __user *)u64_to_user_ptr(req->params_ptr) + first,
			params + first, end - first);
}

/*
 * RM_FREE of an object that the core refuses, in the call's own scratch: allocating another could
 * fail. If the driver fails, for lack of memory for example, it has done nothing.
 */
static long undo(struct flight *flight)
{
	struct cgpu_scratch scratch = flight->scratch;
	u8 answer[UNDO_BYTES];
	long ret = -EAGAIN;
	int tries;

	memcpy(answer, scratch.args, UNDO_BYTES);
	scratch.args_bytes = UNDO_BYTES;
	scratch.params_bytes = scratch.list_bytes = 0;
	scratch.through_rm = true;
	for (tries = 0; ret && tries < UNDO_TRIES; tries++) {
		cgpu_call_undo_args(&flight->call, scratch.args);
		ret = cgpu_scratch_ask(&scratch, flight->driver, flight->file,
				       _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC,
					    NV_ESC_RM_FREE, UNDO_BYTES));
	}
	memcpy(scratch.args, answer, UNDO_BYTES);
	return ret;
}

/* groups or channels came, went or were scheduled */
static void tell_engine(struct flight *flight)
{
	struct cgpu_container *container = flight->container;
	u32 minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (container->grant[minor].present)
			cgpu_governors_hold_new(container, minor);
	cgpu_governors_poke_container(container);
}

/* A dma-buf is seen as soon as the driver holds it: no process has an unseen one. */
static void settle_export(struct flight *flight, const struct cgpu_pass *pass)
{
	struct cgpu_call *call = &flight->call;

	if (flight->scratch.lost && !pass->exported)
		flight->scratch.lost = false;
	else if (flight->scratch.lost ||
		 (!pass->result && !cgpu_get32(call->args, call->req.status_offset)))
		call->fd_file = pass->exported ?
			cgpu_open_file_watch_dmabuf(pass->exported, flight->container, call,
						    &flight->reserved) : 0;
}

static void make_interruptible(struct cgpu_call *call)
{
	struct nv_gr_preemption_mode params;

	cgpu_call_preemption(call, &params);
	call->preemption = cgpu_governors_control(call->card, call->req.hClient, call->hSubdevice,
						  NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE,
						  &params, sizeof(params));
}

/* Locks the tenant, and its leader's if the call involves an object of the leader. */
static void lock_tenants(struct flight *flight)
{
	rt_mutex_lock(&flight->container->lock);
	if (flight->leader)
		rt_mutex_lock_nested(&flight->leader->lock, SINGLE_DEPTH_NESTING);
}

static void unlock_tenants(struct flight *flight)
{
	struct cgpu_container *leader = flight->leader;
	bool done = leader && !flight->call.leader;

	if (leader)
		rt_mutex_unlock(&leader->lock);
	rt_mutex_unlock(&flight->container->lock);
	if (!done)
		return;
	flight->leader = NULL;
	/* it may have closed what was needed until now */
	cgpu_container_let_go(leader);
	cgpu_container_put(leader);
}

/* Context: container->lock. */
static void find_leader(struct flight *flight)
{
	struct cgpu_container *container = flight->container;

	flight->call.leader = NULL;
	if (!cgpu_call_wants_leader(&container->tenant, &flight->call))
		return;
	flight->leader = cgpu_container_lock_leader(container);
	if (flight->leader)
		flight->call.leader = &flight->leader->tenant;
}

/* Tells the core what the driver answered. Return: its verdict. */
static int tell_core(struct flight *flight, long result, bool *changed)
{
	struct cgpu_tenant *tenant = &flight->container->tenant;
	const struct cgpu_topology *topology = &cgpu_registry->host.topology;
	u32 changes;
	int verdict;

	cgpu_container_make_room(flight->container);
	lock_tenants(flight);
	changes = tenant->objects.runnable_changes;
	verdict = flight->scratch.lost ? cgpu_call_unanswered(tenant, topology, &flight->call) :
				      cgpu_call_post(tenant, topology, &flight->call, result);
	*changed = changes != tenant->objects.runnable_changes;
	unlock_tenants(flight);
	return verdict;
}

static void settle(struct flight *flight, struct cgpu_pass *pass)
{
	struct cgpu_container *container = flight->container;
	struct cgpu_call *call = &flight->call;
	long result = pass->result;
	bool changed;
	int verdict;

	if (call->req.op == CGPU_OP_EXPORT_DMABUF)
		settle_export(flight, pass);
	/* a thread may close what another's call names: harmless if the lookup was followed */
	else if (!pass->followed && !fd_unchanged(flight))
		flight->tampered = true;
	/* an object whose answer was lost may exist, and another process may have the client */
	if (call->hSubdevice && (flight->scratch.lost ||
				 (!result && !cgpu_get32(call->args, call->req.status_offset))))
		make_interruptible(call);
	verdict = tell_core(flight, result, &changed);
	if (changed)
		tell_engine(flight);
	while (verdict == CGPU_UNDO) {
		if (undo(flight))
			flight->kept = true;
		lock_tenants(flight);
		if (!cgpu_call_undone(&container->tenant, call))
			verdict = CGPU_DONE;
		unlock_tenants(flight);
	}
	cgpu_container_let_go(container);
	if (verdict == CGPU_KILL)
		flight->tampered = true;
	if (!result && call->req.op == CGPU_OP_UVM_INITIALIZE &&
	    !cgpu_get32(call->args, call->req.status_offset))
		pass->watch = cgpu_open_file_watch(flight->open_file);
	flight->watches = pass->watch;
}

static void note_watched(struct flight *flight, const struct cgpu_pass *pass)
{
	struct cgpu_call *call = &flight->call;

	flight->watches = false;
	if (cgpu_open_file_watched(flight->open_file, pass->watched))
		cgpu_put32(call->args, call->req.status_offset, NV_ERR_NO_MEMORY);
}

static void tell_unlisted(struct cgpu_container *container,
			  const struct cgpu_unlisted *unlisted, const char *fate)
{
	if (unlisted->first)
		cgpu_event("%s id=%s pid=%d %s=%#x not listed", fate, container->id,
			   task_tgid_nr(current), unlisted->kind, unlisted->number);
}

static void report_refusal(struct flight *flight)
{
	struct cgpu_call *call = &flight->call;
	u32 status = call->req.status_offset == CGPU_NO_OFFSET ?
		NV_ERR_INSUFFICIENT_PERMISSIONS :
		cgpu_get32(call->args, call->req.status_offset);

	if (status == NV_OK)
		return;
	if (call->unlisted.kind) {
		tell_unlisted(flight->container, &call->unlisted, "refused");
		return;
	}
	if (!call->refused && call->shortage.card != CGPU_NO_CARD)
		cgpu_shortage_report(flight->container, &call->shortage);
	else if (call->refused && __ratelimit(&flight->container->refusals))
		cgpu_event("refused id=%s pid=%d nr=%u cmd=%#x class=%#x status=%#x",
			   flight->container->id, task_tgid_nr(current), call->req.nr,
			   call->req.cmd, call->req.hClass, status);
}

/* Copies back what the core or the driver answered. Return: 0, -EAGAIN, -EFAULT. */
static int deliver(struct flight *flight, struct cgpu_pass *pass)
{
	struct cgpu_call *call = &flight->call;
	int err = copy_params_out(flight, pass);

	if (!err && call->list)
		err = copy_out(pass, u64_to_user_ptr(call->req.list_ptr), call->list,
			       call->req.list_size);
	if (!err)
		err = copy_out(pass, flight->arg, call->args, call->req.args_size);
	return err;
}

/* Every flight ends here. */
static void land(struct flight *flight)
{
	struct cgpu_container *container = flight->container;
	struct cgpu_scratch scratch = flight->scratch;
	bool tampered = flight->tampered, kept = flight->kept;

	if (flight->fd)
		fput(flight->fd);
	kfree(flight->reserved);
	/* with it the flight is gone */
	tampered |= cgpu_scratch_put(&scratch);
	if (tampered || kept) {
		kill_container(container, tampered ?
			       "raced its own ioctl" : "the driver keeps what it has no room for");
		cgpu_governors_assert();
	}
}

/* Refuses what the host cannot handle, whatever the core decides. Return: NVIDIA's status. */
static u32 unfit(struct flight *flight)
{
	const struct cgpu_request *req = &flight->call.req;

	if (req->op == CGPU_OP_EXPORT_DMABUF) {
		if (!cgpu_door_sees_exports())
			return NV_ERR_NOT_SUPPORTED;
		flight->reserved = cgpu_open_file_reserve();
		if (!flight->reserved)
			return NV_ERR_NO_MEMORY;
	}
	/* longer than any driver takes, and than there is room for a private copy */
	if (req->list_ptr && !req->list_size && cgpu_get32(flight->scratch.params, 0))
		return NV_ERR_INVALID_ARGUMENT;
	return NV_OK;
}

static void ask_to_schedule(void *data)
{
	struct flight *flight = data;
	bool changed;

	flight->result = cgpu_scratch_ask(&flight->scratch, flight->driver, flight->file,
					  flight->cmd);
	tell_core(flight, flight->result, &changed);
}

/*
 * GPFIFO_SCHEDULE opens channels that gates have shut. So the core makes this call itself, unlike
 * all others. Return: as depart().
 */
static int schedule_channels(struct flight *flight)
{
	cgpu_governors_schedule(flight->container, flight->call.card, ask_to_schedule, flight);
	tell_engine(flight);
	cgpu_container_let_go(flight->container);
	flight->answered = true;
	/* there is nothing that the door could make good and ask again for */
	return flight->result == -EAGAIN ? -EBUSY : flight->result;
}

/*
 * Return: 0: the call is under way, to the driver or with an answer; -EAGAIN:
 * a page is missing; another -errno: the ioctl's result.
 */
static int depart(struct flight *flight, struct cgpu_pass *pass)
{
	struct cgpu_container *container = flight->container;
	struct cgpu_call *call = &flight->call;
	struct cgpu_request *req = &call->req;
	struct cgpu_wait *wait = (struct cgpu_wait *)pass->wait;
	int verdict, err = copy_params_in(flight, pass);
	bool alone, waits;
	u32 status;

	flight->scratch.args_bytes = req->args_size;
	flight->scratch.through_rm = cgpu_goes_to_rm(cgpu_open_file_device(flight->open_file),
						     req->nr);
	if (err == -EFAULT && req->status_offset != CGPU_NO_OFFSET) {
		/* the driver's own answer; the driver must not look for itself */
		cgpu_put32(call->args, req->status_offset, NV_ERR_INVALID_ADDRESS);
		req->params_size = 0;
		flight->answered = true;
		return 0;
	}
	if (err)
		return err;
	status = unfit(flight);
	if (status) {
		cgpu_put32(call->args, req->status_offset, status);
		flight->answered = true;
		return 0;
	}
	resolve_fd(flight);
	call->file = cgpu_open_file_number(flight->open_file);
	call->pid = task_tgid_nr(current);

	if (cgpu_call_wants_room(call))
		cgpu_container_make_room(container);
	alone = cgpu_container_lock_to_judge(container);
	waits = wait->bytes && cgpu_wait_goes_on(wait, &container->tenant, ktime_get_ns());
	if (waits) {
		rt_mutex_unlock(&container->lock);
		cgpu_container_judged(alone);
		pass->wants_time = true;
		return -EAGAIN;
	}
	if (req->op != CGPU_OP_CONTROL && cgpu_call_takes_host(call))
		cgpu_ledger_limit_host(&container->tenant.ledger, cgpu_host_memory_max_bytes());
	find_leader(flight);
	verdict = cgpu_call_pre(&container->tenant, &cgpu_registry->host.topology, call);
	if (verdict == CGPU_ANSWER)
		waits = cgpu_wait_begin(wait, &container->tenant, &call->shortage, ktime_get_ns());
	/* it is to be judged again, and counts once */
	if (waits)
		cgpu_ledger_judge_again(&container->tenant.ledger, &call->shortage);
	unlock_tenants(flight);
	cgpu_container_judged(alone);
	if (waits) {
		cgpu_container_let_go(container);
		pass->wants_time = true;
		return -EAGAIN;
	}
	if (verdict == CGPU_ANSWER) {
		cgpu_container_let_go(container);
		report_refusal(flight);
		flight->answered = true;
		return call->error;
	}
	if (call->unlisted.kind)
		tell_unlisted(container, &call->unlisted, "unknown");
	return call->schedules ? schedule_channels(flight) : 0;
}

/* UVM numbers carry no size; those of RM do, and only their number counts */
static u32 command_number(u32 device, unsigned int cmd)
{
	return device == CGPU_DEVICE_UVM ? cmd : _IOC_NR(cmd);
}

/* Judges an escape or UVM command that no list names. Return: false: refused. */
static bool admit_unknown(struct cgpu_container *container, u32 device, u32 nr)
{
	struct cgpu_unlisted unlisted;
	bool admitted;

	rt_mutex_lock(&container->lock);
	admitted = cgpu_call_unknown(&container->tenant, device, nr, &unlisted);
	rt_mutex_unlock(&container->lock);
	tell_unlisted(container, &unlisted, admitted ? "unknown" : "refused");
	return admitted;
}

/* Return: as depart(). */
static int unwrap(struct flight *flight, struct cgpu_pass *pass)
{
	u32 device = cgpu_open_file_device(flight->open_file);
	u32 inner_cmd, inner_size;
	u64 inner_ptr;
	int err;

	if (_IOC_SIZE(pass->cmd) != 16)
		return -EINVAL;
	err = copy_in(pass, flight->scratch.args, flight->arg, 16);
	if (err)
		return err;
	if (cgpu_decode_xfer(flight->scratch.args, 16, &inner_cmd, &inner_size, &inner_ptr))
		return -EINVAL;
	if (!cgpu_command_known(device, inner_cmd) &&
	    !admit_unknown(flight->container, device, inner_cmd))
		return -EINVAL;
	if (!cgpu_interprets(inner_cmd)) {
		/* the wrapper stays a private copy, so that it cannot change to one */
		flight->blind = true;
		flight->scratch.args_bytes = 16;
		return 0;
	}
	flight->arg = u64_to_user_ptr(inner_ptr);
	err = copy_in(pass, flight->scratch.args, flight->arg, inner_size);
	if (err)
		return err;
	if (cgpu_decode(cgpu_driver_abi(), device, inner_cmd, flight->scratch.args, inner_size,
			&flight->call.req))
		return -EINVAL;
	flight->cmd = _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, inner_cmd, inner_size);
	return depart(flight, pass);
}

/* Return: as depart(). */
static int read_argument(struct flight *flight, struct cgpu_pass *pass, u32 size)
{
	u32 device = cgpu_open_file_device(flight->open_file);
	u32 nr = command_number(device, pass->cmd);
	int err;

	if (device != CGPU_DEVICE_UVM && nr == NV_ESC_IOCTL_XFER_CMD)
		return unwrap(flight, pass);
	err = copy_in(pass, flight->scratch.args, flight->arg, size);
	if (err)
		return err;
	if (cgpu_decode(cgpu_driver_abi(), device, nr, flight->scratch.args, size,
			&flight->call.req))
		return -EINVAL;
	return depart(flight, pass);
}

/* Return: as depart(). */
static long begin(struct cgpu_open_file *open_file, struct cgpu_pass *pass, u32 size)
{
	struct flight *flight;
	struct cgpu_scratch scratch;
	long ret = cgpu_scratch_get(&scratch, true);

	pass->wants_scratch = ret == -EAGAIN;
	if (ret)
		return ret;
	flight = (struct flight *)scratch.record;
	*flight = (struct flight){
		.scratch = scratch,
		.open_file = open_file,
		.container = cgpu_open_file_container(open_file),
		.file = pass->file,
		.driver = pass->driver,
		.cmd = pass->cmd,
		.arg = (void __user *)pass->arg,
	};
	flight->call.args = flight->scratch.args;
	ret = read_argument(flight, pass, size);
	if (ret) {
		land(flight);
		return ret;
	}
	pass->token = flight;
	/* a dma-buf is followed by itself */
	pass->names = !flight->blind && flight->call.req.fd >= 0 &&
		      flight->call.req.op != CGPU_OP_EXPORT_DMABUF;
	pass->named = flight->fd;
	pass->exports = flight->call.req.op == CGPU_OP_EXPORT_DMABUF;
	pass->answered = flight->answered;
	pass->cmd = flight->cmd;
	pass->scratch = &flight->scratch;
	return 0;
}

/* No container is parked for a call that has its answer, or that ends with its process. */
static void stop_waiting(struct cgpu_container *container, struct cgpu_wait *wait)
{
	if (!wait->bytes)
		return;
	rt_mutex_lock(&container->lock);
	cgpu_wait_end(wait, &container->tenant);
	rt_mutex_unlock(&container->lock);
}

void cgpu_call_begin(struct cgpu_open_file *open_file, struct cgpu_pass *pass)
{
	struct cgpu_container *container = cgpu_open_file_container(open_file);
	u32 device = cgpu_open_file_device(open_file);
	u32 size = cgpu_args_size(cgpu_driver_abi(), device, pass->cmd);

	/* a process of another container that was handed this file */
	if (!cgpu_container_has(container, current) && cgpu_container_is_managed(current)) {
		if (__ratelimit(&container->refusals))
			cgpu_event("refused id=%s pid=%d file of another container",
				   container->id, task_tgid_nr(current));
		pass->result = -EPERM;
		pass->answered = true;
	} else if (!cgpu_command_known(device, command_number(device, pass->cmd)) &&
		   !admit_unknown(container, device, command_number(device, pass->cmd))) {
		pass->result = -EINVAL;
		pass->answered = true;
	} else if (size) {
		pass->result = pass->given_up ?: begin(open_file, pass, size);
		if (pass->result && pass->result != -EAGAIN)
			pass->answered = true;
	}
	if (pass->answered)
		stop_waiting(container, (struct cgpu_wait *)pass->wait);
}

void cgpu_call_end(struct cgpu_pass *pass)
{
	struct flight *flight = pass->token;
	int err = 0;

	if (flight->watches)
		note_watched(flight, pass);
	if (!flight->settled && !flight->answered && !flight->blind &&
	    cgpu_call_wants_post(&flight->call)) {
		settle(flight, pass);
	}
	if (pass->exported)
		fput(pass->exported);
	pass->exported = NULL;
	if (!flight->settled && !flight->answered && !flight->blind && !pass->result)
		cgpu_userds_note(flight->container, &flight->call.req, flight->call.args,
				 flight->call.params, flight->fd);
	flight->settled = true;
	if (pass->watch)
		return;
	if (!flight->blind && !pass->result)
		err = deliver(flight, pass);
	if (err == -EAGAIN)
		return;
	if (err)
		pass->result = err;
	land(flight);
}
