/* SPDX-License-Identifier: MIT */
/*
 * What a tenant may try while one of its calls is held in the driver. The test
 * holds the call and says on standard input when to go on; each command prints
 * what it got. WITHOUT_LEADER: by another thread, when the process's first has ended.
 */
#define _GNU_SOURCE
#include "simcuda.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	/* of kmod/door/scratch.h: where a buffer's parameters begin */
	SCRATCH_ARGS_BYTES = 16384,
	PAGE = 4096,
	NV2080_CTRL_CMD_FB_GET_INFO = 0x20801301,
	FB_INFO_TOTAL_RAM_SIZE = 8,
	UVM_UNMAP_EXTERNAL = 66,
};

static struct sc sc;

static void die(const char *what, int ret)
{
	fprintf(stderr, "race: %s: %d\n", what, ret);
	exit(2);
}

/* One step of the test: says what came of the last one, and waits for the next. */
static void step(const char *text, long long value)
{
	char line[16];

	printf("%s %lld\n", text, value);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

static int find_scratch(unsigned long *start, unsigned long *end)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int found = 0;

	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, "[cgpu]") && sscanf(line, "%lx-%lx", start, end) == 2;
	fclose(maps);
	return found;
}

/* ---------------------------------------- another request than was looked at */

/* What is asked, where every thread can write. */
static struct nvos64 asked;
static struct nv_memory_alloc asked_params;

static void *allocate(void *status)
{
	asked_params = (struct nv_memory_alloc){ .owner = sc.client, .size = *(u64 *)status };
	asked = (struct nvos64){ .hRoot = sc.client, .hObjectParent = sc.device,
				 .hObjectNew = 0x51000000, .hClass = 0x40,
				 .pAllocParms = (u64)(uintptr_t)&asked_params };
	*(u64 *)status = ioctl(sc.ctl, _IOWR('F', 0x2b, asked), &asked) ? errno : asked.status;
	return NULL;
}

/* What any program does. */
static void take(u64 size)
{
	u64 status = size;

	allocate(&status);
	printf("status %llu\n", (unsigned long long)status);
}

/* A mapping over the private copies. Return: true: they can be written. */
static bool map_over(unsigned long start, unsigned long end)
{
	return mmap((void *)start, end - start, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* The kernel writes for whoever asks it to: by a system call that takes an address. */
static bool have_written(unsigned long to, const void *from, size_t bytes)
{
	int ends[2];

	return !pipe(ends) && write(ends[1], from, bytes) == (ssize_t)bytes &&
	       read(ends[0], (void *)to, bytes) == (ssize_t)bytes;
}

static void forge(u64 size, bool by_mapping, bool argument)
{
	unsigned long start, end;
	struct nv_memory_alloc forged;
	struct nvos64 request;
	bool replaced;
	pthread_t thread;
	u64 free, total, status = 64 << 10;

	sc_mem_info(&sc, &free, &total); /* the private copies come with the first call */
	if (!find_scratch(&start, &end))
		die("no private copies", 0);
	step("ready", 0);
	pthread_create(&thread, NULL, allocate, &status);
	step("called", 0);
	forged = (struct nv_memory_alloc){ .owner = sc.client, .size = size };
	request = asked;
	request.pAllocParms = (u64)(uintptr_t)&forged;
	asked_params = forged;
	if (argument)
		asked = request;
	replaced = !by_mapping || map_over(start, end);
	if (replaced && by_mapping)
		memcpy((void *)(start + SCRATCH_ARGS_BYTES), &forged, sizeof(forged));
	else if (argument)
		replaced = have_written(start, &request, sizeof(request));
	else if (replaced)
		replaced = have_written(start + SCRATCH_ARGS_BYTES, &forged, sizeof(forged));
	step("replaced", replaced);
	pthread_join(thread, NULL);
	step("status", status);
}

/* ------------------------------------------------ another answer than was given */

static struct sc_mem memory;

/* While the call stands before its return. `status`: what it is given, and what it got. */
static void answer_instead(void *(*call)(void *), u64 status, u32 status_at, u32 instead)
{
	unsigned long start, end;
	pthread_t thread;
	bool written;

	if (!find_scratch(&start, &end))
		die("no private copies", 0);
	step("ready", 0);
	pthread_create(&thread, NULL, call, &status);
	step("called", 0);
	written = have_written(start + status_at, &instead, sizeof(instead));
	asked.status = instead;
	step("written", written);
	pthread_join(thread, NULL);
	step("status", status);
}

/* The driver has allocated, and is made to say that it has not. */
static void deny(u64 size)
{
	u64 free, total;

	sc_mem_info(&sc, &free, &total);
	answer_instead(allocate, size, offsetof(struct nvos64, status), 0x51 /* NO_MEMORY */);
}

/* Over more than is mapped: the driver takes nothing away. */
static void *unmap_too_much(void *status)
{
	struct { u64 base, length; u8 uuid[16]; u32 status, pad; } unmap = {
		memory.va - PAGE, memory.size + 2 * PAGE, { 0 }, 0, 0
	};

	memcpy(unmap.uuid, sc.uuid, sizeof(unmap.uuid));
	*(u64 *)status = sc_uvm(&sc, UVM_UNMAP_EXTERNAL, &unmap, 32);
	return NULL;
}

/* The driver has unmapped nothing, and is made to say that it has. */
static void pretend(u64 size)
{
	int ret = sc_context(&sc);

	if (!ret)
		ret = sc_malloc(&sc, size, &memory);
	if (!ret)
		ret = sc_mem_free(&sc, &memory); /* the mapping keeps it */
	if (ret)
		die("malloc", ret);
	answer_instead(unmap_too_much, 0, 32, 0);
}

/* -------------------------------------------------- a descriptor that is not */

static struct sc_mem exported;

static void *export_it(void *status)
{
	int fd;

	*(int *)status = sc_dmabuf(&sc, &exported, &fd);
	return NULL;
}

static int find_dmabuf(void)
{
	char path[64], link[256];
	ssize_t length;
	int fd;

	for (fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, link, sizeof(link) - 1);
		if (length > 0 && (link[length] = '\0', strstr(link, "dmabuf")))
			return fd;
	}
	return -1;
}

static void hide_dmabuf(u64 size)
{
	int status, ret, fd, kept, other[2];
	pthread_t thread;

	ret = sc_mem_alloc(&sc, size, &exported);
	if (ret || pipe(other))
		die("alloc", ret);
	step("ready", 0);
	pthread_create(&thread, NULL, export_it, &status);
	step("called", 0);
	fd = find_dmabuf();
	if (fd < 0)
		die("no dma-buf", 0);
	kept = dup(fd);
	dup2(other[0], fd);
	step("hidden", kept);
	pthread_join(thread, NULL);
	sc_mem_free(&sc, &exported);
	close(fd);
	close(other[0]);
	close(other[1]);
	step("status", status);
}

/* -------------------------------- another file while the driver looks, and back */

struct swap {
	int number;     /* what the call names */
	int first;      /* the file that is there when the call is judged, and at its end */
	int other;      /* the file that the driver would find */
	int status;
};

static struct swap open_swap(void)
{
	struct swap swap;

	swap.number = open("/dev/nvidiactl", O_RDWR);
	swap.other = open("/dev/nvidiactl", O_RDWR);
	swap.first = dup(swap.number);
	if (swap.first < 0 || swap.other < 0)
		die("nvidiactl", errno);
	return swap;
}

/* While `call` is held, once before the driver looks and once when it is through. */
static void swap_twice(struct swap *swap, void *(*call)(void *))
{
	pthread_t thread;

	step("ready", 0);
	pthread_create(&thread, NULL, call, swap);
	step("called", 0);
	dup2(swap->other, swap->number);
	step("swapped", 0);
	dup2(swap->first, swap->number);
	step("restored", 0);
	pthread_join(thread, NULL);
}

static void *export_to_swapped(void *data)
{
	struct swap *swap = data;
	/* NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS: type 1 is an object of RM's */
	struct { u32 type, hDevice, hParent, hObject; s32 fd; u32 flags; } params = {
		1, sc.device, sc.device, exported.handle, swap->number, 0
	};

	swap->status = sc_rm_control(&sc, sc.client, 0x3d05, &params, sizeof(params));
	return NULL;
}

static void swap_export(u64 size)
{
	struct swap swap = open_swap();
	int ret = sc_mem_alloc(&sc, size, &exported);

	if (ret)
		die("alloc", ret);
	swap_twice(&swap, export_to_swapped);
	sc_mem_free(&sc, &exported);
	close(swap.number);
	close(swap.first);
	step("status", swap.status);
}

static void *register_swapped(void *data)
{
	struct swap *swap = data;
	int file = open("/dev/nvidia0", O_RDWR), number = swap->number;

	if (file < 0)
		die("nvidia0", errno);
	swap->status = ioctl(file, _IOWR('F', 201, int), &number) ? errno : 0;
	return NULL;
}

static void swap_register(void)
{
	struct swap swap = open_swap();

	swap_twice(&swap, register_swapped);
	step("status", swap.status);
}

/* A thread closes what another's call names: a slip, of which an attack has no use. */
static void drop_register(void)
{
	struct swap swap = open_swap();
	pthread_t thread;

	step("ready", 0);
	pthread_create(&thread, NULL, register_swapped, &swap);
	step("called", 0);
	step("dropped", close(swap.number));
	pthread_join(thread, NULL);
	step("status", swap.status);
}

static struct nvos64 *vanishing;

static void *allocate_vanishing(void *status)
{
	*(int *)status = ioctl(sc.ctl, _IOWR('F', 0x2b, *vanishing), vanishing) ? errno : 0;
	return NULL;
}

/* The caller's own argument is not there any more when the driver comes to read it. */
static void vanish(u64 size)
{
	pthread_t thread;
	int status;

	vanishing = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	asked_params = (struct nv_memory_alloc){ .owner = sc.client, .size = size };
	*vanishing = (struct nvos64){ .hRoot = sc.client, .hObjectParent = sc.device,
				      .hObjectNew = 0x51000000, .hClass = 0x40,
				      .pAllocParms = (u64)(uintptr_t)&asked_params };
	step("ready", 0);
	pthread_create(&thread, NULL, allocate_vanishing, &status);
	step("called", 0);
	step("gone", munmap(vanishing, PAGE));
	pthread_join(thread, NULL);
	step("status", status);
}

/* Of a call that is not RM's, whose copy is mapped while it lasts. */
static void forge_register(void)
{
	struct swap swap = open_swap();
	unsigned long start, end;
	pthread_t thread;
	u64 free, total;

	sc_mem_info(&sc, &free, &total);
	if (!find_scratch(&start, &end))
		die("no private copies", 0);
	step("ready", 0);
	pthread_create(&thread, NULL, register_swapped, &swap);
	step("called", 0);
	step("replaced", have_written(start, &swap.other, sizeof(swap.other)));
	pthread_join(thread, NULL);
	step("status", swap.status);
}

/* ------------------------------------------------------- a handle that is given out again */

enum { STALE = 0x51000001, ANOTHER = 0x51000002 };

static void *allocate_stale(void *status)
{
	u32 handle = STALE;

	*(int *)status = sc_rm_alloc(&sc, sc.device, &handle, 0x40, &asked_params,
				     sizeof(asked_params));
	return NULL;
}

/*
 * Virtual addresses go with their address space, which nobody tells the module. Their handle is
 * then given to memory, and duplicated before that is known.
 */
static void rename_stale(u64 size)
{
	struct { u32 index, flags; u64 rest[6]; } space = { 0 };
	struct nv_memory_alloc addresses = { .owner = sc.client, .flags = 0x80000 | 0x400,
					     .size = 2 << 20 };
	u32 vaspace = 0, handle = STALE;
	pthread_t thread;
	int status;

	status = sc_rm_alloc(&sc, sc.device, &vaspace, 0x90f1, &space, sizeof(space));
	addresses.hVASpace = vaspace;
	if (!status)
		status = sc_rm_alloc(&sc, sc.device, &handle, 0x50a0, &addresses,
				     sizeof(addresses));
	if (!status)
		status = sc_rm_free(&sc, sc.client, vaspace);
	if (status)
		die("addresses", status);
	asked_params = (struct nv_memory_alloc){ .owner = sc.client, .size = size };
	step("ready", 0);
	pthread_create(&thread, NULL, allocate_stale, &status);
	step("called", 0);
	handle = ANOTHER;
	step("duplicated", sc_rm_dup(&sc, sc.client, sc.device, &handle, sc.client, STALE));
	pthread_join(thread, NULL);
	step("status", status);
	step("freed", sc_rm_free(&sc, sc.client, STALE));
}

/* ------------------------------------------------------ figures before their time */

static struct { u32 index, data; } entry = { FB_INFO_TOTAL_RAM_SIZE, 0 };

static void *ask_for_size(void *status)
{
	struct { u32 count, pad; u64 list; } params = { 1, 0, (u64)(uintptr_t)&entry };

	*(int *)status = sc_rm_control(&sc, sc.subdevice, NV2080_CTRL_CMD_FB_GET_INFO, &params,
				       sizeof(params));
	return NULL;
}

static void peek(void)
{
	pthread_t thread;
	int status;

	step("ready", 0);
	pthread_create(&thread, NULL, ask_for_size, &status);
	step("called", 0);
	step("seen", *(volatile u32 *)&entry.data);
	pthread_join(thread, NULL);
	step("status", status);
	step("answer", entry.data);
}

/* -------------------------------------------------------- taking copies away */

/* By brk(): a process may say itself where its heap lies. */
static void shrink_over(unsigned long start, unsigned long end)
{
	unsigned long field[64] = { 0 };
	struct prctl_mm_map map = { 0 };
	char text[2048], *at;
	FILE *stat = fopen("/proc/self/stat", "r");
	int i;

	if (!fgets(text, sizeof(text), stat))
		return;
	fclose(stat);
	at = strrchr(text, ')') + 4; /* the fourth field */
	for (i = 4; i < 52; i++)
		field[i] = strtoul(at, &at, 10);
	map.start_code = field[26];
	map.end_code = field[27];
	map.start_stack = field[28];
	map.start_data = field[45];
	map.end_data = field[46];
	map.arg_start = field[48];
	map.arg_end = field[49];
	map.env_start = field[50];
	map.env_end = field[51];
	map.exe_fd = -1;
	map.start_brk = start;
	map.brk = end;
	if (!prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0))
		syscall(SYS_brk, start);
	map.start_brk = field[47];
	map.brk = (unsigned long)sbrk(0);
	prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0);
}

/* `name yes`: the copies are no longer where they were, or can be written. */
static void say(const char *name, unsigned long start)
{
	unsigned long now = 0, end;
	u64 free, total;
	int there = find_scratch(&now, &end) && now == start;

	printf("%s %s\n", name, there && !sc_mem_info(&sc, &free, &total) ? "no" : "yes");
}

static void take_away(void)
{
	unsigned long start, end, length;
	u64 free, total;
	void *other;
	int id, key;

	sc_mem_info(&sc, &free, &total);
	if (!find_scratch(&start, &end))
		die("no private copies", 0);
	length = end - start;
	madvise((void *)start, length, MADV_DONTNEED);
	say("madvise", start);
	key = pkey_alloc(0, 0);
	pkey_mprotect((void *)start, length, PROT_NONE, key < 0 ? 0 : key);
	say("protection key", start);
	remap_file_pages((void *)start, length, 0, 0, 0);
	say("remap_file_pages", start);
	id = shmget(IPC_PRIVATE, length, 0600);
	shmat(id, (void *)start, SHM_REMAP);
	shmctl(id, IPC_RMID, NULL);
	say("shmat", start);
	other = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mremap(other, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start);
	say("mremap onto it", start);
	mmap((void *)(start - PAGE), length + 2 * PAGE, PROT_READ,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	say("mmap over it", start);
	shrink_over(start, end);
	say("brk", start);
	munmap((void *)start, length);
	say("munmap", start);
}

/* ------------------------------------------------------------------ the tree */

static void read_files(int count, char **paths)
{
	char text[4096];
	int i, fd;

	for (i = 0; i < count; i++) {
		fd = open(paths[i], O_RDONLY | O_NONBLOCK);
		if (fd >= 0 && read(fd, text, sizeof(text)) >= 0)
			printf("%s read\n", paths[i]);
		else
			printf("%s %s\n", paths[i], strerror(errno));
		close(fd);
	}
}

static void list_directories(int count, char **paths)
{
	struct dirent *entry;
	DIR *dir;
	int i;

	for (i = 0; i < count; i++) {
		dir = opendir(paths[i]);
		while (dir && (entry = readdir(dir)))
			printf("%s %s\n", paths[i], entry->d_name);
		if (dir)
			closedir(dir);
	}
}

/* -------------------------------------------- an address space that is held */

static void *map(void *fd)
{
	mmap(NULL, PAGE, PROT_READ, MAP_SHARED, (int)(long)fd, 0);
	return NULL;
}

/* The first call of a process, of which another thread has the address space: a client is made. */
static void first_call(void)
{
	long fd = open("/dev/nvidiactl", O_RDWR);
	pthread_t thread;

	asked = (struct nvos64){ .hClass = 0x41 };
	step("ready", 0);
	pthread_create(&thread, NULL, map, (void *)fd);
	step("mapping", 0);
	ioctl((int)fd, _IOWR('F', 0x2b, asked), &asked);
	step("status", asked.status);
}

static int run(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";
	struct sc_options options = { 0 };
	int ret;

	if (!strcmp(command, "read")) {
		read_files(argc - 2, argv + 2);
		return 0;
	}
	if (!strcmp(command, "list")) {
		list_directories(argc - 2, argv + 2);
		return 0;
	}
	if (!strcmp(command, "first-call")) {
		first_call();
		return 0;
	}
	ret = sc_open(&sc, 0, &options);
	if (ret)
		die("open", ret);
	if (!strcmp(command, "take") && argc == 3)
		take(strtoull(argv[2], NULL, 0));
	else if (!strcmp(command, "forge") && argc == 3)
		forge(strtoull(argv[2], NULL, 0), true, false);
	else if (!strcmp(command, "overwrite") && argc == 3)
		forge(strtoull(argv[2], NULL, 0), false, false);
	else if (!strcmp(command, "overwrite-argument") && argc == 3)
		forge(strtoull(argv[2], NULL, 0), false, true);
	else if (!strcmp(command, "deny") && argc == 3)
		deny(strtoull(argv[2], NULL, 0));
	else if (!strcmp(command, "pretend") && argc == 3)
		pretend(strtoull(argv[2], NULL, 0));
	else if (!strcmp(command, "hide-dmabuf") && argc == 3)
		hide_dmabuf(strtoull(argv[2], NULL, 0));
	else if (!strcmp(command, "swap-export") && argc == 3)
		swap_export(strtoull(argv[2], NULL, 0));
	else if (!strcmp(command, "swap-register"))
		swap_register();
	else if (!strcmp(command, "drop-register"))
		drop_register();
	else if (!strcmp(command, "vanish") && argc == 3)
		vanish(strtoull(argv[2], NULL, 0));
	else if (!strcmp(command, "forge-register"))
		forge_register();
	else if (!strcmp(command, "rename") && argc == 3)
		rename_stale(strtoull(argv[2], NULL, 0));
	else if (!strcmp(command, "peek"))
		peek();
	else if (!strcmp(command, "take-away"))
		take_away();
	else
		die("unknown command", 0);
	return 0;
}

static char **arguments;

static void *run_without_leader(void *count)
{
	exit(run((int)(long)count, arguments));
}

/* Sleeps on when its first thread has ended, which SIGUSR1 has it do. */
static void *stay(void *nothing)
{
	for (;;)
		pause();
	return nothing;
}

int main(int argc, char **argv)
{
	bool stays = argc == 2 && !strcmp(argv[1], "stay");
	pthread_t thread;
	sigset_t signals;
	int number;

	if (!stays && !getenv("WITHOUT_LEADER"))
		return run(argc, argv);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	arguments = argv;
	if (pthread_create(&thread, NULL, stays ? stay : run_without_leader, (void *)(long)argc))
		die("thread", errno);
	if (stays)
		sigwait(&signals, &number);
	/* of this thread alone */
	syscall(SYS_exit, 0);
	return 0;
}
