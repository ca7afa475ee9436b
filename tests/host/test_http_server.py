# SPDX-License-Identifier: MIT
"""What exporter, extender and page listen at, before clients that mean them ill."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from prometheus_client import CollectorRegistry, Gauge

from pycgpu.kubernetes import extender
from pycgpu.kubernetes.apiserver import Access
from pycgpu.kubernetes.families import FAMILIES
from pycgpu.tree import http_server, metrics_server
from pycgpu.web import page, watch


def _connected(server: http_server.Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_address[1]), 5)


@pytest.fixture(params=["exporter", "extender", "web"])
def server(request: pytest.FixtureRequest) -> Iterator[http_server.Server]:
    """One of the three, which answers."""
    if request.param == "exporter":
        registry = CollectorRegistry()
        Gauge("cards", "How many.", registry=registry).set(1)
        made = metrics_server.serving(registry, "127.0.0.1", 0)
    elif request.param == "web":
        made = page.serving(watch.Watch(("n1",), 5), "127.0.0.1", 0)
    else:
        cluster = extender.Cluster((FAMILIES["hami"],), "binpack")
        made = extender.server(cluster, Access("http://x", "/x", "/x"), "127.0.0.1", 0)
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def _asked(server: http_server.Server) -> int:
    """The status of a question that is answered whoever else there is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
    try:
        connection.request("POST", "/none", b"{}")
        status = connection.getresponse().status
        if status != 501:
            return status
        connection.close()
        # each has this one, or answers whatever is asked
        connection.request("GET", "/hosts.json")
        return connection.getresponse().status
    finally:
        connection.close()


def test_who_connects_without_end_or_says_nothing_keeps_nobody_out(
    server: http_server.Server,
) -> None:
    """A thousand, some of which begin a request: the server has a bound, and others an answer."""
    before = threading.active_count()
    with ExitStack() as stack:
        for number in range(1000):
            one = stack.enter_context(_connected(server))
            if number % 2:
                one.send(b"POST /filter HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
        assert _asked(server) == 200
        assert threading.active_count() - before <= 2 * http_server.CONNECTIONS_MAX


def test_who_does_not_take_an_answer_is_not_waited_for(
    server: http_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server.Handler, "timeout", 0.5)
    with _connected(server) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send(b"POST /filter HTTP/1.1\r\nContent-Le")
        began_s = time.monotonic()
        slow.settimeout(10)
        # it is told nothing, or that it was too slow, and then there is an end
        while slow.recv(1 << 16):
            pass
        assert time.monotonic() - began_s < 5
    assert _asked(server) == 200


@pytest.mark.parametrize("hello", ["tls", "garbage", "headers"])
def test_what_is_no_request_is_refused(server: http_server.Server, hello: str) -> None:
    with _connected(server) as one:
        if hello == "tls":
            context = ssl.create_default_context()
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(one, server_hostname="localhost")
        elif hello == "garbage":
            one.sendall(b"\xff" * 70000)
            one.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                one.recv(1)
        else:
            one.sendall(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n")
            assert b" 431 " in one.recv(1 << 12)
    assert _asked(server) == 200


@pytest.fixture
def asked_by_scheduler() -> Iterator[http_server.Server]:
    cluster = extender.Cluster((FAMILIES["hami"],), "binpack")
    made = extender.server(cluster, Access("http://x", "/x", "/x"), "127.0.0.1", 0)
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.parametrize(
    ("headers", "body", "status", "why"),
    [
        ("Content-Length: 99999999999", b"", 413, "more than 8388608 bytes"),
        ("Content-Length: " + "9" * 5000, b"", 413, "more than 8388608 bytes"),
        ("Content-Length: -1", b"", 411, "says no length"),
        ("Content-Length: x", b"", 411, "says no length"),
        ("X: y", b"", 411, "says no length"),
        ("Content-Length: 2", b"[]", 400, "no JSON object"),
        ("Content-Length: 2", b"[[", 400, "no JSON"),
        ("Content-Length: 100000", b"[" * 100000, 400, "no JSON"),
        ("Content-Length: 26", b'{"pod":"x","nodenames":[]}', 400, "malformed"),
        ("Content-Length: 12", b'{"Pod": {}} ', 400, "in the request"),
    ],
)
def test_a_question_that_is_none_is_told_so(
    asked_by_scheduler: http_server.Server, headers: str, body: bytes, status: int, why: str
) -> None:
    with _connected(asked_by_scheduler) as one:
        one.sendall(f"POST /filter HTTP/1.1\r\n{headers}\r\n\r\n".encode() + body)
        answer = http.client.HTTPResponse(one)
        answer.begin()
        assert answer.status == status
        assert why in json.loads(answer.read())["error"]
