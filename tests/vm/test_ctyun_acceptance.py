# SPDX-License-Identifier: MIT
"""
CTyun eGPU's acceptance report, case by case, on four Tesla V100 with 32 GB.

The environment of each container is the report's own. Its ResNet-50, which took 7.6 GB, is a
program here that allocates 7.6 GiB or keeps the card busy; examples per second become the part of
the card that it got.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.vm.customer import Run, log_lines, running
from tests.vm.loaded import until
from tests.vm.work import Work, together

pytestmark = [
    pytest.mark.needs("km", "sim", "smi", "rootfs"),
    pytest.mark.kernel("6.1", by_default=True),
]

CARDS = (0, 1, 2)
#: What the report's training needs of a card.
RESNET = "7.6G"


def egpu(*cards: tuple[int, int]) -> dict[str, str]:
    """The environment of `docker run`: (MiB, percent) for cards 0, 1, 2."""
    parts = [f"PGPU={card},MEM={mem},WEIGHT={weight}" for card, (mem, weight) in enumerate(cards)]
    return {
        "EGPU": ":".join(["POLICY=0,ONLINE=0,TYPE=DOCKER", *parts]),
        "NVIDIA_VISIBLE_DEVICES": "0,1,2",
    }


@pytest.fixture(autouse=True)
def host(sim: Any, km: Any) -> Any:
    """Four V100 and the module; the module's tree."""
    sim(cards=4, model="v100")
    return km()


@pytest.fixture
def run(made: Any, host: Any) -> Iterator[Any]:
    """``run("name", EGPU=…)`` starts a container as `docker run -e` would."""
    with running(made) as start:
        yield start


def memory(host: Any, card: int) -> dict[str, int]:
    return {
        line.split()[0]: int(line.split()[1]) for line in host.read(f"{card}/memory").splitlines()
    }


def test_1_less_memory_than_needed(run: Run) -> None:
    """3276 MB and 10 %: nvidia-smi shows 0MiB / 3276MiB, and the training runs out of memory."""
    one = run("case1", **egpu((3276, 10), (3276, 10), (3276, 10)))
    assert re.findall(r"\d+MiB / +\d+MiB", one.smi()) == ["0MiB /   3276MiB"] * 3
    refused = one.simcuda("alloc", RESNET, check=False)
    assert refused.returncode == 2
    assert "status 81\n" in refused.stdout  # NV_ERR_NO_MEMORY


def test_2_enough_memory(run: Run) -> None:
    """8192 MB and 10 %: nvidia-smi shows 8192 MB, and the training runs."""
    one = run("case2", **egpu((8192, 10), (8192, 10), (8192, 10)))
    assert re.findall(r"\d+MiB / +\d+MiB", one.smi()) == ["0MiB /   8192MiB"] * 3
    one.simcuda("alloc", RESNET)


@pytest.mark.parametrize("weight", [10, 50, 100], ids=["3_ten", "4_fifty", "5_hundred"])
def test_a_part_of_the_compute(run: Run, weight: int) -> None:
    """Cases 3 to 5: 10, 50 and 100 % of the card, alone on it."""
    one = run(f"case-{weight}", **egpu(*[(10240, weight)] * 3))
    assert together(Work(one, kernel_ms=5)) == pytest.approx([weight], abs=3)


def test_6_more_memory_than_the_card(run: Run, host: Any) -> None:
    """40960 MB of a 32 GB card: creation fails, and no card of it is reserved."""
    with pytest.raises(RuntimeError, match="40960 MiB asked, 32768 MiB on the card"):
        run("case6", **egpu((20480, 10), (20480, 10), (40960, 10)))
    lines = log_lines("case6")
    assert "would have fitted: card 0: 20480 MiB, quota 10 %" in lines
    assert "nothing was reserved: all cards are granted or none" in lines
    assert lines[-1] == "refused: card 2: 40960 MiB asked, 32768 MiB on the card"
    assert [memory(host, card)["allocated"] for card in CARDS] == [0, 0, 0]


def test_7_the_fourth_container_finds_no_memory(run: Run, host: Any) -> None:
    """Three containers fill three cards; the fourth is refused and the three live on."""
    containers = [
        run("one", **egpu((20480, 10), (20480, 10), (10240, 10))),
        run("two", **egpu((10240, 10), (10240, 10), (20480, 10))),
        run("three", **egpu((2048, 10), (2048, 10), (2048, 10))),
    ]
    filled = [memory(host, card) for card in CARDS]
    assert [card["free"] for card in filled] == [0, 0, 0]
    with pytest.raises(RuntimeError, match="1024 MiB asked, 0 MiB free"):
        run("four", **egpu((1024, 10), (1024, 10), (1024, 10)))
    assert any("3 containers hold" in line for line in log_lines("four"))
    assert [memory(host, card) for card in CARDS] == filled
    assert all(container.alive() for container in containers)


def test_8_more_than_100_percent_for_one_container(run: Run, host: Any) -> None:
    """110 % of a card: creation fails while the request is read, before any card is looked at."""
    with pytest.raises(RuntimeError, match="WEIGHT=110 % asked"):
        run("case8", **egpu((20480, 10), (20480, 10), (10240, 110)))
    assert not any("fitted" in line for line in log_lines("case8"))
    assert [memory(host, card)["allocated"] for card in CARDS] == [0, 0, 0]


def test_9_the_fourth_container_finds_no_compute(run: Run, host: Any) -> None:
    """Three containers take 100 % of three cards; the fourth, with 10 %, is refused."""
    run("one", **egpu((20480, 25), (20480, 25), (10240, 25)))
    run("two", **egpu((10240, 25), (10240, 25), (20480, 25)))
    run("three", **egpu((1024, 50), (1024, 50), (1024, 50)))
    taken = [memory(host, card)["allocated"] for card in CARDS]
    with pytest.raises(RuntimeError, match="10 % of compute asked, 0 % free"):
        run("four", **egpu((1024, 10), (1024, 10), (1024, 10)))
    assert [memory(host, card)["allocated"] for card in CARDS] == taken


def test_the_module_does_not_unload_while_a_container_uses_it(run: Run, host: Any) -> None:
    """The report's last page: containers first, then the module."""
    one = run("last", **egpu((1024, 10), (1024, 10), (1024, 10)))
    with pytest.raises(OSError, match="rmmod"):
        host.unload()
    one.kill()
    until(lambda: not (host.root / "container" / "last").exists(), "the container's removal")
