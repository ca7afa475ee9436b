// SPDX-License-Identifier: MIT
/*
 * A tenant that would answer its own calls.
 *
 *   usurp HOLD [program…]     once HOLD is gone, has a listener of its own, and executes program
 *
 * Prints what seccomp() said of it: errno, 0: it has one, and lets every call go on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void let_all_go_on(int listener)
{
	for (;;) {
		struct seccomp_notif call;
		struct seccomp_notif_resp answer = { .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

		memset(&call, 0, sizeof(call));
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			_exit(0);
		answer.id = call.id;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
}

int main(int argc, char **argv)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };
	int ends[2], listener;

	if (argc < 2 || pipe(ends))
		return 2;
	while (!access(argv[1], F_OK))
		usleep(10000);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/* a child that is not under that filter answers; it shares our descriptors */
	if (!syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL)) {
		if (read(ends[0], &listener, sizeof(listener)) == sizeof(listener) && listener >= 0)
			let_all_go_on(listener);
		_exit(0);
	}
	listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	printf("listener %d\n", listener < 0 ? errno : 0);
	fflush(stdout);
	if (write(ends[1], &listener, sizeof(listener)) < 0)
		return 2;
	if (argc > 2)
		execvp(argv[2], argv + 2);
	return 0;
}
