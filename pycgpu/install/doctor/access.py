# SPDX-License-Identifier: MIT
"""Which users may read and change cgpu's files and services."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ... import web
from .. import service
from .finding import FAIL, NOTE, WARN, Finding
from .host import Host

#: Servers without a password: the name, the address, and how to bind it to this machine alone.
_SERVERS = (
    (
        "exporter",
        service.EXPORTER_PORT,
        "CGPU_EXPORTER_LISTEN=127.0.0.1:9836 in /etc/default/cgpu-exporter, or a firewall",
    ),
    ("web", web.PORT, "start cgpu web without --listen, or a firewall"),
)


def servers(host: Host) -> Iterator[Finding]:
    """Other hosts cannot read metrics and page, which name containers and pods."""
    for path in ("proc/net/tcp", "proc/net/tcp6"):
        for words in map(str.split, host.read(path).splitlines()[1:]):
            address, _, number = words[1].partition(":")
            if words[3] != _LISTENS or address.strip("0"):
                continue
            for name, port, remedy in _SERVERS:
                if number == f"{port:04X}":
                    text = f"port {port} is open on every address, and asks no password"
                    yield Finding(WARN, name, text, remedy)


#: TCP_LISTEN in /proc/net/tcp.
_LISTENS = "0A"


def rights(host: Host) -> Iterator[Finding]:
    """Whether whoever asks may change anything."""
    if host.root is None:
        return
    mode = stat.S_IMODE(os.stat(f"{host.root}/inst_ctl").st_mode)
    if mode & 0o022:
        yield Finding(
            FAIL,
            "rights",
            f"inst_ctl is writable by others ({mode:o})",
            f"chmod 0644 {host.root}/inst_ctl",
        )
    if not os.access(f"{host.root}/inst_ctl", os.W_OK):
        yield Finding(NOTE, "rights", "changes are root's: you can only look")
