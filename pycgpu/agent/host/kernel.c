// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks for what the agent cannot do without. A kernel may lack any of these. Then the agent could
 * not tell which process has which file, or what a program asked for, and limits would not hold. On
 * a kernel without kcmp managed memory was not charged.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "host/host.h"

static long try_kcmp(int self)
{
	return syscall(SYS_kcmp, self, self, KCMP_FILES, 0, 0);
}

static long try_process_vm_readv(int self)
{
	char from = 0, to;
	struct iovec local = { &to, 1 }, remote = { &from, 1 };

	return syscall(SYS_process_vm_readv, self, &local, 1, &remote, 1, 0);
}

static long try_pidfd_getfd(int self)
{
	int pidfd = (int)syscall(SYS_pidfd_open, self, 0);
	long got;

	if (pidfd < 0)
		return -1;
	/* duplicates the pidfd itself, a descriptor that certainly exists */
	got = syscall(SYS_pidfd_getfd, pidfd, pidfd, 0);
	if (got >= 0)
		close((int)got);
	close(pidfd);
	return got;
}

static const struct need {
	const char *call, *option;
	long (*attempt)(int self);
} needs[] = {
	{ "kcmp", "CONFIG_KCMP, or CONFIG_CHECKPOINT_RESTORE", try_kcmp },
	{ "process_vm_readv", "CONFIG_CROSS_MEMORY_ATTACH", try_process_vm_readv },
	{ "pidfd_getfd", "Linux 5.6", try_pidfd_getfd },
};

int kernel_check(char *message)
{
	size_t i;
	int err;

	for (i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
		if (needs[i].attempt(getpid()) >= 0)
			continue;
		err = errno;
		snprintf(message, 256, "%s does not work here: %s: the agent needs a kernel with %s; "
			 "the kernel module does not", needs[i].call, strerror(err),
			 needs[i].option);
		return -err;
	}
	return 0;
}
