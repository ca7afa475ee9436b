# SPDX-License-Identifier: MIT
"""Who moves gates waits for no thread that waits for a processor."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.host.agent_part import build

NOT_PERMITTED = 77
#: On one processor: who holds the lock, at no priority, who keeps it from running, who waits.
PROGRAM = """
#include <stdio.h>
#include "pycgpu/agent/state/door.c"
#include <sched.h>
#include <unistd.h>

static volatile bool held, through;

static void become(int policy, int priority)
{
	struct sched_param parameter = { .sched_priority = priority };
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(sched_getcpu(), &first);
	pthread_setaffinity_np(pthread_self(), sizeof(first), &first);
	if (pthread_setschedparam(pthread_self(), policy, &parameter))
		_exit(77);
}

static void *hold(void *unused)
{
	uint64_t until;

	become(SCHED_IDLE, 0);
	pthread_mutex_lock(&door.lock);
	held = true;
	until = now_ns() + 50000000;
	while (now_ns() < until)
		;
	pthread_mutex_unlock(&door.lock);
	return unused;
}

static void *keep_busy(void *unused)
{
	become(SCHED_FIFO, 1);
	while (!through)
		;
	return unused;
}

int main(void)
{
	pthread_t holder, busy;
	uint64_t start;

	become(SCHED_OTHER, 0); /* where the others are, too */
	pthread_create(&holder, NULL, hold, NULL);
	while (!held)
		usleep(1000);
	become(SCHED_FIFO, 2);
	pthread_create(&busy, NULL, keep_busy, NULL);
	start = now_ns();
	pthread_mutex_lock(&door.lock);
	through = true;
	printf("%llu\\n", (unsigned long long)(now_ns() - start) / 1000000);
	return 0;
}
"""


def test_who_moves_gates_waits_for_no_thread_that_waits_for_a_processor(tmp_path: Path) -> None:
    built = build(PROGRAM, tmp_path)
    run = subprocess.run([built], capture_output=True, text=True, check=False, timeout=60)
    if run.returncode == NOT_PERMITTED:
        pytest.skip("no real-time priority")
    assert run.returncode == 0, run.stderr
    # Who is kept from the processor gets 50 ms of each second, by the kernel's own rule.
    assert int(run.stdout) < 500
