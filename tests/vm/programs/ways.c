/* SPDX-License-Identifier: MIT */
/*
 * Ways in which calls reach the driver that no ordinary program takes. Each command says how much
 * it took of the card, by pieces of 64 MiB: "taken BYTES".
 * ways vfork: by a child that has its parent's memory. ways inject: by calls that a tracer puts in
 * the place of others. ways stall: by arguments in pages that nobody ever brings; says "stalled".
 * ways suspend: tries to have a filter suspended. ways agent PID: reaches for the agent's descriptors and memory; says what each attempt got.
 */
#define _GNU_SOURCE
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 64 << 20, PIECES = 64, FIRST = 0x55000000, STALLED = 8 };

static struct sc sc;
static struct nvos64 args;
static struct nv_memory_alloc memory;
static unsigned int taken;

static void die(const char *what)
{
	fprintf(stderr, "ways: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void say(void)
{
	printf("taken %llu\n", (unsigned long long)taken * PIECE);
}

static void by_vfork(void)
{
	struct sc_mem mem;
	int status;
	pid_t child;

	do {
		child = vfork();
		if (!child) {
			taken += !sc_mem_alloc(&sc, PIECE, &mem);
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child || status)
			die("child");
	} while (taken < PIECES && !sc_mem_alloc(&sc, PIECE, &mem) && ++taken);
	say();
}

static void prepare(unsigned int number)
{
	memory = (struct nv_memory_alloc){ .owner = sc.client, .size = PIECE };
	args = (struct nvos64){ .hRoot = sc.client, .hObjectParent = sc.device,
				.hObjectNew = FIRST + number, .hClass = 0x40,
				.pAllocParms = (u64)(uintptr_t)&memory,
				.paramsSize = sizeof(memory), .status = ~0u };
}

static void be_traced(void)
{
	unsigned int i;

	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	for (i = 0; i < PIECES; i++) {
		prepare(i);
		syscall(SYS_getppid);
		taken += !args.status;
	}
	say();
	fflush(stdout);
	_exit(0);
}

static void by_injection(void)
{
	struct user_regs_struct regs;
	pid_t child = fork();
	int status;

	if (!child)
		be_traced();
	waitpid(child, &status, 0);
	ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD);
	while (!ptrace(PTRACE_SYSCALL, child, NULL, NULL) && waitpid(child, &status, 0) == child &&
	       WIFSTOPPED(status)) {
		if (WSTOPSIG(status) != (SIGTRAP | 0x80) ||
		    ptrace(PTRACE_GETREGS, child, NULL, &regs) || regs.orig_rax != SYS_getppid)
			continue;
		regs.orig_rax = SYS_ioctl;
		regs.rdi = (unsigned long long)sc.ctl;
		regs.rsi = _IOWR('F', 0x2b, struct nvos64);
		regs.rdx = (unsigned long long)(uintptr_t)&args;
		ptrace(PTRACE_SETREGS, child, NULL, &regs);
	}
}

/* As CRIU does, so that a program's filter is not asked about what CRIU makes it call. */
static void by_suspension(void)
{
	pid_t child = fork();
	int status, suspended;

	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(child, &status, 0);
	errno = 0;
	suspended = !ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_SUSPEND_SECCOMP);
	printf("suspended %d errno %d\n", suspended, errno);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

static void *stall(void *page)
{
	ioctl(sc.ctl, _IOWR('F', 0x2a, struct nvos54), page);
	return NULL;
}

static void by_stalling(void)
{
	size_t bytes = STALLED * 4096;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC), i;
	u8 *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;

	range.range.start = (u64)(uintptr_t)pages;
	range.range.len = bytes;
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &range))
		die("userfaultfd");
	for (i = 0; i < STALLED; i++)
		if (pthread_create(&thread, NULL, stall, pages + i * 4096))
			die("thread");
	usleep(200000);
	printf("stalled\n");
	fflush(stdout);
	pause();
}

static void reach(pid_t agent)
{
	int pidfd = (int)syscall(SYS_pidfd_open, agent, 0), fd, got = 0;
	char path[64], byte;
	struct iovec here = { &byte, 1 }, there = { (void *)0x400000, 1 };

	for (fd = 0; fd < 256; fd++)
		got += syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0;
	printf("descriptors %d", got);
	snprintf(path, sizeof(path), "/proc/%d/fd/3", agent);
	printf(" opened %d", open(path, O_RDONLY) >= 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", agent);
	printf(" mem %d", open(path, O_RDWR) >= 0);
	printf(" written %d", syscall(SYS_process_vm_writev, agent, &here, 1, &there, 1, 0) >= 0);
	printf(" traced %d", !ptrace(PTRACE_SEIZE, agent, NULL, NULL));
	printf(" stopped %d\n", !kill(agent, 0));
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";

	if (!strcmp(way, "suspend")) {
		by_suspension();
		return 0;
	}
	if (!strcmp(way, "agent") && argc == 3) {
		reach(atoi(argv[2]));
		return 0;
	}
	if (sc_open(&sc, 0, NULL))
		die("open");
	if (!strcmp(way, "vfork"))
		by_vfork();
	else if (!strcmp(way, "inject"))
		by_injection();
	else if (!strcmp(way, "stall"))
		by_stalling();
	else
		die("unknown way");
	return 0;
}
