# SPDX-License-Identifier: MIT
"""
Distribution packages, downloaded and unpacked without installing them.

A private apt configuration under the cache copies the mirror that this machine is configured
for and adds what is missing there (the components of NVIDIA's driver, the next release).
Nothing under ``/etc`` or ``/var`` changes and root is not needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

INDEX_LIFETIME_S = 24 * 3600

# The releases whose kernels and drivers are wanted beside the host's own; Debian 11's kernel is
# the oldest that the module is for. The newest kernel is chosen by number, so a release that a
# mirror does not carry costs nothing.
DEBIAN_RELEASES = ("bullseye", "bookworm", "trixie")
DEBIAN_SUITES = ("{}", "{}-updates", "{}-security", "{}-backports")
#: Kept apart: its kernels take a compiler of its own. Programs of it are run where they can be.
UNSTABLE = "sid"
UBUNTU_SUITES = ("{}", "{}-updates", "{}-security")


class PackageNotFound(Exception):
    """apt knows no such package; the message says which and what was asked."""


class FetchError(Exception):
    """apt could not reach its archive: nothing is known about what it has."""


def cache_dir() -> Path:
    """Return the directory for everything downloaded or built: ``$CGPU_CACHE``."""
    default = Path.home() / ".cache" / "cgpu"
    path = Path(os.environ.get("CGPU_CACHE") or default).expanduser().resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold an exclusive lock of the cache, so that two runs do not build the same thing."""
    locks = cache_dir() / "locks"
    locks.mkdir(exist_ok=True)
    with open(locks / re.sub(r"[^\w.+-]", "_", name), "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def os_release() -> dict[str, str]:
    """Return ``/etc/os-release`` as a dictionary."""
    pairs = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        key, separator, value = line.partition("=")
        if separator:
            pairs[key] = value.strip("\"'")
    return pairs


def _configured_mirrors() -> dict[str, str]:
    """Return suite → URI as this machine's own apt is configured."""
    if not shutil.which("apt-get"):
        raise FetchError("no apt-get: kernels and drivers for the VM come from Debian or Ubuntu")
    listing = subprocess.run(
        ["apt-get", "update", "--print-uris"], capture_output=True, text=True, check=False
    ).stdout
    found = re.findall(r"^'(\S+)/dists/(\S+)/InRelease'", listing, re.MULTILINE)
    return {suite: uri for uri, suite in found}


def _source_lines(only: str = "") -> list[str]:
    release = os_release()
    distribution = release.get("ID", "")
    codename = release.get("VERSION_CODENAME", "")
    mirrors = _configured_mirrors()
    if codename not in mirrors:
        # Not that the archive lacks a package, for which a test may be skipped.
        raise FetchError(
            f"apt is not configured for {distribution} {codename or '(no codename)'}: "
            "kernels and drivers for the VM cannot be downloaded"
        )
    main = mirrors[codename]
    if distribution == "ubuntu":
        components = "main restricted universe multiverse"
        suites: tuple[str, ...] = UBUNTU_SUITES
        releases: tuple[str, ...] = (codename,)
        security = mirrors.get(f"{codename}-security", main)
    else:
        components, suites = "main contrib non-free non-free-firmware", DEBIAN_SUITES
        releases = tuple(dict.fromkeys((codename, *DEBIAN_RELEASES)))
        security = mirrors.get(f"{codename}-security", f"{main}-security")
    if only and distribution == "ubuntu":
        raise PackageNotFound(f"{only} is Debian's, and this is {distribution}")
    if only:
        suites, releases = ("{}",), (only,)
    keyring = Path(f"/usr/share/keyrings/{distribution}-archive-keyring.gpg")
    option = f"[signed-by={keyring}] " if keyring.exists() else ""
    lines = []
    for name in releases:
        for pattern in suites:
            suite = pattern.format(name)
            uri = security if suite.endswith("-security") else main
            lines.append(f"deb {option}{mirrors.get(suite, uri)} {suite} {components}")
    return lines


@functools.cache
def _environment(only: str = "") -> dict[str, str]:
    """
    Write the private configuration, refresh its index and return the environment for apt.

    Args:
        only: a release of Debian in the place of all the others.
    """
    root = cache_dir() / (f"apt-{only}" if only else "apt")
    for name in ("lists/partial", "archives/partial", "parts"):
        (root / name).mkdir(parents=True, exist_ok=True)
    # Written once: a newer one would have apt read the whole index anew.
    if not (root / "status").exists():
        (root / "status").touch()
    config = root / "apt.conf"
    config.write_text(
        f'Dir::Etc::sourcelist "{root}/sources.list";\n'
        f'Dir::Etc::sourceparts "{root}/parts";\n'
        f'Dir::State "{root}";\n'
        f'Dir::State::lists "{root}/lists";\n'
        f'Dir::State::status "{root}/status";\n'
        f'Dir::Cache "{root}";\n'
        f'Dir::Cache::archives "{root}/archives";\n'
        f'Debug::NoLocking "true";\n'
        # As root apt would drop to a user who may not be able to write to the cache.
        'APT::Sandbox::User "root";\n'
        'Acquire::Languages "none";\n'
        'Acquire::Retries "2";\n'
        # That of a release that never ends is soon too old for a clock that is not right.
        f'Acquire::Check-Valid-Until "{"false" if only else "true"}";\n'
    )
    environment = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C.UTF-8"}
    with locked(root.name):
        sources = "\n".join(_source_lines(only)) + "\n"
        listed = root / "sources.list"
        stamp = root / "updated"
        stale = not stamp.exists() or time.time() - stamp.stat().st_mtime > INDEX_LIFETIME_S
        if stale or not listed.exists() or listed.read_text() != sources:
            # An update that is cut short leaves an index that nobody may take for whole.
            stamp.unlink(missing_ok=True)
            listed.write_text(sources)
            # A suite that the mirror lacks is an error to apt but not to us: what is missing
            # shows when a package is asked for.
            update = subprocess.run(
                ["apt-get", "-q", "update"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            failed = [line for line in update.stderr.splitlines() if "Failed to fetch" in line]
            lacking = all("404" in line for line in failed)
            if not lacking or not any((root / "lists").glob("*_Packages*")):
                raise FetchError(f"apt-get update:\n{update.stderr.strip()}")
            stamp.touch()
    return environment


def _apt_cache(*arguments: str, only: str = "") -> str:
    # Images for containers turn apt's own cache off, and each question then takes seconds.
    kept = ("-oDir::Cache::pkgcache=pkgcache.bin", "-oDir::Cache::srcpkgcache=srcpkgcache.bin")
    command = ["apt-cache", *kept, *arguments]
    return subprocess.run(
        command, env=_environment(only), capture_output=True, text=True, check=False
    ).stdout


def names(prefix: str) -> list[str]:
    """Return the names of all packages that begin with *prefix*."""
    return sorted(set(_apt_cache("pkgnames", prefix).split()))


def versions(package: str, only: str = "") -> list[str]:
    """Return the versions of *package* that the mirror has, newest first."""
    listed = _apt_cache("madison", package, only=only)
    rows = (line.split("|") for line in listed.splitlines())
    return list(dict.fromkeys(row[1].strip() for row in rows if len(row) == 3))


def find_version(package: str, prefix: str, only: str = "") -> str:
    """Return the newest version of *package* that begins with *prefix*."""
    for version in versions(package, only):
        if version.partition(":")[2].startswith(prefix) or version.startswith(prefix):
            return version
    raise PackageNotFound(f"apt has no {package} {prefix or '(any version)'}")


def own_version(package: str) -> str:
    """Return the newest version in this machine's own release, whose libraries it has."""
    return _version_in(package, "(-updates|-security)?")


def backport(package: str) -> str:
    """Return the newest version that was built for this machine's own release later."""
    return _version_in(package, "-backports")


def _version_in(package: str, suites: str) -> str:
    codename = os_release().get("VERSION_CODENAME", "")
    suite = re.compile(rf"{re.escape(codename)}{suites}/")
    rows = [line.split("|") for line in _apt_cache("madison", package).splitlines()]
    for row in rows:
        words = row[2].split() if len(row) == 3 else []
        if len(words) > 1 and suite.match(words[1]):
            return row[1].strip()
    what = "has no backport of" if suites == "-backports" else "has no"
    raise PackageNotFound(f"{codename} {what} {package}")


def installed(package: str) -> bool:
    """Tell whether this machine itself has the package."""
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return shown.stdout.startswith("ii")


def dependencies(package: str, version: str) -> list[str]:
    """Return the names in the Depends line of one version of a package, first alternatives."""
    shown = _apt_cache("show", f"{package}={version}")
    match = re.search(r"^Depends: (.*)$", shown, re.MULTILINE)
    if not match:
        return []
    return [re.split(r"[\s:(|]", part.strip())[0] for part in match.group(1).split(",")]


def download(package: str, version: str = "", only: str = "") -> Path:
    """
    Return the path of the package's ``.deb``, downloaded into the cache if it is not there.

    Args:
        package: its name.
        version: a full version, or the beginning of one; the newest match is taken.
        only: a release of Debian in the place of all the others.

    Raises:
        PackageNotFound: apt has none.
        FetchError: it could not be downloaded.
    """
    full = find_version(package, version, only)
    directory = cache_dir() / "debs"
    directory.mkdir(exist_ok=True)
    wanted = f"{package}_{full.replace(':', '%3a')}_"
    with locked(f"deb-{package}"):
        for path in directory.glob("*.deb"):
            if path.name.startswith(wanted):
                return path
        scratch = directory / f"incoming-{package}-{os.getpid()}"
        scratch.mkdir()
        try:
            fetched = subprocess.run(
                ["apt-get", "-q", "download", f"{package}={full}"],
                cwd=scratch,
                env=_environment(only),
                capture_output=True,
                text=True,
                check=False,
            )
            found = list(scratch.glob("*.deb"))
            if fetched.returncode or not found:
                raise FetchError(
                    f"apt could not download {package} {full}:\n{fetched.stderr.strip()}"
                )
            return found[0].rename(directory / found[0].name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def unpack(deb: Path, destination: Path) -> None:
    """Unpack a ``.deb``'s files below *destination*."""
    destination.mkdir(parents=True, exist_ok=True)
    subprocess.run(["dpkg-deb", "-x", str(deb), str(destination)], check=True)


def unpacked(deb: Path) -> Path:
    """Return a directory of the cache with a ``.deb``'s files: all of them, or it is not there."""
    root = cache_dir() / "unpacked" / deb.stem
    with locked(f"unpacked-{deb.stem}"):
        if not root.exists():
            scratch = root.with_name(f"{root.name}.new")
            shutil.rmtree(scratch, ignore_errors=True)
            unpack(deb, scratch)
            scratch.rename(root)
    return root
