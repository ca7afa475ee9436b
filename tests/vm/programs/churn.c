/* SPDX-License-Identifier: MIT */
/*
 * churn N: N times, register a new pid namespace as a container, let its
 * process make a CUDA context, allocate, map and export, and kill it in the
 * middle. Runs on the host, as root. Prints how many were made.
 */
#define _GNU_SOURCE
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int go[2], ready[2];

/* Runs until it is killed; each step may be the one that is interrupted. */
static int tenant(void *unused)
{
	struct sc_options options = { 0 };
	struct sc sc;
	char byte;

	(void)unused;
	if (read(go[0], &byte, 1) != 1 || sc_open(&sc, 0, &options) || sc_context(&sc))
		_exit(1);
	for (;;) {
		struct sc_mem memory = { 0 }, plain = { 0 };
		int fd = -1;

		if (!sc_malloc(&sc, 3 << 20, &memory)) {
			if (!sc_export(&sc, &memory, &fd))
				close(fd);
			sc_free(&sc, &memory);
		}
		sc_mem_alloc(&sc, 1 << 20, &plain);
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
	}
}

static void command(const char *text)
{
	for (;;) {
		int fd = open("/proc/cgpu_km/inst_ctl", O_WRONLY);
		int ret = write(fd, text, strlen(text)), err = errno;

		close(fd);
		if (ret > 0)
			return;
		/* the card is full until those that were killed have been noticed */
		if (err != ENOSPC) {
			fprintf(stderr, "churn: %s: %s\n", text, strerror(err));
			exit(1);
		}
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1, i;
	char *stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (i = 0; i < count; i++) {
		char text[128], byte;
		pid_t child;
		int steps;

		if (pipe(go) || pipe(ready))
			return 1;
		child = clone(tenant, stack + (1 << 20), CLONE_NEWPID | SIGCHLD, NULL);
		if (child < 0) {
			perror("churn: clone");
			return 1;
		}
		snprintf(text, sizeof(text), "create churn%d pid=%d gpu=0,mem=%d", i, child,
			 256 << 20);
		command(text);
		close(ready[1]);
		if (write(go[1], "g", 1) != 1)
			return 1;
		/* now at the first step, now at a later one */
		for (steps = 0; steps < i % 4; steps++)
			if (read(ready[0], &byte, 1) != 1)
				return 1;
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		close(go[0]);
		close(go[1]);
		close(ready[0]);
	}
	printf("made %d\n", i);
	return 0;
}
