// SPDX-License-Identifier: MIT
// A pool of forked processes, each with a context and memory of its own. One ends by exit(), one by
// _exit() with its memory still allocated, one is killed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mark.h"

int main(void)
{
	int up[2], i;
	pid_t pid[3];
	char c;

	if (pipe(up))
		return 2;
	for (i = 0; i < 3; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			void *p;

			MUST(cudaMalloc(&p, (size_t)(i + 1) * (100 << 20)));
			mark_memory("child allocated");
			if (write(up[1], "x", 1) != 1)
				_exit(3);
			if (i == 2)
				pause();
			if (i == 1)
				_exit(0);
			MUST(cudaFree(p));
			mark_memory("child freed");
			exit(0);
		}
	}
	for (i = 0; i < 3; i++)
		if (read(up[0], &c, 1) != 1)
			return 4;
	waitpid(pid[0], NULL, 0);
	waitpid(pid[1], NULL, 0);
	MUST(cudaFree(0));
	mark_memory("parent: context, two children gone");
	kill(pid[2], SIGKILL);
	waitpid(pid[2], NULL, 0);
	mark_memory("parent: third killed");
	/* After fork the child holds the parent's descriptors but may not use CUDA. */
	pid[0] = fork();
	if (!pid[0]) {
		mark("child of a process with a context: error %d", (int)cudaFree(0));
		_exit(0);
	}
	waitpid(pid[0], NULL, 0);
	mark_memory("parent: its fork gone");
	return 0;
}
