# SPDX-License-Identifier: MIT
"""
Alibaba eGPU's interface by example: its `docker run` lines on V100s of 16160 MiB.

`--runtime=nvidia` is the name under which a plain installation registers our runtime. More cases
of this dialect, without Docker: test_alibaba.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.vm.customer import LOGS
from tests.vm.typed import MIB, TYPED, Typed

pytestmark = TYPED

RESERVED = 10 * MIB
V100 = 16160 * MIB


def board(host: Typed, command: str) -> int:
    """The image's own command prints the card that the container has."""
    return int(json.loads(host.sh(command).stdout.splitlines()[-1])["board"])


def kib(bytes: int) -> int:
    """What the driver's figures, which are in KiB, show of a size."""
    return bytes >> 10 << 10


def test_the_interfaces_examples(installed_host: Typed, tmp_path: Path) -> None:
    host = installed_host
    host.cards(cards=2, model="v100", fb_mib="16160,16160")
    assert board(host, """sudo docker run \\
 --runtime=nvidia -e NVIDIA_DRIVER_CAPABILITIES=all \\
 -e AMP_VGPU_ENABLE=1 \\
    -e GPU_MEM_PER_DEVICE=2000000000 \\
    -e GPU_UTIL_PER_DEVICE=50 \\
    -e NVIDIA_VISIBLE_DEVICES=1 \\
    -e AMP_USE_HOST_DAEMON=1 \\
    image_name""") == kib(2_000_000_000 - RESERVED)  # fmt: skip
    granted = LOGS[0].read_text()
    assert "card 1: " in granted and "quota 50 %" in granted and "card 0: " not in granted
    assert board(host, """sudo docker run \\
 --runtime=nvidia -e NVIDIA_DRIVER_CAPABILITIES=all \\
 -e AMP_VGPU_ENABLE=1 \\
    -e GPU_MEM_PER_DEVICE=5000000000 \\
    -e NVIDIA_VISIBLE_DEVICES=0 \\
    -e AMP_USE_HOST_DAEMON=1 \\
    image_name""") == kib(5_000_000_000 - RESERVED)  # fmt: skip
    assert board(host, """sudo docker run \\
 --runtime=nvidia -e NVIDIA_DRIVER_CAPABILITIES=all \\
 -e AMP_VGPU_ENABLE=1 \\
 -e ALIYUN_COM_GPU_MEM_CONTAINER=5 \\
 -e ALIYUN_COM_GPU_MEM_DEV=16 \\
 -e NVIDIA_VISIBLE_DEVICES=0 \\
 -e AMP_USE_HOST_DAEMON=1 \\
 image_name""") == kib(V100 * 5 // 16 - RESERVED)  # fmt: skip
    LOGS[0].unlink()
    assert board(host, """sudo docker run \\
 --runtime=nvidia -e NVIDIA_DRIVER_CAPABILITIES=all \\
 -e AMP_VGPU_ENABLE=1 \\
 -e GPU_UTIL_PER_DEVICE=33 \\
 -e NVIDIA_VISIBLE_DEVICES=0 \\
 -e AMP_USE_HOST_DAEMON=1 \\
 image_name""") == kib(V100)  # fmt: skip
    assert "quota 33 %" in LOGS[0].read_text()
    # "indexes and UUIDs can be mixed"
    uuid = Path("/proc/cgpu_km/1/uuid").read_text().strip()
    both = host.sh(
        "sudo docker run --runtime=nvidia -e AMP_VGPU_ENABLE=1 -e GPU_MEM_PER_DEVICE=5000000000"
        f" -e NVIDIA_VISIBLE_DEVICES={uuid},0 -e AMP_USE_HOST_DAEMON=1 image_name"
    )
    boards = [int(json.loads(line)["board"]) for line in both.stdout.splitlines()]
    assert boards == [kib(5_000_000_000 - RESERVED)] * 2
    # "the user's process is ended by force"
    greedy = host.sh(
        "sudo docker run --runtime=nvidia -e AMP_VGPU_ENABLE=1 -e GPU_MEM_PER_DEVICE=2000000000"
        " -e NVIDIA_VISIBLE_DEVICES=1 -e AMP_USE_HOST_DAEMON=1 image_name simcuda --gpu 1 alloc 4G",
        check=False,
    )
    assert greedy.returncode == 128 + 9, greedy.stderr
    why = rf"cgpu: killed process \d+ \(simcuda\): out of memory of card 1: {4 << 30} bytes asked"
    assert len(re.findall(why, greedy.stderr)) == 1, greedy.stderr
    # on a terminal, by managed memory
    pasted = (
        "docker run -t --runtime=nvidia -e AMP_VGPU_ENABLE=1 -e GPU_MEM_PER_DEVICE=2000000000"
        " -e NVIDIA_VISIBLE_DEVICES=1 image_name simcuda --gpu 1 managed 4G"
    )
    shown = host.sh(f"script -qec '{pasted}' /dev/null", check=False).stdout
    assert re.search(r"cgpu: killed process \d+ \(simcuda\): out of memory", shown), shown
    said = host.sh("dmesg | tail -n 20").stdout
    killed = r"cgpu: killed process \d+ \(simcuda\) of container [0-9a-f]{64}: "
    assert re.search(rf"{killed}out of memory of card 1, {4 << 30} bytes asked", said), said
    # "…calls the script or program that this variable names, and then ends"
    script = tmp_path / "notify"
    script.write_text("#!/bin/sh\necho card $CGPU_GPU is full > /out/told\n")
    script.chmod(0o755)
    (tmp_path / "out").mkdir()
    told = host.sh(
        "sudo docker run --runtime=nvidia -e AMP_VGPU_ENABLE=1 -e GPU_MEM_PER_DEVICE=2000000000"
        f" -e ALIYUN_COM_GPU_OOM_SCRIPT=/notify -v {script}:/notify -v {tmp_path}/out:/out"
        " -e NVIDIA_VISIBLE_DEVICES=1 -e AMP_USE_HOST_DAEMON=1 image_name"
        " simcuda --hold=60 --gpu 1 alloc 4G",
        check=False,
    )
    assert told.returncode == 128 + 9, told.stderr
    assert (tmp_path / "out/told").read_text() == "card 1 is full\n"
    assert "is out of GPU memory on card 1" in told.stderr
