// SPDX-License-Identifier: MIT
/*
 * A file system that tells nobody but its maker's own threads when a file of it is closed, and,
 * once it was opened, nobody at all what a file is.
 *
 *   silent serve DIR            for all users, until it is killed
 *   silent ioctl DIR [there]    a number of the driver's, on a file of it
 *   silent mmap DIR [there]     such a file mapped
 *   silent exchange DIR         the driver's file, and such a one in its place, again and again
 *   silent memory DIR           a call of the driver's whose argument lies in a file of it
 *
 * `there`: it is mounted by `serve`; otherwise by the tenant itself, as any user may. Prints what the
 * calls got (errno, 0: they went on) and how many questions stayed without an answer.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
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
#include <sys/wait.h>
#include <unistd.h>

#ifndef DRIVER /* a test pretends another */
#define DRIVER "/dev/nvidiactl"
#endif

enum { ROOT = 1, FILE_NODE = 2, RM_FREE = 0x29, CALLS = 6, EXCHANGES = 100000 };

/* shared with the server */
struct told {
	int own[2];              /* threads that are answered */
	int asked;               /* without an answer */
};

static struct told *told;
static const char *dir;

static void check(int failed, const char *what)
{
	if (!failed)
		return;
	perror(what);
	exit(2);
}

/* ------------------------------------------------------------- the server */

static void answer(int fuse, uint64_t unique, int err, const void *data, size_t bytes)
{
	char reply[512];
	struct fuse_out_header head = { (uint32_t)(sizeof(head) + bytes), -err, unique };

	memcpy(reply, &head, sizeof(head));
	memcpy(reply + sizeof(head), data, bytes);
	if (write(fuse, reply, head.len) < 0)
		_exit(0);
}

static struct fuse_attr attr_of(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node, .nlink = 1, .size = 4096,
		.mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0666,
	};
}

static void serve(int fuse)
{
	static char buf[1 << 20];
	int open = 0;
	struct fuse_in_header *in = (struct fuse_in_header *)buf;

	while (read(fuse, buf, sizeof(buf)) > 0) {
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31,
					      .max_write = 4096 };
		struct fuse_entry_out entry = { .nodeid = FILE_NODE, .attr = attr_of(FILE_NODE) };
		struct fuse_attr_out attr = { .attr = attr_of(in->nodeid) };
		struct fuse_open_out opened = { .fh = 1 };

		switch (in->opcode) {
		case FUSE_INIT:
			answer(fuse, in->unique, 0, &init, sizeof(init));
			break;
		case FUSE_LOOKUP:
			answer(fuse, in->unique, 0, &entry, sizeof(entry));
			break;
		case FUSE_GETATTR:
			if (open && in->nodeid == FILE_NODE)
				told->asked++;
			else
				answer(fuse, in->unique, 0, &attr, sizeof(attr));
			break;
		case FUSE_OPEN:
			open = 1;
			answer(fuse, in->unique, 0, &opened, sizeof(opened));
			break;
		case FUSE_READ:
			told->asked++;
			break;
		case FUSE_FLUSH:
			if ((int)in->pid == told->own[0] || (int)in->pid == told->own[1])
				answer(fuse, in->unique, 0, NULL, 0);
			else
				told->asked++;
			break;
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break;
		default:
			answer(fuse, in->unique, ENOSYS, NULL, 0);
		}
	}
	_exit(0);
}

/* Return: the server's end. */
static int begin(const char *more)
{
	char options[128];
	int fuse = open("/dev/fuse", O_RDWR);

	check(fuse < 0, "/dev/fuse");
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		    0);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0%s", fuse,
		 more);
	check(mount("silent", dir, "fuse", MS_NOSUID | MS_NODEV, options), dir);
	return fuse;
}

static void begin_here(void)
{
	int fuse = begin("");

	told->own[0] = getpid();
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fuse);
	}
	close(fuse);
}

static void write_map(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	check(fd < 0 || write(fd, text, strlen(text)) < 0, path);
	close(fd);
}

/* A user namespace of its own. */
static void enter(void)
{
	unsigned int uid = getuid(), gid = getgid();
	char map[64];

	check(unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	write_map("/proc/self/uid_map", map);
	write_map("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", gid);
	write_map("/proc/self/gid_map", map);
}

static int open_file(void)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, O_RDWR);
	check(fd < 0, path);
	return fd;
}

/* -------------------------------------------------------------- the tenant */

static void say(int failed)
{
	printf("%d ", failed ? errno : 0);
	fflush(stdout);
}

static void on_ioctl(void)
{
	int fd = open_file(), i;

	for (i = 0; i < CALLS; i++)
		say(ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', RM_FREE, 16), NULL));
}

static void on_mmap(void)
{
	int fd = open_file(), i;

	for (i = 0; i < CALLS; i++)
		say(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
}

static int place, ours, drivers;

static void *exchange(void *unused)
{
	(void)unused;
	told->own[1] = gettid();
	for (;;) {
		dup2(ours, place);
		dup2(drivers, place);
	}
	return NULL;
}

static void on_exchange(void)
{
	static char args[16];
	pthread_t thread;
	int i;

	ours = open_file();
	drivers = open(DRIVER, O_RDWR);
	check(drivers < 0, DRIVER);
	place = dup(drivers);
	pthread_create(&thread, NULL, exchange, NULL);
	for (i = 0; i < EXCHANGES; i++)
		ioctl(place, _IOC(_IOC_READ | _IOC_WRITE, 'F', RM_FREE, 16), args);
	printf("done ");
}

static void on_memory(void)
{
	int fd = open_file();
	void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	drivers = open(DRIVER, O_RDWR);
	check(drivers < 0, DRIVER);
	check(at == MAP_FAILED, "mmap");
	say(ioctl(drivers, _IOC(_IOC_READ | _IOC_WRITE, 'F', RM_FREE, 16), at));
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	dir = argv[2];
	if (!strcmp(argv[1], "serve"))
		serve(begin(",allow_other"));
	if (argc == 3) {
		enter();
		begin_here();
	}
	if (!strcmp(argv[1], "ioctl"))
		on_ioctl();
	else if (!strcmp(argv[1], "mmap"))
		on_mmap();
	else if (!strcmp(argv[1], "memory"))
		on_memory();
	else
		on_exchange();
	printf("asked %d\n", told ? told->asked : 0);
	fflush(stdout);
	/* whoever ends closes, and of the file that is `there` that is for ever */
	for (;;)
		pause();
}
