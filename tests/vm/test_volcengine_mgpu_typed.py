# SPDX-License-Identifier: MIT
"""
Volcengine mGPU: its two keys, as every engine hands them to a pod, on A10 of 22731 MiB.

Spark, Ray and a queue are no part of a single machine; what reaches a container is the same.
"""

from __future__ import annotations

from tests.vm.customer import LOGS
from tests.vm.typed import MIB, TYPED, Typed

pytestmark = TYPED


def test_one_card_of_many_with_a_part_of_its_memory_and_compute(installed_host: Typed) -> None:
    """The engine sees one whole card, whose memory and compute are 4096 MiB and 30 %."""
    host = installed_host
    host.cards(cards=2, model="a10", fb_mib="22731,22731")
    image = "4pdosc/ai-benchmark:2.4.1-gpu"
    keys = "-e emr.serverless.mgpu.core=30 -e emr.serverless.mgpu.memory={mib}"
    one = host.sh(f"docker run -d --runtime=nvidia {keys.format(mib=4096)} {image}").stdout.strip()
    assert host.smi_totals(one) == [4096]
    assert "4096 MiB" in LOGS[0].read_text() and "quota 30 %" in LOGS[0].read_text()
    custom = f"docker run --rm --runtime=nvidia {keys.format(mib=1000)} {image}"
    assert host.card_bytes(custom) == 1000 * MIB
