// SPDX-License-Identifier: MIT
/*
 * The driver's own answers, without CUDA: sizes and rounding of NV01_MEMORY_LOCAL_USER, who keeps
 * memory alive, old and wrapped forms of the calls, the statuses of wrong ones.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mark.h"

#define MIB (1ull << 20)

struct nvos00 { uint32_t hRoot, hParent, hOld, status; };
struct nvos21 { uint32_t hRoot, hParent, hNew, hClass; uint64_t parms; uint32_t size, status; };
struct nvos54 { uint32_t hClient, hObject, cmd, flags; uint64_t params; uint32_t size, status; };
struct nvos55 { uint32_t hClient, hParent, hObject, hClientSrc, hObjectSrc, flags, status; };
struct nvos57 { uint32_t hClient, hObject, target, access; uint16_t type; uint8_t action, pad; uint32_t status; };
struct nvos64 { uint32_t hRoot, hParent, hNew, hClass; uint64_t parms, rights;
		uint32_t size, flags, status, pad; };
struct xfer { uint32_t cmd, size; uint64_t ptr; };
struct memory {
	uint32_t owner, type, flags, width, height; int32_t pitch; uint32_t attr, attr2, format,
	comprCovg, zcullCovg, pad; uint64_t rangeLo, rangeHi, size, alignment, offset, limit, address;
	uint32_t ctagOffset, hVASpace, internalflags, tag; int32_t numaNode; uint32_t pad2;
};
struct nvos32 {
	uint32_t hRoot, hParent, function, hVASpace; int16_t ivc; uint16_t pad; uint32_t status;
	uint64_t total, free; uint32_t owner, hMemory, type, flags, attr, format, covg, zcovg, stride,
	width, height, pad2; uint64_t size, alignment, offset, limit, address, begin, end; uint32_t attr2,
	ctag; int32_t numa; uint32_t rest[7];
};

static int ctl, gpu;
static uint32_t client, device, subdevice, next = 0x5c000100;

static uint32_t alloc_on(int fd, uint32_t root, uint32_t parent, uint32_t *handle, uint32_t class,
			 void *p, uint32_t size)
{
	struct nvos64 a = { root, parent, *handle, class, (uintptr_t)p, 0, size, 0, 0, 0 };

	if (ioctl(fd, _IOWR('F', 0x2b, a), &a))
		return 0x10000u | (uint32_t)errno;
	*handle = a.hNew;
	return a.status;
}

static uint32_t alloc(uint32_t parent, uint32_t *handle, uint32_t class, void *p, uint32_t size)
{
	return alloc_on(ctl, client, parent, handle, class, p, size);
}

static uint32_t release_on(int fd, uint32_t root, uint32_t parent, uint32_t handle)
{
	struct nvos00 a = { root, parent, handle, 0 };

	return ioctl(fd, _IOWR('F', 0x29, a), &a) ? 0x10000u | (uint32_t)errno : a.status;
}

static uint32_t release(uint32_t handle) { return release_on(ctl, client, device, handle); }

static uint32_t control_on(int fd, uint32_t root, uint32_t object, uint32_t cmd, void *p, uint32_t size)
{
	struct nvos54 a = { root, object, cmd, 0, (uintptr_t)p, size, 0 };

	return ioctl(fd, _IOWR('F', 0x2a, a), &a) ? 0x10000u | (uint32_t)errno : a.status;
}

static uint32_t heap_kib(void)
{
	uint32_t p[257] = { 1, 0x16, 0 };

	if (control_on(ctl, client, subdevice, 0x20801303, p, 1028))
		return 0;
	return p[2];
}

static uint32_t video(uint32_t *handle, struct memory *m, uint64_t size, uint32_t attr, uint32_t flags)
{
	memset(m, 0, sizeof(*m));
	m->owner = client;
	m->size = size;
	m->attr = attr;
	m->flags = flags;
	*handle = next++;
	return alloc(device, handle, 0x40, m, sizeof(*m));
}

static void sizes(void)
{
	static const uint64_t want[] = {
		1, 4095, 4096, 4097, 65535, 65536, 65537, 128 << 10, 1 << 20, (1 << 20) + 1, (2 << 20) - 65536,
		(2 << 20) - 1, 2 << 20, (2 << 20) + 1, 3 << 20, 4 << 20, (4 << 20) + 1, 100 << 20,
		(100 << 20) + 12345, 1 << 30, 0,
	};
	static const struct { const char *name; uint32_t attr, flags; } ways[] = {
		{ "default", 0, 0 }, { "4K", 1u << 23, 0 }, { "big", 2u << 23, 0 }, { "huge", 3u << 23, 0 },
		{ "noncontiguous", 2u << 27, 0 }, { "contiguous", 1u << 27, 0 }, { "any", 3u << 25, 0 },
	};
	struct memory m;
	uint32_t h, status, before;

	for (unsigned w = 0; w < sizeof(ways) / sizeof(*ways); w++)
		for (unsigned i = 0; i < sizeof(want) / sizeof(*want); i++) {
			before = heap_kib();
			status = video(&h, &m, want[i], ways[w].attr, ways[w].flags);
			mark("size %s ask=%llu status=%x size=%llu limit=%llu attr=%x attr2=%x alignment=%llu taken_kib=%d",
			     ways[w].name, (unsigned long long)want[i], status, (unsigned long long)m.size,
			     (unsigned long long)m.limit, m.attr, m.attr2, (unsigned long long)m.alignment,
			     (int)(before - heap_kib()));
			if (!status)
				release(h);
			if (before != heap_kib())
				mark("after free of ask=%llu: %d KiB kept", (unsigned long long)want[i],
				     (int)(before - heap_kib()));
		}
	before = heap_kib();
	status = video(&h, &m, 1ull << 40, 0, 0);
	mark("size default ask=1TiB status=%x", status);
	status = video(&h, &m, 64 * MIB, 1u << 25, 0);
	mark("class 0x40 with LOCATION PCI status=%x", status);
	status = video(&h, &m, 64 * MIB, 0, 0x80000);
	mark("class 0x40 with flag VIRTUAL status=%x", status);
	mark("heap moved by refusals: %d KiB", (int)(before - heap_kib()));
}

static void own_client(int fd, uint32_t *root, uint32_t *dev)
{
	uint32_t p[14] = { 0 };

	*root = 0;
	mark("second client: %x", alloc_on(fd, 0, 0, root, 0x41, NULL, 0));
	*dev = 0x5c000001;
	mark("its device: %x", alloc_on(fd, *root, *root, dev, 0x80, p, sizeof(p)));
}

/* How much of the free memory is gone since "before", after what was just done. */
static void taken(const char *what, uint32_t status, uint32_t before)
{
	mark("%s: status %x, taken %d KiB", what, status, (int)(before - heap_kib()));
}

static uint32_t duplicate(int fd, uint32_t root, uint32_t dev, uint32_t handle, uint32_t source)
{
	struct nvos55 d = { root, dev, handle, client, source, 0, 0 };

	return ioctl(fd, _IOWR('F', 0x34, d), &d) ? 0x10000u | (uint32_t)errno : d.status;
}

static void lifetimes(void)
{
	struct memory m;
	uint32_t h, before, status, root, dev, e[6] = { 0 }, im[5];
	int other = open("/dev/nvidiactl", O_RDWR);

	own_client(other, &root, &dev);
	before = heap_kib();
	taken("lifetime: alloc", video(&h, &m, 64 * MIB, 0, 0), before);
	status = duplicate(other, root, dev, 0x5c0d0001, h);
	taken("duplicate by another client of this process", status, before);
	status = release(h);
	taken("free of the original", status, before);
	status = release_on(other, root, dev, 0x5c0d0001);
	taken("free of the duplicate", status, before);

	taken("lifetime: alloc", video(&h, &m, 64 * MIB, 0, 0), before);
	status = duplicate(other, root, dev, 0x5c0d0002, h);
	release(h);
	taken("duplicate alone", status, before);
	close(other);
	taken("close of the duplicate's file", 0, before);

	/* NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS: type, hDevice, hParent, hObject, fd, flags */
	other = open("/dev/nvidiactl", O_RDWR);
	before = heap_kib();
	taken("lifetime: alloc", video(&h, &m, 64 * MIB, 0, 0), before);
	e[0] = 1;
	e[1] = e[2] = device;
	e[3] = h;
	e[4] = (uint32_t)other;
	status = control_on(ctl, client, client, 0x3d05, e, sizeof(e));
	taken("export to a descriptor", status, before);
	status = release(h);
	taken("free of the original", status, before);
	im[0] = (uint32_t)other;
	im[1] = 1;
	im[2] = im[3] = device;
	im[4] = 0x5c0d0003;
	status = control_on(ctl, client, client, 0x3d06, im, sizeof(im));
	taken("import", status, before);
	close(other);
	taken("close of the descriptor", 0, before);
	status = release(0x5c0d0003);
	taken("free of the import", status, before);

	taken("lifetime: alloc", video(&h, &m, 64 * MIB, 0, 0), before);
	other = open("/dev/nvidiactl", O_RDWR);
	e[3] = h;
	e[4] = (uint32_t)other;
	status = control_on(ctl, client, client, 0x3d05, e, sizeof(e));
	release(h);
	taken("exported, original freed", status, before);
	close(other);
	taken("close of the descriptor", 0, before);

	other = open("/dev/nvidiactl", O_RDWR);
	own_client(other, &root, &dev);
	before = heap_kib();
	memset(&m, 0, sizeof(m));
	m.owner = root;
	m.size = 64 * MIB;
	h = 0;
	status = alloc_on(other, root, dev, &h, 0x40, &m, sizeof(m));
	taken("lifetime: alloc with handle 0", status, before);
	mark("handle %x", h);
	status = release_on(other, root, root, dev);
	taken("free of the device", status, before);
	mark("free of the child after its parent: %x", release_on(other, root, dev, h));
	mark("free of the client, root 0: %x", release_on(other, 0, 0, root));
	mark("free of the client: %x", release_on(other, root, root, root));
	mark("free of the client again: %x", release_on(other, root, root, root));
	close(other);
}

/* Another process may duplicate an object only when it was shared. */
static void sharing(void)
{
	struct memory m;
	uint32_t h, root, dev, before = heap_kib();
	struct nvos57 share;
	int go[2], done[2], other;
	char c;

	if (pipe(go) || pipe(done))
		exit(2);
	taken("sharing: alloc", video(&h, &m, 32 * MIB, 0, 0), before);
	if (!fork()) {
		other = open("/dev/nvidiactl", O_RDWR);
		own_client(other, &root, &dev);
		mark("duplicate by another process, not shared: %x", duplicate(other, root, dev, 0x5c0d0001, h));
		if (write(done[1], "x", 1) != 1 || read(go[0], &c, 1) != 1)
			_exit(3);
		mark("duplicate by another process, shared with all: %x", duplicate(other, root, dev, 0x5c0d0002, h));
		if (write(done[1], "x", 1) != 1 || read(go[0], &c, 1) != 1)
			_exit(4);
		_exit(0);
	}
	if (read(done[0], &c, 1) != 1)
		exit(5);
	share = (struct nvos57){ client, h, client, 1, 1, 0, 0, 0 };
	ioctl(ctl, _IOWR('F', 0x35, share), &share);
	mark("share with all: %x", share.status);
	if (write(go[1], "x", 1) != 1 || read(done[0], &c, 1) != 1)
		exit(6);
	taken("free of the original", release(h), before);
	if (write(go[1], "x", 1) != 1)
		exit(7);
	wait(NULL);
	taken("exit of the process that held the duplicate", 0, before);
}

struct uvm_map {
	uint64_t base, length, offset;
	struct { uint8_t uuid[16]; uint32_t type, caching, format, bits, compression; } gpu[256];
	uint64_t count;
	int32_t fd;
	uint32_t hClient, hMemory, status;
};

/* UVM's mapping keeps the memory after RM_FREE. */
static void uvm(void)
{
	struct { uint64_t flags; uint32_t status, pad; } init = { 0, 0, 0 };
	struct { int32_t fd; uint32_t status; } mm;
	struct { uint8_t uuid[16], numa, pad[3]; int32_t node, fd; uint32_t hClient, hSmc, status; } gpu_reg;
	struct { uint8_t uuid[16]; int32_t fd; uint32_t hClient, hVaSpace, status; } space;
	struct { uint64_t base, length; uint32_t status, pad; } range;
	static struct uvm_map map;
	struct memory m;
	uint32_t gid[67] = { 0, 2 }, va[14] = { 0 }, vh = 0x5c000004, h, before, status;
	int one = open("/dev/nvidia-uvm", O_RDWR), two = open("/dev/nvidia-uvm", O_RDWR);

	memset(&gpu_reg, 0, sizeof(gpu_reg));
	memset(&space, 0, sizeof(space));
	control_on(ctl, client, subdevice, 0x2080014a, gid, sizeof(gid));
	ioctl(one, 0x30000001, &init);
	mm.fd = one;
	mm.status = 0;
	ioctl(two, 75, &mm);
	mark("uvm: initialize %x, mm %x", init.status, mm.status);
	va[1] = 0x48;
	va[10] = 0x10000000;
	before = heap_kib();
	taken("uvm: vaspace", alloc(device, &vh, 0x90f1, va, sizeof(va)), before);
	memcpy(gpu_reg.uuid, gid + 3, 16);
	gpu_reg.fd = -1;
	ioctl(one, 37, &gpu_reg);
	taken("uvm: register the card", gpu_reg.status, before);
	memcpy(space.uuid, gid + 3, 16);
	space.fd = ctl;
	space.hClient = client;
	space.hVaSpace = vh;
	ioctl(one, 25, &space);
	taken("uvm: register the vaspace", space.status, before);
	for (int i = 0; i < 3; i++) {
		before = heap_kib();
		taken("uvm: alloc", video(&h, &m, 64 * MIB, 0, 0), before);
		range.base = 0x200000000ull + i * 64 * MIB;
		range.length = 64 * MIB;
		range.status = 0;
		ioctl(one, 73, &range);
		memset(&map, 0, sizeof(map));
		map.base = range.base;
		map.length = range.length;
		memcpy(map.gpu[0].uuid, gid + 3, 16);
		map.gpu[0].type = 1;
		map.count = 1;
		map.fd = ctl;
		map.hClient = client;
		map.hMemory = h;
		ioctl(one, 33, &map);
		taken("uvm: map", range.status ? range.status : map.status, before);
		status = release(h);
		taken("uvm: free of the mapped memory", status, before);
		if (i == 2)
			break;
		range.status = 0;
		ioctl(one, 34, &range);
		taken("uvm: free of the range", range.status, before);
	}
	close(two);
	close(one);
	taken("uvm: closed with one range mapped", 0, before);
	mark("uvm: free of the vaspace %x", release(vh));
}

static void infos(void)
{
	uint32_t list[6] = { 7, 0, 9, 0, 0x16, 0 }, pids[953] = { 0, 0xcbc0 };
	static uint32_t info[3602];
	struct { uint32_t n, pad; uint64_t list; } v1 = { 3, 0, (uintptr_t)list };
	struct memory m;
	uint32_t h, status;

	status = control_on(ctl, client, subdevice, 0x20801301, &v1, sizeof(v1));
	mark("FB_GET_INFO (V1) of 7, 9, 16: status %x, %u %u %u", status, list[1], list[3], list[5]);
	video(&h, &m, 10 * MIB, 0, 0);
	status = control_on(ctl, client, subdevice, 0x2080018d, pids, sizeof(pids));
	mark("GET_PIDS of class cbc0: status %x, %u", status, pids[2]);
	memset(pids, 0, sizeof(pids));
	pids[1] = 0x2080;
	status = control_on(ctl, client, subdevice, 0x2080018d, pids, sizeof(pids));
	mark("GET_PIDS of class 2080: status %x, %u", status, pids[2]);
	info[0] = 1;
	info[2] = (uint32_t)getpid();
	status = control_on(ctl, client, subdevice, 0x2080018e, info, sizeof(info));
	mark("GET_PID_INFO: status %x, private %u, shared and owned %u", status, info[6], info[8]);
	release(h);
}

static void forms(void)
{
	struct memory m;
	uint32_t before = heap_kib(), h;

	memset(&m, 0, sizeof(m));
	m.owner = client;
	m.size = 5 * MIB;
	struct nvos21 o = { client, device, next++, 0x40, (uintptr_t)&m, sizeof(m), 0 };
	ioctl(ctl, _IOWR('F', 0x2b, o), &o);
	mark("old form: %x taken %d KiB", o.status, (int)(before - heap_kib()));
	release(o.hNew);
	m.size = 5 * MIB;
	struct nvos64 n = { client, device, next++, 0x40, (uintptr_t)&m, 0, sizeof(m), 0, 0, 0 };
	struct xfer x = { 0x2b, sizeof(n), (uintptr_t)&n };
	int r = ioctl(ctl, _IOWR('F', 211, x), &x);
	mark("wrapped: ret %d status %x taken %d KiB", r, n.status, (int)(before - heap_kib()));
	release(n.hNew);
	m.size = 5 * MIB;
	n = (struct nvos64){ client, device, next++, 0x40, (uintptr_t)&m, 0, 0, 0, 0, 0 };
	ioctl(ctl, _IOWR('F', 0x2b, n), &n);
	mark("paramsSize 0: %x taken %d KiB", n.status, (int)(before - heap_kib()));
	release(n.hNew);
	m.size = 5 * MIB;
	n = (struct nvos64){ client, device, next++, 0x40, (uintptr_t)&m, 0, 120, 0, 0, 0 };
	ioctl(ctl, _IOWR('F', 0x2b, n), &n);
	taken("paramsSize 120", n.status, before);
	release(n.hNew);
	struct nvos32 v;
	memset(&v, 0, sizeof(v));
	v.hRoot = client;
	v.hParent = device;
	v.function = 2;
	v.owner = client;
	v.size = 5 * MIB + 1;
	r = ioctl(ctl, _IOWR('F', 0x4a, v), &v);
	mark("VID_HEAP ALLOC_SIZE: ret %d status %x size %llu handle %x total %llu free %llu taken %d KiB (struct %zu)", r,
	     v.status, (unsigned long long)v.size, v.hMemory, (unsigned long long)v.total,
	     (unsigned long long)v.free, (int)(before - heap_kib()), sizeof(v));
	h = v.hMemory;
	memset(&v, 0, sizeof(v));
	v.hRoot = client;
	v.hParent = device;
	v.function = 3;
	v.owner = client;
	v.hMemory = h;
	v.type = 1; /* NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED, at the place of "flags" of FREE */
	r = ioctl(ctl, _IOWR('F', 0x4a, v), &v);
	mark("VID_HEAP FREE: ret %d status %x taken %d KiB", r, v.status, (int)(before - heap_kib()));
	memset(&v, 0, sizeof(v));
	v.hRoot = client;
	v.hParent = device;
	v.function = 5;
	r = ioctl(ctl, _IOWR('F', 0x4a, v), &v);
	mark("VID_HEAP INFO: ret %d status %x total %llu free %llu", r, v.status,
	     (unsigned long long)v.total, (unsigned long long)v.free);
}

/* NV_ESC_RM_ALLOC_MEMORY, an old way to ask for the size of the heap. */
static void old_memory(void)
{
	struct { uint32_t hRoot, hParent, hNew, hClass, flags, pad; uint64_t pMemory, limit; uint32_t status, pad2;
		 int32_t fd; uint32_t pad3; } a = { client, device, next++, 0x40, 0, 0, 0, 0, 0, 0, -1, 0 };
	uint32_t before = heap_kib();
	int r = ioctl(gpu, _IOWR('F', 0x27, a), &a);

	mark("ALLOC_MEMORY of class 40: ret %d limit %llu", r, (unsigned long long)a.limit);
	taken("ALLOC_MEMORY of class 40", a.status, before);
	if (!r && !a.status)
		release(a.hNew);
}

static void wrong(void)
{
	uint32_t p[257] = { 1, 0x16, 0 }, h, st[32];
	struct memory m;
	int other = open("/dev/nvidiactl", O_RDWR), r;

	mark("unknown control: %x", control_on(ctl, client, subdevice, 0x2080ffff, p, 4));
	mark("control with a wrong size: %x", control_on(ctl, client, subdevice, 0x20801303, p, 1024));
	mark("control with a NULL: %x", control_on(ctl, client, subdevice, 0x20801303, NULL, 1028));
	mark("control with a bad address: %x", control_on(ctl, client, subdevice, 0x20801303, (void *)8, 1028));
	mark("control on no object: %x", control_on(ctl, client, 0xdead, 0x20801303, p, 1028));
	mark("control of no client: %x", control_on(ctl, 0xdead, 0xdead, 0x20801303, p, 1028));
	mark("control through another file: %x", control_on(other, client, subdevice, 0x20801303, p, 1028));
	mark("free through another file: %x", release_on(other, client, client, device));
	mark("free of no object: %x", release(0xdead));
	h = 0x5c000002;
	mark("unknown class: %x", alloc(device, &h, 0xffff, NULL, 0));
	h = device;
	memset(&m, 0, sizeof(m));
	m.size = MIB;
	mark("handle in use: %x", alloc(device, &h, 0x40, &m, sizeof(m)));
	for (unsigned i = 0; i < 4; i++) {
		static const uint32_t classes[] = { 0xc2, 0x82, 0x83, 0x3f };

		h = next++;
		memset(&m, 0, sizeof(m));
		mark("class %x without parameters: %x", classes[i], alloc(device, &h, classes[i], NULL, 0));
	}
	r = ioctl(ctl, _IOC(3, 'F', 0x2a, 33), st);
	mark("wrong ioctl size: ret %d errno %d", r, r ? errno : 0);
	r = ioctl(ctl, _IOC(3, 'F', 0xff, 4), st);
	mark("unknown number: ret %d errno %d", r, r ? errno : 0);
	r = ioctl(ctl, _IOC(3, 'F', 0x2a, 32), (void *)8);
	mark("bad address: ret %d errno %d", r, r ? errno : 0);
	r = ioctl(gpu, _IOC(3, 'F', 0x2a, 32), st);
	mark("RM_CONTROL on the card's file: ret %d errno %d", r, r ? errno : 0);
	mark("dead client's answer to a fork:");
	if (!fork()) {
		memset(&m, 0, sizeof(m));
		m.size = MIB;
		m.owner = client;
		h = next++;
		mark("fork: alloc by the child with the parent's file: %x", alloc(device, &h, 0x40, &m, sizeof(m)));
		mark("fork: control: %x", control_on(ctl, client, subdevice, 0x20801303, p, 1028));
		_exit(0);
	}
	wait(NULL);
	close(other);
}

static void heaps(void)
{
	uint32_t p[257];

	for (uint32_t i = 0; i < 0x3c; i++) {
		uint32_t status;

		memset(p, 0, sizeof(p));
		p[0] = 1;
		p[1] = i;
		status = control_on(ctl, client, subdevice, 0x20801303, p, 1028);
		mark("FB_INFO index %x: status %x value %u", i, status, p[2]);
	}
}

int main(void)
{
	uint32_t ids[32], p[14] = { 0 }, zero = 0;

	ctl = open("/dev/nvidiactl", O_RDWR);
	gpu = open("/dev/nvidia0", O_RDWR);
	if (ctl < 0 || gpu < 0 || ioctl(gpu, _IOWR('F', 201, int), &ctl))
		return 1;
	mark("client: %x", alloc_on(ctl, 0, 0, &client, 0x41, NULL, 0));
	memset(ids, 0xff, sizeof(ids));
	mark("attached: %x", control_on(ctl, client, client, 0x201, ids, sizeof(ids)));
	device = 0x5c000001;
	mark("device: %x", alloc(client, &device, 0x80, p, sizeof(p)));
	subdevice = 0x5c000003;
	mark("subdevice: %x", alloc(device, &subdevice, 0x2080, &zero, sizeof(zero)));
	heaps();
	infos();
	sizes();
	lifetimes();
	sharing();
	uvm();
	forms();
	old_memory();
	wrong();
	return 0;
}
