# SPDX-License-Identifier: MIT
"""
JSON to and from text, as the standard library's ``json`` does it, by the same C code.

Importing ``json`` compiles regular expressions, which would be the slowest part of hook and
runtime; :mod:`pycgpu.request.record` has the figures. If an interpreter lacks that C code, or has
it in another form, ``json`` does the work.
"""

from __future__ import annotations

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BLANK = " \t\n\r"


class _Settings:
    """The decoder's defaults, as json.JSONDecoder has them."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {
        "-Infinity": float("-inf"),
        "Infinity": float("inf"),
        "NaN": float("nan"),
    }.__getitem__


def _c_scanner() -> Callable[[str, int], tuple[object, int]] | None:
    try:
        from _json import make_scanner

        # typeshed wants the decoder itself; the C code reads these attributes of whatever it gets.
        return make_scanner(_Settings())  # type: ignore[arg-type]
    except (ImportError, AttributeError, TypeError):
        return None


def _c_encoder() -> Callable[[object, int], Iterable[str]] | None:
    try:
        from _json import encode_basestring_ascii, make_encoder

        return make_encoder(
            {}, _not_json, encode_basestring_ascii, None, ":", ",", False, False, True
        )
    except (ImportError, AttributeError, TypeError):
        return None


def _not_json(value: object) -> None:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def loads(text: str) -> object:
    """
    Return the value of the JSON *text*.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: the text is nested too deeply.
    """
    scan = _c_scanner()
    if scan is None:
        import json

        return json.loads(text)
    # The scanner takes one value from where it stands; blanks around that are its caller's.
    try:
        value, end = scan(text, len(text) - len(text.lstrip(_BLANK)))
    except StopIteration as stop:
        raise ValueError(f"no value at character {stop.value}") from None
    if text[end:].strip(_BLANK):
        raise ValueError(f"something follows the value at character {end}")
    return value


def dumps(value: object) -> str:
    """Return *value* as JSON in ASCII without a blank; TypeError if it cannot be written."""
    encode = _c_encoder()
    if encode is None:
        import json

        return json.dumps(value, separators=(",", ":"))
    return "".join(encode(value, 0))
