# SPDX-License-Identifier: MIT
"""Records are what typing.NamedTuple would make of the same class."""

import copy
import pickle
from typing import Any, NamedTuple

import pytest

from pycgpu.request.record import Record


class Point(Record):
    x: int
    y: int
    name: str | None = None

    @property
    def sum(self) -> int:
        return self.x + self.y


class Twin(NamedTuple):
    x: int
    y: int
    name: str | None = None


@pytest.mark.parametrize(
    ("values", "named"),
    [((1, 2), {}), ((1, 2, "a"), {}), ((1,), {"y": 2}), ((), {"y": 2, "x": 1, "name": "b"})],
)
def test_a_record_is_made_as_a_named_tuple_is(values: Any, named: Any) -> None:
    one = Point(*values, **named)
    twin: Any = Twin(*values, **named)
    assert tuple(one) == tuple(twin)
    assert one == twin
    assert hash(one) == hash(twin)
    assert (one.x, one.y, one.name) == (twin.x, twin.y, twin.name)
    assert one._asdict() == twin._asdict()
    assert one._fields == twin._fields
    assert repr(one) == repr(twin).replace("Twin", "Point")
    assert one._replace(y=7) == twin._replace(y=7)
    assert Point._make(one) == one
    assert one.sum == 3


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1,), {}), ((1, 2, 3, 4), {}), ((1, 2), {"x": 1}), ((1, 2), {"z": 1})],
)
def test_wrong_fields_are_refused_as_a_named_tuple_refuses_them(values: Any, named: Any) -> None:
    for kind in (Point, Twin):
        with pytest.raises(TypeError):
            kind(*values, **named)
    with pytest.raises(TypeError):
        Point(1, 2)._replace(z=1)


def test_a_record_cannot_be_changed() -> None:
    one = Point(1, 2)
    for name in ("x", "other"):
        with pytest.raises(AttributeError):
            setattr(one, name, 3)


def test_a_record_travels_and_matches() -> None:
    one = Point(1, 2, "a")
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert type(copy.copy(one)) is Point
    match one:
        case Point(x, y):
            assert (x, y) == (1, 2)
