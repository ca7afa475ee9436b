/* SPDX-License-Identifier: MIT */
/*
 * What a door outside the kernel learns of a tenant by looking at its processes: names of
 * nodes, what is mapped, who is there. Each command makes that look otherwise than it is.
 * ALIAS: in names of the driver's nodes.
 */
#define _GNU_SOURCE
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, UVM_VALIDATE_VA_RANGE = 72, UVM_INITIALIZE = 0x30000001 };

static struct sc sc;

static void die(const char *what)
{
	fprintf(stderr, "lurk: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void open_card(void)
{
	struct sc_options options = { 0 };

	if (sc_open(&sc, 0, &options))
		die("open");
}

static void put(const char *path, const char *format, unsigned int id)
{
	FILE *file = fopen(path, "w");

	if (!file || fprintf(file, format, id) < 0 || fclose(file))
		die(path);
}

/* From here on the driver's devices are found where they always are, and called otherwise. */
static void alias(void)
{
	static const char *const nodes[] = { "nvidiactl", "nvidia0", "nvidia-uvm" };
	const char *place = "/tmp";
	unsigned int uid = getuid(), gid = getgid(), i;
	char from[64], to[64], name[16];

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		die("unshare");
	put("/proc/self/setgroups", "deny", 0);
	put("/proc/self/uid_map", "0 %u 1", uid);
	put("/proc/self/gid_map", "0 %u 1", gid);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", place, "tmpfs", 0, NULL))
		die("mount");
	for (i = 0; i < 3; i++) {
		snprintf(from, sizeof(from), "/dev/%s", nodes[i]);
		snprintf(name, sizeof(name), "alias%u", i);
		snprintf(to, sizeof(to), "%s/%s", place, name);
		if (close(open(to, O_CREAT | O_RDWR, 0600)) || mount(from, to, NULL, MS_BIND, NULL))
			die(to);
		snprintf(to, sizeof(to), "%s/%s", place, nodes[i]);
		if (symlink(name, to))
			die(to);
	}
	if (mount(place, "/dev", NULL, MS_BIND | MS_REC, NULL))
		die("/dev");
}

static void run(char **program)
{
	execvp(program[0], program);
	die(program[0]);
}

/* Managed memory, some of whose pages are unmapped again, and as much once more. */
static void managed_twice(u64 bytes, u32 holes)
{
	u8 *first, *second;
	u32 i;

	open_card();
	if (sc_context(&sc))
		die("context");
	first = sc_managed(&sc, bytes);
	if (!first)
		die("managed");
	for (i = 0; i < holes; i++)
		munmap(first + (2 * i + 1) * PAGE, PAGE);
	usleep(100000);
	second = sc_managed(&sc, bytes);
	printf("second %d\n", second ? 0 : errno);
}

static int exchanged, bare;
static volatile bool exchanging;

static void *exchange(void *nothing)
{
	while (exchanging) {
		dup2(bare, exchanged);
		dup2(sc.uvm, exchanged);
	}
	return nothing;
}

/*
 * Managed memory beyond `bytes`, all that is allowed, in pieces of that many: announced by a
 * file that no card is registered in, and mapped by the one that has the card.
 */
static void managed_elsewhere(u64 bytes, u32 pieces)
{
	struct { u64 flags; u32 status, pad; } init = { 0 };
	struct { u64 base, length; u32 status, pad; } range = { .length = bytes };
	time_t end = time(NULL) + 20;
	pthread_t thread;
	u32 got = 0;

	open_card();
	if (sc_context(&sc))
		die("context");
	bare = open("/dev/nvidia-uvm", O_RDWR);
	exchanged = dup(bare);
	if (bare < 0 || ioctl(bare, UVM_INITIALIZE, &init) || init.status)
		die("second file");
	if (!sc_managed(&sc, bytes))
		die("managed");
	exchanging = true;
	pthread_create(&thread, NULL, exchange, NULL);
	while (got < pieces && time(NULL) < end) {
		struct sc other = sc;
		void *at;

		other.uvm = exchanged;
		at = sc_managed(&other, bytes);
		range.base = (u64)(uintptr_t)at;
		if (at && !sc_uvm(&sc, UVM_VALIDATE_VA_RANGE, &range, 16))
			got++;
		else if (at)
			sc_managed_free(at, bytes);
	}
	exchanging = false;
	pthread_join(thread, NULL);
	printf("got %u\n", got);
	fflush(stdout);
	sleep(20);
	printf("kept %u\n", got);
}

static void *call_once(void *tid)
{
	u64 free, total;

	*(pid_t *)tid = gettid();
	sc_mem_info(&sc, &free, &total);
	return NULL;
}

/* As managed_twice(), by a process that has the number of a thread of its parent's. */
static void renumbered(u64 bytes)
{
	pid_t number, child;
	struct clone_args args = { .flags = CLONE_FILES, .exit_signal = SIGCHLD,
				   .set_tid = (uintptr_t)&number, .set_tid_size = 1 };
	pthread_t thread;

	open_card();
	pthread_create(&thread, NULL, call_once, &number);
	pthread_join(thread, NULL);
	do /* until the kernel has done with the thread */
		child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	while (child < 0 && errno == EEXIST);
	if (child < 0)
		die("clone3");
	if (!child) {
		managed_twice(bytes, 1);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

/* Processes that make one call each, on a file that is not the driver's, and end or stay. */
static void crowd(u32 count, bool stay)
{
	int done[2];
	char byte;
	u32 i;

	if (pipe(done))
		die("pipe");
	for (i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			ioctl(done[0], _IO('F', 0x2a), 0);
			if (write(done[1], "", 1) == 1 && stay)
				pause();
			_exit(0);
		}
		if (child < 0 || read(done[0], &byte, 1) != 1)
			die("fork");
		if (!stay)
			waitpid(child, NULL, 0);
	}
	printf("made %u\n", count);
	fflush(stdout);
	pause();
}

/* A process of whose mappings there are so many that to look at them takes its time. */
static void vast(u32 files, u32 mappings)
{
	u8 params[16];
	u32 i;

	open_card();
	for (i = 0; i < mappings; i++)
		if (mmap(NULL, PAGE, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0) == MAP_FAILED)
			die("mmap");
	for (i = 0; i < files; i++) {
		int fd = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);

		memset(params, 0, sizeof(params));
		if (fd < 0 || ioctl(fd, UVM_INITIALIZE, params))
			die("nvidia-uvm");
	}
	printf("files %u\n", files);
	fflush(stdout);
	pause();
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	if (getenv("ALIAS"))
		alias();
	if (!strcmp(command, "run") && argc > 2)
		run(argv + 2);
	else if (!strcmp(command, "managed-elsewhere") && argc == 4)
		managed_elsewhere(strtoull(argv[2], NULL, 10), (u32)atoi(argv[3]));
	else if (!strcmp(command, "renumbered") && argc == 3)
		renumbered(strtoull(argv[2], NULL, 10));
	else if (!strcmp(command, "managed-twice") && argc == 4)
		managed_twice(strtoull(argv[2], NULL, 10), (u32)atoi(argv[3]));
	else if (!strcmp(command, "few") && argc == 3)
		crowd((u32)atoi(argv[2]), false);
	else if (!strcmp(command, "crowd") && argc == 3)
		crowd((u32)atoi(argv[2]), true);
	else if (!strcmp(command, "vast") && argc == 4)
		vast((u32)atoi(argv[2]), (u32)atoi(argv[3]));
	else
		die("unknown command");
	return 0;
}
