// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver's figure for what a container's processes hold, compared with the ledger. The tenant
 * allocates its own clients and devices. It can put another allocation in the place of one while
 * the driver looks at it. Such memory is on no account, but the driver's figure by process has it.
 * Seen on an H200 with 580.159.04: for a process with a context and 300 MiB, GET_PID_INFO says
 * 818.0 MiB, which is 518 + 300 in allocations.
 */
#include <string.h>

#include "driver/driver.h"
#include "tenant/tenant.h"

#define OFTEN_NS 1000000000ULL
/* the period after a call that can have become another; a page fault can hold it longer */
#define LIKELY_NS 5000000000ULL
#define SELDOM_NS 10000000000ULL

enum {
	/* ctrl2080gpu.h: NV2080_CTRL_GPU_GET_PID_INFO_PARAMS and its entries */
	PID_INFO_BYTES = 14408,
	PID_INFO_MAX = 200,
	ENTRY_FIRST = 8,
	ENTRY_BYTES = 72,
	ENTRY_RESULT = 8,
	ENTRY_PRIVATE = 16,
	ENTRY_SHARED_OWNED = 24
};

bool is_audit_due(uint64_t last_ns, uint64_t call_ns)
{
	uint64_t now = now_ns();

	return now - last_ns >= (now - call_ns < LIKELY_NS ? OFTEN_NS : SELDOM_NS);
}

uint64_t held_bytes(uint32_t minor, const uint32_t *pids, uint32_t count)
{
	uint8_t params[PID_INFO_BYTES] = { 0 };
	uint64_t bytes = 0;
	uint32_t i;

	cgpu_put32(params, 0, count);
	for (i = 0; i < count; i++)
		cgpu_put32(params, ENTRY_FIRST + ENTRY_BYTES * i, pids[i]);
	if (rm_control(rm_ctl_fd(), rm_client(), rm_subdevice(minor),
		       NV2080_CTRL_CMD_GPU_GET_PID_INFO, params, sizeof(params)))
		return 0;
	for (i = 0; i < count; i++) {
		const uint8_t *entry = params + ENTRY_FIRST + ENTRY_BYTES * i;

		if (!cgpu_get32(entry, ENTRY_RESULT))
			bytes += cgpu_get64(entry, ENTRY_PRIVATE) +
				 cgpu_get64(entry, ENTRY_SHARED_OWNED);
	}
	return bytes;
}

/*
 * True if a process holds more than the container was given, and more than it is charged for: a
 * limit may have shrunk. Of a card that was not given to it, a container holds nothing unless a
 * device became one of that card.
 */
static bool exceeds(struct container *c, uint32_t minor, uint64_t bytes)
{
	const struct cgpu_account *account = &c->tenant.ledger.account[minor];
	bool more;

	if (!c->grant[minor].present)
		return bytes;
	pthread_mutex_lock(&door.lock);
	more = !account->unlimited && bytes > account->max_bytes &&
	       bytes > account->current_bytes;
	pthread_mutex_unlock(&door.lock);
	return more;
}

void audit(struct container *c)
{
	uint64_t held[CGPU_MAX_CARDS] = { 0 };
	uint32_t pids[PROCESSES_MAX], left, count, minor;
	bool more = false;

	if (!is_audit_due(c->audited_ns, c->carried_ns))
		return;
	for (left = process_numbers(c, pids); left; left -= count) {
		count = left < PID_INFO_MAX ? left : PID_INFO_MAX;
		for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
			if (rm_subdevice(minor))
				held[minor] += held_bytes(minor, pids + left - count, count);
	}
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		more |= exceeds(c, minor, held[minor]);
	c->audited_ns = now_ns();
	/* twice, because a call can end and a limit shrink between the two figures */
	if (more && c->exceeded)
		processes_kill(c, "holds memory that it was not given");
	else if (more)
		c->audited_ns = 0;
	c->exceeded = more;
}
