# SPDX-License-Identifier: MIT
"""Upgrading on a host made of files: what is decided, what is left, and the way back."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pycgpu
from pycgpu.cli import main
from pycgpu.errors import InstallError
from pycgpu.install import (
    doctor,
    installation,
    journal,
    kernel_door,
    registration,
    upgrade,
)
from pycgpu.install.host import Host
from pycgpu.install.installation import Options
from pycgpu.install.upgrade_plan import Request
from tests.host import filehost, program, stops
from tests.host.coretree import CoreTree
from tests.host.filehost import CORE, RELEASE, state

NEW = "9.9.1"
NEW_CORE = "cgpu_core_9_9_1"


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: a disk takes ten times as long for so many files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="cgpu-") as directory:
        yield Path(directory)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return filehost.make(tmp_path / "host")


@pytest.fixture
def options(host: Host) -> Options:
    return Options(modules=str(host.prefix / "modules"), exporter=True)


@pytest.fixture
def request_(host: Host) -> Request:
    """To a version with modules that fit."""
    built = filehost.module(host.prefix / "new", NEW)
    return Request(NEW, modules=str(built), prove_s=0)


@pytest.fixture
def containers(host: Host, options: Options) -> Iterator[CoreTree]:
    """The old version, installed, with two containers."""
    installation.install(options, host)
    tree = CoreTree(host.tree)
    for name in ("ab" * 32, "job"):
        tree.create(name, "gpu=0,mem=1048576").hold(0, 4711, 1, 4096, "python")
    tree.write()
    yield tree


def everything(host: Host) -> dict[str, bytes | None]:
    """What an upgrade could change; counters of the door and traces of loading may differ."""
    found = state(host.prefix)
    return {
        path: content
        for path, content in found.items()
        if not re.match(r"(proc/cgpu_km/upgrade|sys/module/|run/)", path)
    }


# ---- decisions


def door(**told: Any) -> kernel_door.Door:
    fields: dict[str, Any] = {
        "door_api": "1",
        "state": "4",
        "running": CORE,
        "standby": None,
        "trial_ms": 0,
    }
    return kernel_door.Door(
        **(fields | {"switches": 0, "reverts": 0, "pause_ns": 0, "pause_ns_max": 0} | told)
    )


def built(**told: Any) -> kernel_door.Built:
    fields: dict[str, Any] = {
        "core": NEW_CORE,
        "files": {},
        "door_api": "1",
        "state": "4",
        "release": RELEASE,
    }
    return kernel_door.Built(**(fields | {"signed": False, "parameters": frozenset()} | told))


@pytest.mark.parametrize(
    ("there", "new", "secure", "text"),
    [
        (door(), built(), False, None),
        (door(), built(signed=True), True, None),
        (door(), built(), True, "not signed"),
        (door(), built(release="6.12.1"), False, f"kernel 6.12.1, and {RELEASE} runs"),
        (None, built(), False, "cannot change its code"),
        (door(running=None), built(), False, "no module runs"),
        (door(), built(door_api="2"), False, f"version 1 with its modules, and {NEW_CORE} vers"),
        (door(), built(state="5"), False, f"of version 4, and {NEW_CORE} takes 5"),
        (door(), built(state=""), False, "takes ?"),
    ],
)
def test_what_stands_against_a_hot_upgrade_is_said(
    there: Any, new: Any, secure: Any, text: Any
) -> None:
    found = kernel_door.obstacles(there, new, RELEASE, secure)
    assert [text in line for line in found] == ([] if text is None else [True])


def test_a_core_is_named_by_its_version() -> None:
    assert kernel_door.core_name("0.1.0") == "cgpu_core_0_1_0"
    assert kernel_door.core_name("1.2.0-rc.1+x") == "cgpu_core_1_2_0_rc_1_x"


def test_a_directory_without_all_modules_or_with_two_versions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"no cgpu_km\.ko"):
        kernel_door.find(tmp_path)
    (tmp_path / "cgpu_km.ko").touch()
    with pytest.raises(InstallError, match=r"no cgpu_core_\*\.ko"):
        kernel_door.find(tmp_path)
    (tmp_path / "cgpu_core_1_0.ko").touch()
    assert set(kernel_door.find(tmp_path)) == {"cgpu_km", "cgpu_core_1_0"}
    (tmp_path / "cgpu_core_1_1.ko.xz").touch()
    with pytest.raises(InstallError, match=r"1_0\.ko and cgpu_core_1_1\.ko\.xz: leave one"):
        kernel_door.find(tmp_path)


# ---- hot


def test_a_hot_upgrade_replaces_core_and_files_under_containers(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    before = everything(host)
    notes = upgrade.upgrade(request_, host)
    assert f"cgpu {pycgpu.__version__} is now {NEW} (hot)" in notes
    assert "the longest pause of a call was 0.812 ms" in notes
    assert host.loaded == {"nvidia", "cgpu_km", NEW_CORE, "cgpu_rm"}
    assert "modprobe cgpu_km" not in filehost.kernel(host).ran[-12:]
    placed = host.prefix / f"lib/modules/{RELEASE}/updates/cgpu"
    assert sorted(path.stem for path in placed.iterdir()) == [NEW_CORE, "cgpu_km", "cgpu_rm"]
    assert NEW in (placed / "cgpu_km.ko").read_text()
    held = journal.read(host)
    assert (held.version, held.layer, held.retired) == (NEW, None, ())
    # Apart from the modules nothing has changed that did not need to.
    after = everything(host)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed == {
        "proc/modules",
        journal.PATH,
        *(f"lib/modules/{RELEASE}/updates/cgpu/{name}.ko" for name in (CORE, NEW_CORE)),
        *(f"lib/modules/{RELEASE}/updates/cgpu/{name}.ko" for name in ("cgpu_km", "cgpu_rm")),
    }


def test_a_service_that_came_with_a_version_is_there_after_an_upgrade_to_it(
    host: Host, options: Options, request_: Request
) -> None:
    before = state(host.prefix)
    installation.install(options, host)
    unit = "etc/systemd/system/cgpu-parkd.service"
    held = journal.read(host)
    old = [one for one in held.steps if "cgpu-parkd" not in str(one.data.get("unit", one.data))]
    assert len(old) == len(held.steps) - 2
    journal.write(host, held._replace(steps=old))
    (host.prefix / unit).unlink()
    upgrade.upgrade(request_, host)
    assert (host.prefix / unit).exists()
    assert "systemctl enable --now cgpu-parkd.service" in filehost.kernel(host).ran
    installation.uninstall(host)
    assert "systemctl disable --now cgpu-parkd.service" in filehost.kernel(host).ran
    assert state(host.prefix) == before


def test_after_upgrades_there_and_back_uninstalling_leaves_nothing(
    host: Host, options: Options, request_: Request
) -> None:
    before = state(host.prefix)
    installation.install(options, host)
    upgrade.upgrade(request_, host)
    upgrade.upgrade(Request(modules=options.modules, prove_s=0), host)
    upgrade.upgrade(request_, host)
    installation.uninstall(host)
    assert state(host.prefix) == before


def test_an_upgrade_by_dkms_leaves_one_version_and_uninstalls_without_a_trace(host: Host) -> None:
    for name in ("make", "gcc", "dkms"):
        shutil.which(name) or pytest.skip(f"no package: {name}")
    before = state(host.prefix)
    installation.install(Options(), host)
    CoreTree(host.tree).create("job", "gpu=0,mem=1048576")
    upgrade.upgrade(Request(NEW, prove_s=0), host)
    dkms = host.prefix / "var/lib/dkms/cgpu"
    assert sorted(path.name for path in dkms.iterdir()) == [NEW, "active"]
    installed = host.prefix / f"lib/modules/{RELEASE}/updates/dkms"
    assert sorted(path.stem for path in installed.iterdir()) == [NEW_CORE, "cgpu_km", "cgpu_rm"]
    assert sorted(path.name for path in (host.prefix / "usr/src").iterdir()) == [f"cgpu-{NEW}", "x"]
    assert NEW_CORE in host.loaded and CORE not in host.loaded
    CoreTree(host.tree)
    shutil.rmtree(host.tree / "container")
    (host.tree / "container").mkdir()
    installation.uninstall(host)
    assert state(host.prefix) == before


def test_the_new_core_gets_the_parameters_of_the_old_one(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    folder = host.prefix / f"sys/module/{CORE}/parameters"
    for name, value in {
        "unknown_driver": "newest",
        "latency_us": "(null)",
        "forgotten": "1",
    }.items():
        (folder / name).write_text(f"{value}\n")
    upgrade.upgrade(request_, host)
    (line,) = [
        line for line in filehost.kernel(host).ran if line.startswith("insmod") and NEW_CORE in line
    ]
    assert line.split()[2:] == ["unknown_driver=newest"]


@pytest.mark.parametrize(
    "refused",
    [
        "modinfo",
        "insmod",
        f"switch {NEW_CORE}",
        "depmod",
        "daemon-reload",
        "accept",
    ],
)
def test_a_failure_before_the_end_leaves_everything_as_it_was(
    host: Host,
    containers: CoreTree,
    request_: Request,
    monkeypatch: pytest.MonkeyPatch,
    refused: Any,
) -> None:
    # A unit that differs is written, too, so that there is more to take back.
    unit = host.prefix / "etc/systemd/system/cgpu-exporter.service"
    held = journal.read(host)
    for step in held.steps:
        if step.data.get("path", "").endswith(unit.name):
            step.data["text"] = "[Unit]\nDescription=older\n"
            unit.write_text(step.data["text"])
    journal.write(host, held)
    before, loaded = everything(host), host.loaded
    filehost.kernel(host).refuse = refused
    if refused == "daemon-reload":
        # The services are no reason to go back: it is said, and the upgrade is done.
        assert any("refused" in line for line in upgrade.upgrade(request_, host))
        return
    with pytest.raises(InstallError, match="refused") as failure:
        upgrade.upgrade(request_, host)
    filehost.kernel(host).refuse = None
    assert "\n" not in str(failure.value)
    if refused == "depmod":
        # What could not be undone, for the same reason, is told and undone by the next run.
        assert "left behind" in str(failure.value)
        upgrade.upgrade(request_, host)
        assert journal.read(host).version == NEW
        return
    assert f"cgpu {pycgpu.__version__} goes on" in str(failure.value)
    assert everything(host) == before
    assert host.loaded == loaded


def test_a_state_that_the_new_core_does_not_take_is_refused_before_anything_is_loaded(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    filehost.module(Path(request_.modules or ""), NEW, cgpu_state="2")
    before = everything(host)
    with pytest.raises(InstallError, match=r"state that runs is of version 1.*takes 2.*--cold"):
        upgrade.upgrade(request_, host)
    assert everything(host) == before
    assert not [
        line for line in filehost.kernel(host).ran if line.startswith("insmod") and NEW_CORE in line
    ]
    assert upgrade.check(request_, host) != []


def test_check_changes_nothing_and_says_yes(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    before = state(host.prefix)
    assert upgrade.check(request_, host) == []
    assert state(host.prefix) == before


def test_a_core_that_lost_a_container_is_not_accepted(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    switch = host.tell

    def losing(command: str, root: str) -> None:
        switch(command, root)
        if command.startswith("switch"):
            shutil.rmtree(host.tree / "0/job")

    before = everything(host)
    with pytest.raises(InstallError, match="container job has lost GPU 0"):
        upgrade.upgrade(request_, host._replace(tell=losing))
    containers.write()
    assert everything(host) == before
    assert CORE in host.loaded and NEW_CORE not in host.loaded


def test_what_the_kernel_complains_of_meanwhile_is_a_reason_to_go_back(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    switch = host.tell

    def warning(command: str, root: str) -> None:
        switch(command, root)
        with (host.prefix / "dev/kmsg").open("a") as log:
            log.write("4,1,1,-;WARNING: CPU: 0 PID: 1 at kmod/hook.c:1\n")

    with pytest.raises(InstallError, match="the kernel complains: WARNING: CPU"):
        upgrade.upgrade(request_, host._replace(tell=warning))
    assert CORE in host.loaded and NEW_CORE not in host.loaded


def test_modules_of_another_version_are_refused(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    before = everything(host)
    with pytest.raises(InstallError, match=f"holds {NEW_CORE}, and this is cgpu 7.0"):
        upgrade.upgrade(request_._replace(version="7.0"), host)
    assert everything(host) == before


def test_the_same_version_is_nothing_to_do(
    host: Host, containers: CoreTree, options: Options
) -> None:
    before = everything(host)
    told = upgrade.upgrade(Request(modules=options.modules), host)
    assert told == [f"cgpu {pycgpu.__version__} is installed"]
    assert everything(host) == before


def test_what_is_not_installed_cannot_be_upgraded(host: Host, request_: Request) -> None:
    with pytest.raises(InstallError, match="not installed here"):
        upgrade.upgrade(request_, host)


def test_a_file_that_somebody_changed_stays_his(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    file = host.prefix / "etc/modules-load.d/cgpu.conf"
    file.write_text("cgpu_km\nmine\n")
    upgrade.upgrade(request_, host)
    assert file.read_text() == "cgpu_km\nmine\n"


# ---- the tools


def test_the_link_leads_to_the_new_tools_and_back_when_it_fails(
    host: Host,
    containers: CoreTree,
    request_: Request,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = tmp_path / "cgpu-0.1.0", tmp_path / f"cgpu-{NEW}"
    old.mkdir()
    new.mkdir()
    link = tmp_path / "cgpu"
    link.symlink_to(old)
    monkeypatch.setattr("sys.prefix", str(new))
    wanted = request_._replace(tools=str(link))
    filehost.kernel(host).refuse = "accept"
    with pytest.raises(InstallError, match="refused"):
        upgrade.upgrade(wanted, host)
    assert link.readlink() == old and old.is_dir()
    filehost.kernel(host).refuse = None
    upgrade.upgrade(wanted, host)
    assert link.readlink() == new and not old.exists()


def test_the_launchers_lead_through_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "cgpu-0.1.0"
    package = home / "lib/python3/site-packages"
    (package / "pycgpu").mkdir(parents=True)
    (tmp_path / "cgpu").symlink_to(home)
    monkeypatch.setattr("sys.prefix", str(home))
    monkeypatch.setattr(registration, "__file__", str(package / "pycgpu/install/registration.py"))
    text = registration.launcher("hook", registration.Options(()))
    assert f"'{tmp_path}/cgpu/lib/python3/site-packages'" in text


# ---- cold


def test_a_cold_upgrade_is_refused_while_containers_run_and_names_them(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    before, ran = everything(host), len(filehost.kernel(host).ran)
    with pytest.raises(InstallError, match="2 containers use a GPU: abababababab, job: stop"):
        upgrade.upgrade(request_._replace(cold=True), host)
    assert everything(host) == before
    assert len(filehost.kernel(host).ran) == ran


def test_a_cold_upgrade_takes_what_a_hot_one_cannot(
    host: Host, options: Options, request_: Request
) -> None:
    before = state(host.prefix)
    installation.install(options, host)
    filehost.module(Path(request_.modules or ""), NEW, cgpu_state="2", cgpu_door_api="7")
    before[f"new/{NEW_CORE}.ko"] = (host.prefix / f"new/{NEW_CORE}.ko").read_bytes()
    for name in ("cgpu_km", "cgpu_rm"):
        before[f"new/{name}.ko"] = (host.prefix / f"new/{name}.ko").read_bytes()
    notes = upgrade.upgrade(request_._replace(cold=True), host)
    assert f"cgpu {pycgpu.__version__} is now {NEW} (cold)" in notes
    assert host.loaded == {"nvidia", "cgpu_km", NEW_CORE, "cgpu_rm"}
    enabled = [line for line in filehost.kernel(host).ran if line.startswith("systemctl enable")]
    assert enabled[-3:] == [
        "systemctl enable cgpu.service",
        "systemctl enable --now cgpu-parkd.service",
        "systemctl enable --now cgpu-exporter.service",
    ]
    installation.uninstall(host)
    assert state(host.prefix) == before


def test_a_cold_upgrade_that_does_not_load_brings_the_old_version_back(
    host: Host, options: Options, request_: Request
) -> None:
    installation.install(options, host)
    before, loaded = everything(host), host.loaded
    kernel = filehost.kernel(host)

    def load(command: list[str]) -> str:
        if command[:2] == ["modprobe", "cgpu_km"] and kernel._installed(NEW_CORE):
            raise InstallError("modprobe cgpu_km: refused")
        return kernel(command)

    with pytest.raises(InstallError, match=r"refused; cgpu .* goes on$"):
        upgrade.upgrade(request_._replace(cold=True), host._replace(run=load))
    assert everything(host) == before
    assert host.loaded == loaded


def test_an_agent_is_replaced_while_no_container_runs(host: Host, request_: Request) -> None:
    before = state(host.prefix)
    installation.install(Options(agent=True), host)
    assert not host.loaded & {"cgpu_km"}
    unit = (host.prefix / "etc/systemd/system/cgpud.service").read_text()
    assert "ExecStart=/usr/local/bin/cgpu agent" in unit
    assert not (host.prefix / "etc/modules-load.d").exists()
    assert upgrade.check(request_._replace(modules=None), host) != []
    upgrade.upgrade(request_._replace(modules=None), host)
    assert filehost.kernel(host).ran[-1] == "systemctl restart cgpud.service"
    assert journal.read(host).version == NEW
    installation.uninstall(host)
    assert state(host.prefix) == before


# ---- cut short


def copy(host: Host, to: Path) -> Host:
    """The same host once more."""
    shutil.copytree(host.prefix, to, symlinks=True)
    kernel = filehost.Kernel(to)
    return Host(to, RELEASE, kernel, kernel.tell)


def of_the_sources(path: str) -> bool:
    """All of them but one."""
    return "/usr/src/" in path and not path.endswith("/core/tree/nodes.c")


def sound(host: Host) -> None:
    """A version is whole: it runs, and its files are those that would be loaded at boot."""
    door = kernel_door.read(str(host.tree))
    assert door is not None
    running = door.running
    assert running in (CORE, NEW_CORE)
    assert {"cgpu_km", running} <= host.loaded
    assert (host.tree / "0/job/memsize").read_text() == "1048576\n"


@pytest.mark.parametrize("way", ["hot", "dkms", "cold"])
def test_killed_at_any_step_it_leaves_a_working_host_and_goes_on(
    host: Host, request_: Request, tmp_path: Path, way: Any
) -> None:
    if way == "dkms":
        for name in ("make", "gcc", "dkms"):
            shutil.which(name) or pytest.skip(f"no package: {name}")
    pristine = state(host.prefix)
    by_dkms = way == "dkms"
    first = Options() if by_dkms else Options(modules=str(host.prefix / "modules"), exporter=True)
    installation.install(first, host)
    if way != "cold":
        CoreTree(host.tree).create("job", "gpu=0,mem=1048576")
    last = 0
    while True:
        one = copy(host, tmp_path / str(last))
        modules = None if by_dkms else str(one.prefix / "new")
        wanted = Request(NEW, cold=way == "cold", modules=modules, prove_s=0)

        def run(steps: stops.Steps, one: Host = one, wanted: Request = wanted) -> None:
            filehost.kernel(one).entered = steps.step
            steps.paused = lambda: filehost.kernel(one).busy
            # In the middle of the sources is one step, whichever file it is.
            steps.skipped = of_the_sources
            upgrade.upgrade(wanted, one)

        if not stops.killed_after(last, run):
            break
        filehost.kernel(one).time_out()
        if way != "cold":
            sound(one)
        pending = journal.read(one).layer is not None
        assert pending == any(
            "cut short" in found.text for found in doctor.core(doctor.Host(one.prefix, None, ""))
        )
        other = copy(one, tmp_path / f"{last}-uninstalled")
        upgrade.upgrade(wanted, one)
        held = journal.read(one)
        assert (held.version, held.layer, held.retired) == (NEW, None, ())
        assert NEW_CORE in one.loaded and CORE not in one.loaded
        if way != "cold":
            sound(one)
            shutil.rmtree(one.tree / "container/job")
            shutil.rmtree(other.tree / "container/job")
        for ended in (one, other):
            installation.uninstall(ended)
            left = {path: text for path, text in state(ended.prefix).items() if path in pristine}
            assert left == pristine
            assert set(state(ended.prefix)) == set(pristine)
            shutil.rmtree(ended.prefix)
        last += 1
    assert last > 30


# ---- doctor


def told(host: Host) -> list[tuple[str, str]]:
    return [(one.level, one.text) for one in doctor.core(doctor.Host(host.prefix, None, RELEASE))]


def test_doctor_says_what_runs_and_what_is_left_over(
    host: Host, containers: CoreTree, request_: Request
) -> None:
    assert told(host) == [(doctor.OK, f"{CORE}; hot upgrade from door 1, state 1")]
    host.run(["insmod", f"{request_.modules}/{NEW_CORE}.ko"])
    assert told(host)[1:] == [(doctor.WARN, f"loaded and not used: {NEW_CORE}")]
    host.tell(kernel_door.switch(NEW_CORE, 9000), str(host.tree))
    ((level, text),) = told(host)
    assert level == doctor.NOTE and text.startswith(f"{NEW_CORE} is on trial")
    assert "back in 9 s" in text
    (host.tree / "upgrade").unlink()
    assert told(host) == [(doctor.NOTE, "cannot be replaced while containers run")]


# ---- the command


@pytest.fixture
def cgpu(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs ``cgpu`` on the host made of files, on which an older version is installed."""
    monkeypatch.setattr("pycgpu.cli.upgrade.this_host", lambda: host)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    held = journal.read(host)
    journal.write(host, held._replace(version="0.0.1"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield lambda *words: program.run(main.app, *words)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_the_command_checks_shows_and_upgrades(
    host: Host, options: Options, containers: CoreTree, cgpu: Any
) -> None:
    older = filehost.module(host.prefix / "older", "0.0.1")
    assert cgpu("upgrade", "--check", "--modules", options.modules).stdout.endswith("is possible\n")
    filehost.module(Path(options.modules or ""), pycgpu.__version__, cgpu_state="2")
    refused = cgpu("upgrade", "--check", "--modules", options.modules)
    assert refused.returncode == 1 and "no hot upgrade to" in refused.stdout
    assert "holds cgpu_core_0_0_1" in cgpu("upgrade", "--check", "--modules", older).stderr
    shown = cgpu("upgrade", "--dry-run", "--modules", options.modules, "--cold")
    assert shown.returncode == 1
    assert "would be refused: 2 containers use a GPU" in shown.stderr
    assert "would: load the new modules" in shown.stdout
    assert "restart cgpu-exporter.service" in shown.stdout
    # The core of this version runs here, whatever the journal says: its files are put in place.
    filehost.module(Path(options.modules or ""), pycgpu.__version__)
    done = cgpu("upgrade", "--modules", options.modules, "--prove", 0)
    assert done.stderr == "" and f"cgpu 0.0.1 is now {pycgpu.__version__} (hot)" in done.stdout
    assert "is installed" in cgpu("upgrade", "--modules", options.modules).stdout
    assert "nothing to do" in cgpu("upgrade", "--dry-run").stdout
