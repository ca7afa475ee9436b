/* SPDX-License-Identifier: MIT */
/*
 * Whose work is whose, and who waits for whom. Always at work, with kernels of MS milliseconds.
 * heir child SECONDS MS: in a client that its process allocated, and a child of it used first,
 * which has ended. Prints one line of JSON: the part of the time that kernels ran in thousandths.
 * heir exec FILE SECONDS MS: then executes another program, and says so before. The kernel gives
 * the memory of the one before back for that, which waits for a read of FILE that is under way;
 * all locks that it has for that are held meanwhile.
 */
#define _GNU_SOURCE
#include "ring.h"
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

enum { RM_ALLOC = 0x2b, RM_CONTROL = 0x2a, GET_ATTACHED_IDS = 0x201 };

static bool by_child;

/* Asks the driver what any client may ask, and ends. */
static void use_first(int ctl, u32 client)
{
	u8 ids[128] = { 0 };
	struct nvos54 p = { .hClient = client, .hObject = client, .cmd = GET_ATTACHED_IDS,
			    .params = (u64)(uintptr_t)ids, .paramsSize = sizeof(ids) };
	unsigned long control = 3ul << 30 | sizeof(p) << 16 | 'F' << 8 | RM_CONTROL;
	pid_t child = fork();
	int status;

	if (!child)
		_exit(__real_ioctl(ctl, control, &p) || p.status);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		fprintf(stderr, "heir: child: status %#x\n", status);
}

/* Every ioctl of the client library comes here: the linker is told so. */
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct nvos64 *p;
	va_list list;
	int ret;

	va_start(list, request);
	p = va_arg(list, void *);
	va_end(list);
	ret = __real_ioctl(fd, request, p);
	if (by_child && !ret && (request & 0xff) == RM_ALLOC && !p->hRoot) {
		by_child = false;
		use_first(fd, p->hObjectNew);
	}
	return ret;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Begins to read what nobody waits for. */
static void read_on(const char *path)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct iocb read = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (u64)(uintptr_t)page,
			     .aio_nbytes = sizeof(page) }, *reads[] = { &read };
	aio_context_t context = 0;

	read.aio_fildes = (u32)open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if ((int)read.aio_fildes < 0 || syscall(SYS_io_setup, 1, &context) ||
	    syscall(SYS_io_submit, context, 1, reads) != 1) {
		fprintf(stderr, "heir: %s: %s\n", path, strerror(errno));
		exit(2);
	}
}

static struct sc sc;

/* Return: the part of the time that kernels ran, in thousandths; -1: no context. */
static int work(double seconds, double ms)
{
	struct sc_options options = { 0 };
	double start;
	int ret = sc_open(&sc, 0, &options);

	if (!ret)
		ret = sc_context(&sc);
	if (ret) {
		fprintf(stderr, "heir: status %#x\n", ret);
		return -1;
	}
	for (start = now(); now() - start < seconds; usleep(500)) {
		while (sc_queued(&sc, 0) < 8 && sc_enqueue(&sc, 0, (u64)(ms * 1e6)))
			;
		sc_ring(&sc, 0);
	}
	return (int)(sc_busy_ns(&sc, 0) / ((now() - start) * 1e6));
}

int main(int argc, char **argv)
{
	int share;

	if (argc == 4 && !strcmp(argv[1], "child")) {
		by_child = true;
		share = work(atof(argv[2]), atof(argv[3]));
		if (share < 0)
			return 2;
		printf("{\"share_permille\": %d}\n", share);
		return 0;
	}
	if (argc != 5 || strcmp(argv[1], "exec"))
		return 1;
	read_on(argv[2]);
	if (work(atof(argv[3]), atof(argv[4])) < 0)
		return 2;
	/* one of UVM's files keeps the memory; the card's stay open meanwhile */
	close(sc.uvm_mm);
	close(sc.uvm);
	/* till it is known that they are gone, and nobody asks for them */
	sleep(4);
	fcntl(sc.ctl, F_SETFD, 0);
	fcntl(sc.gpu, F_SETFD, 0);
	fcntl(sc.gpu2, F_SETFD, 0);
	puts("executes");
	fflush(stdout);
	execl("/bin/true", "true", NULL);
	return 2;
}
