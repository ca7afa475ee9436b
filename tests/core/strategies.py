# SPDX-License-Identifier: MIT
"""
NVIDIA's structures as bytes, and what hypothesis draws from.

Every offset here was written down from NVIDIA's headers (nvos.h, nv-ioctl.h, uvm_ioctl.h,
ctrl0000unix.h) and from nothing of ours: these builders are the other side of the decoder.
"""

from __future__ import annotations

import struct

from hypothesis import strategies as st

# NV01_EVENT_*, a flag in NV0005_ALLOC_PARAMETERS.notifyIndex
WITHOUT_EVENT_DATA = 0x10000000
ALLOC_MEMORY, ALLOC_OBJECT, FREE, CONTROL, ALLOC = 39, 40, 41, 42, 43
DUP, SHARE, VID_HEAP, MAP_MEMORY, UNMAP_MEMORY = 52, 53, 74, 78, 79
CONTEXT_DMA2, REGISTER_FD, XFER, DMABUF = 84, 201, 211, 217

UVM_REGISTER_GPU_VASPACE, UVM_UNREGISTER_GPU_VASPACE, UVM_MAP_EXTERNAL = 25, 26, 33
UVM_REGISTER_CHANNEL, UVM_UNREGISTER_CHANNEL = 27, 28
UVM_FREE, UVM_REGISTER_GPU, UVM_UNREGISTER_GPU, UVM_UNMAP_EXTERNAL = 34, 37, 38, 66
UVM_SEMAPHORE_POOL, UVM_CREATE_EXTERNAL, UVM_DEVICE_P2P = 68, 73, 78
UVM_PARALLELISM, UVM_MAP_SPARSE = 65, 74
UVM_INITIALIZE, UVM_DEINITIALIZE = 0x30000001, 0x30000002

ROOT, MEMORY_SYSTEM, MEMORY_USER, ROOT_CLIENT, DEVICE = 0x0, 0x3E, 0x40, 0x41, 0x80
SUBDEVICE, VASPACE, GROUP, CONTEXT_SHARE, CHANNEL = 0x2080, 0x90F1, 0xA06C, 0x9067, 0xC86F

EXPORT_OBJECT, IMPORT_OBJECT, EXPORT_OBJECTS, IMPORT_OBJECTS = 0x3D05, 0x3D06, 0x3D0B, 0x3D0C

OK, INVALID_CLIENT, INVALID_PARENT, NO_MEMORY, NOT_FOUND = 0, 0x23, 0x36, 0x51, 0x57
DUPLICATE_NAME, INVALID_ARGUMENT, STATE_IN_USE, ADDRESS_IN_USE = 0x19, 0x1F, 0x63, 0x68
INSUFFICIENT_PERMISSIONS, INVALID_DEVICE, NOT_SUPPORTED = 0x1B, 0x26, 0x56
INVALID_ADDRESS = 0x1E

#: Whose layouts were compared with NVIDIA's own headers.
COMPARED = {
    535: "535.288.01",
    550: "550.163.01",
    570: "570.211.01",
    580: "580.142",
    590: "590.48.01",
    595: "595.44.03",
}
BRANCHES = COMPARED | {610: "610.57.04"}
branches = st.sampled_from(sorted(BRANCHES))


def put(size: int, *fields: tuple[int, str, int]) -> bytearray:
    """``size`` zero bytes with values at (offset, struct format, value)."""
    out = bytearray(size)
    for offset, form, value in fields:
        struct.pack_into("<" + form, out, offset, value)
    return out


def get32(data: bytes | bytearray, offset: int) -> int:
    return int(struct.unpack_from("<I", data, offset)[0])


def get64(data: bytes | bytearray, offset: int) -> int:
    return int(struct.unpack_from("<Q", data, offset)[0])


def set32(data: bytearray, offset: int, value: int) -> None:
    struct.pack_into("<I", data, offset, value)


def rm_alloc(
    client: int, parent: int, new: int, cls: int, params: bytes | bytearray = b""
) -> bytearray:
    """NVOS64_PARAMETERS."""
    return put(48, (0, "I", client), (4, "I", parent), (8, "I", new), (12, "I", cls),
               (16, "Q", 0x1000 if params else 0), (32, "I", len(params)))  # fmt: skip


def memory_params(size_bytes: int, attr: int = 0, attr2: int = 0, flags: int = 0) -> bytearray:
    """NV_MEMORY_ALLOCATION_PARAMS since 550."""
    return put(128, (8, "I", flags), (24, "I", attr), (28, "I", attr2), (64, "Q", size_bytes))


def device_params(instance: int) -> bytearray:
    """NV0080_ALLOC_PARAMETERS, vaMode as CUDA has it: no address space comes with it."""
    return put(56, (0, "I", instance), (48, "I", 2))


def group_params(vaspace: int, engine: int) -> bytearray:
    return put(20, (8, "I", vaspace), (12, "I", engine))


def rm_free(client: int, handle: int) -> bytearray:
    """NVOS00_PARAMETERS."""
    return put(16, (0, "I", client), (8, "I", handle))


def heap_free(client: int, handle: int) -> bytearray:
    """NVOS32_PARAMETERS, function FREE."""
    return put(184, (0, "I", client), (8, "I", 3), (44, "I", handle))


def heap_alloc(client: int, parent: int, new: int, size_bytes: int, attr: int = 0, flags: int = 0
               ) -> bytearray:  # fmt: skip
    """NVOS32_PARAMETERS, function ALLOC_SIZE."""
    return put(184, (0, "I", client), (4, "I", parent), (8, "I", 2), (44, "I", new),
               (52, "I", flags), (56, "I", attr), (88, "Q", size_bytes))  # fmt: skip


def heap_alloc_tiled(client: int, parent: int, new: int, height: int, pitch: int, size_bytes: int,
                     flags: int = 0) -> bytearray:  # fmt: skip
    """NVOS32_PARAMETERS, function ALLOC_TILED_PITCH_HEIGHT, whose size the driver overwrites."""
    return put(184, (0, "I", client), (4, "I", parent), (8, "I", 6), (44, "I", new),
               (52, "I", flags), (56, "I", height), (60, "i", pitch),
               (88, "Q", size_bytes))  # fmt: skip


def rm_dup(client: int, parent: int, new: int, src_client: int, src: int) -> bytearray:
    """NVOS55_PARAMETERS."""
    return put(28, (0, "I", client), (4, "I", parent), (8, "I", new), (12, "I", src_client),
               (16, "I", src))  # fmt: skip


def rm_control(client: int, handle: int, cmd: int, params: bytes | bytearray = b"", flags: int = 0
               ) -> bytearray:  # fmt: skip
    """NVOS54_PARAMETERS."""
    return put(32, (0, "I", client), (4, "I", handle), (8, "I", cmd), (12, "I", flags),
               (16, "Q", 0x2000 if params else 0), (24, "I", len(params)))  # fmt: skip


def export_object(handle: int, fd: int) -> bytearray:
    return put(24, (0, "I", 1), (12, "I", handle), (16, "i", fd))


def export_objects(handles: list[int], fd: int, first: int = 0, places: int = 512) -> bytearray:
    return put(2128, (0, "i", fd), (8, "H", places), (2124, "H", len(handles)), (2126, "H", first),
               *((76 + 4 * i, "I", h) for i, h in enumerate(handles)))  # fmt: skip


def create_export(fd: int, places: int) -> bytearray:
    return put(76, (4, "H", places), (72, "i", fd))


def import_object(parent: int, new: int, fd: int) -> bytearray:
    return put(20, (0, "i", fd), (4, "I", 1), (12, "I", parent), (16, "I", new))


def import_objects(
    parent: int, count: int, fd: int, first: int = 0, wanted: tuple[int, ...] = ()
) -> bytearray:
    return put(652, (0, "i", fd), (4, "I", parent), (648, "H", count), (650, "H", first),
               *((8 + 4 * i, "I", h) for i, h in enumerate(wanted)))  # fmt: skip


def uvm_register_gpu(uuid: bytes, client: int = 0) -> bytearray:
    out = put(40, (24, "i", -1), (28, "I", client))
    out[0:16] = uuid
    return out


def uvm_unregister_gpu(uuid: bytes) -> bytearray:
    return bytearray(uuid) + bytearray(4)


def uvm_register_vaspace(uuid: bytes, client: int, vaspace: int) -> bytearray:
    return bytearray(uuid) + put(16, (0, "i", -1), (4, "I", client), (8, "I", vaspace))


def uvm_unregister_vaspace(uuid: bytes) -> bytearray:
    return bytearray(uuid) + bytearray(4)


def uvm_register_channel(uuid: bytes, client: int, channel: int) -> bytearray:
    return bytearray(uuid) + put(40, (0, "i", -1), (4, "I", client), (8, "I", channel))


def uvm_unregister_channel(branch: int, uuid: bytes, client: int, channel: int) -> bytearray:
    handles = put(12, (0, "I", client), (4, "I", channel))
    return handles if branch >= 590 else bytearray(uuid) + handles


def uvm_map(base: int, length: int, client: int, memory: int, uuids: list[bytes]) -> bytearray:
    """UVM_MAP_EXTERNAL_ALLOCATION_PARAMS since 550."""
    out = put(9264, (0, "Q", base), (8, "Q", length), (9240, "Q", len(uuids)),
              (9252, "I", client), (9256, "I", memory))  # fmt: skip
    for i, uuid in enumerate(uuids):
        out[24 + 36 * i : 40 + 36 * i] = uuid
    return out


def uvm_unmap(base: int, length: int, uuid: bytes) -> bytearray:
    out = put(40, (0, "Q", base), (8, "Q", length))
    out[16:32] = uuid
    return out


def uvm_map_sparse(base: int, length: int, uuid: bytes) -> bytearray:
    """Also UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS."""
    return uvm_unmap(base, length, uuid)


def uvm_free(base: int, length: int) -> bytearray:
    return put(24, (0, "Q", base), (8, "Q", length))


def uvm_free_by_base(base: int) -> bytearray:
    """UVM_FREE_PARAMS since 590; what stands where a length was is the status."""
    return put(16, (0, "Q", base), (8, "I", 0x10000))


def uvm_create_external(base: int, length: int) -> bytearray:
    return put(24, (0, "Q", base), (8, "Q", length))


def uvm_semaphore_pool(base: int, length: int) -> bytearray:
    return put(9248, (0, "Q", base), (8, "Q", length), (9232, "Q", 1))


def card_uuid(minor: int) -> bytes:
    return bytes([0x60 + minor]) * 16
