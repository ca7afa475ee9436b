// SPDX-License-Identifier: MIT
/*
 * LD_PRELOAD tracer of the traffic between a program and NVIDIA's driver.
 *
 * Build: gcc -O2 -fPIC -shared -o libnvtrace.so tracer.c -ldl -pthread
 * Use:   NVTRACE_DIR=<dir> [NVTRACE_HEAP=1] LD_PRELOAD=./libnvtrace.so <program>
 *
 * Every process writes <dir>/<pid>.<n>.raw, records laid out as format.py says. A record goes out
 * by one write(2), so _exit() and SIGKILL lose nothing that had returned.
 *
 * NVTRACE_HEAP=1: a client of the tracer's own asks the driver for its free memory after every
 * recorded call and a HEAP record is written when the number moved.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define BLOB_MAX 65536u
#define SAME 0xffffffffu
#define RANGES 16384
/* High numbers, so that the program's own descriptors are numbered as without the tracer. */
#define OWN_FD_BASE 900

enum { R_PROCESS = 1, R_OPEN, R_CLOSE, R_DUP, R_IOCTL, R_MMAP, R_MUNMAP, R_HEAP, R_MARK, R_SENDFD,
       R_RECVFD, R_PATH, R_EXIT };
enum { D_NONE, D_CTL, D_GPU, D_UVM, D_UVM_TOOLS, D_MODESET, D_CAPS, D_OTHER };
enum { B_ARG, B_PARAM, B_LIST, B_INNER, B_RIGHTS };
enum { P_START, P_FORK };

struct __attribute__((packed)) head {
	uint32_t length;
	uint8_t type, device;
	uint16_t minor;
	uint32_t pid, tid;
	uint64_t t_ns;
	uint32_t dur_ns;
	int32_t fd;
};

struct device { uint8_t kind; uint16_t minor; };

struct blob {
	uint8_t role, guessed;
	uint64_t address;
	uint32_t length, after_length;
	uint8_t *before, *after;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;
static pid_t self;
static int generation;
static int heap_wanted, ready;
static struct { uint64_t start, end; struct device device; } ranges[RANGES];
static unsigned nranges;
static __thread int busy;

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* ---- record output ---- */

static void emit(uint8_t type, struct device d, int fd, uint64_t t0, uint64_t t1,
		 struct iovec *body, int n)
{
	struct iovec v[80];
	struct head h = { .type = type, .device = d.kind, .minor = d.minor, .pid = (uint32_t)self,
			  .tid = (uint32_t)syscall(SYS_gettid), .t_ns = t0,
			  .dur_ns = (uint32_t)(t1 - t0 > 0xffffffffu ? 0xffffffffu : t1 - t0), .fd = fd };
	size_t total = sizeof(h);
	int i;

	if (out < 0)
		return;
	v[0] = (struct iovec){ &h, sizeof(h) };
	for (i = 0; i < n; i++) {
		v[i + 1] = body[i];
		total += body[i].iov_len;
	}
	h.length = (uint32_t)(total - sizeof(h.length));
	if (syscall(SYS_writev, out, v, n + 1) != (ssize_t)total)
		abort();
}

#define IOV(x) (struct iovec){ &(x), sizeof(x) }
#define NODEV (struct device){ D_NONE, 0 }

static void start_file(uint8_t reason)
{
	char path[512], comm[512];
	const char *dir = getenv("NVTRACE_DIR");
	uint32_t ppid = (uint32_t)getppid();
	ssize_t n;
	int fd;

	self = getpid();
	if (out >= 0)
		syscall(SYS_close, out);
	out = -1;
	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/%d.%d.raw", dir, self, generation++);
	while ((fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND |
				  O_CLOEXEC, 0600)) < 0 && errno == EEXIST)
		snprintf(path, sizeof(path), "%s/%d.%d.raw", dir, self, generation++);
	if (fd < 0)
		return;
	out = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, OWN_FD_BASE);
	syscall(SYS_close, fd);
	fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY);
	n = fd < 0 ? 0 : syscall(SYS_read, fd, comm, sizeof(comm));
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (n < 0)
		n = 0;
	uint64_t t = now();
	struct iovec b[] = { IOV(ppid), IOV(reason), { comm, (size_t)n } };
	emit(R_PROCESS, NODEV, -1, t, t, b, 3);
}

/* A vfork child shares this memory but is not the process recorded here: it must leave no trace. */
static int active(void)
{
	return ready && out >= 0 && !busy && getpid() == self;
}

static struct device classify(int fd)
{
	char link[64], name[256];
	struct device d = NODEV;
	ssize_t n;

	if (fd < 0)
		return d;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, name, sizeof(name) - 1);
	if (n <= 0)
		return d;
	name[n] = 0;
	if (strncmp(name, "/dev/nvidia", 11))
		return d;
	if (!strcmp(name, "/dev/nvidiactl"))
		d.kind = D_CTL;
	else if (!strcmp(name, "/dev/nvidia-uvm"))
		d.kind = D_UVM;
	else if (!strcmp(name, "/dev/nvidia-uvm-tools"))
		d.kind = D_UVM_TOOLS;
	else if (!strcmp(name, "/dev/nvidia-modeset"))
		d.kind = D_MODESET;
	else if (!strncmp(name, "/dev/nvidia-caps/", 17))
		d.kind = D_CAPS;
	else if (name[11] >= '0' && name[11] <= '9')
		d = (struct device){ D_GPU, (uint16_t)atoi(name + 11) };
	else
		d.kind = D_OTHER;
	return d;
}

/* ---- free memory as the driver counts it, asked through a client of our own ---- */

struct nvos54 { uint32_t hClient, hObject, cmd, flags; uint64_t params; uint32_t size, status; };
struct nvos64 { uint32_t hRoot, hParent, hNew, hClass; uint64_t parms, rights;
		uint32_t size, flags, status, pad; };

static int own_ctl = -1, own_gpu = -1;
static uint32_t own_client, own_subdevice, last_free;
static int own_state; /* 0 untried, 1 usable, -1 failed */

static long raw_ioctl(int fd, unsigned long cmd, void *arg)
{
	return syscall(SYS_ioctl, fd, cmd, arg);
}

static uint32_t own_alloc(uint32_t parent, uint32_t handle, uint32_t class, void *p, uint32_t size)
{
	struct nvos64 a = { own_client, parent, handle, class, (uintptr_t)p, 0, size, 0, 0, 0 };

	if (raw_ioctl(own_ctl, _IOWR('F', 0x2b, a), &a) || a.status)
		return 0;
	return a.hNew;
}

static uint32_t own_control(uint32_t object, uint32_t cmd, void *p, uint32_t size)
{
	struct nvos54 a = { own_client, object, cmd, 0, (uintptr_t)p, size, 0 };

	return raw_ioctl(own_ctl, _IOWR('F', 0x2a, a), &a) ? 0xffff : a.status;
}

static int own_open(const char *path)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC), high;

	if (fd < 0)
		return -1;
	high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, OWN_FD_BASE);
	syscall(SYS_close, fd);
	return high;
}

static void own_setup(void)
{
	uint32_t ids[32], info[8] = { 0 }, device[14] = { 0 }, zero = 0, handle;
	char path[32];
	int i;

	own_state = -1;
	own_ctl = own_open("/dev/nvidiactl");
	for (i = 0; i < 32 && own_gpu < 0; i++) {
		snprintf(path, sizeof(path), "/dev/nvidia%d", i);
		own_gpu = own_open(path);
	}
	if (own_ctl < 0 || own_gpu < 0 || raw_ioctl(own_gpu, _IOWR('F', 201, int), &own_ctl))
		return;
	own_client = 0;
	own_client = own_alloc(0, 0, 0x41, NULL, 0);
	memset(ids, 0xff, sizeof(ids));
	if (!own_client || own_control(own_client, 0x201, ids, sizeof(ids)) || ids[0] == ~0u)
		return;
	info[0] = ids[0];
	if (own_control(own_client, 0x205, info, sizeof(info)))
		return;
	device[0] = info[2];
	handle = own_alloc(own_client, 0xcafe0001, 0x80, device, sizeof(device));
	if (!handle)
		return;
	own_subdevice = own_alloc(handle, 0xcafe0002, 0x2080, &zero, sizeof(zero));
	if (own_subdevice)
		own_state = 1;
}

static void heap(int always)
{
	/* NV2080_CTRL_FB_GET_INFO_V2_PARAMS: count, then {index, data}; its size grew by branch. */
	static const uint32_t sizes[] = { 1028, 460, 444, 436 };
	static unsigned which;
	uint32_t p[257] = { 0 }, status = 0xffff, free_kib;
	uint64_t t0;

	if (!heap_wanted)
		return;
	if (!own_state)
		own_setup();
	if (own_state < 0)
		return;
	t0 = now();
	for (; which < sizeof(sizes) / sizeof(*sizes); which++) {
		p[0] = 1;
		p[1] = 0x16;
		p[2] = 0;
		status = own_control(own_subdevice, 0x20801303, p, sizes[which]);
		if (status != 0x1f)
			break;
	}
	free_kib = p[2];
	if (!status && free_kib == last_free && !always)
		return;
	last_free = free_kib;
	struct iovec b[] = { IOV(status), IOV(free_kib) };
	emit(R_HEAP, NODEV, -1, t0, now(), b, 2);
}

/* ---- start, fork, end ---- */

static void at_prepare(void) { pthread_mutex_lock(&lock); }
static void at_parent(void) { pthread_mutex_unlock(&lock); }
static void at_child(void)
{
	if (own_ctl >= 0)
		syscall(SYS_close, own_ctl);
	if (own_gpu >= 0)
		syscall(SYS_close, own_gpu);
	own_ctl = own_gpu = -1;
	own_state = 0;
	generation = 0;
	start_file(P_FORK);
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void begin(void)
{
	heap_wanted = getenv("NVTRACE_HEAP") && *getenv("NVTRACE_HEAP") == '1';
	start_file(P_START);
	pthread_atfork(at_prepare, at_parent, at_child);
	ready = 1;
}

__attribute__((destructor)) static void end(void)
{
	uint64_t t = now();

	if (!active())
		return;
	busy = 1;
	pthread_mutex_lock(&lock);
	if (own_state == 1)
		heap(1);
	emit(R_EXIT, NODEV, -1, t, t, NULL, 0);
	pthread_mutex_unlock(&lock);
	busy = 0;
}

/* A program calls this (weak symbol or ctypes) to leave a line of its own in the trace. */
EXPORT void nvtrace_mark(const char *text)
{
	uint64_t t = now();
	struct iovec b[] = { { (void *)text, strlen(text) } };

	if (!active())
		return;
	busy = 1;
	pthread_mutex_lock(&lock);
	heap(1);
	emit(R_MARK, NODEV, -1, t, t, b, 1);
	pthread_mutex_unlock(&lock);
	busy = 0;
}

/* ---- buffers ---- */

/* The program may pass any address: copy through the kernel, which reports a fault. */
static int safe_copy(void *to, uint64_t from, size_t n)
{
	struct iovec l = { to, n }, r = { (void *)(uintptr_t)from, n };

	return syscall(SYS_process_vm_readv, self, &l, 1ul, &r, 1ul, 0ul) == (ssize_t)n;
}

static uint32_t u32_at(const void *p, unsigned off)
{
	uint32_t v;

	memcpy(&v, (const char *)p + off, 4);
	return v;
}

static uint64_t u64_at(const void *p, unsigned off)
{
	uint64_t v;

	memcpy(&v, (const char *)p + off, 8);
	return v;
}

/* Sizes of parameter structs, for callers that leave paramsSize 0 (580; x86-64). */
static uint32_t class_size(uint32_t class)
{
	switch (class) {
	case 0x80: return 56;
	case 0x2080: return 4;
	case 0x3e: case 0x40: case 0x42: case 0x50a0: return 128;
	case 0x70: return 24;
	case 0x90f1: return 56;
	case 0xa06c: return 20;
	case 0x9067: return 12;
	case 0x05: case 0x79: case 0x7e: return 24;
	case 0xc661: case 0xc761: return 2;
	case 0xf8: return 48;
	case 0xfd: return 80;
	case 0xde: return 8;
	case 0x2081: case 0x503c: case 0xcb33: return 4;
	case 0x83de: return 12;
	}
	if ((class & 0xff) == 0x6f)
		return 368;
	if ((class & 0xff) == 0xb5)
		return 8;
	if ((class & 0xff) == 0xc0 || (class & 0xff) == 0x97)
		return 16;
	return 0;
}

/* UVM commands carry no size in their number. Sizes of branch 580. */
static uint32_t uvm_size(uint32_t cmd)
{
	switch (cmd) {
	case 0x30000001: return 16;
	case 0x30000002: return 0;
	case 23: return 16;
	case 24: return 16;
	case 25: return 32;
	case 26: return 20;
	case 27: return 56;
	case 28: return 28;
	case 29: case 30: return 36;
	case 31: return 32;
	case 33: return 9264;
	case 34: return 24;
	case 37: return 40;
	case 38: return 20;
	case 39: return 8;
	case 42: return 40;
	case 43: return 24;
	case 44: case 45: return 24;
	case 46: case 47: return 40;
	case 51: return 80;
	case 52: return 32;
	case 56: return 56;
	case 65: return 40;
	case 66: return 40;
	case 68: return 9248;
	case 70: case 71: case 72: return 24;
	case 73: return 24;
	case 74: return 40;
	case 75: return 8;
	case 78: return 56;
	case 80: return 32;
	}
	return 64;
}

/* Lists behind pointers inside the parameters of old controls: where count and pointers lie. */
static const struct { uint32_t cmd; uint8_t count_at, pointer_at, pointers, element; } lists[] = {
	{ 0x00000101, 0, 8, 3, 1 }, /* SYSTEM_GET_BUILD_VERSION */
	{ 0x00800201, 0, 8, 1, 4 }, /* GPU_GET_CLASSLIST */
	{ 0x00801102, 0, 8, 1, 1 }, /* GR_GET_CAPS */
	{ 0x00801104, 0, 8, 1, 8 }, /* GR_GET_INFO */
	{ 0x00801301, 0, 8, 1, 1 }, /* FB_GET_CAPS */
	{ 0x00801401, 0, 8, 1, 1 }, /* HOST_GET_CAPS */
	{ 0x00801701, 0, 8, 1, 1 }, /* FIFO_GET_CAPS */
	{ 0x0080170d, 0, 8, 2, 4 }, /* FIFO_GET_CHANNELLIST */
	{ 0x00801b01, 0, 8, 1, 1 }, /* MSENC_GET_CAPS */
	{ 0x20800101, 0, 8, 1, 8 }, /* GPU_GET_INFO */
	{ 0x20800123, 0, 8, 1, 4 }, /* GPU_GET_ENGINES */
	{ 0x20800124, 4, 8, 1, 4 }, /* GPU_GET_ENGINE_CLASSLIST */
	{ 0x20800802, 0, 8, 1, 8 }, /* BIOS_GET_INFO */
	{ 0x20801201, 0, 8, 1, 8 }, /* GR_GET_INFO */
	{ 0x20801301, 0, 8, 1, 8 }, /* FB_GET_INFO */
	{ 0x20801802, 0, 8, 1, 8 }, /* BUS_GET_INFO */
	{ 0x20802a01, 4, 8, 1, 1 }, /* CE_GET_CAPS */
};

static void take(struct blob *b, int *n, uint8_t role, uint64_t address, uint64_t length, int guess)
{
	struct blob *x = &b[*n];

	if (!address || !length || length > BLOB_MAX || *n >= 8)
		return;
	*x = (struct blob){ .role = role, .guessed = (uint8_t)guess, .address = address,
			    .length = (uint32_t)length };
	x->before = malloc(length);
	x->after = malloc(length);
	if (!x->before || !x->after || !safe_copy(x->before, address, length)) {
		free(x->before);
		free(x->after);
		return;
	}
	(*n)++;
}

static void take_rm(struct blob *b, int *n, unsigned nr, unsigned size, uint64_t arg)
{
	uint8_t a[64];
	unsigned i, k;

	if (nr == 0x2a && size == 32 && safe_copy(a, arg, 32)) {
		uint32_t cmd = u32_at(a, 8);
		int at = *n;

		take(b, n, B_PARAM, u64_at(a, 16), u32_at(a, 24), 0);
		if (*n == at)
			return;
		for (i = 0; i < sizeof(lists) / sizeof(*lists); i++)
			if (lists[i].cmd == cmd && b[at].length >= lists[i].pointer_at + 8u * lists[i].pointers)
				for (k = 0; k < lists[i].pointers; k++)
					take(b, n, B_LIST, u64_at(b[at].before, lists[i].pointer_at + 8 * k),
					     (uint64_t)u32_at(b[at].before, lists[i].count_at) *
					     lists[i].element, 0);
	} else if (nr == 0x2b && (size == 48 || size == 32) && safe_copy(a, arg, size)) {
		uint32_t given = u32_at(a, size == 48 ? 32 : 24);
		uint32_t known = class_size(u32_at(a, 12));

		take(b, n, B_PARAM, u64_at(a, 16), given ? given : known ? known : 64,
		     !given && !known);
		if (size == 48)
			take(b, n, B_RIGHTS, u64_at(a, 24), 4, 0);
	} else if (nr == 211 && size == 16 && safe_copy(a, arg, 16) && u32_at(a, 0) != 211) {
		take(b, n, B_INNER, u64_at(a, 8), u32_at(a, 4), 0);
		take_rm(b, n, u32_at(a, 0) & 0xff, u32_at(a, 4), u64_at(a, 8));
	}
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	struct blob b[8];
	struct device d;
	struct iovec v[72];
	uint64_t arg, t0, t1;
	uint32_t cmd = (uint32_t)request, count;
	int32_t ret, err;
	int n = 0, i, k, saved;
	va_list ap;

	va_start(ap, request);
	arg = va_arg(ap, uint64_t);
	va_end(ap);
	d = active() ? classify(fd) : NODEV;
	if (d.kind == D_NONE)
		return (int)raw_ioctl(fd, request, (void *)(uintptr_t)arg);
	busy = 1;
	if (heap_wanted && !own_state) {
		pthread_mutex_lock(&lock);
		heap(1);
		pthread_mutex_unlock(&lock);
	}
	if (d.kind == D_UVM || d.kind == D_UVM_TOOLS) {
		take(b, &n, B_ARG, arg, uvm_size(cmd), uvm_size(cmd) == 64);
	} else {
		take(b, &n, B_ARG, arg, _IOC_SIZE(cmd), 0);
		if (d.kind == D_CTL || d.kind == D_GPU)
			take_rm(b, &n, _IOC_NR(cmd), _IOC_SIZE(cmd), arg);
	}
	t0 = now();
	ret = (int32_t)raw_ioctl(fd, request, (void *)(uintptr_t)arg);
	saved = errno;
	t1 = now();
	err = ret < 0 ? saved : 0;
	for (i = 0; i < n; i++) {
		b[i].after_length = b[i].length;
		if (!safe_copy(b[i].after, b[i].address, b[i].length) ||
		    !memcmp(b[i].before, b[i].after, b[i].length))
			b[i].after_length = SAME;
	}
	count = (uint32_t)n;
	k = 0;
	v[k++] = IOV(cmd);
	v[k++] = IOV(ret);
	v[k++] = IOV(err);
	v[k++] = IOV(arg);
	v[k++] = IOV(count);
	for (i = 0; i < n; i++) {
		v[k++] = IOV(b[i].role);
		v[k++] = IOV(b[i].guessed);
		v[k++] = IOV(b[i].address);
		v[k++] = IOV(b[i].length);
		v[k++] = IOV(b[i].after_length);
	}
	for (i = 0; i < n; i++) {
		v[k++] = (struct iovec){ b[i].before, b[i].length };
		if (b[i].after_length != SAME)
			v[k++] = (struct iovec){ b[i].after, b[i].length };
	}
	pthread_mutex_lock(&lock);
	emit(R_IOCTL, d, fd, t0, t1, v, k);
	heap(0);
	pthread_mutex_unlock(&lock);
	for (i = 0; i < n; i++) {
		free(b[i].before);
		free(b[i].after);
	}
	busy = 0;
	errno = saved;
	return ret;
}

/* ---- descriptors ---- */

static int of_interest(const char *path)
{
	return strstr(path, "nvidia") || !strncmp(path, "/proc/devices", 13) ||
	       !strncmp(path, "/proc/modules", 13) || !strncmp(path, "/sys/bus/pci", 12) ||
	       !strncmp(path, "/sys/devices/system/node", 24) || !strncmp(path, "/sys/module", 11);
}

/* Called after an open; a descriptor of a device becomes OPEN, another path of interest PATH. */
static void opened(const char *op, const char *path, int32_t flags, int32_t ret, uint64_t t0)
{
	int32_t err = ret < 0 ? errno : 0;
	int saved = errno;
	struct device d;
	uint8_t len = (uint8_t)strlen(op);

	if (!path || !active() || !of_interest(path))
		return;
	busy = 1;
	d = classify(ret);
	pthread_mutex_lock(&lock);
	if (!strncmp(path, "/dev/nvidia", 11) && op[0] == 'o') {
		struct iovec b[] = { IOV(flags), IOV(ret), IOV(err), { (void *)path, strlen(path) } };

		emit(R_OPEN, d, ret, t0, now(), b, 4);
		heap(0);
	} else {
		struct iovec b[] = { IOV(ret), IOV(err), IOV(len), { (void *)op, len },
				     { (void *)path, strlen(path) } };

		emit(R_PATH, NODEV, -1, t0, now(), b, 5);
	}
	pthread_mutex_unlock(&lock);
	busy = 0;
	errno = saved;
}

static int do_open(int dir, const char *path, int flags, mode_t mode)
{
	uint64_t t0 = now();
	int r = (int)syscall(SYS_openat, dir, path, flags, mode);

	opened("open", path, flags, r, t0);
	return r;
}

#define MODE_OF(last) ({ mode_t m_ = 0; if (flags & (O_CREAT | __O_TMPFILE)) { va_list ap_; \
	va_start(ap_, last); m_ = (mode_t)va_arg(ap_, int); va_end(ap_); } m_; })

EXPORT int open(const char *path, int flags, ...) { return do_open(AT_FDCWD, path, flags, MODE_OF(flags)); }
EXPORT int open64(const char *path, int flags, ...) { return do_open(AT_FDCWD, path, flags | O_LARGEFILE, MODE_OF(flags)); }
EXPORT int openat(int dir, const char *path, int flags, ...) { return do_open(dir, path, flags, MODE_OF(flags)); }
EXPORT int openat64(int dir, const char *path, int flags, ...) { return do_open(dir, path, flags | O_LARGEFILE, MODE_OF(flags)); }
EXPORT int __open_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags | O_LARGEFILE, 0); }
EXPORT int __openat_2(int dir, const char *path, int flags) { return do_open(dir, path, flags, 0); }
EXPORT int __openat64_2(int dir, const char *path, int flags) { return do_open(dir, path, flags | O_LARGEFILE, 0); }

#define NEXT(name) ({ static __typeof__(&name) next_; if (!next_) next_ = dlsym(RTLD_NEXT, #name); next_; })

EXPORT FILE *fopen(const char *path, const char *mode)
{
	uint64_t t0 = now();
	FILE *f = NEXT(fopen)(path, mode);

	opened("fopen", path, 0, f ? 0 : -1, t0);
	return f;
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	uint64_t t0 = now();
	FILE *f = NEXT(fopen64)(path, mode);

	opened("fopen", path, 0, f ? 0 : -1, t0);
	return f;
}

EXPORT DIR *opendir(const char *path)
{
	uint64_t t0 = now();
	DIR *d = NEXT(opendir)(path);

	opened("dir", path, 0, d ? 0 : -1, t0);
	return d;
}

EXPORT int access(const char *path, int mode)
{
	uint64_t t0 = now();
	int r = (int)syscall(SYS_access, path, mode);

	opened("access", path, 0, r, t0);
	return r;
}

EXPORT int stat(const char *path, struct stat *st)
{
	uint64_t t0 = now();
	int r = (int)syscall(SYS_stat, path, st);

	opened("stat", path, 0, r, t0);
	return r;
}

EXPORT int stat64(const char *path, struct stat64 *st) { return stat(path, (struct stat *)st); }
EXPORT int __xstat(int version, const char *path, struct stat *st) { (void)version; return stat(path, st); }
EXPORT int __xstat64(int version, const char *path, struct stat64 *st) { (void)version; return stat(path, (struct stat *)st); }

EXPORT ssize_t readlink(const char *path, char *buffer, size_t size)
{
	uint64_t t0 = now();
	ssize_t r = syscall(SYS_readlink, path, buffer, size);

	if (!busy)
		opened("readlink", path, 0, (int32_t)r, t0);
	return r;
}

EXPORT int close(int fd)
{
	struct device d = active() && fd < OWN_FD_BASE ? classify(fd) : NODEV;
	uint64_t t0 = now();
	int32_t r, err;
	int saved;

	/* The tracer's own descriptors survive a program that closes all it does not know. */
	if (fd >= OWN_FD_BASE && (fd == out || fd == own_ctl || fd == own_gpu) && getpid() == self)
		return 0;
	r = (int32_t)syscall(SYS_close, fd);
	saved = errno;
	err = r < 0 ? saved : 0;
	if (d.kind != D_NONE) {
		struct iovec b[] = { IOV(r), IOV(err) };

		busy = 1;
		pthread_mutex_lock(&lock);
		emit(R_CLOSE, d, fd, t0, now(), b, 2);
		heap(0);
		pthread_mutex_unlock(&lock);
		busy = 0;
	}
	errno = saved;
	return r;
}

static int duplicated(int fd, int32_t r, uint64_t t0)
{
	int saved = errno;
	struct device d = active() && r >= 0 ? classify(r) : NODEV;

	if (d.kind != D_NONE) {
		struct iovec b[] = { IOV(r) };

		busy = 1;
		pthread_mutex_lock(&lock);
		emit(R_DUP, d, fd, t0, now(), b, 1);
		pthread_mutex_unlock(&lock);
		busy = 0;
	}
	errno = saved;
	return r;
}

EXPORT int dup(int fd) { uint64_t t = now(); return duplicated(fd, (int)syscall(SYS_dup, fd), t); }
EXPORT int dup2(int fd, int to) { uint64_t t = now(); return duplicated(fd, (int)syscall(SYS_dup2, fd, to), t); }
EXPORT int dup3(int fd, int to, int f) { uint64_t t = now(); return duplicated(fd, (int)syscall(SYS_dup3, fd, to, f), t); }

static int do_fcntl(int fd, int cmd, long arg)
{
	uint64_t t = now();
	int r = (int)syscall(SYS_fcntl, fd, cmd, arg);

	return cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC ? duplicated(fd, r, t) : r;
}

EXPORT int fcntl(int fd, int cmd, ...) { va_list ap; va_start(ap, cmd); long a = va_arg(ap, long); va_end(ap); return do_fcntl(fd, cmd, a); }
EXPORT int fcntl64(int fd, int cmd, ...) { va_list ap; va_start(ap, cmd); long a = va_arg(ap, long); va_end(ap); return do_fcntl(fd, cmd, a); }

static void passed(uint8_t type, int sock, struct msghdr *m, uint64_t t0)
{
	struct cmsghdr *c;
	int saved = errno;

	if (!active())
		return;
	busy = 1;
	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t i, n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (i = 0; i < n; i++) {
			int32_t fd, s = sock;
			struct device d;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			d = classify(fd);
			if (d.kind == D_NONE)
				continue;
			struct iovec b[] = { IOV(s) };

			pthread_mutex_lock(&lock);
			emit(type, d, fd, t0, now(), b, 1);
			pthread_mutex_unlock(&lock);
		}
	}
	busy = 0;
	errno = saved;
}

EXPORT ssize_t sendmsg(int sock, const struct msghdr *m, int flags)
{
	uint64_t t0 = now();

	/* Recorded before it happens: the receiver may be quicker than this process. */
	passed(R_SENDFD, sock, (struct msghdr *)m, t0);
	return NEXT(sendmsg)(sock, m, flags);
}

EXPORT ssize_t recvmsg(int sock, struct msghdr *m, int flags)
{
	uint64_t t0 = now();
	ssize_t r = NEXT(recvmsg)(sock, m, flags);

	if (r >= 0)
		passed(R_RECVFD, sock, m, t0);
	return r;
}

/* ---- mappings ---- */

static int overlaps(uint64_t start, uint64_t end)
{
	unsigned i;

	for (i = 0; i < nranges; i++)
		if (ranges[i].start < end && start < ranges[i].end)
			return 1;
	return 0;
}

/* Forget what a new mapping or an unmapping covers; a hole in a range leaves two ranges. */
static void uncover(uint64_t start, uint64_t end)
{
	unsigned i;

	for (i = 0; i < nranges; i++) {
		if (!(ranges[i].start < end && start < ranges[i].end))
			continue;
		if (ranges[i].start < start && ranges[i].end > end && nranges < RANGES) {
			ranges[nranges] = ranges[i];
			ranges[nranges++].start = end;
			ranges[i].end = start;
		} else if (ranges[i].start < start) {
			ranges[i].end = start;
		} else if (ranges[i].end > end) {
			ranges[i].start = end;
		} else {
			ranges[i--] = ranges[--nranges];
		}
	}
}

EXPORT void *mmap64(void *address, size_t length, int prot, int flags, int fd, off64_t offset)
{
	uint64_t t0 = now(), want = (uintptr_t)address, len = length, off = (uint64_t)offset, got;
	long r;
	int32_t p = prot, f = flags, err;
	struct device d = fd >= 0 && active() ? classify(fd) : NODEV;
	int saved, over;

	r = syscall(SYS_mmap, address, length, prot, flags, fd, offset);
	saved = errno;
	if (!active() || (d.kind == D_NONE && !(flags & MAP_FIXED)))
		return (void *)r;
	got = (uint64_t)r;
	err = r == -1 ? saved : 0;
	busy = 1;
	pthread_mutex_lock(&lock);
	over = !err && nranges && overlaps(got, got + len);
	if (d.kind != D_NONE || over) {
		struct iovec b[] = { IOV(want), IOV(len), IOV(p), IOV(f), IOV(off), IOV(got), IOV(err) };

		emit(R_MMAP, d, fd, t0, now(), b, 7);
		if (over)
			uncover(got, got + len);
		if (!err && d.kind != D_NONE && nranges < RANGES) {
			ranges[nranges].start = got;
			ranges[nranges].end = got + ((len + 4095) & ~4095ull);
			ranges[nranges++].device = d;
		}
		heap(0);
	}
	pthread_mutex_unlock(&lock);
	busy = 0;
	errno = saved;
	return (void *)r;
}

EXPORT void *mmap(void *address, size_t length, int prot, int flags, int fd, off_t offset)
{
	return mmap64(address, length, prot, flags, fd, offset);
}

EXPORT int munmap(void *address, size_t length)
{
	uint64_t t0 = now(), start = (uintptr_t)address, len = length;
	int32_t r, err;
	int saved;

	r = (int32_t)syscall(SYS_munmap, address, length);
	saved = errno;
	err = r < 0 ? saved : 0;
	if (!active() || !nranges)
		return r;
	busy = 1;
	pthread_mutex_lock(&lock);
	if (overlaps(start, start + len)) {
		struct iovec b[] = { IOV(start), IOV(len), IOV(r), IOV(err) };

		emit(R_MUNMAP, NODEV, -1, t0, now(), b, 4);
		if (!err)
			uncover(start, start + len);
		heap(0);
	}
	pthread_mutex_unlock(&lock);
	busy = 0;
	errno = saved;
	return r;
}
