# SPDX-License-Identifier: MIT
"""
A whole cluster: the control plane here, a node in a virtual machine.

The node has NVIDIA's driver, an engine and a kubelet, and the container image as if it had been
pulled. Of cgpu it has nothing: that is the chart's to bring.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.cluster import artefacts
from tests.cluster.control_plane import HOST_FROM_GUEST, ControlPlane, programs
from tests.cluster.node import ADDRESS, Node
from tests.cluster.objects import IMAGE
from tests.cluster.releases import Helm
from tests.cluster.waiting import until
from tests.vm.container import libraries
from tests.vm.cri import archive
from tests.vm.vm import SHARE

NODE = "vm"
PAUSE = "localhost/pause:1"
#: Kubelet and containerd are large programs to an emulated processor.
START_S = 600
CONTAINERD = f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{SHARE}/cni-bin"]
    conf_dir = "{SHARE}/cni"
"""
# Pods here talk to nobody; all that is wanted of a network is that there is one.
CNI = """\
#!/bin/sh
cat >/dev/null
[ "$CNI_COMMAND" = VERSION ] && echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' && exit
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","ips":[{"address":"10.200.0.2/24"}]}'
exit 0
"""


class Cluster:
    """Control plane and node; entered, the node is ready."""

    def __init__(self, helm: Helm, scheduler: Any = None, *, systemd: bool = False) -> None:
        self.helm = helm
        self.directory = Path(tempfile.mkdtemp(prefix="cgpu-cluster-"))
        self.programs = programs()
        self.api = ControlPlane(self.programs, self.directory, [NODE], scheduler)
        self.node = Node(NODE, self.api.port, systemd=systemd)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        with self._stack:
            self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            self._stack.enter_context(self.api)
            self._stack.enter_context(self.node)
            self._images()
            self._engine()
            self.kubelet()
            until(self.ready, "the node is ready", START_S)
            # As NVIDIA's feature discovery does, which looks for a card.
            self.api.kubectl("label", "node", NODE, "nvidia.com/gpu.present=true")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _images(self) -> None:
        """Two images in the shared directory: one that sleeps, one that tells its card first."""
        tree = self.directory / "image"
        shutil.copytree(self.node.made["rootfs"], tree, symlinks=True)
        program = Path(self.node.made["sim"]) / "simcuda/simcuda"
        for at, path in (("bin/simcuda", program), *((str(p)[1:], p) for p in libraries(program))):
            (tree / at).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tree / at)
        layer = self.directory / "layer.tar"
        subprocess.run(["tar", "-C", str(tree), "-cf", str(layer), "."], check=True)
        shared = self.node.shared
        archive(layer, PAUSE, shared / "pause.tar")
        archive(
            *(layer, IMAGE, shared / "image.tar"),
            command=("sh", "-c", "simcuda --json info; sleep 1000000"),
        )

    def _engine(self) -> None:
        shared = self.node.shared
        (shared / "containerd.toml").write_text(CONTAINERD)
        for name in ("cni", "cni-bin"):
            (shared / name).mkdir()
        for name in ("none", "loopback"):
            (shared / "cni-bin" / name).write_text(CNI)
            (shared / "cni-bin" / name).chmod(0o755)
        plugins = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}
        (shared / "cni/none.conflist").write_text(json.dumps(plugins))
        for path in ("/var/lib/containerd", "/var/lib/kubelet"):
            # A file system of which the kubelet can tell how full it is.
            self.node.run("mkdir", "-p", path)
            self.node.run("mount", "-t", "tmpfs", "-o", "size=3g", "tmpfs", path)
        self.containerd()
        base = ("env", f"PATH={self.path}", "ctr", "-n", "k8s.io", "images", "import", "--local")
        for path in (f"{SHARE}/pause.tar", f"{SHARE}/image.tar", str(artefacts.image())):
            self.node.run(*base, "--snapshotter", "overlayfs", path)

    @property
    def path(self) -> str:
        """PATH with the cluster's programs, which the guest sees where they are."""
        return f"{self.programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def containerd(self) -> None:
        """Start the engine and wait for it."""
        self.node.daemon(
            *("containerd", self.programs / "containerd"),
            *("--config", f"{SHARE}/containerd.toml"),
            PATH=self.path,
        )
        ctr = self.programs / "ctr"
        until(
            lambda: "Server:" in self.node.run(ctr, "version", check=False),
            f"containerd: {self.node.log('containerd')[-2000:]}",
            START_S,
        )

    def kubelet(self) -> None:
        """Start the kubelet."""
        self.api.config(NODE, HOST_FROM_GUEST, self.node.shared)
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "podLogsDir": f"{SHARE}/pods",
            "authentication": {"webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "evictionHard": {"memory.available": "10Mi"},
            "maxPods": 110,
            # The tests kill what runs as a pod again and again: it comes back at once, and who
            # was refused meanwhile is tried again without the usual minute.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            "syncFrequency": "10s",
            # Named, or each sync of a pod writes an event.
            "clusterDNS": ["10.96.0.10"],
        }
        (self.node.shared / "kubelet.json").write_text(json.dumps(settings))
        self.node.daemon(
            *("kubelet", self.programs / "kubelet", "--config", f"{SHARE}/kubelet.json"),
            *("--kubeconfig", f"{SHARE}/{NODE}.kubeconfig", "--hostname-override", NODE),
            *("--node-ip", ADDRESS, "--v", "2"),
            PATH=self.path,
        )

    def ready(self) -> bool:
        """Whether the node says so; AssertionError if the control plane has ended."""
        assert self.api.ready()
        nodes = self.api.get("nodes")["items"]
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in nodes
            for condition in node["status"].get("conditions", [])
        )
