# SPDX-License-Identifier: MIT
"""
Protocol Buffers, as far as the kubelet's interfaces use them.

A message is a dataclass whose fields carry their numbers: text, amounts, switches, messages,
lists of them and maps of text. That is less than generated code, which would also bind the package
to one release of the protobuf runtime. Unknown fields are skipped, as the format demands. In
tests/host/test_wire.py Google's runtime reads these messages, and tests/cluster/test_messages.py
compares the numbers with Kubernetes' own files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Message = TypeVar("Message")


class WireError(ValueError):
    """The bytes are no message."""


def _field(number: int, kind: object, many: bool, default: Any) -> Any:
    metadata = {"number": number, "kind": kind, "many": many}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def text(number: int) -> Any:
    """A string."""
    return _field(number, str, False, "")


def texts(number: int) -> Any:
    """A repeated string."""
    return _field(number, str, True, list)


def switch(number: int) -> Any:
    """A bool."""
    return _field(number, bool, False, False)


def amount(number: int) -> Any:
    """An int64 or an enum that is not negative."""
    return _field(number, int, False, 0)


def many(number: int, kind: type) -> Any:
    """A repeated message."""
    return _field(number, kind, True, list)


def pairs(number: int) -> Any:
    """A map of strings to strings."""
    return _field(number, dict, False, dict)


def encode(message: Any) -> bytes:
    """Return the bytes of a message, without fields that have their defaults."""
    out = bytearray()
    for one in dataclasses.fields(message):
        value = getattr(message, one.name)
        number, kind = one.metadata["number"], one.metadata["kind"]
        if kind is dict:
            for key, text_value in value.items():
                _put(out, number, encode(_Pair(key, text_value)))
            continue
        for item in value if one.metadata["many"] else [value] if value else []:
            if kind in (bool, int):
                out += _varint(number << 3 | _VARINT) + _varint(int(item))
            else:
                _put(out, number, item.encode() if kind is str else encode(item))
    return bytes(out)


def decode(kind: type[Message], raw: bytes) -> Message:
    """
    Return the message of that class that *raw* holds.

    Raises:
        WireError: it is cut off, or a field is of another type.
    """
    message = kind()
    known = {one.metadata["number"]: one for one in dataclasses.fields(kind)}  # type: ignore[arg-type]  # always a dataclass
    for number, value in _fields(raw):
        one = known.get(number)
        if one is None:
            continue
        wanted = one.metadata["kind"]
        if isinstance(value, int) != (wanted in (bool, int)):
            raise WireError(f"{kind.__name__}.{one.name} is of another type")
        if isinstance(value, int):
            setattr(message, one.name, wanted(value))
        elif wanted is dict:
            pair = decode(_Pair, value)
            getattr(message, one.name)[pair.key] = pair.value
        else:
            try:
                item = value.decode() if wanted is str else decode(wanted, value)
            except UnicodeDecodeError:
                raise WireError(f"{kind.__name__}.{one.name} is not text") from None
            if one.metadata["many"]:
                getattr(message, one.name).append(item)
            else:
                setattr(message, one.name, item)
    return message


@dataclasses.dataclass
class _Pair:
    key: str = text(1)
    value: str = text(2)


def _put(out: bytearray, number: int, raw: bytes) -> None:
    out += _varint(number << 3 | _BYTES) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(raw):
        key, at = _read_varint(raw, at)
        kind = key & 7
        if kind == _VARINT:
            number, at = _read_varint(raw, at)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, at = _read_varint(raw, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise WireError(f"wire type {kind}")
        if at + size > len(raw):
            raise WireError("cut off")
        if kind == _BYTES:
            yield key >> 3, raw[at : at + size]
        at += size


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(raw) or shift > 63:
            raise WireError("cut off")
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at
