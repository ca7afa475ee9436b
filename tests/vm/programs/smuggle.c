/* SPDX-License-Identifier: MIT */
/*
 * The driver's files in the hands of who is under no filter.
 * smuggle take NAME: waits at the abstract socket NAME for who opens for it, then takes of the card
 * what there is, and says how much it has whenever that is more: "taken BYTES". Stays.
 * smuggle open NAME HOW: opens for it. HOW: `close`: and closes its own; `keep`: keeps them;
 * `use`: makes a client in each, and closes it; `leave`: sends a client of its own with a device,
 * and ends.
 */
#define _GNU_SOURCE
#include "descriptor.h"
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

enum { PATH_BYTES = 64, CHUNK = 64 << 20 };

/* who opens for us, -1: we do */
static int opener = -1;
static struct sc sc;

static void die(const char *what)
{
	fprintf(stderr, "smuggle: %s: %s\n", what, strerror(errno));
	exit(2);
}

static int named(const char *name, struct sockaddr_un *at, socklen_t *bytes)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	*at = (struct sockaddr_un){ .sun_family = AF_UNIX };
	strncpy(at->sun_path + 1, name, sizeof(at->sun_path) - 2);
	*bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	if (fd < 0)
		die("socket");
	return fd;
}

/* Every open of the client library comes here: the linker is told so. */
int __wrap_open(const char *path, int flags, ...)
{
	char asked[PATH_BYTES] = { 0 };

	if (opener < 0 || strncmp(path, "/dev/nvidia", 11))
		return __real_open(path, flags);
	strncpy(asked, path, sizeof(asked) - 1);
	if (write(opener, asked, sizeof(asked)) != sizeof(asked))
		die("ask");
	return receive_fd(opener);
}

static void fill(void)
{
	u64 taken = 0, size = CHUNK;
	struct sc_mem mem;

	while (size >= 1 << 20) {
		if (sc_mem_alloc(&sc, size, &mem)) {
			size /= 2;
			continue;
		}
		taken += size;
		printf("taken %llu\n", (unsigned long long)taken);
		fflush(stdout);
	}
	printf("full\n");
	fflush(stdout);
	pause();
}

static void take(const char *name)
{
	int listening, heir[3], i;
	struct sockaddr_un at;
	socklen_t bytes;

	listening = named(name, &at, &bytes);
	if (bind(listening, (struct sockaddr *)&at, bytes) || listen(listening, 1))
		die("listen");
	printf("waits\n");
	fflush(stdout);
	opener = accept(listening, NULL, NULL);
	if (opener < 0)
		die("accept");
	if (read(opener, &sc, sizeof(sc)) != sizeof(sc))
		die("receive");
	if (sc.client) {
		for (i = 0; i < 3; i++)
			heir[i] = receive_fd(opener);
		sc.ctl = heir[0];
		sc.gpu = heir[1];
		sc.gpu2 = heir[2];
		/* until who made the client has ended, and is not the driver's to tell of */
		while (read(opener, &at, 1) > 0)
			;
		sleep(1);
	} else if (sc_open(&sc, 0, NULL)) {
		die("client");
	}
	fill();
}

static void make_client(int fd)
{
	struct nvos64 args = { .hClass = 0x41 };

	if (ioctl(fd, _IOWR('F', 0x2b, struct nvos64), &args) || args.status)
		die("client");
}

static void open_for(const char *name, const char *how)
{
	char asked[PATH_BYTES];
	struct sockaddr_un at;
	socklen_t bytes;
	int fd;

	opener = named(name, &at, &bytes);
	if (connect(opener, (struct sockaddr *)&at, bytes))
		die("connect");
	fd = opener;
	opener = -1;
	if (!strcmp(how, "leave") && sc_open(&sc, 0, NULL))
		die("open");
	if (write(fd, &sc, sizeof(sc)) != sizeof(sc))
		die("send");
	if (!strcmp(how, "leave")) {
		if (!send_fd(fd, sc.ctl) || !send_fd(fd, sc.gpu) ||
		    !send_fd(fd, sc.gpu2 >= 0 ? sc.gpu2 : sc.gpu))
			die("send");
		_exit(0);
	}
	while (read(fd, asked, sizeof(asked)) == sizeof(asked)) {
		int card = __real_open(asked, O_RDWR | O_CLOEXEC);

		if (card < 0)
			die(asked);
		if (!strcmp(how, "use") && !strcmp(asked, "/dev/nvidiactl"))
			make_client(card);
		if (!send_fd(fd, card))
			die("send");
		if (strcmp(how, "keep"))
			close(card);
	}
	pause();
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "take"))
		take(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "open"))
		open_for(argv[2], argv[3]);
	return 1;
}
