# SPDX-License-Identifier: MIT
"""
The cases of CTyun eGPU's acceptance report that run its training, on four Tesla V100 with 32 GB.

The environment of each container is the report's own. Its ResNet-50, which took 7.6 GB, is a
program here that allocates 7.6 GiB or keeps the card busy; examples per second become the part of
the card that it got. The other cases, typed to Docker: test_ctyun_egpu_typed.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.vm.customer import Run, running
from tests.vm.work import Work, together

pytestmark = [
    pytest.mark.needs("km", "sim", "smi", "rootfs"),
    pytest.mark.kernel("6.1", by_default=True),
]

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
