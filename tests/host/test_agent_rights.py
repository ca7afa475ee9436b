# SPDX-License-Identifier: MIT
"""What performs tenants' calls has none of the rights by which the driver gives a caller more."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.host.agent_part import build

#: Prints the effective capabilities before and after.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "call/listener.c"

static void show(void)
{
	FILE *stream = fopen("/proc/thread-self/status", "r");
	char line[256];

	while (fgets(line, sizeof(line), stream))
		if (!strncmp(line, "CapEff:", 7))
			printf("%s", line + 8);
	fclose(stream);
}

int main(void)
{
	show();
	drop_rights();
	show();
	return 0;
}
"""
#: linux/capability.h
KILL, SYS_PTRACE, SYS_ADMIN, SYS_NICE, PERFMON = 5, 19, 21, 23, 38


def test_no_tenant_has_rights_with_the_driver_through_the_agent(tmp_path: Path) -> None:
    """Nor to set how often a group comes in the runlist, nor to watch the whole card."""
    built = build(PROGRAM, tmp_path)
    run = subprocess.run([built], capture_output=True, text=True, check=True, timeout=60)
    before, after = (int(line, 16) for line in run.stdout.split())
    if not before >> SYS_ADMIN & 1:
        pytest.skip("not root")
    assert not after & (1 << SYS_ADMIN | 1 << SYS_NICE | 1 << PERFMON)
    # the others it needs, to read what its tenants point to and to end them
    assert after >> SYS_PTRACE & after >> KILL & 1
