# SPDX-License-Identifier: MIT
"""
What parameters of controls and classes name by NVIDIA's headers: clients, descriptors, memory.

Read as text, because a compiler tells offsets of fields and not which there are; the offsets
are the compiler's.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONTROL = re.compile(
    r"#define\s+(NV\w+)\s+\((0x[0-9a-fA-F]+)U?\)\s*/\*\s*finn: Evaluated from"
    r' "[^"]*\|\s*(\w+?)(?:_MESSAGE_ID)?\)?"'
)
TYPE = re.compile(r"typedef\s+(?:struct|union)(?:\s+\w+)?\s*\{")
ALIAS = re.compile(r"typedef\s+(?:struct\s+)?(\w+)\s+(\w+);")
FIELD = re.compile(
    r"(?:NV_DECLARE_ALIGNED\(\s*)?\b(\w+)\s+(\w+)\s*((?:\[[^\]]*\])*)\s*(?:,\s*\d+\s*\))?"
    r"\s*(?:NV_ALIGN_BYTES\(\d+\))?\s*;"
)
BLOCK = re.compile(r"\b(?:struct|union)\s*\w*\s*\{")
MEMBER = re.compile(r"\s*(\w*)\s*((?:\[[^\]]*\])*)\s*;")
DESCRIPTOR = re.compile(r"fd|\w+Fd|\w+Descriptor")


@dataclass(frozen=True)
class Place:
    """A field of parameters that names what is not an object of the caller's own client."""

    what: str
    """``pointer``, ``descriptor`` or ``client``."""
    field: str
    at: int
    is_list: bool
    """Several of them, one after another."""


@dataclass(frozen=True)
class Parameters:
    name: str
    struct: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Named:
    """Parameters by the number of their control, and of their class."""

    controls: dict[int, Parameters]
    classes: dict[int, Parameters]


def _end(text: str, start: int) -> int:
    """Return where the block ends that begins before *start*."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[start], 0)
        start += 1
    return start


class _Types:
    def __init__(self, texts: list[str]) -> None:
        self.body: dict[str, str] = {}
        self.alias: dict[str, str] = {}
        for text in texts:
            for match in TYPE.finditer(text):
                end = _end(text, match.end())
                name = re.match(r"\s*(\w+)", text[end:])
                if name:
                    self.body[name[1]] = text[match.end() : end - 1]
            self.alias |= {new: old for old, new in ALIAS.findall(text)}

    def of(self, *names: str) -> str | None:
        return next((n for n in (self.alias.get(n, n) for n in names) if n in self.body), None)

    def fields(self, body: str, path: str = "") -> Iterator[tuple[str, str, bool]]:
        """Each field that matters: what it is, its path in C, and whether there are several."""
        while block := BLOCK.search(body):
            end = _end(body, block.end())
            name = MEMBER.match(body, end)
            assert name
            yield from self._inner(body[block.end() : end - 1], path, name[1], name[2])
            body = body[: block.start()] + body[name.end() :]
        for kind, name, array in FIELD.findall(body):
            if kind == "NvP64":
                yield "pointer", path + name, bool(array)
            elif kind in ("NvS32", "NvU32", "NvU64", "int") and DESCRIPTOR.fullmatch(name):
                yield "descriptor", path + name, bool(array)
            elif kind == "NvHandle" and "lient" in name:
                yield "client", path + name, bool(array)
            elif inner := self.of(kind):
                yield from self._inner(self.body[inner], path, name, array)

    def _inner(
        self, body: str, path: str, name: str, array: str
    ) -> Iterator[tuple[str, str, bool]]:
        first = re.sub(r"\[[^\]]*\]", "[0]", array)
        for what, field, several in self.fields(body, f"{path}{name}{first}." if name else path):
            yield what, field, several or bool(array)


def read(root: Path, scratch: Path) -> Named:
    """Return what stands in the headers below *root* (``src/common/sdk/nvidia/inc``)."""
    found: dict[tuple[str, int], tuple[str, str]] = {}
    headers = sorted([*root.glob("ctrl/**/*.h"), *root.glob("class/cl*.h"), root / "nvos.h"])
    raw = {path: path.read_text(errors="replace") for path in headers}
    plain = {path: re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
             for path, text in raw.items()}  # fmt: skip
    types = _Types(list(plain.values()))
    for text in raw.values():
        for name, number, params in CONTROL.findall(text):
            struct = types.of(params, name.replace("_CMD_", "_") + "_PARAMS", name + "_PARAMS")
            if struct:
                found["control", int(number, 16)] = name, struct
    for path, text in plain.items():
        if file := re.fullmatch(r"cl([0-9a-f]{4})\w*\.h", path.name):
            for struct in re.findall(r"\}\s*(\w+_ALLOC(?:ATION)?_PARAM\w+)", text):
                found["class", int(file[1], 16)] = struct, struct
    fields = {struct: list(types.fields(types.body[struct])) for _, struct in found.values()}
    wanted = {s: [field for _, field, _ in f] for s, f in fields.items() if f}
    defines = re.compile(rf"\}}\s*(?:{'|'.join(wanted)})\b")
    used = [path for path in headers if defines.search(plain[path])]
    at = _offsets(root, scratch, used, wanted)
    named = Named({}, {})
    for (kind, number), (name, struct) in found.items():
        places = tuple(Place(w, f, at[struct, f], several) for w, f, several in fields[struct])
        into = named.controls if kind == "control" else named.classes
        into[number] = Parameters(name, struct, places)
    return named


def _offsets(
    root: Path, scratch: Path, headers: list[Path], fields: dict[str, list[str]]
) -> dict[tuple[str, str], int]:
    rows = [(struct, field) for struct, of in fields.items() for field in of]
    lines = ["#include <stdio.h>", '#include "nvtypes.h"', '#include "nvos.h"']
    lines += [f'#include "{path.relative_to(root)}"' for path in headers]
    lines += ["int main(void) {"]
    lines += [f'printf("%zu\\n", __builtin_offsetof({struct}, {field}));' for struct, field in rows]
    source, program = scratch / "places.c", scratch / "places"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run(["cc", "-std=gnu11", "-w", f"-I{root}", source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return dict(zip(rows, map(int, printed.split()), strict=True))
