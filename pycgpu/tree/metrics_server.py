# SPDX-License-Identifier: MIT
"""Metrics over HTTP: one scrape at a time reads them; none waits for a slow client of another."""

from __future__ import annotations

import threading
from urllib.parse import parse_qs, urlparse

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from . import http_server


def serving(registry: CollectorRegistry, address: str, port: int) -> http_server.Server:
    """Return a server of *registry*'s metrics, at whatever path; OSError: it cannot listen."""
    reading = threading.Lock()

    class Handler(http_server.Handler):
        def do_GET(self) -> None:
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            names = parse_qs(urlparse(self.path).query).get("name[]")
            with self.server.answering(self.connection):
                with reading:
                    output = encode(registry.restricted_registry(names) if names else registry)
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(output)))
                self.end_headers()
                self.wfile.write(output)

    return http_server.Server(address, port, Handler)
