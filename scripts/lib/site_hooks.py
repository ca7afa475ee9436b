# SPDX-License-Identifier: MIT
"""What mkdocs calls while it builds the site."""

from __future__ import annotations

import re
from typing import Any


def on_page_content(html: str, **_: Any) -> str:
    """Show a docstring's ``:class:`~a.b.C``` as C: mkdocstrings knows no roles."""
    return re.sub(r":(?:class|data|func|meth|mod):<code>~?([^<]*)</code>", _shown, html)


def _shown(match: re.Match[str]) -> str:
    name = match[1].rpartition(".")[2] if match[0].partition("<code>")[2][0] == "~" else match[1]
    return f"<code>{name}</code>"
