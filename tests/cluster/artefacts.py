# SPDX-License-Identifier: MIT
"""What a release publishes of the commit that is checked out: what a cluster installs from."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import REPOSITORY
from tests.vm import modules
from tests.vm.kernels import Kernel

BUILD_S = 1800
#: Images of so many commits are kept.
KEPT = 2


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, words)], capture_output=True, text=True, timeout=BUILD_S, check=False, **options
    )


def must(*words: object, **options: Any) -> str:
    """Return what a command says; AssertionError if it fails."""
    done = run(*words, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def script(name: str, *words: object) -> str:
    return must(REPOSITORY / "scripts" / name, *words, cwd=REPOSITORY)


def _commit() -> bytes:
    """What they are made of; whoever has changed more is told, as by the scripts."""
    return must("git", "rev-parse", "HEAD", cwd=REPOSITORY).encode()


def files() -> Path:
    """Return the directory with ``cgpu-X.run`` and the Debian package, which the image carries."""
    text = must("git", "show", "HEAD:pycgpu/__init__.py", cwd=REPOSITORY)
    (version,) = re.findall(r'__version__ = "(.*)"', text)
    with modules.Build("artefacts", "files", _commit(), KEPT) as made:
        if not made.complete:
            script("make-installer", "-v", version, "-o", made.root)
            (path,) = made.root.glob("cgpu-*.run")
            must("sh", path, "--unpack", made.root / "unpacked")
            (unpacked,) = (made.root / "unpacked").iterdir()
            made_s = must("git", "log", "-1", "--format=%ct", cwd=REPOSITORY).strip()
            command = (REPOSITORY / "scripts/make-packages", "-s", unpacked, "-o", made.root)
            must(*command, "deb", env={**os.environ, "SOURCE_DATE_EPOCH": made_s})
    return made.root


def image() -> Path:
    """Return the container image's file."""
    carried = files()
    with modules.Build("artefacts", "image", _commit(), KEPT) as made:
        if not made.complete:
            script("make-image", "-f", carried, "-o", made.root)
    (path,) = made.root.glob("cgpu-*.oci.tar")
    return path


def chart(directory: Path) -> Path:
    """Pack the chart; return its file."""
    script("make-chart", "-o", directory)
    (path,) = directory.glob("cgpu-*.tgz")
    return path


def prebuilt(kernel: Kernel) -> Path:
    """
    Build the modules whose sources ``cgpu-X.run`` carries; return a directory of the modules alone.

    They are for one kernel and the simulated driver, as a site builds them for nodes without a
    compiler.
    """
    (path,) = files().glob("cgpu-*.run")
    driver = modules.sim(kernel)
    content = _commit() + str(driver).encode()
    with modules.Build("artefacts-modules", kernel.tag, content, KEPT) as made:
        placed = made.root / "modules"
        if not made.complete:
            must("sh", path, "--unpack", made.root)
            (sources,) = made.root.glob("cgpu-*/kmod")
            words = (f"KDIR={kernel.headers}", *modules.toolchain(kernel))
            modules.make(sources, *words)
            symbols = " ".join(str(one / "Module.symvers") for one in (sources, driver))
            modules.make(sources / "bridge", *words, f"KBUILD_EXTRA_SYMBOLS={symbols}")
            placed.mkdir()
            for one in (*sources.glob("cgpu_*.ko"), sources / "bridge/cgpu_rm.ko"):
                os.link(one, placed / one.name)
    return placed
