# SPDX-License-Identifier: MIT
"""
A node in a virtual machine: the simulated driver, and whatever its master has it run.

In the guest this is ``python -m tests.cluster.node``, which carries out commands that it finds in
the shared directory. :class:`Node` is its master, on the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster import artefacts, systemd
from tests.cluster.control_plane import HOST_FROM_GUEST
from tests.host import nvml
from tests.vm import installed, kernels, loaded, modules
from tests.vm.drivers import Sim
from tests.vm.loaded import until
from tests.vm.vm import SHARE, VM, guest_path

#: Two builds of the module, which replace the one that is installed, and each other.
CORES = ("km", "km:0.1.1")
NEEDED = (*CORES, "sim", "rootfs")
#: In the shared directory: modules of a release, built for the node's kernel; NVML's library, and
#: what of its boards is to fail.
MODULES, NVML, STATE = "modules", "nvml", "nvml-state"
#: Where Kubernetes tells pods that the API server is.
SERVICE = ("10.96.0.1", 443)
#: What containers and their mounts take of a kernel, beside what is built in.
KERNEL_MODULES = ("virtio_net", "overlay")
ADDRESS = "10.0.2.15"
POLL_S = 0.1
#: Where systemd has a node's services, each with its share: fifty runtimes at once, the engine's,
#: take neither the kubelet's nor the pods'.
SERVICES = Path("/sys/fs/cgroup/system.slice")
COMMAND_S = 600


class Node:
    """
    A guest that obeys; entered, it has booted, has its cards, and its network is up.

    Args:
        port: of the API server on this machine.
        systemd: the node has a stand-in for systemd, which has its daemons and units.

    Attributes:
        shared: a directory that both see, here; in the guest it is ``/run/vm``.
    """

    def __init__(
        self,
        name: str,
        port: int,
        *,
        cards: int = 2,
        memory: str = "6G",
        systemd: bool = False,
    ) -> None:
        self.name = name
        self.systemd = systemd
        self.port = port
        self.cards = cards
        self._kernel = kernels.fetch("6.1")
        self.made = modules.prepare(self._kernel, NEEDED)
        self._vm = VM(self._kernel, smp=2, memory=memory, network=True, timeout_s=7200)
        self.shared = self._vm.share
        self.path = guest_path()
        self._numbers = itertools.count()

    def __enter__(self) -> Node:
        shutil.copytree(artefacts.prebuilt(self._kernel), self.shared / MODULES)
        for directory in (NVML, STATE):
            (self.shared / directory).mkdir()
        nvml.make_library(self.shared / NVML, f"{SHARE}/{STATE}")
        told = {**self.made, "cards": self.cards, "port": self.port, "systemd": self.systemd}
        (self.shared / "made.json").write_text(json.dumps(told))
        try:
            self._vm.start([sys.executable, "-m", "tests.cluster.node"])
            until(lambda: self._alive((self.shared / "ready").exists()), "the guest", COMMAND_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._vm.__exit__()

    def _alive(self, value: Any) -> Any:
        if not value and not self._vm.running:
            raise AssertionError(f"the guest has ended: {self._vm.wait().complaint()}")
        return value

    def _ask(self, question: Mapping[str, object]) -> Any:
        number = next(self._numbers)
        draft = self.shared / "ask.new"
        draft.write_text(json.dumps(question))
        draft.rename(self.shared / f"ask-{number}")
        answer = self.shared / f"answer-{number}"
        until(lambda: self._alive(answer.exists()), f"an answer to {question}", COMMAND_S)
        return json.loads(answer.read_text())

    def run(self, *words: object, check: bool = True) -> str:
        """Run a command in the guest; return what it says, AssertionError if it fails."""
        answer = self._ask({"run": [str(word) for word in words]})
        if check and answer["status"]:
            raise AssertionError(f"{words}: {answer['status']}\n{answer['output']}")
        return str(answer["output"])

    def daemon(self, name: str, *words: object, **environment: str) -> None:
        """Start a daemon in the guest; its log is :meth:`log`."""
        self._ask(
            {"daemon": name, "words": [str(word) for word in words], "environment": environment}
        )

    def kill(self, name: str) -> None:
        """Kill a daemon, by a signal that it cannot take notice of; it is gone at the return."""
        status = self._ask({"kill": name})
        assert status == -signal.SIGKILL, f"{name} had ended by itself: {status}"

    def log(self, name: str) -> str:
        """Return what a daemon has said."""
        path = self.shared / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""


class _Proxy(threading.Thread):
    """In kube-proxy's place: hands connections to the API server's service on to the server."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._join, *SERVICE)
        async with server:
            await server.serve_forever()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST_FROM_GUEST, self._port)
        await asyncio.gather(_copy(reader, back), _copy(there, writer), return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer):
        while some := await reader.read(1 << 16):
            writer.write(some)
            await writer.drain()


class _Guest:
    def __init__(self) -> None:
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.started: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {}

    def prepare(self) -> None:
        made = json.loads((SHARE / "made.json").read_text())
        stack = loaded.Modules()
        subprocess.run(["modprobe", "-a", *KERNEL_MODULES], check=True)
        # No other modules but those that will be installed: depmod over all of a distribution's
        # takes minutes under emulation.
        self.few = contextlib.ExitStack()
        self.few.enter_context(installed.few_modules(Path("/var/lib/few")))
        Sim(stack, Path(made["sim"])).load(cards=made["cards"], model="t4")
        # Where the driver's own package has it.
        shutil.copy(SHARE / NVML / nvml.LIBRARY, "/usr/lib/x86_64-linux-gnu")
        for directory in (SERVICES.parent, SERVICES):
            directory.mkdir(exist_ok=True)
            (directory / "cgroup.subtree_control").write_text("+cpu")
        # As systemd leaves it, and a mount that is propagated into a pod needs it.
        subprocess.run(["mount", "--make-rshared", "/"], check=True)
        (device,) = Path("/sys/bus/virtio/drivers/virtio_net").glob("virtio*/net/*")
        for words in (
            ("addr", "add", f"{ADDRESS}/24", "dev", device.name),
            ("link", "set", device.name, "up"),
            ("route", "add", "default", "via", HOST_FROM_GUEST),
            ("addr", "add", f"{SERVICE[0]}/32", "dev", "lo"),
        ):
            subprocess.run(["ip", *words], check=True)
        _Proxy(made["port"]).start()
        if made["systemd"]:
            systemd.Systemd(self).start()

    def serve(self) -> None:
        for number in itertools.count():
            path = SHARE / f"ask-{number}"
            while not path.exists():
                time.sleep(POLL_S)
            answer = self.answer(json.loads(path.read_text()))
            draft = SHARE / "answer.new"
            draft.write_text(json.dumps(answer))
            draft.rename(SHARE / f"answer-{number}")

    def start(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a daemon, in the cgroup that systemd would give its service."""
        with (SHARE / f"{name}.log").open("ab") as log:
            daemon = self.daemons[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.started[name] = (words, environment)
        service = SERVICES / f"{name}.service"
        service.mkdir(exist_ok=True)
        (service / "cgroup.procs").write_text(str(daemon.pid))

    def restart(self, name: str) -> None:
        """End a daemon, and start it as before."""
        self.stop(name)
        self.start(name, *self.started[name])

    def stop(self, name: str) -> None:
        """End a daemon by the signal that asks it to, if it runs."""
        if (daemon := self.daemons.pop(name, None)) is not None:
            daemon.terminate()
            daemon.wait()

    def answer(self, asked: Mapping[str, Any]) -> object:
        if "kill" in asked:
            process = self.daemons.pop(asked["kill"])
            process.send_signal(signal.SIGKILL)
            return process.wait()
        words: Sequence[str] = asked.get("words") or asked["run"]
        if "daemon" in asked:
            self.start(asked["daemon"], words, asked["environment"])
            return None
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return {"status": done.returncode, "output": done.stdout}


if __name__ == "__main__":
    guest = _Guest()
    guest.prepare()
    (SHARE / "ready").write_text("")
    guest.serve()
