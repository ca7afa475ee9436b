# SPDX-License-Identifier: MIT
"""Cards and containers under the names of HAMi, dcgm-exporter and OpenTelemetry."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from pycgpu.cli import main
from pycgpu.cli.exporter import app as exporter_app
from pycgpu.errors import CgpuError
from pycgpu.tree import metrics_server
from pycgpu.tree.exporter import Exporter
from pycgpu.tree.metric_names import NAMES
from tests.host import program, prometheus
from tests.host.coretree import GIB, CoreTree
from tests.host.json_http import JsonHandler, serving
from tests.host.nvml import make_library

POD, PLAIN = "a" * 64, "b" * 64
UUID = "GPU-00000000-0000-0000-0000-000000000001"


def make_pod(prefix: Path) -> None:
    """The container POD is that of a pod, as the kubelet's links say it."""
    logs = prefix / "var/log/containers"
    logs.mkdir(parents=True)
    (logs / f"job-1_team_main-{POD}.log").symlink_to("/var/log/pods/team_job-1_u/main/0.log")


@pytest.fixture
def told(tmp_path: Path) -> list[Any]:
    """All samples of a host with a pod's container, another one and an empty card, read twice."""
    tree = CoreTree(tmp_path / "tree", [(140 * GIB, 0), (16 * GIB, 0)], features=("GATE",))
    one = tree.create(POD, f"gpu=0,mem={4 * GIB}").hold(0, 4711, 7, GIB, "python3")
    two = tree.create(PLAIN, "gpu=0,mem=max").hold(0, 4712, 7, 3 * GIB, "python3")
    make_pod(tmp_path)
    for container in (one, two):
        container.count(0, used_ns=10**9)
    tree.write()
    # A share is measured from one scrape to the next, so the counters grow between the two.
    code = (
        "import sys, time, prometheus_client as client\n"
        "from pycgpu.tree.exporter import Exporter\n"
        "registry = client.CollectorRegistry()\n"
        "registry.register(Exporter(sys.argv[1], prefix=sys.argv[2], names=sys.argv[3:]))\n"
        "client.generate_latest(registry)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(client.generate_latest(registry).decode())"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, tree.root, tmp_path, "hami", "dcgm-pods", "otel"],
        env=os.environ | {"LD_LIBRARY_PATH": str(make_library(tmp_path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout and child.stdout.readline() == "ready\n"
    one.count(0, used_ns=10**9 + 2 * 10**5)
    two.count(0, used_ns=10**9 + 10**5)
    tree.write()
    text, _ = child.communicate("\n", timeout=60)
    assert child.returncode == 0
    families = list(text_string_to_metric_families(text))
    return [sample for family in families for sample in family.samples]


def of(told: list[Any], name: str, **labels: str) -> list[Any]:
    return [one for one in told if one.name == name and labels.items() <= one.labels.items()]


def test_a_pods_part_has_dcgms_names_and_labels(told: list[Any]) -> None:
    host = socket.gethostname()
    (used,) = of(told, "DCGM_FI_DEV_FB_USED", pod="job-1")
    assert used.labels == {
        "gpu": "0",
        "UUID": UUID,
        "device": "nvidia0",
        "modelName": "NVIDIA H200",
        "Hostname": host,
        "hostname": host,
        "container": "main",
        "namespace": "team",
        "pod": "job-1",
        "vgpu": POD[:12],
    }
    (free,) = of(told, "DCGM_FI_DEV_FB_FREE", pod="job-1")
    assert (used.value, free.value) == (1024, 3 * 1024)
    (utilization,) = of(told, "DCGM_FI_DEV_GPU_UTIL", pod="job-1")
    (active,) = of(told, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", pod="job-1")
    assert 0 < active.value <= 1 and utilization.value == pytest.approx(100 * active.value)
    (power,) = of(told, "DCGM_FI_DEV_POWER_USAGE", pod="job-1")
    assert power.value == pytest.approx(312.4 * active.value)
    # What nobody can divide is the card's.
    (hot,) = of(told, "DCGM_FI_DEV_GPU_TEMP", pod="job-1")
    assert hot.value == 41


def test_the_rows_of_a_card_add_up_to_the_card(told: list[Any]) -> None:
    def total(name: str, gpu: str) -> float:
        return sum(float(one.value) for one in of(told, name, gpu=gpu))

    whole = {
        "DCGM_FI_DEV_GPU_UTIL": 87,
        "DCGM_FI_DEV_POWER_USAGE": 312.4,
        "DCGM_FI_DEV_FB_USED": 30 * 1024,
    }
    for name, value in whole.items():
        assert total(name, "0") == pytest.approx(value), name
    assert len(of(told, "DCGM_FI_DEV_FB_USED", gpu="0")) == 3
    # A card without containers is one row, of no pod.
    (idle,) = of(told, "DCGM_FI_DEV_FB_USED", gpu="1")
    assert (idle.labels["pod"], idle.value) == ("", 0)


def test_no_series_is_told_twice(told: list[Any]) -> None:
    series = [(one.name, *sorted(one.labels.items())) for one in told]
    assert len(set(series)) == len(series) > 100


#: Of the conventions' page on GPUs and of that on what all hardware has: instrument and unit, and
#: how OpenTelemetry's rules write them for Prometheus.
OTEL = {
    "hw_gpu_memory_limit_bytes": 140 << 30,
    "hw_gpu_memory_usage_bytes": 30 << 30,
    "hw_gpu_memory_utilization_ratio": 30 / 140,
    "hw_gpu_utilization_ratio": 0.87,
    "hw_power_watts": 312.4,
    "hw_energy_joules_total": 7200,
}


def test_a_card_has_opentelemetrys_names_units_and_attributes(told: list[Any]) -> None:
    assert {one.name for one in told if one.name.startswith("hw_")} == set(OTEL)
    for name, value in OTEL.items():
        (one,) = of(told, name, hw_id=UUID)
        assert one.value == pytest.approx(value), name
        task = {"hw_gpu_task": "general"} if name == "hw_gpu_utilization_ratio" else {}
        assert one.labels == {
            "hw_id": UUID,
            "hw_type": "gpu",
            "hw_name": "nvidia0",
            "hw_model": "NVIDIA H200",
            "hw_vendor": "NVIDIA",
            "hw_driver_version": "580.159.04",
            **task,
        }


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("dcmg",), "no exporter is called 'dcmg': choose from dcgm, dcgm-pods, hami, otel"),
        (("dcgm", "dcgm-pods"), "by the same metrics: take one"),
    ],
)
def test_names_that_cannot_be_told_are_refused_in_one_line(names: Any, why: str) -> None:
    with pytest.raises(CgpuError, match=re.escape(why)):
        Exporter(names=names)
    options = [word for name in names for word in ("--names", name)]
    failed = program.run(main.app, "exporter", "--once", *options)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1) and why in failed.stderr
    failed = program.run(main.app, "exporter", "--once", CGPU_EXPORTER_NAMES=" ".join(names))
    assert why in failed.stderr


def test_the_command_lists_all_names_that_there_are() -> None:
    shown = program.run(exporter_app, "--help").stdout
    assert f"--names {'|'.join(NAMES)}" in re.sub(r"\s+", " ", shown)


#: What dcgm-exporter tells of the same pod's card, in its own format.
THEIRS = (
    f'{{gpu="0",UUID="{UUID}",pci_bus_id="0",device="nvidia0",modelName="NVIDIA H200",'
    f'hostname="{socket.gethostname()}",container="main",namespace="team",pod="job-1"}}'
)


class DcgmExporter(JsonHandler):
    def do_GET(self) -> None:
        names = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_SM_CLOCK")
        body = "".join(f"# TYPE {one} gauge\n{one}{THEIRS} 1755\n" for one in names).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def documented_rules() -> list[Any]:
    """The rules that metrics.md has for a Prometheus which scrapes both exporters."""
    text = (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text()
    (block,) = [one for one in re.findall(r"```\n(.*?)```", text, re.DOTALL) if "DCGM_" in one]
    found: list[Any] = yaml.safe_load(block)["metric_relabel_configs"]
    return found


@pytest.mark.parametrize("dropped", [False, True])
def test_both_exporters_scraped_stay_apart_and_one_can_be_left_out(
    dropped: bool, tmp_path: Path
) -> None:
    tree = CoreTree(tmp_path / "tree", [(16 * GIB, 0)], features=("GATE",))
    tree.create(POD, f"gpu=0,mem={4 * GIB}").hold(0, 4711, 7, GIB, "python3")
    tree.write()
    make_pod(tmp_path)
    registry = CollectorRegistry()
    registry.register(Exporter(str(tree.root), prefix=str(tmp_path), names=["dcgm-pods"]))
    ours = metrics_server.serving(registry, "127.0.0.1", 0)
    threading.Thread(target=ours.serve_forever, args=(0.05,), daemon=True).start()
    theirs, address = serving(DcgmExporter)
    jobs = [
        {"job_name": name, "honor_labels": True, "static_configs": [{"targets": [target]}], **more}
        for name, target, more in (
            ("cgpu", f"127.0.0.1:{ours.server_address[1]}", {}),
            (
                "dcgm",
                address.removeprefix("http://"),
                {"metric_relabel_configs": documented_rules()} if dropped else {},
            ),
        )
    ]
    settings = yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})
    with prometheus.Server(prometheus.installed(), settings, tmp_path) as server:
        prometheus.until(lambda: server.value('DCGM_FI_DEV_SM_CLOCK{job="dcgm"}'), "theirs")
        name = 'DCGM_FI_DEV_FB_USED{gpu="0",pod!="",%s}'
        prometheus.until(lambda: server.value("DCGM_FI_DEV_FB_USED" + '{job="cgpu"}'), "ours")
        assert [value for _, value in server.ask(name % 'job="dcgm"')] == [1755] * (not dropped)
        own = {labels["job"]: value for labels, value in server.ask(name % "")}
        assert own == {"cgpu": 1024} | ({} if dropped else {"dcgm": 1755})
    log = (tmp_path / "prometheus.log").read_text()
    assert "duplicate" not in log and "out-of-order" not in log
    for one in (ours, theirs):
        one.shutdown()
        one.server_close()
