# SPDX-License-Identifier: MIT
"""What the hook costs a call, in instructions: as many in every run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("programs"),
    pytest.mark.vm(counted=True),
]

#: For every instruction of a control without the module; Debian's 6.1.192-2: 1.67, 1.18, 1.09
#: and 1.07. The driver is followed from a container's first call on.
CONTAINER, FOLLOWED, HOST, IDLE = 1.68, 1.19, 1.10, 1.08


def test_a_control_takes_no_more_instructions_in_the_hook_than_it_did(
    sim: Any, km: Any, made: Callable[[str], Path], pid_namespace: int
) -> None:
    bench = made("programs") / "bench"

    def counted(*inside: str) -> int:
        return int(subprocess.check_output([*inside, str(bench)], text=True))

    sim()
    without = counted()
    cgpu = km(bridge=False)
    idle = counted()
    cgpu.create("bench", f"pid={pid_namespace}", "gpu=0,mem=1073741824")
    host = counted()
    container = counted("nsenter", "-t", str(pid_namespace), "-p", "-m")
    followed = counted()
    found = {"container": container, "followed": followed, "host": host, "no container": idle}
    due = {"container": CONTAINER, "followed": FOLLOWED, "host": HOST, "no container": IDLE}
    over = {who: found[who] / without for who in found if found[who] > due[who] * without}
    assert not over, (without, found)
