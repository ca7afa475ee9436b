# SPDX-License-Identifier: MIT
"""What a driver branch changed of all that the core and the bridge read: a list for a person."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pycgpu.core import Abi, lib  # noqa: E402  (below the root)
from tests.core import nvidia_headers  # noqa: E402
from tests.core.strategies import COMPARED  # noqa: E402

SDK = "src/common/sdk/nvidia/inc"
HEADERS = (
    SDK, "src/common/inc", "src/nvidia/arch/nvalloc/unix/include", "kernel-open/common/inc",
    "kernel-open/nvidia-uvm", "version.mk",
)  # fmt: skip
LAYOUTS = ROOT / "tests/core/nvidia_layouts.c"
UVM_HEADERS = ("kernel-open/nvidia-uvm/uvm_ioctl.h", "kernel-open/nvidia-uvm/uvm_linux_ioctl.h")
ESCAPE_HEADERS = (
    "src/nvidia/arch/nvalloc/unix/include/nv_escape.h",
    "kernel-open/common/inc/nv-ioctl-numbers.h",
    "kernel-open/common/inc/nv-ioctl-numa.h",
)
RM_OPS = "kernel-open/common/inc/nv-modeset-interface.h"


class Unusable(Exception):
    """The tree is none; the message says why, and what would be."""


@dataclass
class Report:
    """Findings by their heading, and what struct cgpu_abi should say."""

    found: dict[str, list[str]] = field(default_factory=dict)
    row: list[str] = field(default_factory=list)

    def add(self, heading: str, line: str) -> None:
        self.found.setdefault(heading, []).append(line)


def unpack(source: str, folder: Path) -> Path:
    """Return the tree that *source* names, a folder or CLONE@TAG."""
    if Path(source).is_dir() and (Path(source) / SDK).is_dir():
        return Path(source)
    clone, at, tag = source.rpartition("@")
    if not at:
        raise Unusable(f"{source}: no {SDK} there; name a folder of the source, or CLONE@TAG")
    archive = subprocess.run(
        ["git", "-C", clone, "archive", tag, *HEADERS], capture_output=True, check=False
    )
    if archive.returncode:
        raise Unusable(f"{source}: {archive.stderr.decode().strip()}")
    folder.mkdir()
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    return folder


# ------------------------------------------------------------------------ layouts


def layouts(tree: Path, scratch: Path) -> tuple[list[tuple[str, int, str]], list[str]]:
    """Rows of *tree* (name, NVIDIA's number, ours or "-"), and what does not compile any more."""
    lines = LAYOUTS.read_text().splitlines()
    gone: list[str] = []
    source, program = scratch / "layouts.c", scratch / "layouts"
    command = [
        "cc", "-std=gnu11", "-w", f"-I{ROOT / 'kmod'}",
        *(f"-I{tree / name}" for name in HEADERS if (tree / name).is_dir()), source, "-o", program,
    ]  # fmt: skip
    while True:
        source.write_text("\n".join(lines))
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if not built.returncode:
            break
        wrong = {
            int(line): why
            for line, why in re.findall(r"layouts\.c:(\d+):\d+: error: (.*)", built.stderr)
        }
        if not wrong:
            raise Unusable(f"the headers do not compile: {built.stderr.strip()[:300]}")
        for number in sorted(wrong):
            # A statement may have several lines; an error may be at any of them.
            first = last = number - 1
            while first and not re.search(r"[;{}]\s*$|^#", lines[first - 1]):
                first -= 1
            while not lines[last].rstrip().endswith(";"):
                last += 1
            text = " ".join(line.strip() for line in lines[first : last + 1])
            if text:
                gone.append(f"{text} — {wrong[number]}")
            lines[first : last + 1] = [""] * (last + 1 - first)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    rows = (line.rsplit(maxsplit=2) for line in printed.splitlines())
    return [(name, int(theirs), own) for name, theirs, own in rows], gone


def compare_layouts(tree: Path, abi: Abi, scratch: Path, report: Report) -> None:
    rows, gone = layouts(tree, scratch)
    for text in gone:
        report.add("gone: a field or a structure", text)
    for name, theirs, own in rows:
        ours = int(getattr(abi.raw, name) if own == "-" else own)
        if theirs == ours:
            continue
        report.add("structures that changed", f"{name}: {theirs}, was {ours}")
        if own == "-":
            report.row.append(f"abi->{name} = {theirs};")


# --------------------------------------------------------------- controls and classes


def _sizes(root: Path, scratch: Path, structs: set[str]) -> dict[str, int]:
    headers = sorted([*root.glob("ctrl/**/*.h"), *root.glob("class/cl*.h"), root / "nvos.h"])
    text = {path: path.read_text(errors="replace") for path in headers}
    defines = re.compile(r"\b(?:" + "|".join(sorted(structs)) + r")\s*;")
    used = [path for path in headers if defines.search(text[path])]
    lines = ["#include <stdio.h>", '#include "nvtypes.h"', '#include "nvos.h"']
    lines += [f'#include "{path.relative_to(root)}"' for path in used]
    lines += ["int main(void) {"]
    lines += [f'printf("{name} %zu\\n", sizeof({name}));' for name in sorted(structs)]
    source, program = scratch / "sizes.c", scratch / "sizes"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run(["cc", "-std=gnu11", "-w", f"-I{root}", source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return {name: int(size) for name, size in (line.split() for line in printed.splitlines())}


def _table(tree: Path, scratch: Path) -> tuple[nvidia_headers.Named, dict[str, int]]:
    named = nvidia_headers.read(tree / SDK, scratch)
    structs = {one.struct for table in (named.controls, named.classes) for one in table.values()}
    return named, _sizes(tree / SDK, scratch, structs)


def _places(parameters: nvidia_headers.Parameters) -> str:
    said = (f"{one.what} {one.field}@{one.at}" for one in parameters.places)
    return ", ".join(said) or "none"


def compare_numbers(tree: Path, since: Path | None, scratch: Path, report: Report) -> None:
    named, sizes = _table(tree, scratch)
    before, sizes_before = _table(since, scratch) if since else (None, {})
    for kind, find, now, then in (
        ("control", lib.cgpu_control_rule, named.controls, before and before.controls),
        ("class", lib.cgpu_class_rule, named.classes, before and before.classes),
    ):
        for number, one in sorted(now.items()):
            rule = find(number)
            listed = rule.judge != lib.CGPU_JUDGE_NONE
            told = f"{number:#010x} {one.name}"
            varying = rule.head or rule.params_bytes in (0, lib.CGPU_BY_BRANCH, lib.CGPU_AS_GIVEN)
            if not varying and rule.params_bytes != sizes[one.struct]:
                size = f"{sizes[one.struct]}, the list has {rule.params_bytes}"
                report.add(f"{kind}: another size than the list says", f"{told}: {size}")
            if then is None:
                continue
            old = then.get(number)
            if old is None and one.places:
                report.add(f"{kind}: new, and names things", f"{told}: {_places(one)}")
            elif old is None:
                known = "listed already" if listed else "refused, as it is not listed"
                report.add(f"{kind}: new, {known}", told)
            elif (listed or one.places) and one.places != old.places:
                was = f"{_places(one)}; was {_places(old)}"
                report.add(f"{kind}: names other things, or elsewhere", f"{told}: {was}")
            elif listed and sizes[one.struct] != sizes_before.get(old.struct):
                size = f"{sizes[one.struct]}, was {sizes_before.get(old.struct)}"
                report.add(f"{kind}: listed, of another size", f"{told}: {size}")
        for number in sorted(set(then or ()) - set(now)):
            if then and find(number).judge != lib.CGPU_JUDGE_NONE:
                report.add(f"{kind}: listed, and gone", f"{number:#010x} {then[number].name}")


# ------------------------------------------------------------------ escapes, UVM, bridge


def commands(tree: Path) -> dict[int, str]:
    text = "".join((tree / name).read_text() for name in UVM_HEADERS)
    plain = re.findall(r"#define (UVM_\w+)\s+UVM_IOCTL_BASE\((\d+)\)", text)
    return {int(number): name for name, number in plain}


def escapes(tree: Path) -> dict[int, str]:
    text = "".join((tree / name).read_text() for name in ESCAPE_HEADERS)
    plain = re.findall(r"#define (NV_ESC_\w+)\s+0x([0-9A-Fa-f]+)", text)
    based = re.findall(r"#define (NV_ESC_\w+)\s+\(NV_IOCTL_BASE \+ (\d+)\)", text)
    return {int(n, 16): name for name, n in plain} | {200 + int(n): name for name, n in based}


def compare_calls(tree: Path, since: Path | None, report: Report) -> None:
    for kind, judge, read, count in (
        ("UVM command", lib.cgpu_uvm_judge, commands, lib.CGPU_UVM_NUMBERS),
        ("escape", lib.cgpu_escape_judge, escapes, lib.CGPU_ESCAPES),
    ):
        now, then = read(tree), read(since) if since else {}
        for number in range(count):
            if judge(number) != lib.CGPU_JUDGE_NONE and number not in now:
                name = then.get(number, "")
                report.add(f"{kind}: listed, and not in these headers", f"{number} {name}".strip())
        for number in sorted(set(now) - set(then)) if since else ():
            report.add(f"{kind}: new", f"{number} {now[number]}")


def functions(tree: Path) -> dict[str, str]:
    """What the bridge may call: a function's name, and its types."""
    text = re.sub(r"/\*.*?\*/", "", (tree / RM_OPS).read_text(), flags=re.DOTALL)
    body = re.search(r"version_string;(.*?)\}\s*nvidia_modeset_rm_ops_t", text, re.DOTALL)
    if not body:
        raise Unusable(f"{tree / RM_OPS}: has no nvidia_modeset_rm_ops_t")
    found = {}
    for returned, name, said in re.findall(r"([\w ]+)\(\*(\w+)\)\s*\(([^)]*)\)", body[1]):
        types = (re.sub(r"\s*\b\w+$", "", one.strip()) for one in said.split(","))
        found[name] = f"{returned.strip()} ({', '.join(types)})"
    return found


def expected_functions(branch: int) -> dict[str, str]:
    """What kmod/bridge/cgpu_rm.c declares."""
    aware = ", NvBool" if branch >= 595 else ""
    stack = "nvidia_modeset_stack_ptr"
    return {
        "alloc_stack": f"int ({stack} *)",
        "free_stack": f"void ({stack})",
        "enumerate_gpus": "NvU32 (nv_gpu_info_t *)",
        "open_gpu": f"int (NvU32, {stack}{aware})",
        "close_gpu": f"void (NvU32, {stack}{aware})",
        "op": f"void ({stack}, void *)",
        "set_callbacks": "int (const nvidia_modeset_callbacks_t *)",
    }


def compare_bridge(tree: Path, branch: int, report: Report) -> None:
    now, ours = functions(tree), expected_functions(branch)
    for name in sorted(now.keys() | ours.keys()):
        if now.get(name) != ours.get(name):
            told = f"{name}: {now.get(name, 'gone')}, was {ours.get(name, 'not there')}"
            report.add("bridge: functions (kmod/bridge/cgpu_rm.c)", told)
    if list(now) != list(ours) and sorted(now) == sorted(ours):
        report.add("bridge: functions (kmod/bridge/cgpu_rm.c)", f"their order: {', '.join(now)}")


# ------------------------------------------------------------------------------- all


def version_of(tree: Path) -> str:
    try:
        found = re.search(r"NVIDIA_VERSION = (\S+)", (tree / "version.mk").read_text())
    except OSError:
        found = None
    return found[1] if found else "NNN.NN"


def write(report: Report, version: str, against: int) -> Iterator[str]:
    yield f"{version} beside branch {against}"
    for heading, lines in report.found.items():
        yield f"\n{heading}"
        yield from (f"  {line}" for line in lines)
    if not report.found:
        yield "\nno difference in what is read"
    branch = version.partition(".")[0]
    yield "\nto add, once the above has been looked at"
    yield f"  kmod/core/rm/versions.c: {branch} in known[]"
    if report.row:
        yield f"    if (branch >= {branch}) {{"
        yield from (f"        {line}" for line in report.row)
        yield "    }"
    yield f"  kmod/bridge/cgpu_rm.c: {branch} in known[]"
    yield f'  tests/core/strategies.py: {branch}: "{version}" in COMPARED'
    yield f"  docs/drivers.md: | {branch} | compared with the headers of {version} | | | |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/dev new-driver")
    parser.add_argument("--against", type=int, choices=COMPARED, default=max(COMPARED))
    parser.add_argument("--since", metavar="TREE")
    parser.add_argument("tree", metavar="TREE")
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        try:
            tree = unpack(options.tree, scratch / "tree")
            since = unpack(options.since, scratch / "since") if options.since else None
            compare_layouts(tree, Abi(COMPARED[options.against]), scratch, report)
            compare_numbers(tree, since, scratch, report)
            compare_calls(tree, since, report)
            compare_bridge(tree, options.against, report)
        except (Unusable, OSError) as error:
            print(f"new-driver: {error}", file=sys.stderr)
            return 2
        print("\n".join(write(report, version_of(tree), options.against)))
    return 1 if report.found else 0


if __name__ == "__main__":
    sys.exit(main())
