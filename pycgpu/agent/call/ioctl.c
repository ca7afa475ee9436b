// SPDX-License-Identifier: GPL-2.0-only
/*
 * One ioctl of a tenant: read what it points to, let the core decide, and perform it (perform.c),
 * answer it, or let it continue. docs/agent.md says which and why. The kernel looks up and reads a
 * continued call again, through memory and a descriptor that the tenant can change meanwhile. Only
 * the number of the call stays, because it is in a register. kmod/linux/ioctl.c is its counterpart.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "call/call.h"
#include "card/card.h"
#include "driver/driver.h"
#include "gate/gate.h"
#include "host/host.h"
#include "tenant/tenant.h"

enum {
	/*
	 * of GPU_GET_ATTACHED_IDS, a control that every client may issue: the driver checks it
	 * first
	 */
	ATTACHED_BYTES = 128,
	/* ctrl0000client.h: NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS */
	HANDLE_INFO_BYTES = 16,
	HANDLE_INFO_INDEX = 4,
	HANDLE_INFO_INDEX_PARENT = 1
};

/* ----------------------------------------------------------------- clients */

/* The file that the client belongs to, 0: not known. */
static uint32_t client_file(struct container *c, uint32_t hClient)
{
	uint32_t index, file = 0;

	pthread_mutex_lock(&door.lock);
	index = cgpu_object_find(&c->tenant.objects, hClient, hClient);
	if (index)
		file = cgpu_object_at(&c->tenant.objects, index)->file;
	pthread_mutex_unlock(&door.lock);
	return file;
}

/*
 * The tenant itself allocates a client, because a client belongs to the process that allocates it.
 * At its first use the agent asks the driver whether it is a client of this file.
 */
static void adopt_client(struct flight *f, uint32_t hClient, uint32_t file)
{
	struct cgpu_call call = { 0 };
	uint8_t args[48] = { 0 }, ids[ATTACHED_BYTES] = { 0 };
	uint32_t its = client_file(f->c, hClient);

	/*
	 * When a file is closed, its client's number can be another's at once. Objects made below
	 * that one would go with the old file when the close is noticed. The driver takes a
	 * client's calls through its own file alone, so no well-formed program pays for this look.
	 */
	if (its && its != file && hClient == f->call.req.hClient &&
	    f->device == CGPU_DEVICE_CTL) {
		files_sweep_for_call(f->c, false);
		its = client_file(f->c, hClient);
	}
	if (!hClient || its || f->device != CGPU_DEVICE_CTL ||
	    rm_control(f->fd, hClient, hClient, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, ids,
		       sizeof(ids)))
		return;
	cgpu_put32(args, 12, NV01_ROOT_CLIENT);
	if (cgpu_decode(&door.abi, f->device, NV_ESC_RM_ALLOC, args, sizeof(args), &call.req))
		return;
	call.args = args;
	call.file = file;
	call.pid = clients_maker(f->c, file);
	if (!call.pid)
		call.pid = (uint32_t)f->process->pid;
	pthread_mutex_lock(&door.lock);
	make_room(f->c);
	change_begin(f->c, NULL);
	if (!cgpu_object_find(&f->c->tenant.objects, hClient, hClient) &&
	    cgpu_call_pre(&f->c->tenant, &door.host.topology, &call) == CGPU_FORWARD) {
		cgpu_put32(args, 8, hClient);
		cgpu_call_post(&f->c->tenant, &door.host.topology, &call, 0);
	}
	change_end();
	let_go(f->c);
	pthread_mutex_unlock(&door.lock);
}

/*
 * An allocation by the tenant may be a client, whatever was asked for. So the agent notes the
 * process that the driver would know it by. Return: 0, -EINTR, -ENOMEM, -ENOSPC: too many.
 */
static int note_client(struct flight *f, int fd_number, uint32_t *file)
{
	/* a process that is no thread of another may share its memory and its descriptors */
	int pid = tgid_of(f->tid);

	if (!is_valid(f))
		return -EINTR;
	*file = keep_file(f, fd_number, f->fd, f->device, f->minor, NULL);
	if (!*file)
		return -ENOMEM;
	if (pid > 0 && clients_note(f->c, *file, (uint32_t)pid))
		return 0;
	/* drop the notes of files that were closed meanwhile */
	files_sweep_for_call(f->c, false);
	return pid > 0 && clients_note(f->c, *file, (uint32_t)pid) ? 0 : -ENOSPC;
}

static bool is_client(const struct cgpu_request *req)
{
	return req->op == CGPU_OP_ALLOC &&
	       (req->hClass == NV01_ROOT || req->hClass == NV01_ROOT_NON_PRIV ||
		req->hClass == NV01_ROOT_CLIENT);
}

/* ----------------------------------------------------------------- handles */

/*
 * False only if the driver says so. The agent asks through the client's own file; through another
 * the driver does not answer.
 */
static bool exists(struct container *c, uint32_t hClient, uint32_t hObject)
{
	uint8_t params[HANDLE_INFO_BYTES] = { 0 };
	int fd = file_duplicate(c, client_file(c, hClient));
	uint32_t status;

	if (fd < 0)
		return true;
	cgpu_put32(params, 0, hObject);
	cgpu_put32(params, HANDLE_INFO_INDEX, HANDLE_INFO_INDEX_PARENT);
	status = rm_control(fd, hClient, hClient, NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, params,
			    sizeof(params));
	close(fd);
	return status != NV_ERR_OBJECT_NOT_FOUND;
}

/*
 * The agent takes a call that the tenant performs as done. Then an object known by its new handle
 * would count as gone, with all that is charged and gated there. The driver would refuse a handle
 * in use, and the agent would not hear of it, so the agent refuses it here. A known object that
 * does not exist was refused by the driver before. Return: as the driver answers; NV_OK: the handle
 * is free.
 */
static uint32_t answer_handle(struct flight *f)
{
	const struct cgpu_request *req = &f->call.req;
	uint32_t serial;
	bool free_now;

	if (!req->hObject_offset)
		return NV_OK;
	/* the driver would choose a handle, and only the tenant would hear of it */
	if (!req->hObject)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	pthread_mutex_lock(&door.lock);
	serial = cgpu_call_occupied(&f->c->tenant, &f->call);
	pthread_mutex_unlock(&door.lock);
	if (!serial)
		return NV_OK;
	if (exists(f->c, req->hClient, req->hObject))
		return NV_ERR_INSERT_DUPLICATE_NAME;
	pthread_mutex_lock(&door.lock);
	change_begin(f->c, NULL);
	free_now = cgpu_call_vacate(&f->c->tenant, &f->call, serial);
	change_end();
	pthread_mutex_unlock(&door.lock);
	return free_now ? NV_OK : NV_ERR_INSERT_DUPLICATE_NAME;
}

/* ---------------------------------------------------------------- verdicts */

/*
 * The driver made the descriptor in our table, and the tenant gets one of its own. The caller
 * closes ours once the export is accounted. Otherwise a file that the tenant closes at once would
 * be forgotten before.
 */
static int hand_over_dmabuf(struct flight *f)
{
	struct seccomp_notif_addfd add = {
		.id = f->id, .srcfd = (uint32_t)f->dmabuf, .newfd_flags = O_CLOEXEC,
	};

	f->call.fd_file = keep_file(f, -1, f->dmabuf, CGPU_DEVICE_DMABUF, 0, &f->call);
	if (f->handed < 0)
		f->handed = ioctl(f->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
	cgpu_put32(f->args, 0, (uint32_t)f->handed);
	return f->handed < 0 ? -EMFILE : 0;
}

static bool changes_channels(const struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;

	return req->op == CGPU_OP_FREE || req->op == CGPU_OP_DUP || call->schedules ||
	       (req->op == CGPU_OP_ALLOC &&
		(req->hClass == NV01_DEVICE_0 || req->hClass == KEPLER_CHANNEL_GROUP_A ||
		 cgpu_is_channel_class(req->hClass)));
}

/* The card that a call is about; if it is about none, the container's first. */
static uint32_t card_of(const struct flight *f)
{
	uint32_t card = 0;

	if (f->call.card < CGPU_MAX_CARDS)
		return f->call.card;
	while (card < CGPU_MAX_CARDS - 1 && !f->c->grant[card].present)
		card++;
	return card;
}

/*
 * Begins a change by a call. It includes the group's leader if the call may take something of the
 * leader's. Return: the leader then, NULL: none. Context: door.lock.
 */
static struct container *change(struct flight *f)
{
	struct container *leader = f->call.leader ? f->c->leader : NULL;

	make_room(f->c);
	change_begin(f->c, f);
	if (leader)
		change_with(leader);
	return leader;
}

/* Context: door.lock, released meanwhile. */
static void changed(struct flight *f, struct container *leader)
{
	change_end();
	let_go(f->c);
	if (leader)
		let_go(leader);
}

static int pre(struct flight *f)
{
	bool takes_host = cgpu_call_takes_host(&f->call);
	uint64_t host_bytes = takes_host ? memory_limit(f->tid) : 0;
	struct container *leader;
	int verdict;

	pthread_mutex_lock(&door.lock);
	f->call.leader = f->c->leader && cgpu_call_wants_leader(&f->c->tenant, &f->call) ?
			 &f->c->leader->tenant : NULL;
	leader = change(f);
	parking_limit(f->c);
	cgpu_ledger_judge_again(&f->c->tenant.ledger, &f->call.shortage);
	if (takes_host)
		cgpu_ledger_limit_host(&f->c->tenant.ledger, host_bytes);
	verdict = cgpu_call_pre(&f->c->tenant, &door.host.topology, &f->call);
	if (verdict == CGPU_FORWARD)
		f->stage.at = STAGE_DECIDED;
	changed(f, leader);
	pthread_mutex_unlock(&door.lock);
	return verdict;
}

/* `heard`: the driver said `result`; otherwise the tenant performs it, and may be refused. */
static void settle(struct flight *f, bool heard, int result)
{
	struct stage settled = { .at = STAGE_SETTLED, .result = result, .forward = !heard };
	struct container *leader;

	pthread_mutex_lock(&door.lock);
	leader = change(f);
	settled.verdict = heard ?
		  cgpu_call_post(&f->c->tenant, &door.host.topology, &f->call, result) :
		  cgpu_call_unanswered(&f->c->tenant, &door.host.topology, &f->call);
	f->stage = settled;
	change_end();
	if (changes_channels(&f->call))
		refresh(f->c);
	let_go(f->c);
	if (leader)
		let_go(leader);
	pthread_mutex_unlock(&door.lock);
}

void take_back(struct flight *f)
{
	struct container *leader;

	pthread_mutex_lock(&door.lock);
	leader = change(f);
	if (f->stage.at == STAGE_DECIDED || f->stage.at == STAGE_ASKED)
		cgpu_call_post(&f->c->tenant, &door.host.topology, &f->call, -EINTR);
	f->stage.at = STAGE_RECEIVED;
	changed(f, leader);
	pthread_mutex_unlock(&door.lock);
}

static void shut_new(struct flight *f)
{
	uint32_t minor;

	for (minor = 0; changes_channels(&f->call) && minor < CGPU_MAX_CARDS; minor++)
		if (f->c->grant[minor].present)
			shut_new_channels(f->c, minor);
}

/* Return: true: another object is to be freed. */
static bool undone(struct flight *f)
{
	struct container *leader;
	bool more;

	pthread_mutex_lock(&door.lock);
	leader = change(f);
	more = cgpu_call_undone(&f->c->tenant, &f->call);
	f->stage.undone = !more;
	changed(f, leader);
	pthread_mutex_unlock(&door.lock);
	return more;
}

static void make_interruptible(struct flight *f)
{
	struct nv_gr_preemption_mode params;

	cgpu_call_preemption(&f->call, &params);
	f->call.preemption = rm_control(f->fd, f->call.req.hClient, f->call.hSubdevice,
					NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, &params,
					sizeof(params));
}

static bool is_no_memory(const struct flight *f)
{
	return f->call.req.status_offset != CGPU_NO_OFFSET &&
	       cgpu_get32(f->args, f->call.req.status_offset) == NV_ERR_NO_MEMORY;
}

/* The core decides whose address space a device shares. */
static bool is_device(const struct cgpu_request *req)
{
	return req->op == CGPU_OP_ALLOC && req->hClass == NV01_DEVICE_0;
}

/* Concludes a call that the tenant performs: the agent does not hear the driver's answer. */
static struct answer conclude_forward(struct flight *f)
{
	shut_new(f);
	if (f->stage.verdict == CGPU_KILL) {
		processes_kill(f->c, "raced its own call");
		return fail(-EPERM);
	}
	if (f->stage.verdict != CGPU_UNDO)
		return CONTINUE;
	if (!f->stage.undone)
		undone(f);
	return fail(deliver(f));
}

static struct answer let_go_on(struct flight *f)
{
	/* the core sets its flags; the call must run in the process that it is about */
	if ((f->call.req.op == CGPU_OP_UVM_INITIALIZE || is_device(&f->call.req)) && deliver(f)) {
		take_back(f);
		return fail(-EFAULT);
	}
	if (f->call.req.op == CGPU_OP_UVM_INITIALIZE)
		managed_told(f->c, f->call.file,
			     cgpu_get64(f->args, offsetof(struct uvm_initialize, flags)));
	settle(f, false, 0);
	return conclude_forward(f);
}

/* Concludes a call whose answer the core knows. May be begun again: see on_ioctl_again(). */
static struct answer conclude(struct flight *f)
{
	struct cgpu_request *req = &f->call.req;
	int err = f->stage.result, dmabuf = f->dmabuf;

	if (!f->call.schedules)
		shut_new(f);
	f->dmabuf = -1;
	if (dmabuf >= 0)
		close(dmabuf);
	if (req->op == CGPU_OP_ALLOC && cgpu_is_channel_class(req->hClass) &&
	    f->stage.verdict == CGPU_DONE && !err && !cgpu_get32(f->args, req->status_offset))
		userd_allocated(f->c, f->fd, req->hClient,
				cgpu_get32(f->args, req->hObject_offset), f->params,
				req->params_size);
	if (req->op == CGPU_OP_FREE)
		userd_release(f->c);
	door.count.performed++;
	if (f->call.fd_file)
		f->c->lazy = true;
	if (f->stage.verdict == CGPU_UNDO && !f->stage.undone) {
		/* the call is of an agent before, and the tenant has closed the file since */
		if (f->fd < 0)
			processes_kill(f->c, "closed what its call was to be undone by");
		do
			undo(f);
		while (undone(f));
	} else if (f->stage.verdict == CGPU_KILL) {
		processes_kill(f->c, "raced its own call");
	}
	return err ? fail(err) : fail(deliver(f));
}

static void ask_driver(void *data)
{
	struct flight *f = data;
	struct cgpu_request *req = &f->call.req;
	int err = f->stage.at < STAGE_ASKED ? perform(f) : f->stage.result;

	if (!err && req->op == CGPU_OP_EXPORT_DMABUF &&
	    !cgpu_get32(f->args, req->status_offset)) {
		if (f->dmabuf < 0)
			f->dmabuf = (int)cgpu_get32(f->args, 0);
		err = hand_over_dmabuf(f);
	}
	if (!err && f->call.hSubdevice && !cgpu_get32(f->args, req->status_offset))
		make_interruptible(f);
	f->stage.result = err;
	f->stage.at = STAGE_PERFORMED;
	settle(f, true, err);
}

/* Resumes where the core has decided, or the driver has answered already. */
static struct answer carry_out(struct flight *f)
{
	/* GPFIFO_SCHEDULE opens channels that gates have shut */
	if (f->call.schedules)
		shut_scheduled_channels(f->c, f->call.card, ask_driver, f);
	else
		ask_driver(f);
	return conclude(f);
}

struct answer on_ioctl_again(struct flight *f)
{
	/* the string was in the program of the agent before */
	f->call.unlisted.kind = NULL;
	if (f->stage.at != STAGE_SETTLED)
		return carry_out(f);
	return f->stage.forward ? conclude_forward(f) : conclude(f);
}

static struct answer decide(struct flight *f)
{
	struct cgpu_request *req = &f->call.req;
	uint32_t status = req->status, handle;
	struct cgpu_wait wait = { 0 };
	int verdict;

	handle = performs(f) ? NV_OK : answer_handle(f);
	if (handle != NV_OK) {
		cgpu_put32(f->args, req->status_offset, handle);
		door.count.answered++;
		return fail(deliver(f));
	}
	verdict = pre(f);
	if (verdict == CGPU_ANSWER && is_no_memory(f)) {
		/* memory that was freed unseen counts before anything is refused */
		managed_settle(f->c);
		files_sweep_for_call(f->c, true);
		cgpu_put32(f->args, req->status_offset, status);
		verdict = pre(f);
	}
	while (verdict == CGPU_ANSWER && is_no_memory(f) &&
	       waits_for_room(f, &f->call.shortage, &wait)) {
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
	if (f->call.unlisted.kind)
		tell_unlisted(f, &f->call.unlisted, "unknown");
	return performs(f) ? carry_out(f) : let_go_on(f);
}

/* Refuses a call that can neither be performed nor go on. */
static struct answer refuse(struct flight *f)
{
	f->call.args = f->args;
	f->params_bytes = f->list_count = 0;
	door.count.answered++;
	if (f->call.req.status_offset != CGPU_NO_OFFSET)
		cgpu_put32(f->args, f->call.req.status_offset, NV_ERR_NOT_SUPPORTED);
	f->call.refused = true;
	report(f);
	pthread_mutex_lock(&door.lock);
	f->c->tenant.ledger.account[card_of(f)].refused++;
	pthread_mutex_unlock(&door.lock);
	return fail(f->call.req.status_offset == CGPU_NO_OFFSET ? -EPERM : deliver(f));
}

/*
 * Answers a second UVM_INITIALIZE of a file, by which the agent could take it for another process'.
 * The driver does nothing then, too, and calls it a success if the flags are the same.
 */
static struct answer answer_initialized(struct flight *f, int err)
{
	cgpu_put32(f->args, f->call.req.status_offset,
		   err == -EALREADY ? NV_OK :
		   err == -EBUSY ? NV_ERR_INVALID_ARGUMENT : NV_ERR_INSUFFICIENT_RESOURCES);
	door.count.answered++;
	return fail(deliver(f));
}

/*
 * Refuses a file whose UVM_INITIALIZE the agent did not see or has forgotten: its mappings could
 * not be found. Another thread can also have taken back the flag without which no memory of the
 * process goes to the card. Answers as the driver does for a file that is not initialised.
 */
static struct answer answer_uninitialized(struct flight *f)
{
	cgpu_put32(f->args, f->call.req.status_offset, NV_ERR_ILLEGAL_ACTION);
	door.count.answered++;
	return fail(deliver(f));
}

/* ------------------------------------------------------------------ the call */

static struct answer on_decoded(struct flight *f, uint32_t fd_number)
{
	struct cgpu_call *call = &f->call;
	struct cgpu_request *req = &call->req;
	uint32_t device, minor;
	int err;

	if (refuses(f))
		return refuse(f);
	if (req->op == CGPU_OP_ALLOC && !performs(f)) {
		err = note_client(f, (int)fd_number, &call->file);
		if (err == -ENOSPC && req->status_offset != CGPU_NO_OFFSET) {
			f->params_bytes = f->list_count = 0;
			cgpu_put32(f->args, req->status_offset, NV_ERR_INSUFFICIENT_RESOURCES);
			err = deliver(f);
			return fail(err);
		}
		if (err)
			return fail(err);
	}
	if (is_client(req))
		return CONTINUE;
	err = perform_read(f);
	if (err == -EINVAL && req->status_offset != CGPU_NO_OFFSET) {
		f->params_bytes = f->list_count = 0;
		cgpu_put32(f->args, req->status_offset, NV_ERR_INVALID_ARGUMENT);
		err = deliver(f);
		return fail(err);
	}
	if (err)
		return fail(err);
	if (!is_valid(f))
		return fail(-EINTR);
	call->file = keep_file(f, (int)fd_number, f->fd, f->device, f->minor, NULL);
	if (!call->file)
		return fail(-ENOMEM);
	call->pid = (uint32_t)f->process->pid;
	if (req->op == CGPU_OP_UVM_INITIALIZE) {
		err = managed_bind(f->c, call->file, f->process, f->tid, f->fd);
		/* the thread that waits has the address space that was looked at */
		if (!is_valid(f))
			return fail(-EINTR);
		if (err)
			return answer_initialized(f, err);
	}
	if (req->op == CGPU_OP_UVM_REGISTER_GPU && !managed_is_as_told(f->c, call->file, f->fd))
		return answer_uninitialized(f);
	if (req->fd >= 0) {
		f->named = duplicate(f->c, f->process, f->tid, f->thread_table, req->fd, &device,
				     &minor);
		/* a thread with its own table is known by number, so the file may be another's */
		if (!is_valid(f))
			return fail(-EINTR);
		if (f->named >= 0)
			call->fd_file = keep_file(f, req->fd, f->named, device, minor, NULL);
		else
			f->named = -1;
	}
	if (req->op == CGPU_OP_CONTROL && req->cmd == NV2080_CTRL_CMD_FB_GET_INFO_V2 &&
	    f->c->lazy)
		files_sweep_for_call(f->c, true);
	adopt_client(f, req->hClient, call->file);
	if (req->op == CGPU_OP_DUP)
		adopt_client(f, req->hClientSrc, call->file);
	return decide(f);
}

/* An escape or UVM command that no list names. */
static struct answer on_unknown(struct flight *f, uint32_t device, uint32_t nr)
{
	struct cgpu_unlisted unlisted;
	bool admitted;

	pthread_mutex_lock(&door.lock);
	admitted = cgpu_call_unknown(&f->c->tenant, device, nr, &unlisted);
	pthread_mutex_unlock(&door.lock);
	tell_unlisted(f, &unlisted, admitted ? "unknown" : "refused");
	return admitted ? CONTINUE : fail(-EINVAL);
}

/*
 * Treats a wrapped call as a bare one, and never lets it go on: the driver would look at the
 * wrapper again.
 */
static struct answer on_wrapped(struct flight *f, uint32_t fd_number)
{
	uint32_t cmd, size;
	uint64_t pointer;

	if (!copy_in(f, f->arg, f->args, 16))
		return fail(-EFAULT);
	if (cgpu_decode_xfer(f->args, 16, &cmd, &size, &pointer))
		return fail(-EINVAL);
	if (!cgpu_command_known(f->device, cmd))
		return on_unknown(f, f->device, cmd);
	f->wrapped = true;
	f->arg = pointer;
	f->cmd = _IOC(_IOC_READ | _IOC_WRITE, 'F', cmd, size);
	if (!copy_in(f, f->arg, f->args, size))
		return fail(-EFAULT);
	if (cgpu_decode(&door.abi, f->device, cmd, f->args, size, &f->call.req))
		return fail(-EINVAL);
	return on_decoded(f, fd_number);
}

/* Would the core read this command if the file were one of UVM's? */
static bool reads_uvm(uint32_t cmd)
{
	return cmd == UVM_DEINITIALIZE || cgpu_args_size(&door.abi, CGPU_DEVICE_UVM, cmd);
}

/*
 * Would a driver take this command if the file were one of UVM's, or of RM's? Includes commands
 * that no list names. UVM's own numbers belong to UVM alone.
 */
static bool is_uvm(uint32_t cmd)
{
	return cmd < CGPU_UVM_NUMBERS || reads_uvm(cmd);
}

static bool is_rm(uint32_t cmd)
{
	static const uint8_t nothing[CGPU_ARGS_MAX];
	uint32_t size = cgpu_args_size(&door.abi, CGPU_DEVICE_CTL, cmd);
	struct cgpu_request req;

	if (!cgpu_command_known(CGPU_DEVICE_CTL, cmd))
		return _IOC_SIZE(cmd) && _IOC_SIZE(cmd) == cgpu_escape_unlisted_size(cmd & 0xff);
	if ((cmd & 0xff) == NV_ESC_IOCTL_XFER_CMD)
		return size == 16;
	return size && !cgpu_decode(&door.abi, CGPU_DEVICE_CTL, cmd & 0xff, nothing, size, &req);
}

struct answer on_ioctl(struct flight *f, const struct seccomp_data *data)
{
	uint32_t nr, size, found;
	bool mine, other;
	int device, err;

	f->cmd = (uint32_t)data->args[1];
	f->arg = data->args[2];
	f->fd = duplicate(f->c, f->process, f->tid, f->thread_table, (int)data->args[0], &found,
			  &f->minor);
	if (f->fd < 0 && f->fd != -ENODEV)
		return fail(f->fd);
	device = f->fd < 0 ? -1 : (int)found;
	mine = device == CGPU_DEVICE_UVM ? reads_uvm(f->cmd) : device >= 0 && is_rm(f->cmd);
	other = !mine && ((device != CGPU_DEVICE_UVM && is_uvm(f->cmd)) || is_rm(f->cmd));
	/* the descriptor may be another file's when the kernel looks at it */
	if (other)
		return fail(-ENOTTY);
	if (device < 0)
		return CONTINUE;
	err = keep_process(f);
	if (err)
		return fail(err);
	nr = device == CGPU_DEVICE_UVM ? f->cmd : f->cmd & 0xff;
	if (!cgpu_command_known((uint32_t)device, nr))
		return on_unknown(f, (uint32_t)device, nr);
	/* a command of a size that the driver might take all the same */
	if (!mine)
		return device != CGPU_DEVICE_UVM && cgpu_interprets(nr) ? fail(-EINVAL) : CONTINUE;
	f->device = (uint32_t)device;
	size = cgpu_args_size(&door.abi, f->device, f->cmd);
	if (f->device != CGPU_DEVICE_UVM && nr == NV_ESC_IOCTL_XFER_CMD)
		return on_wrapped(f, (uint32_t)data->args[0]);
	if (!copy_in(f, f->arg, f->args, size))
		return fail(-EFAULT);
	if (cgpu_decode(&door.abi, f->device, nr, f->args, size, &f->call.req))
		return fail(-EINVAL);
	return on_decoded(f, (uint32_t)data->args[0]);
}
