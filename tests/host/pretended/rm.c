/* SPDX-License-Identifier: MIT */
/*
 * A driver for an agent on a host that has none: /dev/null stands for /dev/nvidiactl. What it has
 * allocated lies in a file, so that it outlives any agent; a handle that is in use is refused, as
 * by the driver, and so is one that is not there, so whatever an agent does twice is seen.
 * CGPU_PRETENDED names the file; the first word there is how many calls were performed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/rm/structs.h"
#include "driver/driver.h"
#include "userd.h"

enum { OBJECTS = 4096 };

struct pretended {
	_Atomic uint64_t calls;
	struct { uint32_t hClient, hObject; uint64_t bytes; } object[OBJECTS];
};

static struct pretended *driver;
static int memory = -1; /* that file */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ctl = -1;

int pretend(int fd, unsigned long cmd, void *args);

static void open_driver(void)
{
	const char *path = getenv("CGPU_PRETENDED");

	memory = open(path ? path : "/dev/null", O_RDWR | O_CLOEXEC);
	driver = mmap(NULL, sizeof(*driver), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
}

static int find(uint32_t hClient, uint32_t hObject)
{
	int i;

	for (i = 0; i < OBJECTS; i++)
		if (driver->object[i].hClient == hClient && driver->object[i].hObject == hObject)
			return i;
	return -1;
}

/*
 * A driver goes on to its end though its caller is killed. This one is a part of the caller, so
 * that what it does and that it did stand one behind the other.
 */
static void make(struct nvos64 *args)
{
	const struct nv_memory_alloc *memory = (const void *)(uintptr_t)args->pAllocParms;
	int i;

	for (i = 0; i < OBJECTS && driver->object[i].hClient; i++)
		;
	if (find(args->hRoot, args->hObjectNew) >= 0) {
		args->status = NV_ERR_INSERT_DUPLICATE_NAME;
	} else if (i == OBJECTS) {
		args->status = NV_ERR_INSUFFICIENT_RESOURCES;
	} else {
		driver->object[i].bytes = args->hClass == NV01_MEMORY_LOCAL_USER ? memory->size : 0;
		driver->object[i].hObject = args->hObjectNew;
		((volatile uint32_t *)&driver->object[i].hClient)[0] = args->hRoot;
		*(volatile uint32_t *)&args->status = NV_OK;
	}
}

static void unmake(struct nvos00 *args)
{
	int i = find(args->hRoot, args->hObjectOld);

	if (i < 0) {
		args->status = NV_ERR_OBJECT_NOT_FOUND;
		return;
	}
	((volatile uint32_t *)&driver->object[i].hClient)[0] = 0;
	*(volatile uint32_t *)&args->status = NV_OK;
}

/* Once for an open file, which a flag of its own remembers; without a status. */
static int register_file(int fd)
{
	if (fcntl(fd, F_GETFL) & O_APPEND) {
		errno = EINVAL;
		return -1;
	}
	fcntl(fd, F_SETFL, O_APPEND);
	/* an agent that ends here does not know that it was done */
	usleep(2000);
	return 0;
}

/* In place of ioctl() on a tenant's file. */
int pretend(int fd, unsigned long cmd, void *args)
{
	if ((cmd & 0xff) == NV_ESC_REGISTER_FD)
		return register_file(fd);
	usleep((useconds_t)(atomic_load(&driver->calls) % 7 * 30));
	pthread_mutex_lock(&lock);
	if ((cmd & 0xff) == NV_ESC_RM_ALLOC)
		make(args);
	else if ((cmd & 0xff) == NV_ESC_RM_FREE)
		unmake(args);
	else if ((cmd & 0xff) == NV_ESC_RM_CONTROL)
		((struct nvos54 *)args)->status = NV_OK;
	atomic_fetch_add(&driver->calls, 1);
	pthread_mutex_unlock(&lock);
	return 0;
}

int rm_open(bool force, char *message)
{
	struct cgpu_gpu gpu = { .uuid = "pretended", .total_bytes = 16ull << 30 };

	strcpy(door.version, "580.159.04");
	if (cgpu_abi_find(door.version, force, &door.abi))
		return -ENODEV;
	ctl = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (ctl < 0) {
		strcpy(message, "no /dev/null");
		return -errno;
	}
	open_driver();
	cgpu_card_add(&door.host, 0, &gpu);
	return 0;
}

void rm_close(void)
{
	close(ctl);
	close(memory);
}

int rm_ioctl(int fd, uint32_t nr, void *args, uint32_t size)
{
	(void)size;
	return nr == NV_ESC_RM_FREE ? pretend(fd, nr, args) : 0;
}

uint32_t rm_control(int fd, uint32_t hClient, uint32_t hObject, uint32_t cmd, void *params,
		    uint32_t size)
{
	(void)fd, (void)hClient, (void)hObject, (void)params, (void)size;
	return cmd == NV2080_CTRL_CMD_GPU_GET_PID_INFO ? NV_ERR_NOT_SUPPORTED : NV_OK;
}

int rm_alloc(uint32_t hParent, uint32_t *hObject, uint32_t hClass, void *params)
{
	(void)hParent, (void)hObject, (void)hClass, (void)params;
	return -EIO;
}

void rm_free(uint32_t hObject)
{
	(void)hObject;
}

uint32_t rm_share_with_agent(int fd, uint32_t hClient, uint32_t hObject, bool revoke)
{
	(void)fd, (void)hClient, (void)hObject, (void)revoke;
	return NV_OK;
}

/* Of a client's USERD; nothing else is duplicated. */
uint32_t rm_duplicate(uint32_t hParent, uint32_t hClientSrc, uint32_t hObjectSrc, uint32_t *hObject)
{
	(void)hParent;
	if (hObjectSrc != USERD_MEMORY || find(hClientSrc, hObjectSrc) < 0)
		return NV_ERR_OBJECT_NOT_FOUND;
	*hObject = hClientSrc;
	return NV_OK;
}

const void *rm_map(uint32_t hMemory, uint64_t size)
{
	(void)hMemory, (void)size;
	return NULL;
}

const void *rm_map_part(uint32_t hDevice, const char *path, uint32_t hMemory, uint64_t offset,
			uint64_t size)
{
	void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, memory,
			USERD_AT(hMemory) + (off_t)offset);

	(void)hDevice, (void)path;
	return at == MAP_FAILED ? NULL : at;
}

void rm_each_descriptor(void (*tell)(int fd))
{
	tell(ctl);
	tell(memory);
}

int rm_ctl_fd(void)
{
	return ctl;
}

uint32_t rm_client(void)
{
	return 1;
}

uint32_t rm_device(uint32_t minor)
{
	return !minor;
}

uint32_t rm_subdevice(uint32_t minor)
{
	return !minor;
}
