# SPDX-License-Identifier: MIT
"""The user door in the guest: the agent and its tenants, from the sources, without a module."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from pycgpu.agent import client
from pycgpu.cli import main
from tests.vm import loaded
from tests.vm.drivers import Sim
from tests.vm.loaded import SLOWNESS, until

ROOT = Path(__file__).resolve().parents[2]
TREE = Path("/run/cgpu_km")
# Python's start alone takes seconds under emulation; a busy machine took 90 s to the agent's tree.
START_S = 240


def keepers_rests(pid: int) -> int:
    """How often the threads of that agent that look after tenants have waited so far."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has ended
            if (task / "comm").read_text() == "cgpud-keeper\n":
                status = (task / "status").read_text()
                found.append(int(status.split("voluntary_ctxt_switches:")[1].split()[0]))
    assert found, "the agent keeps nobody"
    return sum(found)


class Door:
    """`cgpu run` and `cgpu agent` in the guest, from a copy of the sources in *folder*."""

    def __init__(self, folder: Path, driver: Sim) -> None:
        self.simcuda = str(driver.programs / "simcuda")
        shutil.copytree(ROOT / "pycgpu", folder / "pycgpu")
        shutil.copytree(ROOT / "cli", folder / "pycgpu" / "cli")
        paths = [str(folder), sysconfig.get_path("purelib")]
        self.environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
        self.folder = folder
        self._tenants: list[subprocess.Popen[str]] = []
        # Once, and not by each tenant.
        import_module(main.COMMANDS["run"][0])

    def start(
        self,
        *command: str,
        name: str = "one",
        mem: str = "1G",
        policy: str = "weighted-conserving",
        quota: int = 100,
        gpu: str = "",
        group: str = "",
        uvm_disable: bool = False,
        unknown_driver: str = "",
        told: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a tenant; *told*: something is to be written to its input."""
        limits = ["--mem", mem, "--policy", policy, "--quota", str(quota)]
        if gpu:
            limits += ["--gpu", gpu]
        if group:
            limits += ["--group", group]
        if uvm_disable:
            limits.append("--uvm-disable")
        if unknown_driver:
            limits += ["--unknown-driver", unknown_driver]
        run = ["run", "--name", name, *limits, "--", *command]
        tenant = subprocess.Popen(
            [sys.executable],
            stdin=subprocess.PIPE if told else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            preexec_fn=lambda: self._become(run),
        )
        self._tenants.append(tenant)
        return tenant

    def _become(self, arguments: list[str]) -> None:
        """In a child: be `cgpu`, without the start of another Python, which takes seconds here."""
        # Popen() waits for its pipe, which is among them, to close.
        os.closerange(3, 1 << 16)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.argv = ["cgpu", *arguments]
        status = 1
        try:
            main.app()
        except SystemExit as error:
            status = int(error.code or 0)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def end(self) -> None:
        """End the tenants that a failed test left at work."""
        for tenant in self._tenants:
            if tenant.poll() is None:
                tenant.kill()
                tenant.wait()
        self._tenants.clear()

    def run(self, *command: str, **options: Any) -> tuple[int, str, str]:
        """Run a tenant to its end; return status, output and errors."""
        process = self.start(*command, **options)
        out, err = process.communicate(timeout=START_S * SLOWNESS)
        return process.returncode, out, err

    def sim(self, *arguments: str, **options: str) -> dict[str, Any]:
        """What simcuda tells as a tenant."""
        _, out, err = self.run(self.simcuda, "--json", *arguments, **options)
        assert out, err
        told: dict[str, Any] = json.loads(out.splitlines()[-1])
        return told

    def daemon(self) -> subprocess.Popen[bytes]:
        """`cgpu agent`, as the service starts it."""
        return subprocess.Popen(
            [sys.executable, "-m", "pycgpu.cli.main", "agent"],
            cwd=self.folder,
            env=self.environment,
        )

    def agent(self) -> int:
        """The agent's process; OSError if there is none."""
        return int(client.ask({"op": "ping"})["pid"])

    def follows(self, pid: int) -> int:
        """Wait for the agent after that one; return its process."""

        def other() -> int:
            with contextlib.suppress(OSError, ValueError):
                found = self.agent()
                return found if found != pid and TREE.joinpath("version").exists() else 0
            return 0

        return until(other, "the next agent", START_S)

    def close(self) -> None:
        """End the agent if there is one."""
        with contextlib.suppress(OSError):
            pid = self.agent()
            os.kill(pid, signal.SIGTERM)
            until(lambda: _ended(pid), "the agent's end")


def _ended(pid: int) -> bool:
    """True if it is gone, or waits for the guest's init, which reaps nobody."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextlib.contextmanager
def opened(made: Callable[[str], Path], folder: Path, **parameters: object) -> Iterator[Door]:
    """Load the simulated driver with one T4 and yield the door; the driver must unload after."""
    stack = loaded.Modules()
    try:
        yield Door(folder, Sim(stack, made("sim")).load(**{"cards": "T4", **parameters}))
        stack.unload_all()
    finally:
        loaded.remove_nodes()


def events() -> str:
    """The agent's last lines."""
    with (TREE / "events").open("rb", buffering=0) as stream:
        return stream.read(1 << 16).decode()


def emptied() -> None:
    """Wait until the agent knows no tenant, and see that nobody's memory is charged."""
    until(lambda: not list((TREE / "container").iterdir()), "the removal of all tenants", START_S)
    assert "allocated 0" in (TREE / "0/memory").read_text()
