# SPDX-License-Identifier: MIT
"""
An HTTP server that no client can block for others.

It answers a bounded number of connections, each in a thread. When all are taken, the connection
that has gone longest without a whole request is closed. So a client that opens many connections,
or sends single bytes, blocks no other client. Bodies are bounded, and every wait has a time-out.
"""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

CONNECTIONS_MAX = 64
TIMEOUT_S = 10.0


class BadRequest(Exception):
    """A request that is answered with *status* and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Server(http.server.ThreadingHTTPServer):
    """Its handlers are :class:`Handler`'s."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str, port: int, handler: type[http.server.BaseHTTPRequestHandler]):
        if ":" in address:
            self.address_family = socket.AF_INET6
        self._lock = threading.Lock()
        #: When the wait for each connection's next request began; None: one is being answered.
        self._waiting: dict[socket.socket, float | None] = {}
        super().__init__((address, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._enter(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # The system has no thread left at the moment.
            self._leave(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log a client that went away or was too slow."""

    def _enter(self, request: socket.socket) -> bool:
        with self._lock:
            if len(self._waiting) >= CONNECTIONS_MAX:
                waiting = {one: since for one, since in self._waiting.items() if since is not None}
                if not waiting:
                    return False
                slowest = min(waiting, key=lambda one: waiting[one])
                del self._waiting[slowest]
                with contextlib.suppress(OSError):
                    slowest.shutdown(socket.SHUT_RDWR)
            self._waiting[request] = time.monotonic()
            return True

    def _leave(self, request: socket.socket) -> None:
        with self._lock:
            self._waiting.pop(request, None)

    @contextlib.contextmanager
    def answering(self, request: socket.socket) -> Iterator[None]:
        """While the context lasts, the connection makes room for none."""
        with self._lock:
            if request in self._waiting:
                self._waiting[request] = None
        try:
            yield
        finally:
            with self._lock:
                if request in self._waiting:
                    self._waiting[request] = time.monotonic()


class Handler(http.server.BaseHTTPRequestHandler):
    """A handler that waits for its client at most :data:`TIMEOUT_S`."""

    server: Server
    timeout = TIMEOUT_S

    def body(self, bytes_max: int) -> bytes:
        """
        Return the request's body.

        Raises:
            BadRequest: it has no length, is longer than *bytes_max*, or does not come.
        """
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise BadRequest(411, "the request says no length")
        if len(length) > 18 or int(length) > bytes_max:
            raise BadRequest(413, f"the request has more than {bytes_max} bytes")
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            raise BadRequest(400, "the request ends in its middle")
        return raw

    def log_message(self, format: str, *args: Any) -> None:
        return
