# SPDX-License-Identifier: MIT
"""Uninstalling while containers were created with our runtime, before scripted engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pycgpu.errors import InstallError
from pycgpu.install import installation, stranded
from pycgpu.install.host import Host
from pycgpu.install.installation import Options

from . import filehost
from .filehost import state

ID = "ab" * 32


class Engines:
    """Docker and Podman with containers, by what they answer; commands go to *behind* else."""

    def __init__(self, host: Host, containers: dict[str, list[tuple[str, str, bool]]]) -> None:
        self.behind = host.run
        self.containers = containers
        self.down = False
        self.runtimes: dict[str, object] = {"runc": {"path": "runc"}}
        self.default = "runc"
        self.host = host._replace(run=self.run)

    def read(self) -> None:
        """What a Docker of 20.10 takes of its file when it reads it anew."""
        path = self.host.prefix / "etc/docker/daemon.json"
        config = json.loads(path.read_text()) if path.exists() else {}
        if "runtimes" in config:
            self.runtimes = {"runc": {"path": "runc"}, **config["runtimes"]}
        self.default = config.get("default-runtime", self.default)

    def run(self, command: list[str]) -> str:
        engine = command[0]
        if command[:2] == ["kill", "-HUP"] or command[1:] == ["reload", "docker"]:
            self.read()
            return ""
        if engine not in ("docker", "podman"):
            return self.behind(command)
        if self.down or engine not in self.containers:
            raise InstallError(f"{engine} is missing: install it")
        if command[1] == "info":
            return json.dumps(self.runtimes)
        there = self.containers[engine]
        if command[1] == "ps":
            return "".join(f"{number}\n" for number in range(len(there)))
        named = [there[int(word)] for word in command if word.isdigit()]
        return "".join(f"/{name}\t{told}\t{str(runs).lower()}\n" for name, told, runs in named)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return filehost.make(tmp_path / "host")


@pytest.fixture
def options(host: Host) -> Options:
    return Options(modules=str(host.prefix / "modules"), usage=True, default=True)


OURS = [("train", "cgpu", True), ("old", "cgpu", False), ("web", "runc", True)]


def test_an_uninstallation_names_the_containers_that_would_not_start_and_changes_nothing(
    host: Host, options: Options
) -> None:
    podman = host.prefix / "usr/bin/podman"
    podman.write_text("#!/bin/sh\n")
    podman.chmod(0o755)
    engines = Engines(host, {"docker": OURS, "podman": [("pod", stranded.PROGRAM, False)]})
    installation.install(options, engines.host)
    before = state(host.prefix)
    with pytest.raises(InstallError) as refused:
        installation.uninstall(engines.host)
    text = str(refused.value)
    assert "3 containers were created with cgpu's runtime and would not start without it" in text
    assert "train (docker, runs), old (docker), pod (podman)" in text
    assert "--runtime=runc" in text and "--force" in text
    assert "web" not in text
    assert state(host.prefix) == before


def test_forced_it_says_which_do_not_start_and_leaves_a_docker_that_works(
    host: Host, options: Options
) -> None:
    engines = Engines(host, {"docker": OURS})
    config = host.prefix / "etc/docker/daemon.json"
    before = config.read_text()
    installation.install(options, engines.host)
    engines.read()
    assert engines.default == "cgpu"
    said: list[str] = []
    installation.uninstall(engines.host, said.append, force=True)
    assert "does not start any more: old (docker)" in said
    assert "does not start any more: train (docker, runs)" in said
    assert (engines.default, engines.runtimes) == ("runc", {"runc": {"path": "runc"}})
    assert config.read_text() == before
    assert not any("restart docker" in line for line in said)


def test_a_docker_that_is_down_is_known_by_its_files(host: Host, options: Options) -> None:
    engines = Engines(host, {"docker": OURS})
    installation.install(options, engines.host)
    engines.down = True
    folder = host.prefix / stranded.DOCKER_ROOT / "containers" / ID
    folder.mkdir(parents=True)
    (folder / "hostconfig.json").write_text('{"Runtime": "cgpu"}')
    (folder / "config.v2.json").write_text('{"Name": "/kept"}')
    with pytest.raises(InstallError, match=r"1 container was created .* kept \(docker\)"):
        installation.uninstall(engines.host)


def test_a_name_that_is_the_toolkits_again_strands_nobody(host: Host, options: Options) -> None:
    config = {"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}}
    (host.prefix / "etc/docker/daemon.json").write_text(json.dumps(config))
    engines = Engines(host, {"docker": [("theirs", "nvidia", True)]})
    installation.install(options._replace(names=("cgpu", "nvidia")), engines.host)
    installation.uninstall(engines.host)


def test_the_record_of_usage_is_kept_and_shown_beforehand(host: Host, options: Options) -> None:
    installation.install(options, host)
    record = host.prefix / installation.RECORD
    record.mkdir(parents=True, exist_ok=True)
    (record / "2026-11.jsonl").write_text("a bill\n")
    log = host.prefix / "var/log/cgpu-prestart-hook.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("x")
    gone, kept = installation.left_by_use(host)
    assert log in gone
    assert kept == [record]
    said: list[str] = []
    installation.uninstall(host, said.append)
    assert (record / "2026-11.jsonl").read_text() == "a bill\n"
    assert [path.name for path in record.parent.iterdir()] == ["usage"]
    assert not log.exists()
    assert any(line.startswith(f"kept: {record}") for line in said)


def test_purged_nothing_is_kept(host: Host, options: Options) -> None:
    before = state(host.prefix)
    installation.install(options, host)
    record = host.prefix / installation.RECORD
    record.mkdir(parents=True, exist_ok=True)
    (record / "2026-11.jsonl").write_text("a bill\n")
    assert installation.left_by_use(host, purge=True)[1] == []
    installation.uninstall(host, purge=True)
    assert state(host.prefix) == before
