# SPDX-License-Identifier: MIT
"""What a tenant of the user door may try against the cards of a host that it was not given."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm import user_door
from tests.vm.test_attacks_agent import (
    MIB,
    NV_ERR_INSERT_DUPLICATE_NAME,
    NV_ERR_NO_MEMORY,
    NV_ERR_UVM_ADDRESS_IN_USE,
    WHO,
    _told,
    _words,
)
from tests.vm.user_door import START_S

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "programs"),
]


@pytest.mark.vm(smp=2)
@pytest.mark.parametrize("who", WHO)
def test_memory_of_a_card_that_was_not_given_ends_the_container(
    made: Callable[[str], Path], tmp_path: Path, who: str
) -> None:
    """By a device that becomes another card's while the driver looks."""
    unseen = str(made("programs") / "unseen")
    with user_door.opened(made, tmp_path, cards="T4,T4") as door:
        swap = (unseen, "swap-card", str(MIB), "800")
        tenant = door.start("env", "HOLD=1", *WHO[who], *swap, gpu="0")
        out, err = tenant.communicate(timeout=START_S)
        assert tenant.returncode == -signal.SIGKILL, (out, err)
        assert "holds memory that it was not given" in user_door.events()
        user_door.emptied()
        door.close()


@pytest.mark.parametrize("who", WHO)
def test_memory_is_charged_to_the_card_that_it_is_on(
    made: Callable[[str], Path], tmp_path: Path, who: str
) -> None:
    """Whatever device of another card the driver refused by the same handle."""
    swap = (str(made("programs") / "blind"), "swap", "1", str(2048 * MIB))
    with user_door.opened(made, tmp_path, cards="T4,T4") as door:
        _, out, err = door.run(*WHO[who], *swap, mem="1G,4G", gpu="0,1")
        user_door.emptied()
        door.close()
    assert _told(out.split()) == [
        ("device", 0),
        ("other", NV_ERR_INSERT_DUPLICATE_NAME),
        ("memory", NV_ERR_NO_MEMORY),
    ], err


@pytest.mark.parametrize(("branch", "who"), [(580, "docker"), (590, "user")])
def test_what_is_mapped_is_freed_with_its_own_range_alone(
    made: Callable[[str], Path], tmp_path: Path, branch: int, who: str
) -> None:
    """From 590 on UVM_FREE says no length: what the driver refused has none."""
    blind = str(made("programs") / "blind")
    with user_door.opened(made, tmp_path, branch=branch) as door:
        found = _words(door, *WHO[who], blind, "ranges", str(512 * MIB), str(700 * MIB))
        # 128 MiB of page tables each: the limit would be reached if they stayed
        pools = _words(door, *WHO[who], blind, "pools", "20", str(65536 * MIB))
        user_door.emptied()
        door.close()
    assert _told(found) == [
        ("near", 0),
        ("far", 0),
        ("over", NV_ERR_UVM_ADDRESS_IN_USE),
        ("over", NV_ERR_UVM_ADDRESS_IN_USE),
        ("free", 0),
        ("beside", NV_ERR_NO_MEMORY),
        ("free", 0),
        ("after", 0),
    ]
    assert _told(pools) == [("made", 20), ("status", 0)]
