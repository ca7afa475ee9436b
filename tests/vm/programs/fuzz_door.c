/* SPDX-License-Identifier: MIT */
/*
 * The door at which calls are thrown, as the host uses it: the module, which knows a container
 * by its pid namespace, or the agent, which knows it by the seccomp filter that its first process
 * puts itself under, as `cgpu run` does.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define AGENT "/run/cgpu/agent.sock"

enum { STACK_BYTES = 1 << 20, FILTER_INSNS = 256, TEXT_BYTES = 512 };

const char *tree = "/proc/cgpu_km";

/* None: the door is the module. */
static struct sock_filter filter[FILTER_INSNS];
static unsigned short filter_insns;

bool door_choose(const char *filter_file)
{
	int fd = filter_file ? open(filter_file, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t got = fd < 0 ? -1 : read(fd, filter, sizeof(filter));

	if (fd >= 0)
		close(fd);
	if (filter_file && (got <= 0 || got == sizeof(filter)))
		return false;
	if (filter_file) {
		filter_insns = got / sizeof(*filter);
		tree = "/run/cgpu_km";
	}
	return true;
}

bool door_lets_calls_go_on(void)
{
	return filter_insns;
}

int door_command(const char *text)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/inst_ctl", tree);
	return put(path, text) ? 0 : errno;
}

u32 door_slowness(void)
{
	return filter_insns ? 3 : 1;
}

void door_containers(void (*look)(const char *id, void *data), void *data)
{
	struct dirent *entry;
	char path[64];
	DIR *directory;

	snprintf(path, sizeof(path), "%s/container", tree);
	directory = opendir(path);
	while (directory && (entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			look(entry->d_name, data);
	if (directory)
		closedir(directory);
}

/* Return: the descriptor of the listener, -1: there is none. */
static int under_filter(void)
{
	struct sock_fprog program = { filter_insns, filter };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		       SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
		       &program);
}

static int enter(void *data)
{
	struct entrance *entrance = data;
	int listener = filter_insns ? under_filter() : -1;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(entrance->ends[1]);
	if (write(entrance->ends[0], &listener, sizeof(listener)) != sizeof(listener) ||
	    read(entrance->ends[0], &byte, 1) != 1)
		_exit(1);
	close(entrance->ends[0]);
	if (listener >= 0)
		close(listener);
	return entrance->work(entrance->data);
}

bool door_begin(struct entrance *entrance)
{
	static u8 stack[STACK_BYTES] __attribute__((aligned(16)));

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, entrance->ends))
		return false;
	entrance->pid = clone(enter, stack + sizeof(stack), CLONE_NEWPID | CLONE_NEWIPC | SIGCHLD,
			      entrance);
	close(entrance->ends[0]);
	if (entrance->pid < 0)
		close(entrance->ends[1]);
	return entrance->pid >= 0;
}

/* Return: the listener that the first process has by that number, -1. */
static int taken(const struct entrance *entrance, int listener)
{
	int pidfd = syscall(SYS_pidfd_open, entrance->pid, 0);
	int got = pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, listener, 0);

	if (pidfd >= 0)
		close(pidfd);
	return got;
}

/* One connection for one message and its answer. */
static bool tell_agent(const char *message, int listener)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = AGENT };
	union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = { 0 };
	struct iovec text = { (char *)message, strlen(message) };
	struct msghdr all = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char answer[TEXT_BYTES] = "";

	control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
					   .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&control.header), &listener, sizeof(int));
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof(address)) &&
	    sendmsg(fd, &all, MSG_NOSIGNAL) == (ssize_t)text.iov_len &&
	    recv(fd, answer, sizeof(answer) - 1, 0) < 0)
		answer[0] = 0;
	if (fd >= 0)
		close(fd);
	return strstr(answer, "\"ok\": true");
}

bool door_admit(struct entrance *entrance, const char *id, const char *grants)
{
	char command[TEXT_BYTES / 2], message[TEXT_BYTES];
	bool made;
	int listener;

	snprintf(command, sizeof(command), "create %s pid=%d %s", id, entrance->pid, grants);
	if (read(entrance->ends[1], &listener, sizeof(listener)) != sizeof(listener))
		exit(1);
	if (filter_insns) {
		listener = taken(entrance, listener);
		snprintf(message, sizeof(message), "{\"op\": \"run\", \"create\": \"%s\"}", command);
		made = listener >= 0 && tell_agent(message, listener);
		if (listener >= 0)
			close(listener);
	} else {
		made = !door_command(command);
	}
	if (write(entrance->ends[1], "g", 1) != 1)
		exit(1);
	close(entrance->ends[1]);
	return made;
}
