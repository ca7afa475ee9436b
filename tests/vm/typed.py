# SPDX-License-Identifier: MIT
"""
A host after one plain installation, at which a document's own commands are typed.

Docker is the real one; its images, which none of the documents' registries is asked for, are one
root file system under their names, with NVIDIA's own nvidia-smi and simcuda in it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pycgpu.install import installation, registration
from pycgpu.install.host import Host, this_host
from tests.vm import engines, installed, loaded
from tests.vm.container import with_libraries
from tests.vm.customer import LOGS, SIMCUDA, SMI
from tests.vm.drivers import Sim
from tests.vm.loaded import until

#: What the tests that type need: all of them together take one machine.
TYPED = [
    pytest.mark.needs("km", "sim", "bridge", "smi", "rootfs", "engines"),
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.vm(append="apparmor=0", memory="3G"),
]
MIB = 1 << 20
IMAGES = {
    "nvcr.io/nvidia/tensorflow:19.10-py3": "",
    "nvcr.io/nvidia/tensorflow:21.03-tf1-py3": "",
    "ccr.ccs.tencentyun.com/hfut-ie/pytorch23.04-py3:v5.0": "",
    "4pdosc/ai-benchmark:2.4.1-gpu": "",
    # its examples wait for the command's end
    "image_name": 'CMD ["show"]',
}
SHOW = """#!/bin/sh
for node in /dev/nvidia[0-9]; do simcuda --json --gpu ${node#/dev/nvidia} info; done
"""
#: What an image of CUDA's sets, and a first process for those that run detached.
IMAGE = ("ENV NVIDIA_VISIBLE_DEVICES=all", "ENV LD_LIBRARY_PATH=/opt/nvidia",
         "ENV PATH=/usr/bin:/bin", 'CMD ["sleep", "1000000"]')  # fmt: skip
# In the place of NVIDIA's nvidia-container-runtime-hook, which is in no archive of Debian: as that
# one does, it makes the nodes of all cards in a container that was given them by --gpus.
TOOLKITS_HOOK = """#!/bin/sh
state=$(cat)
pid=$(echo "$state" | sed 's/.*"pid": *\\([0-9]*\\).*/\\1/')
bundle=$(echo "$state" | sed 's/.*"bundle": *"\\([^"]*\\)".*/\\1/')
root=$(sed 's/.*"root":{"path":"\\([^"]*\\)".*/\\1/' "$bundle/config.json")
for node in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm; do
    set -- $(stat -c '0x%t 0x%T' $node)
    nsenter -t "$pid" -m mknod -m 666 "$root$node" c $(($1)) $(($2)) || true # there already
done
"""


class Typed:
    """``sh("docker run …")`` types a command; :meth:`cards` puts others into the host."""

    def __init__(self, made: Callable[[str], Path], folder: Path) -> None:
        self._made = made
        self._folder = folder
        self._stack = loaded.Modules()
        self._sim = Sim(self._stack, made("sim"))
        self._path = folder / "bin"
        self.host: Host = this_host()

    @contextmanager
    def ready(self) -> Iterator[Typed]:
        """Install as anybody would, without an option, then start Docker."""
        for name in ("docker", "containerd"):
            Path(f"/etc/{name}").mkdir(exist_ok=True)
        self._path.mkdir()
        self._program("nvidia-container-runtime-hook", TOOLKITS_HOOK)
        with ExitStack() as stack:
            stack.callback(self._unload)
            self._sim.load(cards=1, model="t4")
            stack.enter_context(installed.few_modules(self._folder / "few"))
            directory = installed.modules(self._made, "km", self._folder / "modules")
            with engines.in_path(self._made("engines")):
                installed.install(directory)
            stack.callback(installation.uninstall, self.host)
            # Docker looks for the toolkit's hook when it starts.
            before = os.environ["PATH"]
            os.environ["PATH"] = f"{self._path}:{before}"
            stack.callback(os.environ.update, PATH=before)
            docker = stack.enter_context(engines.docker(self._made("engines"), self._folder))
            self._program("docker", f'#!/bin/sh\nexec {" ".join(docker)} "$@"\n')
            for name in ("cgpu", "cgpu-smi"):
                beside = Path(sys.executable).with_name(name)
                self._program(name, f'#!/bin/sh\nexec {beside} "$@"\n')
            self._program("sudo", '#!/bin/sh\nexec "$@"\n')
            self._images()
            yield self
            self.remove_all()

    def _program(self, name: str, text: str) -> None:
        (self._path / name).write_text(text)
        (self._path / name).chmod(0o755)

    def _unload(self) -> None:
        self._stack.unload_all()
        loaded.remove_nodes()

    def _images(self) -> None:
        root = self._folder / "image"
        shutil.copytree(self._made("rootfs"), root, symlinks=True)
        smi, simcuda = self._made("smi"), self._made("sim") / "simcuda" / "simcuda"
        files = with_libraries(SMI, smi / "bin" / "nvidia-smi") | with_libraries(SIMCUDA, simcuda)
        for at, path in files.items():
            (root / at[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / at[1:])
        # Docker without a file system of layers copies the image for each container.
        (root / "opt/nvidia").mkdir(parents=True)
        shutil.copy(smi / "lib" / "libnvidia-ml.so.1", root / "opt/nvidia")
        (root / "bin/show").write_text(SHOW)
        (root / "bin/show").chmod(0o755)
        archive = self._folder / "image.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        words = " ".join(f"--change '{one}'" for one in IMAGE)
        first, *others = IMAGES
        self.sh(f"docker import {words} {archive} {first}")
        for name in others:
            if IMAGES[name]:
                self.sh(f"docker import {words} --change '{IMAGES[name]}' {archive} {name}")
            else:
                self.sh(f"docker tag {first} {name}")

    def cards(self, **parameters: object) -> None:
        """Give the host other cards, as a driver that is loaded anew; no container may be."""
        self.remove_all()
        for name in ("cgpu_rm", "nvidia_uvm", "nvidia"):
            until(lambda name=name: not self._goes(name), f"{name} is unloaded")  # type: ignore[misc]
        self._stack.names.clear()
        loaded.remove_nodes()
        self._sim.load(**parameters)
        self.host.run(["modprobe", "cgpu_rm"])
        for log in LOGS:
            log.unlink(missing_ok=True)

    def _goes(self, name: str) -> bool:
        """Unload it; tell whether it is still there."""
        if name in loaded.loaded_modules():
            subprocess.run(["rmmod", name], capture_output=True, check=False)
        return name in loaded.loaded_modules()

    def card_bytes(self, command: str, card: int = 0) -> int:
        """Return how large a card is to simcuda at the end of a typed command."""
        done = self.sh(f"{command} simcuda --json --gpu {card} info")
        return int(json.loads(done.stdout.splitlines()[-1])["board"])

    def smi_totals(self, name: str) -> list[int]:
        """MiB of each card that nvidia-smi shows in a container."""
        shown = self.sh(f"docker exec -i {name} nvidia-smi").stdout
        return [int(text) for text in re.findall(r"MiB / +(\d+)MiB", shown)]

    def remove_all(self) -> None:
        """Remove all containers."""
        ids = self.sh("docker ps -aq").stdout.split()
        if ids:
            self.sh(f"docker rm -f {' '.join(ids)}")
        until(lambda: not installation.holders(self.host), "the containers' end")

    def sh(self, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Type a command; AssertionError if it fails, unless that is looked at."""
        done = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done

    @contextmanager
    def default_runtime(self) -> Iterator[None]:
        """Make ours Docker's default, as `cgpu install --default` does; taken back after."""
        path = Path("/") / registration.DAEMON_JSON
        before = path.read_text()
        options = registration.Options(("docker",), ("cgpu", "nvidia"), default=True)
        with engines.in_path(self._made("engines")):
            changes = registration.plan(options)
        for change in changes:
            if change.path == registration.DAEMON_JSON:
                registration.apply_one(change)
        self._reload("cgpu")
        try:
            yield
        finally:
            # what the file no longer names stays as it is
            path.write_text(json.dumps({**json.loads(before), "default-runtime": "runc"}))
            self._reload("runc")
            path.write_text(before)

    def _reload(self, default: str) -> None:
        os.kill(int((self._folder / "pid").read_text()), signal.SIGHUP)
        shown = "docker info -f '{{.DefaultRuntime}}'"
        until(lambda: self.sh(shown).stdout.strip() == default, f"Docker's default is {default}")
