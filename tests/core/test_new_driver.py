# SPDX-License-Identifier: MIT
"""``scripts/dev new-driver`` finds what is known to differ between branches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.strategies import COMPARED
from tests.vm.driver import SOURCE, SourceNotFound, unpack_source

PROGRAM = Path(__file__).resolve().parents[2] / "scripts/lib/new_driver.py"


def new_driver(*words: object) -> tuple[int, str, str]:
    command = [sys.executable, PROGRAM, *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def tree(branch: int, folder: Path) -> str:
    """CLONE@TAG, if there is a clone that has it."""
    try:
        unpack_source(COMPARED[branch], folder / str(branch), "version.mk")
    except SourceNotFound as error:
        pytest.skip(f"no source: {error}")
    return f"{os.environ[SOURCE]}@{COMPARED[branch]}"


def test_from_580_to_590_what_uvm_changed_is_found_and_what_is_new(tmp_path: Path) -> None:
    status, said, _ = new_driver(
        "--against", 580, "--since", tree(580, tmp_path), tree(590, tmp_path)
    )
    assert status == 1
    assert "uvm_free_size: 16, was 24" in said
    assert "uvm_unregister_channel_size: 12, was 28" in said
    assert "if (branch >= 590) {" in said and "abi->uvm_free_size = 16;" in said
    assert "0x2080012f NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS: 1664, was 1464" in said
    assert "0x208001ec NV2080_CTRL_CMD_GPU_FORCE_GSP_UNLOAD" in said
    assert "bridge" not in said.partition("to add")[0]


def test_from_590_to_595_the_bridges_functions_are_found(tmp_path: Path) -> None:
    status, said, _ = new_driver("--against", 590, tree(595, tmp_path))
    assert status == 1
    aware = "int (NvU32, nvidia_modeset_stack_ptr, NvBool), was int (NvU32, nvidia_modeset_stack_"
    assert f"open_gpu: {aware}ptr)" in said
    assert "egm: 0, was 1" in said and "abi->egm = 0;" in said


def test_a_branch_beside_itself_has_no_difference(tmp_path: Path) -> None:
    status, said, _ = new_driver("--against", 595, tree(595, tmp_path))
    assert (status, "no difference in what is read" in said) == (0, True)


def test_a_structure_that_is_gone_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    tree(595, tmp_path)
    unpack_source(COMPARED[595], source)
    header = source / "kernel-open/nvidia-uvm/uvm_ioctl.h"
    text = header.read_text()
    assert "} UVM_FREE_PARAMS;" in text
    header.write_text(text.replace("} UVM_FREE_PARAMS;", "} UVM_FREE_V2_PARAMS;"))
    status, said, _ = new_driver(source)
    assert (status, "UVM_FREE_PARAMS" in said.partition("to add")[0]) == (1, True)


@pytest.mark.parametrize("words", [("nowhere",), ("nowhere@1.2",)])
def test_what_is_no_source_is_named(words: tuple[str, ...]) -> None:
    status, said, error = new_driver(*words)
    assert (status, said) == (2, "")
    assert error.startswith("new-driver: nowhere") and error.count("\n") == 1
