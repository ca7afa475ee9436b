# SPDX-License-Identifier: MIT
"""What a group keeps on the host before it has a server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pycgpu.errors import CgpuError
from pycgpu.request.model import CardShare, Grant, Request
from pycgpu.tree import group, label

MEMBER = group.Group("chat", 0, policy_asked=False, containers_of="containers of user 0")


@pytest.fixture(autouse=True)
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(group, "SHM", str(tmp_path / "shm"))
    return tmp_path / "shm"


def test_nobody_else_writes_there_whatever_mask_an_engine_has(tmp_path: Path, shm: Path) -> None:
    before = os.umask(0)
    try:
        group.make_places(MEMBER, str(tmp_path / "run/groups"))
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path)): oct(path.stat().st_mode & 0o7777)
        for path in [*(tmp_path / "run").rglob("*"), shm, *shm.rglob("*")]
    }
    assert modes == {
        "run/groups": "0o711",
        "run/groups/chat": "0o711",
        "run/groups/chat/pipe": "0o700",
        "shm": "0o700",
        "shm/chat": "0o1777",
    }


def test_they_are_made_once_and_what_is_there_stays_the_same(tmp_path: Path) -> None:
    """A container that is about to start has them bound already."""
    directory = str(tmp_path / "groups")
    group.make_places(MEMBER, directory)
    first = os.stat(group.pipe("chat", directory)).st_ino
    group.make_places(MEMBER, directory)
    assert os.stat(group.pipe("chat", directory)).st_ino == first


def test_a_link_or_another_users_directory_in_their_place_is_refused(
    tmp_path: Path, shm: Path
) -> None:
    """Everybody may write to /dev/shm."""
    shm.symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        group.make_places(MEMBER, str(tmp_path / "groups"))
    shm.unlink()
    if os.geteuid() == 0:
        shm.mkdir()
        os.chown(shm, 1000, 1000)
        with pytest.raises(CgpuError, match="another user has made it: remove it"):
            group.make_places(MEMBER, str(tmp_path / "groups"))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone labels files")
def test_all_members_may_use_them_on_a_host_with_selinux(tmp_path: Path, shm: Path) -> None:
    """As a volume with `:z`: the container's own label, without its categories."""
    directory = str(tmp_path / "groups")
    places = [Path(group.pipe("chat", directory)), shm / "chat"]
    group.make_places(MEMBER, directory)
    assert ["security.selinux" in os.listxattr(place) for place in places] == [False, False]
    own = "system_u:object_r:container_file_t:s0:c12,c345"
    group.make_places(MEMBER, directory, own)
    told = [os.getxattr(place, "security.selinux") for place in places]
    assert told == [b"system_u:object_r:container_file_t:s0\0"] * 2


@pytest.mark.parametrize("engines", [None, "", "container_file_t", 7, {}])
def test_an_engine_without_selinux_gives_no_label(engines: object) -> None:
    assert label.shared(engines) is None


def test_its_daemon_is_what_containers_may_connect_to(tmp_path: Path) -> None:
    enforce, attribute = tmp_path / "enforce", tmp_path / "exec"
    label.execute_as_daemon(str(enforce), str(attribute))
    assert not attribute.exists(), "this host has no SELinux"
    enforce.write_text("1")
    label.execute_as_daemon(str(enforce), str(attribute))
    assert attribute.read_text() == "system_u:system_r:spc_t:s0"
    label.execute_as_daemon(str(enforce), str(tmp_path / "none" / "exec"))


def test_nobody_joins_to_be_parked(tmp_path: Path) -> None:
    asked = Request("cgpu", (0,), (CardShare(),), idle_park_s=300)

    def admit(_: Request) -> Grant:
        raise AssertionError("it is asked for room")

    directory = tmp_path / "groups"
    with (
        pytest.raises(CgpuError, match="group chat: no container of a group is parked"),
        group.joined(MEMBER, asked, "/nowhere", admit, str(directory)),
    ):
        pass
    assert not directory.exists()


def test_what_a_user_has_put_there_goes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    there = tmp_path / "there"
    (there / "deep/er").mkdir(parents=True)
    (there / "deep/er/file").write_text("")
    (there / "link").symlink_to(outside)
    (there / "folder").symlink_to(tmp_path)
    descriptor = os.open(there, os.O_RDONLY)
    try:
        group.empty(descriptor)
    finally:
        os.close(descriptor)
    assert list(there.iterdir()) == []
    assert outside.read_text() == "kept"
