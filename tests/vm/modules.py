# SPDX-License-Identifier: MIT
"""
Builds what is loaded in the guest: kernel modules for one kernel, and programs for its tests.

Sources are copied into the cache and built there, keyed by a hash of their content, so the
tree stays clean and nothing is built twice.

``python3 -m tests.vm.modules --kernel 6.1 km sim`` builds and prints the paths.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.vm import kernels, packages
from tests.vm.kernels import Kernel

REPOSITORY = Path(__file__).resolve().parents[2]
KMOD = REPOSITORY / "kmod"
FAKEPCI = Path(__file__).resolve().with_name("fakepci")
HOLD = Path(__file__).resolve().with_name("hold")
PROGRAMS = Path(__file__).resolve().with_name("programs")

# Older builds of the same thing that are kept, for going back and forth between branches.
KEPT_BUILDS = 12

# What is under test tells where it has been, on a kernel with KCOV; others ignore it.
OBSERVED = ("KCOV_INSTRUMENT=y",)

# What a later release could have, by the name that a build has after a `+`: text of a file, and
# what stands before it then.
LATER = {
    "file": {
        "core/tree/nodes.h": ("\tCGPU_NODE_COUNT\n", "\tCGPU_NODE_LATER,\n"),
        "core/tree/nodes.c": (
            "};\n\nstatic const char *const features",
            '\tENTRY(LATER, "later", ROOT, 0444),\n',
        ),
    }
}

_PRODUCTS = shutil.ignore_patterns(
    *("*.o", "*.ko", "*.mod", "*.mod.c", ".*.cmd", ".*.d", "*.symvers", "modules.order"),
    *("have.h", "*.have", "*.have.log"),
    *("__pycache__", ".tmp_versions", "*.a", "*.so"),
)


class BuildError(Exception):
    """A build failed; the message is the end of its output."""


class Sources:
    """
    Files of the tree as they are at one moment: what is hashed is what is built.

    Args:
        roots: directories to take.
        without: directories in them to leave out.
    """

    def __init__(self, roots: Sequence[Path], without: Sequence[Path] = ()) -> None:
        self._files: dict[Path, bytes] = {}
        for root in roots:
            for directory, names, files in os.walk(root):
                here = Path(directory)
                ignored = _PRODUCTS(directory, [*names, *files])
                names[:] = sorted(n for n in names if n not in ignored and here / n not in without)
                for name in sorted(set(files) - ignored):
                    self._files[here / name] = (here / name).read_bytes()

    def digest(self) -> bytes:
        """Return what a build's name depends on."""
        parts = (str(path.relative_to(REPOSITORY)).encode() for path in self._files)
        return kernels.digest(*parts, *self._files.values()).encode()

    def write(self, destination: Path) -> None:
        """Write the files below *destination*, at their places in the repository."""
        for path, content in self._files.items():
            copy = destination / path.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _drop_old(directory: Path, prefix: str, kept: int) -> None:
    builds = sorted(
        (path for path in directory.glob(f"{prefix}-*") if path.is_dir()),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    for path in builds[kept:]:
        shutil.rmtree(path, ignore_errors=True)


def _require(makefile: Path) -> None:
    if not makefile.exists():
        raise BuildError(f"{makefile} does not exist")


def make(directory: Path, *arguments: str) -> None:
    """Run make in *directory*, raise :class:`BuildError` with the end of its output."""
    # Behind the machines that run meanwhile, whose tests have deadlines.
    command = ["nice", "make", f"-j{os.cpu_count() or 1}", "-C", str(directory), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        end = (run.stdout + run.stderr)[-8000:]
        raise BuildError(f"{' '.join(command)}\n{end}")


class Build:
    """A directory of the cache that is complete or not there."""

    def __init__(self, name: str, kernel: str, content: bytes, kept: int = KEPT_BUILDS) -> None:
        prefix = f"{name}-{kernel}"
        self.root = packages.cache_dir() / "builds" / f"{prefix}-{kernels.digest(content)}"
        self.root.parent.mkdir(exist_ok=True)
        self._prefix = prefix
        self._kept = kept
        self._lock = packages.locked(f"build-{prefix}")

    def __enter__(self) -> Build:
        self._lock.__enter__()
        if not self.complete:
            shutil.rmtree(self.root, ignore_errors=True)
            self.root.mkdir()
        else:
            os.utime(self.root)
        return self

    @property
    def complete(self) -> bool:
        return (self.root / "complete").exists()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            (self.root / "complete").touch()
            _drop_old(self.root.parent, self._prefix, self._kept)
        self._lock.__exit__(kind, *rest)  # type: ignore[arg-type]


def toolchain(kernel: Kernel) -> tuple[str, ...]:
    """Return make's variables for any module: the compiler, and no type information (pahole)."""
    return f"CC={kernels.compiler(kernel)}", "CONFIG_DEBUG_INFO_BTF_MODULES="


def _kbuild(kernel: Kernel) -> tuple[str, ...]:
    return f"KDIR={kernel.headers}", *toolchain(kernel)


def _add_later(name: str, directory: Path) -> None:
    for path, (text, before) in LATER[name].items():
        source = (directory / path).read_text()
        if source.count(text) != 1:
            raise BuildError(f"{path}: {text!r} is not there once")
        (directory / path).write_text(source.replace(text, before + text))


def km(kernel: Kernel, version: str = "", flags: str = "") -> Path:
    """
    Build ``cgpu_km.ko`` and its core; return the build's directory, a copy of ``kmod``.

    Args:
        version: of the core, instead of the tree's own.
        flags: for the compiler, such as ``-DCGPU_STATE_VERSION=99``, or ``+`` and a name of
            :data:`LATER`.
    """
    _require(KMOD / "Makefile")
    sources = Sources([KMOD], without=(KMOD / "sim", KMOD / "bridge"))
    name = f"km-{version}" if version else "km"
    later = flags[1:] if flags.startswith("+") else ""
    content = f"{flags}{LATER[later]}" if later else flags
    with Build(name, kernel.tag, sources.digest() + content.encode()) as build:
        if not build.complete:
            sources.write(build.root)
            if later:
                _add_later(later, build.root / "kmod")
            if version:
                (build.root / "kmod" / "VERSION").write_text(f"{version}\n")
            options = [*OBSERVED, *([f"KCFLAGS={flags}"] if flags and not later else [])]
            make(build.root / "kmod", *_kbuild(kernel), *options)
        return build.root / "kmod"


def sim(kernel: Kernel) -> Path:
    """Build the simulated driver and its programs; return the directory, a copy of ``kmod/sim``."""
    _require(KMOD / "sim" / "Makefile")
    sources = Sources([KMOD / "sim", KMOD / "core", KMOD / "compat"])
    # Its 32-bit program is built where the compiler can.
    multilib = str(Path("/usr/lib32/libc.a").exists()).encode()
    with Build("sim", kernel.tag, sources.digest() + multilib) as build:
        directory = build.root / "kmod" / "sim"
        if not build.complete:
            sources.write(build.root)
            make(directory, "modules", *_kbuild(kernel))
            make(directory / "simcuda")
        return directory


def bridge(kernel: Kernel, driver: Path) -> Path:
    """
    Build ``cgpu_rm.ko`` against one driver, as hosts do; return the path of the module.

    Args:
        driver: the directory with the driver's modules, and their ``Module.symvers``.
    """
    _require(KMOD / "bridge" / "Makefile")
    ours = km(kernel) / "Module.symvers"
    sources = Sources([KMOD], without=(KMOD / "sim",))
    content = sources.digest() + ours.read_bytes() + (driver / "Module.symvers").read_bytes()
    with Build("bridge", kernel.tag, content) as build:
        directory = build.root / "kmod" / "bridge"
        if not build.complete:
            sources.write(build.root)
            symbols = f"KBUILD_EXTRA_SYMBOLS={ours}", f"NVIDIA={driver / 'nvidia.ko'}"
            make(directory, *_kbuild(kernel), *OBSERVED, *symbols)
        return directory / "cgpu_rm.ko"


def programs(kernel: Kernel) -> Path:
    """Build the tenants' own programs of ``tests/vm/programs``; return their directory."""
    sources = Sources([PROGRAMS, KMOD / "sim" / "simcuda"])
    with Build("programs", kernel.tag, sources.digest()) as build:
        directory = build.root / PROGRAMS.relative_to(REPOSITORY)
        if not build.complete:
            sources.write(build.root)
            make(directory)
        return directory


def fakepci(kernel: Kernel) -> Path:
    """Build the software PCI function for NVIDIA's real driver; return the module's path."""
    return _of_tests(kernel, FAKEPCI)


def hold(kernel: Kernel) -> Path:
    """Build the module that holds a call of a function; return its path."""
    return _of_tests(kernel, HOLD)


def _of_tests(kernel: Kernel, source: Path) -> Path:
    """Build a module of the tests' own, which has its directory's name; return its path."""
    sources = Sources([source])
    with Build(source.name, kernel.tag, sources.digest()) as build:
        directory = build.root / source.relative_to(REPOSITORY)
        if not build.complete:
            sources.write(build.root)
            make(directory, *_kbuild(kernel))
        return directory / f"{source.name}.ko"


def prepare(kernel: Kernel, wanted: Sequence[str]) -> dict[str, str]:
    """
    Build what a group of tests names and return where it is.

    Args:
        wanted: of ``km`` (``km:<version>`` and ``km:<version>:<flags>``: other builds of it),
            ``release:<version>``, ``deb:<version>`` and ``deb:published``
            (:mod:`tests.vm.release`), ``headers`` (the kernel's), ``sim``, ``programs`` (tenants'
            own), ``bridge`` (for the simulated driver), ``fakepci``, ``hold``, ``rootfs``,
            ``engines`` (Docker and containerd), ``udev`` (and nvidia-modprobe), ``slurm``,
            ``ray``, ``spark``, ``smi`` (NVIDIA's own tools), and ``driver:<branch>`` for NVIDIA's
            real driver; with ``km`` also the bridge for it, as ``bridge:<branch>``.

    Returns:
        Name to path: a directory, or for ``bridge``, ``fakepci`` and ``hold`` the module.
    """
    from tests.vm import device_tools, driver, engines, pypi, release, rootfs, slurm

    made: dict[str, str] = {}
    for name in dict.fromkeys(wanted):
        kind, _, branch = name.partition(":")
        if kind == "km":
            version, _, flags = branch.partition(":")
            path = km(kernel, version, flags)
        elif kind == "sim":
            path = sim(kernel)
        elif kind == "programs":
            path = programs(kernel)
        elif kind == "bridge":
            path = bridge(kernel, sim(kernel))
        elif kind == "release":
            path = release.build(branch)
        elif kind == "deb":
            path = release.published() if branch == "published" else release.package(branch)
        elif kind == "headers":
            path = kernel.headers
        elif kind == "fakepci":
            path = fakepci(kernel)
        elif kind == "hold":
            path = hold(kernel)
        elif kind == "udev":
            path = device_tools.build()
        elif kind == "engines":
            path = engines.build()
        elif kind in pypi.REQUIREMENTS:
            path = pypi.build(kind)
        elif kind == "slurm":
            path = slurm.build()
        elif kind == "rootfs":
            path = rootfs.build()
        elif kind == "smi":
            path = driver.tools()
        elif kind == "driver":
            built = driver.build(kernel, branch)
            path = built
            if "km" in wanted and (KMOD / "bridge" / "Makefile").exists():
                made[f"bridge:{branch}"] = str(bridge(kernel, built))
        else:
            raise BuildError(f"nothing is known by the name {name!r}")
        made[name] = str(path)
    return made


def main() -> int:
    """Build what the command line names for one kernel and print the paths."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.vm.modules", description=__doc__)
    parser.add_argument("--kernel", default="6.1")
    parser.add_argument("wanted", nargs="+", help="km, sim, bridge, fakepci, rootfs, driver:535 …")
    options = parser.parse_args()
    try:
        made = prepare(kernels.fetch(options.kernel), options.wanted)
    except (BuildError, packages.PackageNotFound, packages.FetchError) as error:
        print(f"modules: {error}", file=sys.stderr)
        return 1
    for name, path in made.items():
        print(f"{name}\t{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
