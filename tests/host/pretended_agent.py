# SPDX-License-Identifier: MIT
"""
The agent beside a pretended driver: the programs themselves, on a host without a card, each time
in a mount namespace with a /run of its own. ``tests/host/pretended`` says what is pretended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from cffi import FFI

from pycgpu import _agent_build

REPOSITORY = Path(__file__).parents[2]
PARTS = REPOSITORY / "tests/host/pretended"
#: Of the agent's files, those that are another's here.
INSTEAD = ("rm.c", "device.c", "perform.c")
#: Whatever a program leaves behind ends with it.
NAMESPACE = ("unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc")
_DRIVER_BYTES = 2 << 20


def build(folder: Path) -> None:
    """Copy the package to *folder*, with an agent that has the pretended driver, and its tenant."""
    package, kmod = folder / "pycgpu", REPOSITORY / "kmod"
    agent = REPOSITORY / "pycgpu/agent"
    shutil.copytree(REPOSITORY / "pycgpu", package)
    shutil.copytree(REPOSITORY / "cli", package / "cli")
    shutil.copy(PARTS / "device_nodes.py", package / "tree")
    for old in package.glob("_agent*.so"):
        old.unlink()
    made = FFI()
    made.cdef(_agent_build.declarations())
    own = [path for path in sorted(agent.rglob("*.c")) if path.name not in INSTEAD]
    parts = [PARTS / name for name in INSTEAD]
    made.set_source(
        "pycgpu._agent",
        '#include "agent.h"',
        sources=[str(path) for path in [*own, *parts, *sorted((kmod / "core").rglob("*.c"))]],
        include_dirs=[str(agent), str(agent.parent)],
        define_macros=_agent_build.MACROS,
        extra_compile_args=["-std=gnu11", "-O1", "-pthread", "-iquote", str(kmod)],
        extra_link_args=["-pthread"],
    )
    made.compile(tmpdir=str(folder))
    command: list[str | Path] = ["cc", "-O1", "-D_GNU_SOURCE", "-iquote", kmod]
    subprocess.run([*command, PARTS / "tenant.c", "-o", folder / "tenant"], check=True, timeout=120)
    silent: list[str | Path] = [
        REPOSITORY / "tests/vm/programs/silent.c",
        "-pthread",
        '-DDRIVER="/dev/null"',
    ]
    subprocess.run([*command, *silent, "-o", folder / "silent"], check=True, timeout=120)


def run(folder: Path, program: str, *arguments: str) -> str:
    """Execute a Python program beside what was built there; return what it wrote."""
    with (folder / "driver").open("wb") as driver:
        driver.truncate(_DRIVER_BYTES)
    paths = [str(folder), str(PARTS.parent), sysconfig.get_path("purelib")]
    environment = dict(
        os.environ, PYTHONPATH=os.pathsep.join(paths), CGPU_PRETENDED=str(folder / "driver")
    )
    own = "mount -t tmpfs none /run && mount -t tmpfs none /dev/shm"
    inside = f'{own} && exec "$0" -c "$@"'
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", inside, sys.executable, program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def can_run() -> bool:
    """Root that may mount."""
    inside = [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/run"]
    return os.geteuid() == 0 and not subprocess.run(inside, check=False, timeout=60).returncode
