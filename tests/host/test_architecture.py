# SPDX-License-Identifier: MIT
"""Imports, includes and calls point downwards, and no files need each other in a circle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.host import architecture, fields
from tests.host.architecture import (
    AGENT_ORDER,
    C_ORDER,
    PYTHON_ORDER,
    REPOSITORY,
    SCHEDULER_ORDER,
    Graph,
)


@pytest.fixture(scope="module")
def python() -> Graph:
    return architecture.python()


@pytest.fixture(scope="module")
def c() -> Graph:
    return architecture.c()


def test_imports_point_downwards(python: Graph) -> None:
    rooms = architecture.rooms(python, ".")
    print(architecture.drawing(rooms, PYTHON_ORDER))
    assert rooms["install"] >= {"oci", "tree", "errors"}
    assert architecture.upward(rooms, PYTHON_ORDER) == []


def test_no_modules_import_each_other_in_a_circle(python: Graph) -> None:
    assert architecture.circles(python) == []


def test_includes_and_calls_point_downwards(c: Graph) -> None:
    rooms = architecture.rooms(c, "/")
    print(architecture.drawing(rooms, C_ORDER))
    assert rooms["linux"] >= {"core/tree", "door"}
    assert architecture.upward(rooms, C_ORDER) == []


def test_the_rooms_of_the_agent_call_downwards() -> None:
    files = architecture.agent()
    rooms = architecture.rooms(files, "/")
    print(architecture.drawing(rooms, AGENT_ORDER))
    assert rooms["call"] >= {"card", "tenant"}
    assert "state/door" in files["card/governor"]
    assert architecture.upward(rooms, AGENT_ORDER) == []


def test_the_files_of_the_scheduler_call_downwards(c: Graph) -> None:
    files = architecture.within(c, "core/sched")
    print(architecture.drawing(files, SCHEDULER_ORDER))
    assert files["core/sched/plan"] >= {"core/sched/fair", "core/sched/period"}
    assert architecture.upward(files, SCHEDULER_ORDER) == []


def test_each_field_of_the_scheduler_is_written_by_one_file() -> None:
    found = fields.writers(REPOSITORY / "kmod/core/sched")
    assert found["cgpu_sched_entity", "lag_ns"] == {"account"}
    assert found["cgpu_sched_gates", "shut_mask"] == {"gates"}
    assert {field: names for field, names in found.items() if len(names) > 1} == {}


def test_no_headers_include_each_other_in_a_circle() -> None:
    assert architecture.circles(architecture.c_files(REPOSITORY / "kmod", [".h"])) == []


def test_no_sources_need_each_other_in_a_circle(c: Graph) -> None:
    assert architecture.circles(c) == []


def test_no_sources_of_the_agent_need_each_other_in_a_circle() -> None:
    assert architecture.circles(architecture.agent()) == []


def test_the_module_is_built_of_all_of_the_core() -> None:
    """What is missing there shows only where a kernel's headers are."""
    kmod = REPOSITORY / "kmod"
    text = (kmod / "Kbuild").read_text().replace("\\\n", " ")
    listed = {
        folder + name.removesuffix(".o")
        for folder, names in re.findall(r"\$\(addprefix (core/\S*),([^)]*)\)", text)
        for name in names.split()
    }
    found = {str(c.relative_to(kmod).with_suffix("")) for c in (kmod / "core").rglob("*.c")}
    assert found == listed


def test_the_digest_of_the_state_has_what_lies_in_every_table() -> None:
    """A core that has it longer would read entries as long as the former core made them."""
    kmod = REPOSITORY / "kmod"
    entry = re.compile(r"cgpu_table_init\(&.*sizeof\((struct \w+)\)\)")
    entries = {m[1] for c in (kmod / "core").rglob("*.c") for m in entry.finditer(c.read_text())}
    digested = re.findall(
        r"cgpu_digest\(digest, sizeof\((struct \w+)\)\)", (kmod / "linux/registry.c").read_text()
    )
    assert len(entries) == 4
    assert entries <= set(digested)


def test_the_simulated_driver_and_ours_share_layouts_and_nothing_else() -> None:
    files = architecture.c_files(REPOSITORY / "kmod")
    assert any(name.startswith("sim/") for name in files)
    for name, used in files.items():
        others = [one for one in used if one.startswith("sim/") != name.startswith("sim/")]
        assert others in ([], ["core/rm/structs"]), name


# ---- the drawing itself


def write(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_c", ".c").replace("_h", ".h")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    "text",
    [
        "from ..top import high",
        "from ..top.high import name",
        "from pycgpu.top import high",
        "import pycgpu.top.high",
        "def late():\n    from ..top.high import name",
        "if TYPE_CHECKING:\n    from ..top import high",
    ],
)
def test_every_form_of_import_is_an_arrow(tmp_path: Path, text: str) -> None:
    for folder in ("low", "top"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "low/deep.py").write_text(text)
    (tmp_path / "top/high.py").write_text("from ..low.deep import x")
    files = architecture.python_files(tmp_path, {})
    assert files["low.deep"] == {"top.high"}
    rooms = architecture.rooms(files, ".")
    assert architecture.upward(rooms, (("low",), ("top",))) == ["low → top"]
    assert architecture.circles(files) == [{"low.deep", "top.high"}]


def test_a_source_and_its_header_are_one_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        a__one_h="",
        a__one_c='#include "one.h"\n#include "b/two.h"',
        b__two_h="",
        b__two_c='#include "two.h"\n # include "../a/one.h"\n#include <linux/fs.h>',
        b__free_c='#include "two.h"',
        b__b_h="",
        b__b_c='#include "b.h"\n#include "two.h"',
    )
    files = architecture.c_files(tmp_path)
    assert files == {
        "a/one": {"b/two"},
        "b/two": {"a/one"},
        "b/free": {"b/two"},
        "b/b": {"b/b.h", "b/two"},
        "b/b.h": set(),
    }
    assert architecture.circles(files) == [{"a/one", "b/two"}]


def test_a_call_is_an_arrow_and_a_name_in_passing_is_none(tmp_path: Path) -> None:
    write(
        tmp_path,
        low__one_c="int low_one(int a)\n{\n\treturn high_two(a);\n}\n",
        high__two_c="__attribute__((constructor)) int high_two(int a)\n{\n\treturn a;\n}\n",
        high__three_c="static int low_one(int a)\n{\n\treturn a;\n}\n"
        "int three(void)\n{\n\treturn low_one(1);\n}\n",
        high__four_c="/* low_one() */\nint four(struct s *s)\n"
        '{\n\treturn s->low_one + puts("low_one(1)");\n}\n',
        high__five_c="int five(void)\n{\n\treturn each(low_one);\n}\n",
    )
    assert architecture.uses(tmp_path) == {
        "low/one": {"high/two"},
        "high/two": set(),
        "high/three": set(),
        "high/four": set(),
        "high/five": {"low/one"},
    }


def test_who_writes_a_field_is_told_from_who_reads_it(tmp_path: Path) -> None:
    structs = "struct in { int a[2]; long b; };\nstruct out { struct in one, *two; int c; };\n"
    write(
        tmp_path,
        reads_c=structs + "long f(struct out *o) { return o->c + o->two->b; }",
        writes_c=structs
        + "static struct in *of(struct out *o) { return o->two; }\n"
        + "void g(struct out *o, int i) { o[1].one.a[i] |= 1; of(o)->b = 0; ++o->c; }",
        owns_c=structs + "long h(void) { struct out o; o.one.b = 1; return o.one.b; }",
        begins_c=structs + "void x_init(struct out *o) { o->c = 1; }",
    )
    assert fields.writers(tmp_path) == {
        (struct, field): {"writes"} for struct, field in (("in", "a"), ("in", "b"), ("out", "c"))
    }


def test_a_room_that_nobody_has_placed_is_told(tmp_path: Path) -> None:
    assert architecture.upward({"new": set()}, (("low",),)) == ["new stands in no level"]
