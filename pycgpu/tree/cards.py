# SPDX-License-Identifier: MIT
"""
Settings of cards that outlive the module and the machine: ``/etc/cgpu/cards.toml``.

A table's name is a card's UUID (or an unambiguous beginning of it), a model, or ``default``. Where
several tables match a card, the UUID's comes before the model's, and ``default`` comes last::

    [default]
    policy = "weighted-conserving"  # or its number
    max_inst = 16
    overcommit_ratio = 150  # limits may add up to so many percent of the card

    ["Tesla T4"]
    timeslice_us = 12000

    [GPU-28df2127]
    policy = 6
    units = 10  # GPU-hours that an hour of the whole card counts; 1 without it

The tree loses these settings when the module is unloaded. The service runs ``cgpu cards --apply``
after it has loaded the module, which writes them again. The agent does so when it starts.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping

from ..errors import CgpuError
from . import change, procfs, toml_file

PATH = "/etc/cgpu/cards.toml"
DEFAULT = "default"
#: The factor of a card's GPU-hours, see :mod:`pycgpu.tree.usage`. It is no file of the tree.
UNITS = "units"
#: The card's files, each with its least and its most.
BOUNDS = {
    "policy": None,
    "max_inst": (1, 64),
    "timeslice_us": (1000, 1000000),
    "overcommit_ratio": (100, 1000),
}
_KNOWN = {**BOUNDS, UNITS: (1, 1000000)}

Table = dict[str, int]


def load(path: str = PATH) -> dict[str, Table]:
    """
    Return the tables of *path*, none where there is no such file.

    Raises:
        CgpuError: it cannot be read, or says something unknown or out of bounds.
    """
    found = toml_file.read(path) or {}
    return {name: _table(name, table, path) for name, table in found.items()}


def _table(name: str, table: object, path: str) -> Table:
    where = f"{path}: [{name}]"
    if not isinstance(table, dict):
        raise CgpuError(f"{path}: {name} stands outside a table; write it below [{DEFAULT}]")
    read: Table = {}
    for key, value in table.items():
        if key not in _KNOWN:
            raise CgpuError(f"{where}: {key!r} is unknown; known are {', '.join(_KNOWN)}")
        bounds = _KNOWN[key]
        if bounds is None:
            try:
                read[key] = change.parse_policy(str(value))
            except CgpuError as error:
                raise CgpuError(f"{where}: {error}") from None
        elif type(value) is int and bounds[0] <= value <= bounds[1]:
            read[key] = value
        else:
            raise CgpuError(f"{where}: {key} = {value!r}: write {bounds[0]} to {bounds[1]}")
    return read


def models(proc: str = "/proc") -> dict[int, str]:
    """Return the models by minor, as the driver tells them without NVML."""
    found = {}
    for path in glob.glob(f"{proc}/driver/nvidia/gpus/*/information"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                pairs = dict(line.split(":", 1) for line in file if ":" in line)
            found[int(pairs["Device Minor"])] = pairs["Model"].strip()
        except (OSError, KeyError, ValueError):
            continue
    return found


def wanted(tables: Mapping[str, Table], uuid: str, model: str | None) -> Table:
    """
    Return what the tables say of one card; the most specific table wins.

    Raises:
        CgpuError: two tables begin this card's UUID.
    """
    own = [name for name in tables if name.startswith("GPU-") and uuid.startswith(name)]
    if len(own) > 1:
        raise CgpuError(f"card {uuid}: both [{own[0]}] and [{own[1]}] name it; keep one of them")
    merged: Table = {}
    for name in (DEFAULT, model, *own):
        merged |= tables.get(name, {}) if name is not None else {}
    return merged


def with_default(tables: Mapping[str, Table], key: str, value: int) -> dict[str, Table]:
    """Return what *tables* say of *key* alone, with *value* as the default."""
    only = {name: {key: table[key]} for name, table in tables.items() if key in table}
    return {DEFAULT: {key: value}, **only}


def pending(
    tables: Mapping[str, Table], root: str, proc: str = "/proc"
) -> list[tuple[int, str, int, int]]:
    """Return (card, file, value now, value to be) of all that differs from the tables."""
    known = models(proc)
    found = []
    for card in procfs.find_cards(root):
        for key, value in wanted(tables, card.uuid, known.get(card.index)).items():
            if key not in BOUNDS:
                continue
            now = procfs.read_setting(card.index, key, root)
            if now != value:
                found.append((card.index, key, now, value))
    return found


def apply(
    tables: Mapping[str, Table], root: str, proc: str = "/proc"
) -> Iterator[tuple[int, str, int, int]]:
    """Write what :func:`pending` finds, and yield it, one after another."""
    for card, key, now, value in pending(tables, root, proc):
        procfs.write_setting(card, key, value, root)
        yield card, key, now, value
