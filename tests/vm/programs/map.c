/* SPDX-License-Identifier: MIT */
/* map FILE...: maps the first page of each for reading, and prints its first word or the error. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void map(const char *path)
{
	int fd = open(path, O_RDONLY);
	const volatile uint32_t *page;

	if (fd < 0) {
		printf("open: %s\n", strerror(errno));
		return;
	}
	page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		printf("mmap: %s\n", strerror(errno));
	else
		printf("%08x\n", *page);
	close(fd);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		map(argv[i]);
	return 0;
}
