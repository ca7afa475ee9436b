# SPDX-License-Identifier: MIT
"""
A host made of files: where things are installed, and a kernel, DKMS and systemd that record.

Everything that they know is in the files, so it is still there when an installation dies.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pycgpu
from pycgpu.errors import InstallError, NodeError
from pycgpu.install import kernel_door
from pycgpu.install.host import Host
from tests.host.coretree import CoreTree
from tests.host.engine_programs import OLD_DOCKERD

RELEASE = "6.1.0-9-amd64"
CORE = kernel_door.core_name(pycgpu.__version__)


def module(directory: Path, version: str, **told: str) -> Path:
    """Make the three modules of one version, which say of themselves what *told* adds."""
    directory.mkdir(parents=True, exist_ok=True)
    core = kernel_door.core_name(version)
    fields = {
        "version": version,
        "cgpu_door_api": "1",
        "cgpu_state": "1",
        "vermagic": f"{RELEASE} SMP",
        "parm": "unknown_driver:a newer one (charp)\nlatency_us:of a gate (uint)",
        **told,
    }
    for name in ("cgpu_km", core, "cgpu_rm"):
        (directory / f"{name}.ko").write_text(json.dumps(fields | {"name": name}))
    return directory


def kernel(host: Host) -> Kernel:
    """Return what runs the commands of a host of files."""
    assert isinstance(host.run, Kernel)
    return host.run


class Kernel:
    """
    Runs commands.

    Attributes:
        ran: their command lines.
        refuse: a word of the command that fails.
        entered: called before and after each command, which a crash cannot interrupt.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.ran: list[str] = []
        self.refuse: str | None = None
        self.busy = False
        self.entered: Callable[[], None] = lambda: None

    def __call__(self, command: list[str]) -> str:
        return self._atomic(" ".join(command), lambda: self._execute(command))

    def tell(self, command: str, root: str) -> None:
        """What the door does when ``upgrade`` is written."""
        self._atomic(command, lambda: self._switch(command.split()))

    def _atomic(self, line: str, effect: Callable[[], str]) -> str:
        self.entered()
        self.ran.append(line)
        if self.refuse is not None and self.refuse in line:
            raise InstallError(f"`{line}`: refused")
        self.busy = True
        try:
            return effect()
        finally:
            self.busy = False
            self.entered()

    def _execute(self, command: list[str]) -> str:
        programs: dict[str, Callable[..., str]] = {
            "modprobe": self._modprobe,
            "insmod": self._insmod,
            "rmmod": self._rmmod,
            "modinfo": self._modinfo,
            "dkms": self._dkms,
        }
        program = programs.get(command[0])
        return program(*command[1:]) if program else ""

    # ---- modules

    @property
    def loaded(self) -> list[str]:
        """Names of the modules, in the order in which they were loaded."""
        lines = (self.prefix / "proc/modules").read_text().splitlines()
        return [line.split()[0] for line in lines]

    def _set(self, names: list[str]) -> None:
        text = "".join(f"{name} 1 0 - Live 0x0\n" for name in names)
        (self.prefix / "proc/modules").write_text(text)

    def _installed(self, pattern: str) -> list[Path]:
        return sorted((self.prefix / f"lib/modules/{RELEASE}/updates").glob(f"*/{pattern}.ko"))

    def _modprobe(self, name: str) -> str:
        # cgpu_km asks for what decides, by its alias.
        wanted = {"cgpu_km": ("cgpu_km", "cgpu_core_*"), "cgpu-core": ("cgpu_core_*",)}
        for pattern in wanted.get(name, (name,)):
            for path in self._installed(pattern):
                if path.stem not in self.loaded:
                    self._insmod(str(path))
        return ""

    def _insmod(self, path: str, *parameters: str) -> str:
        fields = json.loads(Path(path).read_text())
        name = fields["name"]
        if name in self.loaded:
            raise InstallError(f"insmod {name}: File exists")
        self._set([*self.loaded, name])
        if name == "cgpu_km":
            CoreTree(self.prefix / "proc/cgpu_km")
            self._door(fields | {"running": "-", "standby": "-", "former": "-", "trial_ms": "0"})
        elif name.startswith(kernel_door.CORE):
            door = self._door()
            self._door(door | {"running" if door["running"] == "-" else "standby": name})
        folder = self.prefix / f"sys/module/{name}/parameters"
        folder.mkdir(parents=True, exist_ok=True)
        for one in parameters:
            key, _, value = one.partition("=")
            (folder / key).write_text(f"{value}\n")
        return ""

    def _rmmod(self, name: str) -> str:
        tree = self.prefix / "proc/cgpu_km"
        if name not in self.loaded:
            raise InstallError(f"rmmod {name}: not loaded")
        if name.startswith(kernel_door.CORE):
            door = self._door()
            if door["trial_ms"] != "0" and name in (door["former"], door["running"]):
                raise InstallError(f"rmmod {name}: in use")
            if name == door["running"] and list((tree / "container").iterdir()):
                raise InstallError(f"rmmod {name}: in use")
            self._door({key: "-" if value == name else value for key, value in door.items()})
        if name == "cgpu_km":
            if kernel_door.cores(set(self.loaded)):
                raise InstallError("rmmod cgpu_km: in use")
            shutil.rmtree(tree)
        shutil.rmtree(self.prefix / f"sys/module/{name}", ignore_errors=True)
        self._set([one for one in self.loaded if one != name])
        return ""

    def _modinfo(self, option: str, field: str, path: str) -> str:
        assert option == "-F"
        return str(json.loads(Path(path).read_text()).get(field, "") + "\n")

    # ---- the door

    def _door(self, values: dict[str, str] | None = None) -> dict[str, str]:
        path = self.prefix / "proc/cgpu_km/upgrade"
        if values is not None:
            told = {
                "door_api": "1",
                "state": "1",
                "switches": "0",
                "reverts": "0",
                "last_error": "0",
                "pause_ns": "0",
                "pause_ns_max": "0",
            } | values
            keep = (
                *("running", "standby", "former", "trial_ms", "door_api", "state", "switches"),
                *("reverts", "last_error", "pause_ns", "pause_ns_max"),
            )
            path.write_text("".join(f"{key} {told[key]}\n" for key in keep))
        return dict(line.split(" ", 1) for line in path.read_text().splitlines())

    def _switch(self, words: list[str]) -> str:
        door = self._door()
        path = f"{self.prefix}/proc/cgpu_km/upgrade"
        on_trial = door["trial_ms"] != "0"
        if words[0] == "switch":
            if words[1] != door["standby"]:
                raise NodeError(path, errno.ENOENT, "no such module stands by")
            door |= {"former": door["running"], "running": words[1], "standby": "-"}
            door |= {"trial_ms": words[2], "pause_ns": "812345"}
        elif not on_trial:
            raise NodeError(path, errno.ENOENT, "no trial runs")
        elif words[0] == "accept":
            door |= {"former": "-", "trial_ms": "0"}
        else:
            door |= {"standby": door["running"], "running": door["former"]}
            door |= {"former": "-", "trial_ms": "0"}
        self._door(door)
        return ""

    def time_out(self) -> None:
        """The trial ends, if there is one."""
        if (self.prefix / "proc/cgpu_km/upgrade").exists() and self._door()["trial_ms"] != "0":
            self._switch(["revert"])

    # ---- DKMS

    def _dkms(self, action: str, *words: str) -> str:
        version = words[words.index("-v") + 1]
        top = self.prefix / "var/lib/dkms/cgpu"
        built = top / version / RELEASE / os.uname().machine / "module"
        installed = self.prefix / f"lib/modules/{RELEASE}/updates/dkms"
        if action == "add":
            if not (self.prefix / f"usr/src/cgpu-{version}/dkms.conf").exists():
                raise InstallError("dkms add: no sources")
            (top / version / "source").mkdir(parents=True)
        elif action == "build":
            module(built, version)
        elif action == "install":
            installed.mkdir(exist_ok=True, parents=True)
            for path in built.iterdir():
                shutil.copy(path, installed)
            (top / "active").write_text(version)
        elif action == "remove":
            if (top / "active").exists() and (top / "active").read_text() == version:
                for path in built.iterdir():
                    (installed / path.name).unlink(missing_ok=True)
                (top / "active").unlink()
                installed.rmdir()
            shutil.rmtree(top / version)
        return ""


def make(root: Path) -> Host:
    """A host with headers, a driver, systemd and two container engines."""
    for path, text in {
        "proc/modules": "nvidia 1 0 - Live 0x0\n",
        f"lib/modules/{RELEASE}/build/Makefile": "",
        f"lib/modules/{RELEASE}/updates/other.ko": "",
        "etc/docker/daemon.json": '{"debug": true}',
        "usr/bin/dockerd": OLD_DOCKERD,
        "usr/sbin/runc": "#!/bin/sh\n",
        "etc/containers/policy.json": "{}",
        "run/systemd/system/x": "",
        "var/log/syslog": "",
        "var/lib/dkms/mok.key": "",
        "sys/module/x": "",
        "dev/kmsg": "",
        "usr/src/x": "",
        "usr/bin/x": "",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        (root / path).chmod(0o755 if "bin/" in path else 0o644)
    module(root / "modules", pycgpu.__version__)
    made = Kernel(root)
    return Host(root, RELEASE, made, made.tell)


def state(prefix: Path) -> dict[str, bytes | None]:
    """Every path of the host, with its content where it is a file."""
    return {
        str(path.relative_to(prefix)): path.read_bytes() if path.is_file() else None
        for path in prefix.rglob("*")
    }
