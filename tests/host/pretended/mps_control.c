/* SPDX-License-Identifier: MIT */
/*
 * Stands in for nvidia-cuda-mps-control, as one of driver 580.159.04 behaves. `-f`: makes what it
 * makes where CUDA_MPS_PIPE_DIRECTORY says, has a server in a process of its own, and ends when
 * somebody reaches its socket for orders. Without: gives an order, as `echo quit |` does.
 *
 * Built with SERVER, the path of a simcuda: its server has what one has of the simulated driver.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address_of(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
		 getenv("CUDA_MPS_PIPE_DIRECTORY"), name);
	return address;
}

static int listen_at(const char *name, mode_t mode)
{
	struct sockaddr_un address = address_of(name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 16)) {
		perror(address.sun_path);
		exit(1);
	}
	chmod(address.sun_path, mode);
	return fd;
}

static int reaches(const char *name)
{
	struct sockaddr_un address = address_of(name);

	return !connect(socket(AF_UNIX, SOCK_SEQPACKET, 0), (struct sockaddr *)&address,
			sizeof(address));
}

static void make_file(const char *name)
{
	struct sockaddr_un address = address_of(name);

	fclose(fopen(address.sun_path, "w"));
}

int main(int argc, char **argv)
{
	struct pollfd at[2] = { { .events = POLLIN }, { .events = POLLIN } };
	int told[2];
	char byte = 0;

	if (argc < 2 || strcmp(argv[1], "-f")) {
		if (!reaches("control_privileged"))
			puts(reaches("control") ? "Not enough privilege to execute quit command" :
						  "Cannot find MPS control daemon process");
		return 0;
	}
	if (pipe(told))
		return 1;
	if (!fork()) {
		prctl(PR_SET_NAME, "mps-server");
		/* and is not ended by what ends its daemon */
		signal(SIGTERM, SIG_IGN);
		if (write(told[1], &byte, 1) == 1)
#ifdef SERVER
			execl(SERVER, SERVER, "--serves", "--context", "--hold", "info", NULL);
#else
			for (;;)
				pause();
#endif
		return 1;
	}
	if (read(told[0], &byte, 1) != 1)
		return 1;
	make_file("control_lock");
	make_file("nvidia-cuda-mps-control.pid");
	mkfifo(address_of("log").sun_path, 0666);
	at[0].fd = listen_at("control_privileged", 0755);
	at[1].fd = listen_at("control", 0666);
	printf("uid %d\n", getuid());
	fflush(stdout);
	for (;;) {
		poll(at, 2, -1);
		if (at[0].revents)
			return 0;
		close(accept(at[1].fd, NULL, NULL));
		/* as NVIDIA's, of each client */
		printf("[2026-11-30 12:00:00.000 Control %5d] Accepting connection...\n", getpid());
		fflush(stdout);
	}
}
