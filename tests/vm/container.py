# SPDX-License-Identifier: MIT
"""Real containers for tests: runc with a busybox root, made and removed by a test."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.vm.loaded import SLOWNESS, until

STATE = Path("/run/cgpu-test")
CAPABILITIES = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_SETGID"),
    *("CAP_SETUID", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL"),
)


def libraries(program: Path) -> list[Path]:
    """Return the shared libraries that a program is linked with, at their paths here."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", listed.stdout)]


def with_libraries(inside: str, program: Path) -> dict[str, Path]:
    """Return a program at its path in a container, and what it is linked with."""
    return {inside: program, **{str(path): path for path in libraries(program)}}


def as_volumes(files: dict[str, Path]) -> list[str]:
    """Return the ``-v`` arguments of docker and podman for *files* by their paths inside."""
    return [word for at, path in files.items() for word in ("-v", f"{path.resolve()}:{at}:ro")]


def nvidia_nodes() -> list[Path]:
    """Return the device nodes of NVIDIA's driver as they are now."""
    return sorted(path for path in Path("/dev").glob("nvidia*") if path.is_char_device())


class Container:
    """
    A container under runc whose first process sleeps.

    Args:
        root: the directory that its root overlays.
        id: its name to runc.
        programs: path inside → file here; libraries that a program is linked with come along.
        mounts: path inside → file or directory here, as they are.
        nodes: device nodes, by default all of the NVIDIA driver's.
        args: what its first process runs instead of sleeping.
        environment: of its first process and of :meth:`exec`.
        hooks: OCI hooks, as in ``config.json``.
        systemd: its cgroup is a unit of systemd's.
    """

    #: the program that starts it
    RUNTIME = "runc"

    def __init__(
        self,
        root: Path,
        id: str,
        *,
        programs: Mapping[str, Path] | None = None,
        mounts: Mapping[str, Path] | None = None,
        nodes: Sequence[Path] | None = None,
        args: Sequence[str] = ("sleep", "1000000"),
        environment: Mapping[str, str] | None = None,
        hooks: Mapping[str, object] | None = None,
        systemd: bool = False,
    ) -> None:
        self.id = id
        self.bundle = STATE / id
        self._nodes = list(nvidia_nodes() if nodes is None else nodes)
        self._args = list(args)
        self._environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            **(environment or {}),
        }
        self._hooks = dict(hooks or {})
        self._systemd = systemd
        self._mounts: dict[str, Path] = dict(mounts or {})
        for inside, program in (programs or {}).items():
            self._mounts.update(with_libraries(inside, program))
        self._children: list[subprocess.Popen[str]] = []
        self._prepare_root(root)

    def _prepare_root(self, lower: Path) -> None:
        for name in ("rootfs", "upper", "work"):
            (self.bundle / name).mkdir(parents=True)
        layers = f"lowerdir={lower},upperdir={self.bundle}/upper,workdir={self.bundle}/work"
        subprocess.run(
            ["mount", "-t", "overlay", "-o", layers, "overlay", str(self.bundle / "rootfs")],
            check=True,
        )
        (self.bundle / "config.json").write_text(json.dumps(self._config(), indent=1))

    def _config(self) -> dict[str, object]:
        devices, rules = [], [{"allow": False, "access": "rwm"}]
        for path in self._nodes:
            status = path.stat()
            assert stat.S_ISCHR(status.st_mode), path
            numbers = {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
            devices.append({"path": str(path), "type": "c", "fileMode": 0o666, **numbers})
            rules.append({"allow": True, "type": "c", "access": "rwm", **numbers})
        binds = [
            {
                "destination": inside,
                "type": "bind",
                "source": str(source.resolve()),
                "options": ["rbind", "ro"],
            }
            for inside, source in self._mounts.items()
        ]
        sets = ("bounding", "effective", "permitted")
        capabilities = {name: list(CAPABILITIES) for name in sets}
        return {
            "ociVersion": "1.0.2",
            "hostname": self.id[:60],
            "root": {"path": "rootfs"},
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": self._args,
                "env": [f"{name}={value}" for name, value in self._environment.items()],
                "cwd": "/",
                "capabilities": capabilities,
                "noNewPrivileges": True,
            },
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {
                    "destination": "/dev",
                    "type": "tmpfs",
                    "source": "tmpfs",
                    "options": ["mode=755"],
                },
                {
                    "destination": "/dev/shm",
                    "type": "tmpfs",
                    "source": "shm",
                    "options": ["nosuid", "noexec", "nodev", "mode=1777"],
                },
                {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
                *binds,
            ],
            "hooks": self._hooks,
            "linux": {
                "cgroupsPath": f"system.slice:test:{self.id}"
                if self._systemd
                else f"/cgpu-test/{self.id}",
                "devices": devices,
                "resources": {"devices": rules},
                "namespaces": [
                    {"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")
                ],
            },
        }

    def start(self) -> Self:
        """Create and start it; RuntimeError with the runtime's message if it is refused."""
        log = self.bundle / "log"
        with log.open("w") as stream:
            # runc leaves its standard streams to the container: a pipe would never close.
            options = ["--systemd-cgroup"] if self._systemd else []
            run = subprocess.run(
                [self.RUNTIME, *options, "run", "--detach", "--bundle", str(self.bundle), self.id],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                check=False,
            )
        if run.returncode:
            raise RuntimeError(f"{self.RUNTIME} run {self.id}: {log.read_text().strip()}")
        return self

    def state(self) -> dict[str, object]:
        """Return what ``runc state`` says."""
        run = subprocess.run(["runc", "state", self.id], capture_output=True, text=True, check=True)
        told: dict[str, object] = json.loads(run.stdout)
        return told

    @property
    def pid(self) -> int:
        """The first process, as the host numbers it."""
        if not hasattr(self, "_pid"):
            self._pid = int(self.state()["pid"])  # type: ignore[call-overload]
        return int(self._pid)

    @property
    def cgroup(self) -> str:
        """The path of its cgroup below the mount point, by the memory controller under v1."""
        lines = Path(f"/proc/{self.pid}/cgroup").read_text().splitlines()
        fields = [line.split(":", 2) for line in lines]
        for number, controllers, path in fields:
            if (number == "0" and not controllers) or "memory" in controllers.split(","):
                return path
        raise AssertionError(f"no cgroup of {self.id}: {lines}")

    def popen(
        self, *command: str, environment: Mapping[str, str] | None = None, uid: int = 0
    ) -> subprocess.Popen[str]:
        """Begin a command inside by ``runc exec``; stdout and stderr are one pipe."""
        variables = {**self._environment, **(environment or {})}
        options = [word for item in variables.items() for word in ("--env", "=".join(item))]
        options += ["--user", f"{uid}:{uid}"]
        child = subprocess.Popen(
            ["runc", "exec", *options, self.id, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._children.append(child)
        return child

    def exec(
        self,
        *command: str,
        check: bool = True,
        timeout_s: float = 120,
        environment: Mapping[str, str] | None = None,
        uid: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside; its output is in ``stdout``. A failure raises by default."""
        child = self.popen(*command, environment=environment, uid=uid)
        output, _ = child.communicate(timeout=timeout_s * SLOWNESS)
        done = subprocess.CompletedProcess(command, child.returncode, output, "")
        if check and done.returncode:
            raise AssertionError(f"{self.id}: {' '.join(command)}: {done.returncode}\n{output}")
        return done

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal the first process; for SIGKILL wait until the container is gone."""
        path = Path(f"/proc/{self.pid}")
        os.kill(self.pid, number)
        if number == signal.SIGKILL:
            until(lambda: not path.exists(), f"the end of {self.id}")

    def delete(self) -> None:
        """Kill it if it runs, and remove everything of it."""
        subprocess.run(["runc", "delete", "--force", self.id], capture_output=True, check=False)
        for child in self._children:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream:
                    stream.close()
        rootfs = self.bundle / "rootfs"
        if rootfs.is_mount():
            subprocess.run(["umount", str(rootfs)], check=True)
        shutil.rmtree(self.bundle, ignore_errors=True)
