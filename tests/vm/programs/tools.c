/* SPDX-License-Identifier: MIT */
/*
 * tools open: opens UVM's second device and, if that is granted, has an address space followed
 * when a line comes. tools inherited: by descriptor 3. Prints 0, a status of the driver's or
 * -errno.
 */
#define _GNU_SOURCE
#include "rm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { UVM_INITIALIZE = 0x30000001, UVM_TOOLS_INIT_EVENT_TRACKER = 56, PAGE = 4096 };

/* uvm_ioctl.h */
struct init_event_tracker {
	u64 queue_buffer, queue_length, control_buffer;
	u8 processor[16];
	u32 all_processors, uvm_fd, status;
};

static int open_space(void)
{
	struct { u64 flags; u32 status; } args = { 0 };
	int fd = open("/dev/nvidia-uvm", O_RDWR);

	if (fd < 0 || ioctl(fd, UVM_INITIALIZE, &args) || args.status) {
		perror("tools: /dev/nvidia-uvm");
		exit(2);
	}
	return fd;
}

static int track(int tools, int space)
{
	u8 *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct init_event_tracker args = {
		.queue_buffer = (u64)(uintptr_t)pages,
		.queue_length = 2,
		.control_buffer = (u64)(uintptr_t)(pages + PAGE),
		.uvm_fd = (u32)space,
	};

	return ioctl(tools, UVM_TOOLS_INIT_EVENT_TRACKER, &args) ? -errno : (int)args.status;
}

int main(int argc, char **argv)
{
	int tools = 3, space;

	if (argc != 2)
		return 1;
	space = open_space();
	if (!strcmp(argv[1], "open")) {
		tools = open("/dev/nvidia-uvm-tools", O_RDWR);
		printf("open %d\n", tools < 0 ? -errno : 0);
		fflush(stdout);
		if (tools < 0)
			return 0;
		getchar();
	}
	printf("track %d\n", track(tools, space));
	return 0;
}
