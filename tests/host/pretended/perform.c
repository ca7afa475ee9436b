/* SPDX-License-Identifier: MIT */
/* pycgpu/agent/call/perform.c where tenants' files have a pretended driver. */
#include <sys/ioctl.h>

int pretend(int fd, unsigned long cmd, void *args);
#define ioctl pretend

#include "agent/call/perform.c"
