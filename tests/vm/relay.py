# SPDX-License-Identifier: MIT
"""
The host's side of ``pytest tests/vm``: run each file's tests in a VM, report them as our own.

Tests are collected here as usual, once for each kernel. Those of one file, one kernel and one
kind of machine form a group; small groups that need the same machine are joined, for a boot
costs more than most tests. A group's first test boots the VM, in which pytest runs with the
plugin of ``guest.py``; every report that it writes to the shared directory is passed on here
under the test's name.
"""

from __future__ import annotations

import compileall
import concurrent.futures
import dataclasses
import inspect
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import conftest
from tests.vm import kernels, modules
from tests.vm.driver import SourceNotFound
from tests.vm.packages import FetchError, PackageNotFound
from tests.vm.vm import REPOSITORY, VM, Result, VMError

# What must be built for a test that asks for a fixture of that name.
NEEDED = {
    "km": ("km",),
    "sim": ("sim",),
    "container": ("rootfs",),
    "nvidia_smi": ("smi",),
    "real_driver": ("fakepci",),
}
POLL_S = 0.05
# Files share a machine up to so many tests: more would keep the other processors waiting at the
# end of a run, and lose more tests when one of them brings the machine down.
SHARED_TESTS = 32
# What machines run as; they cannot keep what they would compile.
COMPILED = ("pycgpu", "cli", "tests")


def kernel_of(item: pytest.Item) -> str | None:
    """Return the kernel that a collected test is for, None if it runs on the host."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("vm_kernel") if callspec else None


def guest_name(item: pytest.Item) -> str:
    """Return the test's name in the guest, where there is one kernel and no parameter for it."""
    kernel = kernel_of(item)
    base, bracket, _ = item.nodeid.partition("[")
    assert kernel is not None and bracket
    others = item.callspec.id.removeprefix(kernel).removeprefix("-")  # type: ignore[attr-defined]
    return f"{base}[{others}]" if others else base


@dataclasses.dataclass
class Spent:
    """What a group's machine has taken; ``boot``: before its first test."""

    began_s: float = 0.0
    boot_s: float = 0.0
    boot_cpu_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    restarts: int = 0


@dataclasses.dataclass
class Group:
    """Tests that share one machine."""

    kernel: str
    options: dict[str, Any]
    items: list[pytest.Item]
    config: pytest.Config
    machine: VM | None = None
    speaks: bool = False
    result: Result | None = None
    failure: str = ""
    skip: str = ""
    started: bool = False
    booted_again: bool = False
    spent: Spent = dataclasses.field(default_factory=Spent)
    made: dict[str, str] = dataclasses.field(default_factory=dict)
    read_bytes: int = 0
    reports: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    finished: set[str] = dataclasses.field(default_factory=set)
    running: str = ""
    collect_errors: list[str] = dataclasses.field(default_factory=list)

    @property
    def machine_runs(self) -> bool:
        """Whether its machine has begun and not ended."""
        return self.machine is not None and self.machine.running

    @property
    def processors(self) -> int:
        """How many its machine has, if that runs, or will have."""
        return self.machine.smp if self.machine else int(self.options.get("smp", 1))

    def wanted(self) -> list[str]:
        """Return the names of what must be built before the machine boots."""
        found: dict[str, None] = {}
        for item in self.items:
            fixtures = getattr(item, "fixturenames", ())
            for fixture in fixtures:
                for name in NEEDED.get(fixture, ()):
                    found[name] = None
            if "km" in fixtures and "sim" in fixtures and (modules.KMOD / "bridge").exists():
                found["bridge"] = None
            if "real_driver" in fixtures:
                found[f"driver:{item.callspec.params['real_driver']}"] = None  # type: ignore[attr-defined]
            for marker in item.iter_markers("needs"):
                found.update(dict.fromkeys(marker.args))
        return list(found)

    def start(self, building: concurrent.futures.Future[Any]) -> None:
        """Boot when everything is built and begin the tests; a failure is kept for the reports."""
        self.started = True
        try:
            self.made = building.result()
            self._boot()
        except PackageNotFound as error:
            self.skip = f"no package: {error}"
        except SourceNotFound as error:
            self.skip = f"no source: {error}"
        except (VMError, modules.BuildError, FetchError) as error:
            self.failure = str(error)
        except Exception as error:
            self.failure = "".join(traceback.format_exception(error))

    def _boot(self) -> None:
        kernel = kernels.fetch(self.kernel)
        machine = VM(kernel, **self.options)
        (machine.share / "made.json").write_text(json.dumps(self.made))
        (machine.share / "select.json").write_text(
            json.dumps([guest_name(item) for item in self.items])
        )
        self.spent.began_s = self.spent.began_s or time.monotonic()
        files = list(dict.fromkeys(item.path for item in self.items))
        text = "\n".join(file.read_text() for file in files)
        environment = {"PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        options = [f"--driver={branch}" for branch in self.config.getoption("--driver") or ()]
        if self.config.getoption("--packages-required"):
            options.append("--packages-required")
        names = ("--upgrades", "--park-steps", "--fuzz-seconds", "--fuzz-seed", "--fuzz-guided")
        for name in names:
            options.append(f"{name}={self.config.getoption(name)}")
        if re.search(r"^(?:import|from) hypothesis", text, re.MULTILINE):
            environment["CGPU_HYPOTHESIS"] = "1"
            options += ["-p", "_hypothesis_pytestplugin"]
            if profile := self.config.getoption("--hypothesis-profile", None):
                options += ["--hypothesis-profile", profile]
        try:
            machine.begin(
                [
                    *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v"),
                    *("-p", "tests.vm.guest", "-o", "addopts=", f"--rootdir={REPOSITORY}"),
                    *options,
                    *(str(file.relative_to(REPOSITORY)) for file in files),
                ],
                environment=environment,
            )
        except BaseException:
            machine.__exit__()
            raise
        self.machine, self.speaks = machine, False

    def look(self) -> None:
        """Read what the machine has said; start it again if it never says a first word."""
        if self.machine is None:
            return
        if self.speaks:
            self._read()
            return
        try:
            self.speaks = self.machine.settled()
        except VMError as error:
            self.failure = str(error)
            self.stop()

    def _read(self) -> None:
        assert self.machine is not None
        path = self.machine.share / "reports"
        if not path.exists():
            return
        with path.open("rb") as stream:
            stream.seek(self.read_bytes)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.read_bytes += len(whole)
        # A file may have any number of tests: each word of them says that the machine goes on.
        if whole:
            self.machine.give_time()
        for line in whole.splitlines():
            event = json.loads(line)
            name = event.get("nodeid", "")
            if event["kind"] == "start":
                self.running = name
                if not self.spent.boot_s:
                    self.spent.boot_s = time.monotonic() - self.spent.began_s
                    self.spent.boot_cpu_s = self.machine.cpu_s
            elif event["kind"] == "report":
                self.reports.setdefault(name, []).append(event["data"])
            elif event["kind"] == "finish":
                self.finished.add(name)
                self.running = ""
            elif event["kind"] == "collect":
                self.collect_errors.append(event["text"])

    def wait_for(self, name: str, meanwhile: Callable[[], None]) -> None:
        """Return when the guest is done with one test, or will never be."""
        while self.machine is not None and self.result is None and name not in self.finished:
            # Words first: a machine that was started ahead has been told of for the last time
            # when an earlier one's tests were waited for.
            self._read()
            if name in self.finished:
                break
            if self.speaks and (not self.machine.running or self.machine.overdue):
                self._end()
                continue
            self.look()
            meanwhile()
            time.sleep(POLL_S)

    def _end(self) -> None:
        assert self.machine is not None
        try:
            self.result = self.machine.wait()
            self._read()
        except VMError as error:
            self.failure = str(error)
        self.stop()
        self.spent.wall_s = time.monotonic() - self.spent.began_s
        if self.result is not None and self._died_in_emulation() and not self.booted_again:
            self.booted_again, self.result = True, None
            try:
                self._boot()
            except VMError as error:
                self.failure = str(error)

    def _died_in_emulation(self) -> bool:
        # QEMU's threads now and then run an int3 that the kernel has patched away on another
        # processor, while it boots. Nothing of ours is loaded before the guest's first program.
        assert self.result is not None
        return self.result.died and not self.result.output and "int3" in self.result.console

    def wait(self) -> None:
        """Wait for the machine's own end."""
        while self.machine is not None:
            self.look()
            if self.speaks:
                self._end()
            else:
                time.sleep(POLL_S)

    def stop(self) -> None:
        """End the machine at once."""
        machine, self.machine = self.machine, None
        if machine is not None:
            machine.__exit__()
            self.spent.cpu_s += machine.cpu_s
            self.spent.restarts += machine.restarts

    def told(self) -> str:
        """Return in one line what the group's machine has taken."""
        spent = self.spent
        files = ", ".join(dict.fromkeys(item.path.stem[5:] for item in self.items))
        return (
            f"{spent.cpu_s:5.0f} s of a processor in {spent.wall_s:.0f} s, "
            f"{spent.boot_cpu_s:.0f} in {spent.boot_s:.0f} before the first of "
            f"{len(self.items)} tests: {self.kernel} {files}"
        )

    def absent(self, name: str) -> str:
        """Return why a test has no report."""
        if self.failure:
            return self.failure
        assert self.result is not None
        if self.result.died:
            during = f" while {self.running} ran" if self.running else ""
            here = "in this test" if self.running == name else f"before this test{during}"
            return f"{here}, {self.result.complaint()}\n--- output\n{self.result.output[-4000:]}"
        if self.collect_errors:
            return "not collected in the guest:\n" + "\n".join(self.collect_errors)
        return f"the guest has no report of {name}; its output:\n{self.result.output[-6000:]}"


def keep_rewritten(files: Iterable[Path]) -> None:
    """
    Keep the tests as pytest rewrites them, if this run was told to keep nothing that it compiles.

    A guest cannot, and each would take half of the time before its first test for it.
    """
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "--here", "-o", "addopts="),
            *("-p", "no:cacheprovider", f"--rootdir={REPOSITORY}"),
            *sorted(map(str, files)),
        ],
        cwd=REPOSITORY,
        env=environment,
        # A file that cannot be collected is told of where its tests were to run.
        capture_output=True,
        check=False,
    )


def build(kernel: str, wanted: list[str]) -> dict[str, str]:
    """Fetch the kernel, build what tests need; return what was made."""
    return modules.prepare(kernels.fetch(kernel), wanted)


class Relay:
    """The plugin that runs on the host."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.groups: dict[int, Group] = {}
        self.order: list[Group] = []
        self.machines: dict[str, list[Group]] = {}
        # Builds go on while machines run: NVIDIA's driver alone takes minutes. In a process of
        # their own, for tests on the host change who this one is, its environment and directory.
        self.builder = concurrent.futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn")
        )
        self.building: list[concurrent.futures.Future[Any]] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Form the groups, and let each one's tests follow each other."""
        by_file: dict[tuple[str, Any], Group] = {}
        for item in items:
            kernel = kernel_of(item)
            if kernel is None:
                continue
            options: dict[str, Any] = {}
            for marker in reversed(list(item.iter_markers("vm"))):
                options.update(marker.kwargs)
            if version := self.config.getoption("--cgroup"):
                options["cgroup"] = version
            # Drivers of two branches get a machine each: what one leaves behind in the kernel
            # must not be taken for the other's.
            branch = item.callspec.params.get("real_driver", "")  # type: ignore[attr-defined]
            machine = f"{kernel}|{branch}|{_machine(options)}"
            group = by_file.setdefault(
                (machine, item.path), Group(kernel, options, [], self.config)
            )
            group.items.append(item)
        for (machine, _), group in by_file.items():
            self._join(machine, group)
        # Two for a race between processors run alone, after all others. Of these the longest
        # first, by what is known, so that the last end together.
        self.order.sort(
            key=lambda group: (
                group.processors,
                -group.options.get("timeout_s", 0),
                -len(group.items),
            )
        )
        places: dict[int, tuple[int, int]] = {}
        for number, group in enumerate(self.order):
            for place, item in enumerate(group.items):
                self.groups[id(item)] = group
                places[id(item)] = (number, place)
        # Who computes comes before who waits: what machines need is built meanwhile.
        items.sort(key=lambda item: places.get(id(item), (-1, int(_waits(item)))))

    def _join(self, machine: str, group: Group) -> None:
        """Let a group of tests share an earlier one's machine, or add it."""
        # Who asks for more time than usual would keep everybody waiting.
        if "timeout_s" not in group.options:
            for other in self.machines.setdefault(machine, []):
                if len(other.items) + len(group.items) <= SHARED_TESTS:
                    other.items += group.items
                    return
            self.machines[machine].append(group)
        self.order.append(group)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Forget what was deselected after the groups were formed."""
        kept = {id(item) for item in session.items}
        for group in self.order:
            group.items = [item for item in group.items if id(item) in kept]
        self.order = [group for group in self.order if group.items]
        if not session.config.option.collectonly:
            for name in COMPILED:
                compileall.compile_dir(REPOSITORY / name, quiet=2)
            if sys.dont_write_bytecode:
                keep_rewritten({item.path for group in self.order for item in group.items})
            self.building = [
                self.builder.submit(build, group.kernel, group.wanted()) for group in self.order
            ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        group = self.groups.get(id(item))
        if group is None:
            # A test on the host that does not wait is busy, here or with a machine of its own.
            self._start_ahead(self.config.getoption("--vm-jobs") - (not _waits(item)))
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        began_s = time.time()
        self._start(group)
        name = guest_name(item)
        jobs = self.config.getoption("--vm-jobs")
        group.wait_for(name, meanwhile=lambda: self._start_ahead(jobs))
        last = group.items[-1] is item
        if last:
            group.wait()
        reports = self._reports(group, item, name, began_s)
        result = group.result if last else None
        if result and not result.died and (complaint := result.complaint()):
            reports.append(self._report(item, "teardown", "failed", complaint, began_s))
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _start_ahead(self, jobs: int) -> None:
        """Start the machines of the next groups while they have *jobs* processors in all."""
        for group in self.order:
            group.look()
        # One that has ended waits for its tests' turn to be reported, and takes no room.
        busy = sum(group.processors for group in self.order if group.machine_runs)
        for group, building in zip(self.order, self.building, strict=True):
            if not group.started and building.done() and busy + group.processors <= jobs:
                self._start(group)
                busy += group.processors if group.machine_runs else 0

    def _start(self, group: Group) -> None:
        if not group.started:
            group.start(self.building[self.order.index(group)])

    def _reports(
        self, group: Group, item: pytest.Item, name: str, began_s: float
    ) -> list[pytest.TestReport]:
        if group.skip and not conftest.allowed(group.skip, self.config):
            return [self._report(item, "setup", "failed", conftest.complaint(group.skip), began_s)]
        if group.skip:
            where = (str(item.path), 0, f"Skipped: {group.skip}")
            return [self._report(item, "setup", "skipped", where, began_s)]
        if name not in group.finished:
            return [self._report(item, "call", "failed", group.absent(name), began_s)]
        reports = []
        for data in group.reports.get(name, []):
            data["nodeid"] = item.nodeid
            # A skip's place and reason are a tuple, which JSON turned into a list.
            if isinstance(data["longrepr"], list):
                data["longrepr"] = tuple(data["longrepr"])
            reports.append(pytest.TestReport._from_json(data))
        return reports

    def _report(
        self, item: pytest.Item, when: str, outcome: str, longrepr: Any, began_s: float
    ) -> pytest.TestReport:
        now_s = time.time()
        return pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords=dict.fromkeys(item.keywords, 1),
            outcome=outcome,  # type: ignore[arg-type]
            longrepr=longrepr,
            when=when,  # type: ignore[arg-type]
            duration=now_s - began_s,
            start=began_s,
            stop=now_s,
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        ran = [group for group in self.order if group.spent.cpu_s]
        if not ran:
            return
        died = sum(group.booted_again for group in ran)
        silent = sum(group.spent.restarts for group in ran)
        terminalreporter.write_line(
            f"virtual machines: {len(ran)} took {sum(group.spent.cpu_s for group in ran):.0f} s of "
            f"processors; {silent} started again for lack of a sign of life, {died} after QEMU's "
            "int3"
        )
        # As many as pytest shows of the tests that took longest: none without the option.
        shown = self.config.getoption("durations")
        if shown is not None:
            for group in sorted(ran, key=lambda group: -group.spent.cpu_s)[: shown or None]:
                terminalreporter.write_line(group.told())

    def pytest_unconfigure(self) -> None:
        self.builder.shutdown(wait=False, cancel_futures=True)
        for group in self.order:
            group.stop()


def _waits(item: pytest.Item) -> bool:
    """
    Tell whether a test on the host leaves its processor to machines.

    Those of agents, sleeps and deadlines do: tests/host/test_parking.py took 26 s of a processor
    in 152 s, the whole ring 290 s in 1250.
    """
    return item.path.is_relative_to(REPOSITORY / "tests" / "host")


def _machine(options: dict[str, Any]) -> str:
    """Return what tells machines with these options apart; their time is not of it."""
    signature = inspect.signature(VM).parameters
    differing = {key: value for key, value in options.items() if value != signature[key].default}
    return str(sorted((key, value) for key, value in differing.items() if key != "timeout_s"))


def kernels_for(config: pytest.Config, test: pytest.Item) -> list[str]:
    """
    Return the kernels for a test: those asked for, narrowed by its ``kernel`` markers.

    Of several ``by_default`` the nearest to the test holds; without a series it is for all.
    """
    asked = config.getoption("--kernel")
    chosen = list(asked or _default_kernels())
    marks = list(test.iter_markers("kernel"))
    by_default = [mark for mark in marks if mark.kwargs.get("by_default")]
    narrowing = [mark for mark in marks if mark not in by_default]
    if by_default and not asked and by_default[0].args:
        narrowing.append(by_default[0])
    for mark in narrowing:
        chosen = [name for name in chosen if name in mark.args]
    return chosen


def _default_kernels() -> tuple[str, ...]:
    try:
        return kernels.default_series()
    except (PackageNotFound, FetchError):
        return kernels.DEBIAN_DEFAULT_SERIES
