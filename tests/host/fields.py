# SPDX-License-Identifier: MIT
"""Which file of C writes which field of which struct. ``python -m tests.host.fields FOLDER``."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

# It comes with cffi, without types.
from pycparser import c_ast, c_parser  # type: ignore[import-untyped]

from tests.host.architecture import REPOSITORY

#: What pycparser does not know of the system's headers.
_PLAIN = (
    "-D__attribute__(x)=",
    "-D__extension__=",
    "-D__inline=",
    "-D__restrict=",
    "-D__asm__(x)=",
)

#: (struct, field) → names of the files that write it
Writers = dict[tuple[str, str], set[str]]


def writers(folder: Path) -> Writers:
    """Return the files of *folder* that assign to each field, below the repository's ``kmod``."""
    found: Writers = {}
    for path in sorted(folder.glob("*.c")):
        for owner, field in _written(_parsed(path)):
            found.setdefault((owner, field), set()).add(path.stem)
    return found


def _parsed(path: Path) -> c_ast.FileAST:
    done = subprocess.run(
        ["cc", "-E", "-P", "-std=gnu99", *_PLAIN, "-iquote", str(REPOSITORY / "kmod"), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    text = re.sub(r"__builtin_offsetof *\([^)]*\)", "0", done.stdout)
    return c_parser.CParser().parse(text, str(path))


def _written(tree: c_ast.FileAST) -> Iterator[tuple[str, str]]:
    structs: dict[str, dict[str, c_ast.Node]] = {}
    for node in tree.ext:
        for struct in _structs(node):
            structs[struct.name] = {one.name: one.type for one in struct.decls}
    functions = {node.name: node.type for node in tree.ext if isinstance(node, c_ast.Decl)} | {
        node.decl.name: node.decl.type for node in tree.ext if isinstance(node, c_ast.FuncDef)
    }
    for node in tree.ext:
        # one that makes a state begins with what its owners find
        if isinstance(node, c_ast.FuncDef) and not node.decl.name.endswith("_init"):
            yield from _Function(node, structs, functions).written()


def _structs(node: c_ast.Node) -> Iterator[c_ast.Struct]:
    if isinstance(node, c_ast.Struct) and node.decls and node.name:
        yield node
    for _, child in node.children():
        if not isinstance(node, c_ast.FuncDef):
            yield from _structs(child)


class _Function:
    """One function: its variables' types, and what it assigns to."""

    def __init__(
        self,
        node: c_ast.FuncDef,
        structs: Mapping[str, Mapping[str, c_ast.Node]],
        functions: Mapping[str, c_ast.Node],
    ) -> None:
        self.structs = structs
        self.functions = functions
        self.nodes = list(_all(node))
        declared = [one for one in self.nodes if isinstance(one, c_ast.Decl) and one.name]
        self.types = {one.name: one.type for one in declared}

    def written(self) -> Iterator[tuple[str, str]]:
        for node in self.nodes:
            if isinstance(node, c_ast.Assignment):
                yield from self._field(node.lvalue)
            elif isinstance(node, c_ast.UnaryOp) and node.op in ("++", "--", "p++", "p--"):
                yield from self._field(node.expr)

    def _field(self, target: c_ast.Node) -> Iterator[tuple[str, str]]:
        while isinstance(target, c_ast.ArrayRef):
            target = target.name
        if isinstance(target, c_ast.StructRef) and not self._is_own(target):
            yield self._struct(self._type(target.name)), target.field.name

    def _is_own(self, target: c_ast.Node) -> bool:
        """Return whether it is a part of a variable of the function's own."""
        while isinstance(target, c_ast.StructRef) and target.type == ".":
            target = target.name
        return (
            isinstance(target, c_ast.ID)
            and isinstance(self.types.get(target.name), c_ast.TypeDecl)
            and not isinstance(self._type(target), c_ast.PtrDecl)
        )

    def _type(self, node: c_ast.Node) -> c_ast.Node | None:
        if isinstance(node, c_ast.ID):
            return self.types.get(node.name)
        if isinstance(node, c_ast.StructRef):
            return self.structs.get(self._struct(self._type(node.name)), {}).get(node.field.name)
        if isinstance(node, c_ast.ArrayRef):
            return self._inner(self._type(node.name))
        if isinstance(node, c_ast.UnaryOp) and node.op == "*":
            return self._inner(self._type(node.expr))
        if isinstance(node, c_ast.FuncCall):
            return self.functions[node.name.name].type
        return None

    @staticmethod
    def _inner(node: c_ast.Node | None) -> c_ast.Node | None:
        return node.type if isinstance(node, c_ast.PtrDecl | c_ast.ArrayDecl) else node

    @staticmethod
    def _struct(node: c_ast.Node | None) -> str:
        while node is not None and not isinstance(node, c_ast.Struct):
            node = getattr(node, "type", None)
        return node.name or "?" if node is not None else "?"


def _all(node: c_ast.Node) -> Iterator[c_ast.Node]:
    yield node
    for _, child in node.children():
        yield from _all(child)


if __name__ == "__main__":
    for (owner, field), names in sorted(writers(Path(sys.argv[1]).resolve()).items()):
        if len(names) > 1:
            print(f"{owner}.{field}: {' '.join(sorted(names))}")
