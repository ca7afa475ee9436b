# SPDX-License-Identifier: MIT
"""
containerd's configuration: our runtimes stand in a block at the end of the file that decides.

What bears the same name there, as the table that NVIDIA's container toolkit writes, is put aside
as comments, and its settings hold for ours; :func:`restore` gives it back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InstallError

MAIN = "etc/containerd/config.toml"
_BEGIN = "# BEGIN cgpu (written by `cgpu install-runtime`)\n"
_END = "# END cgpu\n"
_ASIDE = "# cgpu put aside: "
_OURS = "  # cgpu\n"
_RUNC = "io.containerd.runc.v2"

Table = dict[str, Any]


class Wanted(NamedTuple):
    """
    names: of runtimes that are to be ours.
    program: what they start.
    default: the first of them becomes containerd's default.
    annotations: patterns of those that they are shown.
    """

    names: tuple[str, ...]
    program: str
    default: bool
    annotations: tuple[str, ...]


def deciding(prefix: Path) -> str:
    """
    Return the file, below *prefix*, whose runtimes containerd takes.

    A file that the main one imports replaces what that one says of the same plugin; the toolkit
    writes such a file from 1.18 on.
    """
    main = prefix / MAIN
    if not main.exists():
        return MAIN
    config = _parse(_read(main), MAIN)
    patterns = config.get("imports")
    found = MAIN
    for pattern in patterns if isinstance(patterns, list) else ():
        relative = str(Path("/", "etc/containerd", str(pattern))).lstrip("/")
        for path in sorted(prefix.glob(relative)):
            name = str(path.relative_to(prefix))
            imported = _parse(_read(path), name)
            if _inner(imported, "plugins", _plugin({**config, **imported}, name)) is not None:
                found = name
    return found


def is_ours(path: str) -> bool:
    """Tell whether a file of the record is a configuration of containerd's."""
    return path.startswith("etc/containerd/")


def runtimes(text: str, path: str = MAIN) -> Table:
    """Return the runtimes by name that *text* sets, ours left out."""
    config = _parse(restore(text, path), path)
    if _version(config, path) not in (2, 3):
        return {}
    found = _inner(config, "plugins", _plugin(config, path), "containerd", "runtimes")
    return found if isinstance(found, dict) else {}


def extend(text: str | None, wanted: Wanted, path: str = MAIN) -> str:
    """
    Return *text* with the runtimes of *wanted*, and nothing of an earlier call.

    Raises:
        InstallError: the text cannot be read, or holds another's runtime that is no runc's.
    """
    body = "version = 2\n" if text is None else restore(text, path)
    config = _parse(body, path)
    plugin = _plugin(config, path)
    table = f'plugins."{plugin}".containerd'
    there = runtimes(body, path)
    for name in wanted.names:
        kind = _dict(there.get(name)).get("runtime_type", _RUNC)
        if name in there and kind != _RUNC:
            raise InstallError(
                f"/{path}: runtime {name!r} is there already, and is a {kind!r};"
                " choose another --name"
            )
    body = _put_aside(body, [(*_at(plugin), "runtimes", name) for name in wanted.names], path)
    lines = []
    if wanted.default and _inner(_parse(body, path), *_at(plugin)) is not None:
        body = _with_default(body, _at(plugin), wanted.names[0], path)
    elif wanted.default:
        lines += [f"[{table}]", f'  default_runtime_name = "{wanted.names[0]}"']
    # A table of runtimes replaces all that containerd has by itself: pods would be without runc,
    # and where that is the default (containerd 1.6) the CRI service would not start at all.
    if not there and "runc" not in wanted.names:
        lines += [f"[{table}.runtimes.runc]", f'  runtime_type = "{_RUNC}"']
    for name in wanted.names:
        # a node whose cgroups are systemd's says so in the options of each runtime
        like = _dict(there.get(name, there.get("runc")))
        options = {**_dict(like.get("options")), "BinaryName": wanted.program}
        shown = {
            key: _listed(like.get(key), wanted.annotations)
            for key in ("pod_annotations", "container_annotations")
        }
        entry = {**like, **shown, "runtime_type": _RUNC, "options": options}
        lines += _written(f"{table}.runtimes.{name}", entry, path)
    if body and not body.endswith("\n"):
        body += "\n"
    made = body + _BEGIN + "\n".join(lines) + "\n" + _END
    _parse(made, path)
    return made


def restore(text: str, path: str = MAIN) -> str:
    """
    Return *text* as it was before :func:`extend`.

    Raises:
        InstallError: the end of our block is missing.
    """
    before, begin, rest = text.partition(_BEGIN)
    if begin:
        _, end, after = rest.partition(_END)
        if not end:
            raise InstallError(f"/{path}: a line {_END.strip()!r} is missing")
        text = before + after
    lines = text.splitlines(keepends=True)
    return "".join(line.removeprefix(_ASIDE) for line in lines if not line.endswith(_OURS))


def take_back(text: str, original: str | None, program: str, path: str = MAIN) -> str | None:
    """
    Return *text* without what starts *program*, and with what *original* had in its place.

    Also after another tool, as ``nvidia-ctk``, wrote the file anew, without our comments.
    """
    text = restore(text, path)
    config = _parse(text, path)
    at = (*_at(_plugin(config, path)), "runtimes")
    ours = [
        name
        for name, entry in _dict(_inner(config, *at)).items()
        if _inner(entry, "options", "BinaryName") == program
    ]
    if ours:
        text = _put_aside(text, [(*at, name) for name in ours], path)
        before = _parse(original or "", path)
        if _inner(config, *at[:-1], "default_runtime_name") in ours:
            default = _inner(before, *at[:-1], "default_runtime_name") or "runc"
            text = _with_default(text, at[:-1], str(default), path).replace(_OURS, "\n")
        lines = text.splitlines(keepends=True)
        text = "".join(line for line in lines if not line.startswith(_ASIDE))
        table = ".".join(map(_key, at))
        there = _dict(_inner(before, *at))
        for name in filter(there.__contains__, ours):
            text += "\n".join(_written(f"{table}.{name}", there[name], path)) + "\n"
    return original if not text.strip() or text == "version = 2\n" else text


# ---- tables


def _put_aside(body: str, tables: Iterable[tuple[str, ...]], path: str) -> str:
    """Make comments of *tables*, and of the tables in them."""
    wanted = tuple(tables)
    made, inside = "", False
    for line, header in _lines(body):
        if header is not None:
            inside = any(header[: len(table)] == table for table in wanted)
        made += _ASIDE + line if inside else line
    left = _parse(made, path)
    for table in wanted:
        if _inner(left, *table) is not None:
            raise InstallError(
                f"/{path}: runtime {table[-1]!r} is there already, and not in a table of its own;"
                " choose another --name"
            )
    return made


def _with_default(body: str, table: tuple[str, ...], name: str, path: str) -> str:
    made, inside = "", False
    for line, header in _lines(body):
        if header is not None:
            inside = header == table
        if inside and re.match(r"\s*default_runtime_name\s*=", line):
            line = _ASIDE + line
        made += line
        if header == table:
            made += f'  default_runtime_name = "{name}"{_OURS}'
    if _inner(_parse(made, path), *table, "default_runtime_name") != name:
        dotted = ".".join(table)
        raise InstallError(
            f"/{path}: set default_runtime_name = {name!r} in {dotted}, and leave out --default"
        )
    return made


def _lines(body: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Yield each line, with the table that it opens."""
    for line in body.splitlines(keepends=True):
        yield line, _header(line) if re.match(r"\s*\[[^\[]", line) else None


def _header(line: str) -> tuple[str, ...] | None:
    import tomllib

    try:
        found: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None  # of a list over several lines
    keys = []
    while isinstance(found, dict) and found:
        ((key, found),) = found.items()
        keys.append(key)
    return tuple(keys)


def _written(table: str, entry: Table, path: str) -> list[str]:
    lines = [f"[{table}]"]
    for key, value in entry.items():
        if not isinstance(value, dict):
            lines.append(f"  {_key(key)} = {_value(value, path)}")
    for key, value in entry.items():
        if isinstance(value, dict):
            lines += _written(f"{table}.{_key(key)}", value, path)
    return lines


def _key(text: str) -> str:
    return text if re.fullmatch(r"[\w-]+", text, re.ASCII) else json.dumps(text)


def _value(value: object, path: str) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(one, path) for one in value)}]"
    if isinstance(value, str | bool | int | float):
        return json.dumps(value, ensure_ascii=False)
    raise InstallError(f"/{path}: {value!r} cannot be copied; choose another --name")


def _listed(present: object, wanted: tuple[str, ...]) -> list[str]:
    kept = present if isinstance(present, list) else []
    return [*kept, *(one for one in wanted if one not in kept)]


# ---- reading


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InstallError(f"{path}: cannot be read: {error}") from None


def _parse(text: str, path: str) -> Table:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InstallError(f"/{path}: {error}") from None


def _version(config: Table, path: str) -> int:
    try:
        return int(config.get("version", 1))
    except (TypeError, ValueError) as error:
        raise InstallError(f"/{path}: {error}") from None


def _plugin(config: Table, path: str) -> str:
    version = _version(config, path)
    if version not in (2, 3):
        raise InstallError(f"/{path}: version {version}; write 'version = 2' first")
    return "io.containerd.cri.v1.runtime" if version == 3 else "io.containerd.grpc.v1.cri"


def _at(plugin: str) -> tuple[str, ...]:
    return ("plugins", plugin, "containerd")


def _inner(config: object, *keys: str) -> object:
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _dict(value: object) -> Table:
    return value if isinstance(value, dict) else {}
