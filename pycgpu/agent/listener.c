// SPDX-License-Identifier: GPL-2.0-only
/*
 * One notified system call of a tenant: read what it points to, let the core
 * decide, and either perform it on a duplicate of the tenant's file with copies
 * of our own, answer it, or let it continue. docs/agent.md says which and why.
 *
 * Workers run without CAP_SYS_ADMIN, by which the driver tells an administrator:
 * a tenant gains no right through us.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/seccomp.h>

#include "door.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif

enum {
	LIST_BYTES_MAX = 1024,
	RIGHTS_OFFSET = 24,  /* NVOS64.pRightsRequested */
	RIGHTS_BYTES = 4,
	PIDS_COUNT = 8,      /* GPU_GET_PIDS: pidTblCount, pidTbl */
	PIDS_TABLE = 12,
	PIDS_MAX = 950,
	/* a question that every client may ask; the driver checks the client first */
	NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS = 0x201,
	ATTACHED_BYTES = 128,
	TOLD_MAX = 16            /* lines of events a second, of a container */
};

/* one per filter of the container's; every worker of it holds it */
struct listener {
	struct container *c;
	int fd;
	uint32_t workers;        /* under door.lock */
	bool gone;               /* its last process is; under turn */
	pthread_mutex_t turn;    /* whose turn it is to wait for a notification */
};

/* one per worker: what belongs to the call in hand */
struct flight {
	struct container *c;
	struct process *process;
	int tid;
	bool thread_table;
	int listener;
	uint64_t id;             /* the notification's */
	int fd;                  /* duplicate of the tenant's file */
	uint32_t device;
	uint32_t minor;
	uint64_t arg;
	uint32_t cmd;
	struct cgpu_call call;
	int named;               /* duplicate of the file that req.fd names, or -1 */
	uint8_t rights[RIGHTS_BYTES];
	uint8_t args[CGPU_ARGS_MAX];
	uint8_t params[CGPU_PARAMS_MAX];
	uint8_t before[CGPU_PARAMS_MAX];
	uint8_t list[LIST_BYTES_MAX];
};

struct answer {
	bool forward;            /* the tenant's own call goes on */
	int error;               /* else: 0, or -errno */
};

static const struct answer CONTINUE = { true, 0 };

static struct answer fail(int error)
{
	return (struct answer){ false, error };
}

static bool copy_in(struct flight *f, uint64_t from, void *to, size_t size)
{
	struct iovec local = { to, size }, remote = { (void *)(uintptr_t)from, size };

	return process_vm_readv(f->tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static bool copy_out(struct flight *f, uint64_t to, void *from, size_t size)
{
	struct iovec local = { from, size }, remote = { (void *)(uintptr_t)to, size };

	return process_vm_writev(f->tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

/* The pid is still the one that waits for this answer, so what we read was its. */
static bool is_valid(struct flight *f)
{
	return !ioctl(f->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &f->id);
}

/* ------------------------------------------------------------- clients */

/*
 * A client is allocated by the tenant itself, for it belongs to the process that
 * allocates it. At its first use the driver is asked whether it is a client of
 * this file.
 */
static void adopt_client(struct flight *f, uint32_t hClient, uint32_t file)
{
	struct cgpu_call call = { 0 };
	uint8_t args[48] = { 0 }, ids[ATTACHED_BYTES] = { 0 };
	bool known;

	pthread_mutex_lock(&door.lock);
	known = !hClient || cgpu_object_find(&f->c->tenant.objects, hClient, hClient);
	pthread_mutex_unlock(&door.lock);
	if (known || f->device != CGPU_DEVICE_CTL ||
	    rm_control(f->fd, hClient, hClient, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, ids,
		       sizeof(ids)))
		return;
	cgpu_put32(args, 12, NV01_ROOT_CLIENT);
	if (cgpu_decode(&door.abi, f->device, NV_ESC_RM_ALLOC, args, sizeof(args), &call.req))
		return;
	call.args = args;
	call.file = file;
	call.pid = (uint32_t)f->process->pid;
	pthread_mutex_lock(&door.lock);
	make_room(f->c);
	if (!cgpu_object_find(&f->c->tenant.objects, hClient, hClient) &&
	    cgpu_call_pre(&f->c->tenant, &door.host.topology, &call) == CGPU_FORWARD) {
		cgpu_put32(args, 8, hClient);
		cgpu_call_post(&f->c->tenant, &door.host.topology, &call, 0);
	}
	pthread_mutex_unlock(&door.lock);
}

/* ------------------------------------------------------- what we perform */

/*
 * Only what we have whole copies of: a pointer left in a structure would be one
 * into our own memory. The rest goes on in the tenant, where the driver looks at
 * memory that the tenant can still change.
 */
static bool performs(const struct flight *f)
{
	const struct cgpu_request *req = &f->call.req;

	switch (req->op) {
	case CGPU_OP_ALLOC:
		/* the driver asserts that a device is allocated by its client's process */
		return req->params_size && req->nr == NV_ESC_RM_ALLOC &&
		       req->hClass != NV01_DEVICE_0;
	case CGPU_OP_HEAP_ALLOC:
		return req->hClass != NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
	case CGPU_OP_ALLOC_MEMORY:
		return req->hClass == NV01_MEMORY_LOCAL_USER;
	case CGPU_OP_FREE:
	case CGPU_OP_DUP:
	case CGPU_OP_HEAP_INFO:
	case CGPU_OP_EXPORT_DMABUF:
		return true;
	case CGPU_OP_CONTROL:
		return req->params_size != 0;
	default:
		return false;
	}
}

static int named_offset(const struct cgpu_request *req)
{
	if (req->op != CGPU_OP_CONTROL)
		return -1;
	return req->cmd == NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD ? 16 : 0;
}

/* pids of other containers are none of the tenant's business */
static void filter_pids(struct flight *f)
{
	uint32_t count = cgpu_get32(f->params, PIDS_COUNT), kept = 0, i;

	pthread_mutex_lock(&f->c->files_lock);
	for (i = 0; i < count && i < PIDS_MAX; i++) {
		uint32_t pid = cgpu_get32(f->params, PIDS_TABLE + 4 * i);

		if (process_exists(f->c, (int)pid))
			cgpu_put32(f->params, PIDS_TABLE + 4 * kept++, pid);
	}
	pthread_mutex_unlock(&f->c->files_lock);
	cgpu_put32(f->params, PIDS_COUNT, kept);
	for (i = kept; i < count && i < PIDS_MAX; i++)
		cgpu_put32(f->params, PIDS_TABLE + 4 * i, 0);
}

static int perform(struct flight *f)
{
	struct cgpu_request *req = &f->call.req;
	uint64_t rights = 0;
	bool has_rights = req->op == CGPU_OP_ALLOC && req->args_size == 48;
	bool has_list = req->list_size && req->list_size <= LIST_BYTES_MAX;
	int offset = named_offset(req), err;

	if (req->params_size)
		cgpu_put64(f->args, req->params_ptr_offset, (uintptr_t)f->params);
	if (has_rights) {
		rights = cgpu_get64(f->args, RIGHTS_OFFSET);
		if (rights && !copy_in(f, rights, f->rights, RIGHTS_BYTES))
			return -EFAULT;
		if (rights)
			cgpu_put64(f->args, RIGHTS_OFFSET, (uintptr_t)f->rights);
	}
	if (req->cmd == NV2080_CTRL_CMD_FB_GET_INFO && req->op == CGPU_OP_CONTROL) {
		if (!has_list || !copy_in(f, req->list_ptr, f->list, req->list_size))
			return -EFAULT;
		cgpu_put64(f->params, 8, (uintptr_t)f->list);
		f->call.list = f->list;
	}
	if (f->named >= 0 && offset >= 0)
		cgpu_put32(f->params, (uint32_t)offset, (uint32_t)f->named);

	err = ioctl(f->fd, f->cmd, f->args) ? -errno : 0;

	if (f->named >= 0 && offset >= 0)
		cgpu_put32(f->params, (uint32_t)offset, (uint32_t)req->fd);
	if (f->call.list)
		cgpu_put64(f->params, 8, req->list_ptr);
	if (has_rights)
		cgpu_put64(f->args, RIGHTS_OFFSET, rights);
	if (req->params_size)
		cgpu_put64(f->args, req->params_ptr_offset, req->params_ptr);
	if (!err && req->op == CGPU_OP_CONTROL && req->cmd == NV2080_CTRL_CMD_GPU_GET_PIDS &&
	    req->params_size >= PIDS_TABLE + 4 * PIDS_MAX)
		filter_pids(f);
	return err;
}

/* The driver made the descriptor in our table: it moves to the tenant's. */
static int hand_over_dmabuf(struct flight *f)
{
	int local = (int)cgpu_get32(f->args, 0), remote;
	struct seccomp_notif_addfd add = {
		.id = f->id, .srcfd = (uint32_t)local, .newfd_flags = O_CLOEXEC,
	};

	f->call.fd_file = file_of(f->c, f->process, -1, local, CGPU_DEVICE_DMABUF, 0);
	remote = ioctl(f->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
	close(local);
	cgpu_put32(f->args, 0, (uint32_t)remote);
	return remote < 0 ? -EMFILE : 0;
}

/* What the driver and the core left, to the tenant. */
static int deliver(struct flight *f)
{
	struct cgpu_request *req = &f->call.req;
	int err = 0;

	if (f->call.list && !copy_out(f, req->list_ptr, f->list, req->list_size))
		err = -EFAULT;
	if (req->params_size && memcmp(f->before, f->params, req->params_size) &&
	    !copy_out(f, req->params_ptr, f->params, req->params_size))
		err = -EFAULT;
	if (req->args_size && !copy_out(f, f->arg, f->args, req->args_size))
		err = -EFAULT;
	return err;
}

static void undo(struct flight *f)
{
	uint8_t args[16];

	cgpu_call_undo_args(&f->call, args);
	rm_ioctl(f->fd, NV_ESC_RM_FREE, args, sizeof(args));
}

/* -------------------------------------------------------------- one call */

static bool changes_channels(const struct cgpu_request *req)
{
	return req->op == CGPU_OP_FREE ||
	       (req->op == CGPU_OP_CONTROL &&
		(req->cmd == NVA06C_CTRL_CMD_GPFIFO_SCHEDULE ||
		 req->cmd == NVA06F_CTRL_CMD_GPFIFO_SCHEDULE)) ||
	       (req->op == CGPU_OP_ALLOC &&
		(req->hClass == NV01_DEVICE_0 || req->hClass == KEPLER_CHANNEL_GROUP_A ||
		 cgpu_is_channel_class(req->hClass)));
}

/* The card that a call is about; of one that is about none, the container's first. */
static uint32_t card_of(const struct flight *f)
{
	uint32_t card = 0;

	if (f->call.card < CGPU_MAX_CARDS)
		return f->call.card;
	while (card < CGPU_MAX_CARDS - 1 && !f->c->grant[card].present)
		card++;
	return card;
}

/* A tenant must not push others' lines out of the events. */
static bool may_tell(struct container *c)
{
	uint64_t now = now_ns();
	bool may;

	pthread_mutex_lock(&door.lock);
	if (now - c->told_ns > 1000000000) {
		c->told_ns = now;
		c->told = 0;
	}
	may = c->told++ < TOLD_MAX;
	pthread_mutex_unlock(&door.lock);
	return may;
}

static void report(struct flight *f)
{
	struct cgpu_call *call = &f->call;
	uint32_t status = call->req.status_offset == CGPU_NO_OFFSET ?
			  NV_ERR_INSUFFICIENT_PERMISSIONS :
			  cgpu_get32(f->args, call->req.status_offset);

	if (status == NV_OK)
		return;
	if (!may_tell(f->c))
		;
	else if (status == NV_ERR_NO_MEMORY)
		event("oom id=%s gpu=%u pid=%d bytes=%llu", f->c->id, card_of(f),
		      f->process->pid, (unsigned long long)call->req.size_bytes);
	else
		event("refused id=%s pid=%d nr=%u cmd=%#x class=%#x status=%#x", f->c->id,
		      f->process->pid, call->req.nr, call->req.cmd, call->req.hClass, status);
	if (call->kill)
		kill(f->process->pid, SIGKILL);
}

static int pre(struct flight *f)
{
	int verdict;

	pthread_mutex_lock(&door.lock);
	make_room(f->c);
	verdict = cgpu_call_pre(&f->c->tenant, &door.host.topology, &f->call);
	pthread_mutex_unlock(&door.lock);
	return verdict;
}

static int post(struct flight *f, int result)
{
	int verdict;

	pthread_mutex_lock(&door.lock);
	make_room(f->c);
	verdict = cgpu_call_post(&f->c->tenant, &door.host.topology, &f->call, result);
	if (changes_channels(&f->call.req))
		refresh(f->c);
	pthread_mutex_unlock(&door.lock);
	return verdict;
}

static void undone(struct flight *f)
{
	pthread_mutex_lock(&door.lock);
	cgpu_call_undone(&f->c->tenant, &f->call);
	pthread_mutex_unlock(&door.lock);
}

static bool is_no_memory(const struct flight *f)
{
	return f->call.req.status_offset != CGPU_NO_OFFSET &&
	       cgpu_get32(f->args, f->call.req.status_offset) == NV_ERR_NO_MEMORY;
}

static struct answer decide(struct flight *f)
{
	struct cgpu_request *req = &f->call.req;
	uint32_t status = req->status;
	int verdict, err;

	verdict = pre(f);
	if (verdict == CGPU_ANSWER && is_no_memory(f)) {
		/* what was freed behind our back counts before anything is refused */
		files_settle(f->c);
		files_sweep(f->c, true);
		cgpu_put32(f->args, req->status_offset, status);
		verdict = pre(f);
	}
	if (verdict == CGPU_ANSWER) {
		report(f);
		door.count.answered++;
		if (req->op == CGPU_OP_CONTROL && req->cmd == NVA06C_CTRL_CMD_SET_TIMESLICE) {
			pthread_mutex_lock(&door.lock);
			resend(f->c);
			pthread_mutex_unlock(&door.lock);
		}
		if (f->call.error)
			return fail(f->call.error);
		return fail(deliver(f));
	}
	if (!performs(f)) {
		/* as if the driver had agreed; if it does not, too much is charged */
		if (req->status_offset != CGPU_NO_OFFSET)
			cgpu_put32(f->args, req->status_offset, NV_OK);
		verdict = post(f, 0);
		if (verdict == CGPU_UNDO) {
			undone(f);
			return fail(deliver(f));
		}
		if (verdict == CGPU_KILL) {
			processes_kill(f->c, "raced its own call");
			return fail(-EPERM);
		}
		return CONTINUE;
	}
	err = perform(f);
	if (!err && req->op == CGPU_OP_EXPORT_DMABUF &&
	    !cgpu_get32(f->args, req->status_offset))
		err = hand_over_dmabuf(f);
	verdict = post(f, err);
	door.count.performed++;
	if (f->call.fd_file)
		f->c->lazy = true;
	if (verdict == CGPU_UNDO) {
		undo(f);
		undone(f);
	} else if (verdict == CGPU_KILL) {
		processes_kill(f->c, "raced its own call");
	}
	return err ? fail(err) : fail(deliver(f));
}

static struct answer on_decoded(struct flight *f, uint32_t fd_number)
{
	struct cgpu_call *call = &f->call;
	struct cgpu_request *req = &call->req;
	uint32_t minor;
	int device;

	/* events and the like name descriptors of the tenant; the core needs none of it */
	if (req->op == CGPU_OP_OTHER)
		return CONTINUE;
	if (req->op == CGPU_OP_ALLOC &&
	    (req->hClass == NV01_ROOT || req->hClass == NV01_ROOT_NON_PRIV ||
	     req->hClass == NV01_ROOT_CLIENT))
		return CONTINUE;
	call->args = f->args;
	if (req->params_size) {
		if (!copy_in(f, req->params_ptr, f->params, req->params_size))
			return CONTINUE; /* the driver finds the same */
		memcpy(f->before, f->params, req->params_size);
		call->params = f->params;
		cgpu_decode_params(&door.abi, f->params, req->params_size, req);
	}
	if (!is_valid(f))
		return fail(-EINTR);
	call->file = file_of(f->c, f->process, (int)fd_number, f->fd, f->device, f->minor);
	if (!call->file)
		return fail(-ENOMEM);
	call->pid = (uint32_t)f->process->pid;
	if (req->fd >= 0) {
		f->named = duplicate(f->c, f->process, f->tid, f->thread_table, req->fd);
		device = f->named >= 0 ? device_of(f->named, &minor) : -1;
		if (device >= 0)
			call->fd_file = file_of(f->c, f->process, req->fd, f->named,
						(uint32_t)device, minor);
	}
	if (req->op == CGPU_OP_CONTROL && req->cmd == NV2080_CTRL_CMD_FB_GET_INFO_V2 &&
	    f->c->lazy)
		files_sweep(f->c, true);
	adopt_client(f, req->hClient, call->file);
	if (req->op == CGPU_OP_DUP)
		adopt_client(f, req->hClientSrc, call->file);
	return decide(f);
}

/*
 * What comes wrapped is treated as if it came bare; the driver looks at the
 * wrapper again where the call goes on.
 */
static struct answer on_wrapped(struct flight *f, uint32_t fd_number)
{
	uint32_t cmd, size;
	uint64_t pointer;

	if (!copy_in(f, f->arg, f->args, 16))
		return fail(-EFAULT);
	if (cgpu_decode_xfer(f->args, 16, &cmd, &size, &pointer))
		return fail(-EINVAL);
	if (!cgpu_interprets(cmd))
		return CONTINUE;
	f->arg = pointer;
	f->cmd = _IOC(_IOC_READ | _IOC_WRITE, 'F', cmd, size);
	if (!copy_in(f, f->arg, f->args, size))
		return fail(-EFAULT);
	if (cgpu_decode(&door.abi, f->device, cmd, f->args, size, &f->call.req))
		return fail(-EINVAL);
	return on_decoded(f, fd_number);
}

static struct answer on_ioctl(struct flight *f, const struct seccomp_data *data)
{
	uint32_t nr, size;
	int device;

	f->cmd = (uint32_t)data->args[1];
	f->arg = data->args[2];
	f->fd = duplicate(f->c, f->process, f->tid, f->thread_table, (int)data->args[0]);
	if (f->fd < 0)
		return fail(f->fd);
	device = device_of(f->fd, &f->minor);
	if (device < 0)
		return CONTINUE;
	f->device = (uint32_t)device;
	nr = f->device == CGPU_DEVICE_UVM ? f->cmd : f->cmd & 0xff;
	size = cgpu_args_size(&door.abi, f->device, f->cmd);
	if (f->device != CGPU_DEVICE_UVM && nr == NV_ESC_IOCTL_XFER_CMD)
		return size == 16 ? on_wrapped(f, (uint32_t)data->args[0]) : fail(-EINVAL);
	if (f->device == CGPU_DEVICE_UVM ? !size && nr != UVM_DEINITIALIZE : !size)
		return CONTINUE;
	if (!copy_in(f, f->arg, f->args, size))
		return fail(-EFAULT);
	if (cgpu_decode(&door.abi, f->device, nr, f->args, size, &f->call.req))
		return fail(-EINVAL);
	return on_decoded(f, (uint32_t)data->args[0]);
}

/* The card that has no room for managed memory, or denies it. Context: door.lock. */
static uint32_t refusing_card(struct container *c, uint32_t number, uint64_t bytes)
{
	uint32_t mask = cgpu_tenant_file(&c->tenant, number)->gpu_mask, card, first = 0;

	for (card = CGPU_MAX_CARDS; card-- > 0;) {
		const struct cgpu_account *account = &c->tenant.ledger.account[card];

		if (!account->present || (mask && !(mask & 1u << card)))
			continue;
		first = card;
		if (account->uvm_disable || cgpu_account_free(account, UINT64_MAX) < bytes)
			break;
	}
	return card < CGPU_MAX_CARDS ? card : first;
}

/* mmap of the UVM device is managed memory, or a pool that was announced */
static struct answer on_mmap(struct flight *f, const struct seccomp_data *data)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t length = (data->args[1] + page - 1) & ~(page - 1);
	uint32_t number, card = 0;
	int err, tries;

	f->fd = duplicate(f->c, f->process, f->tid, f->thread_table, (int)data->args[4]);
	if (f->fd < 0)
		return CONTINUE; /* EBADF, or whatever it is: the kernel knows */
	if (device_of(f->fd, &f->minor) != CGPU_DEVICE_UVM)
		return CONTINUE;
	if (!is_valid(f))
		return fail(-EINTR);
	number = file_of(f->c, f->process, (int)data->args[4], f->fd, CGPU_DEVICE_UVM, 0);
	if (!number)
		return fail(-ENOMEM);
	f->c->lazy = true;
	for (tries = 0; tries < 2; tries++) {
		if (tries) {
			files_settle(f->c);
			files_sweep(f->c, true);
		}
		/* the driver maps where the address equals the offset */
		files_mapped(f->c, number, data->args[0]);
		pthread_mutex_lock(&door.lock);
		make_room(f->c);
		err = cgpu_tenant_mmap(&f->c->tenant, number, data->args[0], length);
		if (err)
			card = refusing_card(f->c, number, length);
		pthread_mutex_unlock(&door.lock);
		if (!err)
			return CONTINUE;
	}
	if (may_tell(f->c))
		event("oom id=%s gpu=%u pid=%d bytes=%llu managed", f->c->id, card,
		      f->process->pid, (unsigned long long)length);
	return fail(err);
}

static struct answer on_call(struct flight *f, const struct seccomp_notif *n)
{
	struct answer answer;

	f->tid = (int)n->pid;
	f->id = n->id;
	f->fd = f->named = -1;
	memset(&f->call, 0, sizeof(f->call));
	f->process = process_of(f->c, f->tid, &f->thread_table);
	if (!f->process)
		return fail(-ESRCH);
	answer = n->data.nr == SYS_mmap ? on_mmap(f, &n->data) : on_ioctl(f, &n->data);
	if (f->fd >= 0)
		close(f->fd);
	if (f->named >= 0)
		close(f->named);
	return answer;
}

/* ------------------------------------------------------------- the worker */

static void drop_admin(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2];

	/* of this thread alone; without capabilities there is nothing to drop */
	if (syscall(SYS_capget, &header, caps))
		return;
	caps[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
	syscall(SYS_capset, &header, caps);
}

/* Return: 1: a notification, 0: none after all, -1: the last process is gone. */
static int receive(struct listener *l, struct seccomp_notif *n)
{
	struct pollfd p = { l->fd, POLLIN, 0 };
	int got = 0;

	pthread_mutex_lock(&l->turn);
	if (l->c->ending || l->gone) {
		got = -1;
	} else if (poll(&p, 1, 1000) > 0) {
		memset(n, 0, sizeof(*n));
		if (p.revents & POLLIN)
			got = !ioctl(l->fd, SECCOMP_IOCTL_NOTIF_RECV, n);
		else
			got = -1;
		l->gone = got < 0;
	}
	pthread_mutex_unlock(&l->turn);
	return got;
}

/* Context: door.lock. */
static void leave(struct listener *l)
{
	struct container *c = l->c;

	if (!--l->workers) {
		close(l->fd);
		pthread_mutex_destroy(&l->turn);
		free(l);
		c->listeners--;
	}
	if (!c->listeners && !c->ending)
		unlist(c);
	c->workers--;
}

static void *work(void *data)
{
	struct listener *l = data;
	struct container *c = l->c;
	struct flight *f = calloc(1, sizeof(*f));
	struct seccomp_notif n;
	int got;

	drop_admin();
	while (f && door.running && (got = receive(l, &n)) >= 0) {
		struct seccomp_notif_resp response = { 0 };
		struct answer answer;
		uint64_t start;

		if (!got)
			continue;
		start = now_ns();
		f->c = c;
		f->listener = l->fd;
		answer = on_call(f, &n);
		response.id = n.id;
		if (answer.forward)
			response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		else
			response.error = answer.error;
		/* ENOENT: the caller was killed meanwhile */
		ioctl(l->fd, SECCOMP_IOCTL_NOTIF_SEND, &response);
		pthread_mutex_lock(&door.lock);
		door.count.calls++;
		door.count.continued += answer.forward;
		door.count.busy_ns += now_ns() - start;
		pthread_mutex_unlock(&door.lock);
	}
	free(f);
	pthread_mutex_lock(&door.lock);
	leave(l);
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

int listener_start(struct container *c, int fd)
{
	uint64_t flags = 1; /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6 */
	struct listener *l = calloc(1, sizeof(*l));
	pthread_t worker;
	int i;

	if (!l)
		return -ENOMEM;
	l->c = c;
	l->fd = fd;
	pthread_mutex_init(&l->turn, NULL);
	ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags);
	for (i = 0; i < WORKERS; i++) {
		if (pthread_create(&worker, NULL, work, l))
			break;
		pthread_detach(worker);
		l->workers++;
		c->workers++;
	}
	if (!l->workers) {
		pthread_mutex_destroy(&l->turn);
		free(l);
		return -EAGAIN;
	}
	c->listeners++;
	c->attached = true;
	return 0;
}
