# SPDX-License-Identifier: MIT
"""
The sources of the site: ``python scripts/lib/site.py DIRECTORY``.

README, CHANGELOG and CONTRIBUTING stand beside the pages of docs/, and what a page links to
outside of these is shown as the path that it is.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import manual

REPOSITORY = manual.REPOSITORY
DOCS = REPOSITORY / "docs"
#: Pages from the top of the tree, and what they are called beside the others.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
API = """# Python interface

What `import pycgpu` offers; with examples in [From Python](python.md).

::: pycgpu.api
    options:
      show_root_heading: false
      show_source: false
      members_order: source
      docstring_style: google
      show_if_no_docstring: false
      filters: ["!^_"]
"""


def target(page: Path, link: str) -> str | None:
    """Return where a page's link leads to on the site; None where nothing of the site is."""
    if "://" in link or link.startswith(("mailto:", "#")):
        return link
    name, sharp, anchor = link.partition("#")
    path = Path(os.path.normpath(page.parent / name))
    if path.parent == REPOSITORY and path.name in OUTSIDE:
        return OUTSIDE[path.name] + sharp + anchor
    if path.is_relative_to(DOCS) and path.is_file():
        return str(path.relative_to(DOCS)) + sharp + anchor
    return None


def rewritten(page: Path) -> str:
    """Return a page's text with the links of the site."""

    def replace(match: re.Match[str]) -> str:
        found = target(page, match[2])
        return match[1].replace("`", "").join("``") if found is None else f"[{match[1]}]({found})"

    # What is code stays as it is.
    pieces = re.split(r"(^```.*?^```$)", page.read_text(), flags=re.M | re.S)
    return "".join(
        piece if piece.startswith("```") else re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", replace, piece)
        for piece in pieces
    )


def main() -> None:
    """Assemble the sources."""
    out = Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS, out, ignore=shutil.ignore_patterns("*.md", "man"))
    for page in sorted(DOCS.glob("*.md")):
        (out / page.name).write_text(rewritten(page))
    for name, shown in OUTSIDE.items():
        (out / shown).write_text(rewritten(REPOSITORY / name))
    (out / "commands.md").write_text(manual.markdown())
    (out / "api.md").write_text(API)


if __name__ == "__main__":
    main()
