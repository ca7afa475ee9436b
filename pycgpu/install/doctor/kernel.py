# SPDX-License-Identifier: MIT
"""The running kernel, and what it loads."""

from __future__ import annotations

from collections.abc import Iterator

from .. import module_build, secure_boot
from .finding import NOTE, OK, WARN, Finding
from .host import Host

FTRACE = "proc/sys/kernel/ftrace_enabled"


def kernel(host: Host) -> Iterator[Finding]:
    """The running kernel, and what building a module for it takes."""
    yield Finding(OK, "kernel", host.release)
    if not (host.prefix / module_build.HEADERS.format(release=host.release) / "Makefile").exists():
        yield Finding(
            WARN,
            "kernel",
            "no headers of the running kernel: the module cannot be built for it",
            f"Debian, Ubuntu: apt install linux-headers-{host.release};"
            f" RHEL: dnf install kernel-devel-{host.release}",
        )
    if secure_boot.is_on(host.prefix):
        yield Finding(
            NOTE,
            "kernel",
            "Secure Boot is on: only signed modules load",
            "enrol DKMS's key once: mokutil --import /var/lib/dkms/mok.pub",
        )
    if host.read(FTRACE).strip() == "0":
        yield Finding(
            WARN,
            "kernel",
            "ftrace is off: the module, which follows the driver by it, is not loaded",
            "sysctl kernel.ftrace_enabled=1",
        )
