# SPDX-License-Identifier: MIT
"""The decoder against NVIDIA's layouts, all branches, and against bytes of any kind.

The tables here are facts about NVIDIA's structs (measured from debug information on x86-64), not
taken from the decoder.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pycgpu.core import (
    NO_OFFSET,
    Abi,
    DecodeError,
    Device,
    Request,
    args_size,
    decode,
    ffi,
    lib,
    unwrap,
)
from tests.core import strategies as nv
from tests.core.strategies import BRANCHES, branches

ABIS = {branch: Abi(version) for branch, version in BRANCHES.items()}
OP = {name[8:]: getattr(lib, name) for name in dir(lib) if name.startswith("CGPU_OP_")}

# escape: (sizes by branch, offset of the status, {field of the request: offset})
RM: dict[int, tuple[int | tuple[int, ...], int | tuple[int, ...] | None, dict[str, int]]] = {
    39: ((56,) * 4, 40, {"hClient": 0, "hParent": 4, "hObject": 8, "hClass": 12, "flags": 16}),
    40: ((20,) * 4, 16, {"hClient": 0, "hParent": 4, "hObject": 8, "hClass": 12}),
    41: ((16,) * 4, 12, {"hClient": 0, "hParent": 4, "hObject": 8}),
    42: ((32,) * 4, 28, {"hClient": 0, "hObject": 4, "cmd": 8, "flags": 12}),
    43: ((48,) * 4, 40, {"hClient": 0, "hParent": 4, "hObject": 8, "hClass": 12}),
    52: ((28,) * 4, 24, {"hClient": 0, "hParent": 4, "hObject": 8, "hClientSrc": 12,
                         "hObjectSrc": 16}),
    53: ((24,) * 4, 20, {"hClient": 0, "hObject": 4}),
    74: ((184,) * 4, 20, {"hClient": 0, "hParent": 4, "function": 8}),
    78: ((56,) * 4, 40, {"hClient": 0, "hParent": 4, "hObject": 8, "fd": 48}),
    79: ((32,) * 4, 24, {"hClient": 0, "hObject": 8}),
    84: ((56,) * 4, 48, {"hClient": 0, "hObject": 8, "hClass": 12}),
    87: ((56, 56, 56, 64), (48, 48, 48, 56), {"hClient": 0, "hParent": 4, "hObject": 8}),
    88: ((40, 48, 48, 48), (32, 40, 40, 40), {"hClient": 0, "hParent": 4, "hObject": 8}),
    89: ((16,) * 4, 12, {"hClient": 0, "hObject": 8}),
    94: ((40,) * 4, 32, {"hClient": 0, "hObject": 8}),
    201: ((4,) * 4, None, {"fd": 0}),
    206: ((16,) * 4, 12, {"hClient": 0}),
    207: ((16,) * 4, 12, {"hClient": 0}),
    217: ((2600, 2600, 2608, 2608), (2592, 2592, 2600, 2600), {"fd": 0, "hClient": 4}),
}  # fmt: skip
UVM: dict[int, tuple[tuple[int, ...], int | tuple[int, ...], dict[str, int]]] = {
    0x30000001: ((16,) * 4, 8, {}),
    37: ((40,) * 4, 36, {"hClient": 28}),
    38: ((20,) * 4, 16, {}),
    25: ((32,) * 4, 28, {"hClient": 20, "hObject": 24}),
    27: ((56,) * 4, 48, {"hClient": 20, "hObject": 24, "base": 32, "length_bytes": 40}),
    33: ((1200, 9264, 9264, 9264), (1196, 9260, 9260, 9260), {"base": 0, "length_bytes": 8}),
    34: ((24, 24, 24, 24, 16), (16, 16, 16, 16, 8), {"base": 0, "length_bytes": 8}),
    66: ((40,) * 4, 32, {"base": 0, "length_bytes": 8}),
    68: ((1184, 9248, 9248, 9248), (1176, 9240, 9240, 9240), {"base": 0, "length_bytes": 8}),
    73: ((0, 0, 0, 0, 24), 16, {"base": 0, "length_bytes": 8}),
    78: ((0, 0, 56, 56), 52, {"base": 0, "length_bytes": 8, "hClient": 44, "hObject": 48}),
}  # fmt: skip
MAP_HANDLES = {branch: (1188, 1192) if branch == 535 else (9252, 9256) for branch in BRANCHES}
UUID_AT = {37: 0, 38: 0, 25: 0, 27: 0, 66: 16}
WIDE = {"base", "length_bytes", "size_bytes"}

# VID_HEAP_CONTROL: function: {field: offset}
HEAP = {
    2: {"hObject": 44, "flags": 52, "attr": 56, "size_bytes": 88, "attr2": 144},
    # the driver overwrites its size
    6: {"hObject": 44, "flags": 52, "attr": 64, "attr2": 144},
    14: {"hObject": 44, "flags": 52, "attr": 56, "size_bytes": 80, "attr2": 136},
    3: {"hObject": 44},
    27: {"hObject": 40},
}
# NV_*_ALLOCATION_PARAMS by class: (size by branch, {field: offset})
ALLOC_PARAMS: dict[int, tuple[tuple[int, ...], dict[str, int | tuple[int, ...]]]] = {
    0x40: ((120, 128, 128, 128), {"flags": 8, "attr": 24, "attr2": 28, "size_bytes": 64}),
    0x80: ((56,) * 4, {"deviceId": 0}),
    0x90F1: ((48, 48, 48, 56), {"index": 0}),
    0xA06C: ((20,) * 4, {"engineType": 12}),
    0x9067: ((12,) * 4, {}),
    0xC86F: ((360, 360, 368, 368, 368, 368, 376), {"engineType": (128,) * 6 + (136,)}),
}
DEPENDS = {0xA06C: (8,), 0x9067: (0,), 0xC86F: (24, 28)}
# control: size of its parameters by branch
CONTROLS = {
    0x205: (32,) * 4, 0x3D05: (24,) * 4, 0x3D06: (20,) * 4, 0x3D0B: (2128,) * 4,
    0x3D0C: (652,) * 4, 0x20801301: (16,) * 4, 0x20801303: (436, 444, 460, 1028),
    0x2080018D: (3812,) * 4, 0x2080110B: (536,) * 4, 0xA06C0103: (8,) * 4, 0xA06C0104: (8,) * 4,
}  # fmt: skip


def at(sizes: int | tuple[int, ...] | None, branch: int) -> int | None:
    """What a branch has; the last one repeats."""
    if not isinstance(sizes, tuple):
        return sizes
    return sizes[min(sorted(BRANCHES).index(branch), len(sizes) - 1)]


def noise(size: int) -> st.SearchStrategy[bytes]:
    """``size`` bytes that all differ from run to run; nothing in them is worth shrinking."""
    return st.integers(0, 1 << 32).map(lambda seed: random.Random(seed).randbytes(size))


def read(data: bytes, field: str, offset: int) -> int:
    form = "<Q" if field in WIDE else "<i" if field == "fd" else "<I"
    return int(struct.unpack_from(form, data, offset)[0])


def check(request: Request, data: bytes, fields: dict[str, int]) -> None:
    for field, offset in fields.items():
        assert getattr(request, field) == read(data, field, offset), field


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("nr", RM)
@settings(max_examples=25)
@given(data=st.data())
def test_every_field_of_an_escape_is_read_where_nvidia_put_it(
    branch: Any, nr: Any, data: Any
) -> None:
    sizes, statuses, fields = RM[nr]
    size = at(sizes, branch)
    raw = data.draw(noise(size or 0))
    request = decode(ABIS[branch], Device.CTL, nr, raw)
    check(request, raw, fields)
    status = at(statuses, branch)
    assert request.status_offset == (NO_OFFSET if status is None else status)
    if status is not None:
        assert request.status == read(raw, "status", status)
    assert request.op != OP["OTHER"]


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("cmd", UVM)
@settings(max_examples=25)
@given(data=st.data())
def test_every_field_of_a_uvm_command_is_read_where_nvidia_put_it(
    branch: Any, cmd: Any, data: Any
) -> None:
    sizes, statuses, fields = UVM[cmd]
    size = at(sizes, branch)
    raw = data.draw(noise(size or 0))
    if cmd == 33:
        fields = fields | dict(zip(("hClient", "hObject"), MAP_HANDLES[branch], strict=True))
    if cmd == nv.UVM_FREE and branch >= 590:
        fields = {"base": 0}
    assert args_size(ABIS[branch], Device.UVM, cmd) == size
    request = decode(ABIS[branch], Device.UVM, cmd, raw)
    if not size:
        assert request.op == OP["OTHER"]
        return
    check(request, raw, fields)
    assert request.status_offset == at(statuses, branch)
    if cmd == nv.UVM_FREE and branch >= 590:
        assert request.length_bytes == 0, "its status is no length"
    if cmd in UUID_AT:
        assert request.gpu_uuid == raw[UUID_AT[cmd] : UUID_AT[cmd] + 16]


@given(branches, st.sampled_from(sorted(HEAP)), noise(184))
def test_vid_heap_control_is_read_by_its_function(branch: Any, function: Any, raw: Any) -> None:
    raw = raw[:8] + function.to_bytes(4, "little") + raw[12:]
    request = decode(ABIS[branch], Device.CTL, nv.VID_HEAP, raw)
    if function == 6:
        pitch = int.from_bytes(raw[60:64], "little", signed=True)
        assert request.size_bytes == read(raw, "", 56) * pitch % (1 << 64)
    check(request, raw, HEAP[function])
    assert request.op == (OP["FREE"] if function == 3 else OP["HEAP_ALLOC"])


@given(st.sampled_from([2, 6, 14]), st.integers(0, 3), st.booleans())
def test_heap_memory_lies_on_the_card_or_is_the_hosts_where_the_driver_has_it(
    function: Any, location: Any, virtual: Any
) -> None:
    raw = nv.put(184, (8, "I", function), (52, "I", virtual << 19),
                 (64 if function == 6 else 56, "I", location << 25))  # fmt: skip
    request = decode(ABIS[580], Device.CTL, nv.VID_HEAP, bytes(raw))
    expected = 0x50A0 if virtual else 0x40 if location == 0 else 0x3E
    assert request.hClass == expected


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("cls", ALLOC_PARAMS)
@settings(max_examples=25)
@given(data=st.data())
def test_allocation_parameters_are_read_where_nvidia_put_them(
    branch: Any, cls: Any, data: Any
) -> None:
    sizes, fields = ALLOC_PARAMS[cls]
    size = at(sizes, branch)
    params = data.draw(noise(size or 0))
    # user mode passes 0 for the size, or anything: the driver takes the class's
    announced = data.draw(st.sampled_from([0, 1, size or 0, (size or 0) + 8, 1 << 31]))
    for args in (
        nv.put(48, (12, "I", cls), (16, "Q", 0x7000), (32, "I", announced)),
        nv.put(32, (12, "I", cls), (16, "Q", 0x7000), (24, "I", announced)),
    ):
        request = Request(ABIS[branch], Device.CTL, nv.ALLOC, bytes(args), params)
        assert (request.params_size, request.params_ptr) == (size, 0x7000)
        assert bytes(args)[request.params_ptr_offset :][:8] == (0x7000).to_bytes(8, "little")
        check(request, params, {key: at(place, branch) or 0 for key, place in fields.items()})
        for i, offset in enumerate(DEPENDS.get(cls, ())):
            assert request.depends[i] == read(params, "", offset)
        if cls == 0xC86F:
            assert request.hUserd == read(params, "", 32 if branch < 610 else 36)


@given(branches, st.sampled_from(sorted(CONTROLS)), st.integers(0, 1 << 32 - 1), st.booleans())
def test_of_a_controls_parameters_no_more_is_copied_than_announced(
    branch: Any, cmd: Any, announced: Any, null: Any
) -> None:
    args = nv.put(32, (8, "I", cmd), (16, "Q", 0 if null else 0x5000),
                  (24, "I", announced & 0xFFFFFFFF))  # fmt: skip
    request = decode(ABIS[branch], Device.CTL, nv.CONTROL, bytes(args))
    size = at(CONTROLS[cmd], branch)
    assert request.params_size == (0 if null else min(announced & 0xFFFFFFFF, size))


def test_the_list_behind_fb_get_info_is_bounded() -> None:
    for count, size in ((0, 0), (1, 8), (128, 1024), (129, 0), (0xFFFFFFFF, 0)):
        params = nv.put(16, (0, "I", count), (8, "Q", 0x9000))
        args = nv.rm_control(1, 2, 0x20801301, params)
        request = decode(ABIS[580], Device.CTL, nv.CONTROL, bytes(args), bytes(params))
        assert (request.list_size, request.list_ptr) == (size, 0x9000)


@pytest.mark.parametrize(("cmd", "make"), [
    (0x3D05, lambda fd: nv.export_object(7, fd)),
    (0x3D06, lambda fd: nv.import_object(1, 2, fd)),
    (0x3D0B, lambda fd: nv.export_objects([7], fd)),
    (0x3D0C, lambda fd: nv.import_objects(1, 1, fd)),
])  # fmt: skip
@given(fd=st.integers(-(1 << 31), (1 << 31) - 1))
def test_the_descriptor_of_an_export_or_import_is_found(cmd: Any, make: Any, fd: Any) -> None:
    params = bytes(make(fd))
    args = nv.rm_control(1, 1, cmd, params)
    assert decode(ABIS[580], Device.CTL, nv.CONTROL, bytes(args), params).fd == fd


@given(branches, st.sampled_from(sorted(RM)), st.integers(0, 3000))
def test_a_size_that_the_driver_refuses_is_refused(branch: Any, nr: Any, size: Any) -> None:
    allowed = {at(RM[nr][0], branch)} | ({32} if nr == nv.ALLOC else set())
    if size in allowed:
        assert decode(ABIS[branch], Device.GPU, nr, bytes(size)).args_size == size
    else:
        with pytest.raises(DecodeError):
            decode(ABIS[branch], Device.GPU, nr, bytes(size))


@given(branches, st.sampled_from(sorted(UVM)), st.integers(0, 10000))
def test_a_uvm_struct_of_another_size_is_refused(branch: Any, cmd: Any, size: Any) -> None:
    if size != at(UVM[cmd][0], branch):
        with pytest.raises(DecodeError):
            decode(ABIS[branch], Device.UVM, cmd, bytes(size))


@given(branches, st.sampled_from(list(Device)), st.integers(0, 255), st.binary(max_size=200),
       st.binary(max_size=400))  # fmt: skip
def test_bytes_of_any_kind_decode_or_are_refused(
    branch: Any, device: Any, nr: Any, raw: Any, params: Any
) -> None:
    try:
        request = Request(ABIS[branch], device, nr, raw, params)
    except DecodeError:
        return
    assert request.op in OP.values()
    assert request.params_size <= lib.CGPU_PARAMS_MAX
    assert request.list_size <= 1024
    assert request.status_offset == NO_OFFSET or request.status_offset + 4 <= len(raw)
    assert request.hObject_offset + 4 <= max(len(raw), 4)


@given(st.integers(0, (1 << 32) - 1))
def test_an_escape_is_known_by_its_number_alone(cmd: Any) -> None:
    size = args_size(ABIS[580], Device.CTL, cmd)
    known = (cmd & 0xFF) in {*RM, nv.XFER}
    assert size == ((cmd >> 16 & 0x3FFF) if known else 0)


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1))
def test_a_wrapped_command_is_unwrapped_up_to_the_drivers_largest(
    cmd: Any, size: Any, pointer: Any
) -> None:
    raw = struct.pack("<IIQ", cmd, size, pointer)
    if size <= 16384:
        assert unwrap(raw) == (cmd, size, pointer)
    else:
        with pytest.raises(DecodeError):
            unwrap(raw)
    with pytest.raises(DecodeError):
        unwrap(raw + b"\0")


@given(st.integers(0, 0xFFFF))
def test_gpfifo_classes_end_in_6f(cls: Any) -> None:
    assert lib.cgpu_is_channel_class(cls) == (cls & 0xFF == 0x6F and cls >= 0xA06F)


@given(st.integers(0, 24), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1))
def test_numbers_are_little_endian_at_any_offset(offset: Any, small: Any, large: Any) -> None:
    raw = ffi.new("uint8_t[40]")
    lib.cgpu_put64(raw, offset, large)
    assert bytes(raw)[offset : offset + 8] == large.to_bytes(8, "little")
    assert lib.cgpu_get64(raw, offset) == large
    lib.cgpu_put32(raw, offset, small)
    assert lib.cgpu_get32(raw, offset) == small
    assert bytes(raw)[offset + 4 : offset + 8] == (large >> 32).to_bytes(4, "little")
