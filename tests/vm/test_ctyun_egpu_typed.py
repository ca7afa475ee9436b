# SPDX-License-Identifier: MIT
"""
CTyun eGPU's acceptance report: its `docker run` lines on four Tesla V100 with 32 GB.

The cases about memory and about refusals; those that measure compute are in
test_ctyun_acceptance.py, where the program that stands for the training is.
"""

from __future__ import annotations

import subprocess

from tests.vm.loaded import until
from tests.vm.typed import TYPED, Typed

pytestmark = TYPED

IMAGE = "ccr.ccs.tencentyun.com/hfut-ie/pytorch23.04-py3:v5.0"


def run(
    host: Typed, *cards: tuple[int, int], check: bool = True
) -> subprocess.CompletedProcess[str]:
    """The report's `docker run`; (MEM, WEIGHT) of cards 0, 1, 2 are all that differs in it."""
    parts = [f"PGPU={n},MEM={mem},WEIGHT={weight}" for n, (mem, weight) in enumerate(cards)]
    return host.sh(
        "docker run -itd --rm --ipc=host --ulimit memlock=-1 --ulimit stack=67108864"
        f' -e EGPU="POLICY=0,ONLINE=0,TYPE=DOCKER:{":".join(parts)}"'
        " --env NVIDIA_VISIBLE_DEVICES=0,1,2 --runtime=nvidia"
        f" -v /home/ljs/TrainData/:/workspace {IMAGE}",
        check=check,
    )


def log(host: Typed) -> str:
    return host.sh("cat /var/log/nvidia-egpu-prestart-hook.log").stdout


def test_memory_is_what_the_container_was_given(installed_host: Typed) -> None:
    """Case 1: nvidia-smi shows 0MiB / 3276MiB, and what takes 7.6 GB runs out of memory."""
    host = installed_host
    host.cards(cards=4, model="v100")
    one = run(host, (3276, 10), (3276, 10), (3276, 10)).stdout.strip()
    assert host.smi_totals(one) == [3276, 3276, 3276]
    assert host.sh(f"docker exec {one} simcuda alloc 7.6G", check=False).returncode == 2


def test_more_than_a_card_has_is_refused_and_the_log_says_why(installed_host: Typed) -> None:
    """Cases 6 and 8: 40960 MB of a 32 GB card, and 110 % of a card."""
    host = installed_host
    host.cards(cards=4, model="v100")
    refused = run(host, (20480, 10), (20480, 10), (40960, 10), check=False)
    assert refused.returncode and "40960 MiB asked, 32768 MiB on the card" in refused.stderr
    assert "would have fitted: card 0: 20480 MiB, quota 10 %" in log(host)
    assert "nothing was reserved: all cards are granted or none" in log(host)
    fitted = log(host).count("fitted")
    refused = run(host, (20480, 10), (20480, 10), (10240, 110), check=False)
    assert refused.returncode and "WEIGHT=110 % asked" in refused.stderr
    assert log(host).count("fitted") == fitted, "found while the request was read"
    for card in range(3):
        assert "allocated 0\n" in host.sh(f"cat /proc/cgpu_km/{card}/memory").stdout


def test_the_fourth_container_finds_no_memory_and_then_no_compute(installed_host: Typed) -> None:
    """Cases 7 and 9, and the last page: the module stays while a container uses it."""
    host = installed_host
    host.cards(cards=4, model="v100")
    for cards in (
        ((20480, 10), (20480, 10), (10240, 10)),
        ((10240, 10), (10240, 10), (20480, 10)),
        ((2048, 10), (2048, 10), (2048, 10)),
    ):
        last = run(host, *cards).stdout.strip()
    # whoever starts the third is told by its own terminal, which `docker logs` shows
    less = "2048 MiB asked, the last 1790 MiB of the card granted: of its 32510 MiB 2 containers"
    until(lambda: less in host.sh(f"docker logs {last}").stdout, "the third container says so")
    refused = run(host, (1024, 10), (1024, 10), (1024, 10), check=False)
    assert refused.returncode and "1024 MiB asked, 0 MiB free" in refused.stderr
    assert "3 containers hold" in log(host)
    assert host.sh("docker ps -q").stdout.count("\n") == 3
    assert host.sh("rmmod cgpu_km", check=False).returncode
    host.remove_all()
    for cards in (
        ((20480, 25), (20480, 25), (10240, 25)),
        ((10240, 25), (10240, 25), (20480, 25)),
        ((1024, 50), (1024, 50), (1024, 50)),
    ):
        run(host, *cards)
    refused = run(host, (1024, 10), (1024, 10), (1024, 10), check=False)
    assert refused.returncode and "10 % of compute asked, 0 % free" in refused.stderr
