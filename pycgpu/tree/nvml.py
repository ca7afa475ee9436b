# SPDX-License-Identifier: MIT
"""
What NVIDIA's management library says of the boards, by ``pynvml``; only :mod:`.nvml_load`, which
samples for some seconds, imports that too.

:mod:`.nvml_library` reads what every screen shows, without ``pynvml``.

The library comes with the driver and may be absent, broken or of another version than the
driver. None of that is an error here: a missing value is None, and :class:`Nvml` says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CgpuError
from . import nvml_library


class Detail(NamedTuple):
    """
    What only `cgpu-smi -q` and queries ask for: each is a call into the driver more.

    ecc_errors: by when they are counted from and kind, such as ``volatile.corrected``.
    """

    pci_bus_id: str | None = None
    pstate: int | None = None
    memory_utilization: int | None = None
    persistence: bool | None = None
    clocks_mhz: dict[str, int] = {}  # noqa: RUF012 # never written to
    max_clocks_mhz: dict[str, int] = {}  # noqa: RUF012
    ecc_pending: bool | None = None
    ecc_errors: dict[str, int] = {}  # noqa: RUF012


class Board(NamedTuple):
    """
    One GPU as NVML sees it; None is what this board or driver does not tell.

    minor: N of ``/dev/nvidiaN``; not NVML's index, which follows the PCI bus.
    utilization: percent of the last sampling period in which a kernel ran.
    memory_used_bytes: of all processes, containers or not, and of the driver itself.
    ecc: whether errors in the card's memory are corrected now; None on boards without ECC.
    detail: empty unless it was asked for.
    energy_j: energy drawn since the driver was loaded.
    mig: whether it is in MIG mode; None on boards without.
    mps: processes that an MPS server serves, which nvidia-smi shows as type M+C.
    """

    uuid: str
    minor: int | None
    name: str | None
    utilization: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_c: int | None
    power_w: float | None
    power_limit_w: float | None
    ecc: bool | None = None
    detail: Detail = Detail()
    energy_j: float | None = None
    mps: tuple[int, ...] = ()
    mig: bool | None = None


class Nvml(NamedTuple):
    """``why`` is None, or one line why ``boards`` tell no more than the driver's files do."""

    boards: tuple[Board, ...] = ()
    driver: str | None = None
    why: str | None = None

    def board(self, uuid: str, minor: int) -> Board | None:
        """Return the board of this UUID; of this minor where the tree does not know the UUID."""
        for board in self.boards:
            if uuid and board.uuid.lower() == uuid.lower():
                return board
        if not uuid:
            for board in self.boards:
                if board.minor == minor:
                    return board
        return None


def read(detailed: bool = False) -> Nvml:
    """Return what NVML says now. Never raises: a monitor must work where NVML does not."""
    found = _plain() if not detailed else None
    return _by_bindings(detailed) if found is None else found


def _plain() -> Nvml | None:
    if not nvml_library.begin():
        return None
    try:
        boards = nvml_library.boards()
        if boards is None:
            return None
        return Nvml(tuple(Board(**told) for told in boards), nvml_library.driver())
    finally:
        nvml_library.end()


def _by_bindings(detailed: bool) -> Nvml:
    try:
        import pynvml
    except ImportError:
        return from_files("no nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return from_files(_reason(error))
    except (AttributeError, OSError) as error:
        return from_files(f"NVML does not load: {error}")
    try:
        count = pynvml.nvmlDeviceGetCount()
        boards = [_board(pynvml, index, detailed) for index in range(count)]
        driver = _told(pynvml, pynvml.nvmlSystemGetDriverVersion)
        return Nvml(tuple(board for board in boards if board), _text(driver))
    except pynvml.NVMLError as error:
        return Nvml(why=_reason(error))
    finally:
        pynvml.nvmlShutdown()


def from_files(why: str, prefix: str = "/") -> Nvml:
    """Return what the driver's own files tell, ``/proc/driver/nvidia``: names, and its version."""
    top = Path(prefix) / "proc/driver/nvidia"
    boards = []
    for path in sorted(top.glob("gpus/*/information")):
        told = dict(_lines(path))
        minor = told.get("Device Minor", "")
        if "GPU UUID" in told:
            number = int(minor) if minor.isdecimal() else None
            boards.append(Board(told["GPU UUID"], number, told.get("Model"), *(None,) * 6))
    version = next((line for line, _ in _lines(top / "version", "\n")), "")
    found = re.search(r"\d+\.\d+(?:\.\d+)?", version)
    return Nvml(tuple(boards), found[0] if found else None, why)


def _lines(path: Path, separator: str = ":") -> list[tuple[str, str]]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    pairs = (line.partition(separator) for line in lines)
    return [(key.strip(), value.strip()) for key, _, value in pairs]


@contextmanager
def held() -> Iterator[None]:
    """Keep NVML initialised in this context, so that frequent readers initialise it once."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        # read() says why.
        yield
        return
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


class BoardLost(CgpuError):
    """A board does not answer: it has fallen off the bus, or needs a reset."""


class NoEvents(CgpuError):
    """A board answers, and does not tell its errors."""


@contextmanager
def initialised() -> Iterator[None]:
    """
    Have NVML look for the boards anew, unless this process keeps it initialised already.

    Raises:
        CgpuError: NVML does not answer; the message is one line.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        raise CgpuError(_reason(error)) from None
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def in_mig_mode(uuid: str) -> bool:
    """Tell whether a board is in MIG mode; while NVML is initialised. False where it has none."""
    import pynvml

    board = _told(pynvml, pynvml.nvmlDeviceGetHandleByUUID, uuid.encode())
    return board is not None and _is_mig(pynvml, board) is True


def _is_mig(pynvml: Any, handle: Any) -> bool | None:
    mode = _told(pynvml, getattr(pynvml, "nvmlDeviceGetMigMode", _without), handle)
    return None if mode is None else bool(mode[0])


def _without(*args: Any) -> None:
    """What bindings without a call answer."""


class Xids:
    """The Xid errors of one board, from now on; while NVML is initialised."""

    def __init__(self, uuid: str) -> None:
        """
        Begin to listen.

        Raises:
            BoardLost: the board does not answer.
            NoEvents: it does, and tells none.
            CgpuError: NVML does not know it, or fails; one line why.
        """
        import pynvml

        self._nvml = pynvml
        self._events = self._call(pynvml.nvmlEventSetCreate)
        try:
            board = self._call(pynvml.nvmlDeviceGetHandleByUUID, uuid.encode())
            kind = pynvml.nvmlEventTypeXidCriticalError
            try:
                self._call(pynvml.nvmlDeviceRegisterEvents, board, kind, self._events)
            except BoardLost:
                raise
            except CgpuError as error:
                raise NoEvents(str(error)) from None
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_ms: int) -> int | None:
        """
        Return the next Xid, or None if none comes in that time.

        Raises:
            BoardLost: the board does not answer any more.
            CgpuError: the wait has failed; one line why.
        """
        try:
            event = self._call(self._nvml.nvmlEventSetWait_v2, self._events, timeout_ms)
        except self._nvml.NVMLError_Timeout:
            return None
        return int(event.eventData)

    def close(self) -> None:
        """Listen no more."""
        _told(self._nvml, self._nvml.nvmlEventSetFree, self._events)

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except self._nvml.NVMLError_Timeout:
            raise
        except self._nvml.NVMLError as error:
            lost = (self._nvml.NVML_ERROR_GPU_IS_LOST, self._nvml.NVML_ERROR_RESET_REQUIRED)
            raise (BoardLost if error.value in lost else CgpuError)(_reason(error)) from None


def _reason(error: Exception) -> str:
    return f"NVML: {str(error).lower()}"


def _told(pynvml: Any, call: Callable[..., Any], *args: Any) -> Any:
    """Call; return None if the board or the installed library does not have the function."""
    try:
        return call(*args)
    except (pynvml.NVMLError, AttributeError):
        return None


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _board(pynvml: Any, index: int, detailed: bool) -> Board | None:
    handle = _told(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
    uuid = None if handle is None else _text(_told(pynvml, pynvml.nvmlDeviceGetUUID, handle))
    if uuid is None:
        return None
    rates = _told(pynvml, pynvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _told(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    ecc = _told(pynvml, pynvml.nvmlDeviceGetEccMode, handle)
    return Board(
        uuid=uuid,
        minor=_told(pynvml, pynvml.nvmlDeviceGetMinorNumber, handle),
        name=_text(_told(pynvml, pynvml.nvmlDeviceGetName, handle)),
        utilization=None if rates is None else int(rates.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        temperature_c=_told(
            pynvml, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
        ),
        power_w=_watts(_told(pynvml, pynvml.nvmlDeviceGetPowerUsage, handle)),
        power_limit_w=_watts(_told(pynvml, pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        ecc=None if ecc is None else bool(ecc[0]),
        detail=_detail(pynvml, handle) if detailed else Detail(),
        energy_j=_watts(_told(pynvml, pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
        mps=_served(pynvml, handle),
        mig=_is_mig(pynvml, handle),
    )


def _served(pynvml: Any, handle: Any) -> tuple[int, ...]:
    # A library that is older than the call has no MPS of Volta's either.
    ask = getattr(pynvml, "nvmlDeviceGetMPSComputeRunningProcesses_v3", None)
    found = None if ask is None else _told(pynvml, ask, handle)
    return tuple(sorted(int(one.pid) for one in found or ()))


def _detail(pynvml: Any, handle: Any) -> Detail:
    def asked(name: str, *args: Any) -> Any:
        return _told(pynvml, getattr(pynvml, f"nvmlDeviceGet{name}"), handle, *args)

    def clocks(name: str) -> dict[str, int]:
        numbers = {
            "graphics": pynvml.NVML_CLOCK_GRAPHICS,
            "sm": pynvml.NVML_CLOCK_SM,
            "memory": pynvml.NVML_CLOCK_MEM,
            "video": pynvml.NVML_CLOCK_VIDEO,
        }
        found = {key: asked(name, number) for key, number in numbers.items()}
        return {key: mhz for key, mhz in found.items() if mhz is not None}

    errors = {
        f"{since}.{kind}": asked("TotalEccErrors", kind_number, since_number)
        for since, since_number in (
            ("volatile", pynvml.NVML_VOLATILE_ECC),
            ("aggregate", pynvml.NVML_AGGREGATE_ECC),
        )
        for kind, kind_number in (
            ("corrected", pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ("uncorrected", pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        )
    }
    pci, rates, ecc = asked("PciInfo"), asked("UtilizationRates"), asked("EccMode")
    pstate, persistence = asked("PerformanceState"), asked("PersistenceMode")
    return Detail(
        pci_bus_id=None if pci is None else _text(pci.busId),
        # 32 says that the board does not know.
        pstate=pstate if pstate is not None and pstate < 32 else None,
        memory_utilization=None if rates is None else int(rates.memory),
        persistence=None if persistence is None else bool(persistence),
        clocks_mhz=clocks("ClockInfo"),
        max_clocks_mhz=clocks("MaxClockInfo"),
        ecc_pending=None if ecc is None else bool(ecc[1]),
        ecc_errors={key: count for key, count in errors.items() if count is not None},
    )
