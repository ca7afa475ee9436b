// SPDX-License-Identifier: GPL-2.0-only
/*
 * One host, one authority. The agent listens before it looks for our tree, and we make the tree
 * before we look for the agent. So if both start at once, one finds the other.
 */
#include <linux/fcntl.h>
#include <linux/net.h>
#include <linux/un.h>
#include <net/net_namespace.h>

#include "authority.h"

/* where it listens: pycgpu/agent/server.py */
#define AGENT_SOCKET "/run/cgpu/agent.sock"

bool cgpu_agent_answers(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = AGENT_SOCKET };
	struct socket *socket;
	int err;

	if (sock_create_kern(&init_net, AF_UNIX, SOCK_STREAM, 0, &socket))
		return false;
	/* the kernels differ in what they call the address's type */
	err = kernel_connect(socket, (void *)&address, sizeof(address), O_NONBLOCK);
	sock_release(socket);
	/* EAGAIN: it listens, and is busy */
	return !err || err == -EAGAIN;
}
