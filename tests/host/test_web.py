# SPDX-License-Identifier: MIT
"""``cgpu web`` without a browser: what it answers, to whom, and what may run in its page."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.cli import main
from pycgpu.errors import CgpuError
from pycgpu.tree import metrics_server
from pycgpu.web import reading
from pycgpu.web.history import HOUR_S, Host
from pycgpu.web.page import is_own
from pycgpu.web.reading import Part, Reading
from pycgpu.web.watch import Watch
from tests.host import program, web_hosts
from tests.host.coretree import GIB, CoreTree
from tests.host.prometheus import free_port
from tests.host.web_hosts import HOSTILE, NAMES, served
from tests.process import output

WEB = Path(__file__).resolve().parents[2] / "pycgpu/web"
PAGE = (WEB / "index.html").read_text()


def ask(port: int, path: str, host: str = "127.0.0.1", method: str = "GET") -> Any:
    """Return status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The page of a host of two cards with six containers each."""
    host = web_hosts.Host(tmp_path_factory.mktemp("web") / "host", 2)
    with served(host.watch()) as found:
        yield found


# ---- what may run in it


def test_the_page_admits_its_own_script_and_no_other(port: int) -> None:
    status, headers, body = ask(port, "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    policy = dict(one.split(" ", 1) for one in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["form-action"] == "'none'" and policy["connect-src"] == "'self'"
    for tag in ("script", "style"):
        (inline,) = re.findall(f"<{tag}>(.*?)</{tag}>", body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'self' 'sha256-{digest}'"
    for path in ("/", "/hosts.json", "/uPlot.iife.min.js", "/nothing"):
        told = ask(port, path)[1]
        assert told["Content-Security-Policy"] == headers["Content-Security-Policy"]
        assert (told["X-Content-Type-Options"], told["Cache-Control"]) == ("nosniff", "no-store")
        assert told["Access-Control-Allow-Origin"] is None


def test_the_page_sets_names_as_text_and_asks_nobody_else() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", PAGE)
    assert not re.search(r"<[^>]+\s(on\w+|style)=", PAGE)
    assert not re.search(r"(https?:)?//\w+\.", PAGE)
    asked = set(re.findall(r'(?:src|href)="([^"]+)"', PAGE)) - {"data:,"}
    assert asked == {"uPlot.iife.min.js", "uPlot.min.css"}


def test_a_hostile_name_is_told_as_it_is(port: int) -> None:
    _, headers, body = ask(port, "/hosts.json")
    assert headers["Content-Type"] == "application/json"
    (host,) = json.loads(body)["hosts"]
    labels = [one["label"] for card in host["cards"] for one in card["containers"]]
    assert labels.count(HOSTILE) == 2 and len(labels) == 2 * len(NAMES)
    assert host["lines"][-1]["text"].endswith(HOSTILE)


# ---- who is answered


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("127.0.0.1:9837", True),
        ("localhost", True),
        ("LOCALHOST.:9837", True),
        ("[::1]:9837", True),
        ("192.0.2.7:9837", True),
        (socket.gethostname(), True),
        ("gpu.example.com:9837", True),
        ("attacker.example", False),
        ("127.0.0.1.attacker.example", False),
        ("localhost.attacker.example", False),
        ("", False),
        ("[::1", False),
        ("user@attacker.example:127", False),
    ],
)
def test_a_page_of_another_name_is_refused(host: str, is_served: bool) -> None:
    """DNS rebinding: a name of another site, which now leads here."""
    assert is_own(host, ("gpu.example.com", socket.gethostname())) == is_served


def test_a_refused_name_is_told_nothing(port: int) -> None:
    for path in ("/", "/hosts.json", "/chart.json?host=0&gpu=0"):
        status, _, body = ask(port, path, host="attacker.example")
        assert status == 421 and b"--name" in body and b"team" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(port: int, method: str) -> None:
    assert ask(port, "/hosts.json", method=method)[0] == 501


@pytest.mark.parametrize(
    "path",
    [
        *("/index.html", "/../page.py", "/%2e%2e/page.py", "/page.py", "/chart.json"),
        *("/chart.json?host=1&gpu=0", "/chart.json?host=-1&gpu=0", "/chart.json?host=0&gpu=x"),
        *("/chart.json?host=%D9%A3&gpu=0", "/chart.json?host=0", "/chart.json?host=0&gpu="),
        f"/chart.json?host={'9' * 5000}&gpu=0",
    ],
)
def test_what_is_not_there_is_not_found(port: int, path: str) -> None:
    assert ask(port, path)[0] == 404


# ---- what it tells

X, Y = "x" * 64, "y" * 64


def told(at_s: float, **used_s: float) -> Reading:
    """A reading of one card, of containers by what they have used."""
    containers = {
        (0, id): Part(
            {"gpu": "0", "id": id, "name": id[:1]},
            {
                "used_seconds_total": used,
                "oom_total": used,
                "compute_share_ratio": 0.5,
                "memory_used_bytes": GIB,
            },
        )
        for id, used in used_s.items()
    }
    cards = {0: Part({"gpu": "0", "uuid": "GPU-1", "device": "T4"}, {"memory_total_bytes": GIB})}
    return Reading(1e9 + at_s, at_s, {}, cards, {0: "weighted"}, {}, containers, {"oom": at_s})


def test_a_share_is_what_was_used_from_one_reading_to_the_next() -> None:
    host = Host("n1", 10)
    host.add(told(0, x=5.0))
    (first,) = host.now()["cards"][0]["containers"]
    assert first["now"] == {"used": None, "waited": None, "throttled": None}
    host.add(told(10, x=9.0, y=100.0))
    x, y = host.now()["cards"][0]["containers"]
    assert (x["now"]["used"], y["now"]["used"]) == (0.4, None)
    assert host.now()["events"] == {"oom": 10}
    host.add(told(20, x=1.0))
    (x,) = host.now()["cards"][0]["containers"]
    # The counter went back: it is another container's of that id, and has refused once.
    assert x["now"]["used"] is None and x["hour"]["oom_total"] == 5.0
    chart = host.chart(0)
    assert chart["times_s"] == [1e9, 1e9 + 10, 1e9 + 20]
    assert [(one["id"], one["used"], one["promised"]) for one in chart["containers"]] == [
        ("x", [None, 0.4, None], [0.5, 0.5, 0.5]),
        ("y", [None, None, None], [None, 0.5, None]),
    ]
    assert host.chart(7)["containers"] == []


def test_an_hour_is_kept_and_not_more() -> None:
    host = Host("n1", 600)
    for tick in range(20):
        host.add(told(600.0 * tick, x=60.0 * tick))
    times = host.chart(0)["times_s"]
    assert times[-1] - times[0] == HOUR_S
    (x,) = host.now()["cards"][0]["containers"]
    assert x["now"]["used"] == pytest.approx(0.1) and x["hour"]["oom_total"] == 360


def test_what_a_host_told_before_it_fell_silent_is_not_shown_as_now() -> None:
    host = Host("n1", 10)
    host.add(told(0, x=5.0))
    host.fail("no answer")
    assert host.now() == {"name": "n1", "error": "no answer", "cards": []}
    assert host.chart(0)["times_s"] == [1e9]


def test_this_host_is_told_with_its_events(port: int) -> None:
    (host,) = json.loads(ask(port, "/hosts.json")[2])["hosts"]
    assert (host["name"], host["error"], host["module"]) == ("node-1", None, "0.1.0")
    assert [card["gpu"] for card in host["cards"]] == [0, 1]
    for card in host["cards"]:
        assert card["policy"] == "weighted-conserving"
        assert card["figures"]["memory_total_bytes"] == 140 * GIB
        for one in card["containers"]:
            assert 0 < one["now"]["used"] < 1 and one["figures"]["compute_share_ratio"] > 0
    assert [one["kind"] for one in host["lines"]][-2:] == ["oom", "refused"]
    chart = json.loads(ask(port, "/chart.json?host=0&gpu=1")[2])
    lengths = {len(one[key]) for one in chart["containers"] for key in ("used", "promised")}
    assert lengths == {len(chart["times_s"])} and len(chart["containers"]) == len(NAMES)


def test_what_is_parked_is_told(tmp_path: Path) -> None:
    watch = web_hosts.Host(tmp_path / "one", 1, ("server", "train"), parked=("train",)).watch()
    (card,) = watch.hosts[0].now()["cards"]
    assert card["figures"]["parked_bytes"] == 6 * GIB
    assert {one["label"]: one["state"] for one in card["containers"]} == {
        "team/server-0/main": "running",
        "team/train-0/main": "parked",
    }
    figures = card["containers"][1]["figures"]
    assert (figures["parked_bytes"], figures["memory_used_bytes"]) == (6 * GIB, 0)
    assert figures["waits_for_room"] == 1


def test_of_several_nodes_each_is_told_and_a_silent_one_is_named(tmp_path: Path) -> None:
    host = web_hosts.Host(tmp_path / "one", 1, ("train",))
    server = metrics_server.serving(host.registry, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    node, gone = f"127.0.0.1:{server.server_address[1]}", f"127.0.0.1:{free_port()}"
    watch = Watch((node, gone), 5)
    watch.look()
    first, second = (one.now() for one in watch.hosts)
    assert (first["name"], first["error"]) == (node, None) and "lines" not in first
    (card,) = first["cards"]
    assert [one["label"] for one in card["containers"]] == ["team/train-0/main"]
    assert second["error"].startswith(f"{gone}: ") and second["cards"] == []
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<html>\n", "no metrics of cgpu"),
        ("up 1\n", "the exporter of another program answers"),
        ("cgpu_up 0\n", "no module is loaded"),
        ('cgpu_up 1\ncgpu_gpu_containers{gpu="x"} 1\n', "gpu 'x'"),
        ('cgpu_up 1\ncgpu_gpu_containers{gpu="99999"} 1\n', "gpu '99999'"),
        ('cgpu_up 1\ncgpu_container_weight{gpu="0",id="a"} NaN\n', "cgpu_container_weight nan"),
        ('cgpu_up 1\ncgpu_container_weight{gpu="0"} 1\n', "'id'"),
    ],
)
def test_a_node_that_tells_nonsense_is_shown_so(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pycgpu.tree.scrape.fetch", lambda node: text)
    watch = Watch(("n1",), 5)
    watch.look()
    assert why in watch.hosts[0].now()["error"]


def test_without_a_tree_the_page_says_so_and_goes_on(tmp_path: Path) -> None:
    watch = Watch((), 5, str(tmp_path / "tree"))
    watch.look()
    assert "cgpu doctor" in watch.hosts[0].now()["error"]
    CoreTree(tmp_path / "tree")
    watch.look()
    assert watch.hosts[0].now()["error"] is None
    with pytest.raises(CgpuError):
        reading.of([])


# ---- the command


def test_the_command_serves_this_machine_until_it_is_ended(tmp_path: Path) -> None:
    CoreTree(tmp_path / "tree")
    port = free_port()
    command = [sys.executable, "-m", "pycgpu.cli.main", "web", "--listen", f"127.0.0.1:{port}"]
    child = subprocess.Popen(
        [*command, "--root", str(tmp_path / "tree"), "--name", "gpu.example.com"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert output(child).readline() == f"serving http://127.0.0.1:{port}/\n"
    end = time.monotonic() + 60
    while time.monotonic() < end:
        (host,) = json.loads(ask(port, "/hosts.json", host="gpu.example.com")[2])["hosts"]
        if host["error"] is None:
            break
        time.sleep(0.1)
    assert [card["containers"] for card in host["cards"]] == [[]]
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--listen", "nowhere"), "write ADDRESS:PORT"),
        (("--listen", "192.0.2.1:9837"), "cannot listen on 192.0.2.1:9837"),
        (("n1", "--root", "/x"), "name no nodes with it"),
    ],
)
def test_what_it_cannot_do_is_told_in_one_line(arguments: Any, why: str) -> None:
    failed = program.run(main.app, "web", *arguments)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1) and why in failed.stderr


def test_the_page_is_for_this_machine_unless_it_is_told_otherwise() -> None:
    shown = program.run(main.app, "web", "--help").stdout
    assert "127.0.0.1:9837" in shown and "0.0.0.0" not in shown


def test_the_charting_library_is_the_one_that_is_named() -> None:
    """Its licence asks that its text goes with it."""
    licences = WEB.parents[1] / "LICENSES"
    (row,) = re.findall(
        r"^\| `pycgpu/web/uPlot\.\*` .*$", (licences / "README.md").read_text(), re.M
    )
    script = (WEB / "uPlot.iife.min.js").read_bytes()
    version = re.search(rb"uPlot \(v([\d.]+)\)", script)
    assert version and version[1].decode() in row
    assert hashlib.sha256(script).hexdigest() in row
    assert "Leon Sorokin" in (licences / "MIT-uPlot.txt").read_text()
