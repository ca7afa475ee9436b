// SPDX-License-Identifier: MIT
/*
 * LD_PRELOAD: disables and schedules CUDA's channels as a door's gates and a tenant's calls do,
 * for gates.py. What it does when CUDA schedules a group:
 *   GATES=group    its channels are disabled before
 *   GATES=channel  its channels are scheduled one by one, all but the first disabled before
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* nv_escape.h, class/cl2080.h, cla06c.h, ctrla06c.h, ctrla06f/ctrla06fgpfifo.h (580.95.05) */
enum { NV_ESC_RM_CONTROL = 0x2a, NV_ESC_RM_ALLOC = 0x2b, NV20_SUBDEVICE_0 = 0x2080 };
enum {
	NVA06C_CTRL_CMD_GPFIFO_SCHEDULE = 0xa06c0101,
	NVA06F_CTRL_CMD_GPFIFO_SCHEDULE = 0xa06f0103,
	NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS = 0x2080110b,
	NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE = 0x20801210,
};
enum { CILP_SET = 1, COMPUTE_CILP = 2 };

struct rm_alloc { uint32_t hRoot, hObjectParent, hObjectNew, hClass; };
struct rm_control { uint32_t hClient, hObject, cmd, flags; uint64_t params;
		    uint32_t paramsSize, status; };
struct disable_channels { uint8_t bDisable, pad[3]; uint32_t numChannels;
			  uint8_t bOnlyDisableScheduling, bRewindGpPut, pad2[6];
			  uint64_t pRunlistPreemptEvent;
			  uint32_t hClientList[64], hChannelList[64]; };

static struct { uint32_t client, handle, group; } channel[64];
static struct { uint32_t client, handle; } group[16], subdevice;
static unsigned int channels, groups;
static int ctl;
static int (*next_ioctl)(int, unsigned long, ...);

static bool control(uint32_t client, uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
	struct rm_control args = { client, object, cmd, 0, (uintptr_t)params, size, 0 };

	return !next_ioctl(ctl, _IOWR('F', NV_ESC_RM_CONTROL, args), &args) && !args.status;
}

/* Of that group, or of all where `of` is 0; without its first. */
static void disable(bool shut, uint32_t of, bool spare)
{
	struct disable_channels params = { .bDisable = shut };
	unsigned int i;

	for (i = 0; i < channels; i++) {
		if (of && channel[i].group != of)
			continue;
		if (spare) {
			spare = false;
			continue;
		}
		params.hClientList[params.numChannels] = channel[i].client;
		params.hChannelList[params.numChannels++] = channel[i].handle;
	}
	if (!control(subdevice.client, subdevice.handle, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS,
		     &params, sizeof(params)))
		abort();
}

static void schedule(uint32_t client, uint32_t object, uint32_t cmd, bool enable)
{
	uint8_t params[3] = { enable };

	if (!control(client, object, cmd, params, sizeof(params)))
		abort();
}

static void schedule_channels(uint32_t of)
{
	unsigned int i;

	for (i = 0; i < channels; i++)
		if (!of || channel[i].group == of)
			schedule(channel[i].client, channel[i].handle,
				 NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, true);
}

/* What gates.py calls. */
void gates_disable(bool shut)
{
	disable(shut, 0, false);
}

void gates_schedule_groups(bool enable)
{
	unsigned int i;

	for (i = 0; i < groups; i++)
		schedule(group[i].client, group[i].handle, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE,
			 enable);
}

void gates_schedule_channels(void)
{
	schedule_channels(0);
}

/* The first group, which computes; a driver may refuse it. Return: whether it did not. */
bool gates_make_interruptible(void)
{
	struct { uint32_t flags, hChannel, gfxp, cilp; uint64_t route[2]; } params = {
		CILP_SET, group[0].handle, 0, COMPUTE_CILP, { 0 } };

	return control(subdevice.client, subdevice.handle,
		       NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, &params, sizeof(params));
}

/* Return: true: it is scheduled. */
static bool first_schedule(uint32_t client, uint32_t of)
{
	const char *way = getenv("GATES");
	unsigned int i;

	if (groups < 16) {
		group[groups].client = client;
		group[groups++].handle = of;
	}
	if (way && !strcmp(way, "group"))
		disable(true, of, false);
	if (!way || strcmp(way, "channel"))
		return false;
	for (i = 0; channel[i].group != of; i++)
		;
	schedule(client, channel[i].handle, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, true);
	disable(true, of, true);
	schedule_channels(of);
	return true;
}

static void learn(const struct rm_alloc *args)
{
	if ((args->hClass & 0xff) == 0x6f && channels < 64) {
		channel[channels].client = args->hRoot;
		channel[channels].group = args->hObjectParent;
		channel[channels++].handle = args->hObjectNew;
	} else if (args->hClass == NV20_SUBDEVICE_0) {
		subdevice.client = args->hRoot;
		subdevice.handle = args->hObjectNew;
	}
}

int ioctl(int fd, unsigned long request, ...)
{
	struct rm_control *args;
	va_list list;
	void *argument;
	int result;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (!next_ioctl)
		next_ioctl = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	args = argument;
	if (_IOC_TYPE(request) == 'F' && _IOC_NR(request) == NV_ESC_RM_CONTROL &&
	    args->cmd == NVA06C_CTRL_CMD_GPFIFO_SCHEDULE) {
		ctl = fd;
		if (first_schedule(args->hClient, args->hObject)) {
			args->status = 0;
			return 0;
		}
	}
	result = next_ioctl(fd, request, argument);
	if (!result && _IOC_TYPE(request) == 'F' && _IOC_NR(request) == NV_ESC_RM_ALLOC)
		learn(argument);
	return result;
}
