# SPDX-License-Identifier: MIT
"""Module and agent on one host: who refuses, and who says so."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pycgpu.agent import attach, node_server, server
from pycgpu.batch import slurm
from pycgpu.cli import ps
from pycgpu.errors import CgpuError, InstallError
from pycgpu.install import doctor, installation
from pycgpu.install.host import Host
from pycgpu.request.permit import DEFAULT
from pycgpu.tree import authority, device_nodes, lock, procfs, tenant

from . import program
from .coretree import CoreTree


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A host's root, empty but for what a test puts there."""
    (tmp_path / "run/cgpu").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    return tmp_path


@pytest.fixture
def agent(prefix: Path) -> Iterator[None]:
    """An agent that answers, and has found no driver."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A path below pytest's own folder is longer than a socket's may be.
    here = os.open(prefix / "run/cgpu", os.O_DIRECTORY)
    listening.bind(f"/proc/self/fd/{here}/tree.sock")
    listening.listen()
    serving = node_server.NodeServer()

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serving.serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    os.close(here)


def test_one_authority_is_nothing_to_complain_of(prefix: Path, agent: None) -> None:
    assert authority.complaint(str(prefix)) is None
    assert authority.agents_containers(str(prefix)) == []


def test_module_and_agent_at_once_are_what_doctor_finds_and_ps_says(
    prefix: Path, agent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = CoreTree(prefix / "proc/cgpu_km")
    said = authority.complaint(str(prefix))
    assert said is not None
    assert "without knowing each other's promises: end the agent" in said
    found = doctor.examine(str(prefix), str(tree.root))
    assert any(one.level == doctor.FAIL and "the module and the agent" in one.text for one in found)
    monkeypatch.setattr(procfs, "KERNEL_DOOR", str(tree.root))
    monkeypatch.setattr(procfs, "USER_DOOR_SOCKET", str(prefix / "run/cgpu/tree.sock"))
    assert "the module and the agent both share this host's cards" in program.run(ps.app).stderr


def test_an_agent_refuses_where_the_module_is(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A directory alone: a module without a core or driver is an authority, too.
    (prefix / "proc/cgpu_km").mkdir()
    monkeypatch.setattr(procfs, "KERNEL_DOOR", str(prefix / "proc/cgpu_km"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(CgpuError, match=r"shares this host's cards, and `cgpu run` asks it"):
        server.main()


def test_the_module_is_not_installed_beside_an_agent(prefix: Path, agent: None) -> None:
    host = Host(prefix, "6.1.0", lambda command: "")
    with pytest.raises(InstallError, match="an agent shares this host's cards"):
        installation.check(installation.Options(), host)


def test_a_process_without_a_cgroup_of_its_own_gets_one_under_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray's workers ask: the module knows them by the tenant's cgroup then."""
    tree = CoreTree(tmp_path / "tree")
    monkeypatch.setattr(lock, "LOCK", str(tmp_path / "lock"))
    entered: list[tuple[str, int]] = []

    def enter(name: str, pid: int) -> str:
        entered.append((name, pid))
        return f"/run/cgpu/tenants/{name}"

    monkeypatch.setattr(tenant, "enter", enter)
    # This host has no driver, and hence none of its nodes.
    monkeypatch.setattr(device_nodes, "ensure", list)
    request = slurm.request((slurm.Shards(0, 1, 16),), "quota")
    attach._by_module("ray-1", request, None, str(tree.root), DEFAULT, pid=os.getpid())
    assert entered == [("ray-1", os.getpid())]
    told = (tree.root / "inst_ctl").read_text()
    assert told.startswith("create ray-1 cgroup=/run/cgpu/tenants/ray-1 gpu=0,"), told


def test_cgroups_of_tenants_that_ended_go_and_the_others_stay(tmp_path: Path) -> None:
    for name in ("gone", "alive"):
        (tmp_path / name).mkdir()
    tenant.sweep({"alive"}, str(tmp_path))
    # No cgroup: what has no list of processes is none of ours.
    assert sorted(os.listdir(tmp_path)) == ["alive", "gone"]
