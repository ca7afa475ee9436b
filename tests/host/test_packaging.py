# SPDX-License-Identifier: MIT
"""The wheel and the source distribution build, and what they install works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]

# The core has no floating point and no strings of its own: one call of it, through an archive
# that was installed, shows that its sources, headers and definitions travelled together.
PROBE = """
import pathlib, pycgpu, pycgpu.cli, pycgpu._core as core
where = pathlib.Path(pycgpu.__file__).parent
assert core.lib.NV_ESC_RM_ALLOC == 43
table = core.ffi.new("struct cgpu_table *")
core.lib.cgpu_table_init(table, 8)
assert table.entry_bytes == 8
assert (where / "kmod" / "Kbuild").exists()
assert (where / "web" / "index.html").exists() and (where / "web" / "uPlot.iife.min.js").exists()
assert (where / "kmod" / "core" / "memory" / "ledger.c").exists()
print(where)
"""


def _run(*command: object, cwd: Path) -> str:
    # Nothing of this repository or of the interpreter that tests must help the new environment.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built from the files that git knows."""
    source = tmp_path_factory.mktemp("tree")
    listed = _run(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=REPOSITORY
    )
    for name in filter(None, listed.split("\0")):
        origin = REPOSITORY / name
        if origin.is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(origin.read_bytes())
    out = tmp_path_factory.mktemp("sdist")
    _run(
        *(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, source),
        cwd=source,
    )
    (archive,) = out.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution alone."""
    source = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        # Debian 12's Python, 3.11.2, has no filters yet.
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(source, **safely)
    (top,) = source.iterdir()
    out = tmp_path_factory.mktemp("wheel")
    _run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, top),
        cwd=top,
    )
    (archive_path,) = out.glob("*.whl")
    return archive_path


def test_an_installed_wheel_has_the_core_the_commands_and_the_modules_sources(
    wheel: Path, tmp_path: Path
) -> None:
    """A fresh environment needs nothing but the wheel and its requirements."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    where = _run(python, "-c", PROBE, cwd=tmp_path)
    assert str(tmp_path) in where
    for command in ("cgpu", "cgpu-smi"):
        assert (tmp_path / "venv" / "bin" / command).exists()
        page = tmp_path / "venv" / "share" / "man" / "man1" / f"{command}.1"
        assert page.read_text().startswith('.\\" SPDX')


def test_the_wheel_has_no_build_products_and_no_simulated_driver(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    sources = _run("git", "ls-files", "kmod", cwd=REPOSITORY).split()
    needed = {f"pycgpu/{name}" for name in sources if not name.startswith("kmod/sim/")}
    assert needed <= set(names)
    assert not [name for name in names if name.endswith((".o", ".ko", ".mod.c", ".cmd"))]
    assert not [name for name in names if "/sim/" in name]
    assert [name for name in names if name.endswith("GPL-2.0-only.txt")]


def test_the_source_distribution_has_the_tests_and_every_source_of_the_core(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for path in (REPOSITORY / "kmod" / "core").rglob("*.[ch]"):
        assert str(path.relative_to(REPOSITORY)) in names
    assert {"tests/conftest.py", "scripts/test", "LICENSES/MIT.txt", "kmod/sim/Kbuild"} <= names


def test_one_wheel_serves_every_python_from_the_oldest_on(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    libraries = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert libraries and all(name.endswith(".abi3.so") for name in libraries)


def test_the_wheel_is_typed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"pycgpu/py.typed", "pycgpu/__init__.pyi", "pycgpu/_core.pyi"} <= set(names)


def test_the_description_on_an_index_is_the_readme_without_links_into_the_tree(
    wheel: Path,
) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    text = archive.read(name).decode()
    assert "# cgpu\n" in text and "scripts/install" in text
    assert not [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert "\nA server and a trainer on one H200" in text


def test_measurements_of_cards_are_not_in_the_source_distribution(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert not [name for name in names if "/tests/gpu/results/" in name]


def test_every_source_file_begins_with_its_licence() -> None:
    """The second line is for scripts, whose first names their interpreter."""
    listed = _run("git", "ls-files", cwd=REPOSITORY).split()
    suffixes = (".c", ".h", ".py", ".sh", ".toml", "Kbuild", "Makefile", ".cu")
    sources = [name for name in listed if name.endswith(suffixes) or name.startswith("scripts/")]
    assert sources
    wrong = []
    for name in sources:
        path = REPOSITORY / name
        if not path.is_file():
            continue
        head = path.read_text(errors="replace").splitlines()[:2]
        if not any("SPDX-License-Identifier:" in line for line in head):
            wrong.append(name)
    assert not wrong


def test_what_a_release_carries_is_what_the_package_asks_for() -> None:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    asked = map(Requirement, project["dependencies"] + extras["agent"] + extras["exporter"])
    lines = (REPOSITORY / "scripts/run-requirements.txt").read_text().splitlines()
    carried = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in carried.items()}
    for requirement in asked:
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])
