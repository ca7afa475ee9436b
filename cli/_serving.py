# SPDX-License-Identifier: MIT
"""A command that serves over HTTP until a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from socketserver import BaseServer

from pycgpu.errors import CgpuError

from . import _number


def begin(
    listen: str, port: int, make: Callable[[str, int], BaseServer], path: str
) -> threading.Event:
    """
    Serve beside the caller and say where; return what SIGTERM sets.

    Args:
        listen: ``[ADDRESS]:PORT``; without ADDRESS everywhere, without PORT at *port*.
        make: returns the server of an address and a port; OSError: it cannot listen there.

    Raises:
        CgpuError: it cannot listen there.
    """
    address, port = _number.listening(listen, port)
    address = address or "0.0.0.0"
    try:
        server = make(address, port)
    except OSError as error:
        raise CgpuError(
            f"cannot listen on {address}:{port}: {error.strerror}; choose by --listen"
        ) from None
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shown = f"[{address}]" if ":" in address else address
    print(f"serving http://{shown}:{port}{path}", flush=True)
    return ended
