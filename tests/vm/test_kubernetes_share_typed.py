# SPDX-License-Identifier: MIT
"""
Kubernetes' GPU share: the resources of its two Jobs, as far as a single machine goes.

What a node's plugin hands to the runtime is the same list of names; the pods themselves are not
here.
"""

from __future__ import annotations

import re

from tests.vm.customer import LOGS
from tests.vm.typed import TYPED, Typed

pytestmark = TYPED


def test_the_two_jobs_have_3000_mib_each(installed_host: Typed) -> None:
    host = installed_host
    host.cards(cards=2, model="t4", fb_mib="12066,12066")
    start = "docker run -d --runtime=nvidia"
    image = "4pdosc/ai-benchmark:2.4.1-gpu"
    first = host.sh(
        f"{start} -e nvidia.com/gpu=1 -e nvidia.com/gpucores=30 -e nvidia.com/gpumem=3000 {image}"
    ).stdout.strip()
    assert "quota 30 %" in LOGS[0].read_text()
    second = host.sh(
        f"{start} -e nvidia.com/gpu=1 -e nvidia.com/gpumem-percentage=50"
        f" -e nvidia.com/gpumem=3000 {image}"
    ).stdout.strip()
    assert host.smi_totals(first) == [3000]
    assert host.smi_totals(second) == [3000]
    alone = host.sh(f"docker run --rm --runtime=nvidia -e nvidia.com/gpu=1 {image}", check=False)
    assert alone.returncode and "nvidia.com/gpu='1' asks for no part of a card" in alone.stderr
    # once a second, as the document watches them
    watched = host.sh(f"docker exec {first} sh -c 'nvidia-smi -l 1 | head -n 50'").stdout
    assert re.findall(r"MiB / +(\d+)MiB", watched)[:2] == ["3000", "3000"], watched
