// SPDX-License-Identifier: GPL-2.0-only
/*
 * A ring of the last lines, as in kmod/door/events.c. A reader names the position that it has come
 * to, and is told how many lines it missed.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent.h"
#include "state/door.h"

enum {
	/* as many as the module keeps: docs/tree.md */
	EVENT_LINES = 512,
	EVENT_BYTES = 255,
	TOLD_MAX = 16 /* lines a second, of a container */
};

/* Part of the state: under the next agent a reader goes on behind its last line. */
static struct {
	char line[EVENT_LINES][EVENT_BYTES];
	unsigned long long end; /* lines so far */
} __attribute__((aligned(4096))) ring;
static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t event_came = PTHREAD_COND_INITIALIZER;

static unsigned long long wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec;
}

struct state_segment events_segment(void)
{
	return (struct state_segment){ &ring, sizeof(ring) };
}

void event(const char *format, ...)
{
	char line[EVENT_BYTES - 1];
	va_list args;
	int used, i;

	used = snprintf(line, sizeof(line), "%llu ", wall_ns());
	va_start(args, format);
	vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
	va_end(args);
	for (i = 0; line[i]; i++)
		if (line[i] < ' ')
			line[i] = '?';
	line[i] = '\n';
	pthread_mutex_lock(&event_lock);
	memcpy(ring.line[ring.end % EVENT_LINES], line, (size_t)i + 1);
	ring.line[ring.end++ % EVENT_LINES][i + 1] = 0;
	pthread_cond_broadcast(&event_came);
	pthread_mutex_unlock(&event_lock);
}

int cgpu_agent_events(unsigned long long *position, char *buf, int size, int timeout_ms)
{
	unsigned long long until_ns = wall_ns() + (unsigned long long)timeout_ms * 1000000;
	struct timespec until = { (time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000) };
	int used = 0;

	pthread_mutex_lock(&event_lock);
	while (*position >= ring.end &&
	       !pthread_cond_timedwait(&event_came, &event_lock, &until))
		;
	if (size < EVENT_BYTES) {
		used = -EINVAL;
	} else if (ring.end > *position + EVENT_LINES) {
		used = sprintf(buf, "%llu lost %llu\n", wall_ns(),
			       ring.end - EVENT_LINES - *position);
		*position = ring.end - EVENT_LINES;
	}
	while (used >= 0 && *position < ring.end) {
		const char *line = ring.line[*position % EVENT_LINES];
		int length = (int)strlen(line);

		if (used + length > size)
			break;
		memcpy(buf + used, line, (size_t)length);
		used += length;
		++*position;
	}
	pthread_mutex_unlock(&event_lock);
	return used;
}

bool may_tell(struct container *c)
{
	uint64_t now = now_ns();
	bool may;

	pthread_mutex_lock(&door.lock);
	if (now - c->told_ns > 1000000000) {
		c->told_ns = now;
		c->told = 0;
	}
	may = c->told++ < TOLD_MAX;
	pthread_mutex_unlock(&door.lock);
	return may;
}
