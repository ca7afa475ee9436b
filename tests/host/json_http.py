# SPDX-License-Identifier: MIT
"""An HTTP server whose bodies are JSON: what the API servers of the tests are made of."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any


class JsonHandler(http.server.BaseHTTPRequestHandler):
    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, code: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        return


def serving(handler: type[JsonHandler]) -> tuple[http.server.ThreadingHTTPServer, str]:
    """Return the server, at work on a free port of this machine, and its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"
