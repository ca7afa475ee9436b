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

static void lifetimes(void)
{
	struct memory m;
	uint32_t h, before = heap_kib(), status, root, dev;
	int other;

	mark("lifetime: duplicate");
	status = video(&h, &m, 64 * MIB, 0, 0);
	mark("alloc %x taken %d KiB", status, (int)(before - heap_kib()));
	other = open("/dev/nvidiactl", O_RDWR);
	own_client(other, &root, &dev);
	uint32_t base = heap_kib() + 64 * 1024;
	struct nvos55 d = { root, dev, 0x5c0d0001, client, h, 0, 0 };
	ioctl(other, _IOWR('F', 0x34, d), &d);
	mark("dup by another client of this process: %x, taken %d KiB", d.status, (int)(base - heap_kib()));
	status = release(h);
	mark("free of the original %x, taken %d KiB", status, (int)(base - heap_kib()));
	status = release_on(other, root, dev, 0x5c0d0001);
	mark("free of the duplicate %x, taken %d KiB", status, (int)(base - heap_kib()));

	mark("lifetime: close of the client's file");
	status = video(&h, &m, 64 * MIB, 0, 0);
	d = (struct nvos55){ root, dev, 0x5c0d0002, client, h, 0, 0 };
	ioctl(other, _IOWR('F', 0x34, d), &d);
	release(h);
	mark("duplicate alone %x, taken %d KiB", d.status, (int)(base - heap_kib()));
	close(other);
	mark("closed, taken %d KiB against the first state", (int)(before - heap_kib()));

	mark("lifetime: exported to a descriptor (0x3d05)");
	before = heap_kib();
	status = video(&h, &m, 64 * MIB, 0, 0);
	uint32_t e[8] = { 0 };
	other = open("/dev/nvidiactl", O_RDWR);
	/* NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS: type RM, hDevice, hParent, hObject, fd, flags */
	e[0] = 1;
	e[1] = device;
	e[2] = device;
	e[3] = h;
	e[4] = (uint32_t)other;
	mark("export: %x", control_on(ctl, client, client, 0x3d05, e, 24));
	mark("free: %x, taken %d KiB", release(h), (int)(before - heap_kib()));
	uint32_t im[5] = { (uint32_t)other, 1, device, device, 0x5c0d0003 };
	mark("import: %x", control_on(ctl, client, client, 0x3d06, im, sizeof(im)));
	close(other);
	mark("descriptor closed, taken %d KiB", (int)(before - heap_kib()));
	mark("free of the import: %x, taken %d KiB", release(0x5c0d0003), (int)(before - heap_kib()));

	mark("lifetime: parent freed with its children");
	other = open("/dev/nvidiactl", O_RDWR);
	own_client(other, &root, &dev);
	before = heap_kib();
	memset(&m, 0, sizeof(m));
	m.owner = root;
	m.size = 64 * MIB;
	h = 0;
	status = alloc_on(other, root, dev, &h, 0x40, &m, sizeof(m));
	mark("alloc with handle 0: %x handle %x taken %d KiB", status, h, (int)(before - heap_kib()));
	mark("free of the device: %x, taken %d KiB", release_on(other, root, root, dev), (int)(before - heap_kib()));
	mark("free of the child after: %x", release_on(other, root, dev, h));
	mark("free of the client: %x", release_on(other, 0, 0, root));
	mark("free of the client again: %x", release_on(other, 0, 0, root));
	close(other);
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
	mark("paramsSize 120: %x", n.status);
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
	sizes();
	lifetimes();
	forms();
	wrong();
	return 0;
}
