# SPDX-License-Identifier: MIT
"""Which layouts a driver version gets, and that an unknown one gets none."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.core import Abi, ffi, lib

KNOWN = (535, 550, 570, 580, 590, 595, 610, 615, 620)

# bytes, measured on NVIDIA's own structs in the releases 535.288.01, 550.163.01, 570.211.01,
# 580.142, 590.48.01 and 595.44.03 on x86-64; from 610 on by docs/drivers.md
SIZES = {
    535: (120, 360, 48, 436, 1200, 1184, 0, 2600, 32, 2592, 56, 40, 24, 0, 16, 32, 0),
    550: (128, 360, 48, 444, 9264, 9248, 0, 2600, 32, 2592, 56, 48, 24, 0, 16, 32, 0),
    570: (128, 368, 48, 460, 9264, 9248, 56, 2608, 36, 2600, 56, 48, 24, 0, 16, 32, 0),
    580: (128, 368, 56, 1028, 9264, 9248, 56, 2608, 36, 2600, 64, 48, 24, 0, 16, 32, 0),
    590: (128, 368, 56, 1028, 9264, 9248, 56, 2608, 36, 2600, 64, 48, 16, 24, 16, 32, 0),
    595: (128, 368, 56, 1028, 9264, 9248, 56, 2608, 36, 2600, 64, 48, 16, 24, 16, 32, 0),
    610: (128, 376, 56, 1028, 9264, 9248, 56, 2608, 36, 2600, 64, 48, 16, 24, 0, 36, 8),
    615: (128, 376, 56, 1028, 9264, 9248, 56, 2608, 36, 2600, 64, 48, 16, 24, 0, 36, 8),
    620: (128, 376, 56, 1028, 9264, 9248, 56, 2608, 36, 2600, 64, 48, 16, 24, 0, 36, 8),
}
FIELDS = (
    "memory_alloc_size", "channel_alloc_size", "vaspace_alloc_size", "fb_get_info_v2_size",
    "uvm_map_external_size", "uvm_semaphore_pool_size", "uvm_device_p2p_size", "dmabuf_size",
    "dmabuf_handles", "dmabuf_status", "map_dma_size", "unmap_dma_size", "uvm_free_size",
    "uvm_create_external_size", "uvm_range_group_size", "channel_userd_offset", "channel_shift",
)  # fmt: skip


def find(version: str, newest: bool = False) -> tuple[int, int]:
    """(error, branch)"""
    abi = ffi.new("struct cgpu_abi *")
    err = lib.cgpu_abi_find(version.encode(), newest, abi)
    return err, abi.branch


@pytest.mark.parametrize("branch", KNOWN)
def test_each_branch_has_the_sizes_of_nvidias_structs(branch: Any) -> None:
    raw = Abi(f"{branch}.10.02").raw
    assert tuple(getattr(raw, name) for name in FIELDS) == SIZES[branch]


@given(st.sampled_from(KNOWN), st.from_regex(r"\A\.[0-9]{1,3}(\.[0-9]{1,2})?\Z"))
def test_every_release_of_a_known_branch_is_known(branch: Any, rest: Any) -> None:
    assert find(f"{branch}{rest}") == (0, branch)


@given(st.integers(100, 999).filter(lambda branch: branch not in KNOWN))
def test_only_a_branch_newer_than_all_known_is_tried_and_only_if_the_operator_says_so(
    branch: Any,
) -> None:
    assert find(f"{branch}.1")[0] == -errno.EOPNOTSUPP
    newer = branch > KNOWN[-1]
    assert find(f"{branch}.1", newest=True) == ((0, KNOWN[-1]) if newer else (-errno.EOPNOTSUPP, 0))


@pytest.mark.parametrize("branch", KNOWN)
def test_a_known_branch_is_not_on_trial(branch: Any) -> None:
    assert not Abi(f"{branch}.1", newest=True).raw.guarded
    assert Abi("999.1", newest=True).raw.guarded


@given(st.text(st.characters(max_codepoint=127, exclude_characters="\0"), max_size=12))
def test_what_is_no_version_is_refused_whatever_the_operator_says(text: Any) -> None:
    head, dot, _ = text.partition(".")
    if not (dot and len(head) == 3 and head.isdigit() and int(head)):
        assert find(text) == (-errno.EINVAL, 0)
        assert find(text, newest=True) == (-errno.EINVAL, 0)


def test_errors_of_the_python_class_name_the_version() -> None:
    with pytest.raises(ValueError, match=r"'latest' is not a driver version"):
        Abi("latest")
    with pytest.raises(ValueError, match=r"driver 699\.1: a branch that is not known"):
        Abi("699.1")
    assert Abi("699.1", newest=True).branch == 620
