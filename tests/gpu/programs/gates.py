# SPDX-License-Identifier: MIT
"""
What opens a channel that was disabled, as the doors take for granted: one line of JSON.

Under ``LD_PRELOAD`` of gates.c, whose ``$GATES`` says what is disabled before its group is
scheduled for the first time. Each name is what was done since the state before; true: the
card works.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time

SETTLE_S = 0.3
CONTEXT_S = 4.0

cuda = ctypes.CDLL("libcuda.so.1")
gates = ctypes.CDLL(None)
context = ctypes.c_void_p()
memory = ctypes.c_uint64()
done = 0


def begin() -> None:
    """Make a context, which computes."""
    device = ctypes.c_int()
    for result in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)),
    ):
        if result:
            raise RuntimeError(f"CUDA: {result}")


def work() -> None:
    """Have the card do something, again and again."""
    global done
    cuda.cuCtxSetCurrent(context)
    while True:
        cuda.cuMemsetD32_v2(memory, ctypes.c_uint(7), ctypes.c_size_t(1 << 18))
        cuda.cuCtxSynchronize()
        done += 1


def works() -> bool:
    """Tell whether anything is done from now on."""
    time.sleep(SETTLE_S)  # what was under way
    before = done
    time.sleep(SETTLE_S)
    return done > before


def reschedule() -> None:
    """Take the groups off their runlist, and put them back."""
    gates.gates_schedule_groups(0)
    gates.gates_schedule_groups(1)


started = threading.Thread(target=begin, daemon=True)
started.start()
started.join(CONTEXT_S)
seen = {"begins": not started.is_alive()}
if seen["begins"]:
    threading.Thread(target=work, daemon=True).start()
    seen["works"] = works()
    for what, act in (
        ("disabled", lambda: gates.gates_disable(1)),
        ("channels scheduled", gates.gates_schedule_channels),
        ("groups scheduled", lambda: gates.gates_schedule_groups(1)),
        ("enabled", lambda: gates.gates_disable(0)),
        ("disabled again", lambda: gates.gates_disable(1)),
        ("groups scheduled again", lambda: gates.gates_schedule_groups(1)),
        ("groups unscheduled first", reschedule),
        ("interruptible anew", gates.gates_make_interruptible),
        ("enabled again", lambda: gates.gates_disable(0)),
        ("disabled twice", lambda: [gates.gates_disable(1) for _ in range(2)]),
        ("enabled once", lambda: gates.gates_disable(0)),
        ("enabled twice", lambda: gates.gates_disable(0)),
    ):
        act()
        seen[what] = works()
print(json.dumps(seen), flush=True)
os._exit(0)
