// SPDX-License-Identifier: MIT
// CUDA IPC: a second process opens a memory and an event handle of the first.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mark.h"

struct note { cudaIpcMemHandle_t memory; cudaIpcEventHandle_t event; };

static void put(int s, const void *p, size_t n) { if (write(s, p, n) != (ssize_t)n) exit(2); }
static void get(int s, void *p, size_t n) { if (read(s, p, n) != (ssize_t)n) exit(3); }

static int child(int sock)
{
	struct note note;
	cudaEvent_t event;
	void *p;
	char c = 0;

	get(sock, &note, sizeof(note));
	MUST(cudaFree(0));
	mark_memory("child: context");
	MUST(cudaIpcOpenMemHandle(&p, note.memory, cudaIpcMemLazyEnablePeerAccess));
	mark_memory("child: opened");
	MUST(cudaIpcOpenEventHandle(&event, note.event));
	MUST(cudaMemset(p, 5, 96 << 20));
	MUST(cudaDeviceSynchronize());
	put(sock, &c, 1);
	get(sock, &c, 1);
	mark_memory("child: owner has freed");
	MUST(cudaIpcCloseMemHandle(p));
	mark_memory("child: closed");
	put(sock, &c, 1);
	return 0;
}

int main(int argc, char **argv)
{
	struct note note;
	cudaEvent_t event;
	void *p;
	int sock[2];
	char number[16], c = 0;

	if (argc > 1)
		return child(atoi(argv[1]));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock))
		return 4;
	if (!fork()) {
		snprintf(number, sizeof(number), "%d", sock[1]);
		execl("/proc/self/exe", argv[0], number, (char *)NULL);
		_exit(5);
	}
	MUST(cudaFree(0));
	mark_memory("context");
	MUST(cudaMalloc(&p, 96 << 20));
	mark_memory("malloc 100663296");
	MUST(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
	MUST(cudaIpcGetMemHandle(&note.memory, p));
	MUST(cudaIpcGetEventHandle(&note.event, event));
	mark_memory("handles");
	put(sock[0], &note, sizeof(note));
	get(sock[0], &c, 1);
	mark_memory("child has opened");
	MUST(cudaFree(p));
	mark_memory("owner freed");
	put(sock[0], &c, 1);
	get(sock[0], &c, 1);
	mark_memory("child closed");
	wait(NULL);
	mark_memory("child gone");
	return 0;
}
