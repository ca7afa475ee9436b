/* SPDX-License-Identifier: MIT */
/* pycgpu/agent/tenant/device.c where /dev/null is /dev/nvidiactl. */
#define NVIDIA_MAJOR 1
#define NVIDIACTL_MINOR 3

#include "agent/tenant/device.c"
