# SPDX-License-Identifier: MIT
"""Engines that were started with other files than their own: those are what counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pycgpu.errors import InstallError
from pycgpu.install import daemon, registration
from pycgpu.install.registration import (
    Options,
    left_out,
    need_engines,
    plan,
    plan_undo,
    register,
    undo,
)
from tests.host import engine_programs
from tests.host.engine_programs import OLD_DOCKERD, put
from tests.host.engine_programs import containerd as program
from tests.host.test_containerd import (
    CRI,
    GENERATED,
    MAIN,
    OURS,
    SYSTEMD,
    files,
    make,
    newest,
    options_of,
    runc_of,
    said,
)
from tests.host.test_registration import CRIO


def written(root: Path) -> dict[str, str]:
    """Files of a host, without what the kernel shows of its processes."""
    return {path: text for path, text in files(root).items() if not path.startswith("proc/")}


@pytest.mark.parametrize("version", engine_programs.CONTAINERD)
def test_a_containerd_with_another_file_has_our_runtime_there(version: str, tmp_path: Path) -> None:
    host = make(tmp_path, version)
    number = newest(version)
    put(host, MAIN, f"version = {number}\n")
    put(host, "srv/ctd.toml", f"version = {number}\n" + runc_of(number, SystemdCgroup=True))
    words = ["/usr/bin/containerd", "--config", "/srv/ctd.toml"]
    engine_programs.run(host, words, "/usr/bin/containerd", "containerd")
    before = written(host)
    changes = register(Options(("containerd",)), host)
    assert registration.restart_commands(changes, host) == ["systemctl restart containerd"]
    now = said(host, "srv/ctd.toml")
    assert options_of(now.runtimes["cgpu"]) == {"BinaryName": OURS, **SYSTEMD}
    assert (host / MAIN).read_text() == f"version = {number}\n"
    assert plan(Options(("containerd",)), host) == []
    undo(plan_undo(host), host)
    assert written(host) == before


def test_dockers_own_containerd_is_not_the_hosts(tmp_path: Path) -> None:
    host = make(tmp_path, "2.1")
    put(host, MAIN, "version = 3\n" + runc_of(3))
    put(host, "run/docker/containerd/containerd.toml", 'disabled_plugins = ["cri"]\n')
    words = ["containerd", "--config", "/run/docker/containerd/containerd.toml"]
    engine_programs.run(host, words, "/usr/bin/containerd", "docker")
    register(Options(("containerd",)), host)
    assert "cgpu" in said(host).runtimes


def test_a_containerd_in_a_container_is_not_the_hosts(tmp_path: Path) -> None:
    words = ["containerd", "-c", "/srv/ctd.toml"]
    engine_programs.run(tmp_path, words, "/usr/bin/containerd", "containerd")
    assert [one.unit for one in daemon.running("containerd", tmp_path)] == ["containerd"]
    (tmp_path / "proc/400/ns/mnt").unlink()
    (tmp_path / "proc/400/ns/mnt").symlink_to("mnt:[4026532000]")
    assert list(daemon.running("containerd", tmp_path)) == []


@pytest.mark.parametrize("unit", ["k3s", "k3s-agent", "k3s-gpu", "rke2-server"])
def test_a_k3s_with_another_data_directory_is_found_by_its_process(
    unit: str, tmp_path: Path
) -> None:
    at = "data/k3s/agent/etc/containerd"
    binary = "data/k3s/data/0123abcd/bin/containerd"
    engine_programs.install(tmp_path, binary, program("2.1"))
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    put(tmp_path, f"etc/systemd/system/{unit}.service", "")
    text = GENERATED.format(version=3, plugin=CRI[3], imports="")
    put(tmp_path, f"{at}/config.toml", text)
    name = unit.partition("-")[0]
    if unit != "k3s-gpu":
        with pytest.raises(InstallError, match=rf"no container engine.*; {name}: {unit}\.service"):
            need_engines(tmp_path)
    socket = "/run/k3s/containerd/containerd.sock"
    words = ["containerd", "-c", f"/{at}/config.toml", "-a", socket]
    engine_programs.run(tmp_path, words, f"/{binary}", unit)
    assert registration.engines_here(tmp_path) == (name,)
    assert left_out((name,), tmp_path) == []
    changes = register(Options((name,)), tmp_path)
    assert (tmp_path / at / "config-v3.toml.tmpl").exists()
    assert registration.restart_commands(changes, tmp_path) == [f"systemctl restart {unit}"]


def test_one_file_by_two_names_is_no_other_place(tmp_path: Path) -> None:
    """A snap's daemon names its revision, which the next refresh takes away."""
    at = "var/snap/microk8s/7394/args"
    engine_programs.install(tmp_path, "snap/microk8s/current/bin/containerd", program("1.7"))
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    text = "version = 2\n" + runc_of(2)
    put(tmp_path, f"{at}/containerd.toml", text)
    put(tmp_path, f"{at}/containerd-template.toml", text)
    (tmp_path / "var/snap/microk8s/current").symlink_to("7394")
    words = ["/snap/microk8s/7394/bin/containerd", "--config", f"/{at}/containerd.toml"]
    unit = "snap.microk8s.daemon-containerd"
    engine_programs.run(tmp_path, words, "/snap/microk8s/7394/bin/containerd", unit)
    changes = register(Options(("microk8s",)), tmp_path)
    template = "var/snap/microk8s/current/args/containerd-template.toml"
    assert template in {change.path for change in changes}


def test_a_crio_with_other_files_has_our_runtime_there(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/crio", CRIO, 0o755)
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    put(tmp_path, "srv/crio.conf", "")
    words = ["/usr/bin/crio", "--config=/srv/crio.conf", "--config-dir", "/srv/crio.d"]
    engine_programs.run(tmp_path, words, "/usr/bin/crio", "crio")
    register(Options(("crio",)), tmp_path)
    assert (tmp_path / "srv/crio.d/99-zz-cgpu.conf").exists()
    assert not (tmp_path / "etc/crio").exists()
    undo(plan_undo(tmp_path), tmp_path)
    assert not (tmp_path / "srv/crio.d/99-zz-cgpu.conf").exists()


def test_dockers_other_file_keeps_what_others_change_meanwhile(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/dockerd", OLD_DOCKERD, 0o755)
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    put(tmp_path, "srv/docker.json", '{"debug": true}')
    words = ["/usr/bin/dockerd", "--config-file", "/srv/docker.json"]
    engine_programs.run(tmp_path, words, "/usr/bin/dockerd", "docker")
    register(Options(("docker",)), tmp_path)
    path = tmp_path / "srv/docker.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ipv6": True}))
    undo(plan_undo(tmp_path), tmp_path)
    assert json.loads(path.read_text()) == {"debug": True, "ipv6": True}
    assert not (tmp_path / "etc/docker").exists()


@pytest.mark.parametrize("version", engine_programs.DOCKERD)
def test_an_option_that_docker_allows_once_is_not_doubled_by_its_file(
    version: str, tmp_path: Path
) -> None:
    """It would not start: `specified both as a flag and in the configuration file`."""
    dockerd = engine_programs.dockerd(version)
    engine_programs.install(tmp_path, "usr/bin/dockerd", dockerd)
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    words = [str(dockerd), "--default-runtime=nvidia"]
    engine_programs.run(tmp_path, words, str(dockerd), "docker")
    before = written(tmp_path)
    with pytest.raises(InstallError, match=r"docker: .*--default-runtime=nvidia.*its unit"):
        register(Options(("docker",), default=True), tmp_path)
    assert written(tmp_path) == before
