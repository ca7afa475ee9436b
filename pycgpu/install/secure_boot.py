# SPDX-License-Identifier: MIT
"""Secure Boot: only signed modules load."""

from __future__ import annotations

from pathlib import Path


def is_on(prefix: Path) -> bool:
    """Whether the firmware checks signatures."""
    for path in (prefix / "sys/firmware/efi/efivars").glob("SecureBoot-*"):
        try:
            # Four bytes of attributes, then the value.
            return path.read_bytes()[4:5] == b"\1"
        except OSError:
            return False
    return False
