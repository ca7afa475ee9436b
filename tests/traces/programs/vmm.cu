// SPDX-License-Identifier: MIT
// cuMemCreate and cuMemMap; a handle exported as a descriptor and imported by a second process,
// which keeps the memory after the first has let go of it.
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cuda.h>
#include "mark.h"

static CUmemAllocationProp props(void)
{
	CUmemAllocationProp p;

	memset(&p, 0, sizeof(p));
	p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return p;
}

static void send_fd(int sock, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec io = { &byte, 1 };
	struct msghdr m = {};
	struct cmsghdr *c;

	m.msg_iov = &io;
	m.msg_iovlen = 1;
	m.msg_control = room;
	m.msg_controllen = sizeof(room);
	c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(sock, &m, 0) != 1)
		exit(2);
}

static int recv_fd(int sock)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec io = { &byte, 1 };
	struct msghdr m = {};
	int fd;

	m.msg_iov = &io;
	m.msg_iovlen = 1;
	m.msg_control = room;
	m.msg_controllen = sizeof(room);
	if (recvmsg(sock, &m, 0) != 1)
		exit(3);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

static void turn(int sock) { if (write(sock, "x", 1) != 1) exit(4); }
static void wait_turn(int sock) { char c; if (read(sock, &c, 1) != 1) exit(5); }

static CUdeviceptr map(CUmemGenericAllocationHandle h, size_t size)
{
	CUmemAccessDesc access;
	CUdeviceptr va;

	memset(&access, 0, sizeof(access));
	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	MUSTCU(cuMemAddressReserve(&va, size, 0, 0, 0));
	MUSTCU(cuMemMap(va, size, 0, h, 0));
	MUSTCU(cuMemSetAccess(va, size, &access, 1));
	return va;
}

static void unmap(CUdeviceptr va, size_t size)
{
	MUSTCU(cuMemUnmap(va, size));
	MUSTCU(cuMemAddressFree(va, size));
}

static int child(int sock, size_t size)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	int fd = recv_fd(sock);

	MUST(cudaFree(0));
	mark_memory("child: context");
	MUSTCU(cuMemImportFromShareableHandle(&h, (void *)(long)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	mark_memory("child: imported");
	va = map(h, size);
	MUSTCU(cuMemsetD8(va, 3, size));
	MUST(cudaDeviceSynchronize());
	mark_memory("child: mapped");
	turn(sock);
	wait_turn(sock);
	mark_memory("child: owner has let go");
	unmap(va, size);
	mark_memory("child: unmapped");
	MUSTCU(cuMemRelease(h));
	mark_memory("child: released");
	turn(sock);
	return 0;
}

int main(int argc, char **argv)
{
	const size_t size = 64 << 20;
	CUmemAllocationProp p = props();
	CUmemGenericAllocationHandle h, second;
	CUdeviceptr va;
	size_t grain;
	int sock[2], fd;
	char number[16];

	if (argc > 1)
		return child(atoi(argv[1]), size);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock))
		return 6;
	if (!fork()) {
		snprintf(number, sizeof(number), "%d", sock[1]);
		execl("/proc/self/exe", argv[0], number, (char *)NULL);
		_exit(7);
	}
	MUST(cudaFree(0));
	MUSTCU(cuMemGetAllocationGranularity(&grain, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	mark("granularity %zu", grain);
	mark_memory("context");
	MUSTCU(cuMemCreate(&h, size, &p, 0));
	mark_memory("created 67108864");
	va = map(h, size);
	mark_memory("mapped");
	unmap(va, size);
	mark_memory("unmapped");
	MUSTCU(cuMemRelease(h));
	mark_memory("released");

	MUSTCU(cuMemCreate(&h, size, &p, 0));
	va = map(h, size);
	MUSTCU(cuMemRelease(h));
	mark_memory("released while mapped");
	unmap(va, size);
	mark_memory("unmapped after release");

	MUSTCU(cuMemCreate(&second, size, &p, 0));
	MUSTCU(cuMemExportToShareableHandle(&fd, second, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	mark_memory("exported");
	send_fd(sock[0], fd);
	wait_turn(sock[0]);
	close(fd);
	mark_memory("descriptor closed");
	MUSTCU(cuMemRelease(second));
	mark_memory("owner released");
	turn(sock[0]);
	wait_turn(sock[0]);
	mark_memory("child released");
	wait(NULL);
	mark_memory("child gone");
	return 0;
}
