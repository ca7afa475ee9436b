# SPDX-License-Identifier: MIT
"""
The first minutes with a host: the Debian package, and the first container with a part of a card.

The package is the tree's, or the published one of the directory CGPU_RELEASE, as in
``scripts/test-fresh``. DKMS compiles the module in the emulated machine, which takes most of the
time.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.vm import engines, installed, test_packages
from tests.vm.container import with_libraries
from tests.vm.loaded import loaded_modules as names_of_modules
from tests.vm.test_operate import everything

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("deb:published", "headers", "engines", "rootfs"),
    pytest.mark.vm(memory="4G", smp=2, timeout_s=5400, append="apparmor=0"),
    pytest.mark.long,
]

GIB = 1 << 30


@contextmanager
def headers_of_the_kernel(headers: Path, directory: Path, driver: Path) -> Iterator[None]:
    """What linux-headers installs, as DKMS finds it; and no other modules than the driver's."""
    with installed.few_modules(directory):
        (directory / "build").symlink_to(headers)
        (directory / "nvidia.ko").symlink_to(driver / "nvidia.ko")
        for name in ("modules.builtin", "modules.order"):
            (directory / name).touch()
        subprocess.run(["depmod", "-a"], check=True)
        yield


def put_in_path(root: Path) -> None:
    """Have the engines where a distribution's package has them."""
    for name in engines.PROGRAMS:
        path = Path("/usr/bin", name)
        if not path.exists():
            path.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={root}/lib exec {root}/bin/{name} "$@"\n')
            path.chmod(0o755)


def import_image(docker: list[str], rootfs: Path, simcuda: Path, folder: Path) -> None:
    """An image as any is: of cgpu it knows nothing."""
    tree = folder / "image"
    subprocess.run(["cp", "-a", rootfs, tree], check=True)
    for at, path in with_libraries("/bin/simcuda", simcuda).items():
        (tree / at[1:]).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", path, tree / at[1:]], check=True)
    archive = folder / "image.tar"
    subprocess.run(["tar", "-C", tree, "-cf", archive, "."], check=True)
    subprocess.run([*docker, "import", archive, "image"], check=True, capture_output=True)


def test_from_a_package_to_a_container_with_a_part_of_a_card_and_back(
    sim: Any,
    made: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver = sim(model="t4")
    put_in_path(made("engines"))
    Path("/etc/docker").mkdir(exist_ok=True)
    with headers_of_the_kernel(made("headers"), tmp_path / "modules", driver.directory):
        with engines.docker(made("engines"), tmp_path) as docker:
            # It has files of its own, from its first start on.
            import_image(docker, made("rootfs"), driver.programs / "simcuda", tmp_path)
        before, modules = everything(), names_of_modules()
        began = time.monotonic()
        command = ("apt-get", "install", "-y", "--no-install-recommends")
        said = test_packages.run(*command, made("deb:published"))
        installed_s = time.monotonic() - began
        assert "installed; `cgpu doctor`" in said
        assert "cgpu_km" in names_of_modules()
        assert os.uname().release in test_packages.run("dkms", "status", "cgpu")
        assert test_packages.run("dpkg", "-V", "cgpu").strip() == ""

        with engines.docker(made("engines"), tmp_path) as docker:
            began = time.monotonic()
            run = [*docker, "run", "--rm", "--runtime=cgpu", "-e", "CGPU_MEM=6GiB"]
            run += ["-e", "CGPU_QUOTA=30", "image", "simcuda"]
            told = subprocess.run([*run, "--json", "info"], capture_output=True, text=True)
            assert told.returncode == 0, told.stdout + told.stderr
            container_s = time.monotonic() - began
            assert int(json.loads(told.stdout.splitlines()[-1])["board"]) == 6 * GIB
            past = subprocess.run([*run, "alloc", "7G"], capture_output=True, text=True)
            assert past.returncode == 2, past.stdout + past.stderr

        gone = test_packages.run("apt-get", "purge", "-y", "cgpu")
        assert names_of_modules() == modules
        after = everything()
        assert {path for path in before | after if before.get(path) != after.get(path)} == set()
    with capsys.disabled():
        print(f"\n{said}\n{' '.join(run[-9:])}\n{told.stdout}\n{gone}")
        print(f"{installed_s:.0f} s until apt was ready, most of them DKMS' on an emulated")
        print(f"processor; {container_s:.0f} s until the first container had told its card")
