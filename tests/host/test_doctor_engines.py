# SPDX-License-Identifier: MIT
"""What `cgpu doctor` says of engines, and of NVIDIA's components beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycgpu.install import registration
from pycgpu.install.doctor.engines import engines
from pycgpu.install.doctor.finding import FAIL, NOTE, OK, WARN, Finding
from pycgpu.install.doctor.host import Host
from pycgpu.install.doctor.nvidia import nvidia
from pycgpu.install.registration import Options, register
from tests.host.engine_programs import OLD_DOCKERD, put
from tests.host.test_containerd import DOCKERS, K3S, MAIN, k3s, make, runc_of

OWN = "etc/containerd/conf.d/99-zz-cgpu.toml"


def found(prefix: Path) -> list[Finding]:
    return list(engines(Host(prefix, None, "6.1.0")))


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host whose containerd has our runtime."""
    made = make(tmp_path, "2.1")
    put(made, MAIN, "version = 3\n" + runc_of(3, SystemdCgroup=True))
    register(Options(registration.engines_here(made)), made)
    return made


def test_an_engine_that_has_the_runtime_is_in_order(host: Path) -> None:
    assert found(host) == [Finding(OK, "engines", "containerd: has the runtime, as cgpu")]


def test_a_runtime_without_what_runcs_has_is_told(host: Path) -> None:
    put(host, OWN, (host / OWN).read_text().replace("SystemdCgroup = true", ""))
    (one,) = found(host)
    assert one.level == FAIL and "lacks what runc's has: SystemdCgroup = True" in one.text
    assert one.remedy == "cgpu install-runtime --engine containerd"


def test_a_file_of_ours_that_containerd_does_not_read_is_told(host: Path) -> None:
    put(host, MAIN, "version = 3\n" + runc_of(3, SystemdCgroup=True))
    (one,) = found(host)
    assert one.level == WARN and "it has no runtime of ours, though a file" in one.text


def test_a_file_that_containerd_does_not_take_is_told(host: Path) -> None:
    put(host, MAIN, "version = 3\nimports = 7\n")
    (one,) = found(host)
    assert one.level == FAIL and "config dump" in one.text


def test_a_runtime_behind_ours_that_went_is_told(host: Path) -> None:
    for path in ("opt/bin/runc", "usr/sbin/runc"):
        (host / path).unlink(missing_ok=True)
    (one,) = found(host)
    assert one.level == FAIL and "no container starts" in one.text


def test_a_containerd_that_serves_docker_alone_is_left_out_with_the_reason(tmp_path: Path) -> None:
    put(make(tmp_path, "1.7"), MAIN, DOCKERS)
    (one,) = found(tmp_path)
    assert one.level == NOTE and "disabled_plugins" in one.text


def test_a_k3s_without_our_runtime_is_told(tmp_path: Path) -> None:
    host = k3s(tmp_path, "2.1")
    (one,) = found(host)
    assert (one.level, one.remedy) == (WARN, "cgpu install-runtime --engine k3s")
    register(Options(("k3s",)), host)
    (one,) = found(host)
    assert one.level == WARN and "though a file" in one.text, "it has not been restarted"
    base = (host / K3S / "config.toml").read_text()
    template = (host / K3S / "config-v3.toml.tmpl").read_text()
    put(host, f"{K3S}/config.toml", template.replace('{{ template "base" . }}', base))
    assert [one.level for one in found(host)] == [OK]


def test_a_docker_of_a_snap_is_told(tmp_path: Path) -> None:
    (tmp_path / "snap/docker/current").mkdir(parents=True)
    snap, none = found(tmp_path)
    assert snap.level == WARN and "confined" in snap.text
    assert none.level == NOTE and "looked for dockerd, containerd" in none.text


# ---- NVIDIA's


@pytest.mark.parametrize(
    ("path", "text", "level", "said"),
    [
        ("usr/bin/nvidia-container-runtime", "", NOTE, "container toolkit: /usr/bin/nvidia-con"),
        (
            "usr/local/nvidia/toolkit/nvidia-container-runtime",
            "",
            NOTE,
            "container toolkit: /usr/local/nvidia/toolkit/",
        ),
        ("run/nvidia/validations/toolkit-ready", "", NOTE, "GPU Operator: its toolkit may rewrite"),
        ("run/nvidia/driver/usr/bin/nvidia-smi", "", WARN, "the driver is a container's"),
        ("var/lib/kubelet/device-plugins/nvidia-gpu.sock", "", WARN, "device plugin: it offers"),
        ("var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock", "", WARN, "DRA driver: claims of"),
    ],
)
def test_a_component_of_nvidias_is_recognised(
    tmp_path: Path, path: str, text: str, level: str, said: str
) -> None:
    assert list(nvidia(Host(tmp_path, None, ""))) == []
    put(tmp_path, path, text, 0o755)
    told = list(nvidia(Host(tmp_path, None, "")))
    assert [one.level for one in told if said in one.text] == [level]


def test_two_device_plugins_are_a_failure(tmp_path: Path) -> None:
    for name in ("nvidia-gpu.sock", "cgpu-hami.sock"):
        put(tmp_path, f"var/lib/kubelet/device-plugins/{name}", "")
    (one,) = nvidia(Host(tmp_path, None, ""))
    assert one.level == FAIL and "and so does ours" in one.text


@pytest.mark.parametrize(("mode", "warned"), [("auto", True), ("legacy", False)])
def test_a_toolkit_that_names_runc_by_its_path_is_told(
    tmp_path: Path, mode: str, warned: bool
) -> None:
    put(tmp_path, "usr/bin/nvidia-container-runtime", "", 0o755)
    text = f'[nvidia-container-runtime]\nmode = "{mode}"\nruntimes = ["/opt/bin/runc"]\n'
    put(tmp_path, "etc/nvidia-container-runtime/config.toml", text)
    told = [one for one in nvidia(Host(tmp_path, None, "")) if "by its path" in one.text]
    assert [one.level for one in told] == [WARN] * warned


def test_a_default_runtime_of_the_toolkits_is_told(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/nvidia-container-runtime", "", 0o755)
    put(tmp_path, "usr/bin/dockerd", OLD_DOCKERD, 0o755)
    put(
        tmp_path,
        "etc/docker/daemon.json",
        '{"default-runtime": "nvidia",'
        ' "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
    )
    told = [one for one in nvidia(Host(tmp_path, None, "")) if "past ours" in one.text]
    assert [one.level for one in told] == [WARN]


def test_cdi_devices_of_nvidias_are_told(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/nvidia-container-runtime", "", 0o755)
    put(tmp_path, "var/run/cdi/nvidia.yaml", "")
    told = [one for one in nvidia(Host(tmp_path, None, "")) if "CDI devices" in one.text]
    assert "/var/run/cdi/nvidia.yaml" in told[0].text
