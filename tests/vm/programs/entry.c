// SPDX-License-Identifier: MIT
/*
 * Calls of a tenant by another entry than its machine's own: i386's and x32's. Prints what each got:
 * errno, 0: it was done.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { IOCTL = 54, OLD_MMAP = 90, MMAP2 = 192, SECCOMP = 354, X32 = 0x40000000 };
enum { RM_FREE = 0xc0104629, NEW_LISTENER = 8 };

static long i386(long nr, long a, long b, long c, long d, long e)
{
	long got;

	__asm__ volatile("int $0x80"
			 : "=a"(got)
			 : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory", "r8", "r9", "r10", "r11");
	return got;
}

static void say(const char *what, long got)
{
	printf("%s %ld ", what, got < 0 && got >= -4095 ? -got : 0);
}

int main(void)
{
	/* where 32 bits reach */
	uint32_t *args = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	int fd = open("/dev/nvidiactl", O_RDWR), zero = open("/dev/zero", O_RDWR);
	long got;

	if (args == MAP_FAILED || fd < 0 || zero < 0)
		return 2;
	args[1] = 4096;
	args[2] = PROT_READ;
	args[3] = MAP_SHARED;
	args[4] = (uint32_t)zero;
	/* what a filter would take for flags says that it is of no file */
	say("old mmap", i386(OLD_MMAP, (long)(uintptr_t)args, 0, 0, MAP_PRIVATE | MAP_ANONYMOUS,
			     0));
	say("mmap2", i386(MMAP2, 0, 4096, PROT_READ, MAP_SHARED, zero));
	say("ioctl", i386(IOCTL, fd, RM_FREE, (long)(uintptr_t)args, 0, 0));
	say("listener", i386(SECCOMP, 1, NEW_LISTENER, 0, 0, 0));
	got = syscall(X32 | SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, zero, 0);
	say("x32", got < 0 ? -errno : got);
	printf("\n");
	return 0;
}
