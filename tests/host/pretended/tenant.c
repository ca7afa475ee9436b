/* SPDX-License-Identifier: MIT */
/*
 * tenant HELD CLIENT: holds so many allocations of 1 MiB, says `ready`, and from a line on allocates
 * and frees as fast as it can; at the next one frees all that is not held, and prints one line of
 * JSON. What the kernel says is what the agent does, for /dev/null takes no ioctl; but for clients
 * and devices, which the tenant makes itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/rm/abi.h"
#include "core/rm/structs.h"

enum { DEVICE = 0x10, FIRST = 0x1000 };

static unsigned long calls, failed;
static long long longest_ns;
static char first[96];
static int fd;
static uint32_t client;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void done(const char *what, int ret, uint32_t status)
{
	calls++;
	if (ret || status)
		if (!failed++)
			snprintf(first, sizeof(first), "%s: %d, errno %d, status %#x", what, ret,
				 errno, status);
}

/* What began then ends now. */
static void took(long long began)
{
	long long now = now_ns();

	if (now - began > longest_ns)
		longest_ns = now - began;
}

static int call(uint32_t nr, void *args, uint32_t size)
{
	long long began = now_ns();
	int ret = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), args);

	took(began);
	return ret;
}

static int allocate(uint32_t hParent, uint32_t hObject, uint32_t hClass, void *params,
		    uint32_t *status)
{
	struct nvos64 args = {
		.hRoot = client, .hObjectParent = hParent, .hObjectNew = hObject,
		.hClass = hClass, .pAllocParms = (uintptr_t)params,
	};
	int ret = call(NV_ESC_RM_ALLOC, &args, sizeof(args));

	*status = args.status;
	return ret;
}

static void take(uint32_t hObject)
{
	struct nv_memory_alloc params = { .size = 1 << 20 };
	uint32_t status;
	int ret = allocate(DEVICE, hObject, NV01_MEMORY_LOCAL_USER, &params, &status);

	done("alloc", ret, status);
}

static void give(uint32_t hObject)
{
	struct nvos00 args = { .hRoot = client, .hObjectParent = DEVICE, .hObjectOld = hObject };
	int ret = call(NV_ESC_RM_FREE, &args, sizeof(args));

	done("free", ret, args.status);
}

/* Notified, and none of the driver's. */
static void map(void)
{
	static int file = -1;
	long long began = now_ns();
	void *at;

	if (file < 0)
		file = memfd_create("plain", 0);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
	took(began);
	done("mmap", at == MAP_FAILED, 0);
	if (at != MAP_FAILED)
		munmap(at, 4096);
}

/* What the driver takes once for a file, by a file that is new. */
static void enrol(void)
{
	int file = open("/dev/null", O_RDWR);
	int32_t ctl = fd;
	long long began = now_ns();
	int ret = ioctl(file, _IOC(_IOC_READ | _IOC_WRITE, 'F', NV_ESC_REGISTER_FD, sizeof(ctl)),
			&ctl);

	took(began);
	done("register", ret, 0);
	close(file);
}

int main(int argc, char **argv)
{
	uint32_t held = argc > 1 ? (uint32_t)atoi(argv[1]) : 1, status, i, number;
	struct pollfd in = { .fd = 0, .events = POLLIN };
	struct nv0080_alloc device = { 0 };
	uint32_t root = 0;
	char line[16];

	fd = open("/dev/null", O_RDWR);
	client = 0;
	allocate(0, 0, NV01_ROOT_CLIENT, &root, &status);
	client = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 0xc1d00010;
	allocate(client, DEVICE, NV01_DEVICE_0, &device, &status);
	for (i = 0; i < held; i++)
		take(FIRST + i);
	if (failed) {
		fprintf(stderr, "tenant: begin: %s\n", first);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	longest_ns = 0;
	calls = 0;
	for (number = 0; poll(&in, 1, 0) == 0; number++) {
		for (i = 0; i < 8; i++)
			take(FIRST + held + i);
		map();
		enrol();
		for (i = 0; i < 8; i++)
			give(FIRST + held + i);
		if (number % 16 == 0) {
			long long began = now_ns();
			pid_t pid = fork();

			if (!pid) {
				map();
				_exit(failed ? 1 : 0);
			}
			waitpid(pid, NULL, 0);
			took(began);
		}
	}
	printf("{\"turns\": %u, \"calls\": %lu, \"failed\": %lu, \"first\": \"%s\","
	       " \"longest_ns\": %lld}\n", number, calls, failed, first, longest_ns);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	for (i = 0; i < held; i++)
		give(FIRST + i);
	return failed != 0;
}
