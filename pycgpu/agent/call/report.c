// SPDX-License-Identifier: GPL-2.0-only
/* Reports a refused call: an event, and a line for a process that is killed for it. */
#include "call/call.h"
#include "host/host.h"
#include "tenant/tenant.h"

void tell_unlisted(struct flight *f, const struct cgpu_unlisted *unlisted, const char *fate)
{
	if (unlisted->first)
		event("%s id=%s pid=%d %s=%#x not listed", fate, f->c->id, f->process->pid,
		      unlisted->kind, unlisted->number);
}

void tell_shortage(struct flight *f, const struct cgpu_shortage *shortage)
{
	unsigned long long bytes = shortage->bytes;

	if (may_tell(f->c)) {
		if (shortage->card == CGPU_HOST)
			event("oom_host id=%s pid=%d bytes=%llu", f->c->id, f->process->pid,
			      bytes);
		else
			event("oom id=%s gpu=%u pid=%d bytes=%llu", f->c->id, shortage->card,
			      f->process->pid, bytes);
	}
	if (!shortage->kill)
		return;
	notice(f->c, f->tid, "cgpu: killed process %d: out of memory of card %u: %llu bytes asked beyond what its container may have; ask for more memory when the container is created\n",
	       f->process->pid, shortage->card, bytes);
	process_kill(f->c, f->process);
}

void report(struct flight *f)
{
	struct cgpu_call *call = &f->call;
	uint32_t status = call->req.status_offset == CGPU_NO_OFFSET ?
			  NV_ERR_INSUFFICIENT_PERMISSIONS :
			  cgpu_get32(f->args, call->req.status_offset);

	if (status == NV_OK)
		return;
	if (call->unlisted.kind)
		tell_unlisted(f, &call->unlisted, "refused");
	else if (!call->refused && call->shortage.card != CGPU_NO_CARD)
		tell_shortage(f, &call->shortage);
	else if (call->refused && may_tell(f->c))
		event("refused id=%s pid=%d nr=%u cmd=%#x class=%#x status=%#x", f->c->id,
		      f->process->pid, call->req.nr, call->req.cmd, call->req.hClass, status);
}
