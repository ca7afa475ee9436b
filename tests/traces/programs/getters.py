# SPDX-License-Identifier: MIT
"""Every question that NVML answers about a card and that changes nothing; the answers as JSON."""

import ctypes
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator

import pynvml as n

tracer = getattr(ctypes.CDLL(None), "nvtrace_mark", None)

#: What a parameter of these names is asked with: each value a question of its own.
VALUES: dict[str, list[object]] = {
    "apiType": [0, 1],
    "counter": [0, 1],
    "encoderQueryType": [0, 1],
    "errorType": [0, 1],
    "fan": [0],
    "infoRomObject": [0, 1, 2],
    "level": [20],
    "link": [0],
    "memoryClockMHz": [1593],
    "perfPolicyType": [0, 1],
    "profile": [0],
    "sampling_type": [0, 1, 5],
    "scope": [0],
    "sensor": [0],
    "sourceFilter": [0],
    "cpuSetSize": [2],
    "nodeSetSize": [1],
    "threshold": [0, 1, 2, 3],
    "timeStamp": [0],
    "type": [0, 1, 2, 3],
    "counterType": [0, 1],
    "locationType": [0, 2],
    "capability": [0, 1, 2],
    "profileId": [0],
    "sensorindex": [0],
}
#: Which clock: current, an application's, its default, a customer's.
CLOCK_IDS: list[object] = [0, 1, 2, 3]
#: They want memory of the caller's in a shape of their own.
STRUCTURES = {
    "nvmlDeviceGetClockOffsets": "c_nvmlClockOffset_t",
    "nvmlDeviceGetPlatformInfo": "c_nvmlPlatformInfo_v2_t",
    "nvmlDeviceGetSramEccErrorStatus": "c_nvmlEccSramErrorStatus_v1_t",
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles":
        "c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t",
    "nvmlDeviceWorkloadPowerProfileGetProfilesInfo": "c_nvmlWorkloadPowerProfileProfilesInfo_v1_t",
}  # fmt: skip
#: Numbers that the library writes to.
OUT = {"minOffset", "maxOffset", "isEnabled", "defaultMode", "moduleId", "minSpeed", "maxSpeed"}
#: What is of a child of the card's, of a virtual one, or of another card, or names itself wrongly.
ELSEWHERE = re.compile(r"Vgpu|MigDevice|HandleBy|Topology|P2P|AttestationReport|^nvmlGpm|Instance")


def plain(value: object) -> object:
    """A structure of C as a dictionary, whatever else as text."""
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value[:8]]
    if isinstance(value, ctypes.Array):
        return [plain(one) for one in value[:8]]
    return repr(value)[:80]


def choices(name: str, parameter: str) -> list[object]:
    """What that parameter is asked with; nothing: it cannot be."""
    if parameter in OUT:
        return [ctypes.byref(ctypes.c_int())]
    if name == "nvmlDeviceGetClock" and parameter == "id":
        return CLOCK_IDS
    if name in STRUCTURES:
        kind = getattr(n, STRUCTURES[name], None)
        return [] if kind is None else [ctypes.byref(kind())]
    return VALUES.get(parameter, [])


def questions() -> Iterator[tuple[str, Callable[[], object]]]:
    """Names and calls."""
    card = n.nvmlDeviceGetHandleByIndex(0)
    for name, function in sorted(inspect.getmembers(n, inspect.isfunction)):
        if not re.match(r"nvml(Device|System)\w*Get", name) or ELSEWHERE.search(name):
            continue
        wanted = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is parameter.empty
        ]
        asked: list[tuple[object, ...]] = [()]
        for parameter in wanted:
            values = [card] if parameter in ("handle", "device") else choices(name, parameter)
            asked = [(*before, value) for before in asked for value in values]
        for arguments in asked:
            shown = ", ".join(str(a) for a in arguments if isinstance(a, int | str))
            yield f"{name}({shown})", lambda f=function, a=arguments: f(*a)  # type: ignore[misc]


def main() -> None:
    n.nvmlInit()
    answers: dict[str, object] = {}
    for name, ask in questions():
        if tracer is not None:
            tracer(name.encode())
        try:
            answers[name] = {"answer": plain(ask())}
        except n.NVMLError as error:
            answers[name] = {"error": str(error)}
        except (TypeError, ValueError, AttributeError, UnicodeDecodeError) as error:
            answers[name] = {"binding": repr(error)[:120]}
    n.nvmlShutdown()
    json.dump(answers, sys.stdout)
    print()


main()
