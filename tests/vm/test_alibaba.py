# SPDX-License-Identifier: MIT
"""Alibaba's documents (cGPU's guide, eGPU's interface) on simulated cards, example by example."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm import demo
from tests.vm.customer import SMI_WAYS, Run, looks, prepare, running
from tests.vm.loaded import until

pytestmark = [
    pytest.mark.needs("km", "sim", "smi", "rootfs"),
    pytest.mark.kernel("6.1", by_default=True),
]

MIB = 1 << 20
CGPU = "ALIYUN_COM_GPU_"


@pytest.fixture
def run(made: Any) -> Iterator[Any]:
    """``run("name", KEY=…)`` starts a container as `docker run -e` would."""
    with running(made) as start:
        yield start


def totals(container: Any) -> list[int]:
    """MiB of each card as nvidia-smi shows them inside."""
    return [int(text) for text in re.findall(r"0MiB / +(\d+)MiB", container.smi())]


def info(container: Any, card: int = 0) -> dict[str, object]:
    told: dict[str, object] = json.loads(container.simcuda("--json", "--gpu", card, "info").stdout)
    return told


def test_two_containers_share_a_t4(sim: Any, km: Any, run: Run) -> None:
    """6 and 8 of 15 on a card of 15109 MiB: the first sees 6043 MiB, as the guide shows."""
    sim(cards=1, model="t4")
    km()
    env = {CGPU + "MEM_DEV": "15", "NVIDIA_VISIBLE_DEVICES": "all"}
    one = run("gpu_test1", **env, **{CGPU + "MEM_CONTAINER": "6"})
    two = run("gpu_test2", **env, **{CGPU + "MEM_CONTAINER": "8"})
    assert totals(one) == [6043]
    assert totals(two) == [8058]
    assert one.simcuda("alloc", "6044M", check=False).returncode == 2
    one.simcuda("alloc", "6042M")  # in pages of 2 MiB


def test_every_way_to_look_at_a_card_works_as_on_the_host(
    sim: Any, km: Any, run: Run, made: Any
) -> None:
    sim(cards=1, model="t4")
    km()
    one = run("one", CGPU_MEM="1GiB", NVIDIA_VISIBLE_DEVICES="all")
    for way in SMI_WAYS:
        assert one.looks(way) == looks(made("smi"), way), way


def test_what_the_demos_shell_invites_to_works_as_pasted(
    sim: Any, km: Any, made: Any, tmp_path: Path
) -> None:
    sim(cards=1, model="t4")
    host = km()
    needed = {name: made(name) for name in ("sim", "smi", "rootfs")}
    with demo.installed():
        tenants = []
        for name, gib in (("gpu_test1", "6"), ("gpu_test2", "8")):
            asked = {CGPU + "MEM_CONTAINER": gib, CGPU + "MEM_DEV": "15"}
            asked["NVIDIA_VISIBLE_DEVICES"] = "all"
            tenants.append(demo.Tenant(needed, name, asked))
        try:
            *told, (live, _) = demo.invitation(host.root, True)
            lines = [f"{command}  # {shows}" for command, shows in told]
            # The live view shows until its reader leaves; here that is grep.
            lines.append(f"{live} | grep -m1 gpu_test1")
            pasted = "\n".join(["set -e", *lines, lines[0], "exit"]) + "\n"
            out, err = tmp_path / "out", tmp_path / "err"
            # No pipes: those who compute for two minutes behind it would keep them open.
            with out.open("w") as stdout, err.open("w") as stderr:
                shell = subprocess.run(
                    ["bash", "-i"],
                    input=pasted,
                    env=demo.shell_environment(),
                    stdout=stdout,
                    stderr=stderr,
                    text=True,
                    check=False,
                )
            assert shell.returncode == 0, err.read_text()
            said = out.read_text()
            assert re.findall(r"MiB / +(\d+)MiB", said) == ["6043", "3072"]
            assert re.search(r"80(57|58)\b", said), said
            assert re.search(r"gpu_test1 .*3072", said), said
        finally:
            for tenant in tenants:
                tenant.container.delete()


@pytest.mark.parametrize(
    ("container", "parts"),
    [("3", (3, 3, 3, 3)), ("3,1", (3, 1, 1, 1)), ("3,4,5,6", (3, 4, 5, 6))],
)
def test_the_multi_card_table(
    sim: Any, km: Any, run: Run, container: str, parts: tuple[int, ...]
) -> None:
    """Four A10 by ALIYUN_COM_GPU_MEM_CONTAINER; a list's last value repeats."""
    sim(cards=4, model="a10", fb_mib="22731,22731,22731,22731")
    km()
    one = run(
        "gpu_test0123",
        **{CGPU + "MEM_CONTAINER": container, CGPU + "MEM_DEV": "23"},
        NVIDIA_VISIBLE_DEVICES="0,1,2,3",
    )
    assert [info(one, card)["board"] for card in range(4)] == [
        22731 * part // 23 * MIB for part in parts
    ]


@pytest.mark.parametrize("container", [None, "0", "1,0,0"])
def test_the_multi_card_tables_last_row_switches_cgpu_off(
    sim: Any, km: Any, made: Any, run: Run, container: Any
) -> None:
    sim(cards=1, model="a10")
    host = km()
    env = {CGPU + "MEM_DEV": "23"} | ({CGPU + "MEM_CONTAINER": container} if container else {})
    one = prepare(made, "off", env, nodes=sorted(Path("/dev").glob("nvidia*")))
    try:
        one.start()
        assert info(one)["board"] == 23028 * MIB
        assert list((host.root / "container").iterdir()) == []
    finally:
        one.delete()


def test_cards_by_index_and_uuid_mixed(sim: Any, km: Any, run: Run) -> None:
    """eGPU: NVIDIA_VISIBLE_DEVICES mixes both; 2 GB in bytes less 10 MB, on those cards alone."""
    sim(cards=4, model="v100")
    host = km()
    uuid = host.read("3/uuid").strip()
    one = run(
        "mixed",
        AMP_VGPU_ENABLE="1",
        AMP_USE_HOST_DAEMON="1",
        GPU_MEM_PER_DEVICE="2000000000",
        NVIDIA_VISIBLE_DEVICES=f"1,{uuid}",
    )
    assert sorted(path.name for path in (host.root / "container/mixed").glob("[0-9]*")) == [
        "1",
        "3",
    ]
    for card in (1, 3):
        assert host.read(f"{card}/mixed/memsize") == f"{2_000_000_000 - 10 * MIB}\n"
    assert one.exec("sh", "-c", "ls /dev/nvidia[0-9]*").stdout.split() == [
        "/dev/nvidia1",
        "/dev/nvidia3",
    ]


def test_5_of_16_is_exact_to_the_byte(sim: Any, km: Any, run: Run) -> None:
    sim(cards=1, model="v100", fb_mib=16160)
    host = km()
    run(
        "five",
        AMP_VGPU_ENABLE="1",
        **{CGPU + "MEM_CONTAINER": "5", CGPU + "MEM_DEV": "16"},
        NVIDIA_VISIBLE_DEVICES="0",
    )
    assert host.read("0/five/memsize") == f"{16160 * MIB * 5 // 16 - 10 * MIB}\n"


@pytest.mark.parametrize(("by_hand", "policy"), [(False, "2"), (True, "1")])
def test_a_weight_selects_policy_2_unless_someone_chose(
    sim: Any, km: Any, run: Run, node_policy: Any, by_hand: Any, policy: Any
) -> None:
    node_policy('[environment]\nallow = ["weight"]\n')
    sim(cards=1, model="t4")
    host = km()
    if by_hand:
        host.write("0/policy", "1")
    run(
        "weighted",
        **{CGPU + "MEM_CONTAINER": "3", CGPU + "MEM_DEV": "15"},
        **{CGPU + "SCHD_WEIGHT": "4"},
    )
    assert host.read("0/policy").strip() == policy
    assert host.read("0/weighted/weight") == "4\n"


def test_egpu_ends_the_process_that_takes_too_much(sim: Any, km: Any, run: Run) -> None:
    sim(cards=1, model="t4")
    km()
    one = run("greedy", AMP_VGPU_ENABLE="1", GPU_MEM_PER_DEVICE="2000000000")
    assert one.simcuda("alloc", "2G", check=False).returncode == 128 + 9
    assert one.alive()
    one.simcuda("alloc", "1G")


def test_egpu_runs_the_oom_script_before_it_ends_the_process(
    sim: Any, km: Any, made: Any, run: Run, tmp_path: Path
) -> None:
    sim(cards=1, model="t4")
    km()
    script = tmp_path / "on_oom"
    script.write_text(
        "#!/bin/sh\n"
        'echo "$CGPU_CONTAINER_ID $CGPU_GPU $(id -u)" >> /tmp/oom\n'
        "hostname >> /tmp/oom\n"
    )
    script.chmod(0o755)
    env = {
        "AMP_VGPU_ENABLE": "1",
        "GPU_MEM_PER_DEVICE": "2000000000",
        CGPU + "OOM_SCRIPT": "/opt/on_oom",
    }
    one = prepare(made, "notified", env, mounts={"/opt/on_oom": script})
    try:
        one.start()
        child = one.popen("simcuda", "--hold=60", "alloc", "2G")
        until(
            lambda: one.exec("cat", "/tmp/oom", check=False).stdout.count("\n") == 2,
            "the script's two lines",
        )
        assert one.exec("cat", "/tmp/oom").stdout == "notified 0 0\nnotified\n"
        until(lambda: child.poll() is not None, "the end of the process")
        assert child.returncode == 128 + 9
        assert one.alive()
    finally:
        one.delete()
