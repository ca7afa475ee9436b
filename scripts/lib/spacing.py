# SPDX-License-Identifier: MIT
"""
Hold C files against clang-format where it is about spaces and braces.

Where lines are broken, and what stands in columns, is left to who writes: clang-format 14 lays
out conditional expressions and tables of structs worse than they are. So it is compared word by
word, whatever white space is between two words.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def words(text: str) -> list[tuple[str, int]]:
    """Return what stands between white space, each with its line; a macro's \\ is white space."""
    return [
        (word, number)
        for number, line in enumerate(text.splitlines(), 1)
        for word in re.sub(r"\\$", "", line).split()
    ]


def complaints(path: str) -> list[str]:
    """Return a line for each place where clang-format would write other words."""
    with open(path) as file:
        written = words(file.read())
    formatted = subprocess.run(
        ["clang-format", "--style=file", path], capture_output=True, text=True, check=True
    ).stdout
    wanted = [word for word, _ in words(formatted)]
    matcher = difflib.SequenceMatcher(None, [word for word, _ in written], wanted, autojunk=False)
    found = []
    for kind, start, end, begins, ends in matcher.get_opcodes():
        if kind != "equal":
            line = written[min(start, len(written) - 1)][1]
            is_now = " ".join(word for word, _ in written[start:end])
            found.append(f"{path}:{line}: {is_now!r} should be {' '.join(wanted[begins:ends])!r}")
    return found


def main() -> int:
    """Check the files of the command line."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [line for lines in pool.map(complaints, sys.argv[1:]) for line in lines]
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
