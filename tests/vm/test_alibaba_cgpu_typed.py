# SPDX-License-Identifier: MIT
"""
Alibaba cGPU's guide: its commands on a T4 and on four A10.

Its first example has `--gpus all` and no `--runtime`. For that Docker runs the hook of NVIDIA's
container toolkit, which is in no archive of Debian: a script stands for it, makes the nodes as it
does, and cannot allow the devices, for which the command has one more option here. More cases of
this dialect, without Docker: test_alibaba.py.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pycgpu.install.doctor import Host
from pycgpu.install.doctor.module import refused
from tests.vm.loaded import until
from tests.vm.typed import MIB, TYPED, Typed

pytestmark = TYPED

RUN = (
    "sudo docker run -d -t --gpus all --shm-size=1g --ulimit memlock=-1 --ulimit stack=67108864"
    " --name gpu_test{n} -v /mnt:/mnt -e ALIYUN_COM_GPU_MEM_CONTAINER={part}"
    " -e ALIYUN_COM_GPU_MEM_DEV=15 nvcr.io/nvidia/tensorflow:19.10-py3"
)
T4_MIB = 15109
UNGRANTED = Path("/sys/module/cgpu_km/parameters/ungranted")
NOTICE = "cgpu: this container was given a card past cgpu's runtime and may not open it: start it"
ALLOWED = "--device-cgroup-rule='c *:* rw' --gpus"
NODES = " ".join(f"--device /dev/{name}" for name in ("nvidia0", "nvidiactl", "nvidia-uvm"))


def test_a_card_that_came_past_our_runtime_is_not_opened_even_first(installed_host: Typed) -> None:
    """After a plain installation, before anybody was granted anything."""
    host = installed_host
    host.cards(cards=1, model="t4")
    assert UNGRANTED.read_text() == "refuse\n"
    image = "nvcr.io/nvidia/tensorflow:19.10-py3 simcuda info"
    asks = "-e ALIYUN_COM_GPU_MEM_CONTAINER=6 -e ALIYUN_COM_GPU_MEM_DEV=15"
    host.sh(RUN.format(n=1, part=6).replace("--gpus", ALLOWED))
    inside = "docker exec -i gpu_test1 simcuda"
    done = host.sh(f"{inside} info", check=False)
    assert done.returncode
    assert done.stderr.count(NOTICE) == 1, done.stderr
    done = host.sh(f"docker run --name told --privileged {asks} {image}", check=False)
    assert done.returncode
    id = host.sh("docker inspect --format '{{.Id}}' told").stdout.strip()
    assert host.sh("docker logs told").stderr.count(NOTICE) == 1
    on_terminal = f"docker run --rm -t --privileged {asks} {image}"
    assert NOTICE in host.sh(f"script -qec '{on_terminal}' /dev/null", check=False).stdout
    assert host.sh(f"docker run --rm {NODES} {asks} {image}", check=False).returncode
    hosts = "--privileged --pid=host --cgroupns=host"
    assert host.sh(f"docker run --rm {hosts} {asks} {image}", check=False).returncode
    # by another name, and by a node that the container makes itself
    reads = "sh -c 'exec 3<>/dev/card'"
    image = "nvcr.io/nvidia/tensorflow:19.10-py3"
    makes = "sh -c 'mknod /dev/card c 195 0; exec 3<>/dev/card'"
    for way, command in (
        ("--device /dev/nvidia0:/dev/card", reads),
        ("--device-cgroup-rule='c 195:* rwm'", makes),
    ):
        done = host.sh(f"docker run --rm {way} {asks} {image} {command}", check=False)
        assert done.returncode and "Permission denied" in done.stderr, done.stderr
    said = host.sh("timeout 2 cat /proc/cgpu_km/events", check=False).stdout
    assert said.count("ungranted pid=") >= 6
    assert f"cgroup={id} a container without a grant" in said
    (found,) = refused(Host(Path("/"), None, os.uname().release))
    assert re.search(r"refused a card, last by ([0-9a-f]{12}(, )?){3}$", found.text), found.text
    assert "--runtime=cgpu" in found.remedy
    # Not for want of a card: this is what everybody had before, and what allow still gives.
    UNGRANTED.write_text("allow")
    try:
        assert host.card_bytes("docker exec -i gpu_test1") == T4_MIB * MIB
        host.sh(f"docker run --rm --device /dev/nvidia0:/dev/card {asks} {image} {reads}")
    finally:
        UNGRANTED.write_text("refuse")


def test_the_guides_two_containers_and_its_tree(installed_host: Typed) -> None:
    host = installed_host
    host.cards(cards=1, model="t4")
    with host.default_runtime():
        asks = "-e ALIYUN_COM_GPU_MEM_CONTAINER=3 -e ALIYUN_COM_GPU_MEM_DEV=15"
        one = f"docker run --rm --gpus '\"device=0\"' {asks} nvcr.io/nvidia/tensorflow:19.10-py3"
        assert host.card_bytes(one) == T4_MIB * 3 // 15 * MIB
        host.sh(RUN.format(n=1, part=6))
        host.sh(RUN.format(n=2, part=8))
        assert host.smi_totals("gpu_test1") == [6043]
        assert host.smi_totals("gpu_test2") == [8058]
    assert "inst_ctl" in host.sh("ls /proc/cgpu_km/").stdout.split()
    assert {"policy", "free_weight", "max_inst"} <= {*host.sh("ls /proc/cgpu_km/0").stdout.split()}
    dockerid = host.sh("docker ps -q -f name=gpu_test1").stdout.strip()
    assert {"memsize", "meminfo", "weight", "id"} <= {
        *host.sh(f"ls /proc/cgpu_km/0/{dockerid}").stdout.split()
    }
    host.sh("echo 2 > /proc/cgpu_km/0/policy")
    assert host.sh("cat /proc/cgpu_km/0/policy").stdout == "2\n"
    assert host.sh("cat /proc/cgpu_km/0/free_weight").stdout == "18\n"
    typed = f"dockerid={dockerid}; "
    assert host.sh(typed + "cat /proc/cgpu_km/0/$dockerid/weight").stdout == "1\n"
    host.sh(typed + "echo 4 > /proc/cgpu_km/0/$dockerid/weight")
    assert host.sh("cat /proc/cgpu_km/0/free_weight").stdout == "15\n"
    shown = host.sh("cgpu-smi").stdout
    assert re.search(rf"{dockerid}.*\b6043\b", shown) and "/ 8058 " in shown, shown
    # the guide's way to a cold upgrade
    host.sh("sudo docker stop $(docker ps -a | awk '{ print $1}' | tail -n +2)")
    until(lambda: not host.sh("ls /proc/cgpu_km/container").stdout, "what both gave back")
    assert host.sh("cat /proc/cgpu_km/0/free_weight").stdout == "20\n"


def test_what_is_switched_off_has_the_whole_card_or_is_told_how(installed_host: Typed) -> None:
    """`=0`, a 0 in the list, eGPU's words without its switch: the guide's last row."""
    host = installed_host
    host.cards(cards=1, model="t4")
    run = "docker run --rm --runtime=nvidia {asks} nvcr.io/nvidia/tensorflow:19.10-py3"
    part = "ALIYUN_COM_GPU_MEM_CONTAINER"
    for asks in (f"{part}=0", f"{part}=1,0,0", "GPU_MEM_PER_DEVICE=2000000000", "nvidia.com/gpu=1"):
        done = host.sh(f"{run.format(asks=f'-e {asks}')} simcuda info", check=False)
        assert done.returncode and "asks for no part of a card" in done.stderr, done.stderr
        assert "CGPU_MEM=max in its place for the whole card" in done.stderr
    assert host.card_bytes(run.format(asks="-e CGPU_MEM=max")) == T4_MIB * MIB
    none = f"-e {part}=0 -e NVIDIA_VISIBLE_DEVICES=none"
    host.sh(f"{run.format(asks=none)} true")


def test_the_guides_four_cards(installed_host: Typed) -> None:
    host = installed_host
    host.cards(cards=4, model="a10", fb_mib="22731,22731,22731,22731")
    host.sh(
        "docker run -d -t --runtime=nvidia  --name gpu_test0123 --shm-size=1g --ulimit memlock=-1"
        " --ulimit stack=67108864 -v /mnt:/mnt -e ALIYUN_COM_GPU_MEM_CONTAINER=3,4,5,6"
        " -e ALIYUN_COM_GPU_MEM_DEV=23 -e NVIDIA_VISIBLE_DEVICES=0,1,2,3"
        " nvcr.io/nvidia/tensorflow:21.03-tf1-py3"
    )
    assert host.smi_totals("gpu_test0123") == [22731 * part // 23 for part in (3, 4, 5, 6)]
