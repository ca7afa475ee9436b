// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes to a process's own standard error why it is ended, as the module does: often its user sees
 * nothing else. That file is a tenant's, and may block a process that opens or writes it. So a
 * process without anything of ours writes, and is forgotten if it does not end soon. A container
 * that blocks some of these gets no more.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "host/host.h"

enum {
	TEXT_BYTES = 384,
	/* the writer needs a few milliseconds, and a process's end is not put off for long */
	PATIENCE_MS = 200,
	UNREAD_MAX = 8,
	/* terminals made by a pseudo terminal's master */
	PTS_MAJOR_FIRST = 136,
	PTS_MAJOR_LAST = 143
};

/* True for a container's log or terminal: a program's own files are not written to. */
static bool is_for_reading(const struct stat *st)
{
	return S_ISFIFO(st->st_mode) ||
	       (S_ISCHR(st->st_mode) && major(st->st_rdev) >= PTS_MAJOR_FIRST &&
		major(st->st_rdev) <= PTS_MAJOR_LAST);
}

struct line {
	char text[TEXT_BYTES], path[48];
	int end; /* the agent sees by this descriptor that the writer has ended */
};

/* Runs in a process of its own. */
static void write_line(const void *data)
{
	const struct line *line = data;
	struct stat st;
	int fd;

	syscall(SYS_close_range, 0, (unsigned int)line->end - 1, 0);
	syscall(SYS_close_range, (unsigned int)line->end + 1, ~0U, 0);
	/* opening some devices has side effects */
	if (stat(line->path, &st) || !is_for_reading(&st))
		return;
	/* an open file of our own, which does not block */
	fd = open(line->path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || !is_for_reading(&st) ||
	    write(fd, line->text, strlen(line->text)) < 0)
		return;
}

void notice(struct container *c, int pid, const char *format, ...)
{
	struct pollfd end = { .events = POLLIN };
	struct line line;
	va_list arguments;
	bool begun;
	int ends[2];

	va_start(arguments, format);
	vsnprintf(line.text, sizeof(line.text), format, arguments);
	va_end(arguments);
	snprintf(line.path, sizeof(line.path), "/proc/%d/fd/2", pid);
	if (__atomic_load_n(&c->unread, __ATOMIC_RELAXED) >= UNREAD_MAX || pipe2(ends, O_CLOEXEC))
		return;
	line.end = ends[1];
	begun = aside(0, "cgpud-notice", write_line, &line);
	close(ends[1]);
	end.fd = ends[0];
	if (begun && poll(&end, 1, PATIENCE_MS) != 1)
		__atomic_add_fetch(&c->unread, 1, __ATOMIC_RELAXED);
	close(ends[0]);
}
