# SPDX-License-Identifier: MIT
"""
Named tuples that cost nothing to import.

Hook and runtime start a Python three times for every container, which may take 60 ms in all
(``scripts/dev bench-start``). Type checkers see ``typing.NamedTuple`` instead. Processor time
on two cores of a cloud machine, CPython 3.11.7, the least of 40:

=========================================  =======
the interpreter                            10.8 ms
with all that the hook imports             15.7 ms
with ``typing`` and ``json`` besides       32.6 ms
=========================================  =======
"""

from __future__ import annotations

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def _field(position: int) -> property:
    return property(lambda record: tuple.__getitem__(record, position))


class Record(tuple):  # type: ignore[type-arg]  # of no type in particular
    """
    A base class like ``typing.NamedTuple``: a subclass's annotated names are the fields.

    Fields with a value in the class are optional. A record has ``_fields``, ``_make``, ``_asdict``
    and ``_replace``. It equals a tuple of the same values, and cannot be changed.
    """

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()
    _fields: tuple[str, ...] = ()
    _field_defaults: dict[str, object] = {}  # noqa: RUF012  (typing has the name for it)

    def __init_subclass__(cls) -> None:
        fields = tuple(cls.__annotations__)
        cls._fields = fields
        cls.__match_args__ = fields  # type: ignore[misc]  # each class has its own
        cls._field_defaults = {name: cls.__dict__[name] for name in fields if name in cls.__dict__}
        for position, name in enumerate(fields):
            setattr(cls, name, _field(position))

    def __new__(cls, *values: object, **named: object) -> Record:
        fields = cls._fields
        if named or len(values) != len(fields):
            rest = fields[len(values) :]
            wrong = named.keys() - set(rest)
            if wrong or len(values) > len(fields):
                raise TypeError(f"{cls.__name__}: takes {fields}, not {values} and {named}")
            given = cls._field_defaults | named
            missing = [name for name in rest if name not in given]
            if missing:
                raise TypeError(f"{cls.__name__}: {', '.join(missing)} must be given")
            values = (*values, *(given[name] for name in rest))
        return tuple.__new__(cls, values)

    @classmethod
    def _make(cls, values: Iterable[object]) -> Record:
        return cls(*values)

    def _asdict(self) -> dict[str, object]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **named: object) -> Record:
        return type(self)(**(self._asdict() | named))

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({fields})"
