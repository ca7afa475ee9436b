// SPDX-License-Identifier: GPL-2.0-only
/*
 * The agent's own RM client: one device and subdevice a card. It identifies the cards, and carries
 * the gate calls. For FIFO_DISABLE_CHANNELS the driver checks the client that asks, not the owner
 * of the channels.
 *
 * The agent keeps every /dev/nvidiaN open, because the driver lets only a process that has the card
 * open allocate a device.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/driver.h"

enum {
	/* nv-ioctl.h: nv_ioctl_card_info_t */
	CARD_BYTES = 72,
	CARD_GPU_ID = 16,
	CARD_MINOR = 56,
	/* ctrl0000gpu.h: NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS */
	ID_INFO_BYTES = 32,
	ID_INFO_INSTANCE = 8,
	/* ctrl0000gpu.h: 32 ids, ended by ~0 */
	ATTACH_BYTES = 132,
	/* ctrl2080gpu.h */
	GID_INFO_BYTES = 268,
	GID_FLAGS_BINARY = 2,
	GID_LENGTH = 8,
	GID_DATA = 12,
	NVOS33_FLAGS_ACCESS_READ_ONLY = 1,
	FIRST_HANDLE = 0xc6700000
};

static int ctl = -1;
static uint32_t client;
static int gpu_fd[CGPU_MAX_CARDS];
static uint32_t device_handle[CGPU_MAX_CARDS];
static uint32_t subdevice[CGPU_MAX_CARDS];

int rm_ioctl(int fd, uint32_t nr, void *args, uint32_t size)
{
	return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), args) ? -errno : 0;
}

uint32_t rm_control(int fd, uint32_t hClient, uint32_t hObject, uint32_t cmd, void *params,
		    uint32_t size)
{
	struct nvos54 args = {
		.hClient = hClient,
		.hObject = hObject,
		.cmd = cmd,
		.params = (uintptr_t)params,
		.paramsSize = size,
	};

	return rm_ioctl(fd, NV_ESC_RM_CONTROL, &args, sizeof(args)) ? 0xffff : args.status;
}

int rm_alloc(uint32_t hParent, uint32_t *hObject, uint32_t hClass, void *params)
{
	struct nvos64 args = {
		.hRoot = client,
		.hObjectParent = hParent,
		.hObjectNew = *hObject,
		.hClass = hClass,
		.pAllocParms = (uintptr_t)params,
	};

	if (rm_ioctl(ctl, NV_ESC_RM_ALLOC, &args, sizeof(args)) || args.status)
		return -EIO;
	*hObject = args.hObjectNew;
	return 0;
}

void rm_free(uint32_t hObject)
{
	struct nvos00 args = { .hRoot = client, .hObjectParent = client, .hObjectOld = hObject };

	rm_ioctl(ctl, NV_ESC_RM_FREE, &args, sizeof(args));
}

uint32_t rm_share_with_agent(int fd, uint32_t hClient, uint32_t hObject, bool revoke)
{
	/* all other sharing of the object stays */
	struct nvos57 args = {
		.hClient = hClient,
		.hObject = hObject,
		.policy = {
			.target = client,
			.accessMask = 1u << RS_ACCESS_DUP_OBJECT,
			.type = RS_SHARE_TYPE_CLIENT,
			.action = RS_SHARE_ACTION_FLAG_COMPOSE |
				  (revoke ? RS_SHARE_ACTION_FLAG_REVOKE : 0),
		},
	};

	return rm_ioctl(fd, NV_ESC_RM_SHARE, &args, sizeof(args)) ? 0xffff : args.status;
}

uint32_t rm_duplicate(uint32_t hParent, uint32_t hClientSrc, uint32_t hObjectSrc,
		      uint32_t *hObject)
{
	struct nvos55 args = {
		.hClient = client,
		.hParent = hParent,
		.hClientSrc = hClientSrc,
		.hObjectSrc = hObjectSrc,
	};

	if (rm_ioctl(ctl, NV_ESC_RM_DUP_OBJECT, &args, sizeof(args)))
		return 0xffff;
	*hObject = args.hObject;
	return args.status;
}

const void *rm_map(uint32_t hMemory, uint64_t size)
{
	return rm_map_part(client, "/dev/nvidiactl", hMemory, 0, size);
}

const void *rm_map_part(uint32_t hDevice, const char *path, uint32_t hMemory, uint64_t offset,
			uint64_t size)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct nvos33_fd args = {
		.p = {
			.hClient = client,
			.hDevice = hDevice,
			.hMemory = hMemory,
			.offset = offset,
			.length = size,
			.flags = NVOS33_FLAGS_ACCESS_READ_ONLY,
		},
		.fd = fd, /* mmap() is called on it */
	};
	void *at = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (!rm_ioctl(ctl, NV_ESC_RM_MAP_MEMORY, &args, sizeof(args)) && !args.p.status)
		at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd); /* the mapping keeps it */
	return at == MAP_FAILED ? NULL : at;
}

int rm_ctl_fd(void)
{
	return ctl;
}

void rm_each_descriptor(void (*tell)(int fd))
{
	uint32_t i;

	tell(ctl);
	for (i = 0; i < CGPU_MAX_CARDS; i++)
		if (subdevice[i])
			tell(gpu_fd[i]);
}

uint32_t rm_client(void)
{
	return client;
}

uint32_t rm_device(uint32_t minor)
{
	return minor < CGPU_MAX_CARDS ? device_handle[minor] : 0;
}

uint32_t rm_subdevice(uint32_t minor)
{
	return minor < CGPU_MAX_CARDS ? subdevice[minor] : 0;
}

static int driver_version(char *version, size_t size)
{
	char text[512] = { 0 }, *at;
	FILE *file = fopen("/proc/driver/nvidia/version", "re");
	size_t length;

	if (!file)
		return -ENODEV;
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = 0;
	/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release …" */
	for (at = text; *at && *at != '\n'; at++) {
		int major, minor;

		if (at[0] == ' ' && at[1] >= '0' && at[1] <= '9' &&
		    sscanf(at + 1, "%d.%d", &major, &minor) == 2 && major >= 300) {
			length = strcspn(at + 1, " \n");
			snprintf(version, size, "%.*s", (int)length, at + 1);
			return 0;
		}
	}
	return -EINVAL;
}

static unsigned device_major(const char *name)
{
	FILE *file = fopen("/proc/devices", "re");
	unsigned major, found = 0;
	char line[128], word[64];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%u %63s", &major, word) == 2 && !strcmp(word, name))
			found = major;
	if (file)
		fclose(file);
	return found;
}

/* Once: the driver refuses another mode while our client has the card. */
static uint8_t ask_mode(uint32_t sub)
{
	uint8_t params[CGPU_GPU_INFO_BYTES] = { 0 };
	uint32_t list[2] = { NV2080_CTRL_GPU_INFO_INDEX_GPU_SMC_MODE, 0 };

	cgpu_put32(params, 0, 1);
	cgpu_put64(params, CGPU_GPU_INFO_LIST, (uintptr_t)list);
	return rm_control(ctl, client, sub, NV2080_CTRL_CMD_GPU_GET_INFO, params, sizeof(params)) ?
	       CGPU_MIG_UNTOLD : cgpu_mig_of(list[1]);
}

static int ask_card(uint32_t minor, uint32_t gpu_id)
{
	struct cgpu_gpu gpu = { .gpu_id = gpu_id };
	uint8_t params[CGPU_PARAMS_MAX] = { 0 };
	uint32_t device = FIRST_HANDLE + 2 * minor + 1, sub = device + 1;
	uint64_t heap_bytes;
	char path[32];

	snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
	gpu_fd[minor] = open(path, O_RDWR | O_CLOEXEC);
	if (gpu_fd[minor] < 0)
		return -errno;
	cgpu_put32(params, 0, (uint32_t)ctl);
	rm_ioctl(gpu_fd[minor], NV_ESC_REGISTER_FD, params, 4);

	memset(params, 0xff, ATTACH_BYTES);
	cgpu_put32(params, 0, gpu_id);
	cgpu_put32(params, ATTACH_BYTES - 4, 0);
	rm_control(ctl, client, client, NV0000_CTRL_CMD_GPU_ATTACH_IDS, params, ATTACH_BYTES);

	memset(params, 0, ID_INFO_BYTES);
	cgpu_put32(params, 0, gpu_id);
	if (rm_control(ctl, client, client, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, params,
		       ID_INFO_BYTES))
		return -EIO;
	gpu.device_instance = cgpu_get32(params, ID_INFO_INSTANCE);

	memset(params, 0, 56);
	cgpu_put32(params, 0, gpu.device_instance);
	if (rm_alloc(client, &device, NV01_DEVICE_0, params))
		return -EIO;
	memset(params, 0, 4);
	if (rm_alloc(device, &sub, NV20_SUBDEVICE_0, params))
		return -EIO;
	device_handle[minor] = device;
	subdevice[minor] = sub;
	gpu.mig = ask_mode(sub);

	memset(params, 0, GID_INFO_BYTES);
	cgpu_put32(params, 4, GID_FLAGS_BINARY);
	if (!rm_control(ctl, client, sub, NV2080_CTRL_CMD_GPU_GET_GID_INFO, params,
			GID_INFO_BYTES) &&
	    cgpu_get32(params, GID_LENGTH) == sizeof(gpu.uuid))
		memcpy(gpu.uuid, params + GID_DATA, sizeof(gpu.uuid));

	memset(params, 0, door.abi.fb_get_info_v2_size);
	cgpu_put32(params, 0, 3);
	cgpu_put32(params, 4, NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE);
	cgpu_put32(params, 12, NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE);
	cgpu_put32(params, 20, NV2080_CTRL_FB_INFO_INDEX_BAR1_SIZE);
	/* a card of unknown size could give away any amount */
	if (rm_control(ctl, client, sub, NV2080_CTRL_CMD_FB_GET_INFO_V2, params,
		       door.abi.fb_get_info_v2_size))
		return -EIO;
	heap_bytes = (uint64_t)cgpu_get32(params, 16) << 10;
	gpu.total_bytes = (uint64_t)cgpu_get32(params, 8) << 10;
	gpu.bar1_bytes = (uint64_t)cgpu_get32(params, 24) << 10;
	if (heap_bytes < gpu.total_bytes)
		gpu.reserved_bytes = gpu.total_bytes - heap_bytes;
	cgpu_card_add(&door.host, minor, &gpu);
	return 0;
}

int rm_open(bool newest, char *message)
{
	uint8_t cards[CGPU_MAX_CARDS * CARD_BYTES] = { 0 };
	uint32_t i, found = 0;
	int err;

	if (driver_version(door.version, sizeof(door.version))) {
		strcpy(message, "no NVIDIA driver is loaded: /proc/driver/nvidia/version is absent");
		return -ENODEV;
	}
	if (cgpu_abi_find(door.version, newest, &door.abi)) {
		snprintf(message, 256, "driver %s: a branch that is not known; if it is newer than "
			 "all known, --unknown-driver newest checks it", door.version);
		return -EOPNOTSUPP;
	}
	ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	if (ctl < 0) {
		err = errno;
		snprintf(message, 256, "/dev/nvidiactl: %s", strerror(err));
		return -err;
	}
	door.uvm_major = device_major("nvidia-uvm");
	if (rm_ioctl(ctl, NV_ESC_CARD_INFO, cards, sizeof(cards)) ||
	    rm_alloc(0, &client, NV01_ROOT_CLIENT, NULL)) {
		strcpy(message, "the driver refuses a client: see the kernel's log");
		rm_close();
		return -EIO;
	}
	for (i = 0; i < CGPU_MAX_CARDS; i++) {
		const uint8_t *card = cards + i * CARD_BYTES;
		uint32_t minor = cgpu_get32(card, CARD_MINOR);

		if (!card[0] || minor >= CGPU_MAX_CARDS)
			continue;
		err = ask_card(minor, cgpu_get32(card, CARD_GPU_ID));
		if (err)
			snprintf(message, 256, "/dev/nvidia%u does not answer: %s", minor,
				 strerror(-err));
		else
			found++;
	}
	if (found)
		return 0;
	if (!message[0])
		strcpy(message, "the driver knows no card");
	rm_close();
	return -ENODEV;
}

void rm_close(void)
{
	uint32_t i;

	for (i = 0; i < CGPU_MAX_CARDS; i++)
		if (subdevice[i])
			close(gpu_fd[i]);
	memset(subdevice, 0, sizeof(subdevice));
	if (ctl >= 0)
		close(ctl);
	ctl = -1;
}
