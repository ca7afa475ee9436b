# SPDX-License-Identifier: MIT
"""A finding of a check: what is in order, or what is wrong and its remedy."""

from __future__ import annotations

from typing import NamedTuple

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"


class Finding(NamedTuple):
    """``level``: one of OK, NOTE, WARN, FAIL. ``remedy`` is empty where there is nothing to do."""

    level: str
    subject: str
    text: str
    remedy: str = ""
