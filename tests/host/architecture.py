# SPDX-License-Identifier: MIT
"""
Who uses whom: imports, includes, calls. By file and by room: ``python -m tests.host.architecture``.

A room is a folder, or a file that stands beside the rooms. A file is named without its suffix:
``core/memory/ledger`` is ``ledger.c`` with ``ledger.h``, for what either includes the other needs.
Only the header that is named like its room, ``core/sched/sched.h``, stands by itself: it is the
room's face and its structs, which all of its files include.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

Graph = dict[str, set[str]]

#: The lowest first; rooms of one level do not know each other.
PYTHON_ORDER = (
    ("__init__", "errors", "core", "json_text", "signals"),
    ("request",),
    ("dialects", "tree", "simulate"),
    ("parking",),
    ("agent", "oci", "web"),
    ("api",),
    ("install", "kubernetes", "batch"),
    ("install.doctor",),
    # What cffi builds is made from outside, and programs of 0.1.0 import these names.
    ("_core_build", "_agent_build", "oci_hook", "runtime"),
    ("cli",),
)
C_ORDER = (
    ("compat", "compat/probes", "core"),
    ("core/rm",),
    ("core/memory",),
    ("core/sched", "core/call"),
    ("core/tree",),
    ("door",),
    ("linux", "bridge"),
)

#: The files of the scheduler: what is due, who is behind, who is runnable, who is next, what moves.
SCHEDULER_ORDER = tuple(
    tuple(f"core/sched/{name}" for name in level)
    for level in (
        ("bounds", "tuning"),
        ("policy",),
        ("sched.h",),
        ("expiry", "gates"),
        ("account",),
        ("budget", "gang"),
        ("pause",),
        ("fair", "period", "slices"),
        ("demand", "switch_log", "plan"),
        ("window",),
        ("sched", "events"),
        ("loop",),
    )
)

#: The agent's C: what outlives it, what it asks, a container's books, a card, calls, its life.
AGENT_ORDER = (
    ("agent",),
    ("state",),
    ("host", "driver"),
    ("gate",),
    ("tenant",),
    ("card",),
    ("call", "holder"),
    ("life",),
    ("main", "node_file"),
)

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\\\.|[^\"\\\\\n])*\"", re.DOTALL)
#: A function's head, which stands at the begin of a line; what it calls is indented.
_FUNCTION = re.compile(
    r"^(?P<head>(?!typedef)[a-z_][^;{}()\n#]*(?:\(\([^;{}]*?\)\)[^;{}()]*)?)"
    r"\b(?P<name>\w+)\([^;{}]*\)\n\{",
    re.MULTILINE,
)
#: What may be a function's name: no field.
_NAME = re.compile(r"(?<![.>\w])[a-z]\w*\b")


def python() -> Graph:
    """Return who imports whom in the package."""
    return python_files(REPOSITORY / "pycgpu", {"cli": REPOSITORY / "cli"})


def c() -> Graph:
    """Return who uses whom in the modules, without the driver that ``sim`` stands for."""
    files = uses(REPOSITORY / "kmod", "sim/")
    return {name: used for name, used in files.items() if not name.startswith("sim/")}


def agent() -> Graph:
    """Return who uses whom in the agent's C."""
    return uses(REPOSITORY / "pycgpu/agent")


def python_files(package: Path, mapped: Mapping[str, Path]) -> Graph:
    """
    Return what each module of *package* imports of it, at the top or inside a function.

    Args:
        mapped: folders that stand elsewhere in the tree, by the name that they have in the package.
    """
    modules = dict(_modules(package, ""))
    for name, folder in mapped.items():
        modules |= dict(_modules(folder, f"{name}."))
    return {name: set(_imports(name, path, modules)) for name, path in modules.items()}


def _modules(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*.py")):
        name = ".".join((*path.relative_to(folder).parent.parts, path.stem))
        yield prefix + name, path


def _imports(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    here = ["pycgpu", *name.split(".")]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = here[: len(here) - node.level] if node.level else []
            base = start + (node.module.split(".") if node.module else [])
            targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for package, *words in targets:
            if package != "pycgpu":
                continue
            # The last word may be a name inside the module, or inside a package's __init__.
            for candidate in (words, [*words, "__init__"], words[:-1], [*words[:-1], "__init__"]):
                found = ".".join(candidate)
                if found in modules:
                    if found != name:
                        yield found
                    break


def c_files(root: Path, suffixes: Iterable[str] = (".c", ".h")) -> Graph:
    """Return what each C file below *root* includes of those below it."""
    files: Graph = {}
    for path in sorted(path for suffix in suffixes for path in root.rglob(f"*{suffix}")):
        used = files.setdefault(_stem(path, root), set())
        for included in _INCLUDE.findall(path.read_text()):
            # As the compiler looks: beside the file, then where -iquote leads.
            found = [base / included for base in (path.parent, root) if (base / included).exists()]
            if found and _stem(found[0], root) != _stem(path, root):
                used.add(_stem(found[0], root))
    return files


def uses(root: Path, apart: str = "/") -> Graph:
    """
    Return what each C file below *root* includes of those below it, and whose functions it calls.

    Args:
        apart: how the files begin that stand for another program, and may have the same functions.
    """
    called = calls(path for path in root.rglob("*.c") if not _stem(path, root).startswith(apart))
    return {
        name: used | {_stem(path, root) for path in called.get(root / f"{name}.c", ())}
        for name, used in c_files(root).items()
    }


def calls(paths: Iterable[Path]) -> dict[Path, set[Path]]:
    """
    Return of which others of the C files each uses functions.

    A function that is handed on counts as called. One of the file's own hides another's.
    """
    texts = {path: _COMMENT.sub(" ", path.read_text()) for path in sorted(paths)}
    own: dict[Path, set[str]] = {}
    home: dict[str, Path] = {}
    for path, text in texts.items():
        own[path] = {found["name"] for found in _FUNCTION.finditer(text)}
        home |= {
            found["name"]: path
            for found in _FUNCTION.finditer(text)
            if "static" not in found["head"].split()
        }
    return {
        path: {home[name] for name in set(_NAME.findall(text)) - own[path] if name in home}
        for path, text in texts.items()
    }


def _stem(path: Path, root: Path) -> str:
    name = path.resolve().relative_to(root.resolve())
    face = name.suffix == ".h" and name.stem == name.parent.name
    return str(name if face else name.with_suffix(""))


def rooms(files: Graph, separator: str) -> Graph:
    """Return which rooms use which others."""
    found: Graph = {}
    for name, used in files.items():
        room = room_of(name, separator)
        others = {room_of(one, separator) for one in used}
        found.setdefault(room, set()).update(others - {room})
    return found


def within(files: Graph, room: str) -> Graph:
    """Return the arrows between the files of one room."""
    return {
        name: {one for one in used if room_of(one, "/") == room}
        for name, used in files.items()
        if room_of(name, "/") == room
    }


def room_of(name: str, separator: str) -> str:
    """Return the folder of a file; a file at the top is a room of its own."""
    folder, _, _ = name.rpartition(separator)
    return folder or name


def upward(found: Graph, order: Iterable[Iterable[str]]) -> list[str]:
    """Return the arrows that do not point down *order*, whose levels stand the lowest first."""
    level = {room: number for number, level in enumerate(order) for room in level}
    unknown = sorted(found.keys() - level.keys())
    return [f"{room} stands in no level" for room in unknown] + [
        f"{room} → {used}"
        for room, others in sorted(found.items())
        for used in sorted(others)
        if room in level and used in level and level[used] >= level[room]
    ]


def circles(files: Graph) -> list[set[str]]:
    """Return the sets of files of which each needs, by some way, all others of its set."""
    reach: Graph = {}
    for name in files:
        seen: set[str] = set()
        ahead = list(files[name])
        while ahead:
            one = ahead.pop()
            if one not in seen:
                seen.add(one)
                ahead += files.get(one, ())
        reach[name] = seen
    found: list[set[str]] = []
    for name in sorted(files):
        if name in reach[name] and not any(name in circle for circle in found):
            found.append({name} | {one for one in reach[name] if name in reach.get(one, ())})
    return found


def drawing(found: Graph, order: Iterable[Iterable[str]]) -> str:
    """Return the rooms as text, the highest first, each with what it uses."""
    lines = []
    width = max(map(len, found))
    for level in reversed(list(order)):
        for room in level:
            if room in found:
                lines.append(f"{room:{width}} → {' '.join(sorted(found[room])) or '–'}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(drawing(rooms(python(), "."), PYTHON_ORDER))
    print()
    print(drawing(rooms(c(), "/"), C_ORDER))
    print()
    print(drawing(within(c(), "core/sched"), SCHEDULER_ORDER))
    print()
    print(drawing(rooms(agent(), "/"), AGENT_ORDER))
