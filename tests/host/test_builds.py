# SPDX-License-Identifier: MIT
"""`git pull && upgrade.sh`: builds of one version are told apart by what is in their sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pycgpu import __version__

REPOSITORY = Path(__file__).resolve().parents[2]
#: An interpreter that makes environments with a `cgpu` which tells its version and its words.
PYTHON = f"""#!/bin/bash
case "$1 $2" in
    -c*) echo "$0" ;;
    "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pip") ;;
    "-B -S") ;; # whether the host has an installation, which this one has not
    *) exec {sys.executable} "$@" ;;
esac
if [[ $2 == pip ]]; then
    from=${{@: -1}}
    from=${{from%%[*}}
    version=$(sed -n 's/^__version__ = "\\(.*\\)"$/\\1/p' "$from/pycgpu/__init__.py")
    printf '#!/bin/sh\\necho "cgpu %s $*"\\n' "$version" >"${{0%/*}}/cgpu"
    chmod 755 "${{0%/*}}/cgpu"
fi
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what is installed from, with its scripts."""
    copy = tmp_path / "sources"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.o", "*.ko", "sim")
    for name in ("kmod", "pycgpu", "cli", "scripts", "docs/man", "LICENSES"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md"):
        shutil.copy(REPOSITORY / name, copy / name)
    return copy


@pytest.fixture
def python(tmp_path: Path) -> Path:
    program = tmp_path / "python"
    program.write_text(PYTHON)
    program.chmod(0o755)
    return program


def lib(sources: Path, command: str) -> str:
    words = ["bash", "-euc", f"source {sources}/scripts/lib/build; {command}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def upgrade(sources: Path, home: Path, python: Path) -> str:
    environment = {**os.environ, "CGPU_HOME": str(home), "PYTHON": str(python)}
    words = [str(sources / "scripts/upgrade.sh"), "--dry-run"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def installed(home: Path, sources: Path, version: str, build: str | None) -> Path:
    """What scripts/install leaves of the tools: a link, and a program that says its version."""
    tools = home.with_name(f"{home.name}-{version}")
    (tools / "bin").mkdir(parents=True)
    (tools / "bin/cgpu").write_text(f'#!/bin/sh\necho "installed {version} $*"\n')
    (tools / "bin/cgpu").chmod(0o755)
    if build is not None:
        (tools / "build").write_text(f"{build}\n")
    home.symlink_to(tools)
    return tools


def test_what_a_build_leaves_behind_is_no_other_build(sources: Path) -> None:
    before = lib(sources, f"build_of {sources}")
    assert re.fullmatch("[0-9a-f]{12}", before)
    for name in ("kmod/cgpu_km.ko", "kmod/core/bytes.o", "pycgpu/_core.abi3.so", "kmod/.x.cmd"):
        (sources / name).write_text("x")
    (sources / "pycgpu/__pycache__").mkdir()
    (sources / "pycgpu/__pycache__/x.cpython-311.pyc").write_text("x")
    assert lib(sources, f"build_of {sources}") == before


@pytest.mark.parametrize("name", ["kmod/core/bytes.c", "pycgpu/errors.py", "cli/ps.py", "setup.py"])
def test_each_change_of_what_is_installed_is_another_build(sources: Path, name: str) -> None:
    before = lib(sources, f"build_of {sources}")
    with (sources / name).open("a") as file:
        file.write("\n")
    assert lib(sources, f"build_of {sources}") != before


def test_a_stamped_copy_calls_itself_so_everywhere(sources: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    lib(sources, f"stamped {sources} 0.1.0+abc {copy}")
    assert '__version__ = "0.1.0+abc"\n' in (copy / "pycgpu/__init__.py").read_text()
    assert (copy / "kmod/VERSION").read_text() == "0.1.0+abc\n"
    assert 'PACKAGE_VERSION="0.1.0+abc"\n' in (copy / "kmod/dkms.conf").read_text()


def test_the_build_that_is_installed_is_not_upgraded_to(
    sources: Path, tmp_path: Path, python: Path
) -> None:
    home = tmp_path / "opt/cgpu"
    build = lib(sources, f"build_of {sources}")
    for version in (__version__, f"{__version__}+{build}"):
        installed(home, sources, version, build)
        said = upgrade(sources, home, python)
        assert said == f"installed {version} upgrade --dry-run"
        home.unlink()


@pytest.mark.parametrize("known", ["0123456789ab", None])
def test_another_build_of_the_same_version_is_upgraded_to(
    sources: Path, tmp_path: Path, python: Path, known: str | None
) -> None:
    """It was `cgpu 0.1.0 is installed`, and the old code went on."""
    home = tmp_path / "opt/cgpu"
    installed(home, sources, __version__, known)
    build = lib(sources, f"build_of {sources}")
    assert upgrade(sources, home, python) == f"cgpu {__version__}+{build} upgrade --dry-run"


def test_a_build_is_left_for_the_next_one(sources: Path, tmp_path: Path, python: Path) -> None:
    home = tmp_path / "opt/cgpu"
    installed(home, sources, f"{__version__}+0123456789ab", "0123456789ab")
    build = lib(sources, f"build_of {sources}")
    assert upgrade(sources, home, python) == f"cgpu {__version__}+{build} upgrade --dry-run"
