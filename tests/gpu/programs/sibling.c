// SPDX-License-Identifier: MIT
/*
 * LD_PRELOAD: has CUDA's channel groups scheduled under another name than their own.
 *   SIBLING=channel    through a channel of the group: NVA06F instead of NVA06C
 *   SIBLING=duplicate  through a duplicate of the group
 *   SIBLING=each       through each of its channels, 5 ms apart
 * After each it prints how many groups were scheduled so, and the last status that
 * was not NV_OK.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* nv_escape.h, nvos.h (580.95.05) */
enum { NV_ESC_RM_CONTROL = 0x2a, NV_ESC_RM_ALLOC = 0x2b, NV_ESC_RM_DUP_OBJECT = 0x34 };
/* cla06c.h, ctrla06c.h, ctrla06f/ctrla06fgpfifo.h */
enum {
	KEPLER_CHANNEL_GROUP_A = 0xa06c,
	NVA06C_CTRL_CMD_GPFIFO_SCHEDULE = 0xa06c0101,
	NVA06F_CTRL_CMD_GPFIFO_SCHEDULE = 0xa06f0103,
};

struct rm_alloc { uint32_t hRoot, hObjectParent, hObjectNew, hClass; };
struct rm_control { uint32_t hClient, hObject, cmd, flags; uint64_t params;
		    uint32_t paramsSize, status; };
struct rm_dup { uint32_t hClient, hParent, hObject, hClientSrc, hObjectSrc, flags, status; };

enum { GROUPS = 256, CHANNELS = 64, APART_US = 5000 };
static struct {
	uint32_t client, parent, group, channel[CHANNELS], channels;
} known[GROUPS];
static unsigned int count, scheduled, failed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int (*next_ioctl)(int, unsigned long, ...);

static int find(uint32_t client, uint32_t group)
{
	for (unsigned int i = 0; i < count; i++)
		if (known[i].client == client && known[i].group == group)
			return i;
	return -1;
}

static void learn(const struct rm_alloc *args)
{
	int at = find(args->hRoot, args->hObjectParent);

	if (args->hClass == KEPLER_CHANNEL_GROUP_A && count < GROUPS) {
		known[count].client = args->hRoot;
		known[count].parent = args->hObjectParent;
		known[count++].group = args->hObjectNew;
	} else if (at >= 0 && (args->hClass & 0xff) == 0x6f && known[at].channels < CHANNELS) {
		known[at].channel[known[at].channels++] = args->hObjectNew;
	}
}

static void tell(void)
{
	fprintf(stderr, "{\"groups\": %u, \"scheduled\": %u, \"status\": \"0x%x\"}\n", count,
		scheduled, failed);
}

static int schedule(int fd, unsigned long request, struct rm_control *args, int at)
{
	const char *way = getenv("SIBLING");
	struct rm_control other = *args;
	struct rm_dup dup = { args->hClient, known[at].parent, 0x51b00000u + at, args->hClient,
			      args->hObject, 0, 0 };
	unsigned int i;
	int result;

	if (way && !strcmp(way, "each")) {
		/* all but the last here */
		for (i = 0; i + 1 < known[at].channels; i++) {
			other.cmd = NVA06F_CTRL_CMD_GPFIFO_SCHEDULE;
			other.hObject = known[at].channel[i];
			next_ioctl(fd, request, &other);
			usleep(APART_US);
		}
	}
	if (way && (!strcmp(way, "channel") || !strcmp(way, "each")) && known[at].channels) {
		other.cmd = NVA06F_CTRL_CMD_GPFIFO_SCHEDULE;
		other.hObject = known[at].channel[strcmp(way, "each") ? 0 :
						  known[at].channels - 1];
	} else if (way && !strcmp(way, "duplicate")) {
		result = next_ioctl(fd, _IOWR('F', NV_ESC_RM_DUP_OBJECT, dup), &dup);
		if (result || dup.status) {
			failed = dup.status ? dup.status : 0xffff;
			return next_ioctl(fd, request, args);
		}
		other.hObject = dup.hObject;
	}
	result = next_ioctl(fd, request, &other);
	args->status = other.status;
	if (other.status)
		failed = other.status;
	else
		scheduled++;
	tell();
	return result;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	void *argument;
	int result, at;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (!next_ioctl)
		next_ioctl = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	if (_IOC_TYPE(request) != 'F' || !argument)
		return next_ioctl(fd, request, argument);
	pthread_mutex_lock(&lock);
	if (_IOC_NR(request) == NV_ESC_RM_CONTROL) {
		struct rm_control *args = argument;

		at = args->cmd == NVA06C_CTRL_CMD_GPFIFO_SCHEDULE ?
			find(args->hClient, args->hObject) : -1;
		if (at >= 0) {
			result = schedule(fd, request, args, at);
			pthread_mutex_unlock(&lock);
			return result;
		}
	}
	pthread_mutex_unlock(&lock);
	result = next_ioctl(fd, request, argument);
	if (!result && _IOC_NR(request) == NV_ESC_RM_ALLOC) {
		pthread_mutex_lock(&lock);
		learn(argument);
		pthread_mutex_unlock(&lock);
	}
	return result;
}
