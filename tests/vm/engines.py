# SPDX-License-Identifier: MIT
"""
Docker and containerd as this machine's release has them, unpacked: installed they would be services
that change the firewall of whoever runs the tests.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.vm import packages
from tests.vm.loaded import until
from tests.vm.modules import Build

# Debian up to 12 has the client in docker.io.
PACKAGES = ("docker.io", "docker-cli", "containerd")
# They are large programs to an emulated processor, of which a busy machine leaves little.
START_S = 300
WITHOUT_CRI = 'disabled_plugins = ["io.containerd.grpc.v1.cri"]'
PROGRAMS = ("dockerd", "docker", "docker-proxy", "containerd", "containerd-shim-runc-v2", "ctr")


def _libraries(package: str, version: str) -> list[str]:
    """Return the libraries that a package names and this machine lacks."""
    named = packages.dependencies(package, version)
    return [name for name in named if name.startswith("lib") and not packages.installed(name)]


def build() -> Path:
    """Return a directory with ``bin`` and ``lib``; PackageNotFound if the release has none."""
    wanted: dict[str, str] = {}
    for name in PACKAGES:
        try:
            wanted[name] = packages.own_version(name)
        except packages.PackageNotFound:
            if name != "docker-cli":
                raise
            continue
        for library in _libraries(name, wanted[name]):
            wanted[library] = packages.own_version(library)
    archives = [packages.download(name, version) for name, version in wanted.items()]
    content = "\n".join((*PROGRAMS, *(path.name for path in archives))).encode()
    with Build("engines", packages.os_release().get("VERSION_CODENAME", ""), content) as made:
        if not made.complete:
            _gather([packages.unpacked(archive) for archive in archives], made.root)
        return made.root


def _gather(trees: list[Path], root: Path) -> None:
    for name in ("bin", "lib"):
        (root / name).mkdir()
    for tree in trees:
        for path in sorted(tree.rglob("*")):
            if path.parent.name in ("bin", "sbin") and path.name in PROGRAMS:
                shutil.copy(path, root / "bin")
            elif ".so." in path.name and not path.is_dir():
                shutil.copy(path, root / "lib", follow_symlinks=False)
    for name in PROGRAMS:
        shown = subprocess.run(
            ["ldd", str(root / "bin" / name)],
            env=environment(root),
            capture_output=True,
            text=True,
            check=False,
        )
        if lacking := re.findall(r"(\S+) => not found", shown.stdout):
            raise packages.FetchError(f"{name} lacks {' '.join(lacking)}")


def environment(root: Path) -> Mapping[str, str]:
    """Return this process's environment with the engines of *root* first."""
    return {
        **os.environ,
        "PATH": f"{root}/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{root}/lib",
    }


@contextlib.contextmanager
def in_path(root: Path) -> Iterator[None]:
    """Let who looks for engines, as an installation does, find those of *root*."""
    before = dict(os.environ)
    os.environ.update(environment(root))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def daemon(
    root: Path, name: str, words: Sequence[str], folder: Path, ready: Callable[[], bool]
) -> Iterator[None]:
    """
    Run a daemon of the engines in *root* until the block ends; its log is *folder*/<name>.log.

    Raises:
        AssertionError: it ended, or was not *ready* in time; with the end of its log, which is
            gone with the guest.
    """
    log = folder / f"{name}.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [str(root / "bin" / name), *words],
            stdout=stream,
            stderr=stream,
            env=environment(root),
        )
    try:
        try:
            until(lambda: process.poll() is not None or ready(), f"{name} is ready", START_S)
            assert process.poll() is None, f"{name} ended with {process.poll()}"
        except AssertionError as error:
            end = log.read_text(errors="replace")[-4000:]
            raise AssertionError(f"{error}; its log ends:\n{end}") from None
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextlib.contextmanager
def containerd(root: Path, folder: Path, config: Path) -> Iterator[Path]:
    """Run containerd as *config* says, its files in *folder*; yield its socket."""
    socket = folder / "containerd.sock"
    words = ["--config", str(config), "--address", str(socket)]
    words += ["--root", f"{folder}/containerd", "--state", f"{folder}/containerd-state"]
    with daemon(root, "containerd", words, folder, socket.exists):
        yield socket


@contextlib.contextmanager
def docker(root: Path, folder: Path) -> Iterator[list[str]]:
    """Run Docker's daemon, without networks; yield the command line that reaches it."""
    config = folder / "containerd.toml"
    config.write_text(f"version = 2\n{WITHOUT_CRI}\n")
    address = f"unix://{folder}/docker.sock"
    base = [str(root / "bin/docker"), "--host", address]

    def ready() -> bool:
        # The client is as heavy as the daemon: it is not asked again and again while that starts.
        if not (folder / "docker.sock").exists():
            return False
        return subprocess.run([*base, "version"], capture_output=True, check=False).returncode == 0

    # One that it starts itself gets 15 s, in which an emulated processor may not manage it.
    with containerd(root, folder, config) as socket:
        words = [
            *("--host", address, "--containerd", str(socket), "--data-root", f"{folder}/data"),
            *("--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"),
            *("--storage-driver", "vfs", "--iptables=false", "--ip6tables=false"),
            # The proxy is a program of its own, which no test here has a use for.
            *("--bridge=none", "--userland-proxy=false"),
        ]
        with daemon(root, "dockerd", words, folder, ready):
            yield base
