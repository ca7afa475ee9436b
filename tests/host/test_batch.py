# SPDX-License-Identifier: MIT
"""Slurm, Ray, Spark and jobs of Volcengine's form: from what they say to what is asked for."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pycgpu.agent import attach, client, launch
from pycgpu.batch import ray, settings, slurm, spark, written
from pycgpu.cli import main
from pycgpu.dialects import cgpu
from pycgpu.errors import CgpuError, RequestError
from pycgpu.request import permit
from pycgpu.request.admission import admit
from pycgpu.request.model import (
    MIB,
    MIXED,
    Card,
    CardShare,
    Grant,
    MemoryBytes,
    Request,
    Tenant,
)
from pycgpu.request.permit import DEFAULT
from pycgpu.tree import device_nodes, lock, procfs
from pycgpu.tree.group import SERVER_BYTES, Group
from tests.host import program
from tests.host.coretree import CoreTree
from tests.host.volcengine_settings import CUSTOM, RAY, SPARK

T4 = (Card(0, "GPU-0", 15109 * MIB, 450 * MIB), Card(1, "GPU-1", 15109 * MIB, 450 * MIB))

# ---- Slurm, whose answers are 22.05's own

JOB = """\
JobId=1 JobName=sh
   JobState=RUNNING Reason=None Dependency=(null)
   JOB_GRES=shard:4
     Nodes={nodes} CPU_IDs=0 Mem=0 GRES={gres}
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   TresPerNode=gres:shard:4
"""
NODE = "NodeName=n1 Arch=x86_64\n   Gres={}\n   NodeAddr=n1\n"


#: Of `slurmd -G`, 22.05 and 24.11: a card of 8 shards and one of 4.
CONFIGURED = """\
Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
Gres Name=shard Type=a100 Count=8 Index=0 ID=1060225 File=/dev/nvidia0 (null)
Gres Name=gpu Type=t4 Count=1 Index=1 ID=7696487 File=/dev/nvidia1 (null)
Gres Name=shard Type=t4 Count=4 Index=1 ID=1060225 File=/dev/nvidia1 Links=(null) Flags=HAS_FILE
"""


def slurms(job: str, node: str, configured: str = CONFIGURED) -> Callable[..., str]:
    """What Slurm's programs answer of a job on a host that it calls n1."""
    answers = {
        ("scontrol", "show", "aliases", socket.gethostname().partition(".")[0]): "n1\n",
        ("scontrol", "show", "job", "-d", "1"): job,
        ("scontrol", "show", "node", "n1"): node,
        ("scontrol", "show", "hostnames", "n[0-2]"): "n0\nn1\nn2\n",
        ("slurmd", "-G"): configured,
    }
    return lambda *words: answers[words]


@pytest.mark.parametrize(
    ("nodes", "gres", "node", "expected"),
    [
        ("n1", "shard:4(IDX:0)", "gpu:1,shard:16", [(0, 4, 16)]),
        ("n1", "shard:64(IDX:0)", "gpu:1,shard:1K", [(0, 64, 1024)]),
        ("n[0-2]", "shard:a100:4(IDX:0)", "gpu:a100:1,gpu:t4:1,shard:12(S:0)", [(0, 4, 8)]),
        ("n1", "shard:4(IDX:0)", "gpu:2,shard:12", [(0, 4, 8)]),
        ("n1", "shard:t4:2(IDX:1)", "gpu:a100:1,gpu:t4:1,shard:a100:8,shard:t4:4", [(1, 2, 4)]),
        # Since 23.11.
        ("n1", "shard:2(0/8,2/4)", "gpu:2,shard:12", [(1, 2, 4)]),
        ("n1", "shard:5(3/8,2/4)", "gpu:2,shard:12", [(0, 3, 8), (1, 2, 4)]),
        ("n1", "shard:a100:3(3/8,0/4),shard:t4:2(0/8,2/4)", "", [(0, 3, 8), (1, 2, 4)]),
        ("n1", "gpu:1(IDX:0)", "gpu:1,shard:16", []),
        ("n1", "", "gpu:1,shard:16", []),
        ("n2", "shard:4(IDX:0)", "gpu:1,shard:16", []),
    ],
)
def test_a_jobs_shards_are_those_of_this_node_and_of_their_card(
    nodes: str, gres: str, node: str, expected: Any
) -> None:
    ask = slurms(JOB.format(nodes=nodes, gres=gres), NODE.format(node))
    assert slurm.of_job(1, ask) == tuple(expected)


@pytest.mark.parametrize(
    ("text", "count"),
    [("1K", 1024), ("2k", 2048), ("1KiB", 1024), ("1KB", 1000), ("1M", 1 << 20), ("16", 16)],
)
def test_slurms_numbers_have_suffixes(text: str, count: int) -> None:
    assert list(slurm.items(f"gpu:tesla:2(S:0-1),shard:{text}")) == [
        ("gpu", 2, "S:0-1"),
        ("shard", count, ""),
    ]
    assert list(slurm.items(f"shard:tesla:{text}")) == [("shard", count, "")]


@pytest.mark.parametrize(
    ("gres", "node", "why"),
    [
        ("shard:4(IDX:0-1)", "gpu:2,shard:32", "shards of several cards"),
        ("shard:4", "gpu:1,shard:16", "no index"),
        ("shard:4(IDX:2)", "gpu:3,shard:17", "of card 2 of node n1, and says of none"),
        ("shard:4X(IDX:0)", "gpu:1,shard:16", "'4X' is no number"),
    ],
)
def test_shards_whose_card_is_not_told_are_refused(gres: str, node: str, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        slurm.of_job(1, slurms(JOB.format(nodes="n1", gres=gres), NODE.format(node)))


def test_shards_are_their_part_of_memory_and_of_the_compute_as_asked() -> None:
    quarter = (slurm.Shards(1, 4, 16),)
    granted = admit(slurm.request(quarter, "quota"), T4)
    assert isinstance(granted, Grant)
    (card,) = granted.cards
    assert (card.index, card.memory_bytes, card.quota) == (1, (15109 - 450) * MIB // 4, 25)
    weighted = admit(slurm.request(quarter, "weight"), T4)
    assert isinstance(weighted, Grant)
    assert (weighted.cards[0].weight, weighted.cards[0].quota) == (4, None)
    with pytest.raises(RequestError, match="compute='both': write quota or weight"):
        slurm.request(quarter, "both")


def test_a_job_has_its_own_part_of_each_of_several_cards() -> None:
    found = slurm.request((slurm.Shards(0, 3, 8), slurm.Shards(1, 2, 4)), "quota")
    granted = admit(found, T4)
    assert isinstance(granted, Grant)
    assert [(card.index, card.quota) for card in granted.cards] == [(0, 37), (1, 50)]
    with pytest.raises(RequestError, match=r"1 of 1024 .*: ask for 11 or more, or .*weight"):
        slurm.request((slurm.Shards(0, 1, 1024),), "quota")


def filled(requests: Sequence[Request], card: Card) -> Card:
    """The card with all of them on it, each of which is granted all that it asks for."""
    for number, request in enumerate(requests):
        granted = admit(request, (card,))
        assert isinstance(granted, Grant), (number, granted)
        (part,) = granted.cards
        assert part.memory_bytes is not None and part.memory_bytes == part.asked_bytes
        card = card._replace(
            allocated_bytes=card.allocated_bytes + part.memory_bytes,
            free_weight=card.free_weight - (part.weight or 1),
            tenants=(*card.tenants, Tenant(str(number), part.quota, part.quota_min)),
        )
    return card


#: Parts of a whole, such as 3, 1, 4 of 8; and a card whose driver keeps something.
WHOLES = st.lists(st.integers(1, 40), min_size=1, max_size=40)
CARDS = st.builds(
    lambda total, kept: Card(0, "GPU-0", total, kept, max_inst=4096, free_weight=4096),
    st.integers(4 << 30, 200 << 30),
    st.integers(0, 1 << 30),
)


@given(WHOLES, CARDS, st.sampled_from(["quota", "weight"]))
def test_all_shards_of_a_card_fit_on_it(parts: list[int], card: Card, compute: str) -> None:
    of = sum(parts)
    jobs = [slurm.Shards(0, n, of) for n in parts if compute == "weight" or 100 * n >= of]
    filled([slurm.request((job,), compute) for job in jobs], card)


def test_a_program_of_slurms_that_fails_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho 'Invalid job id specified' >&2\nexit 1\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(RequestError, match="scontrol show job -d 7: Invalid job id"):
        slurm.run("scontrol", "show", "job", "-d", "7")


# ---- Ray


def test_a_worker_asks_for_what_ray_gave_it() -> None:
    cards = ray.assigned({"CPU": [(0, 1.0)], "GPU": [(1, 0.3)]}, ["1"])
    words = ray.command(cards, 42, {"PYCGPU_ATTACH": "sudo -n /opt/cgpu attach"})
    assert words == [
        *("sudo", "-n", "/opt/cgpu", "attach", "--name", "ray-42", "--gpu", "1"),
        *("--mem", "30%", "--quota", "30", "42"),
    ]


def test_a_worker_of_a_group_asks_for_it_and_is_led_to_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "_attached", None)
    monkeypatch.setattr(os, "environ", {"PYCGPU_GROUP": "chat", "PYCGPU_ATTACH": "attach"})
    asked: list[list[str]] = []
    ray.join((("0", 0.3),), asked.append)
    assert asked[0][:3] == ["attach", "--group", "chat-0"]
    assert asked[0][-4:-1] == ["30%", "--quota", "30"]
    assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "/run/cgpu/groups/chat-0/pipe"
    assert os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"


def ray_request(part: float) -> Request:
    """What the helper that a worker starts asks for."""
    words = ray.command((("0", part),), 42, {"PYCGPU_ATTACH": "attach"})
    options = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    found = cgpu.parse(
        {"CGPU_GPU": "0", "CGPU_MEM": options["--mem"], "CGPU_QUOTA": options["--quota"]}
    )
    assert found is not None
    return found


@pytest.mark.parametrize("workers", [3, 6, 7, 13, 15, 17, 18, 20])
def test_workers_that_divide_a_card_all_fit(workers: int) -> None:
    requests = [ray_request(1 / workers)] * workers
    card = filled(requests, T4[0])
    assert card.free_bytes < T4[0].usable_bytes / 100


@given(WHOLES, CARDS)
def test_fractions_that_add_up_to_one_fit(parts: list[int], card: Card) -> None:
    shares = [part / sum(parts) for part in parts if part / sum(parts) >= 0.01]
    filled([ray_request(share) for share in shares], card)


def test_engines_that_count_parts_of_a_card_count_those_of_the_real_one() -> None:
    """What else a card promises is for others beside them; Slurm and Ray give a card once."""
    overcommitted = T4[0]._replace(overcommit_ratio=300)
    shards = slurm.request((slurm.Shards(0, 8, 16),), "quota")
    for request in (shards, ray_request(0.5)):
        given_bytes = T4[0].usable_bytes // 2 & -MIB
        held = filled([request], overcommitted)
        assert filled([request], T4[0]).allocated_bytes & -MIB == given_bytes
        assert held.allocated_bytes & -MIB == given_bytes
        # All that the card has is still there for somebody else.
        whole = Request("test", (0,), (CardShare(MemoryBytes(T4[0].usable_bytes)),))
        filled([whole], held)
        assert not isinstance(admit(whole, (T4[0]._replace(allocated_bytes=given_bytes),)), Grant)


def test_a_fraction_below_what_compute_is_counted_in_is_refused() -> None:
    words = ray.command((("0", 0.29),), 42, {"PYCGPU_ATTACH": "x"})
    assert words[-4:-1] == ["29%", "--quota", "29"]
    with pytest.raises(RequestError, match=r"num_gpus=0.005 of card 0: the least is 0.01"):
        ray.command((("0", 0.005),), 42, {})


def test_a_placement_groups_bundle_counts_once() -> None:
    resources = {"GPU_group_0_1f00": [(0, 0.5)], "GPU_group_1f00": [(0, 0.5)], "bundle_1f00": []}
    assert ray.assigned(resources, ["0"]) == (("0", 0.5),)


def test_a_card_has_the_name_that_the_nodes_own_choice_gives_it() -> None:
    assert ray.assigned({"GPU": [(0, 0.3)]}, ["GPU-1f"]) == (("GPU-1f", 0.3),)
    with pytest.raises(RequestError, match="which is which cannot be told"):
        ray.assigned({"GPU": [(0, 1.0), (1, 0.5)]}, ["2", "3"])


def test_whole_cards_are_left_alone_and_a_second_part_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "_attached", None)
    asked: list[list[str]] = []
    ray.join((("0", 1.0),), asked.append)
    assert asked == []
    ray.join((("0", 0.3),), asked.append)
    ray.join((("0", 0.3),), asked.append)
    assert len(asked) == 1
    with pytest.raises(RequestError, match="use max_calls=1"):
        ray.join((("0", 0.5),), asked.append)


def test_a_jobs_own_setup_hook_is_not_lost() -> None:
    setup = "pycgpu.batch.ray.setup"
    assert ray.hook(None) == {"worker_process_setup_hook": setup}
    assert ray.hook({"pip": ["x"]}) == {"pip": ["x"], "worker_process_setup_hook": setup}
    with pytest.raises(RequestError, match=r"my.setup.*call pycgpu.batch.ray.setup\(\) in it"):
        ray.hook({"worker_process_setup_hook": "my.setup"})


@pytest.mark.parametrize(
    ("text", "why"),
    [("echo error card 0 is full", "card 0 is full"), ("exit 3", "gave no answer")],
)
def test_a_worker_that_is_refused_says_why(text: str, why: str) -> None:
    with pytest.raises(CgpuError, match=f"no part of a card: .*{why}"):
        ray.ask(["sh", "-c", text])


def test_who_asks_where_no_door_is_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pycgpu.tree.procfs.doors", lambda prefix="/": ())
    out = io.StringIO()
    request = slurm.request((slurm.Shards(0, 1, 16),), "quota")
    attach.serve("slurm-1", request, os.getpid(), None, io.StringIO(), out)
    assert out.getvalue().startswith("error ") and out.getvalue().count("\n") == 1


@pytest.mark.parametrize("door", ["module", "agent"])
def test_a_part_is_not_given_while_somebody_else_is_admitted(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two who ask at once would both find the card's last percent."""
    tree = CoreTree(tmp_path / "tree")
    monkeypatch.setattr(lock, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(lock, "LOCK_TIMEOUT_S", 0.05)
    request = slurm.request((slurm.Shards(0, 1, 16),), "quota")
    with lock.Admission(), pytest.raises(CgpuError, match="is held by another"):
        if door == "module":
            attach._by_module("slurm-1", request, "/sys/fs/cgroup/x", str(tree.root), DEFAULT)
        else:
            attach._join("slurm-1", request, os.getpid(), 0, 0, DEFAULT, None)


# ---- who may attach what

MINE = 65534


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """An agent's tree, with the container `theirs`; what it is asked for is listed."""
    tree = CoreTree(tmp_path / "tree", [(16 << 30, 0)], features=("GATE",))
    tree.create("theirs", "gpu=0,mem=max")
    tree.write()
    asked: list[dict[str, Any]] = []

    def ask(message: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        asked.append(message)
        return {"ok": True}

    monkeypatch.setattr(lock, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(client, "ask", ask)
    monkeypatch.setattr(procfs, "USER_DOOR_SOCKET", str(tree.root))
    monkeypatch.setattr(procfs, "find_root", lambda: str(tree.root))
    monkeypatch.setattr(procfs, "is_users", lambda root: True)
    # This machine has no driver, whose nodes a tenant would find.
    monkeypatch.setattr(device_nodes, "ensure", lambda cards: [])
    return asked


@pytest.fixture
def owned() -> Iterator[subprocess.Popen[str]]:
    """A process of another user, with a listener, whose number it has printed, and /dev/null."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it becomes another user, and its descriptor is taken")
    code = (
        "import os, sys; from pycgpu.agent import filter; listener = filter.install();"
        f" os.setgroups([]); os.setresgid({MINE}, {MINE}, {MINE});"
        f" os.setresuid({MINE}, {MINE}, {MINE});"
        " print(listener, os.open('/dev/null', 0), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def attached(pid: int, name: str, number: str, **options: Any) -> str:
    """The helper's last word to a process that says *number*."""
    out = io.StringIO()
    request = slurm.request((slurm.Shards(0, 1, 16),), "quota")
    attach.serve(name, request, pid, None, io.StringIO(f"{number}\n"), out, **options)
    return out.getvalue().splitlines()[-1]


def test_under_sudo_nobody_attaches_anothers_process_or_joins_anothers_container(
    agent: list[dict[str, Any]], owned: subprocess.Popen[str]
) -> None:
    assert owned.stdout is not None
    listener, _ = owned.stdout.readline().split()
    other = f"error process {owned.pid} is not yours alone"
    assert attached(owned.pid, "mine", listener, uid=MINE - 1).startswith(other)
    # the agent itself, with every container's listener
    assert attached(os.getpid(), "mine", listener, uid=MINE).startswith("error process")
    assert "container of this name exists" in attached(owned.pid, "theirs", listener, uid=MINE)
    assert agent == []
    assert attached(owned.pid, "mine", listener, uid=MINE) == "ok"
    assert attached(owned.pid, "theirs", listener) == "ok"
    assert [message["op"] for message in agent] == ["run", "join"]


@pytest.mark.parametrize("uid", [None, MINE])
def test_what_is_no_listener_never_comes_to_the_agent(
    agent: list[dict[str, Any]], owned: subprocess.Popen[str], uid: int | None
) -> None:
    """Its threads would ask it for calls without end."""
    assert owned.stdout is not None
    _, null = owned.stdout.readline().split()
    for number in (null, "999", "\u0663", str(1 << 32), "9" * 5000, "-1", ""):
        said = attached(owned.pid, "mine", number, uid=uid)
        assert said.startswith("error ") and len(said) < 200, said
    assert agent == []


def test_a_user_who_is_another_for_a_moment_is_not_who_called(
    agent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of root's that has the caller's effective user for now."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    code = f"import os, sys; os.seteuid({MINE}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert "is not yours alone" in attached(process.pid, "mine", "3", uid=MINE)
        process.kill()


def test_a_maximum_holds_for_who_is_attached(agent: list[dict[str, Any]]) -> None:
    allowed = permit.parse({"maximum": {"quota": 5}})
    said = attached(os.getpid(), "slurm-1", "3", allowed=allowed)
    assert said == (
        f"error card 0: quota 6 %, a container may have 5 % on this node ({permit.PATH})"
    )
    assert agent == []


# ---- Volcengine's settings


@pytest.mark.parametrize(("text", "memory_mib"), [(SPARK, 4096), (RAY, 4096), (CUSTOM, 1000)])
def test_the_documents_own_settings_are_a_part_of_one_card(text: str, memory_mib: int) -> None:
    found = settings.request(settings.parse(text))
    granted = admit(found, T4)
    assert isinstance(granted, Grant)
    (card,) = granted.cards
    assert (card.memory_bytes, card.quota, card.policy) == (memory_mib * MIB, 30, MIXED)


def test_without_a_part_the_number_of_cards_asks_for_whole_ones() -> None:
    text = "set serverless.custom.job.gpu.enabled=true; set serverless.custom.job.task.gpus=2;"
    found = settings.request(settings.parse(text))
    assert found.count == 2 and found.shares[0].whole


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing is asked for"),
        ("emr.serverless.mgpu.core=30", "without emr.serverless.mgpu.memory; give both"),
        ("emr.serverless.mgpu.cores=30;", "mgpu.cores: unknown"),
        ("serverless.ray.worker.gpu.count=1", "gpu.count: unknown"),
        (RAY.replace("amount=1", "amount=2"), "amount='2': .* are of one card"),
        (RAY.replace("amount=1", "amount=0"), "write 1 to 8 cards"),
        (RAY.replace("nvidia.com", "amd.com"), "vendor='amd.com': only nvidia.com"),
        (CUSTOM.replace("true", "false"), "gpu.enabled='false': write true"),
        (CUSTOM.replace("true", "yes"), "gpu.enabled='yes'"),
        ("set serverless.custom.job.gpu.enabled=false", "asks for no card"),
        ("serverless.ray.worker.gpu.amount=1;serverless.custom.job.task.gpus=2", "write the same"),
        (f"{RAY}emr.serverless.mgpu.core=40", "mgpu.core is given as '30' and as '40'"),
        ("a.b=1\nset a.b=1; what", "line 2 is no setting: 'set a.b=1; what'"),
        ("a.b=1\n'a.b' what", "line 2 is no setting: \"'a.b' what\""),
        ("a.b=1; emr.serverless.mgpu.core=30", "mgpu.core stands in the value of a.b: write it"),
        ("a.b=\\u12", r"line 1: Invalid .u escape sequence: .u12, which Spark cannot read either"),
        (RAY.replace("core=30", "core=100"), "5 to 99 percent"),
    ],
)
def test_settings_that_cannot_be_are_refused(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        settings.request(settings.parse(text))


# ---- Spark


PART = "emr.serverless.mgpu.core=30; emr.serverless.mgpu.memory=4096;\n"


def read(text: str) -> dict[str, str]:
    """A file of Spark's as Spark reads it."""
    found: dict[str, str] = javaproperties.loads(text)
    return {key: value.strip() for key, value in found.items()}


def test_a_jobs_settings_become_sparks_own() -> None:
    found = read(spark.configuration(SPARK))
    assert not [key for key in found if not key.startswith("spark.")]
    assert found["spark.task.resource.gpu.amount"] == "0.1"
    assert found["spark.executorEnv.CGPU_MEM"] == "4096MiB"
    assert found["spark.executorEnv.CGPU_QUOTA"] == "30"
    assert found["spark.executorEnv.JAVA_HOME"] == "/usr/local/lib/cgpu/java"
    with pytest.raises(RequestError, match=r"JAVA_HOME is '/opt/java'"):
        spark.configuration(f"{SPARK}spark.executorEnv.JAVA_HOME /opt/java\n")


@pytest.mark.parametrize("text", [SPARK, RAY, CUSTOM])
def test_a_document_that_lost_its_ends_of_lines_says_the_same(text: str) -> None:
    assert settings.parse(" ".join(text.split("\n"))) == settings.parse(text)
    assert settings.parse(f"\n{' '.join(text.split())}\n") == settings.parse(text)


def test_a_remark_puts_out_of_force_what_follows_it() -> None:
    for text in ("# emr.serverless.mgpu.core=30;", "#'emr.serverless.mgpu.core': '30',\n# x=y\n"):
        assert settings.parse(text) == {}
    one = "# GPU 'spark.a': '1', #'spark.b': '2', 'spark.c': '3', # end"
    assert settings.parse(one) == {"spark.a": "1", "spark.c": "3"}
    assert settings.parse("set a.b = 'x; y'; -- set c.d=1;\n") == {"a.b": "x; y"}
    assert settings.parse('{"emr.serverless.mgpu.core": 30, "a": "b"}') == {
        "emr.serverless.mgpu.core": "30",
        "a": "b",
    }


#: What a spark-defaults.conf may hold, and each was lost or refused, or its like could be.
DEFAULTS = r"""# Default system properties, driver相关参数
! emr.serverless.mgpu.core 99
spark.jars.packages   g:one:1,g:two:2
spark.executor.extraJavaOptions -Da=1,-Db=2 -Dc="x y" -Dd='z'; -De # no remark
spark.sql.extensions A,B
spark.sql.x='quoted'
spark.a = b = c
spark.b:c
	spark.c\ d\:e  f \
    g,\
    # h
spark.empty
spark.last 1
spark.last 2
spark.unicode \u00e4 ä {}
other.key = kept
"""


def test_what_spark_defaults_may_hold_stays_to_the_last_character() -> None:
    before = read(DEFAULTS)
    assert before["spark.c d:e"] == "f g,# h"
    for ending in ("\n", "\r\n", "\r"):
        defaults = DEFAULTS.replace("\n", ending)
        found = spark.configuration(defaults + PART)
        assert found.startswith(defaults)
        after = read(found)
        assert {key: after[key] for key in before} == before
        assert after["spark.executorEnv.CGPU_QUOTA"] == "30"


#: Signs that mean something to Spark, and some that do not.
SIGNS = st.text("ab.=:#!\\ \t\f\n\r'\";,{}-$u\u00e4\u2028", max_size=40)


@given(SIGNS, SIGNS)
@example("", ":\\\r")
@example("spark.x a,\\\n'b': 'c'", "spark.y \\")
def test_any_file_of_sparks_is_what_it_was(first: str, last: str) -> None:
    """But for lines of the documents' forms, and those that Spark cannot read."""
    text = f"{first}\n\n{PART}{last}"
    try:
        lines = written.lines(text)
    except RequestError:
        return
    assert "".join(line.source for line in lines) == text
    found = spark.configuration(text)
    ours = [line for line in lines if not line.is_spark]
    at = 0
    for line in lines:
        if line.is_spark:
            assert found[at:].find(line.source) >= 0
            at = found.index(line.source, at) + len(line.source)
    after = read(found)
    assert {k: v for k, v in after.items() if k.startswith("spark.executorEnv.")} == {
        "spark.executorEnv.CGPU_MEM": "4096MiB",
        "spark.executorEnv.CGPU_QUOTA": "30",
        "spark.executorEnv.JAVA_HOME": "/usr/local/lib/cgpu/java",
    }
    if len(ours) == 1:
        before = {k: v for k, v in read(text).items() if not k.startswith("emr.")}
        assert {key: after.get(key) for key in before} == before


@given(st.dictionaries(st.from_regex(r"spark\.[a-z.]{1,9}", fullmatch=True), SIGNS, max_size=5))
def test_what_a_document_says_of_spark_is_what_spark_reads(said: dict[str, str]) -> None:
    said = {k: v for k, v in said.items() if not {"'", "\n", "\r", "\u2028"} & set(v)}
    text = "".join(f"'{key}': '{value}',\n" for key, value in said.items())
    found = read(spark.configuration(text + PART))
    assert {key: found[key] for key in said} == {k: v.strip() for k, v in said.items()}


def test_a_file_that_is_no_text_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "job.conf"
    path.write_bytes(b"spark.name \xff\xfe\r\n" + PART.encode())
    words = [sys.executable, "-m", "pycgpu.cli.main", "spark-conf", str(path)]
    run = subprocess.run(words, capture_output=True, check=True)
    assert run.stdout.startswith(b"spark.name \xff\xfe\r\nspark.executorEnv.CGPU_MEM 4096MiB\n")


ARGUMENTS = ["-cp", "x", "CoarseGrainedExecutorBackend", "--executor-id", "3", "--app-id", "app-1"]


def resources(*addresses: str) -> str:
    one = {"id": {"componentName": "spark.executor", "resourceName": "gpu"}, "addresses": addresses}
    return json.dumps([one])


def test_an_executor_gets_the_card_that_spark_gave_it() -> None:
    environment = {"CGPU_MEM": "4096MiB", "CGPU_QUOTA": "30", "CGPU_IDLE_PARK": "5m", "HOME": "/"}
    name, found, group = spark.executor(ARGUMENTS, environment, resources("1"))
    assert (
        name == "spark-app-1-3"
        and group is None
        and found.selectors == (1,)
        and found.idle_park_s == 300
    )
    (share,) = found.shares
    assert (share.memory, share.quota, share.policy) == (MemoryBytes(4096 * MIB), 30, MIXED)


def test_executors_on_a_card_join_the_group_of_the_jobs_name() -> None:
    environment = {"CGPU_MEM": "4096MiB", "CGPU_QUOTA": "30", "CGPU_GROUP": "etl"}
    _, found, group = spark.executor(ARGUMENTS, environment, resources("1"))
    assert (group, found.group, found.shares[0].quota) == ("etl-1", None, 30)
    assert "${CGPU_GROUP:-}" in spark.launcher("/java", ["cgpu"])


def test_an_executors_group_is_the_jobs_users_and_the_operators_tables_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: dict[str, Any] = {}
    monkeypatch.setattr(launch, "run", lambda *words, **more: started.update(more))
    path = tmp_path / "resources"
    path.write_text(resources("0"))
    path.chmod(0o644)
    for parent in [tmp_path, *list(tmp_path.parents)[:2]]:
        parent.chmod(0o755)
    words = ("spark-java", "--java", "/bin/true", "--", "--resourcesFile", path)
    asked = {"CGPU_MEM": "1GiB", "CGPU_GROUP": "etl"}
    assert program.run(main.app, *words, **asked).returncode == 0
    assert started["group"] == Group("etl-0", 0, policy_asked=False)
    if os.geteuid() == 0:
        who = {"SUDO_UID": str(MINE), "SUDO_GID": str(MINE)}
        assert program.run(main.app, *words, **asked, **who).returncode == 0
        assert started["group"].uid == MINE
        found = program.run(main.app, *words, **asked | {"CGPU_GROUP": "slurm-7.x"}, **who)
        assert (
            found.returncode == 125 and "CGPU_GROUP slurm-7.x-0: root alone gives" in found.stderr
        )


# ---- a Slurm job's group


def slurm_task(monkeypatch: pytest.MonkeyPatch, shards: Any, *words: str) -> Any:
    """What `cgpu slurm-task` says of job 7, or what it asks for."""
    served: dict[str, Any] = {}
    monkeypatch.setattr(slurm, "of_job", lambda job: shards)
    monkeypatch.setattr(attach, "serve", lambda *given, **more: served.update(more))
    found = program.run(main.app, "slurm-task", "7", str(os.getpid()), *words)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip() or served


def test_a_job_joins_a_group_of_its_own_and_the_operators_tables_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quarter = (slurm.Shards(0, 4, 16),)
    words = ("--group", "chat", "--uid", "1000")
    assert slurm_task(monkeypatch, quarter)["joins"] is None
    joins = slurm_task(monkeypatch, quarter, *words)["joins"]
    assert joins == Group("slurm-7.chat", 1000, policy_asked=False, single=True)
    request = slurm.request(quarter, "quota")
    (own,) = joins.own(request).shares
    assert own.quota is None and own.memory.on(16 << 30) == (4 << 30) - SERVER_BYTES
    tables = permit.parse({"group": [{"name": "chat", "users": [1001]}]})
    monkeypatch.setattr(permit, "load", lambda: tables)
    said = slurm_task(monkeypatch, quarter, *words)
    assert said.startswith("error group chat: ") and "does not let user 1000 join" in said


@pytest.mark.parametrize(
    ("shards", "name", "why"),
    [
        ((), "chat", "CGPU_GROUP=chat: job 7 has no shards of a card here"),
        ((slurm.Shards(0, 4, 16),), "a/b", "CGPU_GROUP='a/b': write 1 to 40 letters"),
        ((slurm.Shards(0, 4, 16),), "x" * 41, "write 1 to 40 letters"),
    ],
)
def test_a_job_that_can_have_no_group_is_told_why(
    monkeypatch: pytest.MonkeyPatch, shards: Any, name: str, why: str
) -> None:
    said = slurm_task(monkeypatch, shards, "--group", name)
    assert said.startswith("error ") and why in said


@pytest.mark.parametrize("given", [None, resources(), resources("0", "1")])
def test_an_executor_without_its_one_card_is_refused(given: str | None) -> None:
    with pytest.raises(RequestError, match=r"spark.executor.resource.gpu.amount is to be 1"):
        spark.executor(ARGUMENTS, {"CGPU_MEM": "1G"}, given)
    with pytest.raises(RequestError, match="not as known"):
        spark.executor(ARGUMENTS, {"CGPU_MEM": "1G"}, '[{"id": 1}]')


@pytest.mark.parametrize(
    "asked",
    [{"CGPU_PRIORITY": "15"}, {"CGPU_WEIGHT": "20"}, {"CGPU_POLICY": "online"},
     {"CGPU_QUOTA_MIN": "90"}],
)  # fmt: skip
def test_a_jobs_author_asks_for_no_more_than_an_image_may(asked: dict[str, str]) -> None:
    environment = {"CGPU_MEM": "max", **asked}
    with pytest.raises(RequestError, match=f"{next(iter(asked))}=.*allow .* in {permit.PATH}"):
        spark.executor(ARGUMENTS, environment, resources("1"))
    everything = permit.parse({"environment": {"allow": ["*"]}})
    spark.executor(ARGUMENTS, environment, resources("1"), everything)
    nothing = permit.parse({"environment": {"deny": ["*"]}})
    with pytest.raises(RequestError, match="root alone asks for anything"):
        spark.executor(ARGUMENTS, {"CGPU_MEM": "1GiB"}, resources("1"), nothing)


def test_a_limit_that_is_mistyped_for_an_executor_is_not_lost() -> None:
    with pytest.raises(RequestError, match="CGPU_MEMORY='1GiB': unknown"):
        spark.executor(ARGUMENTS, {"CGPU_MEMORY": "1GiB", "CGPU_QUOTA": "30"}, resources("1"))


SECRET = "root:$6$secret"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (SECRET.encode(), "Permission denied"),
        (b"\xff\xfe\0", "Permission denied"),
        (None, "No such file or directory"),
        ("/dev/zero", "no regular file"),
        ("fifo", "no regular file"),
        ("/", "Is a directory"),
    ],
)
def test_under_sudo_a_file_is_read_with_the_rights_of_who_named_it(
    tmp_path: Path, content: Any, said: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it is another user for a moment")
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:2]:
        parent.chmod(0o755)
    path = tmp_path / "resources"
    if isinstance(content, bytes):
        path.write_bytes(content)
        path.chmod(0o600)
    elif content == "fifo":
        os.mkfifo(path, 0o644)
    elif content is not None:
        path = Path(content)
    for words in (
        ("spark-java", "--java", "/bin/true", "--", "--resourcesFile", path),
        ("run", "--settings", path, "--", "true"),
    ):
        found = program.run(main.app, *words, SUDO_UID=str(MINE), SUDO_GID=str(MINE))
        assert found.returncode == 125
        assert found.stderr.endswith(f"{path}: {said}\n") and found.stderr.count("\n") == 1
    assert (os.geteuid(), os.getegid()) == (0, 0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (SECRET.encode(), "Spark's file of resources (--resourcesFile) is not as known"),
        (b"[" * 100_000, "Spark's file of resources (--resourcesFile) is not as known"),
        (b"\xff\xfe\0", "not text in UTF-8"),
        (b" " * ((1 << 20) + 1), "longer than 1048576 bytes"),
    ],
)
def test_a_file_of_resources_that_is_none_is_told_in_a_line_and_not_quoted(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "resources"
    path.write_bytes(content)
    words = ("spark-java", "--java", "/bin/true", "--", "--resourcesFile", path)
    found = program.run(main.app, *words)
    assert found.returncode == 125
    assert found.stderr.endswith(f"{said}\n") and found.stderr.count("\n") == 1
    assert SECRET not in found.stderr


def test_the_launcher_takes_executors_with_limits_and_no_others(tmp_path: Path) -> None:
    java = tmp_path / "java home"
    java.write_text(spark.launcher("/bin/echo", ["/bin/echo", "cgpu"]))
    java.chmod(0o755)

    def told(*arguments: str, **environment: str) -> str:
        env = {"PATH": os.environ["PATH"], **environment}
        command = [str(java), *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True).stdout

    assert told("-version", CGPU_MEM="1G") == "-version\n"
    assert told(*ARGUMENTS) == " ".join(ARGUMENTS) + "\n"
    if os.geteuid() == 0:
        expected = f"cgpu spark-java --java /bin/echo -- {' '.join(ARGUMENTS)}\n"
        assert told(*ARGUMENTS, CGPU_MEM="1G") == expected


def test_the_discovery_script_answers_in_sparks_form() -> None:
    run = subprocess.run(["sh", "-c", spark.DISCOVERY_SCRIPT], capture_output=True, text=True)
    found = json.loads(run.stdout)
    assert found["name"] == "gpu"
    assert all(address.isdecimal() for address in found["addresses"])


WORKER = """
import os, sys, threading
from pycgpu.batch import ray

ready, end = threading.Event(), threading.Event()
other = threading.Thread(target=lambda: (ready.set(), end.wait()))
other.start()
ready.wait()
ray.ask([sys.executable, "-c", sys.argv[1], str(os.getpid())])
for task in os.listdir("/proc/self/task"):
    status = open(f"/proc/self/task/{task}/status").read()
    print(next(line for line in status.splitlines() if line.startswith("Seccomp:")).split()[1])
end.set()
other.join()
"""
HELPER = """
import os, sys
from pycgpu.agent import attach, filter

print("filter", filter.program().hex(), flush=True)
pid = int(sys.argv[1])
listener = attach._taken(pid, os.pidfd_open(pid), int(sys.stdin.readline()))
assert os.readlink(f"/proc/self/fd/{listener}") == "anon_inode:seccomp notify"
print("ok", flush=True)
"""


def test_all_threads_of_a_worker_come_under_the_filter_and_root_takes_its_listener() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: another process's descriptor is taken")
    run = subprocess.run(
        [sys.executable, "-c", WORKER, HELPER], capture_output=True, text=True, timeout=60
    )
    assert (run.stdout.split(), run.stderr) == (["2", "2"], "")
