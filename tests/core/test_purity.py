# SPDX-License-Identifier: MIT
"""The core needs nothing but memory primitives: no libc, no kernel, no clock, no allocation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

KMOD = Path(__file__).parents[2] / "kmod"
CORE = KMOD / "core"
SOURCES = sorted(CORE.rglob("*.c"))
FILES = sorted(CORE.rglob("*.[ch]"))
# What any C compiler may call by itself, and every kernel has.
MEMORY = {"memcpy", "memmove", "memset", "memcmp"}
# what rows of a table call has the parameters that any of them needs
FLAGS = [
    *("-std=gnu99", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-O2"),
    *("-iquote", str(KMOD)),
]


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of the core in one object file."""
    out = tmp_path_factory.mktemp("core") / "core.o"
    subprocess.run(
        ["gcc", *FLAGS, "-ffreestanding", "-nostdlib", "-fno-stack-protector", "-r", "-o", out,
         *SOURCES],
        check=True,
    )  # fmt: skip
    return out


def test_the_core_links_with_nothing_but_memory_primitives(linked: Path) -> None:
    symbols = subprocess.run(
        ["nm", "--undefined-only", linked], check=True, capture_output=True, text=True
    ).stdout.split()
    assert set(symbols) - {"U"} <= MEMORY


def test_the_core_keeps_no_state_of_its_own(linked: Path) -> None:
    sizes = subprocess.run(["size", "-A", linked], check=True, capture_output=True, text=True)
    writable = re.findall(r"^\.((?:data|bss)\S*)\s+(\d+)", sizes.stdout, re.MULTILINE)
    assert {name: int(size) for name, size in writable if int(size) and ".rel.ro" not in name} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_file_of_the_core_includes_the_core_alone(path: Any) -> None:
    if path.name == "types.h":
        return
    included = re.findall(r"#\s*include\s+(\S+)", path.read_text())
    assert set(included) <= {f'"{one.relative_to(KMOD)}"' for one in FILES}


def test_only_types_h_knows_the_kernel() -> None:
    knowing = [path.name for path in FILES if "__KERNEL__" in path.read_text()]
    assert knowing == ["types.h"]
    conditions = [
        path.name for path in FILES
        if re.search(r"^\s*#\s*(if|ifdef)\b", path.read_text(), re.MULTILINE)
    ]  # fmt: skip
    assert conditions == ["types.h"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_file_of_the_core_names_its_licence_and_uses_no_floating_point(path: Any) -> None:
    text = path.read_text()
    assert "SPDX-License-Identifier: GPL-2.0-only OR MIT" in text.splitlines()[0]
    code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', "", text, flags=re.DOTALL)
    assert not re.search(r"\b(float|double|goto\s+\*|malloc|free\(|printf)\b", code)


def test_a_constant_beyond_an_int_makes_no_other_unsigned() -> None:
    """
    GCC 13 gives all constants of an enum the type that its largest wants, GCC 12 does not: a
    comparison of a negative time with one of them came out differently on the two.
    """
    wide: dict[str, set[int]] = {}
    for source in SOURCES:
        command = [
            "gcc",
            "-std=gnu99",
            "-fsyntax-only",
            "-Wpedantic",
            "-iquote",
            str(KMOD),
            str(source),
        ]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        for file, line in re.findall(r"(\S+?):(\d+):\d+: .*enumerator values", said):
            wide.setdefault(file, set()).add(int(line))
    assert wide, "CGPU_NO_OFFSET at least"
    for file, lines in wide.items():
        text = Path(file).read_text()
        for found in re.finditer(r"\benum\b[^;{}]*\{(.*?)\}", text, re.DOTALL):
            first = text.count("\n", 0, found.start()) + 1
            last = text.count("\n", 0, found.end()) + 1
            # NVIDIA's numbers are compared with unsigned ones alone
            if lines & set(range(first, last + 1)) and not file.endswith(
                ("rm/abi.h", "rm/numbers.h")
            ):
                names = re.findall(r"\b(\w+)\s*=", found[1])
                assert len(names) == 1, f"{file}:{first}"
