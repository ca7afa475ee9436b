/* SPDX-License-Identifier: MIT */
/* A descriptor in a message of a Unix socket. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

static bool send_fd(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec io = { &byte, 1 };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	*header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
				    .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(socket, &message, 0) >= 0;
}

/* Return: -1: none came. */
static int receive_fd(int socket)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec io = { &byte, 1 };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	int fd;

	if (recvmsg(socket, &message, 0) < 0 || !CMSG_FIRSTHDR(&message))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

#endif
