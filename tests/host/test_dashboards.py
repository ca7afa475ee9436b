# SPDX-License-Identifier: MIT
"""
The dashboards and alert rules, before Grafana's own types, promtool and a real Prometheus.

Grafana itself is in no archive that the tests take programs from, so its published types stand
for it: what they do not know, it would not read.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from tests.host import prometheus
from tests.host.coretree import GIB, CoreTree
from tests.host.nvml import make_library
from tests.process import output

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEX = "0123456789abcdef" * 4
ALERTS = yaml.safe_load((DOCS / "alerts.yml").read_text())
RULES = {rule["alert"]: rule for group in ALERTS["groups"] for rule in group["rules"]}


def loaded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / name).read_text())
    return found


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    """A card with a pod's container, and an event of it."""
    made = CoreTree(tmp_path / "tree", [(16 * GIB, GIB)], features=("GATE", "PARK"))
    made.create(HEX, f"gpu=0,mem={4 * GIB},weight=3,quota=50").hold(0, 4711, 7, GIB, "python3")
    grow(made, 1)
    made.events = "1700000000000000000 create id=x\n"
    made.write()
    logs = tmp_path / "host/var/log/containers"
    logs.mkdir(parents=True)
    (logs / f"job-1_team_main-{HEX}.log").symlink_to("/var/log/pods/team_job-1_u/main/0.log")
    return made


def grow(tree: CoreTree, times: int) -> None:
    """Let all counters of the container's stat grow."""
    seconds = {f"{key}_ns": times * 10**8 for key in ("granted", "used", "throttled", "waited")}
    tree.containers[HEX].count(0, switches=times, overruns=times, **seconds)


@pytest.fixture(params=["grafana.json", "grafana-fleet.json"])
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return loaded(request.param)


#: A container's counters that a reader of the dashboard wants over time.
CHARTED = re.compile(r"cgpu_container_\w+_(seconds|joules|hours)_total|cgpu_container_compute_\w+")


@pytest.fixture
def exported(tree: CoreTree, tmp_path: Path) -> dict[str, set[str]]:
    """Every metric of a host with a board, and its labels: of a process, for NVML stays."""
    # Sums are told from the second scrape on.
    code = (
        "import sys, prometheus_client as client; from pycgpu.tree.exporter import Exporter\n"
        "registry = client.CollectorRegistry(); registry.register(Exporter(sys.argv[1]))\n"
        "client.generate_latest(registry); print(client.generate_latest(registry).decode())"
    )
    text = subprocess.run(
        [sys.executable, "-c", code, str(tree.root)],
        env=os.environ | {"LD_LIBRARY_PATH": str(make_library(tmp_path))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    labels: dict[str, set[str]] = {}
    for name, inside in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        labels.setdefault(name, {"instance", "job"}).update(re.findall(r'(\w+)="', inside))
    return labels


def test_the_dashboard_asks_only_for_metrics_and_labels_that_there_are(
    exported: dict[str, set[str]], dashboard: dict[str, Any]
) -> None:
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    exprs = [
        (target["expr"], target.get("legendFormat", ""))
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    exprs += [(one["query"]["query"], "") for one in variables.values() if one["type"] == "query"]
    assert len(exprs) > 15
    for expr, legend in exprs:
        metrics = re.findall(r"\bcgpu_\w+", expr)
        assert metrics and set(metrics) <= exported.keys(), expr
        asked = set(re.findall(r"(\w+)=~", expr)) | set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
        asked |= set(re.findall(r"label_values\(\w+, (\w+)\)", expr))
        asked |= {
            label for labels in re.findall(r"\bby \((.*?)\)", expr) for label in labels.split(", ")
        }
        for name in metrics:
            assert asked <= exported[name], (expr, legend)
        # __range is Grafana's own.
        assert set(re.findall(r"\$(\w+)", expr)) <= {*variables, "__range"}, expr


def test_time_energy_and_what_the_policy_gives_are_on_the_dashboard(
    exported: dict[str, set[str]],
) -> None:
    dashboard = loaded("grafana.json")
    shown = json.dumps([panel["targets"] for panel in dashboard["panels"]])
    wanted = {name for name in exported if CHARTED.fullmatch(name)} | {
        "cgpu_gpu_energy_joules_total"
    }
    assert len(wanted) >= 10
    assert {name for name in wanted if name not in shown} == set()


def test_the_dashboard_is_whole_and_asks_one_source_of_data(dashboard: dict[str, Any]) -> None:
    sources = {
        one["name"] for one in dashboard["templating"]["list"] if one["type"] == "datasource"
    }
    asked = [one["datasource"] for one in dashboard["templating"]["list"] if "datasource" in one]
    asked += [panel["datasource"] for panel in dashboard["panels"]]
    assert asked and {(one["type"], one["uid"].strip("${}")) for one in asked} == {
        ("prometheus", name) for name in sources
    }
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_the_dashboard_is_one_by_grafanas_own_types(dashboard: dict[str, Any]) -> None:
    """What the types of Grafana's SDK do not know, they drop: nothing may be dropped."""
    plugins.register_default_plugins()
    read = Dashboard.from_json(dashboard)
    again = json.loads(json.dumps(read, cls=JSONEncoder))

    def lost(ours: Any, theirs: Any, where: str) -> list[str]:
        if isinstance(ours, dict) and isinstance(theirs, dict):
            return [
                name
                for key, value in ours.items()
                for name in (
                    lost(value, theirs[key], f"{where}.{key}")
                    if key in theirs
                    else [f"{where}.{key}"]
                )
            ]
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            pairs = enumerate(zip(ours, theirs, strict=True))
            return [name for at, (a, b) in pairs for name in lost(a, b, f"{where}[{at}]")]
        return [] if ours == theirs else [where]

    assert lost(dashboard, again, "") == []
    assert all(isinstance(panel, Panel) for panel in read.panels or ())
    dashboard["panels"][0]["titel"] = "mistyped"
    wrong = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
    assert lost(dashboard, wrong, "") == [".panels[0].titel"]


# ---- a real server


@pytest.fixture
def port(tree: CoreTree, tmp_path: Path) -> Iterator[int]:
    """Where the exporter of a host with a board serves; a process, for NVML stays in one."""
    code = (
        "import sys; from prometheus_client import CollectorRegistry\n"
        "from pycgpu.tree.exporter import Exporter; from pycgpu.tree import metrics_server\n"
        "registry = CollectorRegistry()\n"
        "registry.register(Exporter(sys.argv[1], prefix=sys.argv[2]))\n"
        "server = metrics_server.serving(registry, '127.0.0.1', 0)\n"
        "print(server.server_address[1], flush=True); server.serve_forever()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tree.root), str(tmp_path / "host")],
        env=os.environ | {"LD_LIBRARY_PATH": str(make_library(tmp_path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    yield int(output(child).readline())
    child.kill()
    child.wait(timeout=20)


#: The end of a rule's condition: what it is compared with.
BOUND = re.compile(r" (?:==|<|>) [\d.]+$")


def measured(expr: str) -> list[str]:
    """What a rule compares, without the bounds: there, whether it fires or not."""
    parts = expr.split(" and ")
    assert all(BOUND.search(part) for part in parts), expr
    return [BOUND.sub("", part) for part in parts]


def asked(dashboard: dict[str, Any]) -> list[str]:
    """The queries of a dashboard, with its variables as they stand at first."""
    chosen = {
        one["name"]: one.get("allValue", ".+")
        for one in dashboard["templating"]["list"]
        if one["type"] == "query"
    }
    queries = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expr = target["expr"].replace("$__range", "1h")
            for name, value in chosen.items():
                expr = expr.replace(f"${name}", value)
            assert "$" not in expr, expr
            queries.append(expr)
    return queries


def test_every_query_and_rule_finds_something_in_a_real_prometheus(
    port: int, tree: CoreTree, tmp_path: Path
) -> None:
    settings = yaml.safe_dump(
        {
            "global": {"scrape_interval": "1s"},
            "rule_files": [str(DOCS / "alerts.yml")],
            "scrape_configs": [
                {
                    "job_name": "cgpu",
                    "honor_labels": True,
                    "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                }
            ],
        }
    )
    boards = [loaded("grafana.json"), loaded("grafana-fleet.json")]
    queries = [query for board in boards for query in asked(board)]
    queries += [part for rule in RULES.values() for part in measured(rule["expr"])]
    assert len(queries) > 50
    with prometheus.Server(prometheus.installed(), settings, tmp_path) as server:
        prometheus.until(lambda: server.value("cgpu_container_switches_total"), "a first scrape")
        grow(tree, 2)
        tree.write()
        rate = "rate(cgpu_container_switches_total[1h])"
        prometheus.until(lambda: server.value(rate), "a rate")
        # A sum over scrapes is told from the second on, its rate from the third.
        sums = "rate(cgpu_container_energy_joules_total[1h])"
        prometheus.until(lambda: server.ask(sums), "a rate of sums")
        empty = [query for query in queries if not server.ask(query)]
        assert empty == []
        for board in boards:
            for variable in board["templating"]["list"]:
                if variable["type"] == "query":
                    assert values(server, variable["query"]["query"]), variable["name"]


def values(server: prometheus.Server, query: str) -> list[str]:
    """What Grafana offers for a variable."""
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    assert found, query
    asked = urllib.parse.urlencode({"match[]": found[1]})
    url = f"http://127.0.0.1:{server.port}/api/v1/label/{found[2]}/values?{asked}"
    with urllib.request.urlopen(url) as answer:
        result: list[str] = json.load(answer)["data"]
    return result


# ---- promtool

C = '{namespace="team",pod="job-1",id="x",gpu="0",instance="n1"}'
G = '{gpu="0",instance="n1"}'
#: Alert: series that fire it, the same without a fault, and after how long. `a+bxn` is promtool's:
#: from a on, n times b more, a minute each.
CASES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "CgpuExporterDown": (
        {'up{job="cgpu/cgpu-exporter",instance="n1"}': "0x20"},
        {'up{job="cgpu/cgpu-exporter",instance="n1"}': "1x20", 'up{job="other"}': "0x20"},
        "10m",
    ),
    "CgpuModuleDown": (
        {'cgpu_up{instance="n1"}': "0x20"},
        {'cgpu_up{instance="n1"}': "1x20"},
        "10m",
    ),
    "CgpuContainerOutOfMemory": (
        {f"cgpu_container_oom_total{C}": "0x5 1x15"},
        {f"cgpu_container_oom_total{C}": "7x20"},
        "10m",
    ),
    "CgpuContainerNearLimit": (
        {
            f"cgpu_container_memory_used_bytes{C}": "97x40",
            f"cgpu_container_memory_limit_bytes{C}": "100x40",
        },
        {
            f"cgpu_container_memory_used_bytes{C}": "90x40",
            f"cgpu_container_memory_limit_bytes{C}": "100x40",
        },
        "30m",
    ),
    "CgpuContainerBelowItsFloor": (
        {
            f"cgpu_container_waited_seconds_total{C}": "0+30x40",
            f"cgpu_container_used_seconds_total{C}": "0+12x40",
            f"cgpu_container_compute_floor_ratio{C}": "0.5x40",
        },
        {  # it waits, and has its half
            f"cgpu_container_waited_seconds_total{C}": "0+30x40",
            f"cgpu_container_used_seconds_total{C}": "0+30x40",
            f"cgpu_container_compute_floor_ratio{C}": "0.5x40",
        },
        "30m",
    ),
    "CgpuContainerWaitsForRoom": (
        {f"cgpu_container_waits_for_room{C}": "0x5 1x15"},
        {f"cgpu_container_waits_for_room{C}": "0x9 1x0 0x10"},  # a moment
        "10m",
    ),
    "CgpuContainerRefusedCalls": (
        {f"cgpu_container_refused_total{C}": "0+20x20"},
        {f"cgpu_container_refused_total{C}": "0+1x20"},
        "15m",
    ),
    "CgpuWindowsOverrun": (
        {
            f"cgpu_container_overruns_total{C}": "0+30x60",
            f"cgpu_container_switches_total{C}": "0+100x60",
        },
        {
            f"cgpu_container_overruns_total{C}": "0+1x60",
            f"cgpu_container_switches_total{C}": "0+100x60",
        },
        "40m",
    ),
    "CgpuMemoryOfNoContainer": (
        {
            f"cgpu_gpu_board_memory_used_bytes{G}": "50x40",
            f"cgpu_gpu_memory_used_bytes{G}": "30x40",
            f"cgpu_gpu_memory_reserved_bytes{G}": "1x40",
            f"cgpu_gpu_memory_total_bytes{G}": "100x40",
        },
        {
            f"cgpu_gpu_board_memory_used_bytes{G}": "32x40",
            f"cgpu_gpu_memory_used_bytes{G}": "30x40",
            f"cgpu_gpu_memory_reserved_bytes{G}": "1x40",
            f"cgpu_gpu_memory_total_bytes{G}": "100x40",
        },
        "30m",
    ),
    "CgpuCardPromised": (
        {
            f"cgpu_gpu_memory_promised_bytes{G}": "98x120",
            f"cgpu_gpu_overcommit_ratio{G}": "1x120",
            f"cgpu_gpu_memory_reserved_bytes{G}": "1x120",
            f"cgpu_gpu_memory_total_bytes{G}": "100x120",
        },
        {  # of a card that may promise twice what it has
            f"cgpu_gpu_memory_promised_bytes{G}": "98x120",
            f"cgpu_gpu_overcommit_ratio{G}": "2x120",
            f"cgpu_gpu_memory_reserved_bytes{G}": "1x120",
            f"cgpu_gpu_memory_total_bytes{G}": "100x120",
        },
        "90m",
    ),
    "CgpuCardHeldAndIdle": (
        {f"cgpu_gpu_utilization_ratio{G}": "0x180", f"cgpu_gpu_containers{G}": "2x180"},
        {f"cgpu_gpu_utilization_ratio{G}": "0x180", f"cgpu_gpu_containers{G}": "0x180"},
        "150m",
    ),
    "CgpuCardHot": (
        {f"cgpu_gpu_temperature_celsius{G}": "93x20"},
        {f"cgpu_gpu_temperature_celsius{G}": "70x20"},
        "10m",
    ),
    "CgpuVersionsDiffer": (
        {
            'cgpu_info{module="0.1.0",instance="n1"}': "1x1800",
            'cgpu_info{module="0.2.0",instance="n2"}': "1x1800",
        },
        {
            'cgpu_info{module="0.2.0",instance="n1"}': "1x1800",
            'cgpu_info{module="0.2.0",instance="n2"}': "1x1800",
        },
        "25h",
    ),
}


def test_every_rule_fires_for_its_fault_and_for_nothing_else(tmp_path: Path) -> None:
    assert set(CASES) == set(RULES)
    tests = []
    for name, (faulty, good, after) in CASES.items():
        for series, fires in ((faulty, True), (good, False)):
            found = [{"labels": f'{{alertname="{name}"}}', "value": 1}] if fires else []
            tests.append(
                {
                    "name": f"{name} {'fires' if fires else 'is quiet'}",
                    "interval": "1m",
                    "input_series": [
                        {"series": key, "values": value} for key, value in series.items()
                    ],
                    "promql_expr_test": [
                        {
                            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                            "eval_time": after,
                            "exp_samples": found,
                        }
                    ],
                }
            )
    file = tmp_path / "alerts.test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(DOCS / "alerts.yml")], "tests": tests}, width=1000)
    )
    tool = prometheus.promtool()
    for command in (("check", "rules", DOCS / "alerts.yml"), ("test", "rules", file)):
        done = subprocess.run([tool, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_rule_says_it_knows(exported: dict[str, set[str]]) -> None:
    """A label that its condition does not carry would be empty in the message."""
    for name, rule in RULES.items():
        told = {"instance", "job"}.union(
            *(exported[one] for one in re.findall(r"\bcgpu_\w+", rule["expr"]))
        )
        said = re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))
        assert "summary" in rule["annotations"] and set(said) <= told, name
        assert not (" by (" in rule["expr"] and said), name
