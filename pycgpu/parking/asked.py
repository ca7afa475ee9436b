# SPDX-License-Identifier: MIT
"""``park`` and ``resume``, requested over a daemon's socket."""

from __future__ import annotations

import errno
from typing import Any

from pycgpu.errors import CgpuError
from pycgpu.parking.moves import NoRoom, Parking


def answer(message: dict[str, Any], parking: Parking) -> dict[str, Any]:
    """Do what a message says; return its answer. EAGAIN in it: the container waits for room."""
    container_id = str(message.get("id", ""))
    try:
        if message["op"] == "park":
            return {"ok": True, "bytes": parking.park(container_id, bool(message.get("hold")))}
        parking.resume(container_id)
    except NoRoom as error:
        return {"ok": False, "errno": errno.EAGAIN, "message": str(error)}
    except CgpuError as error:
        return {"ok": False, "errno": errno.EBUSY, "message": str(error)}
    return {"ok": True}
