// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells which of the driver's devices a tenant's descriptor is, and duplicates it.
 *
 * Any other file may lie in a file system of the tenant's own. FUSE asks its server at fstat() and
 * at every close(), and nothing ends that wait, not even SIGKILL. So the agent looks at a
 * descriptor in place, by what the kernel knows already, and duplicates only the driver's files. If
 * a tenant puts another file there between look and duplicate, stranger.c closes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "tenant/tenant.h"

#ifndef NVIDIA_MAJOR /* a test has other devices in their place */
#define NVIDIA_MAJOR 195
#define NVIDIACTL_MINOR 255
#endif
#ifndef UVM_MINOR
/* minor 1 is the tools' device, which has no memory */
#define UVM_MINOR 0
#endif

bool is_shortage(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOMEM;
}

static int device_at(const struct statx *st, uint32_t *minor_out)
{
	*minor_out = 0;
	if (!S_ISCHR(st->stx_mode))
		return -ENODEV;
	if (st->stx_rdev_major == NVIDIA_MAJOR) {
		if (st->stx_rdev_minor == NVIDIACTL_MINOR)
			return CGPU_DEVICE_CTL;
		*minor_out = st->stx_rdev_minor;
		return st->stx_rdev_minor < CGPU_MAX_CARDS ? CGPU_DEVICE_GPU : -ENODEV;
	}
	return door.uvm_major && st->stx_rdev_major == door.uvm_major &&
	       st->stx_rdev_minor == UVM_MINOR ? CGPU_DEVICE_UVM : -ENODEV;
}

/*
 * A file system may refuse us its attributes, as FUSE does to all but its owner. A process whose
 * descriptors we may not look at has none of the driver's by mistake.
 */
static int unseen(const char *path, int err)
{
	char target[1];

	if (err == ENOENT)
		return -EBADF;
	if (is_shortage(err))
		return -err;
	if (readlink(path, target, sizeof(target)) >= 0)
		return -ENODEV;
	return errno == ENOENT ? -EBADF : -errno;
}

int device_behind(int tid, int fd, uint32_t *minor_out)
{
	struct statx st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", tid, fd);
	/* ask for no attribute: the kernel then fills in what it has */
	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &st))
		return unseen(path, errno);
	return device_at(&st, minor_out);
}

int device_take(struct container *c, int pidfd, int fd, uint32_t *device, uint32_t *minor)
{
	int got = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0), found = -ENODEV;
	struct statx st;

	if (got < 0)
		return -errno;
	if (!statx(got, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st))
		found = device_at(&st, minor);
	if (found < 0) {
		stranger_close(c, got);
		return -EBADF;
	}
	*device = (uint32_t)found;
	return got;
}

bool device_shares_table(int agent, int tid)
{
	return !syscall(SYS_kcmp, agent, tid, KCMP_FILES, 0, 0);
}
