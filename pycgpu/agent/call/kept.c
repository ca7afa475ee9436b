// SPDX-License-Identifier: GPL-2.0-only
/* Keeps what a call in hand holds, and tells whether its caller still waits for it. */
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include "call/call.h"
#include "card/card.h"
#include "tenant/tenant.h"

bool is_valid(const struct flight *f)
{
	return !ioctl(f->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &f->id);
}

int keep_process(struct flight *f)
{
	struct process *kept;

	/* otherwise the number may be another process's by now, in another container */
	if (!is_valid(f))
		return -EINTR;
	kept = process_keep(f->c, f->process, f->tid);
	if (!kept)
		return -EAGAIN;
	f->process = kept;
	return 0;
}

uint32_t keep_file(struct flight *f, int fd, int local, uint32_t device, uint32_t minor,
		   struct cgpu_call *exported_by)
{
	uint32_t number = file_of(f->c, f->process, fd, local, device, minor, exported_by);

	if (number)
		f->file[f->file_count++] = number;
	return number;
}

static bool is_there(const void *f)
{
	return is_valid(f);
}

bool waits_for_room(struct flight *f, const struct cgpu_shortage *shortage, struct cgpu_wait *wait)
{
	return room_wait(f->c, shortage, wait, is_there, f);
}

void let_go_of(struct flight *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->named >= 0)
		close(f->named);
	f->fd = f->named = -1;
	while (f->file_count)
		file_put(f->c, f->file[--f->file_count]);
	if (f->process)
		process_put(f->c, f->process);
	f->process = NULL;
}
