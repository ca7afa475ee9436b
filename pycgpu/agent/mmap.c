// SPDX-License-Identifier: GPL-2.0-only
/* An mmap of the UVM device is managed memory, or a pool that was announced. */
#include <errno.h>
#include <unistd.h>

#include "flight.h"

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

struct answer on_mmap(struct flight *f, const struct seccomp_data *data)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t length = (data->args[1] + page - 1) & ~(page - 1);
	uint32_t number, card = 0;
	int device, err, tries;

	f->fd = duplicate(f->c, f->process, f->tid, f->thread_table, (int)data->args[4]);
	if (f->fd < 0)
		return fail(f->fd);
	device = device_of(f->fd, &f->minor);
	if (device != CGPU_DEVICE_UVM)
		return CONTINUE;
	err = keep_process(f);
	if (err)
		return fail(err);
	number = file_of(f->c, f->process, (int)data->args[4], f->fd, CGPU_DEVICE_UVM, 0, NULL);
	if (!number)
		return fail(-ENOMEM);
	/* as the driver answers it */
	if (!managed_belongs(f->c, number, f->process))
		return fail(-EOPNOTSUPP);
	f->c->lazy = true;
	for (tries = 0; tries < 2; tries++) {
		if (tries) {
			managed_settle(f->c);
			files_sweep(f->c, true);
		}
		/* the driver maps where the address equals the offset */
		managed_mapped(f->c, number, data->args[0]);
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
