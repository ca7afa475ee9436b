# SPDX-License-Identifier: MIT
"""Who waits at a listener ends with it, and waits at nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.host.agent_part import build

#: Receives from the file that it is given until it is told of an end; prints how often it asked.
PROGRAM = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "call/listener.c"

int main(int argc, char **argv)
{
	static struct container c;
	struct listener l = { .c = &c, .receiving = PTHREAD_MUTEX_INITIALIZER };
	struct seccomp_notif n;
	int asked = 0;

	l.fd = open(argv[argc - 1], O_RDWR);
	while (receive(&l, &n) >= 0 && asked < 1000)
		asked++;
	printf("%d %d\\n", asked, l.gone);
	return 0;
}
"""


@pytest.mark.parametrize("name", ["/dev/null", "file"])
def test_who_waits_at_a_file_that_is_no_listener_ends(tmp_path: Path, name: str) -> None:
    """Such a file is always ready and never has a call: four threads of root's turned for good."""
    built = build(PROGRAM, tmp_path)
    path = tmp_path / name
    path.touch()
    run = subprocess.run([built, path], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "0 1\n"
