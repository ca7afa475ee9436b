# SPDX-License-Identifier: MIT
"""
Which drivers have known vulnerabilities, by NVIDIA's security bulletins.

From the advisories in https://github.com/NVIDIA/product-security, read as of August 2026, when
bulletin 5821 (May) was the last of this driver: the product Tesla under Linux, the newest bulletin
that names a fixed version of the branch. Add the next bulletin to the table when it comes. A
version at or above the fixed one is only known to lack the flaws of that bulletin.
"""

from __future__ import annotations

from typing import NamedTuple

#: The newest bulletin that was read.
NEWEST = 5821
URL = "https://github.com/NVIDIA/product-security"


class Bulletin(NamedTuple):
    """``cves``: those of ``number`` that concern Linux by their text; ``fixed``: first version."""

    number: int
    published: str
    fixed: str
    cves: tuple[str, ...]


_MAY_2026 = (
    "CVE-2025-33221",
    "CVE-2026-24182",
    "CVE-2026-24187",
    "CVE-2026-24190",
    "CVE-2026-24192",
    "CVE-2026-24193",
    "CVE-2026-24194",
    "CVE-2026-24195",
    "CVE-2026-24196",
    "CVE-2026-24197",
    "CVE-2026-24198",
    "CVE-2026-24199",
)

_LAST = {
    535: Bulletin(5821, "2026-05-19", "535.309.01", _MAY_2026),
    550: Bulletin(
        5630, "2025-04-24", "550.163.01", ("CVE-2025-23244", "CVE-2025-23245", "CVE-2025-23246")
    ),
    570: Bulletin(5747, "2026-01-28", "570.211.01", ("CVE-2025-33219",)),
    580: Bulletin(5821, "2026-05-19", "580.159.03", _MAY_2026),
    590: Bulletin(5747, "2026-01-28", "590.48.01", ("CVE-2025-33219", "CVE-2025-33220")),
    595: Bulletin(
        5821,
        "2026-05-19",
        "595.71.05",
        tuple(cve for cve in _MAY_2026 if cve not in ("CVE-2026-24193", "CVE-2026-24195")),
    ),
}


def last(branch: int) -> Bulletin | None:
    """Return the newest bulletin with a fix for *branch*."""
    return _LAST.get(branch)


def crashes_readers(version: str) -> bool:
    """
    Whether a read of ``/proc/PID/mem`` where the card's memory is mapped crashes the kernel.

    NVIDIA/open-gpu-kernel-modules issue 1107: 595 before 595.71.05 follows a null pointer.
    """
    return (595,) <= _numbers(version) < (595, 71, 5)


def is_fixed(version: str, bulletin: Bulletin) -> bool:
    """Whether *version* has what *bulletin* fixed."""
    return _numbers(version) >= _numbers(bulletin.fixed)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
