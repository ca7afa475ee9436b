# SPDX-License-Identifier: MIT
"""
The core's structs and its table against NVIDIA's own headers, in every branch.

Nothing of NVIDIA's is part of this project: the headers come from the clone that
``$CGPU_NVIDIA_SOURCE`` names.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pycgpu.core import Abi, lib
from tests.core import nvidia_headers
from tests.core.strategies import COMPARED
from tests.vm.driver import SourceNotFound, unpack_source

REPOSITORY = Path(__file__).resolve().parents[2]
HEADERS = (
    "src/common/sdk/nvidia/inc", "src/common/inc", "src/nvidia/arch/nvalloc/unix/include",
    "kernel-open/common/inc", "kernel-open/nvidia-uvm",
)  # fmt: skip


@pytest.mark.parametrize("branch", COMPARED)
def test_every_field_that_the_core_reads_is_where_nvidia_puts_it(
    branch: int, tmp_path: Path
) -> None:
    try:
        unpack_source(COMPARED[branch], tmp_path / "nvidia", *HEADERS)
    except SourceNotFound as error:
        pytest.skip(f"no source: {error}")
    program = tmp_path / "layouts"
    includes = [f"-I{tmp_path / 'nvidia' / name}" for name in HEADERS]
    source = REPOSITORY / "tests/core/nvidia_layouts.c"
    subprocess.run(
        ["cc", "-std=gnu11", "-w", f"-I{REPOSITORY / 'kmod'}", *includes, source, "-o", program],
        check=True,
    )
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    raw = Abi(COMPARED[branch]).raw
    rows = [line.rsplit(maxsplit=2) for line in printed.splitlines()]
    ours = {name: getattr(raw, name) if own == "-" else int(own) for name, _, own in rows}
    assert ours == {name: int(theirs) for name, theirs, _ in rows}
    assert len(rows) > 150


# What looks like a place and is none. The numbers of OS events, which the driver compares:
NUMBERS = {"data", "pOsEvent"}
# Of what a client is made with: an answer, and what RM's callers inside the kernel say.
ROOT = {("NV0000_ALLOC_PARAMETERS", "hClient"), ("NV0000_ALLOC_PARAMETERS", "pOsPidInfo")}
# A list, which cgpu_pre_control() reads; and what no branch looks at.
READ = {("NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS", "hClientList")}
UNREAD = {("NV83DE_ALLOC_PARAMETERS", "hDebuggerClient_Obsolete")}


@pytest.mark.parametrize("branch", COMPARED)
def test_the_table_has_the_place_of_every_client_descriptor_and_pointer(
    branch: int, tmp_path: Path
) -> None:
    """Of what is not listed no client: an administrator who admits it gives that up."""
    try:
        unpack_source(COMPARED[branch], tmp_path / "nvidia", HEADERS[0])
    except SourceNotFound as error:
        pytest.skip(f"no source: {error}")
    named = nvidia_headers.read(tmp_path / "nvidia" / HEADERS[0], tmp_path)
    assert (len(named.controls) > 1200, len(named.classes) > 50) == (True, True)
    wrong = {}
    for find, table in (
        (lib.cgpu_control_rule, named.controls), (lib.cgpu_class_rule, named.classes)
    ):  # fmt: skip
        for number, parameters in table.items():
            rule = find(number)
            due = {
                (place.what, place.at) for place in parameters.places
                if place.field not in NUMBERS
                and (parameters.struct, place.field) not in ROOT | READ | UNREAD
            }  # fmt: skip
            if rule.judge == lib.CGPU_JUDGE_NEVER:
                continue
            if rule.judge == lib.CGPU_JUDGE_NONE:
                due = {place for place in due if place[0] != "client"}
            if rule.opaque:
                due = {place for place in due if place[0] == "client"}
            said = {("pointer", p.at - 1) for p in rule.pointer if p.at}
            said |= {("descriptor", at - 1) for at in (rule.fd, rule.capability) if at}
            said |= {("client", at - 1) for at in rule.hClient if at}
            if said != due:
                wrong[hex(number), parameters.name] = (said, due)
    assert not wrong
