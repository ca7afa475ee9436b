# SPDX-License-Identifier: MIT
"""What a check finds: what is in order, or wrong, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"


class Finding(NamedTuple):
    """``level``: one of OK, NOTE, WARN, FAIL. ``remedy`` is empty where there is nothing to do."""

    level: str
    subject: str
    text: str
    remedy: str = ""
