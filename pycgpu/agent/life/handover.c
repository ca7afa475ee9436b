// SPDX-License-Identifier: GPL-2.0-only
/* The messages between a watchdog and the next agent: handover.h defines them. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"
#include "life/handover.h"

enum { PATIENCE_S = 10 };

static struct sockaddr_un address = { .sun_family = AF_UNIX };

int cgpu_agent_socket(const char *path)
{
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	return 0;
}

bool handover_send(int to, int number, int fd)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &number, sizeof(number) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct cmsghdr *rights;

	if (fd >= 0) {
		message.msg_control = space;
		message.msg_controllen = sizeof(space);
		rights = CMSG_FIRSTHDR(&message);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
	}
	return sendmsg(to, &message, MSG_NOSIGNAL) == sizeof(number);
}

bool handover_receive(int from, int *number, int *fd)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { number, sizeof(*number) };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = space, .msg_controllen = sizeof(space),
	};
	struct cmsghdr *rights;

	*fd = -1;
	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof(*number))
		return false;
	rights = CMSG_FIRSTHDR(&message);
	if (rights && rights->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(rights), sizeof(*fd));
	return (*number < 0) == (*fd < 0);
}

int handover_listen(void)
{
	mode_t mask = umask(0177);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;

	unlink(address.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 16))
		err = -errno;
	umask(mask);
	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

const char *handover_path(void)
{
	return address.sun_path;
}

int handover_call(struct watchdog_hello *hello)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;
	struct timeval patience = { PATIENCE_S, 0 };
	struct ucred peer;
	socklen_t size = sizeof(peer);
	ssize_t got = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		err = -errno;
	else if (peer.uid)
		err = -EPERM;
	else
		got = recv(fd, hello, sizeof(*hello), MSG_WAITALL);
	if (!err && got != sizeof(*hello))
		err = got < 0 ? -errno : -ECONNRESET;
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

int cgpu_agent_end_watchdog(void)
{
	struct watchdog_hello hello;
	int fd = handover_call(&hello);
	char byte = WATCHDOG_END;

	if (fd < 0)
		return fd;
	/* the watchdog has ended when it answers no more */
	if (send(fd, &byte, 1, MSG_NOSIGNAL) == 1)
		while (recv(fd, &byte, 1, 0) > 0)
			;
	close(fd);
	return 0;
}
