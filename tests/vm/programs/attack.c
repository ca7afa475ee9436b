/* SPDX-License-Identifier: MIT */
/*
 * What a tenant may try against the hook. Each command prints what it got and
 * exits with 0; the test compares that with the driver's own figures.
 */
#define _GNU_SOURCE
#include "descriptor.h"
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NV_OK = 0, NV_ERR_NO_MEMORY = 0x51 };

static struct sc sc;
static atomic_bool stop;
static atomic_ullong got_bytes;

static void die(const char *what, int ret)
{
	fprintf(stderr, "attack: %s: %d\n", what, ret);
	exit(2);
}

static void open_card(void)
{
	struct sc_options options = { 0 };
	int ret = sc_open(&sc, 0, &options);

	if (ret)
		die("open", ret);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* ------------------------------------------- parameters that change meanwhile */

static struct nv_memory_alloc shared_params;
static struct nvos64 shared_args;

static void *flip_size(void *large)
{
	volatile u64 *size = &shared_params.size;

	while (!atomic_load(&stop)) {
		*size = 64 << 10;
		*size = *(u64 *)large;
	}
	return NULL;
}

static void *flip_class(void *unused)
{
	volatile u32 *class = &shared_args.hClass;

	(void)unused;
	while (!atomic_load(&stop)) {
		*class = 0x3e; /* host memory: not charged */
		*class = 0x40;
	}
	return NULL;
}

static void *flip_pointer(void *large)
{
	static struct nv_memory_alloc small, big;
	volatile u64 *params = &shared_args.pAllocParms;

	small = big = shared_params;
	small.size = 64 << 10;
	big.size = *(u64 *)large;
	while (!atomic_load(&stop)) {
		*params = (u64)(uintptr_t)&small;
		*params = (u64)(uintptr_t)&big;
	}
	return NULL;
}

/* Allocates for some seconds while another thread rewrites what is asked. */
static void race(void *(*flip)(void *), u64 large)
{
	double end = seconds() + 2;
	u32 calls = 0, granted = 0, refused = 0;
	pthread_t thread;

	shared_params = (struct nv_memory_alloc){ .owner = sc.client, .size = 64 << 10 };
	pthread_create(&thread, NULL, flip, &large);
	while (seconds() < end) {
		shared_args = (struct nvos64){
			.hRoot = sc.client, .hObjectParent = sc.device,
			.hObjectNew = 0x51000000 + calls, .hClass = 0x40,
			.pAllocParms = (u64)(uintptr_t)&shared_params,
		};
		shared_params.size = large;
		if (ioctl(sc.ctl, _IOWR('F', 0x2b, struct nvos64), &shared_args))
			die("ioctl", errno);
		calls++;
		if (shared_args.status == NV_OK)
			granted++;
		else if (shared_args.status == NV_ERR_NO_MEMORY)
			refused++;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	printf("calls %u granted %u refused %u\n", calls, granted, refused);
}

/* ------------------------------------------------------- the scratch area */

static bool find_scratch(u64 *start, u64 *end)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	bool found = false;

	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, "[cgpu]") &&
			sscanf(line, "%lx-%lx", (long *)start, (long *)end) == 2;
	fclose(maps);
	return found;
}

/* Every way to read, write or keep the memory that the driver is handed. */
static void probe_scratch(void)
{
	u64 start, end, word = 0;
	struct iovec local = { &word, sizeof(word) }, remote;
	int status, memory;
	u64 size;
	pid_t child;

	sc_mem_info(&sc, &word, &size);
	if (!find_scratch(&start, &end)) {
		printf("no scratch\n");
		return;
	}
	remote = (struct iovec){ (void *)start, sizeof(word) };
	child = fork();
	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile u64 *)start = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	/* the child does not even have the mapping; the parent's own touch: */
	printf("inherited %s\n", WIFSIGNALED(status) ? "no" : "yes");
	/* a core dump, before 5.17, ends all who share the address space */
	prctl(PR_SET_DUMPABLE, 0);
	child = vfork(); /* shares the address space */
	if (!child) {
		word = *(volatile u64 *)start;
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("readable %s\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? "no" : "yes");
	child = vfork();
	if (!child) {
		*(volatile u64 *)start = 0x4141414141414141;
		_exit(0);
	}
	waitpid(child, &status, 0);
	prctl(PR_SET_DUMPABLE, 1);
	printf("writable %s\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? "no" : "yes");
	printf("mprotect %s\n", mprotect((void *)start, end - start, PROT_READ | PROT_WRITE) ?
	       "no" : "yes");
	printf("mremap %s\n", mremap((void *)start, end - start, end - start, MREMAP_MAYMOVE |
	       MREMAP_FIXED, (void *)0x600000000000) == MAP_FAILED ? "no" : "yes");
	printf("partial munmap %s\n", munmap((void *)start, 4096) ? "no" : "yes");
	printf("process_vm_writev %s\n",
	       process_vm_writev(getpid(), &local, 1, &remote, 1, 0) < 0 ? "no" : "yes");
	printf("process_vm_readv %s\n",
	       process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0 ? "no" : "yes");
	memory = open("/proc/self/mem", O_RDWR);
	printf("mem write %s\n", pwrite(memory, &word, sizeof(word), start) < 0 ? "no" : "yes");
	printf("mem read %s\n", pread(memory, &word, sizeof(word), start) < 0 ? "no" : "yes");
	printf("works after %s\n", sc_mem_info(&sc, &word, &size) ? "no" : "yes");
}

static void *unmap_forever(void *unused)
{
	(void)unused;
	for (;;) {
		u64 start, end;

		if (find_scratch(&start, &end))
			munmap((void *)start, end - start);
	}
	return NULL;
}

/* Tries to take the scratch area away under the calls. */
static void unmap_scratch(void)
{
	pthread_t thread;
	double end = seconds() + 5;
	u64 calls = 0;

	pthread_create(&thread, NULL, unmap_forever, NULL);
	while (seconds() < end) {
		struct sc_mem memory = { 0 };

		if (!sc_mem_alloc(&sc, 1 << 20, &memory))
			sc_mem_free(&sc, &memory);
		calls++;
	}
	printf("survived %llu calls\n", (unsigned long long)calls);
}

/* ---------------------------------------------------- free against the rest */

static struct sc_mem victim;

static void *free_and_realloc(void *large)
{
	while (!atomic_load(&stop)) {
		struct nv_memory_alloc params = { .owner = sc.client, .size = *(u64 *)large };
		u32 handle = victim.handle;

		sc_rm_free(&sc, sc.client, handle);
		sc_rm_alloc_in(&sc, sc.client, sc.device, &handle, 0x40, &params, sizeof(params));
		params.size = 64 << 10;
		sc_rm_free(&sc, sc.client, handle);
		sc_rm_alloc_in(&sc, sc.client, sc.device, &handle, 0x40, &params, sizeof(params));
	}
	return NULL;
}

/* Duplicates a handle that another thread frees and allocates anew, larger. */
static void race_dup(u64 large)
{
	double end = seconds() + 3;
	u32 kept = 0, calls = 0;
	pthread_t thread;

	victim.handle = 0x52000000;
	pthread_create(&thread, NULL, free_and_realloc, &large);
	while (seconds() < end) {
		u32 copy = 0x53000000 + calls++;

		if (!sc_rm_dup(&sc, sc.client, sc.device, &copy, sc.client, victim.handle))
			kept++;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	sc_rm_free(&sc, sc.client, victim.handle);
	printf("calls %u kept %u\n", calls, kept);
}

/* ------------------------------------------------------ many racing threads */

static void *allocate_until_refused(void *size)
{
	for (;;) {
		struct sc_mem memory = { 0 };
		int ret = sc_mem_alloc(&sc, *(u64 *)size, &memory);

		if (ret)
			return (void *)(intptr_t)ret;
		atomic_fetch_add(&got_bytes, memory.size ? memory.size : *(u64 *)size);
	}
}

static void racing_threads(int count, u64 size)
{
	pthread_t *threads = calloc(count, sizeof(*threads));
	int i, odd = 0;

	for (i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, allocate_until_refused, &size);
	for (i = 0; i < count; i++) {
		void *ret;

		pthread_join(threads[i], &ret);
		odd += (intptr_t)ret != NV_ERR_NO_MEMORY;
	}
	printf("bytes %llu odd %d\n", (unsigned long long)got_bytes, odd);
}

/* --------------------------------------------------------- descriptors away */

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (connect(s, (void *)&address, sizeof(address)))
		die("connect", errno);
	return s;
}

/* Hands the control file, and memory exported as a descriptor, to somebody. */
static void give_away(const char *path)
{
	struct sc_mem memory = { 0 };
	int ret, fd = -1, s;

	ret = sc_mem_alloc(&sc, 100 << 20, &memory);
	if (ret)
		die("alloc", ret);
	ret = sc_export(&sc, &memory, &fd);
	if (ret)
		die("export", ret);
	printf("client %x device %x\n", sc.client, sc.device);
	fflush(stdout);
	s = connect_to(path);
	if (!send_fd(s, sc.ctl))
		die("send", errno);
	close(s);
	pause();
}

/* Uses a control file that somebody else opened. */
static void take_over(const char *path, u32 client, u32 device)
{
	struct nv_memory_alloc params = { .owner = client, .size = 64 << 20 };
	struct nvos64 args = { .hRoot = client, .hObjectParent = device,
			       .hObjectNew = 0x54000000, .hClass = 0x40,
			       .pAllocParms = (u64)(uintptr_t)&params };
	int s = connect_to(path), fd = receive_fd(s), ret;

	if (fd < 0)
		die("receive", errno);
	close(s);
	ret = ioctl(fd, _IOWR('F', 0x2b, struct nvos64), &args);
	printf("ioctl %d errno %d status %x\n", ret, ret ? errno : 0, args.status);
	fflush(stdout);
	pause();
}

/* -------------------------------------------------------- foreign channels */

static void stop_channels(u32 client, u32 channel)
{
	u8 params[536] = { 1 };
	u32 one = 1;
	int ret;

	memcpy(params + 4, &one, 4);
	memcpy(params + 24, &client, 4);
	memcpy(params + 280, &channel, 4);
	ret = sc_rm_control(&sc, sc.subdevice, 0x2080110b, params, sizeof(params));
	printf("status %x\n", ret);
}

static u64 bytes_of(const char *text)
{
	return strtoull(text, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	if (!strcmp(command, "take-over") && argc == 5) {
		take_over(argv[2], strtoul(argv[3], NULL, 16), strtoul(argv[4], NULL, 16));
		return 0;
	}
	open_card();
	if (!strcmp(command, "flip-size") && argc == 3)
		race(flip_size, bytes_of(argv[2]));
	else if (!strcmp(command, "flip-class") && argc == 3)
		race(flip_class, bytes_of(argv[2]));
	else if (!strcmp(command, "flip-pointer") && argc == 3)
		race(flip_pointer, bytes_of(argv[2]));
	else if (!strcmp(command, "probe-scratch"))
		probe_scratch();
	else if (!strcmp(command, "unmap-scratch"))
		unmap_scratch();
	else if (!strcmp(command, "race-dup") && argc == 3)
		race_dup(bytes_of(argv[2]));
	else if (!strcmp(command, "threads") && argc == 4)
		racing_threads(atoi(argv[2]), bytes_of(argv[3]));
	else if (!strcmp(command, "give-away") && argc == 3)
		give_away(argv[2]);
	else if (!strcmp(command, "stop-channels") && argc == 4)
		stop_channels(strtoul(argv[2], NULL, 16), strtoul(argv[3], NULL, 16));
	else
		die("unknown command", 0);
	fflush(stdout);
	if (getenv("HOLD"))
		pause();
	return 0;
}
