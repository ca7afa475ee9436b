# SPDX-License-Identifier: MIT
"""What may be printed under the user's locale."""

from __future__ import annotations

import codecs
import io
import os
import sys

#: The interpreter puts one of these in the place of C, which is what the user had asked for.
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def is_ascii() -> bool:
    """Whether the user's locale is C, by the variables in their order."""
    language = os.environ.get("LANG", "")
    kind = os.environ.get("LC_CTYPE", "")
    if kind in _COERCED and language in ("C", "POSIX"):
        kind = language
    return (os.environ.get("LC_ALL") or kind or language) in ("C", "POSIX")


def obey() -> None:
    """
    Under the locale C write ASCII, with what is nearest for other characters.

    Python itself would write UTF-8 there (PEP 540).
    """
    if not is_ascii():
        return
    codecs.register_error("cgpu-ascii", _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="ascii", errors="cgpu-ascii")


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from ._table import Look, plain

    return plain(error.object[error.start : error.end], Look(ascii=True)), error.end
