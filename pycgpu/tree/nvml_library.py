# SPDX-License-Identifier: MIT
"""
NVML's library, called without its bindings for what every screen shows.

Importing ``pynvml`` and ctypes took 30 ms of the 85 ms of ``cgpu-smi`` (CPython 3.11.7), and every
container start would wait for it. :mod:`.nvml` asks everything else by the bindings, and finds out
why NVML does not answer. A test compares both.
"""

from __future__ import annotations

import _ctypes
from _ctypes import byref

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_NOT_SUPPORTED = 3
_TEMPERATURE_GPU = 0
#: The longest of the texts: NVML_DEVICE_NAME_V2_BUFFER_SIZE.
_TEXT_BYTES = 96
#: More processes than this a server of MPS serves on no card: 48 of Volta's and later ones.
_PROCESSES_MAX = 128


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not at run time
    _type_ = "i"


class _Uint(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not at run time
    _type_ = "I"


class _Ulong(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not at run time
    _type_ = "Q"


class _Char(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not at run time
    _type_ = "c"


class _Handle(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not at run time
    _type_ = "P"


class _Text(_ctypes.Array):  # type: ignore[type-arg]  # not at run time
    _type_ = _Char
    _length_ = _TEXT_BYTES


class _Rates(_ctypes.Structure):
    _fields_ = (("gpu", _Uint), ("memory", _Uint))


class _Memory(_ctypes.Structure):
    _fields_ = (("total", _Ulong), ("free", _Ulong), ("used", _Ulong))


class _Process(_ctypes.Structure):
    _fields_ = (("pid", _Uint), ("bytes", _Ulong), ("instances", _Ulong))


class _Processes(_ctypes.Array):  # type: ignore[type-arg]  # not at run time
    _type_ = _Process
    _length_ = _PROCESSES_MAX


class _Call(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL
    _restype_ = _Int


def _call(name: str) -> Callable[..., int]:
    """Return a function of the library. OSError: no driver, or one of before it had this."""
    return _Call(_ctypes.dlsym(_ctypes.dlopen(_LIBRARY, 0), name))


def _ask(name: str, *words: Any) -> int | None:
    """Return the status of a call; None: the library does not have it."""
    try:
        call = _call(name)
    except OSError:
        return None
    return call(*words)


def begin() -> bool:
    """
    Initialise NVML, and return whether it answers.

    It waits for the driver, and others can run meanwhile.
    """
    return _ask("nvmlInit_v2") == 0


def end() -> None:
    """End one :func:`begin`."""
    _ask("nvmlShutdown")


def mig_modes(uuids: Iterable[str]) -> dict[str, bool]:
    """Return whether boards are in MIG mode; of none where NVML does not answer."""
    if not begin():
        return {}
    found = {}
    handle, now, pending = _Handle(), _Uint(), _Uint()
    for uuid in uuids:
        text: Any = _Text()  # by its type mypy fails
        text.value = uuid.encode()[: _TEXT_BYTES - 1]
        if _ask("nvmlDeviceGetHandleByUUID", text, byref(handle)):
            continue
        error = _ask("nvmlDeviceGetMigMode", handle, byref(now), byref(pending))
        if error in (0, None, _NOT_SUPPORTED):
            found[uuid] = error == 0 and bool(now.value)
    end()
    return found


def driver() -> str | None:
    """Return the driver's version."""
    text: Any = _Text()
    return None if _ask("nvmlSystemGetDriverVersion", text, _TEXT_BYTES) else _decoded(text)


def boards() -> list[dict[str, Any]] | None:
    """Return each board's :class:`.nvml.Board` fields; None: NVML does not answer."""
    handles = _handles()
    if handles is None:
        return None
    return [board for board in map(_board, handles) if board is not None]


def used_bytes() -> dict[int, int]:
    """
    Return each board's used memory by minor, with the driver's part; boards that fail are left out.

    It asks a board nothing else, because a container that returns waits for this three times.
    """
    found, minor = {}, _Uint()
    for handle in _handles() or ():
        memory = _memory(handle)
        if memory and _ask("nvmlDeviceGetMinorNumber", handle, byref(minor)) == 0:
            found[minor.value] = memory.used
    return found


def _handles() -> list[_Handle] | None:
    """Return a handle of each board that has one; None: NVML does not answer."""
    count = _Uint()
    if _ask("nvmlDeviceGetCount_v2", byref(count)) != 0:
        return None
    found = []
    for index in range(count.value):
        handle = _Handle()
        if _ask("nvmlDeviceGetHandleByIndex_v2", index, byref(handle)) == 0:
            found.append(handle)
    return found


def _memory(handle: _Handle) -> _Memory | None:
    memory = _Memory()
    return memory if _ask("nvmlDeviceGetMemoryInfo", handle, byref(memory)) == 0 else None


def _board(handle: _Handle) -> dict[str, Any] | None:
    def told(name: str, *words: Any) -> bool:
        return _ask(f"nvmlDeviceGet{name}", handle, *words) == 0

    def text(name: str) -> str | None:
        found: Any = _Text()
        return _decoded(found) if told(name, found, _TEXT_BYTES) else None

    def number(name: str, *words: int, wide: bool = False) -> int | None:
        found = _Ulong() if wide else _Uint()
        return found.value if told(name, *words, byref(found)) else None

    def mode(name: str) -> bool | None:
        now, pending = _Uint(), _Uint()
        return bool(now.value) if told(name, byref(now), byref(pending)) else None

    uuid = text("UUID")
    if uuid is None:
        return None
    rates, memory = _Rates(), _memory(handle)
    has_rates = told("UtilizationRates", byref(rates))
    return {
        "uuid": uuid,
        "minor": number("MinorNumber"),
        "name": text("Name"),
        "utilization": rates.gpu if has_rates else None,
        "memory_used_bytes": memory.used if memory else None,
        "memory_total_bytes": memory.total if memory else None,
        "temperature_c": number("Temperature", _TEMPERATURE_GPU),
        "power_w": _thousandth(number("PowerUsage")),
        "power_limit_w": _thousandth(number("EnforcedPowerLimit")),
        "ecc": mode("EccMode"),
        "energy_j": _thousandth(number("TotalEnergyConsumption", wide=True)),
        "mps": _served(told),
        "mig": mode("MigMode"),
    }


def _served(told: Callable[..., bool]) -> tuple[int, ...]:
    count = _Uint(_PROCESSES_MAX)
    found: Any = _Processes()
    if not told("MPSComputeRunningProcesses_v3", byref(count), found):
        return ()
    return tuple(sorted(found[place].pid for place in range(count.value)))


def _decoded(text: Any) -> str:
    return bytes(text.value).decode(errors="replace")


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000
