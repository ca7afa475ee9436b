# SPDX-License-Identifier: MIT
"""cgpu set, policy, ps, events, doctor and completion, against text that the core printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pycgpu.cli import main
from pycgpu.errors import CgpuError
from pycgpu.install import doctor
from pycgpu.tree import change, device_nodes, events, names, procfs
from tests.host import program
from tests.host.coretree import GIB, CoreTree
from tests.host.devices import make_devices
from tests.host.engine_programs import OLD_DOCKERD
from tests.host.nvml import make_library

HEX = "0123456789abcdef" * 4
OTHER = "0123" + "f" * 60


def cgpu(*args: object, **environment: str) -> program.Result:
    return program.run(main.app, *args, **environment)


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    made = CoreTree(tmp_path / "tree", [(16 * GIB, 0), (16 * GIB, 0)])
    one = made.create(HEX, f"gpu=0,mem={4 * GIB},weight=3", f"gpu=1,mem={GIB}")
    one.hold(0, 4711, 7, GIB, "python3")
    made.create(OTHER, f"gpu=0,mem={8 * GIB}")
    made.write()
    return made


# ---- set


def test_run_refuses_a_size_without_its_unit_before_it_asks_the_agent() -> None:
    refused = cgpu("run", "--mem", 8, "--", "true")
    assert refused.returncode == 125
    assert "--mem '8': '8' is 8 bytes, less than 1 MiB: write 8MiB or GiB" in refused.stderr


def test_set_changes_all_cards_and_the_core_takes_what_it_wrote(tree: CoreTree) -> None:
    result = cgpu("set", "012345", "--weight", 5, "--quota", 40, "--mem", "2G", "--root", tree.root)
    assert result.stdout.splitlines() == [
        "GPU 0, 0123456789ab: weight 3 → 5",
        "GPU 0, 0123456789ab: quota none → 40 %",
        "GPU 0, 0123456789ab: memory 4096 MiB → 2048 MiB",
        "GPU 1, 0123456789ab: weight 1 → 5",
        "GPU 1, 0123456789ab: quota none → 40 %",
        "GPU 1, 0123456789ab: memory 1024 MiB → 2048 MiB",
    ]
    for node in ("weight", "quota", "memsize"):
        assert tree.store(f"0/0123456789ab/{node}") == 0
    tree.write()
    assert procfs.read_memsize(0, "0123456789ab", str(tree.root)) == 2 * GIB


@pytest.mark.parametrize("bridge", [False, True])
def test_set_says_where_nothing_enforces_what_it_sets(tree: CoreTree, bridge: bool) -> None:
    (tree.root / "features").write_text("memory\nslices\ngate\n" if bridge else "memory\n")
    result = cgpu("set", HEX, "--quota", 40, "--mem", "2G", "--root", tree.root)
    warning = "cgpu: nothing here enforces quota: modprobe cgpu_rm\n"
    assert (result.returncode, result.stderr) == (0, "" if bridge else warning)


def test_set_tells_of_quotas_that_are_more_than_the_card(tree: CoreTree) -> None:
    """Its operator may do so; a hook would have refused it."""
    (tree.root / "features").write_text("memory\nslices\ngate\n")
    options = ("--quota", 60, "--gpu", 0, "--root", tree.root)
    assert cgpu("set", HEX, *options).stderr == ""
    assert cgpu("set", OTHER, *options, "--dry-run").stderr == ""
    told = cgpu("set", OTHER, *options)
    assert told.returncode == 0
    assert told.stderr == (
        "cgpu: quota of all on card 0 is 120 % now: no container can have all of it\n"
    )


def test_set_on_one_card_and_dry(tree: CoreTree) -> None:
    options = ("--gpu", 1, "--root", tree.root)
    result = cgpu("set", HEX, "--weight", 2, "--dry-run", *options)
    assert result.stdout == "GPU 1, 0123456789ab: weight 1 → 2\n"
    assert procfs.read_weight(1, "0123456789ab", str(tree.root)) == 1
    assert cgpu("set", HEX, "--weight", 2, *options).returncode == 0
    assert procfs.read_weight(1, "0123456789ab", str(tree.root)) == 2
    assert procfs.read_weight(0, "0123456789ab", str(tree.root)) == 3


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("zz", "--weight", "1"), "no container 'zz' on a GPU; there are: 0123456789ab"),
        (("0123", "--weight", "1"), "more than one container"),
        ((HEX, "--weight", "-1"), "write a whole number"),
        ((HEX, "--quota", "101"), "write 1 to 100 percent"),
        ((HEX, "--priority", "16"), "priority 16: write 0 to 15"),
        ((HEX, "--mem", "much"), "is not an amount of memory"),
        ((HEX, "--mem", "3"), "'3' is 3 bytes, less than 1 MiB: write 3MiB or GiB"),
        ((HEX, "--mem", "9GiB", "--gpu", 0), "5120 MiB more, and card 0 has 4096 MiB free"),
        ((HEX, "--weight", "20", "--gpu", 0), "stays 3: card 0 has 19 for it"),
        ((HEX, "--weight", "1", "--gpu", "7"), "has no GPU 7; it has: 0, 1"),
        ((HEX, "--idle-park", "soon"), "idle park: 'soon' is no time: write seconds, 90s, 5m"),
        ((HEX, "--weight", "5", "--idle-park", "5m"), "stays off: this door"),
    ],
)
def test_set_says_in_one_line_what_is_wrong_and_changes_nothing(
    tree: CoreTree, args: Any, text: Any
) -> None:
    before = {path: path.read_bytes() for path in tree.root.rglob("*") if path.is_file()}
    result = cgpu("set", *args, "--root", tree.root)
    assert (result.returncode, result.stdout) == (1, "")
    assert text in result.stderr and result.stderr.count("\n") == 1
    assert before == {path: path.read_bytes() for path in tree.root.rglob("*") if path.is_file()}


def test_set_counts_what_the_card_may_promise_and_what_it_has(tree: CoreTree) -> None:
    tree.host.card[0].overcommit_ratio = 200
    tree.write()
    told = cgpu("set", HEX, "--mem", "9GiB", "--gpu", 0, "--dry-run", "--root", tree.root)
    assert told.stdout == "GPU 0, 0123456789ab: memory 4096 MiB → 9216 MiB\n"
    told = cgpu("set", HEX, "--mem", "17GiB", "--gpu", 0, "--root", tree.root)
    assert told.stderr.endswith("stays as it was: 17408 MiB asked, and card 0 has 16384 MiB\n")


def test_set_without_anything_to_set_is_a_usage_error(tree: CoreTree) -> None:
    assert cgpu("set", HEX, "--root", tree.root).returncode == 2


def test_a_change_that_is_refused_takes_back_those_before_it() -> None:
    written = []

    def refuse() -> None:
        raise CgpuError("no")

    first = change.Change("", lambda: written.append("do"), lambda: written.append("undo"))
    with pytest.raises(CgpuError, match="no"):
        change.apply_all([first, change.Change("", refuse, refuse)])
    assert written == ["do", "undo"]


def test_what_cannot_be_taken_back_is_said() -> None:
    def refuse() -> None:
        raise CgpuError("no")

    def keep() -> None:
        raise CgpuError("the limit stays")

    with pytest.raises(CgpuError, match="no; the limit stays"):
        change.apply_all([change.Change("", lambda: None, keep), change.Change("", refuse, refuse)])


# ---- policy


def test_policy_is_shown_and_set_by_name_and_number(tree: CoreTree) -> None:
    assert cgpu("policy", 0, "--root", tree.root).stdout == "GPU 0: policy 7 weighted-conserving\n"
    result = cgpu("policy", 0, "average", "--root", tree.root)
    assert result.stdout == "GPU 0: policy 7 weighted-conserving → 0 average\n"
    assert tree.store("0/policy") == 0
    assert cgpu("policy", 0, "4", "--root", tree.root).stdout.endswith("→ 4 weak\n")
    listed = cgpu("policy", "--root", tree.root).stdout
    assert "GPU 1: policy 7 weighted-conserving" in listed and "9  online" in listed


@pytest.mark.parametrize("args", [(0, "weakest"), (0, "10"), (7, "0"), (0, "-1")])
def test_a_policy_or_card_that_there_is_not_changes_nothing(tree: CoreTree, args: Any) -> None:
    result = cgpu("policy", "--root", tree.root, "--", *args)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert procfs.read_policy(0, str(tree.root)) == 7


# ---- ps


def test_ps_lists_containers_and_processes_in_columns(tree: CoreTree) -> None:
    assert cgpu("ps", "--root", tree.root).stdout.splitlines() == [
        "GPU  CONTAINER     NAME  MIB   LIMIT  WEIGHT  QUOTA  PROCESSES  GROUP  STATE    PARKED",
        "0    0123456789ab  -     1024  4096   3       -      1          -      running  0",
        "0    0123ffffffff  -     0     8192   1       -      0          -      running  0",
        "1    0123456789ab  -     0     1024   1       -      0          -      running  0",
    ]
    assert cgpu("ps", "012345", "--root", tree.root).stdout.splitlines()[1:] == [
        "0    0123456789ab  4711  7       1024  python3"
    ]
    assert cgpu("ps", "-q", "--root", tree.root).stdout.split() == [HEX, OTHER]
    assert cgpu("ps", "-q", "-p", "--root", tree.root).stdout == "4711\n"
    assert cgpu("ps", "nobody", "--root", tree.root).returncode == 1


@pytest.mark.parametrize(("waits", "word"), [(False, "parked"), (True, "waits")])
def test_ps_tells_what_is_parked(tree: CoreTree, waits: bool, word: str) -> None:
    tree.containers[HEX].park("parked", waits=waits, short_card=0, short_bytes=1)
    tree.write()
    (tree.root / "features").write_text("park\n")
    lines = cgpu("ps", "--root", tree.root).stdout.splitlines()
    assert [line.split()[3:5] + line.split()[-2:] for line in lines[1:]] == [
        ["0", "4096", word, "1024"],
        ["0", "8192", "running", "0"],
        ["0", "1024", "parked", "0"],
    ]


# ---- events


def test_a_kind_that_nothing_writes_is_refused(tree: CoreTree) -> None:
    result = cgpu("events", "--kind", "omm", "--root", tree.root)
    assert result.returncode == 2 and "there are: create, destroy" in " ".join(
        result.stderr.replace("│", "").split()
    )
    assert cgpu("events", "--kind", "oom", "--root", tree.root).returncode == 0


def test_events_are_shown_and_chosen(tree: CoreTree) -> None:
    tree.events = (
        f"1700000000123456789 create id={HEX}\n"
        f"1700000001000000000 oom id={HEX} gpu=0 pid=4711 bytes=5\n"
        f"1700000002000000000 set 0/{OTHER}/weight 4\n"
        "1700000003000000000 lost 12\n"
    )
    tree.write()
    shown = cgpu("events", "--root", tree.root).stdout.splitlines()
    assert [line.split()[2] for line in shown] == ["create", "oom", "set", "lost"]
    assert shown[0].split()[1].endswith(".123")
    (chosen,) = cgpu(
        "events", "--container", "012345", "--kind", "oom", "--json", "--root", tree.root
    ).stdout.splitlines()
    assert json.loads(chosen) == {
        "time_ns": 1700000001000000000,
        "event": "oom",
        "text": f"id={HEX} gpu=0 pid=4711 bytes=5",
        "id": HEX,
        "gpu": 0,
        "pid": 4711,
        "bytes": 5,
    }
    (other,) = cgpu("events", "--container", OTHER, "--root", tree.root).stdout.splitlines()
    assert other.endswith(f"set      0/{OTHER}/weight 4")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (
            f"set 0/{OTHER}/weight 4",
            {"gpu": "0", "id": OTHER, "file": "weight", "value": "4"},
        ),
        ("set 1/policy 3", {"gpu": "1", "file": "policy", "value": "3"}),
        ("attach driver 580.159.04", {"driver": "580.159.04"}),
        (
            "verify driver 700.10 branch=620 failed class 0xc46f: its parameters are longer",
            {
                "driver": "700.10",
                "branch": "620",
                "reason": "failed class 0xc46f: its parameters are longer",
            },
        ),
        ("lost 12", {"lines": "12"}),
        (
            "ungranted pid=7 minor=0 a container without a grant",
            {"pid": "7", "minor": "0", "reason": "a container without a grant"},
        ),
        (
            f"refused id={HEX} file opened outside the container",
            {"id": HEX, "reason": "file opened outside the container"},
        ),
    ],
)
def test_the_text_of_an_event_is_split(line: str, values: dict[str, str]) -> None:
    event = events.parse(f"1700000000000000000 {line}")
    assert event.values == values
    assert event.kind in events.KINDS
    assert event.id == values.get("id")


def test_every_kind_of_event_that_a_page_names_can_be_asked_for() -> None:
    page = (Path(__file__).parents[2] / "docs/tree.md").read_text().partition("## Events")[2]
    named = {
        code.split()[0]
        for row in page.partition("## ")[0].splitlines()
        if row.startswith("| `")
        for code in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert named == set(events.KINDS)


@pytest.mark.parametrize("line", ["", "oom", "x y=z", "12", "12 ", "９ oom", "1 set a/b"])
def test_any_line_of_events_is_an_event(line: Any) -> None:
    event = events.parse(line)
    assert isinstance(event.id, str | None)


# ---- doctor


@pytest.fixture
def host(tmp_path: Path, tree: CoreTree) -> Path:
    """A host in good order."""
    prefix = tmp_path / "host"
    for path, text in {
        "proc/modules": "cgpu_km 1 0 - Live 0x0\nnvidia 1 0\nnvidia_uvm 1 0\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64"
        "  550.163.01  Release Build\n",
        "lib/modules/6.1.0/build/Makefile": "",
        "etc/modules-load.d/cgpu.conf": "cgpu_km\n",
        "etc/docker/daemon.json": '{"runtimes": {"cgpu": {"path":'
        ' "/usr/lib/cgpu/cgpu-container-runtime"}}}',
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "Device Minor: \t 0\n",
        "proc/driver/nvidia/gpus/0000:02:00.0/information": "Device Minor: \t 1\n",
        "usr/bin/dockerd": OLD_DOCKERD,
        "usr/sbin/runc": "#!/bin/sh\n",
        "usr/lib/cgpu/cgpu-container-runtime": "for runtime in /usr/sbin/runc; do\n",
    }.items():
        (prefix / path).parent.mkdir(parents=True, exist_ok=True)
        (prefix / path).write_text(text)
        (prefix / path).chmod(0o755 if "bin/" in path else 0o644)
    tree = CoreTree(tree.root, [(GIB, 0)] * 2, features=("MEMORY", "SLICES", "GATE"))
    tree.root.rename(prefix / "proc/cgpu_km")
    device_nodes.ensure([0, 1], **make_devices(prefix, cards=2))
    return prefix


def wrong(host: Path) -> list[doctor.Finding]:
    found = doctor.examine(str(host), release="6.1.0")
    return [one for one in found if one.level in (doctor.WARN, doctor.FAIL)]


@pytest.mark.parametrize(
    ("chosen", "remedy"), [("refused", "unknown_driver=newest"), ("newest", "dmesg")]
)
def test_doctor_says_of_a_newer_driver_whether_it_may_be_checked_or_has_failed(
    host: Path, chosen: str, remedy: str
) -> None:
    (host / "proc/driver/nvidia/version").write_text("NVRM version:  Module  999.10  R")
    (host / "proc/cgpu_km/features").write_text("pid\n")
    word = host / "sys/module/cgpu_km/parameters/unknown_driver"
    word.parent.mkdir(parents=True, exist_ok=True)
    word.write_text(f"{chosen}\n")
    found = {one.subject: one for one in wrong(host) if one.level == doctor.FAIL}
    assert remedy in found["driver"].remedy
    assert "nothing is limited" in found["hooks"].text


def test_a_host_in_good_order_has_nothing_to_do(host: Path) -> None:
    assert wrong(host) == []
    assert cgpu("doctor", "--prefix", host).returncode == 0


@pytest.mark.parametrize(
    ("path", "text", "subject", "level", "remedy"),
    [
        ("proc/driver/nvidia/version", None, "driver", "warn", ""),
        ("proc/driver/nvidia/version", "Module  999.10  R", "driver", "warn", "upgrade cgpu"),
        ("proc/driver/nvidia/version", "Module  525.10  R", "driver", "fail", "a known branch"),
        ("proc/driver/nvidia/version", "Module  550.144.03  R", "driver", "warn", "550.163.01"),
        ("proc/driver/nvidia/version", "Module  580.95.05  R", "driver", "warn", "580.159.03"),
        ("proc/modules", "nvidia 1\ncgpu_km 1\n", "driver", "warn", "modprobe nvidia-uvm"),
        ("dev/nvidia-uvm", None, "devices", "warn", "cgpu device-nodes"),
        ("proc/driver/nvidia/capabilities/gpu1/mig/gi7/access", "", "mig", "warn", "-mig 0"),
        ("dev/nvidia1", None, "devices", "warn", "cgpu device-nodes"),
        ("proc/devices", "Character devices:\n9 nvidia-uvm\n", "devices", "warn", "device-nodes"),
        ("dev/char/1:5", None, "devices", "warn", "cgpu device-nodes"),
        ("lib/modules/6.1.0/build/Makefile", None, "kernel", "warn", "linux-headers-6.1.0"),
        ("proc/sys/kernel/ftrace_enabled", "0\n", "kernel", "warn", "kernel.ftrace_enabled=1"),
        ("proc/cgpu_km/version", "9.9\n", "module", "warn", "cgpu upgrade"),
        ("proc/cgpu_km/api_version", "9\n", "module", "fail", "cgpu upgrade"),
        ("proc/cgpu_km/features", "memory\n", "compute", "warn", "cgpu_rm"),
        (
            "proc/cgpu_km/0/overcommit_ratio",
            "200\n",
            "overcommit",
            "warn",
            "overcommit_ratio = 100",
        ),
        ("proc/cgpu_km/1/memory", "garbage\n", "cards", "fail", ""),
        ("dev/nvidia2", "", "cards", "warn", "dmesg"),
        (
            "etc/cgpu/cards.toml",
            "[GPU-00000000-0000-0000-0000-000000000001]\nmax_inst = 9\n",
            "settings",
            "warn",
            "cards --apply",
        ),
        ("etc/cgpu/cards.toml", "[default]\nweight = 9\n", "settings", "fail", ""),
        ("etc/docker/daemon.json", "{}", "engines", "warn", "install-runtime --engine docker"),
        ("etc/docker/daemon.json", "{", "engines", "fail", "install-runtime --engine docker"),
        ("usr/sbin/runc", None, "engines", "fail", "install runc"),
        ("etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so\n", "conflicts", "warn", "remove it"),
        ("proc/modules", "nvidia_uvm 1\ncgpu_km 1\negpu 1\n", "conflicts", "fail", "rmmod egpu"),
    ],
)
def test_doctor_finds_what_is_wrong_and_says_what_to_do(
    host: Path, path: Any, text: Any, subject: Any, level: Any, remedy: Any
) -> None:
    if text is None:
        (host / path).unlink()
    else:
        (host / path).parent.mkdir(parents=True, exist_ok=True)
        (host / path).write_text(text)
    (found,) = [one for one in wrong(host) if one.subject == subject]
    assert (found.level, remedy in found.remedy) == (level, True)
    status = cgpu("doctor", "--prefix", host).returncode
    assert status == (1 if level == "fail" else 0)


def test_doctor_says_who_stays_parked_without_a_service(host: Path) -> None:
    tree = host / "proc/cgpu_km"
    (tree / "features").write_text("memory\nslices\ngate\npark\n")
    (tree / "parking").write_text("")
    notes = {one.subject: one for one in doctor.examine(str(host), release="6.1.0")}
    assert notes["parking"].level == doctor.NOTE
    # A card that promises more than it has needs somebody who parks.
    (host / "proc/meminfo").write_text("MemTotal: 1 kB\nMemAvailable: 1 kB\n")
    (tree / "0/overcommit_ratio").write_text("200\n")
    assert [one.subject for one in wrong(host)] == ["parking"]
    (tree / "0/overcommit_ratio").write_text("100\n")
    (tree / "parking").write_text("one state=parked since_ns=1 bytes=2 pid=3\n")
    (found,) = wrong(host)
    assert found.text == "no cgpu parkd answers to bring back one"
    assert "systemctl start cgpu-parkd" in found.remedy


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ("CUDA_MPS_PIPE_DIRECTORY=/run/cgpu/groups/chat/pipe\0", False),
        ("CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps\0", True),
        ("PATH=/bin\0", True),
    ],
)
def test_doctor_tells_an_mps_server_from_a_groups_own(
    host: Path, variables: str, told: bool
) -> None:
    (host / "proc/77").mkdir()
    (host / "proc/77/comm").write_text("nvidia-cuda-mps\n")
    (host / "proc/77/environ").write_text(variables)
    found = [one for one in wrong(host) if one.subject == "conflicts"]
    assert [one.level for one in found] == ["warn"] * told
    assert all("quit" in one.remedy for one in found)


@pytest.mark.parametrize(
    "version", ["535.309.01", "570.211.01", "580.159.03", "580.200.1", "595.71.05"]
)
def test_doctor_names_no_vulnerability_of_a_driver_without_a_known_one(
    host: Path, version: str
) -> None:
    (host / "proc/driver/nvidia/version").write_text(f"Module  {version}  R")
    assert wrong(host) == []


def test_doctor_says_which_branch_was_not_compared_with_nvidias_headers(host: Path) -> None:
    (host / "proc/driver/nvidia/version").write_text("Module  610.57.04  R")
    (found,) = doctor_notes(host)
    assert "branch 610: its layouts are those that others published" in found.text
    assert "docs/drivers.md" in found.remedy
    (host / "proc/driver/nvidia/version").write_text("Module  595.71.05  R")
    assert doctor_notes(host) == []


def doctor_notes(host: Path) -> list[Any]:
    examined = doctor.examine(str(host), release="6.1.0")
    return [one for one in examined if one.level == "note" and one.subject == "driver"]


def test_doctor_warns_of_a_driver_that_any_reader_of_its_mappings_crashes(host: Path) -> None:
    (host / "proc/driver/nvidia/version").write_text("Module  595.45.04  R")
    found = [one for one in wrong(host) if "crashes the kernel" in one.text]
    assert [(one.level, "595.71.05" in one.remedy) for one in found] == [("warn", True)]


def test_doctor_says_that_a_branch_gets_no_fixes_any_more(host: Path) -> None:
    found = doctor.examine(str(host), release="6.1.0")
    notes = [one.text for one in found if (one.level, one.subject) == (doctor.NOTE, "driver")]
    assert notes == ["no bulletin after 5630 of 2025-04-24 has a fix for branch 550"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("allow", "is not limited"),
        ("refuse", "is refused"),
        ("asked", "and not limited before"),
        ("10%", "gets 10% of it"),
    ],
)
def test_doctor_shows_what_a_container_without_a_grant_gets(
    host: Path, said: str, shown: str
) -> None:
    parameter = host / doctor.UNGRANTED
    parameter.parent.mkdir(parents=True)
    parameter.write_text(f"{said}\n")
    found = [
        one for one in doctor.examine(str(host), release="6.1.0") if one.subject == "ungranted"
    ]
    assert [one.text.endswith(shown) for one in found] == [True]
    assert found[0].level == (doctor.NOTE if said in ("allow", "asked") else doctor.OK)


@pytest.mark.parametrize(
    ("file", "address", "warned"),
    [
        ("tcp", "0100007F:266C", []),
        ("tcp", "00000000:266C", ["exporter"]),
        ("tcp", "00000000:266D", ["web"]),
        ("tcp", "00000000:0016", []),
        ("tcp6", "00000000000000000000000000000000:266C", ["exporter"]),
    ],
)
def test_doctor_warns_of_figures_that_every_address_can_read(
    host: Path, file: str, address: str, warned: list[str]
) -> None:
    (host / "proc/net").mkdir()
    (host / "proc/net" / file).write_text(
        f"  sl  local_address rem_address   st tx_queue\n   0: {address} 00000000:0000 0A 0:0\n"
        f"   1: {address.rpartition(':')[0]}:2670 00000000:0000 0A 0:0\n"
    )
    assert [one.subject for one in wrong(host)] == warned


@pytest.mark.parametrize(("ecc", "warned"), [("off", True), (None, False), ("none", False)])
def test_doctor_warns_of_memory_whose_errors_nothing_corrects(
    tmp_path: Path, ecc: str | None, warned: bool
) -> None:
    """In a process of its own, for a library once loaded stays; not of boards that have no ECC."""
    asked = (
        "from pathlib import Path; from pycgpu.install import doctor\n"
        "for one in doctor.memory_errors(doctor.Host(Path('/'), None, '6.1.0')):"
        " print(one.level, one.subject, one.text, one.remedy, sep='; ')"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(make_library(tmp_path))}
    said = subprocess.run(
        [sys.executable, "-c", asked],
        env=environment | ({"NVML_ECC": ecc} if ecc else {}),
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    line = (
        "warn; ecc; off on NVIDIA H200 GPU-00000000-0000-0000-0000-000000000001: errors in memory,"
        " a neighbour's included, go unnoticed; nvidia-smi -e 1, then reset the card or reboot\n"
    )
    assert said == line * warned


def test_doctor_asks_nothing_of_another_hosts_cards(host: Path) -> None:
    assert not list(doctor.memory_errors(doctor.Host(host, None, "6.1.0")))


def test_doctor_without_a_module_says_how_to_get_one(host: Path, tmp_path: Path) -> None:
    (host / "proc/cgpu_km").rename(tmp_path / "away")
    (host / "proc/modules").write_text("nvidia 1\nnvidia_uvm 1\n")
    (found,) = wrong(host)
    assert found.remedy == "`cgpu install`, then `modprobe cgpu_km`"
    (host / "lib/modules/6.1.0/updates").mkdir()
    (host / "lib/modules/6.1.0/updates/cgpu_km.ko").touch()
    (found,) = wrong(host)
    assert found.remedy.startswith("`modprobe cgpu_km`")


def test_a_module_without_a_driver_is_found(host: Path) -> None:
    (host / "proc/cgpu_km/features").write_text("pid\n")
    for card in ("0", "1"):
        shutil.rmtree(host / "proc/cgpu_km" / card)
        (host / "dev" / f"nvidia{card}").unlink()
    assert {"hooks", "cards"} <= {one.subject for one in wrong(host) if one.level == doctor.FAIL}


def test_another_products_tree_is_a_conflict(host: Path) -> None:
    (host / "proc/cgpu_km/api_version").unlink()
    assert any("another product" in one.text for one in wrong(host))


# ---- names


def test_names_come_from_whoever_has_them(tmp_path: Path) -> None:
    ids = {letter: letter * 64 for letter in "abcdef"}
    for path, text in {
        f"var/log/containers/llm-0_prod_server-{ids['a']}.log": "",
        f"var/lib/docker/containers/{ids['b']}/config.v2.json": '{"Name": "/train"}',
        "var/lib/containers/storage/overlay-containers/containers.json": json.dumps(
            [{"id": ids["c"], "names": ["pod"]}, {"id": "x"}, 7]
        ),
        f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ids['d']}/config.json": json.dumps(
            {
                "annotations": {
                    "io.kubernetes.cri.container-name": "web",
                    "io.kubernetes.cri.sandbox-name": "pod-1",
                    "io.kubernetes.cri.sandbox-namespace": "default",
                }
            }
        ),
        f"var/lib/docker/containers/{ids['e']}/config.v2.json": "not json",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = names.find(ids.values(), str(tmp_path))
    assert {key: str(name) for key, name in found.items()} == {
        ids["a"]: "prod/llm-0/server",
        ids["b"]: "train",
        ids["c"]: "pod",
        ids["d"]: "default/pod-1/web",
    }


def test_a_container_is_meant_by_id_name_pod_or_path() -> None:
    name = names.ContainerName("kubernetes", "server", "llm-0", "prod")
    for text in (HEX, HEX[:12], HEX[:4], "server", "llm-0", "prod/llm-0", "prod/llm-0/server"):
        assert names.matches(text, HEX, HEX[:12], name)
    for text in (HEX[:3], "prod", "", "llm"):
        assert not names.matches(text, HEX, HEX[:12], name)


@pytest.mark.parametrize("driver", ["overlay", "vfs", "btrfs"])
@pytest.mark.parametrize("index", ["containers.json", "volatile-containers.json"])
def test_podmans_names_are_found_with_any_storage_driver(
    tmp_path: Path, driver: str, index: str
) -> None:
    storage = tmp_path / f"var/lib/containers/storage/{driver}-containers"
    storage.mkdir(parents=True)
    (storage / index).write_text(json.dumps([{"id": "c" * 64, "names": ["train"]}]))
    assert names.find(["c" * 64], str(tmp_path)) == {
        "c" * 64: names.ContainerName("podman", "train")
    }


def test_podmans_names_are_found_where_storage_conf_puts_them(tmp_path: Path) -> None:
    (tmp_path / "etc/containers").mkdir(parents=True)
    (tmp_path / "etc/containers/storage.conf").write_text(
        '[storage]\ndriver = "zfs"\ngraphroot = "/data/podman" # the big disk\n'
    )
    storage = tmp_path / "data/podman/zfs-containers"
    storage.mkdir(parents=True)
    (storage / "containers.json").write_text(json.dumps([{"id": "c" * 64, "names": ["train"]}]))
    found = names.find(["c" * 64], str(tmp_path))
    assert str(found["c" * 64]) == "train"


def test_a_storage_that_the_user_may_not_search_leaves_containers_without_names() -> None:
    # Below pytest's own directory, which is closed itself, a user sees nothing at all.
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        closed = Path(top, "var/lib/containers")
        (closed / "storage/overlay-containers").mkdir(parents=True)
        closed.chmod(0)
        before = os.geteuid()
        if before == 0:
            os.seteuid(65534)
        try:
            assert names.find(["c" * 64], top) == {}
        finally:
            os.seteuid(before)
            closed.chmod(0o755)


# ---- completion


def test_completion_knows_commands_policies_and_speaks_every_shell() -> None:
    for shell in ("bash", "zsh", "fish"):
        script = cgpu("completion", shell).stdout
        assert "_CGPU_COMPLETE" in script and "_CGPU_SMI_COMPLETE" in script
    asked = {"_CGPU_COMPLETE": "complete_bash", "COMP_CWORD": "1", "COMP_WORDS": "cgpu po"}
    assert cgpu(**asked).stdout.split() == ["policy"]
    asked |= {"COMP_CWORD": "3", "COMP_WORDS": "cgpu policy 0 b"}
    assert cgpu(**asked).stdout.split() == ["burst"]
    asked |= {"COMP_CWORD": "3", "COMP_WORDS": "cgpu events --kind un"}
    assert cgpu(**asked).stdout.split() == ["ungranted", "unknown"]


# ---- create, destroy


def command_of(tree: CoreTree) -> str:
    """What was written to inst_ctl, which a write does not make shorter here."""
    return (tree.root / "inst_ctl").read_text()


def test_create_writes_one_command_with_all_cards(tree: CoreTree) -> None:
    options = ("--gpu", "0,1", "--mem", "1G,2G", "--quota", 30, "--root", tree.root)
    made = cgpu("create", "job-1", "--pid", 4711, *options)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines() == [
        "GPU 0: job-1 has 1024 MiB",
        "GPU 1: job-1 has 2048 MiB",
    ]
    assert command_of(tree).startswith(
        f"create job-1 pid=4711 gpu=0,mem={GIB},quota=30,policy=6"
        f" gpu=1,mem={2 * GIB},quota=30,policy=6"
    )


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("job-1", "--pid", 7, "--mem", "9G"), 1, "card 0"),
        (("job-1", "--pid", 7, "--mem", 8), 1, "--mem '8': '8' is 8 bytes, less than 1 MiB"),
        (("job-1",), 2, "--pid or --cgroup"),
        (("job-1", "--pid", 7, "--cgroup", "/sys/fs/cgroup/x"), 2, "--pid or --cgroup"),
        (("-1", "--pid", 7), 2, "-1"),
        (("a/b", "--pid", 7), 1, "container id 'a/b': write 1 to "),
    ],
)
def test_a_wrong_create_says_why_and_writes_nothing(
    tree: CoreTree, words: Any, status: int, text: str
) -> None:
    before = command_of(tree)
    refused = cgpu("create", *words, "--root", tree.root)
    assert refused.returncode == status
    assert text in refused.stderr
    assert command_of(tree) == before


def test_destroy_takes_the_beginning_of_an_id_and_writes_the_whole(tree: CoreTree) -> None:
    assert cgpu("destroy", HEX[:12], "--root", tree.root).returncode == 0
    assert command_of(tree).startswith(f"destroy {HEX}")
    ambiguous = cgpu("destroy", "0123", "--root", tree.root)
    assert ambiguous.returncode == 1
    assert "means more than one container" in ambiguous.stderr
