# SPDX-License-Identifier: MIT
"""A group's containers are one to the card and each their own to memory (simulated driver)."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.vm.container import Container
from tests.vm.loaded import until
from tests.vm.test_isolation import MIB, Host
from tests.vm.work import NEAR, Work, together

pytestmark = [pytest.mark.needs("programs"), pytest.mark.kernel("6.1", by_default=True)]

NV_ERR_INVALID_CLASS, NV_ERR_INVALID_CLIENT, NV_ERR_NO_MEMORY = 0x22, 0x23, 0x51
LIMIT_BYTES = 2048 * MIB
#: What a member is charged of the server's.
SHARED_BYTES = 4 * MIB
DEVICE, SUBDEVICE = 0x5C000002, 0x5C000003


class GroupHost(Host):
    def join(self, id: str, group: str, mem: int = LIMIT_BYTES, extra: str = "") -> Container:
        started = self._container(id, programs=self.programs)
        words = f"gpu=0,mem={mem}{extra}"
        self.cgpu.create(id, f"pid={started.pid}", words, f"group={group}")
        return started

    def stat(self, id: str) -> dict[str, int]:
        lines = self.cgpu.read(f"0/{id}/stat").splitlines()
        return {key: int(value) for key, value in map(str.split, lines)}


class Group:
    """A container whose first program plays an MPS server, and members."""

    def __init__(self, host: GroupHost, name: str = "lead", extra: str = "") -> None:
        self.host, self.name = host, name
        self.leader = host.join(name, name, extra=extra)
        self.server = self.leader.popen("simcuda", "--serves", "--context", "--hold", "info")
        assert self.server.stdout is not None
        self.who = self.server.stdout.readline().strip()
        assert self.who.count(":") == 3, self.who + self.server.communicate()[0]

    def member(self, id: str, **options: Any) -> Container:
        return self.host.join(id, self.name, **options)

    @property
    def handles(self) -> list[str]:
        """Of the server: its client, the group, two pieces of memory."""
        return self.who.split(":")


@pytest.fixture
def host(sim: Any, km: Any, container: Any, made: Any) -> GroupHost:
    driver = sim(model="t4")
    here = GroupHost(driver, km(), container, made("programs"))
    here.programs["/bin/group"] = made("programs") / "group"
    return here


def taken(container: Container, client: str, *handles: str) -> list[int]:
    """The statuses of duplicates of these objects."""
    return list(map(int, container.exec("group", client, *handles).stdout.split()))


def end(*programs: subprocess.Popen[str]) -> None:
    """Have them end: a signal that runc hands on."""
    for program in programs:
        program.terminate()
        program.communicate()


def refused(host: GroupHost, id: str, *clauses: str) -> int:
    """The errno of a container that is not to be."""
    started = host._container(id, programs={})
    with pytest.raises(OSError) as failed:
        host.cgpu.create(id, f"pid={started.pid}", *clauses)
    assert failed.value.errno is not None
    return failed.value.errno


def test_members_share_the_card_as_one_with_others(host: GroupHost) -> None:
    """Three programs of a group have together what one container of its weight has."""
    group = Group(host, extra=",weight=1")
    alone = host.tenant("alone", mem=LIMIT_BYTES)
    works = [Work(group.member(f"m{n}"), server=group.who) for n in range(3)]
    *inside, outside = together(*works, Work(alone))
    print(inside, outside)
    assert abs(sum(inside) - 50) < NEAR
    assert abs(outside - 50) < NEAR
    assert max(inside) - min(inside) < NEAR
    # what they computed is the group's
    lead = host.stat("lead")
    assert lead["used_ns"] > 1e9
    for n in range(3):
        stat = host.stat(f"m{n}")
        assert "used_ns" not in stat and stat["refused"] == 0
        assert host.cgpu.read(f"0/m{n}/group") == "lead\n"
    assert host.cgpu.read("0/lead/group") == "lead\n"
    assert host.cgpu.read("0/alone/group") == "-\n"


def test_a_group_has_the_part_of_the_card_that_its_members_asked_for(host: GroupHost) -> None:
    group = Group(host)
    alone = host.tenant("alone", mem=LIMIT_BYTES)
    works = [Work(group.member("one", extra=",weight=2,quota=30,quota_min=20"), server=group.who)]
    works.append(Work(group.member("two"), server=group.who))
    assert [host.cgpu.read(f"0/lead/{one}") for one in ("weight", "quota_min")] == ["3\n", "20\n"]
    *inside, outside = together(*works, Work(alone))
    print(inside, outside)
    # the quota is of threads, which are MPS's
    assert abs(sum(inside) - 75) < NEAR and abs(outside - 25) < NEAR
    host.cgpu.destroy("one")
    assert [host.cgpu.read(f"0/lead/{one}") for one in ("weight", "quota_min")] == ["1\n", "0\n"]


def test_a_quota_of_the_leaders_holds_for_all_members(host: GroupHost) -> None:
    group = Group(host, extra=",policy=mixed,quota=30")
    works = [Work(group.member(f"m{n}"), server=group.who) for n in range(2)]
    shares = together(*works)
    print(shares)
    assert sum(shares) < 30 + NEAR
    assert max(shares) - min(shares) < NEAR


def test_each_member_is_held_to_its_own_limit_to_the_byte(host: GroupHost) -> None:
    group = Group(host)
    one, two = group.member("one", mem=LIMIT_BYTES // 2), group.member("two")
    before = host.charged_bytes("two"), host.charged_bytes("lead")
    words = ("simcuda", "--server", group.who, "--hold", "--context")
    filled = one.popen(*words, "fill")
    until(lambda: host.stat("one")["oom"] > 0, "the limit")
    stat = host.stat("one")
    assert LIMIT_BYTES // 2 - (64 << 10) < stat["current_bytes"] <= LIMIT_BYTES // 2
    assert (host.charged_bytes("two"), host.charged_bytes("lead")) == before
    other = two.popen(*words, "alloc", str(1536 * MIB))
    until(lambda: host.charged_bytes("two") >= 1536 * MIB, "the neighbour's room")
    end(filled, other)
    until(lambda: host.charged_bytes("one") == 0, "the charge to return")


def test_a_member_gets_what_mps_needs_and_nothing_else_of_anybodys(host: GroupHost) -> None:
    group, foreign = Group(host), Group(host, "other")
    one, two = group.member("one"), group.member("two")
    alone = host.tenant("alone", mem=LIMIT_BYTES)
    client, *common = group.handles
    assert taken(one, client, *common) == [0, 0, 0]
    kept = [f"{DEVICE:x}", f"{SUBDEVICE:x}", client]
    assert taken(one, client, *kept) == [NV_ERR_INVALID_CLIENT] * 3
    assert taken(one, *foreign.handles) == [NV_ERR_INVALID_CLIENT] * 3
    assert taken(alone, client, *common) == [NV_ERR_INVALID_CLIENT] * 3
    assert taken(group.leader, *foreign.handles) == [NV_ERR_INVALID_CLIENT] * 3
    # of a member's, which has a handle of the very same group
    words = ("simcuda", "--server", group.who, "--announce", "launch", "60", "1")
    program = two.popen(*words)
    assert program.stdout is not None
    told = program.stdout.readline().split()
    theirs = told[-1].split(",")[0].split(":")[0]
    assert taken(one, theirs, told[3]) == [NV_ERR_INVALID_CLIENT]
    assert taken(group.leader, theirs, told[3]) == [NV_ERR_INVALID_CLIENT]
    end(program)
    assert one.exec("group", "class").stdout == "0\n"
    for other in (group.leader, alone):
        assert other.exec("group", "class").stdout == f"{NV_ERR_INVALID_CLASS}\n"
    assert host.stat("one")["refused"] == 7
    told_of = "\n".join(host.recent_events())
    assert "refused id=one " in told_of and "class=0x900e not listed" in told_of


def test_what_is_asked_of_a_group_that_it_cannot_be_is_refused(host: GroupHost) -> None:
    group = Group(host)
    group.member("one")
    host.tenant("alone", mem=LIMIT_BYTES)
    card = f"gpu=0,mem={LIMIT_BYTES}"
    assert refused(host, "a", card, "group=nobody") == errno.ENOENT
    assert refused(host, "b", card, "group=alone") == errno.EINVAL
    assert refused(host, "c", card, "group=one") == errno.EINVAL
    assert refused(host, "d", f"{card},priority=2", "group=lead") == errno.EINVAL
    with pytest.raises(OSError) as failed:
        host.cgpu.write("0/one/weight", "2")
    assert failed.value.errno == errno.EBUSY
    with pytest.raises(OSError) as failed:
        host.cgpu.destroy("lead")
    assert failed.value.errno == errno.EBUSY


def test_members_outlive_their_leader_and_nobody_inherits_them(host: GroupHost) -> None:
    group = Group(host)
    work = Work(group.member("one"), seconds=20, server=group.who)
    work.go()
    until(lambda: host.charged_bytes("one") >= SHARED_BYTES, "the member's context")
    number = host.cgpu.read("0/lead/id")
    end(group.server)
    group.leader.kill()
    until(lambda: host.charged_bytes("lead") == 0, "the leader's memory")
    # it stays while it has members, whose number it is
    assert host.cgpu.read("0/one/group") == "lead\n"
    host.cgpu.destroy("lead")
    assert host.cgpu.read("0/one/group") == "-\n"
    assert host.charged_bytes("one") >= SHARED_BYTES
    heir = host.tenant("heir", mem=LIMIT_BYTES)
    assert host.cgpu.read("0/heir/id") == number
    client, *common = group.handles
    assert taken(heir, client, *common) == [NV_ERR_INVALID_CLIENT] * 3
    # each for itself by now
    other = Work(heir, seconds=4)
    share = together(other)
    print(share)
    assert abs(share[0] - 50) < NEAR
    assert "used_ns" in host.stat("one")
    end(work.child)
    until(lambda: host.charged_bytes("one") == 0, "the member's charge to return")


def test_a_leader_without_processes_goes_with_its_last_member(host: GroupHost) -> None:
    group = Group(host)
    one = group.member("one")
    end(group.server)
    group.leader.kill()
    until(lambda: host.charged_bytes("lead") == 0, "the leader's memory")
    assert Path("/proc/cgpu_km/0/lead").exists()
    one.kill()
    until(lambda: not Path("/proc/cgpu_km/0/lead").exists(), "the leader to go")
    assert not Path("/proc/cgpu_km/0/one").exists()
