// SPDX-License-Identifier: GPL-2.0-only
/* The client library: see simcuda.h. */
#define _GNU_SOURCE
#include "ring.h"
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define DOORBELL_BYTES		0x10000
#define STATE_IN_USE		0x63	/* NV_ERR_STATE_IN_USE */
#define ESC_ALLOC_MEMORY	0x27
#define ESC_FREE		0x29
#define ESC_CONTROL		0x2a
#define ESC_ALLOC		0x2b
#define ESC_DUP_OBJECT		0x34
#define ESC_SHARE		0x35
#define ESC_VID_HEAP_CONTROL	0x4a
#define ESC_MAP_MEMORY		0x4e
#define ESC_CARD_INFO		200
#define ESC_REGISTER_FD		201
#define ESC_CHECK_VERSION	210
#define ESC_XFER		211
#define ESC_SYS_PARAMS		214
#define ESC_NUMA_INFO		215
#define ESC_DMABUF		217

#define UVM_INITIALIZE		0x30000001
#define UVM_REGISTER_GPU_VASPACE 25
#define UVM_REGISTER_CHANNEL	27
#define UVM_UNREGISTER_CHANNEL	28
#define UVM_MAP_EXTERNAL	33
#define UVM_FREE		34
#define UVM_REGISTER_GPU	37
#define UVM_PAGEABLE_MEM_ACCESS	39
#define UVM_MIGRATE		51
#define UVM_VALIDATE_VA_RANGE	72
#define UVM_CREATE_EXTERNAL	73
#define UVM_MM_INITIALIZE	75

#define PTR(p) ((u64)(uintptr_t)(p))

static int rm_ioctl(struct sc *sc, int fd, u32 nr, void *arg, u32 size)
{
	struct nv_xfer xfer = { nr, size, PTR(arg) };
	int ret;

	if (sc->opt.xfer || size > 16383)
		ret = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', ESC_XFER, sizeof(xfer)), &xfer);
	else
		ret = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg);
	return ret < 0 ? -errno : 0;
}

int sc_rm_alloc_in(struct sc *sc, u32 client, u32 parent, u32 *handle, u32 class, void *params,
		   u32 size)
{
	struct nvos64 a = { .hRoot = client, .hObjectParent = parent, .hObjectNew = *handle,
			    .hClass = class, .pAllocParms = PTR(params) };
	struct nvos21 b = { .hRoot = client, .hObjectParent = parent, .hObjectNew = *handle,
			    .hClass = class, .pAllocParms = PTR(params) };
	int ret;

	(void)size;	/* user mode passes paramsSize 0: the class says it */
	if (sc->opt.old_alloc) {
		ret = rm_ioctl(sc, sc->ctl, ESC_ALLOC, &b, sizeof(b));
		*handle = b.hObjectNew;
		return ret ?: (int)b.status;
	}
	ret = rm_ioctl(sc, sc->ctl, ESC_ALLOC, &a, sizeof(a));
	*handle = a.hObjectNew;
	return ret ?: (int)a.status;
}

int sc_rm_alloc(struct sc *sc, u32 parent, u32 *handle, u32 class, void *params, u32 size)
{
	if (!*handle)
		*handle = __atomic_fetch_add(&sc->next_handle, 1, __ATOMIC_RELAXED);
	return sc_rm_alloc_in(sc, sc->client, parent, handle, class, params, size);
}

int sc_rm_alloc_client(struct sc *sc, u32 *client)
{
	bool xfer = sc->opt.xfer;
	int ret;

	/* bare even where all else is wrapped: the user door takes no wrapped one */
	*client = 0;
	sc->opt.xfer = false;
	ret = sc_rm_alloc_in(sc, 0, 0, client, 0x41, NULL, 0);
	sc->opt.xfer = xfer;
	return ret;
}

int sc_rm_free(struct sc *sc, u32 client, u32 handle)
{
	struct nvos00 p = { client, client, handle, 0 };
	int ret = rm_ioctl(sc, sc->ctl, ESC_FREE, &p, sizeof(p));

	return ret ?: (int)p.status;
}

static int control_of(struct sc *sc, u32 client, u32 object, u32 cmd, void *params, u32 size)
{
	struct nvos54 p = { .hClient = client, .hObject = object, .cmd = cmd,
			    .params = PTR(params), .paramsSize = size };
	int ret = rm_ioctl(sc, sc->ctl, ESC_CONTROL, &p, sizeof(p));

	return ret ?: (int)p.status;
}

int sc_rm_control(struct sc *sc, u32 object, u32 cmd, void *params, u32 size)
{
	return control_of(sc, sc->client, object, cmd, params, size);
}

int sc_rm_dup(struct sc *sc, u32 client, u32 parent, u32 *handle, u32 src_client, u32 src)
{
	struct nvos55 p = { client, parent, *handle, src_client, src, 0, 0 };
	int ret = rm_ioctl(sc, sc->ctl, ESC_DUP_OBJECT, &p, sizeof(p));

	*handle = p.hObject;
	return ret ?: (int)p.status;
}

int sc_rm_share(struct sc *sc, u32 handle, u32 type)
{
	struct nvos57 p = { .hClient = sc->client, .hObject = handle, .target = sc->client,
			    .accessMask = 1, .type = type };
	int ret = rm_ioctl(sc, sc->ctl, ESC_SHARE, &p, sizeof(p));

	return ret ?: (int)p.status;
}

int sc_rm_alloc_memory(struct sc *sc, u32 class, u64 *limit)
{
	struct nvos02_fd p = { .hRoot = sc->client, .hObjectParent = sc->device, .hClass = class,
			       .hObjectNew = __atomic_fetch_add(&sc->next_handle, 1,
								__ATOMIC_RELAXED), .fd = -1 };
	int ret = rm_ioctl(sc, sc->gpu, ESC_ALLOC_MEMORY, &p, sizeof(p));

	*limit = p.limit;
	return ret ?: (int)p.status;
}

int sc_vid_heap_info(struct sc *sc, u64 *total, u64 *free)
{
	struct nvos32 p = { .hRoot = sc->client, .hObjectParent = sc->device, .function = 5 };
	int ret = rm_ioctl(sc, sc->ctl, ESC_VID_HEAP_CONTROL, &p, sizeof(p));

	*total = p.total;
	*free = p.free;
	return ret ?: (int)p.status;
}

/* A bare command number; the result is in the struct at status_at. */
int sc_uvm(struct sc *sc, u32 cmd, void *params, u32 status_at)
{
	if (ioctl(sc->uvm, cmd, params) < 0)
		return -errno;
	return *(s32 *)((u8 *)params + status_at);
}

/* From 590 on by its base alone: the driver neither reads nor writes behind 16 bytes. */
static int uvm_free(struct sc *sc, u64 base, u64 length)
{
	struct { u64 base, length; u32 status, pad; } range = { base, length, 0, 0 };
	struct { u64 base; u32 status, pad; } by_base = { base, 0, 0 };

	return sc->branch >= 590 ? sc_uvm(sc, UVM_FREE, &by_base, 8) :
				   sc_uvm(sc, UVM_FREE, &range, 16);
}

/* ---- opening ---- */

static int register_fd(struct sc *sc, int fd)
{
	s32 ctl = sc->ctl;

	return rm_ioctl(sc, fd, ESC_REGISTER_FD, &ctl, sizeof(ctl));
}

static int open_gpu(struct sc *sc)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/nvidia%d", sc->minor);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int identify(struct sc *sc)
{
	struct { u32 gpuId, flags, deviceInstance, sub, sli, board, instance, numa; } id = { 0 };
	struct { u8 valid, pad[3]; u32 domain; u8 bus, slot, fn, pad2; u16 vendor, device;
		 u32 gpu_id; u16 irq, pad3; u64 reg, reg_size, fb, fb_size; u32 minor;
		 u8 name[10], pad4[2]; } cards[32];
	int i, ret;

	memset(cards, 0, sizeof(cards));
	ret = rm_ioctl(sc, sc->ctl, ESC_CARD_INFO, cards, sizeof(cards));
	if (ret)
		return ret;
	for (i = 0; i < 32 && !(cards[i].valid && cards[i].minor == (u32)sc->minor); i++)
		;
	if (i == 32)
		return -ENODEV;
	sc->gpu_id = id.gpuId = cards[i].gpu_id;
	ret = sc_rm_control(sc, sc->client, 0x205, &id, sizeof(id));
	sc->device_instance = id.deviceInstance;
	return ret;
}

/* Structs whose size alone moves between branches: 535, 550, 570, 580 and later. */
static u32 by_branch(const struct sc *sc, u32 a, u32 b, u32 c, u32 d)
{
	return sc->branch < 550 ? a : sc->branch < 570 ? b : sc->branch < 580 ? c : d;
}

/* The card's classes, asked of the driver as libcuda does. */
static int classes(struct sc *sc)
{
	struct { u32 n, list[200]; } *l = calloc(1, sizeof(*l));
	u32 i, c;
	int ret;

	if (!l)
		return -ENOMEM;
	ret = sc_rm_control(sc, sc->device, 0x00800292, l, by_branch(sc, 644, 700, 404, 804));
	for (i = 0; !ret && i < l->n && i < 200; i++) {
		c = l->list[i];
		if ((c & 0xf000) != 0xc000 || (c & 0xf00) < 0x300)
			continue;
		switch (c & 0xff) {
		case 0x6f: sc->channel_class = c; break;
		case 0x61: sc->usermode_class = c; break;
		case 0xc0: sc->compute_class = c; break;
		case 0xb5: sc->copy_class = c; break;
		}
	}
	free(l);
	if (!ret && !(sc->channel_class && sc->compute_class && sc->copy_class))
		ret = 0x56;
	return ret;
}

int sc_open(struct sc *sc, int minor, const struct sc_options *opt)
{
	/* with its own process, an MPS server with its user's */
	struct { u32 target, mask; u16 type; u8 action, pad; } share = { 0, 1,
		opt && opt->serves ? 2 : 4, 0, 0 };
	struct { u32 cmd, reply; char str[64]; } version = { '2', 0, "" };
	struct { u32 deviceId, hClientShare, rest[10], vaMode, pad; } dev = { 0 };
	struct { u32 index, flags, length; u8 data[256]; } gid = { .flags = 2 };
	struct { u32 flags; u8 name[128]; } name = { 0 };
	struct { u32 ids[32], failed; } attach;
	u8 numa[560] = { 0 }, probed[384] = { 0 };
	u64 memblock = 0x40000000;
	u32 zero = 0;
	int ret;

	memset(sc, 0, sizeof(*sc));
	if (opt)
		sc->opt = *opt;
	sc->minor = minor;
	sc->ctl = sc->gpu = sc->gpu2 = sc->uvm = sc->uvm_mm = -1;
	sc->next_handle = 0x5c000002;
	sc->next_va = 0x10000000000ull;
	sc->ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	if (sc->ctl < 0)
		return -errno;
	ret = rm_ioctl(sc, sc->ctl, ESC_CHECK_VERSION, &version, sizeof(version));
	if (ret)
		return ret;
	snprintf(sc->version, sizeof(sc->version), "%s", version.str);
	sc->branch = atoi(version.str);
	rm_ioctl(sc, sc->ctl, ESC_SYS_PARAMS, &memblock, sizeof(memblock));
	ret = sc_rm_alloc_client(sc, &sc->client);
	if (ret)
		return ret;
	share.target = sc->client;
	sc_rm_control(sc, sc->client, 0xd04, &share, sizeof(share));
	sc_rm_control(sc, sc->client, 0x214, probed, sc->branch >= 580 ? 384 : 256);
	ret = identify(sc);
	if (ret)
		return ret;
	memset(&attach, 0xff, sizeof(attach));
	attach.ids[0] = sc->gpu_id;
	sc_rm_control(sc, sc->client, 0x215, &attach, sizeof(attach));
	sc->gpu = open_gpu(sc);
	if (sc->gpu < 0)
		return sc->gpu;
	ret = register_fd(sc, sc->gpu);
	if (ret)
		return ret;
	rm_ioctl(sc, sc->gpu, ESC_NUMA_INFO, numa, sizeof(numa));
	dev.deviceId = sc->device_instance;
	/* as CUDA: its address spaces are all made by hand */
	dev.hClientShare = sc->client;
	dev.vaMode = 2;
	ret = sc_rm_alloc(sc, sc->client, &sc->device, 0x80, &dev, sizeof(dev));
	if (ret)
		return ret;
	sc->gpu2 = open_gpu(sc);
	if (sc->gpu2 >= 0)
		register_fd(sc, sc->gpu2);
	ret = sc_rm_alloc(sc, sc->device, &sc->subdevice, 0x2080, &zero, sizeof(zero));
	if (ret)
		return ret;
	ret = sc_rm_control(sc, sc->subdevice, 0x2080014a, &gid, sizeof(gid));
	memcpy(sc->uuid, gid.data, 16);
	if (!ret)
		ret = sc_rm_control(sc, sc->subdevice, 0x20800110, &name, sizeof(name));
	snprintf(sc->name, sizeof(sc->name), "%.63s", (char *)name.name);
	return ret ?: classes(sc);
}

void sc_close(struct sc *sc)
{
	int *fds[] = { &sc->uvm, &sc->uvm_mm, &sc->gpu, &sc->gpu2, &sc->ctl };
	unsigned int i;

	for (i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

void sc_leave_card(struct sc *sc)
{
	munmap((void *)sc->doorbell, DOORBELL_BYTES);
	sc->doorbell = NULL;
	close(sc->gpu);
	close(sc->gpu2);
	sc->gpu = sc->gpu2 = -1;
}

/* ---- a context ---- */

static void *map_object(struct sc *sc, u32 handle, u64 length, bool on_card)
{
	struct nvos33_fd p = { .hClient = sc->client, .hDevice = sc->device, .hMemory = handle,
			       .length = length };
	void *at = NULL;
	int fd, ret;

	fd = on_card ? open_gpu(sc) : open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	p.fd = fd;
	ret = rm_ioctl(sc, sc->ctl, ESC_MAP_MEMORY, &p, sizeof(p));
	if (!ret && !p.status) {
		/* as CUDA: over a range reserved before */
		at = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);
		if (at != MAP_FAILED)
			at = mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
				  0);
		if (at == MAP_FAILED)
			at = NULL;
	}
	close(fd);
	return at;
}

static int sysmem(struct sc *sc, u64 size, u32 *handle)
{
	struct nv_memory_alloc a = { .owner = sc->client, .attr = 1u << 25, .size = size };

	*handle = 0;
	return sc_rm_alloc(sc, sc->device, handle, 0x3e, &a, sizeof(a));
}

static int uvm_start(struct sc *sc)
{
	struct { u64 flags; u32 status, pad; } init = { sc->opt.uvm_flags };
	struct { s32 fd; u32 status; } mm = { 0 };
	struct { u8 access, pad[3]; u32 status; } pageable = { 0 };
	struct { u8 uuid[16]; u8 numa, pad[3]; s32 node, fd; u32 client, smc, status; } reg = { 0 };
	struct { u8 uuid[16]; s32 fd; u32 client, vaspace, status; } vas = { 0 };
	int ret;

	sc->uvm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	sc->uvm_mm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	if (sc->uvm < 0 || sc->uvm_mm < 0)
		return -errno;
	ret = sc_uvm(sc, UVM_INITIALIZE, &init, 8);
	if (ret)
		return ret;
	mm.fd = sc->uvm;
	if (ioctl(sc->uvm_mm, UVM_MM_INITIALIZE, &mm) < 0)
		return -errno;
	if (mm.status && mm.status != 0x10006)	/* not needed there */
		return mm.status;
	sc_uvm(sc, UVM_PAGEABLE_MEM_ACCESS, &pageable, 4);
	memcpy(reg.uuid, sc->uuid, 16);
	reg.fd = sc->ctl;
	reg.client = sc->client;
	ret = sc_uvm(sc, UVM_REGISTER_GPU, &reg, 36);
	if (ret)
		return ret;
	memcpy(vas.uuid, sc->uuid, 16);
	vas.fd = sc->ctl;
	vas.client = sc->client;
	vas.vaspace = sc->vaspace;
	return sc_uvm(sc, UVM_REGISTER_GPU_VASPACE, &vas, 28);
}

static int make_channel(struct sc *sc, int i, u32 group, u32 share, u32 engine, bool compute)
{
	struct { u8 uuid[16]; s32 fd; u32 client, channel, pad; u64 base, length;
		 u32 status, pad2; } reg = { 0 };
	u8 p[376] = { 0 };
	/* from 610 on hHandleVASpace stands before hUserdMemory */
	bool later = sc->branch >= 610;
	u32 object = 0, params[4] = { 0 };
	int ret;

	*(u32 *)(p + 16) = 1024;			/* gpFifoEntries */
	*(u32 *)(p + 24) = share;			/* hContextShare */
	*(u32 *)(p + 28) = share ? 0 : sc->vaspace;
	*(u32 *)(p + (later ? 36 : 32)) = sc->userd;
	*(u64 *)(p + (later ? 72 : 64)) = (u64)i * RING_BYTES;
	*(u32 *)(p + (later ? 136 : 128)) = engine;
	ret = sc_rm_alloc(sc, group, &sc->channel[i], sc->channel_class, p, later ? 376 : 368);
	if (ret)
		return ret;
	ret = sc_rm_alloc(sc, sc->channel[i], &object,
			  compute ? sc->compute_class : sc->copy_class, params, sizeof(params));
	if (ret)
		return ret;
	ret = sc_rm_control(sc, sc->channel[i], 0xc36f0108, &sc->token[i], 4);
	if (ret)
		return ret;
	memcpy(reg.uuid, sc->uuid, 16);
	reg.fd = sc->ctl;
	reg.client = sc->client;
	reg.channel = sc->channel[i];
	reg.base = 0x200000000ull + (u64)i * 0x2000000;
	reg.length = 0x2000000;
	return sc_uvm(sc, UVM_REGISTER_CHANNEL, &reg, 48);
}

/* A channel runs when it is scheduled, or its group was while it had it. */
static int schedule_group(struct sc *sc, u32 group, const u32 *channels, int count)
{
	u8 enable[3] = { 1, 0, 0 };
	u32 size = sc->branch >= 580 ? 3 : 2, own = group;
	int ret;

	if (sc->opt.by_duplicate) {
		group = __atomic_fetch_add(&sc->next_handle, 1, __ATOMIC_RELAXED);
		ret = sc_rm_dup(sc, sc->client, sc->device, &group, sc->client, own);
		if (ret)
			return ret;
	}
	/* NVA06C_CTRL_CMD_GPFIFO_SCHEDULE; others' channels are in an MPS server's group */
	if (!sc->opt.by_channel && !(sc->opt.server.client && group == sc->group[0]))
		return sc_rm_control(sc, group, 0xa06c0101, enable, size);
	for (ret = 0; !ret && count; count--) /* NVA06F_CTRL_CMD_GPFIFO_SCHEDULE */
		ret = sc_rm_control(sc, *channels++, 0xa06f0103, enable, size);
	return ret;
}

/* In place of the object a duplicate of it, in the same client. */
static int replace(struct sc *sc, u32 parent, u32 *handle)
{
	u32 own = *handle;
	int ret;

	if (!sc->opt.duplicates)
		return 0;
	*handle = __atomic_fetch_add(&sc->next_handle, 1, __ATOMIC_RELAXED);
	ret = sc_rm_dup(sc, sc->client, parent, handle, sc->client, own);
	return ret ?: sc_rm_free(sc, sc->client, own);
}

/* Likewise an address space, made in a client that is gone by now. */
static int foreign_space(struct sc *sc)
{
	struct { u32 index, flags; u64 rest[6]; } vas = { 0 };
	u32 device[14] = { sc->device_instance }; /* NV0080_ALLOC_PARAMETERS */
	u32 client = 0, hDevice, own, handle;
	int ret = sc_rm_alloc_client(sc, &client);

	if (ret)
		return ret;
	handle = __atomic_fetch_add(&sc->next_handle, 3, __ATOMIC_RELAXED);
	hDevice = handle + 1;
	own = handle + 2;
	device[1] = client; /* hClientShare */
	ret = sc_rm_alloc_in(sc, client, client, &hDevice, 0x80, device, sizeof(device)) ?:
	      sc_rm_alloc_in(sc, client, hDevice, &own, 0x90f1, &vas, sizeof(vas)) ?:
	      sc_rm_dup(sc, sc->client, sc->device, &handle, client, own) ?:
	      sc_rm_free(sc, client, client);
	sc->vaspace = handle;
	return ret;
}

static int own_group(struct sc *sc, int g, u32 engine)
{
	/* an MPS server's is no address space's: its clients bring their own */
	struct { u32 err, ecc, vaspace, engine; u8 vgpu, pad[3]; } p = {
		.vaspace = sc->opt.serves && !g ? 0 : sc->vaspace, .engine = engine };

	return sc_rm_alloc(sc, sc->device, &sc->group[g], 0xa06c, &p, sizeof(p));
}

static int duplicate(struct sc *sc, u32 *handle, u32 source)
{
	*handle = __atomic_fetch_add(&sc->next_handle, 1, __ATOMIC_RELAXED);
	return sc_rm_dup(sc, sc->client, sc->device, handle, sc->opt.server.client, source);
}

/* As a client of MPS: in place of a group of its own the server's, and what goes with it. */
static int join_server(struct sc *sc)
{
	const struct sc_server *server = &sc->opt.server;
	u32 mps = 0;

	return sc_rm_alloc(sc, sc->client, &mps, 0x900e, NULL, 0) ?:
	       duplicate(sc, &sc->group[0], server->group) ?:
	       duplicate(sc, &sc->server.memory[0], server->memory[0]) ?:
	       duplicate(sc, &sc->server.memory[1], server->memory[1]);
}

/* Its clients may have these. */
static int serve_clients(struct sc *sc)
{
	struct sc_mem mem;
	int ret = 0, i;

	sc->server.client = sc->client;
	sc->server.group = sc->group[0];
	for (i = 0; i < 2 && !ret; i++) {
		ret = sc_mem_alloc(sc, 2 << 20, &mem) ?: sc_rm_share(sc, mem.handle, 1);
		sc->server.memory[i] = mem.handle;
	}
	return ret;
}

static void launch_early(struct sc *sc)
{
	sc_enqueue(sc, 0, sc->opt.early_ns);
	sc_ring(sc, 0);
}

int sc_context(struct sc *sc)
{
	struct { u32 index, flags; u64 rest[6]; } vas = { 0 };
	u64 slice = 2048;
	u32 engine;
	int g, c, i = 0, count, ret;

	ret = sc_rm_alloc(sc, sc->subdevice, &sc->usermode, sc->usermode_class, NULL, 0) ?:
	      replace(sc, sc->subdevice, &sc->usermode);
	if (ret)
		return ret;
	sc->doorbell = map_object(sc, sc->usermode, DOORBELL_BYTES, true);
	if (!sc->doorbell)
		return -EIO;
	ret = sc->opt.duplicates ? foreign_space(sc) :
	      sc_rm_alloc(sc, sc->device, &sc->vaspace, 0x90f1, &vas, sizeof(vas));
	if (ret)
		return ret;
	ret = uvm_start(sc);
	if (ret)
		return ret;
	if (sc->opt.video_userd) {
		struct sc_mem mem = { 0 };

		ret = sc_mem_alloc(sc, (u64)SC_CHANNELS * RING_BYTES, &mem);
		sc->userd = mem.handle;
	} else {
		ret = sysmem(sc, (u64)SC_CHANNELS * RING_BYTES, &sc->userd);
	}
	if (ret)
		return ret;
	sc->rings = map_object(sc, sc->userd, (u64)SC_CHANNELS * RING_BYTES,
			       sc->opt.video_userd);
	if (!sc->rings)
		return -EIO;
	for (g = 0; g <= SC_COPY_GROUPS; g++) {
		engine = g ? 9 + g - 1 : !sc->opt.any_engine;
		ret = !g && sc->opt.server.client ? join_server(sc) : own_group(sc, g, engine);
		if (ret)
			return ret;
		if (!g) {
			u32 cs[3] = { sc->vaspace, 1, 0 };

			ret = sc_rm_alloc(sc, sc->group[0], &sc->share, 0x9067, cs, sizeof(cs)) ?:
			      replace(sc, sc->group[0], &sc->share);
			if (ret)
				return ret;
		}
		count = g ? SC_COPY_CHANNELS : SC_GR_CHANNELS;
		for (c = 0; c < count; c++, i++) {
			ret = make_channel(sc, i, sc->group[g], g ? 0 : sc->share, engine, !g);
			if (ret)
				return ret;
		}
		if (!g && sc->opt.early_ns)
			launch_early(sc);
		ret = schedule_group(sc, sc->group[g], &sc->channel[i - count], count);
		if (ret)
			return ret;
	}
	if (sc->opt.free_userd) {
		ret = sc_rm_free(sc, sc->client, sc->userd);
		if (ret && ret != STATE_IN_USE)
			return ret;
	}
	if (sc->opt.server.client)
		return 0;
	if (sc->opt.serves) {
		ret = serve_clients(sc);
		if (ret)
			return ret;
	}
	/* CUDA's own slice, its last step. */
	return sc_rm_control(sc, sc->group[0], 0xa06c0103, &slice, sizeof(slice));
}

int sc_renew(struct sc *sc, int channel, bool same_handle)
{
	struct { u8 uuid[16]; u32 client, channel, status; } reg = { 0 };
	int ret;

	memcpy(reg.uuid, sc->uuid, 16);
	reg.client = sc->client;
	reg.channel = sc->channel[channel];
	/* from 590 on without a card */
	if (sc->branch >= 590)
		sc_uvm(sc, UVM_UNREGISTER_CHANNEL, &reg.client, 8);
	else
		sc_uvm(sc, UVM_UNREGISTER_CHANNEL, &reg, 24);
	sc_rm_free(sc, sc->client, sc->channel[channel]);
	memset((void *)(sc->rings + channel * RING_BYTES), 0, RING_BYTES);
	if (!same_handle)
		sc->channel[channel] = 0;
	ret = make_channel(sc, channel, sc->group[0], sc->share, 1, true);
	return ret ? ret : schedule_group(sc, sc->group[0], &sc->channel[channel], 1);
}

/* ---- memory ---- */

static int heap_alloc(struct sc *sc, u64 size, struct sc_mem *mem)
{
	struct nvos32 p = { .hRoot = sc->client, .hObjectParent = sc->device,
			    .function = sc->opt.heap };
	u8 *b = (u8 *)&p;
	int ret;

	*(u32 *)(b + 40) = sc->client;			/* owner */
	*(u32 *)(b + 44) = mem->handle;
	*(u32 *)(b + 52) = 0x4000;			/* MEMORY_HANDLE_PROVIDED */
	if (sc->opt.heap == 6) {			/* height × pitch */
		u32 pitch = size % 65536 ? 4096 : 65536;

		*(u32 *)(b + 60) = pitch;
		*(u32 *)(b + 56) = (size + pitch - 1) / pitch;
	} else {
		*(u64 *)(b + (sc->opt.heap == 14 ? 80 : 88)) = size;
	}
	ret = rm_ioctl(sc, sc->ctl, ESC_VID_HEAP_CONTROL, &p, sizeof(p));
	mem->size = *(u64 *)(b + (sc->opt.heap == 14 ? 80 : 88));
	return ret ?: (int)p.status;
}

int sc_mem_alloc(struct sc *sc, u64 size, struct sc_mem *mem)
{
	struct nv_memory_alloc a = { .owner = sc->client, .size = size };
	int ret;

	memset(mem, 0, sizeof(*mem));
	mem->handle = __atomic_fetch_add(&sc->next_handle, 1, __ATOMIC_RELAXED);
	if (sc->opt.heap)
		return heap_alloc(sc, size, mem);
	ret = sc_rm_alloc(sc, sc->device, &mem->handle, 0x40, &a, sizeof(a));
	mem->size = a.size;
	return ret;
}

int sc_mem_free(struct sc *sc, struct sc_mem *mem)
{
	return sc_rm_free(sc, sc->client, mem->handle);
}

int sc_mem_map(struct sc *sc, struct sc_mem *mem)
{
	u32 entries = sc->branch == 535 ? 32 : 256, tail = 24 + entries * 36;
	struct { u64 base, length; u32 status, pad; } range;
	u8 *p = calloc(1, tail + 24);
	int ret;

	if (!p)
		return -ENOMEM;
	mem->va = __atomic_fetch_add(&sc->next_va, (mem->size + 0x1fffff) & ~0x1fffffull,
				     __ATOMIC_RELAXED);
	range.base = mem->va;
	range.length = mem->size;
	ret = sc_uvm(sc, UVM_CREATE_EXTERNAL, &range, 16);
	if (ret)
		goto out;
	*(u64 *)p = mem->va;
	*(u64 *)(p + 8) = mem->size;
	memcpy(p + 24, sc->uuid, 16);
	*(u64 *)(p + tail) = 1;
	*(s32 *)(p + tail + 8) = sc->ctl;
	*(u32 *)(p + tail + 12) = sc->client;
	*(u32 *)(p + tail + 16) = mem->handle;
	ret = sc_uvm(sc, UVM_MAP_EXTERNAL, p, tail + 20);
	if (ret)
		uvm_free(sc, mem->va, mem->size);
out:
	if (ret)
		mem->va = 0;
	free(p);
	return ret;
}

int sc_mem_unmap(struct sc *sc, struct sc_mem *mem)
{
	u64 base = mem->va;

	mem->va = 0;
	return uvm_free(sc, base, mem->size);
}

int sc_malloc(struct sc *sc, u64 size, struct sc_mem *mem)
{
	int ret = sc_mem_alloc(sc, size, mem);

	if (ret)
		return ret;
	ret = sc_mem_map(sc, mem);
	if (ret)
		sc_mem_free(sc, mem);
	return ret;
}

int sc_free(struct sc *sc, struct sc_mem *mem)
{
	int ret = mem->va ? sc_mem_unmap(sc, mem) : 0;

	return ret ?: sc_mem_free(sc, mem);
}

void *sc_mem_mmap(struct sc *sc, const struct sc_mem *mem)
{
	return map_object(sc, mem->handle, mem->size, true);
}

int sc_export(struct sc *sc, const struct sc_mem *mem, int *fd)
{
	struct { u32 type, device, parent, object; s32 fd; u32 flags; } p = {
		1, sc->device, sc->device, mem->handle, 0, 0 };
	int ret;

	*fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return -errno;
	p.fd = *fd;
	ret = sc_rm_control(sc, sc->client, 0x3d05, &p, sizeof(p));
	if (ret)
		close(*fd);
	return ret;
}

int sc_import(struct sc *sc, int fd, struct sc_mem *mem)
{
	struct { s32 fd; u32 type, device, parent, object; } p = {
		fd, 1, sc->device, sc->device, 0 };
	int ret;

	memset(mem, 0, sizeof(*mem));
	p.object = __atomic_fetch_add(&sc->next_handle, 1, __ATOMIC_RELAXED);
	ret = sc_rm_control(sc, sc->client, 0x3d06, &p, sizeof(p));
	mem->handle = p.object;
	return ret;
}

struct export_list {
	s32 fd;
	u32 device;
	u16 max;
	u8 metadata[64];
	u32 objects[512];
	u16 num, index;
};

int sc_carrier(struct sc *sc, unsigned int places, int *fd)
{
	struct export_list p = { .device = sc->device, .max = places, .num = places };
	int ret;

	*fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return -errno;
	p.fd = *fd;
	ret = sc_rm_control(sc, sc->client, 0x3d0b, &p, sizeof(p));
	if (ret)
		close(*fd);
	return ret;
}

int sc_carry(struct sc *sc, int fd, unsigned int place, u32 handle)
{
	struct export_list p = { .fd = fd, .device = sc->device, .num = 1, .index = place };

	p.objects[0] = handle;
	return sc_rm_control(sc, sc->client, 0x3d0b, &p, sizeof(p));
}

int sc_carried(struct sc *sc, int fd, unsigned int places, unsigned int *found)
{
	struct { s32 fd; u32 parent, objects[128]; u8 types[128]; u16 num, index; } p = {
		.fd = fd, .parent = sc->device, .num = places };
	unsigned int i;
	int ret;

	for (i = 0; i < places; i++)
		p.objects[i] = __atomic_fetch_add(&sc->next_handle, 1, __ATOMIC_RELAXED);
	ret = sc_rm_control(sc, sc->client, 0x3d0c, &p, sizeof(p));
	for (i = *found = 0; !ret && i < places; i++)
		*found += p.types[i] != 0;
	return ret;
}

int sc_dmabuf(struct sc *sc, const struct sc_mem *mem, int *fd)
{
	u32 size = sc->branch >= 570 ? 2608 : 2600, off = sc->branch >= 570 ? 36 : 32;
	u8 p[2608] = { 0 };
	int ret;

	*(s32 *)p = -1;
	*(u32 *)(p + 4) = sc->client;
	*(u32 *)(p + 8) = 1;
	*(u32 *)(p + 12) = 1;
	*(u64 *)(p + 24) = mem->size;
	*(u32 *)(p + off) = mem->handle;
	*(u64 *)(p + (sc->branch >= 570 ? 1576 : 1568)) = mem->size;
	ret = rm_ioctl(sc, sc->gpu, ESC_DMABUF, p, size);
	*fd = *(s32 *)p;
	return ret ?: *(s32 *)(p + size - 8);
}

void *sc_managed(struct sc *sc, u64 size)
{
	struct { u64 base, length; u32 status, pad; } v;
	void *at, *p;

	/* Reserve first: the offset must equal the address. */
	at = mmap(NULL, size + 0x200000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	at = (void *)(((uintptr_t)at + 0x1fffff) & ~(uintptr_t)0x1fffff);
	p = mmap64(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, sc->uvm,
		   (off64_t)(uintptr_t)at);
	if (p == MAP_FAILED)
		return NULL;
	v.base = PTR(p);
	v.length = size;
	sc_uvm(sc, UVM_VALIDATE_VA_RANGE, &v, 16);
	return p;
}

int sc_prefetch(struct sc *sc, void *p, u64 size, bool to_card)
{
	u8 a[80] = { 0 };

	*(u64 *)a = PTR(p);
	*(u64 *)(a + 8) = size;
	if (to_card)
		memcpy(a + 16, sc->uuid, 16);
	return sc_uvm(sc, UVM_MIGRATE, a, 72);
}

int sc_managed_free(void *p, u64 size)
{
	/* As CUDA: an anonymous mapping over it, not munmap. */
	void *q = mmap(p, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
		       -1, 0);

	return q == MAP_FAILED ? -errno : 0;
}

/* ---- figures ---- */

int sc_fb_info(struct sc *sc, const u32 *index, u32 *kib, int n)
{
	u32 p[257] = { n };
	int i, ret;

	for (i = 0; i < n; i++)
		p[1 + 2 * i] = index[i];
	ret = sc_rm_control(sc, sc->subdevice, 0x20801303, p,
			    by_branch(sc, 436, 444, 460, 1028));
	for (i = 0; i < n; i++)
		kib[i] = p[2 + 2 * i];
	return ret;
}

int sc_mem_info(struct sc *sc, u64 *free, u64 *total)
{
	const u32 index[] = { 0x16, 0x09, 0x10 };
	u32 kib[3];
	int ret = sc_fb_info(sc, index, kib, 3);

	*free = (u64)kib[0] << 10;
	*total = (u64)kib[1] << 10;
	return ret;
}

/* ---- work ---- */

static volatile u8 *ring(struct sc *sc, int channel)
{
	return sc->rings + (size_t)channel * RING_BYTES;
}

u32 sc_queued(struct sc *sc, int channel)
{
	volatile u8 *r = ring(sc, channel);

	return *(volatile u32 *)(r + RING_PUT) - *(volatile u32 *)(r + RING_GET);
}

bool sc_enqueue(struct sc *sc, int channel, u64 ns)
{
	volatile u8 *r = ring(sc, channel);
	u32 put = *(volatile u32 *)(r + RING_PUT);

	/* the lengths of those fetched are no longer needed */
	if (sc_queued(sc, channel) >= RING_SIZE)
		return false;
	*(volatile u64 *)(r + RING_ENTRIES + 8 * (put % RING_SIZE)) = ns;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile u32 *)(r + RING_PUT) = put + 1;
	return true;
}

void sc_ring(struct sc *sc, int channel)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile u32 *)(sc->doorbell + 0x90) = sc->token[channel];
}

u64 sc_completed(struct sc *sc, int channel)
{
	return *(volatile u64 *)(ring(sc, channel) + RING_COMPLETED);
}

u64 sc_busy_ns(struct sc *sc, int channel)
{
	return *(volatile u64 *)(ring(sc, channel) + RING_BUSY);
}
