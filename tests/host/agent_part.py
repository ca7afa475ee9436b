# SPDX-License-Identifier: MIT
"""Programs that include a file of the agent, to call what it keeps to itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CORE = REPOSITORY / "kmod/core"
#: Linked with every part: nothing that it keeps is left to another agent.
STATE = [REPOSITORY / "tests/host/pretended/arena.c", REPOSITORY / "pycgpu/agent/state/journal.c"]

#: C: room for whatever a call adds, as the agent makes it
MAKE_ROOM = """
void make_room(struct container *c)
{
	uint32_t table, capacity;
	size_t bytes;

	for (table = 0; table < CGPU_TABLE_COUNT; table++)
		while ((bytes = cgpu_tenant_wants(&c->tenant, table, &capacity)))
			cgpu_tenant_grow(&c->tenant, table, calloc(1, bytes), capacity);
}
"""


def build(program: str, directory: Path, *sources: Path) -> Path:
    """Build a C program that includes one of ``pycgpu/agent``, with others; return where it is."""
    source, built = directory / "part.c", directory / "part"
    source.write_text(program)
    # of what the agent is made of this needs a little, and links no more
    flags = ["-O1", "-ffunction-sections", "-Wl,--gc-sections", "-D_GNU_SOURCE", "-pthread"]
    paths: list[str | Path] = [
        "-I",
        REPOSITORY,
        "-I",
        REPOSITORY / "pycgpu/agent",
        "-I",
        REPOSITORY / "pycgpu",
        "-iquote",
        REPOSITORY / "kmod",
    ]
    subprocess.run(
        ["cc", *flags, *paths, source, *sources, *STATE, "-o", built], check=True, timeout=120
    )
    return built


def run(program: str, directory: Path) -> list[str]:
    """Build a C program with the core, run it to its end and return the lines that it wrote."""
    built = build(program, directory, *sorted(CORE.rglob("*.c")))
    done = subprocess.run([built], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
