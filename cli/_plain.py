# SPDX-License-Identifier: MIT
"""
Options that need no checking, read without typer: importing it takes longer than all the rest.

Whatever is not as plain as that, ``--help`` and every mistake are typer's.
"""

from __future__ import annotations

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def read(
    words: Sequence[str],
    flags: Mapping[str, tuple[str, object]],
    values: Mapping[str, str],
    many: Sequence[str] = (),
) -> tuple[dict[str, Any], list[str]] | None:
    """
    Return what the options before the first other word say, and the words from there on.

    Args:
        flags: of an option without a value, what it sets and to what.
        values: of one with a value, what it sets.
        many: of those what takes each value, in a tuple.

    Returns None where typer must look at them.
    """
    found: dict[str, Any] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if word in flags:
            key, on = flags[word]
            found[key] = on
        elif name in values and (equals or rest) and (not equals or name.startswith("--")):
            given = value if equals else rest.pop(0)
            key = values[name]
            found[key] = (*found.get(key, ()), given) if key in many else given
        else:
            return None
    return found, rest
