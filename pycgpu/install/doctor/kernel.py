# SPDX-License-Identifier: MIT
"""The running kernel, and which modules it loads."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import InstallError
from .. import module_build, secure_boot
from ..host import execute
from .finding import NOTE, OK, WARN, Finding
from .host import Host

FTRACE = "proc/sys/kernel/ftrace_enabled"


def kernel(host: Host) -> Iterator[Finding]:
    """The running kernel, and the requirements of building a module for it."""
    yield Finding(OK, "kernel", host.release)
    if not (host.prefix / module_build.HEADERS.format(release=host.release) / "Makefile").exists():
        yield Finding(
            WARN,
            "kernel",
            "no headers of the running kernel: the module cannot be built for it",
            f"Debian, Ubuntu: apt install linux-headers-{host.release};"
            f" RHEL: dnf install kernel-devel-{host.release}",
        )
    elif missing := module_build.missing_tools(host.prefix, host.release):
        clang = module_build.clang_version(host.prefix, host.release)
        by = "gcc" if clang is None else f"clang {clang}"
        yield Finding(
            WARN,
            "kernel",
            f"{by} has built it, and here is no {', '.join(missing)}: the module cannot be built",
            f"install {' '.join(missing)}",
        )
    if secure_boot.is_on(host.prefix):
        yield from _signing(host)
    if host.read(FTRACE).strip() == "0":
        yield Finding(
            WARN,
            "kernel",
            "ftrace is off: the module, which follows the driver by it, is not loaded",
            "sysctl kernel.ftrace_enabled=1",
        )


def _signing(host: Host) -> Iterator[Finding]:
    """Which key signs our modules under Secure Boot, and whether it counts."""
    try:
        known = secure_boot.enrolled(host.prefix, host.release, execute)
    except InstallError as error:
        yield Finding(NOTE, "kernel", f"Secure Boot is on: only signed modules load; {error}")
        return
    if known is None:
        yield Finding(
            WARN,
            "kernel",
            "Secure Boot is on, and no key that DKMS signs with is enrolled: the module of the"
            " next kernel will not load",
            secure_boot.remedy(host.prefix, host.release),
        )
    else:
        path = f"/{known.relative_to(host.prefix)}"
        yield Finding(OK, "kernel", f"Secure Boot is on, and {path} is enrolled")
