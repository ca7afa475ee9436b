# SPDX-License-Identifier: MIT
"""Who holds files of a killed container is looked for by one thread, and by the next agent."""

from __future__ import annotations

from pathlib import Path

from tests.host.agent_part import run

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "pycgpu/agent/tenant/process.c"
#include "pycgpu/agent/tenant/round.c"
#include "pycgpu/agent/tenant/holders.c"

struct door door;
static struct container *c;
static volatile int left;

uint64_t now_ns(void)
{
	return 1;
}

void event(const char *format, ...)
{
}

int device_behind(int tid, int fd, uint32_t *minor)
{
	return -ENODEV;
}

bool is_shortage(int err)
{
	return false;
}

bool device_shares_table(int agent, int tid)
{
	return false;
}

bool file_is_at(struct container *c, uint32_t number, int held, int tid, int fd)
{
	return false;
}

void worker_left(struct container *c)
{
	c->workers--;
	left++;
}

static void show(const char *when)
{
	pthread_mutex_lock(&door.lock);
	printf("%s %d %d %u\\n", when, c->condemned, c->hunted, c->workers);
	pthread_mutex_unlock(&door.lock);
}

int main(void)
{
	c = calloc(1, sizeof(*c));
	pthread_mutex_init(&door.lock, NULL);
	pthread_mutex_init(&c->process_lock, NULL);
	pthread_mutex_init(&c->files_lock, NULL);
	door.running = true;
	holders_kill(c);
	show("alive");
	processes_kill(c, "did wrong");
	processes_kill(c, "did wrong again");
	show("killed");
	c->ending = true;
	holders_kill(c);
	holders_kill(c);
	show("hunted");
	while (!left)
		usleep(1000);
	show("done");
	c->ending = false;
	processes_kill(c, "did wrong");
	door.running = false;
	holders_kill(c);
	sleep(1);
	show("agent ends");
	processes_kill(c, "no more");
	return 0;
}
"""


def test_one_thread_hunts_and_an_agent_that_ends_leaves_it_to_the_next(tmp_path: Path) -> None:
    """Condemned, hunted, workers: a container is there for as long as it is condemned."""
    assert run(PROGRAM, tmp_path) == [
        "alive 0 0 0",
        "killed 1 0 1",
        "hunted 1 1 1",
        "done 0 0 0",
        "agent ends 1 1 1",
    ]
