# SPDX-License-Identifier: MIT
"""``cgpu top`` against exporters that tell of real trees."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIServer

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry

from pycgpu.cli.top import app
from pycgpu.errors import CgpuError
from pycgpu.tree import scrape
from pycgpu.tree.exporter import Exporter
from tests.host import program
from tests.host.coretree import GIB, CoreTree


class Node:
    """A tree behind an exporter's HTTP server."""

    def __init__(self, folder: Path, name: str, used_ns: int) -> None:
        self.tree = CoreTree(folder / name, [(16 * GIB, 0)], features=("GATE",))
        self.container = self.tree.create(name, f"gpu=0,mem={4 * GIB}")
        self.container.hold(0, 4711, 7, GIB, "python3").count(0, used_ns=used_ns)
        self.tree.write()
        registry = CollectorRegistry()
        registry.register(Exporter(str(self.tree.root), prefix=str(folder)))
        self.server: WSGIServer
        self.server, self.thread = prometheus_client.start_http_server(
            0, "127.0.0.1", registry=registry
        )
        self.address = f"127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    made = [Node(tmp_path, name, 10**9) for name in ("quiet", "busy")]
    yield made
    for node in made:
        node.close()


def test_the_busiest_of_all_nodes_comes_first(nodes: list[Node]) -> None:
    quiet, busy = nodes

    def work() -> None:
        busy.container.count(0, used_ns=2 * 10**9)
        busy.tree.write()

    later = threading.Timer(0.5, work)
    later.start()
    found, silent = scrape.top([quiet.address, busy.address], 2.0)
    later.join()
    assert silent == []
    assert [row.name for row in found] == ["busy", "quiet"]
    assert found[0].used is not None and 0.3 < found[0].used <= 0.5
    assert found[1][3:] == (GIB, 4 * GIB, 0.0, 0, None)


def test_a_members_group_is_told(nodes: list[Node]) -> None:
    tree = nodes[0].tree
    tree.create("chat", "gpu=0,mem=536870912", "group=chat")
    tree.create("a", f"gpu=0,mem={GIB}", "group=chat")
    tree.write()
    lines = program.run(app, nodes[0].address, "--sample", "0.1").stdout.splitlines()
    found = {line.split()[2]: line.split()[3] for line in lines[1:]}
    assert found == {"chat": "chat", "a": "chat", "quiet": "-"}


def test_a_node_that_does_not_answer_is_named_and_the_others_are_told(nodes: list[Node]) -> None:
    gone = nodes[1].address
    nodes[1].server.socket.close()
    result = program.run(app, nodes[0].address, gone, "--sample", "0.1")
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["NODE", "GPU", "CONTAINER", "GROUP", "MIB", "LIMIT", "USED%",
                                "PARKED"]  # fmt: skip
    assert lines[1].split() == [nodes[0].address, "0", "quiet", "-", "1024", "4096", "0.0", "0"]
    assert result.stderr.startswith(f"cgpu: {gone}: ")


@pytest.mark.parametrize(
    ("node", "url"),
    [
        ("n1", "http://n1:9836/metrics"),
        ("n1:99", "http://n1:99/metrics"),
        ("[::1]", "http://[::1]:9836/metrics"),
        ("[::1]:99", "http://[::1]:99/metrics"),
        ("https://n1/m", "https://n1/m"),
    ],
)
def test_a_node_is_a_host_with_or_without_a_port_or_a_url(node: str, url: str) -> None:
    assert scrape.address(node) == url


@pytest.mark.parametrize("node", ["n1:port", "http://", "[::1", "ftp://n1", "n1 n2:99"])
def test_what_is_no_node_is_told_in_one_line(node: str) -> None:
    result = program.run(app, node)
    assert result.returncode == 1
    assert result.stderr.startswith(f"cgpu: {node}: ") and result.stderr.count("\n") == 1


USED = 'cgpu_container_used_seconds_total{gpu="%s",id="x"} %s\n'


@pytest.mark.parametrize(
    ("gpu", "value"),
    [("0", "NaN"), ("0", "+Inf"), ("a", "1"), ("\u0663", "1"), ("9" * 5000, "1"), ("-1", "1")],
)
def test_a_node_that_tells_nonsense_is_named_alone(
    nodes: list[Node], gpu: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, good = scrape.fetch, nodes[0].address
    told = f"# TYPE cgpu_container_used_seconds_total counter\n{USED % (gpu, value)}"
    monkeypatch.setattr(scrape, "fetch", lambda node: told if node == "n1" else fetch(node))
    found, silent = scrape.top([good, "n1"], 0.1)
    assert [row.node for row in found] == [good]
    assert len(silent) == 1 and silent[0].startswith("n1: no metrics of cgpu: gpu ")


def test_what_is_no_metric_of_ours_is_refused() -> None:
    with pytest.raises(CgpuError, match="no metrics of cgpu"):
        scrape.values("<html>\n")


def test_our_pages_and_manifests_serve_where_top_asks() -> None:
    """Who names no port asks the port that they have the exporter listen at."""
    repository = Path(__file__).resolve().parents[2]
    files = [*repository.glob("docs/*.md"), *repository.glob("scripts/kubernetes/**/*.y*ml")]
    shown = re.compile(r"(?:CGPU_EXPORTER_LISTEN=|--listen[ =]|\blisten: \")[\w.\[\]]*:(\d+)")
    ports = {
        (path.name, port)
        for path in files
        if path.name not in ("scheduler.yaml", "web.md")  # other services
        for port in shown.findall(path.read_text())
    }
    assert {name for name, _ in ports} >= {"kubernetes.md", "metrics.md", "exporter.yaml"}
    assert {port for _, port in ports} == {str(scrape.PORT)}
