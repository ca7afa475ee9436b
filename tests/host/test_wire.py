# SPDX-License-Identifier: MIT
"""The kubelet's messages as our own encoder writes them, read by Google's, and the other way."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.kubernetes import messages
from pycgpu.kubernetes.wire import WireError, decode, encode

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = {str: Field.TYPE_STRING, bool: Field.TYPE_BOOL, int: Field.TYPE_INT64}
CLASSES: dict[str, Any] = {
    name: one for name, one in vars(messages).items() if dataclasses.is_dataclass(one)
}


def described() -> dict[str, Any]:
    """Return Google's class of each of our messages, by what ours says of its fields."""
    file = descriptor_pb2.FileDescriptorProto(name="ours.proto", package="ours", syntax="proto3")
    for name, ours in CLASSES.items():
        theirs = file.message_type.add(name=name)
        for one in dataclasses.fields(ours):
            number, kind, many = (one.metadata[key] for key in ("number", "kind", "many"))
            field = theirs.field.add(name=one.name, number=number)
            field.label = Field.LABEL_REPEATED if many or kind is dict else Field.LABEL_OPTIONAL
            if kind is dict:
                entry = theirs.nested_type.add(name=f"{one.name.title()}Entry")
                entry.options.map_entry = True
                for at, key in enumerate(("key", "value"), 1):
                    entry.field.add(
                        name=key, number=at, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL
                    )
                field.type, field.type_name = Field.TYPE_MESSAGE, f".ours.{name}.{entry.name}"
            elif kind in SCALARS:
                field.type = SCALARS[kind]
            else:
                field.type, field.type_name = Field.TYPE_MESSAGE, f".ours.{kind.__name__}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"ours.{name}")) for name in CLASSES}


GOOGLES = described()


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any message of a class of ours."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for one in dataclasses.fields(kind):
        inner, many = one.metadata["kind"], one.metadata["many"]
        if inner is dict:
            fields[one.name] = st.dictionaries(st.text(), st.text(), max_size=3)
            continue
        plain = {str: st.text(), bool: st.booleans(), int: st.integers(0, (1 << 63) - 1)}
        item = plain[inner] if inner in plain else any_of(inner)
        fields[one.name] = st.lists(item, max_size=3) if many else item
    return st.builds(kind, **fields)


def same(ours: Any, theirs: Any) -> bool:
    """Whether both say the same."""
    for one in dataclasses.fields(ours):
        mine, other = getattr(ours, one.name), getattr(theirs, one.name)
        if one.metadata["kind"] is dict:
            if mine != dict(other):
                return False
        elif one.metadata["many"] and one.metadata["kind"] is not str:
            if len(mine) != len(other) or not all(map(same, mine, other)):
                return False
        elif (list(other) if one.metadata["many"] else other) != mine:
            return False
    return True


@pytest.mark.parametrize("name", CLASSES)
def test_googles_runtime_reads_what_we_write_and_we_what_it_writes(name: str) -> None:
    assert len(CLASSES) > 20

    @given(any_of(CLASSES[name]))
    def both_ways(message: Any) -> None:
        raw = encode(message)
        theirs = GOOGLES[name].FromString(raw)
        assert same(message, theirs)
        assert decode(CLASSES[name], theirs.SerializeToString()) == message

    both_ways()


@given(st.binary(max_size=64))
def test_what_is_no_message_is_refused_and_nothing_else_happens(raw: bytes) -> None:
    try:
        found = decode(messages.PrepareResponse, raw)
    except WireError:
        return
    assert isinstance(found, messages.PrepareResponse)


def test_fields_of_later_releases_are_skipped() -> None:
    raw = encode(messages.PreparedDevice(pool_name="p"))
    # Field 99, in each type of the wire.
    raw += b"\x98\x06\x01" + b"\x99\x06" + bytes(8) + b"\x9a\x06\x01x" + b"\x9d\x06" + bytes(4)
    assert decode(messages.PreparedDevice, raw) == messages.PreparedDevice(pool_name="p")
