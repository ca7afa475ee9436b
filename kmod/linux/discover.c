// SPDX-License-Identifier: GPL-2.0-only
/*
 * Minor, id, device instance, UUID, size and MIG mode of a card come from six calls that every CUDA
 * program makes too. So they work on each flavour and branch of the driver. They need user memory
 * (scratch) and, for the device, the card's file in the caller's own table: it is put there for the
 * time of the call.
 */
#include <linux/fcntl.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "driver.h"
#include "governors.h"
#include "registry.h"
#include "core/rm/abi.h"
#include "discover.h"
#include "tree.h"
#include "door/door.h"
#include "door/scratch.h"

/* nv-ioctl.h: nv_ioctl_card_info_t, 72 bytes each */
enum {
	CARD_BYTES = 72,
	CARD_VALID = 0,
	CARD_GPU_ID = 16,
	CARD_MINOR = 56,
	/* ctrl2080gpu.h: flags select the binary form, data@12 */
	GID_INFO_BYTES = 268,
	GID_FLAGS_BINARY = 2,
	GID_LENGTH = 8,
	GID_DATA = 12,
	ID_INFO_BYTES = 32,
	ID_INFO_INSTANCE = 8,
	INFO_ENTRY = 8, /* of a list: index, data */
};

struct session {
	struct file *ctl;
	struct cgpu_scratch scratch;
	u32 hClient;
};

/* The state that one core hands to the next. */
struct discovery {
	struct mutex lock;
	bool done;
	u32 unanswered; /* by minor */
};

static struct discovery *discovery;

/* `params_size` of scratch.params go with it. */
static long rm_ioctl(struct session *session, u32 nr, u32 size, u32 params_size)
{
	session->scratch.params_bytes = params_size;
	session->scratch.args_bytes = size;
	session->scratch.through_rm = cgpu_goes_to_rm(CGPU_DEVICE_CTL, nr);
	return cgpu_scratch_ask(&session->scratch, cgpu_door_driver_ioctl, session->ctl,
			     _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size));
}

/* NVOS21. Return: 0, -EIO. `params` in scratch.params. */
static int rm_alloc(struct session *session, u32 hParent, u32 *hObject, u32 hClass,
		    u32 params_size)
{
	u8 *args = session->scratch.args;

	memset(args, 0, 32);
	cgpu_put32(args, 0, session->hClient);
	cgpu_put32(args, 4, hParent);
	cgpu_put32(args, 8, *hObject);
	cgpu_put32(args, 12, hClass);
	if (params_size)
		cgpu_put64(args, 16, session->scratch.params_user);
	cgpu_put32(args, 24, params_size);
	if (rm_ioctl(session, NV_ESC_RM_ALLOC, 32, params_size) || cgpu_get32(args, 28))
		return -EIO;
	*hObject = cgpu_get32(args, 8);
	return 0;
}

static int rm_control(struct session *session, u32 hObject, u32 cmd, u32 params_size)
{
	u8 *args = session->scratch.args;

	memset(args, 0, 32);
	cgpu_put32(args, 0, session->hClient);
	cgpu_put32(args, 4, hObject);
	cgpu_put32(args, 8, cmd);
	cgpu_put64(args, 16, session->scratch.params_user);
	cgpu_put32(args, 24, params_size);
	return rm_ioctl(session, NV_ESC_RM_CONTROL, 32, params_size) || cgpu_get32(args, 28) ?
		-EIO : 0;
}

static void rm_free(struct session *session, u32 hObject)
{
	memset(session->scratch.args, 0, 16);
	cgpu_put32(session->scratch.args, 0, session->hClient);
	cgpu_put32(session->scratch.args, 8, hObject);
	rm_ioctl(session, NV_ESC_RM_FREE, 16, 0);
}

/* A driver that does not tell leaves it CGPU_MIG_UNTOLD. */
static void ask_mode(struct session *session, u32 hSubdevice, struct cgpu_gpu *gpu)
{
	struct cgpu_scratch *scratch = &session->scratch;
	u8 *list = scratch->args + CGPU_SCRATCH_LIST_PLACE;

	memset(scratch->params, 0, CGPU_GPU_INFO_BYTES);
	cgpu_put32(scratch->params, 0, 1);
	cgpu_put64(scratch->params, CGPU_GPU_INFO_LIST,
		   scratch->args_user + CGPU_SCRATCH_LIST_PLACE);
	cgpu_put32(list, 0, NV2080_CTRL_GPU_INFO_INDEX_GPU_SMC_MODE);
	cgpu_put32(list, 4, 0);
	scratch->list_bytes = INFO_ENTRY;
	if (!rm_control(session, hSubdevice, NV2080_CTRL_CMD_GPU_GET_INFO, CGPU_GPU_INFO_BYTES))
		gpu->mig = cgpu_mig_of(cgpu_get32(list, 4));
	scratch->list_bytes = 0;
}

/* UUID, size, what the driver holds back: of an open card */
static int ask_identity(struct session *session, u32 hSubdevice, struct cgpu_gpu *gpu)
{
	u32 fb_bytes = cgpu_driver_abi()->fb_get_info_v2_size;
	u8 *params = session->scratch.params;
	int err, nameless;

	memset(params, 0, GID_INFO_BYTES);
	cgpu_put32(params, 4, GID_FLAGS_BINARY);
	nameless = rm_control(session, hSubdevice, NV2080_CTRL_CMD_GPU_GET_GID_INFO,
			      GID_INFO_BYTES);
	if (!nameless && cgpu_get32(params, GID_LENGTH) == sizeof(gpu->uuid))
		memcpy(gpu->uuid, params + GID_DATA, sizeof(gpu->uuid));

	memset(params, 0, fb_bytes);
	cgpu_put32(params, 0, 3);
	cgpu_put32(params, 4, NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE);
	cgpu_put32(params, 4 + INFO_ENTRY, NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE);
	cgpu_put32(params, 4 + 2 * INFO_ENTRY, NV2080_CTRL_FB_INFO_INDEX_BAR1_SIZE);
	err = rm_control(session, hSubdevice, NV2080_CTRL_CMD_FB_GET_INFO_V2, fb_bytes);
	if (!err) {
		u64 heap_bytes = (u64)cgpu_get32(params, 8 + INFO_ENTRY) << 10;

		gpu->total_bytes = (u64)cgpu_get32(params, 8) << 10;
		gpu->bar1_bytes = (u64)cgpu_get32(params, 8 + 2 * INFO_ENTRY) << 10;
		if (heap_bytes < gpu->total_bytes)
			gpu->reserved_bytes = gpu->total_bytes - heap_bytes;
		err = nameless;
	}
	return err;
}

/* `known`: it has answered before, and may be in another mode since */
static int ask_subdevice(struct session *session, struct cgpu_gpu *gpu, bool known)
{
	u32 hDevice = 0xc6700001, hSubdevice = 0xc6700002;
	u8 *params = session->scratch.params;
	int err;

	memset(params, 0, 56);
	cgpu_put32(params, 0, gpu->device_instance);
	err = rm_alloc(session, session->hClient, &hDevice, NV01_DEVICE_0, 56);
	if (err)
		return err;
	memset(params, 0, 4);
	err = rm_alloc(session, hDevice, &hSubdevice, NV20_SUBDEVICE_0, 4);
	if (!err) {
		ask_mode(session, hSubdevice, gpu);
		if (!known)
			err = ask_identity(session, hSubdevice, gpu);
	}
	rm_free(session, hDevice);
	return err;
}

static int ask_card(struct session *session, u32 minor, struct cgpu_gpu *gpu, bool known)
{
	char path[32];
	struct file *file;
	int fd, err;

	/* opening initialises the card; without one behind it this is EIO */
	snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
	file = filp_open(path, O_RDWR, 0);
	if (IS_ERR(file))
		return PTR_ERR(file);
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		filp_close(file, NULL);
		return fd;
	}
	fd_install(fd, file);

	memset(session->scratch.params, 0, ID_INFO_BYTES);
	cgpu_put32(session->scratch.params, 0, gpu->gpu_id);
	err = rm_control(session, session->hClient, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2,
			 ID_INFO_BYTES);
	if (!err) {
		gpu->device_instance = cgpu_get32(session->scratch.params, ID_INFO_INSTANCE);
		err = ask_subdevice(session, gpu, known);
	}
	close_fd(fd);
	return err;
}

/* Return: 0, -ENOMEM: as if it were not there. */
static int add_card(u32 minor, const struct cgpu_gpu *gpu)
{
	int err = 0;

	if (cgpu_registry_add_card(minor, gpu))
		err = cgpu_tree_add_card(minor);
	if (err)
		cgpu_registry_drop_card(minor);
	return err;
}

/* of the cards in `minors`, by bit; of those in `known` their mode alone */
static int ask_cards(struct session *session, u32 minors, u32 known)
{
	/* every further question overwrites scratch.args */
	u8 *cards = session->scratch.before;
	u32 i;
	long err;

	BUILD_BUG_ON(CGPU_MAX_CARDS * CARD_BYTES > CGPU_PARAMS_MAX);
	BUILD_BUG_ON(CGPU_MAX_CARDS > BITS_PER_TYPE(minors));
	memset(session->scratch.args, 0, CGPU_MAX_CARDS * CARD_BYTES);
	err = rm_ioctl(session, NV_ESC_CARD_INFO, CGPU_MAX_CARDS * CARD_BYTES, 0);
	if (err)
		return err;
	memcpy(cards, session->scratch.args, CGPU_MAX_CARDS * CARD_BYTES);
	err = rm_alloc(session, 0, &session->hClient, NV01_ROOT_CLIENT, 0);
	if (err)
		return err;

	for (i = 0; i < CGPU_MAX_CARDS; i++) {
		const u8 *card = cards + i * CARD_BYTES;
		u32 minor = cgpu_get32(card, CARD_MINOR);
		struct cgpu_gpu gpu = { .gpu_id = cgpu_get32(card, CARD_GPU_ID) };

		if (!card[CARD_VALID] || minor >= CGPU_MAX_CARDS || !(minors >> minor & 1))
			continue;
		err = ask_card(session, minor, &gpu, known >> minor & 1);
		if (known >> minor & 1) {
			if (!err)
				cgpu_registry_set_mig(minor, gpu.mig);
			continue;
		}
		if (err)
			pr_warn("cgpu: card %u: no answer (%ld); asked again with its next container\n",
				minor, err);
		/* a silent card keeps its facts: the operator may have written them */
		if (!err || !(discovery->unanswered >> minor & 1))
			err = add_card(minor, &gpu) ?: err;
		discovery->unanswered &= ~(1U << minor);
		discovery->unanswered |= (err ? 1U : 0) << minor;
	}
	rm_free(session, session->hClient);
	return 0;
}

/* as ask_cards() */
static int ask_driver(u32 minors, u32 known)
{
	struct session session = { .ctl = filp_open("/dev/nvidiactl", O_RDWR, 0) };
	int err;

	if (IS_ERR(session.ctl))
		return PTR_ERR(session.ctl);
	err = cgpu_scratch_get(&session.scratch, false);
	if (!err) {
		err = ask_cards(&session, minors, known);
		cgpu_scratch_put(&session.scratch);
		cgpu_scratch_forget();
	}
	filp_close(session.ctl, NULL);
	return err;
}

int cgpu_discover(u32 wanted)
{
	u32 minors, known;
	int err;

	mutex_lock(&discovery->lock);
	err = cgpu_door_attach();
	if (err)
		goto out;
	/* the driver refuses another mode while the card is in use */
	known = discovery->done ? wanted & ~discovery->unanswered & cgpu_registry_vacant() : 0;
	minors = discovery->done ? (discovery->unanswered & wanted) | known : U32_MAX;
	if (minors && current->mm) {
		err = ask_driver(minors, known);
		discovery->done |= !err;
	}
	/* also of a card whose governor found no memory the last time */
	cgpu_governors_card_known();
out:
	mutex_unlock(&discovery->lock);
	return err;
}

void cgpu_discover_forget(void)
{
	u32 minor;

	mutex_lock(&discovery->lock);
	discovery->done = false;
	discovery->unanswered = 0;
	mutex_unlock(&discovery->lock);
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (cgpu_registry_drop_card(minor))
			cgpu_tree_remove_card(minor);
}

int cgpu_discovery_begin(void **part)
{
	discovery = kzalloc(sizeof(*discovery), GFP_KERNEL);
	if (!discovery)
		return -ENOMEM;
	cgpu_discovery_adopt(discovery);
	*part = discovery;
	return 0;
}

void cgpu_discovery_adopt(void *part)
{
	discovery = part;
	mutex_init(&discovery->lock);
}

void cgpu_discovery_end(void)
{
	kfree(discovery);
}

u64 cgpu_discovery_digest(u64 digest)
{
	return cgpu_digest(digest, sizeof(struct discovery));
}
