# SPDX-License-Identifier: MIT
"""
Slurm as this machine's release has it: a cluster of one node, its daemons as processes of root.

The packages are unpacked, and copied over the guest's root, where their programs look for their
plugins; nothing is installed on the host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from pycgpu.batch import slurm
from tests.vm import packages
from tests.vm.loaded import until
from tests.vm.modules import Build

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libslurm-dev"),
    *("munge", "libmunge2"),
)
PLUGIN = Path("usr/lib/cgpu.so")
SHARDS = 16
START_S = 240
FOLDER = Path("/run/slurm-test")
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")


def build() -> Path:
    """Return a root with Slurm, munge, their libraries, and our plugin built against that Slurm."""
    wanted: dict[str, str] = {}
    for name in PACKAGES:
        wanted[name] = packages.own_version(name)
        for needed in packages.dependencies(name, wanted[name]):
            if needed.startswith("lib") and not packages.installed(needed):
                wanted.setdefault(needed, packages.own_version(needed))
    archives = [packages.download(name, version) for name, version in wanted.items()]
    content = "\n".join(path.name for path in archives).encode() + slurm.PLUGIN.read_bytes()
    with Build("slurm", packages.os_release().get("VERSION_CODENAME", ""), content) as made:
        root = made.root / "root"
        if not made.complete:
            for archive in archives:
                packages.unpack(archive, root)
            for name in DAEMONS:
                # By another name the daemons do not know themselves for daemons.
                (root / "usr/sbin" / name).symlink_to(f"{name}-wlm")
            for name in ("man", "doc"):
                shutil.rmtree(root / "usr/share" / name, ignore_errors=True)
            subprocess.run(
                [
                    *("gcc", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"),
                    *(f"-I{root}/usr/include", "-o", str(root / PLUGIN), str(slurm.PLUGIN)),
                ],
                check=True,
            )
        return root


class Cluster:
    """A cluster of this machine alone; a context manager ends it."""

    def __init__(self, root: Path, cgpu: Path, shards: Sequence[int] = (SHARDS,)) -> None:
        # Their units, which nothing here reads, are below lib, a link on today's systems.
        for name in ("usr", "etc", "var"):
            subprocess.run(["cp", "-a", f"{root}/{name}", "/"], check=True)
        FOLDER.mkdir(exist_ok=True)
        for name in ("state", "spool", "log"):
            (FOLDER / name).mkdir(exist_ok=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.folder = FOLDER
        host = socket.gethostname()
        # Slurm resolves names only of families that some interface but the loopback's own has.
        subprocess.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"], check=True)
        with Path("/etc/hosts").open("a") as hosts:
            hosts.write(f"127.0.0.1 {host}\n")
        settings = Path("/etc/slurm")
        settings.mkdir(exist_ok=True)
        (settings / "plugstack.conf").write_text(f"required /{PLUGIN} cgpu={cgpu}\n")
        (settings / "cgroup.conf").write_text("CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n")
        (settings / "gres.conf").write_text(
            "".join(f"Name=gpu File=/dev/nvidia{card}\n" for card in range(len(shards)))
            + "".join(f"Name=shard Count={n} File=/dev/nvidia{c}\n" for c, n in enumerate(shards))
        )
        (settings / "slurm.conf").write_text(f"""\
ClusterName=cgpu
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
StateSaveLocation={FOLDER}/state
SlurmdSpoolDir={FOLDER}/spool
SlurmctldPidFile={FOLDER}/slurmctld.pid
SlurmdPidFile={FOLDER}/slurmd.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
MailProg=/bin/true
MessageTimeout=100
GresTypes=gpu,shard
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 Gres=gpu:{len(shards)},shard:{sum(shards)} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
SlurmdParameters=config_overrides
""")

    def __enter__(self) -> Cluster:
        # munged does not start where others may write, and asks who owns all above.
        for name in ("/run/munge", "/var/log/munge", "/var/lib/munge", "/etc/munge"):
            Path(name).mkdir(parents=True, exist_ok=True)
            os.chown(name, 0, 0)
            os.chmod(name, 0o755)
        key = Path("/etc/munge/munge.key")
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self._start("munged", "--foreground", "--force")
        until(Path("/run/munge/munge.socket.2").exists, "munge's socket", START_S)
        self._start("slurmctld", "-D")
        # As systemd starts it; Slurm makes its jobs' cgroups beside its own.
        own = Path("/sys/fs/cgroup/system.slice/slurmd.service")
        own.mkdir(parents=True, exist_ok=True)
        self._start("slurmd", "-D", cgroup=own)
        try:
            until(self._idle, "the node is idle", START_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None
        return self

    def __exit__(self, *what: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)

    def _start(self, *words: str, cgroup: Path | None = None) -> None:
        command = [f"/usr/sbin/{words[0]}", *words[1:]]
        if cgroup is not None:
            enter = f'echo $$ >{cgroup}/cgroup.procs && exec "$@"'
            command = ["sh", "-c", enter, "sh", *command]
        with (self.folder / "log" / words[0]).open("w") as log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _idle(self) -> bool:
        told = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True)
        return told.stdout.strip() == "idle"

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        files = sorted((self.folder / "log").iterdir())
        return "\n".join(f"{path.name}:\n{path.read_text()[-2500:]}" for path in files)

    def srun(self, *words: str) -> subprocess.Popen[str]:
        """Start srun, as a user types it."""
        return subprocess.Popen(
            ["srun", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run srun to its end; return status, output and errors."""
        process = self.srun(*words)
        out, err = process.communicate(timeout=START_S)
        return process.returncode, out, err


@contextlib.contextmanager
def command(folder: Path, python: Sequence[str], path: str) -> Iterator[Path]:
    """Yield a program `cgpu` that runs the sources in *path*, whoever calls it with what."""
    program = folder / "cgpu"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={path} exec {" ".join(python)} -m pycgpu.cli.main "$@"\n'
    )
    program.chmod(0o755)
    yield program
