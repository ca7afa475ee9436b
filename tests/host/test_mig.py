# SPDX-License-Identifier: MIT
"""A card in MIG mode without an instance, which tree and NVML tell, is given whole to nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycgpu.oci import runtime
from pycgpu.tree import mig
from tests.host import nvml

from .devices import make_devices
from .test_hook import Engine, launch
from .tree import make_tree, put

UUIDS = [f"GPU-{card * 4}0000-0000-0000-0000-000000000000" for card in "01"]
REASON = "card 0: it is in MIG mode, and cgpu divides whole cards"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory by which a test tells NVML of a board; programs that are started ask it."""
    state = tmp_path / "nvml"
    state.mkdir()
    (tmp_path / "library").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml.make_library(tmp_path / "library")))
    monkeypatch.setenv("NVML_STATE", str(state))
    return state


def python(code: str) -> Any:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_hook_refuses_the_card_and_no_other(told: Path, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    engine = Engine(tmp_path / "host")
    (told / UUIDS[0]).write_text("mig")
    refused = launch(engine, "createRuntime", env=["CGPU_MEM=1GiB", "CGPU_GPU=0"])
    assert refused.returncode == 1 and REASON in refused.stderr.decode()
    assert engine.written == ""
    assert launch(engine, "createRuntime", env=["CGPU_MEM=1GiB", "CGPU_GPU=1"]).returncode == 0
    # who only says how many has one that can be had
    (engine.root / "inst_ctl").write_text("")
    keys = ["emr.serverless.mgpu.core=30", "emr.serverless.mgpu.memory=1024"]
    assert launch(engine, "createRuntime", env=keys).returncode == 0
    assert " gpu=1," in engine.written
    (told / UUIDS[0]).unlink()
    assert launch(engine, "createRuntime", env=["CGPU_MEM=1GiB", "CGPU_GPU=0"]).returncode == 0


def test_the_runtime_chooses_a_card_that_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mig, "in_mode", lambda cards, root: frozenset(UUIDS[:1]))
    root = str(make_tree(tmp_path / "cgpu_km", cards=2))
    env = ["emr.serverless.mgpu.core=30", "emr.serverless.mgpu.memory=1024"]
    (tmp_path / "config.json").write_text(json.dumps({"process": {"env": env}}))
    assert runtime.prepare(str(tmp_path), root=root, **make_devices(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["process"]["env"][-1] == f"NVIDIA_VISIBLE_DEVICES={UUIDS[1]}"


def test_run_refuses_the_card(told: Path, tmp_path: Path) -> None:
    (told / UUIDS[0]).write_text("mig")
    root = make_tree(tmp_path / "cgpu_km", cards=2)
    code = (
        "from pycgpu.agent import launch; from pycgpu.cli import _run;"
        " from pycgpu.request import permit;"
        " asked = _run.request({{'CGPU_MEM': '1G', 'CGPU_GPU': '{card}'}}, False);"
        f" launch._admitted(asked, permit.DEFAULT, {str(root)!r})"
    )
    assert REASON in python(code.format(card=0)).stderr
    assert REASON not in python(code.format(card=1)).stderr


def test_cdi_leaves_the_card_out_and_says_so(told: Path, tmp_path: Path) -> None:
    root = make_tree(tmp_path / "cgpu_km", cards=2)
    make_devices(tmp_path)
    output = tmp_path / "cgpu.json"
    options = ["--root", str(root), "-o", str(output), "--prefix", str(tmp_path)]
    code = "import sys; from pycgpu.cli.main import app; sys.argv[1:] = ['cdi', *{!r}]; app()"
    (told / UUIDS[0]).write_text("mig")
    done = python(code.format(options))
    assert done.returncode == 0, done.stderr
    assert "left out: card 0 in MIG mode (nvidia-smi -i " in done.stdout
    names = [device["name"] for device in json.loads(output.read_text())["devices"]]
    assert names == ["1", UUIDS[1], "all"]
    (told / UUIDS[1]).write_text("mig")
    refused = python(code.format(options))
    assert refused.returncode == 1 and "card 0, 1 in MIG mode" in refused.stderr


def asked(root: Path) -> str:
    """Whom ``in_mode`` says to be divided, by a Python that finds the library of the test."""
    code = f"from pycgpu.tree import mig, procfs; r = {str(root)!r};"
    return str(python(code + "print(*mig.in_mode(procfs.find_cards(r), r))").stdout)


def test_where_nvml_does_not_answer_no_card_is_taken_for_divided(
    told: Path, tmp_path: Path
) -> None:
    root = make_tree(tmp_path / "cgpu_km", cards=2)
    (told / UUIDS[0]).write_text("mig")
    assert asked(root) == f"{UUIDS[0]}\n"
    (told / "nvml").write_text("down")
    assert asked(root) == "\n"


def test_nvml_is_not_asked_of_a_card_of_which_the_door_says_no(told: Path, tmp_path: Path) -> None:
    root = make_tree(tmp_path / "cgpu_km", cards=2)
    (told / UUIDS[0]).write_text("mig")
    (told / UUIDS[1]).write_text("mig")
    put(root / "0", stat="containers 0\nmig 0")
    assert asked(root) == f"{UUIDS[1]}\n"
    put(root / "1", stat="containers 0\nmig 0")
    (told / "nvml").write_text("down")  # nor begun
    assert asked(root) == "\n"


def test_a_door_that_says_yes_is_believed_unless_nvml_says_that_it_is_over(
    told: Path, tmp_path: Path
) -> None:
    """The module asks again when a container comes, which needs a container that is not refused."""
    root = make_tree(tmp_path / "cgpu_km")
    put(root / "0", stat="containers 0\nmig 1")
    assert asked(root) == "\n"
    (told / UUIDS[0]).write_text("mig")
    assert asked(root) == f"{UUIDS[0]}\n"
    (told / UUIDS[0]).unlink()
    (told / "nvml").write_text("down")
    assert asked(root) == f"{UUIDS[0]}\n"
