# SPDX-License-Identifier: MIT
"""
A release as its ``.run`` file unpacks it: sources and wheels in one directory, under any version.

``scripts/make-installer`` makes it of a commit; here it is made of the tree as it is, so that a
test has two versions of the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pycgpu import __version__
from tests.vm.modules import Build, BuildError, Sources
from tests.vm.packages import cache_dir, locked

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENTS = REPOSITORY / "scripts/run-requirements.txt"
PARTS = ("pycgpu", "cli", "kmod", "scripts", "LICENSES", "docs/man")
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md")


def wheels() -> Path:
    """Return the directory of the pinned wheels of everything that the package needs."""
    directory = cache_dir() / "wheels" / f"{sys.version_info.major}.{sys.version_info.minor}"
    listed = REQUIREMENTS.read_text()
    with locked("wheels"):
        told = directory / "requirements"
        if not told.exists() or told.read_text() != listed:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            pip("download", "--no-deps", "--only-binary=:all:", "-d", directory, "-r", REQUIREMENTS)
            told.write_text(listed)
    return directory


def pip(*words: object) -> None:
    """Run pip; BuildError with what it said."""
    command = [sys.executable, "-m", "pip", "-q", *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise BuildError(f"pip: {run.stderr[-2000:]}")


def set_version(root: Path, version: str) -> None:
    """Make the sources below *root* those of *version*, in the three places that tell it."""
    for path, pattern, line in (
        ("pycgpu/__init__.py", r"^__version__ = .*$", f'__version__ = "{version}"'),
        ("kmod/dkms.conf", r"^PACKAGE_VERSION=.*$", f'PACKAGE_VERSION="{version}"'),
        ("kmod/VERSION", r"^.*$", version),
    ):
        file = root / path
        text, count = re.subn(pattern, line, file.read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, path
        file.write_text(text)


def build(version: str) -> Path:
    """Make a release of the tree as it is, as *version*; return its directory."""
    sources = Sources([REPOSITORY / name for name in PARTS], without=(REPOSITORY / "kmod/sim",))
    content = sources.digest() + REQUIREMENTS.read_bytes()
    content += b"".join((REPOSITORY / name).read_bytes() for name in FILES)
    with Build("release", version, content) as made:
        root = made.root / "release"
        if not made.complete:
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            sources.write(root)
            for name in FILES:
                shutil.copy(REPOSITORY / name, root)
            set_version(root, version)
            own = root / "wheels"
            pip("wheel", "--no-deps", "--no-build-isolation", "-w", own, root)
            for wheel in wheels().glob("*.whl"):
                shutil.copy(wheel, own)
            shutil.rmtree(root / "build", ignore_errors=True)
            for script in (root / "scripts").iterdir():
                script.chmod(0o755)
        return root


def package(version: str) -> Path:
    """Make the Debian package of :func:`build`'s release; return its path."""
    root = build(version)
    with Build("deb", version, str(root).encode()) as made:
        if not made.complete:
            made_by = str(root / "scripts/make-packages")
            command = [made_by, "-s", str(root), "-o", str(made.root), "deb"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                raise BuildError(f"make-packages: {run.stderr[-2000:]}")
    return made.root / f"cgpu_{version}_amd64.deb"


def published() -> Path:
    """
    Return the Debian package of the release in the directory CGPU_RELEASE; without it the tree's.

    Raises:
        BuildError: there is no package in the directory.
    """
    directory = os.environ.get("CGPU_RELEASE")
    if directory is None:
        return package(__version__)
    for path in Path(directory).glob("cgpu_*_amd64.deb"):
        return path
    raise BuildError(f"CGPU_RELEASE: {directory} has no cgpu_*_amd64.deb")
