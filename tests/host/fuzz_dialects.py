# SPDX-License-Identifier: MIT
"""
Fuzz the way from an environment to a grant: ``python tests/host/fuzz_dialects.py -runs=100000``.

Needs atheris (``pip install atheris``). Arguments are libFuzzer's. Whatever the bytes, the answer
is a request, no request, or a CgpuError of one line; anything else is a crash. Of a request each
setting is effective: none is made where it holds what nobody can read.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports():
    from pycgpu import dialects
    from pycgpu.dialects import (  # noqa: F401 - imported here to be instrumented
        alibaba_cgpu,
        alibaba_egpu,
        cgpu,
        ctyun_egpu,
        huawei_xgpu,
        kai,
        koordinator,
        kubernetes,
        volcano,
        volcengine_mgpu,
    )
    from pycgpu.errors import CgpuError
    from pycgpu.oci import bundle
    from pycgpu.request import admission, permit
    from pycgpu.request.model import GIB, Card, Grant, Refusal

HOST = [Card(number, f"GPU-{number}{number}", 16 * GIB) for number in range(4)]
KEYS = [key.rstrip("*") for _, _, keys, others in dialects.DIALECTS for key in (*keys, *others)] + [
    "NVIDIA_VISIBLE_DEVICES",
    "CGPU_MEM",
    "CGPU_QUOTA",
    "CGPU_GPU",
    "CGPU_DISABLE",
    "CUDA_DEVICE_MEMORY_LIMIT_0",
]


def one_input(data: bytes) -> None:
    """Make an environment of *data* and follow it to the end."""
    provider = atheris.FuzzedDataProvider(data)
    env = []
    for _ in range(provider.ConsumeIntInRange(0, 6)):
        key = KEYS[provider.ConsumeIntInRange(0, len(KEYS) - 1)]
        env.append(f"{key}={provider.ConsumeUnicode(40)}")
    try:
        request = bundle.request_of({"process": {"env": env}})
    except CgpuError as error:
        assert str(error) and "\n" not in str(error), env
        return
    if request is not None:
        for number, entry in enumerate(env):
            key = entry.partition("=")[0]
            if key not in permit.VARIABLES["disable"]:
                with contextlib.suppress(CgpuError):
                    changed = env[:number] + [f"{key}=\x00?"] + env[number + 1 :]
                    assert not bundle.request_of({"process": {"env": changed}}), env
        result = admission.admit(request, HOST)
        assert isinstance(result, Grant | Refusal), env
        for card in result.cards if isinstance(result, Grant) else ():
            assert card.memory_bytes is None or 0 < card.memory_bytes <= 16 * GIB, env


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
