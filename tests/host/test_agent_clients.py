# SPDX-License-Identifier: MIT
"""Whose work is charged to whom, by the number that the driver's log has of a client."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.host.agent_part import CORE, REPOSITORY, build

#: Containers 0 and 1 have slots 0 and 1; `charge` prints who is charged for 1 ms of a process's.
PROGRAM = """
#include <stdlib.h>
#include "pycgpu/agent/card/switch_log.c"

struct door door;
static struct container *of[2];

uint64_t now_ns(void)
{
	return 1;
}

static void charged(uint32_t pid)
{
	uint64_t before[2] = { card[0].log.ran_ns[0], card[0].log.ran_ns[1] };
	struct cgpu_switch_log_use use = { .pid = pid, .ns = 1000000 };

	note_use(0, &use);
	printf("%u: %d %d\\n", pid, card[0].log.ran_ns[0] != before[0],
		card[0].log.ran_ns[1] != before[1]);
}

static void forget(struct container *c, uint32_t file)
{
	pthread_mutex_lock(&door.lock);
	clients_forget(c, file);
	pthread_mutex_unlock(&door.lock);
}

static uint32_t number(void)
{
	uint32_t read;

	return scanf("%u", &read) == 1 ? read : 0;
}

int main(void)
{
	uint32_t i, c, file;
	char word[16];

	cgpu_sched_init(&door.sched[0], 1);
	cgpu_switch_log_init(&card[0].log);
	for (i = 0; i < 2; i++) {
		struct cgpu_policy_member member = { .weight = 1 };

		of[i] = calloc(1, sizeof(**of));
		cgpu_tenant_init(&of[i]->tenant, 1 << 10, 0);
		of[i]->grant[0].present = true;
		of[i]->grant[0].instance = of[i]->grant[0].entity = i;
		door.container[i] = of[i];
		cgpu_sched_set(&door.sched[0], i, &member, 1);
	}
	while (scanf("%15s", word) == 1) {
		if (!strcmp(word, "charge")) {
			charged(number());
			continue;
		}
		c = number();
		file = number();
		if (!strcmp(word, "note"))
			printf("%d\\n", clients_note(of[c], file, number()));
		else if (!strcmp(word, "forget"))
			forget(of[c], file);
		else if (!strcmp(word, "has"))
			printf("%d\\n", clients_has(of[c], file));
		else
			printf("%u\\n", clients_maker(of[c], file));
	}
	return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Does what it reads."""
    sources = [REPOSITORY / "pycgpu/agent/tenant/clients.c", *sorted(CORE.rglob("*.c"))]
    return build(PROGRAM, tmp_path_factory.mktemp("clients"), *sources)


def _told(program: Path, *lines: str) -> list[str]:
    run = subprocess.run(
        [program], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60
    )
    return run.stdout.splitlines()


def test_work_is_charged_by_the_process_that_allocated_its_client(program: Path) -> None:
    """Whoever used the client first; the process may have ended, and the file be a child's."""
    told = _told(program, "note 0 3 100", "charge 100", "charge 101")
    assert told == ["1", "100: 1 0", "101: 0 0"]


def test_a_number_that_two_containers_may_have_is_charged_to_both(program: Path) -> None:
    assert _told(program, "note 0 3 100", "note 1 4 100", "charge 100")[2:] == ["100: 1 1"]


def test_a_number_is_another_containers_once_no_file_of_the_first_can_have_it(
    program: Path,
) -> None:
    notes = ["note 0 3 100", "note 0 5 100", "note 1 4 100", "forget 0 3"]
    assert _told(program, *notes, "charge 100")[3:] == ["100: 1 1"]
    assert _told(program, *notes, "forget 0 5", "charge 100")[3:] == ["100: 0 1"]


def test_what_nobody_has_is_charged_to_who_once_had_it(program: Path) -> None:
    """The driver may have made the client in another file than was looked at."""
    told = _told(program, "note 0 3 100", "forget 0 3", "charge 100", "charge 100")
    assert told[1:] == ["100: 1 0", "100: 1 0"]


def test_notes_are_bounded_and_make_room_as_files_are_closed(program: Path) -> None:
    notes = [f"note 0 {pid % 2} {pid}" for pid in range(1, 4098)]
    then = ["note 0 1 1", "forget 0 1", "has 0 1", "has 0 2", "note 0 1 5000"]
    told = _told(program, *notes, *then, f"note 1 1 {1 << 22}")
    assert told[:4097] == ["1"] * 4096 + ["0"]
    assert told[4097:] == ["1", "0", "1", "1", "0"]


@pytest.mark.parametrize(("pids", "maker"), [((7,), 7), ((7, 7), 7), ((7, 8), 0), ((), 0)])
def test_a_client_is_its_files_only_makers(
    program: Path, pids: tuple[int, ...], maker: int
) -> None:
    told = _told(program, *(f"note 0 3 {pid}" for pid in pids), "note 0 4 9", "maker 0 3")
    assert told[-1] == str(maker)
