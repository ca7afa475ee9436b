# SPDX-License-Identifier: MIT
"""The metrics, and a real Prometheus server that scrapes them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import parser as prometheus_parser
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.openmetrics import parser as openmetrics_parser

from pycgpu.cli import main
from pycgpu.tree.exporter import Exporter
from tests.host import program, prometheus
from tests.host.coretree import GIB, CoreTree
from tests.process import output

HEX = "0123456789abcdef" * 4
MIB = 1 << 20


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    made = CoreTree(tmp_path / "tree", [(16 * GIB, GIB), (16 * GIB, 0)], features=("GATE",))
    one = made.create(HEX, f"gpu=0,mem={4 * GIB},weight=3,quota=50", "gpu=1,mem=max")
    one.hold(0, 4711, 7, GIB, "python3")
    one.count(0, granted_ns=2_000_000_000, used_ns=1_500_000_000, throttled_ns=500_000_000)
    one.count(0, waited_ns=250_000_000)
    made.events = "1700000000000000000 create id=x\n1700000000000000001 oom id=x gpu=0\n"
    made.write()
    return made


@pytest.fixture
def registry(tree: CoreTree, tmp_path: Path) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Exporter(str(tree.root), names=("hami", "dcgm"), prefix=str(tmp_path)))
    return made


CARD = {"gpu": "0", "uuid": "GPU-00000000-0000-0000-0000-000000000001", "device": ""}
CONTAINER = {
    "gpu": "0",
    "uuid": CARD["uuid"],
    "container": HEX[:12],
    "id": HEX,
    "name": "",
    "pod": "",
    "namespace": "",
}


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("cgpu_up", {}, 1),
        ("cgpu_gpu_memory_total_bytes", CARD, 16 * GIB),
        ("cgpu_gpu_memory_reserved_bytes", CARD, GIB),
        ("cgpu_gpu_memory_promised_bytes", CARD, 4 * GIB),
        ("cgpu_gpu_memory_used_bytes", CARD, GIB),
        ("cgpu_gpu_overcommit_ratio", CARD, 1),
        ("cgpu_gpu_containers", CARD, 1),
        ("cgpu_gpu_policy", {**CARD, "policy": "weighted-conserving"}, 1),
        ("cgpu_gpu_policy", {**CARD, "policy": "weak"}, 0),
        ("cgpu_gpu_temperature_celsius", CARD, None),
        ("cgpu_container_memory_used_bytes", CONTAINER, GIB),
        ("cgpu_container_memory_limit_bytes", CONTAINER, 4 * GIB),
        ("cgpu_container_memory_limit_bytes", {**CONTAINER, "gpu": "1"}, None),
        ("cgpu_container_weight", CONTAINER, 3),
        ("cgpu_container_quota_ratio", CONTAINER, 0.5),
        ("cgpu_container_compute_floor_ratio", CONTAINER, 0),
        ("cgpu_container_compute_ceiling_ratio", CONTAINER, 0.5),
        ("cgpu_container_granted_seconds_total", CONTAINER, 2),
        ("cgpu_container_throttled_seconds_total", CONTAINER, 0.5),
        ("cgpu_container_waited_seconds_total", CONTAINER, 0.25),
        ("cgpu_container_oom_total", CONTAINER, 0),
        ("cgpu_events_total", {"event": "oom"}, 1),
        ("DCGM_FI_DEV_FB_USED", {"gpu": "0", "UUID": CARD["uuid"], "device": "nvidia0",
                                 "modelName": ""}, 1024),
        ("vGPU_device_memory_limit_in_bytes", {"deviceuuid": CARD["uuid"], "podname": "",
            "podnamespace": "", "ctrname": HEX[:12], "vdeviceid": "0"}, 4 * GIB),
    ],
)  # fmt: skip
def test_metrics_have_base_units_and_what_is_unknown_is_absent(
    registry: CollectorRegistry, name: Any, labels: Any, value: Any
) -> None:
    assert registry.get_sample_value(name, labels) == value


def test_a_member_is_told_with_its_group(tree: CoreTree, registry: CollectorRegistry) -> None:
    tree.create("chat", "gpu=0,mem=536870912", "group=chat")
    tree.create("a", f"gpu=0,mem={GIB}", "group=chat")
    member = {**CONTAINER, "container": "a", "id": "a", "group": "chat"}
    assert registry.get_sample_value("cgpu_container_group", member) == 1
    alone = {**CONTAINER, "group": ""}
    assert registry.get_sample_value("cgpu_container_group", alone) is None


@pytest.fixture
def parking(tmp_path: Path) -> CoreTree:
    """A door that parks, with a container on two cards."""
    made = CoreTree(tmp_path / "parking", [(16 * GIB, 0)] * 2, features=("PARK",))
    one = made.create(HEX, f"gpu=0,mem={4 * GIB},idle_park_s=300", "gpu=1,mem=max")
    one.hold(0, 4711, 7, GIB, "python3").hold(1, 4711, 7, 2 * GIB, "python3")
    made.write()
    return made


@pytest.mark.parametrize("state", ["running", "parking", "parked", "resuming"])
def test_a_containers_state_is_one_of_four(parking: CoreTree, tmp_path: Path, state: str) -> None:
    registry = CollectorRegistry()
    registry.register(Exporter(str(parking.root), prefix=str(tmp_path)))
    if state != "running":
        parking.containers[HEX].park(
            state, waits=True, short_card=0, short_bytes=MIB, return_ns=1500, moved_ns=4000
        )
        parking.write()
    for name in ("running", "parking", "parked", "resuming"):
        found = registry.get_sample_value("cgpu_container_state", {**CONTAINER, "state": name})
        assert found == (name == state)
    moves = state in ("parking", "resuming")
    assert [
        registry.get_sample_value(f"cgpu_{name}", labels)
        for name, labels in (
            ("container_parked_bytes", CONTAINER),
            ("container_memory_used_bytes", CONTAINER),
            ("container_return_reserved_bytes", CONTAINER),
            ("container_waits_for_room", CONTAINER),
            ("container_idle_park_seconds", CONTAINER),
            ("container_last_return_seconds", CONTAINER),
            ("gpu_parked_bytes", CARD),
            ("gpu_return_reserved_bytes", CARD),
        )
    ] == [
        0 if state == "running" else GIB,
        GIB if state == "running" else 0,
        GIB if moves else 0,
        state == "parked",
        300,
        None if state == "running" else 1.5e-6,
        GIB if state == "parked" else 0,
        GIB if moves else 0,
    ]
    own = {key: CONTAINER[key] for key in ("container", "id", "name", "pod", "namespace")}
    moved_s = registry.get_sample_value("cgpu_move_seconds_total", own)
    assert moved_s == (0 if state == "running" else 4e-6), "of two cards, once"
    other = {**CONTAINER, "gpu": "1", "uuid": "GPU-00000000-0000-0000-0000-000000000002"}
    assert registry.get_sample_value("cgpu_container_idle_park_seconds", other) is None
    # It is the first card that has no room.
    assert registry.get_sample_value("cgpu_container_waits_for_room", other) == 0


def test_a_door_that_cannot_park_tells_nothing_of_it(registry: CollectorRegistry) -> None:
    told = [family.name for family in registry.collect()]
    assert not [name for name in told if re.search("park|resume|state|room", name)]


def test_moves_are_counted_once_and_not_for_each_card(parking: CoreTree, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(Exporter(str(parking.root), prefix=str(tmp_path)))
    own = {key: CONTAINER[key] for key in ("container", "id", "name", "pod", "namespace")}

    def counted() -> list[float | None]:
        names = ("parks", "park_waits", "resumes", "resume_seconds")
        return [registry.get_sample_value(f"cgpu_{name}_total", own) for name in names]

    assert counted() == [0, 0, 0, 0]
    parking.events = (
        f"1 create id={HEX}\n2 parked id={HEX} bytes=7\n3 waits id={HEX} bytes=7\n"
        f"4 resumed id={HEX} waited_ms=1500\n5 parked id={HEX} bytes=7\n6 not_parked id={HEX}\n"
        f"7 resumed id={HEX} waited_ms=250\n8 parked id=other bytes=7\n9 parked id={HEX}\n"
    )
    parking.write()
    assert counted() == counted() == [3, 1, 2, 1.75]
    rows = [
        sample
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "cgpu_parks_total"
    ]
    assert len(rows) == 1, "one of no tree, and one on two cards"
    assert registry.get_sample_value("cgpu_move_seconds_total", own) == 0
    # Another one of that id is not billed for it.
    parking.events += f"10 destroy id={HEX}\n11 create id={HEX}\n12 parked id={HEX} bytes=7\n"
    parking.write()
    assert counted() == [1, 0, 0, 0]


def test_shares_under_other_names_are_those_since_the_last_scrape(
    tree: CoreTree, registry: CollectorRegistry
) -> None:
    name, labels = (
        "hami_container_device_utilization_ratio",
        {
            "device_uuid": CARD["uuid"],
            "pod": "",
            "namespace": "",
            "container": HEX[:12],
            "vdevice_index": "0",
        },
    )
    assert registry.get_sample_value(name, labels) is None
    assert registry.get_sample_value(name, labels) == 0.0


def test_memory_over_time_is_summed_from_scrape_to_scrape(
    tree: CoreTree, registry: CollectorRegistry
) -> None:
    name = "cgpu_container_memory_byte_seconds_total"
    began = time.monotonic()
    assert registry.get_sample_value(name, CONTAINER) == 0
    time.sleep(0.01)
    first = registry.get_sample_value(name, CONTAINER)
    second = registry.get_sample_value(name, CONTAINER)
    assert first and second and 0.01 * GIB <= first < second
    assert second <= (time.monotonic() - began) * GIB
    # no board tells
    assert registry.get_sample_value("cgpu_container_energy_joules_total", CONTAINER) is None


def test_what_many_containers_have_adds_up_to_the_cards_own(
    tree: CoreTree, registry: CollectorRegistry
) -> None:
    """Nineteen that take different parts, between the same two scrapes."""
    for number in range(18):
        one = tree.create(f"{number:02x}" * 32, f"gpu=1,mem={GIB // 2}")
        one.hold(1, 5000 + number, 7, (number + 1) << 20, "work")
        one.count(1, used_ns=(number + 1) * 10**9, granted_ns=number * 10**9)
    tree.write()

    def total(name: str) -> float:
        found = [
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == name and sample.labels["gpu"] == "1"
        ]
        assert len(found) == (1 if "_gpu_" in name else 19)
        return sum(found)

    tree.containers[HEX].count(1, used_ns=10**9)
    tree.write()
    assert total("cgpu_container_used_seconds_total") == 172
    assert total("cgpu_container_memory_used_bytes") == total("cgpu_gpu_memory_used_bytes")

    def memory_over_time() -> tuple[float, float, float]:
        before = time.monotonic()
        return before, total("cgpu_container_memory_byte_seconds_total"), time.monotonic()

    first, last = memory_over_time(), memory_over_time()
    # each reading lies somewhere in its call, whatever else the machine does meanwhile
    shortest, longest = last[0] - first[2], last[2] - first[0]
    assert (171 << 20) * shortest <= last[1] - first[1] <= (171 << 20) * longest


_FORMATS: dict[str, tuple[Callable[[CollectorRegistry], bytes], Any]] = {
    "prometheus": (prometheus_client.generate_latest, prometheus_parser),
    "openmetrics": (openmetrics_exposition.generate_latest, openmetrics_parser),
}


@pytest.mark.parametrize("form", _FORMATS)
def test_both_formats_are_read_by_their_own_parsers(registry: CollectorRegistry, form: str) -> None:
    write, parser = _FORMATS[form]
    registry.collect()
    text = write(registry).decode()
    assert (form == "openmetrics") == text.endswith("# EOF\n")
    families = {one.name: one for one in parser.text_string_to_metric_families(text)}
    ours = {name: one for name, one in families.items() if name.startswith("cgpu_")}
    assert len(ours) > 40 and len(families) > len(ours)
    helps = [one.documentation for one in ours.values()]
    assert all(text.endswith(".") for text in helps) and len(set(helps)) == len(helps)
    for name, one in ours.items():
        assert one.type in ("counter", "gauge"), name
        for unit in ("_ms", "_ns", "_us", "_mib", "_mb", "_percent"):
            assert not name.removesuffix("_total").endswith(unit), name


def test_gpu_hours_are_billed_by_the_units_of_the_card(tree: CoreTree, tmp_path: Path) -> None:
    settings = tmp_path / "cards.toml"
    settings.write_text("[default]\nunits = 36000\n")
    registry = CollectorRegistry()
    exporter = Exporter(str(tree.root), prefix=str(tmp_path), settings=str(settings))
    registry.register(exporter)
    name = "cgpu_container_billed_gpu_hours_total"
    began = time.monotonic()
    assert registry.get_sample_value(name, CONTAINER) == 0
    time.sleep(0.01)
    found = registry.get_sample_value(name, CONTAINER)
    # ten units a second, and half of the card
    assert found and 0.05 <= found <= (time.monotonic() - began) * 5
    settings.write_text("nonsense = 1\n")
    assert registry.get_sample_value("cgpu_up", {}) == 1


def test_events_are_counted_once(tree: CoreTree, registry: CollectorRegistry) -> None:
    assert registry.get_sample_value("cgpu_events_total", {"event": "oom"}) == 1
    tree.events += "1700000000000000002 oom id=x gpu=0\n1700000000000000003 lost 4\nnoise\n"
    tree.write()
    for _ in range(2):
        assert registry.get_sample_value("cgpu_events_total", {"event": "oom"}) == 2
    assert registry.get_sample_value("cgpu_events_total", {"event": "lost"}) is None


def test_without_a_module_it_is_down_and_comes_back(
    tree: CoreTree, registry: CollectorRegistry, tmp_path: Path
) -> None:
    tree.root.rename(tmp_path / "away")
    assert registry.get_sample_value("cgpu_up") == 0
    assert registry.get_sample_value("cgpu_gpu_containers", CARD) is None
    (tmp_path / "away").rename(tree.root)
    assert registry.get_sample_value("cgpu_up") == 1


def test_nothing_of_the_tree_stays_open_between_scrapes(
    tree: CoreTree, registry: CollectorRegistry
) -> None:
    prometheus_client.generate_latest(registry)
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
             if os.path.islink(f"/proc/self/fd/{fd}")]  # fmt: skip
    assert not [link for link in links if link.startswith(str(tree.root))]


def test_the_command_prints_writes_and_refuses(tree: CoreTree, tmp_path: Path) -> None:
    options = ("--root", tree.root)
    printed = program.run(main.app, "exporter", "--once", *options)
    assert f'cgpu_container_weight{{container="{HEX[:12]}"' in printed.stdout
    assert "hami_" not in printed.stdout
    file = tmp_path / "cgpu.prom"
    assert program.run(main.app, "exporter", "--textfile", file, *options).returncode == 0
    assert "cgpu_up 1.0" in file.read_text()
    for args, text in (
        (("--listen", "nowhere"), "write ADDRESS:PORT"),
        (("--textfile", tmp_path / "no/such"), "No such file"),
    ):
        failed = program.run(main.app, "exporter", *args, *options)
        assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
        assert text in failed.stderr


# ---- a real server


@pytest.fixture
def served(tree: CoreTree) -> Iterator[int]:
    """The exporter as a service; gives its port."""
    port = prometheus.free_port()
    command = [sys.executable, "-m", "pycgpu.cli.main", "exporter"]
    child = subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}", "--root", str(tree.root), "--names", "hami"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert output(child).readline() == f"serving http://127.0.0.1:{port}/metrics\n"
    yield port
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=20) == 0


def test_the_exporter_is_for_this_machine_unless_it_is_told_otherwise() -> None:
    done = program.run(main.app, "exporter", "--help")
    assert "127.0.0.1:9836" in done.stdout and "0.0.0.0" not in done.stdout
    done = program.run(main.app, "exporter", CGPU_EXPORTER_LISTEN="192.0.2.1:9836")
    assert "cannot listen on 192.0.2.1:9836" in done.stderr


def test_a_prometheus_server_scrapes_it_and_answers_queries(
    served: int, tree: CoreTree, tmp_path: Path
) -> None:
    settings = (
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: cgpu\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{served}']}}]\n"
    )
    with prometheus.Server(prometheus.installed(), settings, tmp_path) as server:
        name = f'cgpu_container_memory_used_bytes{{container="{HEX[:12]}",gpu="0"}}'
        assert prometheus.until(lambda: server.value(name), "the first scrape") == GIB
        tree.containers[HEX].hold(0, 4712, 8, GIB, "python3")
        tree.write()
        prometheus.until(lambda: server.value(name) == 2 * GIB, "what changed")
        assert server.value("up") == 1
