# SPDX-License-Identifier: MIT
"""Which pods, and containers of nerdctl's, keep our runtime, by what ctr and crictl answer."""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path

import pytest

from pycgpu.install import pods, stranded
from pycgpu.install.host import Host, execute

OURS = "/usr/lib/cgpu/containerd/cgpu-container-runtime"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def listen(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(path))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, "6.1.0", execute)


def held(host: Host) -> list[str]:
    return [str(one) for one in pods.held(host, stranded.PROGRAM)]


def info(runtime: str, **labels: str) -> str:
    """What containerd keeps of a container: its runtime's options are a message of protobuf."""
    options = base64.b64encode(b"\x12\x04runc" + runtime.encode()).decode()
    told = {"type_url": "containerd.runc.v1.Options", "value": options}
    named = {"Name": "io.containerd.runc.v2", "Options": told if runtime else None}
    return json.dumps({"ID": "x", "Labels": labels, "Runtime": named})


CONTAINERS = {
    ("k8s.io", "aa"): info(OURS, **{pods._POD[0]: "ml", pods._POD[1]: "train"}),
    ("k8s.io", "bb"): info(OURS, **{pods._POD[0]: "ml", pods._POD[1]: "train"}),
    ("k8s.io", "ended"): info(OURS, **{pods._POD[0]: "ml", pods._POD[1]: "ended"}),
    ("k8s.io", "dns"): info("", **{pods._POD[0]: "kube-system", pods._POD[1]: "dns"}),
    ("default", "kept"): info(OURS),
    ("default", "web"): info("/usr/bin/runc"),
    ("moby", "dockers"): info(OURS),
}
CTR = """
space=
while :; do case $1 in
--address) shift 2 ;;
--namespace) space=$2; shift 2 ;;
*) break ;;
esac; done
case "$1 $2" in
"namespaces ls") echo k8s.io; echo default; echo moby ;;
"tasks ls")
    echo 'TASK    PID    STATUS'
    case $space in k8s.io) echo 'aa 1 RUNNING'; echo 'bb 2 RUNNING'; echo 'dns 3 RUNNING'
        echo 'ended 4 STOPPED' ;; esac ;;
"containers ls") cd "$(dirname "$0")/told/$space" && ls ;;
"containers info") cat "$(dirname "$0")/told/$space/$3" ;;
*) exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("folder", "name", "at"),
    [
        ("usr/bin", "containerd", "run/containerd/containerd.sock"),
        ("var/lib/rancher/k3s/data/current/bin", "k3s", "run/k3s/containerd/containerd.sock"),
        ("snap/microk8s/current/bin", "microk8s", "var/snap/microk8s/common/run/containerd.sock"),
    ],
)
def test_containerd_tells_of_what_would_not_go_on(
    host: Host, folder: str, name: str, at: str
) -> None:
    """Pods that run, and what nerdctl could start again; Docker's are Docker's."""
    binaries = host.prefix / folder
    program(binaries / "containerd", "")
    program(binaries / "ctr", CTR)
    for (space, id), text in CONTAINERS.items():
        (binaries / "told" / space).mkdir(parents=True, exist_ok=True)
        (binaries / "told" / space / id).write_text(text)
    assert held(host) == [], "it does not run"
    listen(host.prefix / at)
    assert held(host) == [f"ml/train ({name}, runs)", f"kept ({name})"]


POD = {"metadata": {"name": "train", "namespace": "ml"}, "runtimeHandler": "cgpu"}
OTHER = {"metadata": {"name": "dns", "namespace": "kube-system"}, "runtimeHandler": ""}


@pytest.mark.parametrize(
    ("default", "found"),
    [
        ("crun", ["ml/train (crio, runs)"]),
        ("cgpu", ["ml/train (crio, runs)", "kube-system/dns (crio, runs)"]),
    ],
)
def test_cri_o_tells_of_pods_by_the_names_of_runtimes(
    host: Host, default: str, found: list[str]
) -> None:
    program(
        host.prefix / "usr/bin/crio",
        f'echo \'[crio.runtime]\ndefault_runtime = "{default}"\n'
        f'[crio.runtime.runtimes.cgpu]\nruntime_path = "/usr/lib/cgpu/cgpu-container-runtime"\n'
        '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/libexec/crio/crun"\'\n',
    )
    told = json.dumps({"items": [POD, OTHER]})
    program(
        host.prefix / "usr/bin/crictl", f"case $* in *'pods --state Ready'*) echo '{told}' ;; esac"
    )
    assert held(host) == [], "it does not run"
    listen(host.prefix / pods.CRIO_SOCKET)
    assert held(host) == found
    (host.prefix / "usr/bin/crictl").unlink()
    assert held(host) == []


def test_an_uninstallation_is_refused_for_a_pod(host: Host) -> None:
    one = pods.Held("k3s", "ml/train", running=True)
    assert "ml/train (k3s, runs)" in stranded.refusal([one])
    assert "runtimeClassName" in stranded.refusal([one])
