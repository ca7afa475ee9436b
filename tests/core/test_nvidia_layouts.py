# SPDX-License-Identifier: MIT
"""
The core's structs against NVIDIA's own headers, field by field, in every branch.

Nothing of NVIDIA's is part of this project: the headers come from the clone that
``$CGPU_NVIDIA_SOURCE`` names.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pycgpu.core import Abi
from tests.core.strategies import BRANCHES
from tests.vm.driver import SourceNotFound, unpack_source

REPOSITORY = Path(__file__).resolve().parents[2]
HEADERS = (
    "src/common/sdk/nvidia/inc", "src/common/inc", "src/nvidia/arch/nvalloc/unix/include",
    "kernel-open/common/inc", "kernel-open/nvidia-uvm",
)  # fmt: skip


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_field_that_the_core_reads_is_where_nvidia_puts_it(
    branch: int, tmp_path: Path
) -> None:
    try:
        unpack_source(BRANCHES[branch], tmp_path / "nvidia", *HEADERS)
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
    raw = Abi(BRANCHES[branch]).raw
    rows = [line.rsplit(maxsplit=2) for line in printed.splitlines()]
    ours = {name: getattr(raw, name) if own == "-" else int(own) for name, _, own in rows}
    assert ours == {name: int(theirs) for name, theirs, _ in rows}
    assert len(rows) > 150
