# SPDX-License-Identifier: MIT
"""
Which users and pods may join which group: the tables ``[[group]]`` of the policy file.

A group that no table names is open to its own user or namespace. A group that tables name is open
to those that one of these tables lists; an empty table lists none. All lines of a table must
match::

    [[group]]
    name = "blue/*"             # a group's name, of pods NAMESPACE/NAME; `*` stands for anything
    users = ["alice", 1000]     # of the host, by name or number
    namespaces = ["blue"]
    annotations = {tier = "serving"}    # of the container, all of them
"""

from __future__ import annotations

import fnmatch
import pwd

from ..errors import RequestError

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NamedTuple
else:
    from .record import Record as NamedTuple

_KEYS = ("name", "users", "namespaces", "annotations")


class Asker(NamedTuple):
    """
    Who asks to join *group*, which is named as an operator writes it.

    uid: the host's. namespace: of a pod, or None.
    """

    group: str
    uid: int
    namespace: str | None = None
    annotations: Mapping[str, object] | None = None


class Rule(NamedTuple):
    """A table; None: it has no such line."""

    name: str
    users: tuple[str | int, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    annotations: Mapping[str, str] | None = None

    def takes(self, asker: Asker) -> bool:
        """Tell whether the table lists *asker*."""
        if (self.users, self.namespaces, self.annotations) == (None, None, None):
            return False
        if self.users is not None and asker.uid not in map(_uid, self.users):
            return False
        if self.namespaces is not None and asker.namespace not in self.namespaces:
            return False
        has = asker.annotations or {}
        return all(has.get(key) == value for key, value in (self.annotations or {}).items())


def check(rules: Sequence[Rule], asker: Asker, path: str) -> None:
    """Raise RequestError if none of these tables lists *asker*."""
    naming = [rule for rule in rules if fnmatch.fnmatchcase(asker.group, rule.name)]
    if naming and not any(rule.takes(asker) for rule in naming):
        who = f"user {asker.uid}"
        if asker.namespace is not None:
            who += f" in namespace {asker.namespace}"
        raise RequestError(
            f"group {asker.group}: {path} does not let {who} join: add it to a [[group]] table"
        )


def _uid(user: str | int) -> int | None:
    if isinstance(user, int):
        return user
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def parse(tables: object, path: str) -> tuple[Rule, ...]:
    """Return the rules of the file's ``group``; raise RequestError naming what is unknown."""
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise RequestError(f"{path}: group is not a list of tables; write [[group]]")
    return tuple(_rule(one, f"{path}: [[group]]") for one in tables)


def _rule(table: Mapping[str, object], where: str) -> Rule:
    for key in table:
        if key not in _KEYS:
            raise RequestError(f"{where}: {key!r} is unknown; known are {', '.join(_KEYS)}")
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where} name = {name!r}: write a group's name")
    annotations = table.get("annotations")
    if annotations is not None and not (
        isinstance(annotations, dict)
        and all(isinstance(value, str) for value in annotations.values())
    ):
        raise RequestError(f"{where} annotations = {annotations!r}: write a text for each")
    return Rule(
        name,
        _listed(table, "users", (str, int), where),
        _listed(table, "namespaces", (str,), where),
        annotations,
    )


def _listed(
    table: Mapping[str, object], key: str, kinds: tuple[type, ...], where: str
) -> tuple[Any, ...] | None:
    listed = table.get(key)
    if listed is None:
        return None
    if not isinstance(listed, list) or any(
        isinstance(one, bool) or not isinstance(one, kinds) for one in listed
    ):
        raise RequestError(f"{where} {key} = {listed!r}: write a list of names")
    return tuple(listed)
