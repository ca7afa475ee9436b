# SPDX-License-Identifier: MIT
"""
The page over HTTP, and the requests that it makes while it is open. It can change nothing.

Tenants choose the names of containers. So the page sets them as text, and its content security
policy only allows the page's own scripts. A site that resolves its own name to this host (DNS
rebinding) is refused by the name in its request.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import http
import ipaddress
import json
import re
import socket
from collections.abc import Iterable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..request.size import is_number
from ..tree import http_server
from .watch import Watch

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css; charset=utf-8"),
}


@functools.cache
def _file(name: str) -> bytes:
    return (resources.files(__package__) / name).read_bytes()


def _hashes(element: bytes) -> str:
    """Return the content security policy's sources for the elements in the page itself."""
    found = re.findall(rb"<%s>(.*?)</%s>" % (element, element), _file("index.html"), re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in found)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


@functools.cache
def _headers() -> dict[str, str]:
    policy = {
        "default-src": "'none'",
        "script-src": f"'self' {_hashes(b'script')}",
        "style-src": f"'self' {_hashes(b'style')}",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{key} {value}" for key, value in policy.items()),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def is_own(host: str, names: Iterable[str]) -> bool:
    """Tell whether a request's ``Host`` can be meant for this server: an address, or its name."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    if name in {"localhost", *(one.lower() for one in names)}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    # No name was resolved.
    return True


def serving(watch: Watch, address: str, port: int, names: Iterable[str] = ()) -> http_server.Server:
    """
    Return a server of the page; OSError: it cannot listen.

    Args:
        names: by which it may be asked for, besides this host's own and addresses.
    """
    own = frozenset({socket.gethostname(), socket.getfqdn(), *names})

    class Handler(http_server.Handler):
        def do_GET(self) -> None:
            with self.server.answering(self.connection):
                if not is_own(self.headers.get("Host", ""), own):
                    self._say(
                        http.HTTPStatus.MISDIRECTED_REQUEST,
                        "this page is not served under that name: start cgpu web with --name\n",
                    )
                    return
                parts = urlsplit(self.path)
                if parts.path in _FILES:
                    name, kind = _FILES[parts.path]
                    self._answer(http.HTTPStatus.OK, _file(name), kind)
                elif parts.path == "/hosts.json":
                    self._json(
                        {"every_s": watch.every_s, "hosts": [one.now() for one in watch.hosts]}
                    )
                elif parts.path == "/chart.json":
                    self._chart(parse_qs(parts.query))
                else:
                    self._say(http.HTTPStatus.NOT_FOUND, "there is no such page\n")

        def _chart(self, query: dict[str, list[str]]) -> None:
            host, gpu = (query.get(key, [""])[-1] for key in ("host", "gpu"))
            if not (is_number(host) and is_number(gpu)) or int(host) >= len(watch.hosts):
                self._say(http.HTTPStatus.NOT_FOUND, "there is no such host\n")
                return
            self._json(watch.hosts[int(host)].chart(int(gpu)))

        def _json(self, value: Any) -> None:
            text = json.dumps(value, separators=(",", ":"), allow_nan=False)
            self._answer(http.HTTPStatus.OK, text.encode(), "application/json")

        def _say(self, status: http.HTTPStatus, text: str) -> None:
            self._answer(status, text.encode(), "text/plain; charset=utf-8")

        def _answer(self, status: http.HTTPStatus, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for key, value in _headers().items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

    return http_server.Server(address, port, Handler)
