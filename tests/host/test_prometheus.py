# SPDX-License-Identifier: MIT
"""A real Prometheus that scrapes as our manifests say names the tenant, not the exporter."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from pycgpu.tree import metrics_server
from pycgpu.tree.exporter import Exporter
from tests.host import prometheus
from tests.host.coretree import GIB, CoreTree

REPOSITORY = Path(__file__).resolve().parents[2]
MANIFESTS = REPOSITORY / "scripts/kubernetes"
PODS, PLAIN = "a" * 64, "b" * 64


def discovered() -> dict[str, str]:
    """What Prometheus finds out about a pod of our exporter's DaemonSet."""
    documents = yaml.safe_load_all((MANIFESTS / "exporter.yaml").read_text())
    (daemon_set,) = [one for one in documents if one["kind"] == "DaemonSet"]
    pod = daemon_set["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    found = {
        "namespace": daemon_set["metadata"]["namespace"],
        "pod_name": "exporter-x7k2p",
        "pod_container_name": container["name"],
        "pod_container_port_name": container["ports"][0]["name"],
        "pod_node_name": "n1",
        **{f"pod_label_{meta_name(key)}": value for key, value in labels.items()},
    }
    return {f"__meta_kubernetes_{name}": value for name, value in found.items()}


def meta_name(label: str) -> str:
    """Return a label's name as Prometheus' discovery writes it."""
    return re.sub("[^a-zA-Z0-9_]", "_", label)


def of_operator() -> dict[str, Any]:
    """What the operator makes of our PodMonitor, with the labels that it always sets."""
    monitor = yaml.safe_load((MANIFESTS / "prometheus/pod-monitor.yaml").read_text())
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    kept = [
        {
            "action": "keep",
            "source_labels": [f"__meta_kubernetes_pod_label_{meta_name(key)}"],
            "regex": value,
        }
        for key, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    kept.append(
        {
            "action": "keep",
            "source_labels": ["__meta_kubernetes_pod_container_port_name"],
            "regex": endpoint["port"],
        }
    )
    always = {
        "namespace": "__meta_kubernetes_namespace",
        "container": "__meta_kubernetes_pod_container_name",
        "pod": "__meta_kubernetes_pod_name",
    }
    own = [
        {"source_labels": one["sourceLabels"], "target_label": one["targetLabel"]}
        for one in endpoint["relabelings"]
    ]
    return {
        "job_name": "podMonitor/cgpu/cgpu-exporter/0",
        "honor_labels": endpoint.get("honorLabels", False),
        "relabel_configs": [
            *kept,
            *({"source_labels": [one], "target_label": name} for name, one in always.items()),
            *own,
        ],
    }


def of_file() -> dict[str, Any]:
    """Our own settings for a Prometheus without the operator."""
    (job,) = yaml.safe_load((MANIFESTS / "prometheus/scrape.yml").read_text())["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"names": ["cgpu"]}}]
    found: dict[str, Any] = job
    return found


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    """A card with a pod's container, and one of Docker's."""
    made = CoreTree(tmp_path / "tree", [(16 * GIB, 0)], features=("GATE",))
    made.create(PODS, f"gpu=0,mem={4 * GIB}").count(0, used_ns=1_000_000_000)
    made.create(PLAIN, f"gpu=0,mem={2 * GIB}").count(0, used_ns=1_000_000_000)
    made.write()
    logs = tmp_path / "var/log/containers"
    logs.mkdir(parents=True)
    target = "/var/log/pods/team_job-1_uid-1/main/0.log"
    (logs / f"job-1_team_main-{PODS}.log").symlink_to(target)
    return made


@pytest.fixture
def served(tree: CoreTree, tmp_path: Path) -> Iterator[int]:
    registry = CollectorRegistry()
    registry.register(Exporter(str(tree.root), prefix=str(tmp_path)))
    server = metrics_server.serving(registry, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    thread.join()
    server.server_close()


def documented() -> list[str]:
    """The queries of our own pages."""
    texts = [(REPOSITORY / "docs" / name).read_text() for name in ("metrics.md", "kubernetes.md")]
    fences = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    code = [
        one.strip()
        for text in texts
        for one in (*fences.findall(text), *re.findall(r"`([^`\n]+)`", fences.sub("", text)))
    ]
    return [one for one in code if "cgpu_container_" in one and "(" in one]


@pytest.mark.parametrize("made", [of_operator, of_file])
def test_the_queries_of_our_pages_name_the_tenants_pod(
    made: Any, served: int, tree: CoreTree, tmp_path: Path
) -> None:
    job = made()
    target = {"targets": [f"127.0.0.1:{served}"], "labels": discovered()}
    settings = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{**job, "static_configs": [target]}],
    }
    with prometheus.Server(prometheus.installed(), yaml.safe_dump(settings), tmp_path) as server:
        used = "cgpu_container_used_seconds_total"
        prometheus.until(lambda: server.value(used) == 1, "the first scrape")
        tree.containers[PODS].count(0, used_ns=9_000_000_000)
        tree.write()
        prometheus.until(lambda: server.value(f'rate({used}{{pod="job-1"}}[1m])'), "a rate")
        queries = documented()
        assert len(queries) >= 2
        for query in queries:
            labels, value = max(server.ask(query), key=lambda one: one[1])
            assert value > 0, query
            assert (labels["namespace"], labels["pod"]) == ("team", "job-1"), query
        (pods,) = [labels for labels, _ in server.ask(f'{used}{{id="{PODS}"}}')]
        assert (pods["name"], pods["container"], pods["node"]) == ("main", PODS[:12], "n1")
        # What is no pod's has no pod, and not the exporter's.
        (plain,) = [labels for labels, _ in server.ask(f'{used}{{id="{PLAIN}"}}')]
        assert {"namespace", "pod"}.isdisjoint(plain)
        # What is of the card alone says who told it.
        (card,) = [labels for labels, _ in server.ask("cgpu_gpu_memory_total_bytes")]
        assert (card["pod"], card["node"]) == ("exporter-x7k2p", "n1")
