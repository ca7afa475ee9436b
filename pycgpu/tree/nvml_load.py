# SPDX-License-Identifier: MIT
"""
How much of a board is in use while its programs run, by NVML's samples over some seconds.

NVML's utilisation is time in which a kernel ran, however small. Boards from Hopper on also count
how much of them the kernels took (GPM): one reading at the start and one at the end give the mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

#: GPM metrics of what kernels can use up. A program that fills one of them fills the card.
_FILLED = (
    "SM_OCCUPANCY",
    "INTEGER_UTIL",
    "ANY_TENSOR_UTIL",
    "DRAM_BW_UTIL",
    "FP64_UTIL",
    "FP32_UTIL",
    "FP16_UTIL",
)
_SMS = "SM_UTIL"


class Load(NamedTuple):
    """
    The parts of a board that were in use, means over the sample, 0 to 1; None: NVML does not tell.

    kernels: time in which any kernel ran.
    sms: multiprocessors that had work.
    filled: the most used of the multiprocessors' warp slots, their pipes and the memory's
        bandwidth.
    processes: time in which a kernel of a process ran, by the host's number.
    """

    kernels: float | None = None
    sms: float | None = None
    filled: float | None = None
    processes: Mapping[int, float] | None = None

    @property
    def missing(self) -> list[str]:
        """Return what NVML did not tell, in words."""
        words = {
            "time in which kernels ran": self.kernels,
            "multiprocessors in use": self.sms,
            "occupancy and bandwidth": self.filled,
            "kernels by process": self.processes,
        }
        return [word for word, value in words.items() if value is None]


class Sampler:
    """
    Looks at the boards from its making to :meth:`end`, and once with each :meth:`look`.

    NVML keeps its samples for about a second, so one look a second sees all.
    """

    def __init__(self, uuids: Iterable[str]) -> None:
        """*uuids*: as NVML writes them. It never raises: :attr:`why` tells of a failure."""
        self.why: str | None = None
        self._boards: dict[str, _Board] = {}
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception as error:
            # The errors of an absent, a broken and an old library have no class in common.
            self.why = f"NVML: {str(error).lower()}"
            return
        self._nvml = pynvml
        for uuid in uuids:
            handle = _told(pynvml, "nvmlDeviceGetHandleByUUID", uuid.encode())
            if handle is not None:
                self._boards[uuid] = _Board(pynvml, handle)

    def look(self) -> None:
        """Take NVML's samples since the last look."""
        for board in self._boards.values():
            board.look()

    def end(self) -> dict[str, Load]:
        """Return the load of each board by UUID, and leave NVML."""
        found = {uuid: board.end() for uuid, board in self._boards.items()}
        self._boards = {}
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None
        return found


class _Board:
    def __init__(self, pynvml: Any, handle: Any) -> None:
        self._nvml, self._handle = pynvml, handle
        self._kernels: list[float] = []
        self._looks = 0
        self._by_pid: dict[int, float] = {}
        # Samples from before the measurement began do not count.
        before = self._process_samples(0)
        self._seen_us = None if before is None else before[0]
        self._first = self._gpm_sample()

    def look(self) -> None:
        rates = _told(self._nvml, "nvmlDeviceGetUtilizationRates", self._handle)
        if rates is not None:
            self._kernels.append(rates.gpu / 100)
        if self._seen_us is None:
            return
        found = self._process_samples(self._seen_us)
        if found is None:
            return
        self._seen_us, samples = found
        self._looks += 1
        by_pid: dict[int, list[int]] = {}
        for one in samples:
            by_pid.setdefault(int(one.pid), []).append(int(one.smUtil))
        for pid, percents in by_pid.items():
            mean = sum(percents) / len(percents) / 100
            self._by_pid[pid] = self._by_pid.get(pid, 0.0) + mean

    def end(self) -> Load:
        looks = self._looks
        last = self._gpm_sample()
        told = self._gpm_metrics(last)
        for sample in (self._first, last):
            if sample is not None:
                _told(self._nvml, "nvmlGpmSampleFree", sample)
        filled = [told[name] for name in _FILLED if name in told]
        return Load(
            sum(self._kernels) / len(self._kernels) if self._kernels else None,
            told.get(_SMS),
            # Without the places for warps the rest would make any card look empty.
            max(filled) if _FILLED[0] in told else None,
            {pid: total / looks for pid, total in self._by_pid.items()} if looks else None,
        )

    def _process_samples(self, since_us: int) -> tuple[int, list[Any]] | None:
        """Return the time of the newest sample and those after *since_us*; None: not told."""
        ask = getattr(self._nvml, "nvmlDeviceGetProcessUtilization", None)
        if ask is None:
            return None
        try:
            # A buffer that is not full ends in zeros.
            found = [one for one in ask(self._handle, since_us) if one.timeStamp > since_us]
        except self._nvml.NVMLError as error:
            # 0: no process has the board.
            nothing = (0, self._nvml.NVML_ERROR_NOT_FOUND)
            return (since_us, []) if error.value in nothing else None
        return max([since_us, *(int(one.timeStamp) for one in found)]), found

    def _gpm_sample(self) -> Any:
        support = _told(self._nvml, "nvmlGpmQueryDeviceSupport", self._handle)
        if support is None or not support.isSupportedDevice:
            return None
        sample = _told(self._nvml, "nvmlGpmSampleAlloc")
        if sample is None:
            return None
        if _told(self._nvml, "nvmlGpmSampleGet", self._handle, sample) is None:
            _told(self._nvml, "nvmlGpmSampleFree", sample)
            return None
        return sample

    def _gpm_metrics(self, last: Any) -> dict[str, float]:
        if self._first is None or last is None:
            return {}
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.sample1, asked.sample2 = self._first, last
        names = (_SMS, *_FILLED)
        asked.numMetrics = len(names)
        for place, name in enumerate(names):
            asked.metrics[place].metricId = getattr(nvml, f"NVML_GPM_METRIC_{name}")
        if _told(nvml, "nvmlGpmMetricsGet", asked) is None:
            return {}
        values = zip(names, asked.metrics[: len(names)], strict=True)
        return {
            name: min(1.0, max(0.0, one.value / 100))
            for name, one in values
            if one.nvmlReturn == 0 and math.isfinite(one.value)
        }


def _told(pynvml: Any, name: str, *args: Any) -> Any:
    """Call; return None if the board, the library or its bindings do not have the function."""
    try:
        return getattr(pynvml, name)(*args)
    except (pynvml.NVMLError, AttributeError):
        return None
