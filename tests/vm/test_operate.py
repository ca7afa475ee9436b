# SPDX-License-Identifier: MIT
"""What an operator does, with the real module: look, change, install and uninstall."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu import __version__
from pycgpu.cli import main
from pycgpu.cli.smi import app as smi_app
from pycgpu.errors import InstallError
from pycgpu.install import doctor, installation, kernel_door, service
from pycgpu.install.host import this_host
from pycgpu.tree import cards
from tests.host import program
from tests.process import output
from tests.vm import installed
from tests.vm.loaded import loaded_modules as names_of_modules
from tests.vm.loaded import until

pytestmark = pytest.mark.kernel("6.1", by_default=True)

MIB = 1 << 20
CORE = kernel_door.core_name(__version__)


def smi(*args: object) -> program.Result:
    return program.run(smi_app, *args)


def cgpu(*args: object) -> program.Result:
    return program.run(main.app, *args)


class Tenants:
    """Processes in pid namespaces of their own, which is what makes a container to the module."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> int:
        """Return the pid of the first process of a new namespace."""
        outer = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "1000000"])
        self._running.append(outer)
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        return int(until(lambda: children.read_text().split(), "the namespace's first process")[0])

    def end(self) -> None:
        """End them all."""
        for outer in self._running:
            outer.kill()
            outer.wait()
        self._running.clear()


@pytest.fixture
def tenants() -> Iterator[Tenants]:
    started = Tenants()
    yield started
    started.end()


@pytest.fixture
def eight_cards(sim: Any, km: Any) -> Any:
    """The module on eight simulated cards."""
    sim(cards=8)
    return km()


@pytest.fixture
def two_cards(sim: Any, km: Any) -> Any:
    """The module on two simulated cards."""
    sim(cards=2)
    return km()


# ---- looking


@pytest.mark.parametrize("count", [0, 1, 25])
def test_smi_shows_so_many_containers_on_every_card(
    two_cards: Any, tenants: Tenants, count: Any
) -> None:
    for card in (0, 1):
        two_cards.write(f"{card}/max_inst", "25")
    for number in range(count):
        clauses = (f"gpu={card},mem={100 * MIB}" for card in (0, 1))
        two_cards.create(f"job-{number}", f"pid={tenants.start()}", *clauses)
    shown = smi()
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("│ job-") == 2 * count
    assert ("no containers" in shown.stdout) == (count == 0)
    taken = json.loads(smi("--json").stdout)
    assert [len(card["containers"]) for card in taken["gpus"]] == [count, count]
    rows = smi("--csv", "--noheader", "--nounits", "--query=memory.limit").stdout.split()
    assert rows == ["100"] * (2 * count)


def test_smi_shows_twenty_five_containers_on_each_of_eight_cards(
    eight_cards: Any, tenants: Tenants
) -> None:
    for card in range(8):
        eight_cards.write(f"{card}/max_inst", "25")
    for number in range(25):
        clauses = (f"gpu={card},mem={(100 + card) * MIB}" for card in range(8))
        eight_cards.create(f"job-{number}", f"pid={tenants.start()}", *clauses)
    shown = smi()
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("│ job-") == 200
    taken = json.loads(smi("--json").stdout)
    assert [len(card["containers"]) for card in taken["gpus"]] == [25] * 8
    rows = smi("--csv", "--noheader", "--nounits", "--query=memory.limit").stdout.split()
    assert rows == [str(100 + card) for card in range(8) for _ in range(25)]
    only = smi("--csv", "--noheader", "--id=7", "--query=container").stdout.split()
    assert len(only) == 25


def test_smi_shows_memory_and_processes_as_the_module_counts_them(
    sim: Any, km: Any, container: Any
) -> None:
    driver = sim(cards=1)
    cgpu_km = km()
    one = container(programs={"/bin/simcuda": driver.programs / "simcuda"})
    cgpu_km.create(one.id, f"pid={one.pid}", f"gpu=0,mem={1024 * MIB}")
    child = one.popen("simcuda", "--hold", "alloc", "256M")
    try:
        taken = until(
            lambda: next(
                (
                    found
                    for found in json.loads(smi("--json").stdout)["gpus"][0]["containers"]
                    if found["memory"]["used_bytes"] >= 256 * MIB
                ),
                None,
            ),
            "256 MiB in use",
        )
        (process,) = taken["processes"]
        assert process["command"].startswith("simcuda")
        assert process["container_pid"] and process["pid"] != process["container_pid"]
        assert taken["memory"]["limit_bytes"] == 1024 * MIB
    finally:
        child.kill()
        child.wait()


def test_smi_gives_a_sensible_answer_while_containers_come_and_go(
    two_cards: Any, tenants: Tenants
) -> None:
    pids = [tenants.start() for _ in range(4)]
    stop = threading.Event()
    turns = [0]

    def churn() -> None:
        while not stop.is_set():
            for number, pid in enumerate(pids):
                two_cards.create(f"c{number}", f"pid={pid}", "gpu=0,mem=max", "gpu=1,mem=max")
            for number in range(len(pids)):
                two_cards.destroy(f"c{number}")
            turns[0] += 1

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        before = turns[0]
        for _ in range(20):
            shown = smi("--csv", "--noheader")
            assert (shown.returncode, shown.stderr) == (0, "")
            assert cgpu("ps").returncode == 0
            assert cgpu("exporter", "--once").stdout.startswith("# HELP cgpu_up")
        until(lambda: turns[0] > before, "a container's coming and going meanwhile")
    finally:
        stop.set()
        churning.join()


def test_without_the_module_everything_says_so_in_one_line() -> None:
    for entry, args in (
        (smi_app, ()),
        (main.app, ("ps",)),
        (main.app, ("set", "x", "--weight", "1")),
        (main.app, ("policy",)),
        (main.app, ("events",)),
    ):
        result = program.run(entry, *args)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.count("\n") == 1 and "modprobe cgpu_km" in result.stderr
    found = {one.subject: one for one in doctor.examine()}
    assert found["module"].level == doctor.FAIL


def test_without_permission_one_can_look_and_not_change(two_cards: Any, tenants: Tenants) -> None:
    two_cards.create("job", f"pid={tenants.start()}", "gpu=0,mem=max")

    def answers() -> list[program.Result]:
        return [smi("--csv", "--noheader"), cgpu("set", "job", "--weight", "1")]

    # What is imported here need not be readable by whoever asks next.
    assert [one.returncode for one in answers()] == [0, 0]
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(write, json.dumps(answers()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        (status, shown, said), refused = json.load(pipe)
    assert (status, said) == (0, ""), said
    assert "job" in shown
    assert refused[0] == 1
    assert refused[2].endswith("/0/job/weight: permission denied: run this as root\n")
    assert two_cards.read("0/job/weight") == "1\n"


# ---- changing


def test_set_and_policy_change_the_module_and_its_refusals_change_nothing(
    two_cards: Any, tenants: Tenants
) -> None:
    two_cards.create("job", f"pid={tenants.start()}", f"gpu=0,mem={100 * MIB}", "gpu=1,mem=max")
    assert cgpu("set", "job", "--weight", 3, "--quota", 40, "--gpu", 0).returncode == 0
    assert (two_cards.read("0/job/weight"), two_cards.read("0/job/quota")) == ("3\n", "40\n")
    assert cgpu("policy", 0, "weak").returncode == 0
    assert two_cards.read("0/policy") == "4\n"
    # The second value is refused by the module: the first is taken back.
    refused = cgpu("set", "job", "--weight", 5, "--quota-min", 60)
    assert refused.returncode == 1
    assert "out of bounds (ERANGE)" in refused.stderr
    assert two_cards.read("0/job/weight") == "3\n"
    assert two_cards.read("1/job/weight") == "1\n"
    assert "stays 3: card 0 has 20 for it" in cgpu("set", "job", "--weight", 99).stderr
    assert "MiB more, and card 0 has" in cgpu("set", "job", "--mem", "900TiB").stderr
    said = cgpu("events", "--kind", "set").stdout
    assert "0/job/weight 3" in said and "0/policy" in said


def test_events_are_followed_as_they_come(two_cards: Any, tenants: Tenants) -> None:
    pid = tenants.start()
    command = "from pycgpu.cli.main import app; app()"
    child = subprocess.Popen(
        [sys.executable, "-c", command, "events", "--follow", "--kind", "create"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        two_cards.create("late", f"pid={pid}", "gpu=0,mem=max")
        assert "late" in output(child).readline()
    finally:
        child.kill()
        child.wait()


def test_doctor_finds_the_module_its_hooks_and_cards(two_cards: Any) -> None:
    # the first of each: a bulletin's note follows the driver's version
    found = {one.subject: one for one in reversed(list(doctor.examine()))}
    assert found["driver"].level == doctor.OK, found["driver"]
    assert found["hooks"].level == doctor.OK, found["hooks"]
    assert found["cards"] == (doctor.OK, "cards", "2 under control", "")
    assert found["conflicts"].level == doctor.OK


# ---- installing


TOUCHED = (
    *("/etc/modules-load.d", "/etc/systemd/system", "/etc/docker", "/etc/containerd"),
    *("/etc/containers", "/etc/crio", "/etc/cdi", "/usr/lib/cgpu", "/var/lib/cgpu", "/run/cgpu"),
)


def everything() -> dict[str, object]:
    """The paths that an installation could touch, with their content."""
    found: dict[str, object] = {}
    for top in TOUCHED:
        for path in (Path(top), *Path(top).rglob("*")):
            if path.is_file():
                found[str(path)] = path.read_bytes()
            elif path.exists():
                found[str(path)] = "directory"
    modules = Path(f"/lib/modules/{os.uname().release}")
    for path in modules.rglob("*"):
        found[str(path)] = path.stat().st_size if path.is_file() else "directory"
    for top in ("/var/log", "/usr/src", "/etc", "/opt"):
        found[top] = sorted(path.name for path in Path(top).iterdir())
    return found


@pytest.fixture
def few_modules(tmp_path: Path) -> Iterator[None]:
    with installed.few_modules(tmp_path / "few"):
        yield


@pytest.fixture
def options(made: Callable[[str], Path], tmp_path: Path) -> installation.Options:
    """Both modules as they were built for this kernel; no DKMS, which has its own build."""
    prebuilt = tmp_path / "modules"
    return installation.Options(modules=str(installed.modules(made, "km", prebuilt, bridge=False)))


@pytest.mark.needs("km")
def test_uninstall_refuses_while_a_container_exists_and_else_leaves_nothing(
    sim: Any,
    tenants: Tenants,
    options: installation.Options,
    few_modules: None,
    loaded_modules: Any,
) -> None:
    sim(cards=1)
    host = this_host()
    # depmod writes its tables anew: they are compared after it has run once.
    host.run(["depmod", "-a", host.release])
    before, running = everything(), names_of_modules()
    said: list[str] = []
    installation.install(options, host, said.append)
    try:
        assert {"cgpu_km", CORE} <= names_of_modules()
        assert Path("/proc/cgpu_km/api_version").exists()
        assert host.run(["modprobe", "-n", "-v", "cgpu_km"]) == ""
        Path("/proc/cgpu_km/inst_ctl").write_text(f"create job pid={tenants.start()} gpu=0,mem=max")
        installed = everything()
        with pytest.raises(InstallError, match="1 container uses a GPU: job: stop"):
            installation.uninstall(host)
        assert everything() == installed
        assert "cgpu_km" in names_of_modules()
        Path("/proc/cgpu_km/inst_ctl").write_text("destroy job")
        reader = os.open("/proc/cgpu_km/events", os.O_RDONLY)
        with pytest.raises(InstallError, match=rf"held by .* \({os.getpid()}\); nothing"):
            installation.uninstall(host)
        os.close(reader)
        assert "cgpu_km" in names_of_modules()
    finally:
        tenants.end()
        until(lambda: not installation.holders(host), "the end of all containers")
        installation.uninstall(host)
    assert names_of_modules() == running
    assert everything() == before


@pytest.mark.needs("km")
def test_what_cards_were_set_to_is_there_after_a_boot(
    sim: Any,
    options: installation.Options,
    few_modules: None,
    loaded_modules: Any,
    tmp_path: Path,
) -> None:
    sim(cards=1)
    host = this_host()
    host.run(["depmod", "-a", host.release])
    settings, cgpu = Path(cards.PATH), tmp_path / "cgpu"
    cgpu.write_text(f'#!/bin/sh\nexec {sys.executable} -m pycgpu.cli.main "$@"\n')
    cgpu.chmod(0o755)
    installation.install(options._replace(cgpu=str(cgpu)), host)
    try:
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(
            '[default]\npolicy = "average"\nmax_inst = 8\ntimeslice_us = 12000\n'
            "overcommit_ratio = 150\n"
        )
        for name in (CORE, "cgpu_km"):
            host.run(["rmmod", name])
        # as systemd does with the unit that was installed; the prefix lets a command fail
        lines = service.text(service.MODULE, str(cgpu)).splitlines()
        commands = [line.partition("=")[2] for line in lines if line.startswith("ExecStart")]
        assert len(commands) == 4
        for command in commands:
            subprocess.run(command.removeprefix("-").split(), check=not command.startswith("-"))
        found = [
            Path(f"/proc/cgpu_km/0/{name}").read_text().strip()
            for name in ("policy", "max_inst", "timeslice_us", "overcommit_ratio")
        ]
        assert found == ["0", "8", "12000", "150"]
    finally:
        settings.unlink(missing_ok=True)
        installation.uninstall(host)


@pytest.mark.needs("km")
def test_an_installation_that_cannot_load_its_module_leaves_nothing(
    sim: Any, options: installation.Options, few_modules: None, loaded_modules: Any
) -> None:
    sim(cards=1)
    (Path(options.modules or "") / "cgpu_km.ko").write_bytes(b"not a module")
    host = this_host()
    host.run(["depmod", "-a", host.release])
    before = everything()
    with pytest.raises(InstallError, match="nothing was changed"):
        installation.install(options, host)
    assert everything() == before
