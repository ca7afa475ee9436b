# SPDX-License-Identifier: MIT
"""
Kernels for the VM: a distribution's image and headers, unpacked under the cache.

``python3 -m tests.vm.kernels [series …]`` fetches them and prints where they are. ``6.1-debug``
and ``6.1-kcsan`` are built from the distribution's source, with the configuration in
``guest.config`` and ``debug.config`` or ``kcsan.config``.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from tests.vm import packages
from tests.vm.packages import PackageNotFound

DEBIAN_DEFAULT_SERIES = ("6.1", "6.12")

# The newest of whatever series the distribution has.
NEWEST = "newest"
# What every kernel has that is built here, from a package of this distribution.
GUEST_CONFIG = Path(__file__).resolve().with_name("guest.config")
# Of a function that the compiler specialises for its callers nothing is left to be probed: of the
# one that unmaps, by which private copies are sealed.
GUEST_MAKE = ("CFLAGS_mmap.o=-fno-ipa-cp -fno-ipa-sra",)
# checkpatch.pl reads the two lists beside it.
STYLE_SCRIPTS = ("checkpatch.pl", "kernel-doc", "spelling.txt", "const_structs.checkpatch")
BUILD_TOOLS = ("gcc", "make", "flex", "bison", "bc", "xz")

# What the initramfs needs before the host's root is reachable. Some are built in, depending on
# the kernel; modprobe says so.
EARLY_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay")


class KernelBuildError(packages.FetchError):
    """A kernel could not be built; the message is the end of what make said."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """
    An unpacked kernel.

    Attributes:
        series: what was asked for, such as ``6.1``, or a path.
        release: as ``uname -r`` prints it.
        image: uncompressed where it can be booted so (PVH), which saves seconds without KVM.
        modules: the directory to appear as ``/lib/modules/<release>``.
        headers: a value for ``KDIR``.
        slowness: how many times longer the tests' deadlines are than elsewhere.
        machine: QEMU's. How interrupts are routed is a program in the firmware of ``pc``, at
            which a kernel with KASAN is for minutes.
        append: further parameters of it.
    """

    series: str
    release: str
    image: Path
    modules: Path
    headers: Path
    slowness: int = 1
    machine: str = "pc"
    append: str = ""

    @property
    def tag(self) -> str:
        """What builds for it are called by: of one's own kernel also how it was configured."""
        own = Path(self.modules).is_relative_to(self.headers)
        return f"{self.release}-{digest(self.config.read_bytes())}" if own else self.release

    @property
    def config(self) -> Path:
        """The kernel's ``.config``."""
        return self.headers / ".config"


@dataclasses.dataclass(frozen=True)
class Looking:
    """
    A kind of kernel that looks for faults.

    Attributes:
        name: of the file with what is configured for it beside GUEST_CONFIG.
        make: further variables for make.
        append: further parameters of the kernel.
    """

    name: str
    make: tuple[str, ...] = ()
    append: str = ""

    @property
    def settings(self) -> list[str]:
        """What is configured: comments are none of it."""
        lines = []
        for path in (GUEST_CONFIG.with_name(self.name), GUEST_CONFIG):
            lines += path.read_text().splitlines()
        return sorted(line for line in lines if re.match(r"(# )?CONFIG_", line))


# By the end of the series' name. Of races each is told, and the guest goes on; instrumented for
# them are modules, which are built without this variable.
LOOKING = {
    "-debug": Looking("debug.config"),
    "-kcsan": Looking("kcsan.config", ("KCSAN_SANITIZE=n",), "panic_on_warn=0"),
}


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _newest_debian(series: str) -> str:
    """Return the newest release of a series whose headers' tools run on this Debian."""
    host = int(packages.os_release().get("VERSION_ID", "99") or 99)
    wanted = r"\d+\.\d+" if series == NEWEST else re.escape(series)
    pattern = re.compile(rf"{wanted}\.[\d.-]+(?:\+deb(\d+))?-amd64")
    found = []
    for name in packages.names("linux-headers-"):
        release = name.removeprefix("linux-headers-")
        match = pattern.fullmatch(release)
        # Headers built for a newer Debian carry tools that need its newer C library.
        if match and int(match.group(1) or 0) <= host:
            found.append(release)
    for release in sorted(found, key=_number, reverse=True):
        if packages.versions(f"linux-image-{release}"):
            return release
    raise PackageNotFound(f"apt has no Debian kernel {series} with headers for this release")


def _newest_ubuntu(series: str) -> str:
    wanted = r"\d+\.\d+" if series == NEWEST else re.escape(series)
    pattern = re.compile(rf"{wanted}\.0-\d+-generic")
    found = [
        name.removeprefix("linux-headers-")
        for name in packages.names("linux-headers-")
        if pattern.fullmatch(name.removeprefix("linux-headers-"))
    ]
    for release in sorted(found, key=_number, reverse=True):
        if packages.versions(f"linux-image-{release}"):
            return release
    raise PackageNotFound(f"apt has no Ubuntu kernel {series} with headers")


@functools.cache
def default_series() -> tuple[str, ...]:
    """Return the series to test on: Debian 6.1 and 6.12, or the two newest that Ubuntu has."""
    if packages.os_release().get("ID") != "ubuntu":
        return DEBIAN_DEFAULT_SERIES
    pattern = re.compile(r"linux-headers-(\d+\.\d+)\.0-\d+-generic")
    matches = (pattern.fullmatch(name) for name in packages.names("linux-headers-"))
    series = sorted({match.group(1) for match in matches if match}, key=_number)
    if not series:
        raise PackageNotFound("apt has no linux-headers-*-generic")
    return tuple(series[-2:])


def _uncompressed(image: Path) -> bytes | None:
    """
    Return the ELF image inside a bzImage, or None if it cannot be booted as such.

    Source: ``Documentation/arch/x86/boot.rst``, fields setup_sects, payload_offset,
    payload_length. All formats but gzip append the uncompressed size in four bytes.
    """
    data = image.read_bytes()
    start = (data[0x1F1] + 1) * 512 + int.from_bytes(data[0x248:0x24C], "little")
    payload = data[start : start + int.from_bytes(data[0x24C:0x250], "little")]
    if payload.startswith(b"\xfd7zXZ"):
        elf = lzma.LZMADecompressor().decompress(payload)
    elif payload.startswith(b"\x1f\x8b"):
        elf = zlib.decompressobj(31).decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        elf = subprocess.run(
            ["zstd", "-dcq"], input=payload[:-4], capture_output=True, check=True
        ).stdout
    elif payload.startswith(b"\x02\x21\x4c\x18"):
        elf = subprocess.run(
            ["lz4", "-dcq"], input=payload[:-4], capture_output=True, check=True
        ).stdout
    else:
        return None
    return elf if elf.startswith(b"\x7fELF") else None


def _relocate(headers: Path, root: Path) -> None:
    """Headers' makefiles name each other by absolute paths below /usr/src and /usr/lib."""
    for makefile in (headers / "Makefile", headers / ".kernelvariables"):
        if makefile.exists():
            text = makefile.read_text()
            makefile.unlink()
            makefile.write_text(re.sub(r"(=|include )(/usr/(?:src|lib)/)", rf"\1{root}\2", text))
    for link in (headers / "scripts", headers / "tools"):
        if link.is_symlink():
            target = link.readlink()
            if target.is_absolute():
                link.unlink()
                link.symlink_to(Path(f"{root}{target}"))


def _header_packages(release: str) -> list[str]:
    """Return the headers' package and those that it cannot be used without."""
    first = f"linux-headers-{release}"
    wanted, queue = [], [first]
    while queue:
        name = queue.pop()
        if name in wanted:
            continue
        wanted.append(name)
        for other in packages.dependencies(name, packages.find_version(name, "")):
            if re.match(r"linux-(headers|kbuild)-|linux-.*-headers-", other):
                queue.append(other)
    return wanted


def _fetch(series: str, release: str) -> Kernel:
    root = packages.cache_dir() / "kernels" / release
    image = root / "vmlinux"
    headers = root / "usr" / "src" / f"linux-headers-{release}"
    modules = root / "lib" / "modules" / release
    with packages.locked(f"kernel-{release}"):
        if not (root / "complete").exists():
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            wanted = [f"linux-image-{release}", *_header_packages(release)]
            # Ubuntu has modules apart, and Debian since 7.3 the image as well.
            parts = (f"linux-{part}-{release}" for part in ("modules", "binary", "base"))
            wanted += [name for name in parts if packages.versions(name)]
            print(f"fetching kernel {release} ({len(wanted)} packages)", file=sys.stderr)
            for name in wanted:
                packages.unpack(packages.download(name), root)
            # Debian from 13 on unpacks to usr/lib; depmod and modprobe want <root>/lib.
            if not (root / "lib").exists():
                (root / "lib").symlink_to("usr/lib")
            _relocate(headers, root)
            subprocess.run([_tool("depmod"), "-b", str(root), release], check=True)
            packed = root / "boot" / f"vmlinuz-{release}"
            if not packed.exists():
                packed = modules / "vmlinuz"
            elf = _uncompressed(packed) if _has(headers / ".config", "CONFIG_PVH=y") else None
            if elf is None:
                shutil.copy(packed, image)
            else:
                image.write_bytes(elf)
            (root / "complete").touch()
    return Kernel(series, release, image, modules, headers)


def _tool(name: str) -> str:
    """Return the path of a program of root's, which a user's PATH may lack."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or name


def _has(config: Path, line: str) -> bool:
    return line in config.read_text().splitlines()


def _slowness(tree: Path) -> int:
    # Deadlines are generous as they are.
    slow = any(_has(tree / ".config", f"CONFIG_{name}=y") for name in ("KASAN", "KCSAN"))
    return 10 if slow else 1


def _own_build(tree: Path) -> Kernel:
    """A kernel tree that the user has built, with everything it needs to boot built in."""
    release_file = tree / "include" / "config" / "kernel.release"
    if not (tree / "vmlinux").exists() or not release_file.exists():
        raise packages.FetchError(
            f"{tree}: no vmlinux or include/config/kernel.release; build it first"
        )
    release = release_file.read_text().strip()
    modules = tree / "lib" / "modules" / release
    packed = tree / "arch" / "x86" / "boot" / "bzImage"
    bootable = _has(tree / ".config", "CONFIG_PVH=y") or not packed.exists()
    image = tree / "vmlinux" if bootable else packed
    return Kernel(str(tree), release, image, modules, tree, _slowness(tree), machine="q35")


def run_make(arguments: Sequence[str], log: Path) -> None:
    """Run make behind everything else on this machine; raise with the end of what it said."""
    command = ["nice", "make", f"-j{os.cpu_count() or 1}", *arguments]
    with log.open("a") as stream:
        run = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, check=False)
    if run.returncode:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise KernelBuildError(f"{' '.join(command)}\n{end}\nwhole log: {log}")


def _source_archive(name: str, version: str, unpacked: Path) -> Path:
    """Return the archive of the kernel's source in the distribution's package *name*."""
    packages.unpack(packages.download(name, version), unpacked)
    (archive,) = (unpacked / "usr" / "src").glob(f"**/{name}.tar.*")
    return archive


def unpack_source(series: str, version: str, root: Path) -> Path:
    """Unpack the distribution's source of a series below *root*; return its top."""
    name = f"linux-source-{series}"
    unpacked = root / "package"
    archive = _source_archive(name, version, unpacked)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(root)], check=True)
    shutil.rmtree(unpacked)
    return root / name


def style_scripts(series: str) -> Path:
    """
    Return the directory with checkpatch.pl, kernel-doc and what they read.

    They come with the distribution's source alone, which is large: a copy of any version of the
    series is kept.
    """
    root = packages.cache_dir() / "kernels" / f"{series}-scripts"
    with packages.locked(f"scripts-{series}"):
        if not (root / "complete").exists():
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            name = f"linux-source-{series}"
            print(f"fetching {name} for its scripts", file=sys.stderr)
            archive = _source_archive(name, packages.find_version(name, ""), root / "package")
            wanted = [f"*/scripts/{script}" for script in STYLE_SCRIPTS]
            subprocess.run(
                ["tar", "-xf", str(archive), "-C", str(root), "--strip-components=2", "--wildcards",
                 *wanted],
                check=True,
            )  # fmt: skip
            shutil.rmtree(root / "package")
            (root / "complete").touch()
    return root


def _build_looking(base: str, suffix: str) -> Kernel:
    """
    Build a kernel of the series *base* that looks for faults, unless the cache has it.

    Source: Debian's package ``linux-source-<base>``.
    """
    looking, series = LOOKING[suffix], base + suffix
    missing = [tool for tool in BUILD_TOOLS if not shutil.which(tool)]
    if missing:
        raise KernelBuildError(
            f"{series} is built here, which takes {' '.join(missing)}: "
            "run scripts/setup-packages debug"
        )
    version = packages.find_version(f"linux-source-{base}", "")
    variables = [*GUEST_MAKE, *looking.make]
    key = digest(*map(str.encode, [version, *looking.settings, *variables]))
    root = packages.cache_dir() / "kernels" / f"{series}-{key}"
    tree = root / "build"
    with packages.locked(f"kernel-{series}"):
        if not (root / "complete").exists():
            shutil.rmtree(root, ignore_errors=True)
            tree.mkdir(parents=True)
            print(f"building kernel {series} {version}, about 20 minutes", file=sys.stderr)
            source = unpack_source(base, version, root)
            into = ["-C", str(source), f"O={tree}", *variables]
            log = root / "build.log"
            config = root / "config"
            config.write_text("".join(f"{line}\n" for line in looking.settings))
            run_make([*into, f"KCONFIG_ALLCONFIG={config}", "allnoconfig"], log)
            _check_config(looking, tree / ".config")
            run_make([*into, "bzImage", "modules"], log)
            run_make([*into, f"INSTALL_MOD_PATH={tree}", "modules_install"], log)
            (root / "complete").touch()
    return dataclasses.replace(_own_build(tree), series=series, append=looking.append)


def _check_config(looking: Looking, made: Path) -> None:
    """Complain about settings that Kconfig dropped for lack of others."""
    kept = set(made.read_text().splitlines())
    wanted = [line for line in looking.settings if line.startswith("CONFIG_")]
    if lost := [line for line in wanted if line not in kept]:
        raise KernelBuildError(f"{looking.name}: this kernel does not take {' '.join(lost)}")


@functools.cache
def fetch(series: str) -> Kernel:
    """
    Return a kernel, downloaded and unpacked if the cache lacks it.

    Args:
        series: ``6.1`` for its newest release, ``newest``, a full release such as
            ``6.1.0-56-amd64``, ``6.1-debug`` for one built with everything that finds faults,
            ``6.1-kcsan`` for one that finds data races, or the path of a kernel tree that has
            been built.

    Raises:
        PackageNotFound: the distribution does not have it.
        KernelBuildError: a kernel that looks for faults could not be built.
    """
    if "/" in series:
        return _own_build(Path(series).resolve())
    for suffix in LOOKING:
        if series.endswith(suffix):
            return _build_looking(series.removesuffix(suffix), suffix)
    if series == NEWEST or re.fullmatch(r"\d+\.\d+", series):
        ubuntu = packages.os_release().get("ID") == "ubuntu"
        release = _newest_ubuntu(series) if ubuntu else _newest_debian(series)
    else:
        release = series
        packages.find_version(f"linux-image-{release}", "")
    return _fetch(series, release)


def compiler(kernel: Kernel) -> str:
    """Return the compiler for modules: the major version that built the kernel, if installed."""
    match = re.search(r"^CONFIG_GCC_VERSION=(\d+)", kernel.config.read_text(), re.MULTILINE)
    exact = f"gcc-{int(match.group(1)) // 10000}" if match else "gcc"
    return exact if shutil.which(exact) else "gcc"


def early_modules(kernel: Kernel) -> list[tuple[str, bytes]]:
    """Return name and content of the modules for the initramfs, in the order of loading."""
    if not kernel.modules.exists():
        return []
    root = kernel.modules.parent.parent.parent
    paths: dict[str, None] = {}
    for name in EARLY_MODULES:
        command = [_tool("modprobe"), "-d", str(root), "-S", kernel.release]
        shown = subprocess.run(
            [*command, "--show-depends", name], capture_output=True, text=True, check=False
        )
        if shown.returncode:
            # An initramfs without it would be cached, and boot to nowhere.
            raise packages.FetchError(f"{' '.join(command)}: {shown.stderr.strip()}")
        for line in shown.stdout.splitlines():
            if line.startswith("insmod "):
                paths[line.split()[1]] = None
    return [_module(Path(path)) for path in paths]


def _module(path: Path) -> tuple[str, bytes]:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return path.stem, lzma.decompress(data)
    if path.suffix == ".zst":
        run = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True)
        return path.stem, run.stdout
    return path.name, data


def digest(*parts: bytes) -> str:
    """Return a short hash for naming things in the cache."""
    joined = hashlib.sha256()
    for part in parts:
        joined.update(hashlib.sha256(part).digest())
    return joined.hexdigest()[:16]


def main() -> int:
    """Fetch the kernels named on the command line, or the default pair."""
    for series in sys.argv[1:] or default_series():
        try:
            kernel = fetch(series)
        except (PackageNotFound, packages.FetchError) as error:
            print(f"kernels: {error}", file=sys.stderr)
            return 1
        print(f"{series}\t{kernel.release}\timage {kernel.image}\theaders {kernel.headers}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
