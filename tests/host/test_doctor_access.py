# SPDX-License-Identifier: MIT
"""The doctor on ports of ours that are open to other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycgpu.install.doctor import Host
from pycgpu.install.doctor.access import servers

HEAD = "  sl  local_address rem_address   st\n"


@pytest.mark.parametrize(
    ("file", "address", "state", "found"),
    [
        ("tcp", "00000000:266C", "0A", "exporter"),
        ("tcp6", "0" * 32 + ":266D", "0A", "web"),
        # on this machine alone, a connection, and another port
        ("tcp", "0100007F:266D", "0A", None),
        ("tcp", "00000000:266D", "01", None),
        ("tcp", "00000000:0050", "0A", None),
    ],
)
def test_a_port_that_is_open_to_other_machines_is_told_with_the_remedy(
    tmp_path: Path, file: str, address: str, state: str, found: str | None
) -> None:
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    (net / file).write_text(f"{HEAD}   0: {address} 00000000:0000 {state}\n")
    findings = list(servers(Host(tmp_path, None, "6.1.0")))
    assert [one[1] for one in findings] == ([found] if found else [])
    if found:
        assert "asks no password" in findings[0][2] and "firewall" in str(findings[0])
