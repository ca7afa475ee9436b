# SPDX-License-Identifier: MIT
"""Where the agent's answers go: to the memory that the caller had, not to its number's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.host.agent_part import build

#: Between the look whether the caller waits still and the writing its number has other memory: it
#: executes a program, as another process would that was given the number of one that was killed.
PROGRAM = """
#include "pycgpu/agent/call/perform.c"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>

enum { PLACE = 0x10000000, BYTES = 32 };

static int told[2], go[2];
static char **arguments;

static void live(char *const *then)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	void *at = mmap((void *)PLACE, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (at == MAP_FAILED)
		_exit(1);
	if (write(told[1], "", 1) != 1 || read(go[0], &byte, 1) != 1 || !then)
		_exit(1);
	execv("/proc/self/exe", then);
	_exit(1);
}

bool is_valid(const struct flight *f)
{
	char byte;

	(void)f;
	if (!strcmp(arguments[1], "other"))
		return write(go[1], "", 1) == 1 && read(told[0], &byte, 1) == 1;
	return true;
}

int main(int argc, char **argv)
{
	static struct flight f = { .arg = PLACE, .call.req.args_size = BYTES };
	uint8_t there[BYTES];
	char to[16], from[16], byte, *then[] = { argv[0], to, from, NULL };

	arguments = argv;
	if (argc == 3) {
		told[1] = atoi(argv[1]);
		go[0] = atoi(argv[2]);
		live(NULL);
	}
	if (pipe(told) || pipe(go))
		return 2;
	snprintf(to, sizeof(to), "%d", told[1]);
	snprintf(from, sizeof(from), "%d", go[0]);
	f.tid = fork();
	if (!f.tid)
		live(then);
	if (read(told[0], &byte, 1) != 1)
		return 2;
	memset(f.args, 0xaa, BYTES);
	printf("%d ", deliver(&f));
	if (!copy_in(&f, PLACE, there, BYTES))
		return 2;
	printf("%#x\\n", there[BYTES - 1]);
	return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(PROGRAM, tmp_path_factory.mktemp("perform"))


def _answered(program: Path, who: str) -> str:
    return subprocess.run(
        [program, who], capture_output=True, text=True, check=True, timeout=30
    ).stdout


def test_an_answer_goes_to_the_caller(program: Path) -> None:
    assert _answered(program, "same") == "0 0xaa\n"


def test_an_answer_goes_to_no_other_memory_by_the_callers_number(program: Path) -> None:
    assert _answered(program, "other").split()[1] == "0"
