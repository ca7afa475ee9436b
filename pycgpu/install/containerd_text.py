# SPDX-License-Identifier: MIT
"""The texts of containerd's configurations: ours put into them, and taken out again."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InstallError
from .containerd import PLUGINS, Table, table
from .launcher import is_ours

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

BEGIN = "# BEGIN cgpu (written by `cgpu install-runtime`)\n"
END = "# END cgpu\n"
#: Marks of 0.1.0: of lines that it made comments, and of those that it wrote in their place.
_ASIDE = "# cgpu put aside: "
_OURS = "  # cgpu\n"


def version(text: str, path: str) -> int:
    """Return the version of a configuration, 1 if it names none."""
    found = parsed(text, path).get("version", 1)
    if not isinstance(found, int):
        raise InstallError(f"/{path}: version {found!r} is no number")
    return found


def plugin(version: int) -> str:
    """Return the plugin that has the runtimes in a configuration of *version*."""
    return PLUGINS[max(1, min(version, max(PLUGINS)))]


def parsed(text: str, path: str) -> Table:
    """Return a parsed configuration. InstallError: it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InstallError(f"/{path}: not TOML ({error}); correct it first") from None


def of_runtimes(number: int, entries: Mapping[str, Table], default: str | None) -> str:
    """Return a text with *entries* alone, of version *number*; 0 leaves the version out."""
    import tomlkit

    section: Table = {"runtimes": dict(entries)}
    if default:
        section = {"default_runtime_name": default, **section}
    whole: Table = {"version": number} if number else {}
    whole["plugins"] = {plugin(number or max(PLUGINS)): {"containerd": section}}
    return tomlkit.dumps(whole)


def with_runtimes(text: str, entries: Mapping[str, Table], default: str | None, path: str) -> str:
    """Return *text* with *entries* among its runtimes, and everything else as it stands."""
    document = _document(text, path)
    section: Any = document
    for key in ("plugins", plugin(version(text, path)), "containerd"):
        section = _inner(section, key, path)
    if default:
        section["default_runtime_name"] = default
    runtimes = _inner(section, "runtimes", path)
    for name, entry in entries.items():
        runtimes[name] = entry
    return document.as_string()


def imports(text: str, path: str) -> list[str]:
    """Return the patterns of further files that it names itself."""
    return [str(one) for one in parsed(text, path).get("imports") or ()]


def with_import(text: str, pattern: str, path: str) -> str:
    """Return *text* with *pattern* among the files that it imports."""
    import tomlkit

    document = _document(text, path)
    imports = document.get("imports")
    if isinstance(imports, list):
        if pattern not in imports:
            imports.append(pattern)
        return document.as_string()
    # A key of the top level must stand before the first table; at the end it would be in that.
    line = tomlkit.dumps({"imports": [pattern]})
    return line + text


def without(text: str, original: str | None, written: str | None, path: str) -> str | None:
    """
    Return *text* without what we had *written* into *original*, for an uninstallation.

    Changes that others have made since stay. Without any, the result is *original*.
    """
    if text == written:
        return original
    text = _unmarked(text)
    document, before = _document(text, path), parsed(original or "", path)
    after = parsed(written or "", path)
    for pattern in after.get("imports", ()):
        if pattern not in before.get("imports", ()) and pattern in document.get("imports", ()):
            document["imports"].remove(pattern)
    if document.get("imports") == [] and "imports" not in before:
        document.remove("imports")
    for name in PLUGINS.values():
        place = ("plugins", name, "containerd")
        _restore(table(document, *place), table(before, *place), table(after, *place))
        for depth in range(4, 0, -1):
            # Remove the tables that we had added around our entries.
            *outer, key = (*place, "runtimes")[:depth]
            parent = table(document, *outer)
            if parent.get(key) == {} and key not in table(before, *outer):
                del parent[key]
    left = document.as_string()
    said = parsed(left, path)
    if said == before or (original is None and said.keys() <= {"version"}):
        return original
    return left


def _unmarked(text: str) -> str:
    """Remove the marked block and lines that 0.1.0 wrote."""
    lines = without_block(text).splitlines(keepends=True)
    return "".join(line.removeprefix(_ASIDE) for line in lines if not line.endswith(_OURS))


def _restore(section: Table, before: Table, after: Table) -> None:
    """Undo the difference of *before* and *after* in a plugin's *section*, and our runtimes."""
    runtimes, former, written = (table(one, "runtimes") for one in (section, before, after))
    ours = [
        name
        for name, entry in runtimes.items()
        if is_ours(binary(entry)) or (name not in former and entry == written.get(name))
    ]
    if section.get("default_runtime_name") in ours:
        del section["default_runtime_name"]
        if "default_runtime_name" in before:
            section["default_runtime_name"] = before["default_runtime_name"]
    for name in ours:
        del runtimes[name]
        if name in former:
            runtimes[name] = former[name]


def binary(entry: object) -> str:
    """Return the program that a runtime's table names, if it names one."""
    return str(table(entry, "options").get("BinaryName") or "")


def with_block(text: str, block: str) -> str:
    """Return *text* with *block* at its end, between our marks, in the place of a former one."""
    body = without_block(text)
    return f"{body}{'' if body.endswith(chr(10)) else chr(10)}{BEGIN}{block}{END}"


def without_block(text: str) -> str:
    """Return *text* as it was before :func:`with_block`."""
    before, begin, rest = text.partition(BEGIN)
    return before + rest.partition(END)[2] if begin else text


def _document(text: str, path: str) -> TOMLDocument:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    parsed(text, path)
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise InstallError(f"/{path}: {error}; correct it first") from None


def _inner(parent: Any, key: str, path: str) -> Any:
    import tomlkit

    if key not in parent:
        parent[key] = tomlkit.table(is_super_table=True)
    if not isinstance(parent[key], dict):
        raise InstallError(f"/{path}: {key!r} is no table; correct it first")
    return parent[key]


def loaded(files: Iterable[str]) -> list[tuple[str, Table]]:
    """Return those of *files* that set runtimes for pods, with the plugin's section of each."""
    found = []
    for name in files:
        path = Path(name)
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        section = table(parsed(text, name), "plugins", plugin(version(text, name)))
        if section:
            found.append((name, section))
    return found
