# SPDX-License-Identifier: MIT
"""Who may read and change what we hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from .. import service
from .finding import FAIL, NOTE, WARN, Finding
from .host import Host


def exporter(host: Host) -> Iterator[Finding]:
    """Who can read the metrics, which name containers and pods, from elsewhere."""
    port = f"{service.EXPORTER_PORT:04X}"
    for path in ("proc/net/tcp", "proc/net/tcp6"):
        for words in map(str.split, host.read(path).splitlines()[1:]):
            address, _, number = words[1].partition(":")
            if (number, words[3]) == (port, _LISTENS) and not address.strip("0"):
                yield Finding(
                    WARN,
                    "exporter",
                    f"port {service.EXPORTER_PORT} is open on every address, and asks no password",
                    "CGPU_EXPORTER_LISTEN=127.0.0.1:9836 in /etc/default/cgpu-exporter,"
                    " or a firewall",
                )


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
