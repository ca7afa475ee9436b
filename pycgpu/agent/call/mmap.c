// SPDX-License-Identifier: GPL-2.0-only
/* An mmap of the UVM device is managed memory, or a pool that was announced. */
#include <errno.h>
#include <unistd.h>

#include "call/call.h"
#include "card/card.h"
#include "tenant/tenant.h"

struct answer on_mmap(struct flight *f, const struct seccomp_data *data)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t length = (data->args[1] + page - 1) & ~(page - 1);
	/*
	 * the driver maps only where the address equals the offset, whatever address the caller
	 * asks for
	 */
	uint64_t base = data->args[5];
	struct cgpu_shortage shortage = { 0 };
	struct cgpu_wait wait = { 0 };
	uint32_t device, number;
	int err, tries;

	f->fd = duplicate(f->c, f->process, f->tid, f->thread_table, (int)data->args[4], &device,
			  &f->minor);
	if (f->fd < 0)
		return f->fd == -ENODEV ? CONTINUE : fail(f->fd);
	if (device != CGPU_DEVICE_UVM)
		return CONTINUE;
	err = keep_process(f);
	if (err)
		return fail(err);
	number = keep_file(f, (int)data->args[4], f->fd, CGPU_DEVICE_UVM, 0, NULL);
	if (!number)
		return fail(-ENOMEM);
	/* the driver's answer */
	if (!managed_belongs(f->c, number, f->process))
		return fail(managed_is_bound(f->c, number) ? -EOPNOTSUPP : -EBADFD);
	f->c->lazy = true;
	for (tries = 0; tries < 2 || waits_for_room(f, &shortage, &wait); tries++) {
		if (tries == 1) {
			managed_settle(f->c);
			files_sweep_for_call(f->c, true);
		}
		managed_mapped(f->c, number, base);
		pthread_mutex_lock(&door.lock);
		make_room(f->c);
		f->answer = CONTINUE;
		change_begin(f->c, f);
		parking_limit(f->c);
		cgpu_ledger_judge_again(&f->c->tenant.ledger, &shortage);
		err = cgpu_tenant_mmap(&f->c->tenant, number, base, length);
		shortage = f->c->tenant.ledger.shortage;
		if (!err)
			f->stage.at = STAGE_ANSWERED;
		change_end();
		pthread_mutex_unlock(&door.lock);
		if (!err)
			return CONTINUE;
	}
	if (shortage.card != CGPU_NO_CARD)
		tell_shortage(f, &shortage);
	else if (may_tell(f->c))
		event("refused id=%s pid=%d managed bytes=%llu", f->c->id, f->process->pid,
		      (unsigned long long)length);
	return fail(err);
}
