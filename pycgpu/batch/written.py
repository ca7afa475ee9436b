# SPDX-License-Identifier: MIT
"""
A job's settings as they are written: Spark's lines, and the forms of Volcengine's documents.

A file has Spark's form, ``java.util.Properties``, as ``spark-defaults.conf`` has. Some lines have
the documents' forms, which mean nothing to Spark: ``'key': 'value',``, ``set key = value;``, ``--``
for a remark, and lines with a key of ours. A document that has lost its line ends is one line, in
which a remark extends to the next setting.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import NamedTuple

from pycgpu.errors import RequestError

#: The prefixes of our keys, which Spark ignores.
OURS = ("emr.serverless.mgpu.", "serverless.ray.worker.gpu.", "serverless.custom.job.")

_OUR_KEY = "|".join(map(re.escape, OURS))
_SETTING = re.compile(
    rf"""
    (?P<q1>['"])(?P<quoted>[^'"]+)(?P=q1)\s*[:=]\s*
        (?:(?P<q2>['"])(?P<text>.*?)(?P=q2)|(?P<number>[^\s,;'"{{}}]+))
    | (?i:set)\s+(?P<set>[\w.-]+)\s*=\s*(?P<to>(?:"[^"]*"|'[^']*'|[^;'"])*?)\s*(?:;|$)
    | (?P<bare>(?:{_OUR_KEY})[\w.]*)(?:\s*[:=]\s*|\s+)(?P<word>"[^"]*"|'[^']*'|[^\s;,\#'"]*)
    """,
    re.VERBOSE,
)
_BETWEEN = re.compile(r"[\s,;{}]*")
_REMARK = re.compile(r"#|--")
#: Of a line that is no property of Spark's, whatever stands after it.
_DOCUMENTS = re.compile(rf"\s*(?:['\"{{}}]|--|(?i:set)\s+[\w.-]+\s*=|{_OUR_KEY})")
_HIDDEN = re.compile(rf"(?:{_OUR_KEY})[\w.]*(?=['\"]?\s*[:=])")
#: With Spark's ends of lines; Python knows more.
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")


class Line(NamedTuple):
    """
    A line, or several that Spark reads as one.

    source: its full text. settings: its settings. is_spark: Spark reads the text unchanged.
    """

    source: str
    settings: tuple[tuple[str, str], ...] = ()
    is_spark: bool = True


def lines(text: str) -> list[Line]:
    """
    Return the lines of *text*, which together are it again.

    Raises:
        RequestError: one is no setting, quoted with its number; or hides one of ours in another's
            value, where it would be lost.
    """
    full = [line for line in _LINE.findall(text) if line.strip(" \t\f\r\n")]
    if len(full) == 1 and (_REMARK.match(full[0].strip()) or _DOCUMENTS.match(full[0])):
        found = tuple(_documents(full[0], 1, flattened=True))
        return [Line(text, found, not found and not _DOCUMENTS.match(full[0]))]
    return list(_lines(text))


def _lines(text: str) -> Iterator[Line]:
    # Not at the top: `cgpu run` is started often, and seldom with a file of settings.
    import javaproperties

    rest = io.StringIO(text, newline="")
    # The parser takes exactly the lines that Spark reads as one.
    spark = javaproperties.parse(rest)
    number = 1
    while line := _next(rest):
        if _DOCUMENTS.match(line):
            source = rest.readline()
            yield Line(source, tuple(_documents(source, number)), is_spark=False)
            number += 1
            continue
        try:
            element = next(spark)
        except javaproperties.InvalidUEscapeError as error:
            raise RequestError(f"line {number}: {error}, which Spark cannot read either") from None
        if not isinstance(element, javaproperties.KeyValue):
            yield Line(element.source)
        elif hidden := _HIDDEN.search(element.value):
            raise RequestError(
                f"line {number}: {hidden[0]} stands in the value of {element.key}: write it on a"
                " line of its own"
            )
        else:
            # Spark trims it, too.
            yield Line(element.source, ((element.key, element.value.strip()),))
        number += len(_LINE.findall(element.source))


def _next(file: io.StringIO) -> str:
    """Return the line that is read next; nothing at the end."""
    at = file.tell()
    line = file.readline()
    file.seek(at)
    return line


def _documents(line: str, number: int, *, flattened: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the settings of a line in the documents' forms."""
    at = _end(_BETWEEN.match(line))
    while at < len(line):
        remark = _REMARK.match(line, at)
        if remark is not None:
            after = _SETTING.search(line, remark.end()) if flattened else None
            if after is None:
                return
            # A setting right after the remark's sign is commented out.
            off = not line[remark.end() : after.start()].strip()
            at = after.end() if off else after.start()
        else:
            match = _SETTING.match(line, at)
            if match is None:
                raise RequestError(f"line {number} is no setting: {line.strip()!r}")
            parts = match.groupdict()
            key = parts["quoted"] or parts["set"] or parts["bare"]
            value = next(v for n in ("text", "number", "to", "word") if (v := parts[n]) is not None)
            yield key, value if parts["quoted"] else _unquoted(value.strip())
            at = match.end()
        at = _end(_BETWEEN.match(line, at))


def _end(match: re.Match[str] | None) -> int:
    assert match is not None  # it may be empty
    return match.end()


def _unquoted(text: str) -> str:
    whole = re.fullmatch(r"'([^']*)'|\"([^\"]*)\"", text)
    return text if whole is None else whole[1] or whole[2] or ""
