# SPDX-License-Identifier: MIT
"""The OCI hook on a tree of files: what it writes, what it refuses, what it logs."""

import ast
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pycgpu
from pycgpu.errors import HookError
from pycgpu.oci import hook, image
from pycgpu.oci.bundle import check_annotations, load_config
from pycgpu.oci.log import KEPT, ROTATE_BYTES, HookLog, shown
from pycgpu.request.model import MIB
from pycgpu.tree import lock, procfs

from .devices import make_devices
from .tree import add_container, make_tree, memory, put

CID = "4f" * 32
EGPU_REFUSED = (
    "EGPU=POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=20480,WEIGHT=10:PGPU=1,MEM=20480,WEIGHT=10"
    ":PGPU=2,MEM=40960,WEIGHT=10"
)
CGROUP2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
CGROUP1 = (
    "31 24 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n"
    "32 24 0:28 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw\n"
)
DEVICES = (
    "Character devices:\n  1 nvidia-uvm\n195 nvidia\n226 drm\n240 nvidia-caps\n\n"
    "Block devices:\n  8 sd\n"
)
REPOSITORY = Path(__file__).parents[2]


class Engine:
    """What an engine gives to a hook, and what comes back."""

    def __init__(self, directory: Any) -> None:
        self.directory = directory
        self.root = make_tree(directory / "cgpu_km", cards=4, total_bytes=32510 * MIB)
        self.log = directory / "hook.log"
        self.lock = directory / "run" / "lock"
        self.proc = directory / "proc"
        self.process("NSpid:\t4711\t1\n")
        self.dev = make_devices(directory, listed=DEVICES)["dev"]
        (directory / "bundle").mkdir()

    def call(
        self,
        *env: Any,
        stage: str = "createRuntime",
        state: Any = None,
        config: Any = None,
        log: HookLog | None = None,
    ) -> Any:
        config = {"process": {"env": list(env)}} if config is None else config
        (self.directory / "bundle" / "config.json").write_text(json.dumps(config))
        if state is None:
            state = self.state()
        return hook.run(
            stage,
            state if isinstance(state, str) else json.dumps(state),
            log=log or HookLog((str(self.log),)),
            root=str(self.root),
            lock=str(self.lock),
            proc=str(self.proc),
            dev=self.dev,
            policy=str(self.directory / "policy.toml"),
        )

    def process(self, status: Any, cgroup: str = "0::/a/b\n", mounts: Any = CGROUP2) -> None:
        """Say what /proc tells of the container's first process."""
        for name, text in (
            ("4711/status", f"Name:\trunc\n{status}"),
            ("4711/cgroup", cgroup),
            ("self/mountinfo", mounts),
        ):
            (self.proc / name).parent.mkdir(parents=True, exist_ok=True)
            (self.proc / name).write_text(text)

    def state(self, **fields: Any) -> Any:
        return {
            "ociVersion": "1.0.2-dev",
            "id": CID,
            "status": "creating",
            "pid": 4711,
            "bundle": str(self.directory / "bundle"),
        } | fields

    @property
    def written(self) -> Any:
        return (self.root / "inst_ctl").read_text()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_a_request_becomes_one_write(engine: Any) -> None:
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=2") == 0
    assert engine.written == f"create {CID} pid=4711 gpu=2,mem=4294967296\n"
    assert "granted card 2: 4096 MiB" in engine.log.read_text()


def test_a_container_whose_cuda_could_not_start_is_refused_with_the_reason(engine: Any) -> None:
    (Path(engine.dev) / "nvidia-uvm").unlink()
    (engine.proc / "devices").write_text(DEVICES.replace("  1 nvidia-uvm\n", ""))
    assert engine.call("CGPU_MEM=4GiB") == 1
    assert engine.written == ""
    assert "dev/nvidia-uvm is missing, without which CUDA cannot start" in engine.log.read_text()


def test_a_card_with_instances_of_mig_is_refused(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "PROC", str(engine.proc))
    top = engine.proc / "driver/nvidia/capabilities/gpu0/mig"
    top.mkdir(parents=True)
    assert engine.call("CGPU_MEM=1GiB", "CGPU_GPU=0") == 0
    (top / "gi1").mkdir()
    (engine.root / "inst_ctl").write_text("")
    assert engine.call("CGPU_MEM=1GiB", "CGPU_GPU=0") == 1
    assert engine.written == ""
    assert "card 0: it is in MIG mode" in engine.log.read_text()


def test_a_device_that_a_reload_of_systemd_takes_is_told(engine: Any) -> None:
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 0
    assert (Path(engine.dev) / "char/1:5").resolve() == Path("/dev/zero")
    assert "daemon-reload" not in engine.log.read_text()
    for link in (Path(engine.dev) / "char").iterdir():
        link.unlink()
    (Path(engine.dev) / "char").rmdir()
    (Path(engine.dev) / "char").write_text("")
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 0
    assert "may lose a device at a daemon-reload: " in engine.log.read_text()


@pytest.mark.parametrize(
    "state",
    [
        {"status": "created", "root": "/r", "owner": "root"},  # crun
        {"bundlePath": "BUNDLE", "bundle": None},
        {"annotations": {"a": "b"}},
    ],
)
def test_the_states_of_different_engines_are_understood(engine: Any, state: Any) -> None:
    state = engine.state(**state)
    if state["bundle"] is None:
        state["bundlePath"] = str(engine.directory / "bundle")
        del state["bundle"]
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=2", state=state) == 0
    assert engine.written.startswith("create ")


def test_without_a_request_nothing_is_written_or_logged(engine: Any) -> None:
    assert engine.call("PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all") == 0
    assert engine.written == ""
    assert not engine.log.exists()


def test_without_a_request_the_tree_may_be_absent(engine: Any) -> None:
    engine.root = engine.directory / "none"
    assert engine.call("PATH=/bin") == 0


def test_with_a_request_an_absent_tree_refuses(
    engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.root = engine.directory / "none"
    assert engine.call("CGPU_MEM=4GiB") == 1
    assert "modprobe cgpu_km" in capsys.readouterr().err


def test_annotations_ask_too(engine: Any) -> None:
    config = {
        "annotations": {
            "vke.volcengine.com/mgpu-core": "30",
            "vke.volcengine.com/mgpu-memory": "1024",
        },
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=1"]},
    }
    assert engine.call(config=config) == 0
    assert "gpu=1,mem=1073741824,quota=30" in engine.written


@pytest.mark.parametrize(
    "key", ["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"]
)
def test_the_container_that_holds_a_pods_namespaces_takes_no_share(engine: Any, key: str) -> None:
    asked = {"cgpu.io/CGPU_MEM": "1GiB", "cgpu.io/CGPU_GPU": "0"}
    for kind, commands in (("sandbox", 0), ("container", 1)):
        assert engine.call(config={"annotations": {**asked, key: kind}}) == 0
        assert engine.written.count("create") == commands


def test_no_pod_makes_its_containers_sandboxes_by_the_mark_of_another_engine(engine: Any) -> None:
    """CRI-O puts a pod's annotations into its containers, and its own mark besides."""
    config = {
        "annotations": {
            "cgpu.io/CGPU_MEM": "1GiB",
            "io.kubernetes.cri.container-type": "sandbox",
            "io.kubernetes.cri-o.ContainerType": "container",
        },
        "process": {"env": ["CGPU_GPU=0"]},
    }
    assert engine.call(config=config) == 0
    assert engine.written.startswith(f"create {CID} ")


OWN_DEVICE = {
    "path": "/usr/lib/cgpu/cgpu-hook",
    "args": [
        *("cgpu-hook", "--pod", "uid-1", "--set", "CGPU_GPU=1", "--set", "CGPU_MEM=1GiB"),
        "createRuntime",
    ],
}


@pytest.mark.parametrize(
    ("annotations", "policy", "said"),
    [
        ({}, "", None),
        ({"io.kubernetes.cri.container-type": "sandbox"}, "", None),
        ({"cgpu.io/CGPU_GPU": "0", "cgpu.io/CGPU_MEM": "max"}, "", None),
        ({"cgpu.io/CGPU_DISABLE": "1"}, "", "CGPU_DISABLE would take off"),
        ({"cgpu.io/CGPU_DISABLE": "true"}, '[environment]\nallow = ["*"]', "would take off"),
        ({"io.kubernetes.pod.uid": "uid-1"}, "", None),
        (
            {"io.kubernetes.cri.sandbox-uid": "uid-1", "io.kubernetes.pod.uid": "uid-2"},
            "",
            "made for pod uid-1",
        ),
    ],
)
def test_no_pod_takes_off_the_limits_of_its_device(
    engine: Any, annotations: Any, policy: str, said: str | None, capsys: Any
) -> None:
    (engine.directory / "policy.toml").write_text(policy)
    config = {
        "annotations": annotations,
        "hooks": {"createRuntime": [OWN_DEVICE]},
        "linux": {"devices": [node(1)]},
    }
    assert engine.call(config=config) == (said is not None)
    if said is None:
        assert engine.written == f"create {CID} pid=4711 gpu=1,{MIB_1024}\n"
    else:
        assert engine.written == ""
        assert said in capsys.readouterr().err


AGENTS = {
    "listenerPath": "/run/cgpu/seccomp.sock",
    "architectures": ["SCMP_ARCH_X86_64"],
    "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_NOTIFY", "args": []}],
}


@pytest.mark.parametrize(
    ("seccomp", "annotations", "reason"),
    [
        (None, {}, "runtime cgpu"),
        ({**AGENTS, "listenerPath": "/tmp/mine"}, {}, "runtime cgpu"),
        ({**AGENTS, "syscalls": []}, {}, "runtime cgpu"),
        (AGENTS, {"run.oci.seccomp_bpf_data": "AAAA"}, "run.oci.seccomp_bpf_data takes"),
        (AGENTS, {"run.oci.seccomp.receiver": "/tmp/mine"}, "run.oci.seccomp.receiver takes"),
        (AGENTS, {"run.oci.seccomp.plugins": "/tmp/mine.so"}, "run.oci.seccomp.plugins takes"),
        (AGENTS, {}, "tree.sock"),
    ],
)
def test_under_the_user_door_only_whose_calls_are_heard_of_is_registered(
    engine: Any,
    capsys: pytest.CaptureFixture[str],
    seccomp: Any,
    annotations: dict[str, str],
    reason: str,
) -> None:
    """The hook alone, by hooks.d or CDI, brings no filter; the last passes, and finds no agent."""
    published = engine.directory / "seccomp.json"
    published.write_text(json.dumps(AGENTS))
    config = {
        "process": {"env": ["CGPU_MEM=4GiB", "CGPU_GPU=0"]},
        "linux": {"seccomp": seccomp},
        "annotations": annotations,
    }
    (engine.directory / "bundle" / "config.json").write_text(json.dumps(config))
    status = hook.run(
        "createRuntime",
        json.dumps(engine.state()),
        log=HookLog((str(engine.log),)),
        root=str(engine.directory / "tree.sock"),
        lock=str(engine.lock),
        proc=str(engine.proc),
        dev=engine.dev,
        policy=str(engine.directory / "policy.toml"),
        seccomp=str(published),
    )
    assert status == 1
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("records", ["containers.json", "volatile-containers.json"])
@pytest.mark.parametrize("manifest", ["manifest", "=bWFuaWZlc3Qtc2hhMjU2OmFi"])
@pytest.mark.parametrize(
    ("annotations", "images", "status"),
    [
        ({"cgpu.io/CGPU_WEIGHT": "4"}, {"cgpu.io/CGPU_WEIGHT": "4"}, 1),
        ({"cgpu.io/CGPU_WEIGHT": "4"}, {"cgpu.io/CGPU_WEIGHT": "9"}, 0),
        ({"cgpu.io/CGPU_WEIGHT": "4"}, {}, 0),
        ({"io.kubernetes.cri.container-type": "sandbox"}, "same", 1),
        ({"nvidia.com/gpumem": "2048"}, "same", 1),
        ({"cgpu.io/CGPU_WEIGHT": "4"}, None, 1),
        ({"org.opencontainers.image.title": "x"}, "same", 0),
        ({"io.kubernetes.cri-o.ContainerType": "container"}, None, 0),
    ],
)
def test_an_annotation_of_podmans_image_is_nobodys_request(
    engine: Any,
    capsys: pytest.CaptureFixture[str],
    records: str,
    manifest: str,
    annotations: dict[str, str],
    images: Any,
    status: int,
) -> None:
    """Podman's storage tells them from those of the command line. None: no such image is there."""
    storage = engine.directory / "storage"
    bundle = storage / "overlay-containers" / CID / "userdata"
    bundle.mkdir(parents=True)
    image = storage / "overlay-images" / "ab12"
    image.mkdir(parents=True)
    if images is not None:
        own = annotations if images == "same" else images
        (image / manifest).write_text(json.dumps({"schemaVersion": 2, "annotations": own}))
    (bundle.parents[1] / records).write_text(
        json.dumps([{"id": "other", "image": "cd"}, {"id": CID, "image": "ab12"}])
    )
    env = [] if "nvidia.com/gpumem" in annotations else ["CGPU_MEM=1GiB"]
    config = {
        "process": {"env": [*env, "NVIDIA_VISIBLE_DEVICES=0"]},
        "annotations": annotations,
    }
    (bundle / "config.json").write_text(json.dumps(config))
    put(engine.root, features="memory\nweights\nslices\ngate\n")
    assert engine.call(state=engine.state(bundle=str(bundle)), config=config) == status
    assert ("image's" in capsys.readouterr().err) == bool(status)


def stored(storage: Path, annotations: dict[str, str]) -> Path:
    """Make a storage with the container and its image; return where Podman has the bundle."""
    (storage / "overlay-images/ab12").mkdir(parents=True)
    (storage / "overlay-images/ab12/manifest").write_text(json.dumps({"annotations": annotations}))
    (storage / "overlay-containers").mkdir()
    (storage / "overlay-containers/containers.json").write_text(
        json.dumps([{"id": CID, "image": "ab12"}])
    )
    return storage / "overlay-containers" / CID / "userdata"


@pytest.mark.parametrize("mark", [{}, {"io.kubernetes.cri-o.ContainerType": "container"}])
def test_podmans_images_are_looked_at_where_its_storage_is_below_run(mark: dict[str, str]) -> None:
    """CRI-O's bundles are there, too; an image may say that its container is one of those."""
    if not os.access("/run", os.W_OK):
        pytest.skip("needs root")
    annotations = {"cgpu.io/CGPU_WEIGHT": "4", **mark}
    with tempfile.TemporaryDirectory(dir="/run") as made:
        bundle = stored(Path(made), annotations)
        bundle.mkdir(parents=True)
        root = f"{made}/overlay/ef34/merged"
        config = {"annotations": annotations, "root": {"path": root}}
        (bundle / "config.json").write_text(json.dumps(config))
        with pytest.raises(HookError, match="is the image's own"):
            check_annotations(str(bundle), load_config(str(bundle)))


@pytest.mark.parametrize(("recorded", "refused"), [(CID, False), ("other", True)])
def test_an_annotation_of_crios_is_its_pods(tmp_path: Path, recorded: str, refused: bool) -> None:
    """Its bundle lies apart from the storage that has the container and its root."""
    annotations = {"cgpu.io/CGPU_WEIGHT": "4"}
    stored(tmp_path / "lib", annotations)
    records = tmp_path / "lib/overlay-containers/containers.json"
    records.write_text(json.dumps([{"id": recorded, "image": "ab12"}]))
    bundle = tmp_path / "run/overlay-containers" / CID / "userdata"
    bundle.mkdir(parents=True)
    config = {"annotations": annotations, "root": {"path": f"{tmp_path}/lib/overlay/ef34/merged"}}
    (bundle / "config.json").write_text(json.dumps(config))
    with pytest.raises(HookError) if refused else contextlib.nullcontext():
        check_annotations(str(bundle), load_config(str(bundle)))


def test_a_refusal_logs_the_cards_that_would_have_fitted_and_that_nothing_was_reserved(
    engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert engine.call(EGPU_REFUSED, "NVIDIA_VISIBLE_DEVICES=0,1,2") == 1
    assert engine.written == ""
    assert capsys.readouterr().err == ("cgpu: card 2: 40960 MiB asked, 32768 MiB on the card\n")
    events = [line.split(" ", 3)[3] for line in engine.log.read_text().splitlines()]
    assert events == [
        "ctyun_egpu: process 4711 asks for a share",
        "would have fitted: card 0: 20480 MiB, quota 10 %",
        "would have fitted: card 1: 20480 MiB, quota 10 %",
        "nothing was reserved: all cards are granted or none",
        "refused: card 2: 40960 MiB asked, 32768 MiB on the card",
    ]


@pytest.mark.parametrize("weight", ["10", "110"], ids=["granted", "unreadable"])
def test_what_speaks_ctyuns_dialect_is_logged_where_its_users_look(
    engine: Any, weight: str
) -> None:
    theirs = engine.directory / "nvidia-egpu-prestart-hook.log"
    text = f"EGPU=POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=1024,WEIGHT={weight}"
    log = HookLog((str(engine.log),), str(theirs))
    for env, written in (("CGPU_MEM=1GiB", False), (text, True)):
        engine.call(env, "NVIDIA_VISIBLE_DEVICES=0", log=log)
        assert theirs.exists() == written
    assert theirs.read_text() in engine.log.read_text()
    assert ("WEIGHT=110 % asked" in theirs.read_text()) == (weight == "110")


def test_a_malformed_value_is_refused_before_any_card_is_looked_at(engine: Any) -> None:
    assert engine.call(EGPU_REFUSED.replace("WEIGHT=10", "WEIGHT=110")) == 1
    assert "fitted" not in engine.log.read_text()


@pytest.mark.parametrize(
    "asked", ["CGPU_QUOTA=30", "cgpu.io/CGPU_QUOTA_MIN=30", "cgpu.io/CGPU_WEIGHT=4"]
)
def test_compute_that_nothing_enforces_is_refused_or_started_with_a_warning(
    engine: Any, capsys: pytest.CaptureFixture[str], asked: str
) -> None:
    put(engine.root, features="memory\n")
    name, _, text = asked.partition("=")
    config = {
        "annotations": {name: text} if "/" in name else {},
        "process": {"env": ["CGPU_MEM=1GiB", "CGPU_GPU=0", *([] if "/" in name else [asked])]},
    }
    assert engine.call(config=config) == 1
    assert engine.written == ""
    assert "modprobe cgpu_rm" in capsys.readouterr().err
    (engine.directory / "policy.toml").write_text('[node]\nwithout_bridge = "warn"\n')
    assert engine.call(config=config) == 0
    assert "modprobe cgpu_rm" in capsys.readouterr().err
    (granted,) = [line for line in engine.log.read_text().splitlines() if "granted card" in line]
    assert granted.endswith(", its part of the compute is not enforced")


@pytest.mark.parametrize("by", ["environment", "annotation"])
def test_who_is_to_be_parked_when_idle_is_refused_by_a_door_that_cannot(
    engine: Any, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    asked = [] if by == "annotation" else ["CGPU_IDLE_PARK=5m"]
    config = {
        "annotations": {"cgpu.io/idle-park": "5m"} if by == "annotation" else {},
        "process": {"env": ["CGPU_MEM=1GiB", "CGPU_GPU=0", *asked]},
    }
    assert engine.call(config=config) == 1
    assert engine.written == ""
    assert f"this door ({engine.root}) cannot park: leave" in capsys.readouterr().err
    put(engine.root, features="memory\npark\n")
    assert engine.call(config=config) == 0
    assert engine.written.endswith("gpu=0,mem=1073741824,idle_park_s=300\n")
    assert "may be parked when idle for 300 s" in engine.log.read_text()


@pytest.mark.parametrize("parks", [False, True])
def test_a_nodes_default_is_for_containers_that_can_be_parked(engine: Any, parks: bool) -> None:
    put(engine.root, features="memory\npark\n" if parks else "memory\n")
    (engine.directory / "policy.toml").write_text('[default]\nidle_park = "10m"\n')
    assert engine.call("CGPU_MEM=1GiB", "CGPU_GPU=0") == 0
    assert engine.written.endswith(",idle_park_s=600\n") == parks
    assert ("idle park 10m of" in engine.log.read_text()) != parks
    (engine.root / "inst_ctl").write_text("")
    assert engine.call("CGPU_MEM=1GiB", "CGPU_GPU=0", "CGPU_IDLE_PARK=off") == 0
    assert "idle_park" not in engine.written


def test_memory_alone_needs_no_bridge(engine: Any) -> None:
    put(engine.root, features="memory\n")
    assert engine.call("CGPU_MEM=1GiB", "CGPU_GPU=0") == 0


@pytest.mark.parametrize(
    "entry",
    [
        "CGPU_\x1b[2J\x1b]0;x\x07\r2026 INFO granted\u2028\udc9b2J=1",
        "CUDA_DEVICE_MEMORY_LIMIT\x1b[1m\x9b=1g",
        "CGPU_MEM\n=1GiB",
    ],
)
def test_no_name_of_a_variable_moves_a_terminal_or_ends_a_line(
    engine: Any, entry: str, capsys: Any
) -> None:
    assert engine.call(entry) == 1
    for text in (capsys.readouterr().err, engine.log.read_text()):
        assert text.endswith("\n") and text[:-1].isprintable(), text


@pytest.mark.parametrize("template", ["CGPU_{}=1", "CGPU_MEM={}", "CUDA_DEVICE_MEMORY_LIMIT{}=1g"])
def test_no_shell_executes_what_a_refusal_quotes(engine: Any, template: str, capsys: Any) -> None:
    """A line of the log, or of stderr, may come to stand where a shell reads it."""
    bad = "`touch /x`$(touch /x);touch /x&touch /x|touch /x<y>z=(touch /x){a,b}*?!~#^\u00e9"
    assert engine.call(template.format(bad)) == 1
    for text in (capsys.readouterr().err, engine.log.read_text()):
        assert "touch" in text
        assert not set("`$;&|<>{}*?!~#^\u00e9") & set(text), text
        assert "=(" not in text, text


@pytest.mark.parametrize("name", ["run.oci.hooks.stderr", "run.oci.hooks.stdout"])
@pytest.mark.parametrize("where", ["config", "state"])
@pytest.mark.parametrize("entry", ["CGPU_`touch /x`=1", "CGPU_MEM=1GiB", "PATH=/bin"])
def test_nothing_is_written_to_a_file_that_a_container_names(
    engine: Any, name: str, where: str, entry: str, capfd: Any
) -> None:
    """crun opens it on the host, as root, and it is the hook's stderr."""
    named = {"annotations": {name: "/root/.bashrc"}}
    config = {"process": {"env": [entry]}, **(named if where == "config" else {})}
    state = engine.state(**(named if where == "state" else {}))
    asks = entry != "PATH=/bin"
    # crun has both of one container, and only the configuration decides over it
    refused = asks and (where == "config" or "touch" in entry)
    assert engine.call(config=config, state=state) == refused
    assert capfd.readouterr() == ("", "")
    assert bool(engine.written) == (asks and not refused)
    if refused and entry == "CGPU_MEM=1GiB":
        assert f"the annotation {name} has crun write" in engine.log.read_text()


def test_an_images_annotation_that_is_refused_is_told_nowhere_else(
    engine: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """The refusal quotes the annotation, and another one of the image's names the file."""

    def check(bundle: str, annotations: dict[str, object]) -> None:
        raise HookError(f"{next(iter(annotations))}: the image's own")

    monkeypatch.setattr(image, "check", check)
    named = {"run.oci.hooks.stderr": "/root/.bashrc", "cgpu.io/CGPU_`touch /x`": "1"}
    assert engine.call(config={"annotations": named}) == 1
    assert capfd.readouterr() == ("", "")


def test_no_name_of_a_variable_fills_the_log(engine: Any, capsys: Any) -> None:
    assert engine.call(f"CGPU_{'X' * 200_000}=1") == 1
    said = capsys.readouterr().err
    assert said.startswith("cgpu: CGPU_XXX") and said.endswith("CGPU_DISABLE\n")
    assert len(said) < 5000 and engine.log.stat().st_size < 5000


def test_what_other_containers_hold_counts(engine: Any) -> None:
    put(engine.root / "0", memory=memory(32510 * MIB, allocated=32000 * MIB))
    add_container(engine.root, 0, "ab" * 32, memsize=str(32000 * MIB), quota="95")
    assert engine.call("CGPU_MEM=4GiB", "CGPU_QUOTA=10", "CGPU_GPU=0") == 1
    log = engine.log.read_text()
    assert "4096 MiB asked, 510 MiB free of 32510 MiB (1 container holds 32000 MiB)" in log
    assert "10 % of compute asked, 5 % free (1 container holds 95 %)" in log


def test_a_refusal_by_the_door_is_a_refusal_of_the_hook(
    engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (engine.root / "inst_ctl").unlink()
    (engine.root / "inst_ctl").symlink_to("/dev/full")
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 1
    assert "ENOSPC" in capsys.readouterr().err
    assert not any(word in engine.log.read_text() for word in ("fitted", "granted", "rolled"))


@pytest.mark.parametrize("pid", [None, 0, -1, "7"])
def test_a_state_without_a_process_refuses_a_request(engine: Any, pid: Any) -> None:
    assert engine.call("CGPU_MEM=4GiB", state=engine.state(pid=pid)) == 1
    assert engine.written == ""


@pytest.mark.parametrize(
    ("status", "cgroup", "mounts", "identity"),
    [
        ("NSpid:\t4711\t1\n", "0::/a/b\n", CGROUP2, "pid=4711"),
        ("NSpid:\t4711\n", "0::/a/b\n", CGROUP2, "cgroup=/sys/fs/cgroup/a/b"),
        ("NSpid:\t4711\t9\n", "0::/a/b\n", CGROUP2, "cgroup=/sys/fs/cgroup/a/b"),
        (
            "NSpid:\t4711\n",
            "7:cpu,memory:/docker/c\n0::/\n",
            CGROUP1,
            "cgroup=/sys/fs/cgroup/memory/docker/c",
        ),
    ],
)
def test_a_container_without_a_pid_namespace_is_known_by_its_cgroup(
    engine: Any, status: Any, cgroup: Any, mounts: Any, identity: Any
) -> None:
    engine.process(status, cgroup, mounts)
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 0
    assert engine.written.split()[2] == identity


#: As any user mounts by fusermount: without a source, in no encoding, with others' separators, and
#: as if it were a hierarchy.
USERS_MOUNTS = (
    b"63 43 0:39 / /home/u/x rw - fuse.x  rw\n"
    b"64 43 0:40 / /home/u/\xff rw - fuse.x x rw\n"
    b"65 43 0:41 / /home/u/\r66\x1c43\x1c0:42\x1c/\x1c/home/u\x1crw\x1c-\x1ccgroup2\x1cx\x1crw rw"
    b" - fuse.x x rw\n"
    b"67 43 0:43 / /home/u/\xc2\xa0rw\xc2\xa0-\xc2\xa0cgroup2\xc2\xa0x\xc2\xa0y rw - fuse.x x rw\n"
)


def test_no_users_mount_keeps_a_container_from_its_cgroup(engine: Any) -> None:
    engine.process("NSpid:\t4711\n")
    (engine.proc / "self" / "mountinfo").write_bytes(USERS_MOUNTS + CGROUP2.encode())
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 0
    assert engine.written.split()[2] == "cgroup=/sys/fs/cgroup/a/b"


@pytest.mark.parametrize("cgroup", ["0::/\n", "0::/../x\n", ""])
def test_a_container_that_nothing_tells_from_the_host_is_refused(
    engine: Any, cgroup: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.process("NSpid:\t4711\n", cgroup)
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 1
    assert "neither a pid namespace nor a cgroup" in capsys.readouterr().err


def test_a_process_that_has_ended_is_refused(engine: Any) -> None:
    assert engine.call("CGPU_MEM=1G", state=engine.state(pid=4712)) == 1


@pytest.mark.parametrize(
    "state",
    ["", "{", "[]", "{}", '{"id": 7}', '{"id": ""}', "[" * 100_000, '{"id": "a"}', "\ufffd"],
)
def test_a_state_that_cannot_be_read_refuses(engine: Any, state: Any) -> None:
    assert engine.call("CGPU_MEM=4GiB", state=state) == 1
    assert engine.written == ""


@pytest.mark.parametrize(
    "config", [[], {"process": {"env": {"CGPU_MEM": "1G"}}}, {"process": {"env": [7]}}]
)
def test_a_config_that_cannot_be_read_refuses(engine: Any, config: Any) -> None:
    assert engine.call(config=config) == 1


def test_a_missing_bundle_refuses(engine: Any) -> None:
    assert engine.call(state=engine.state(bundle="/nonexistent")) == 1


@pytest.mark.parametrize("pid", [{}, {"pid": 0}])
def test_poststop_removes_the_container(engine: Any, pid: Any) -> None:
    asked = ("CGPU_MEM=4GiB", "CGPU_GPU=0")
    assert engine.call(*asked) == 0
    os.truncate(engine.root / "inst_ctl", 0)
    state = engine.state(status="stopped")
    del state["pid"]
    assert engine.call(*asked, stage="poststop", state=state | pid) == 0
    assert engine.written == f"destroy {CID}\n"
    os.truncate(engine.root / "inst_ctl", 0)
    assert engine.call(*asked, stage="poststop", state=state | pid) == 0
    assert engine.written == ""


@pytest.mark.parametrize("env", [["CGPU_MEM=4GiB", "CGPU_GPU=0"], ["CGPU_MEM=4"], []])
def test_a_container_takes_no_other_of_its_id_along(engine: Any, env: list[str]) -> None:
    """Ids are each engine's own, and runc removes whom the hook has refused."""
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 0
    (engine.root / "inst_ctl").rename(engine.root / "taken")
    (engine.root / "inst_ctl").symlink_to("/dev/full")
    other = engine.directory / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"process": {"env": env}}))
    state = engine.state(bundle=str(other))
    assert engine.call(state=state) == bool(env)
    (engine.root / "inst_ctl").unlink()
    (engine.root / "taken").rename(engine.root / "inst_ctl")
    assert engine.call(stage="poststop", state=state | {"status": "stopped", "pid": 0}) == 0
    assert "destroy" not in engine.written
    assert engine.call(stage="poststop") == 0
    assert engine.written.startswith(f"destroy {CID}\n")


def test_a_removal_that_fails_is_not_logged_as_a_refusal(engine: Any) -> None:
    assert engine.call(stage="poststop", state="no JSON") == 1
    log = engine.log.read_text()
    assert "not removed: the container's state is not JSON" in log
    assert "refused" not in log


def test_poststop_is_known_by_its_status(engine: Any) -> None:
    asked = ("CGPU_MEM=1G", "CGPU_GPU=0")
    assert engine.call(*asked) == 0
    assert engine.call(*asked, stage=None, state=engine.state(status="stopped")) == 0
    assert engine.written.startswith(f"destroy {CID}\n")


def test_poststop_never_fails_for_a_container_that_it_cannot_remove(engine: Any) -> None:
    asked = ("CGPU_MEM=4GiB", "CGPU_GPU=0")
    assert engine.call(*asked) == 0
    engine.root = engine.directory / "none"
    assert engine.call(*asked, stage="poststop") == 0
    assert "not removed" in engine.log.read_text()


def test_two_hooks_do_not_decide_at_once(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCK_TIMEOUT_S", 0.05)
    engine.lock.parent.mkdir()
    with open(engine.lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 1
    assert engine.written == ""
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 0


def test_who_waits_for_another_hook_leaves_it_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty that looked every 2 ms took an emulated node's from the one that they waited for."""
    pauses: list[float] = []
    sleep = time.sleep

    def noted(pause_s: float) -> None:
        pauses.append(pause_s)
        sleep(pause_s)

    monkeypatch.setattr(time, "sleep", noted)
    path = tmp_path / "lock"
    with path.open("w") as held, path.open("w") as waiting:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not lock.acquire(waiting.fileno(), 0.5, pause_s=0.002)
    assert len(pauses) < 25
    assert max(pauses) == lock.PAUSE_MAX_S


def test_a_log_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "hook.log"
    log = HookLog((str(path),))
    for number in range(KEPT + 2):
        path.write_bytes(b"x" * ROTATE_BYTES)
        log.line("INFO", "id", f"line {number}")
    assert path.read_text().endswith(f"line {KEPT + 1}\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "hook.log",
        *(f"hook.log.{n}" for n in range(1, KEPT + 1)),
    ]


def test_a_log_entry_is_one_line(tmp_path: Path) -> None:
    HookLog((str(tmp_path / "log"),)).line("INFO", "id", "a\nb")
    assert (tmp_path / "log").read_text().count("\n") == 1


def test_a_log_that_cannot_be_written_decides_nothing(engine: Any) -> None:
    engine.log = engine.directory / "none" / "hook.log"
    assert engine.call("CGPU_MEM=4GiB", "CGPU_GPU=0") == 0


def launch(engine: Any, *args: Any, env: Any = ()) -> Any:
    code = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from pycgpu.oci.hook import main"
    (engine.directory / "bundle" / "config.json").write_text(
        json.dumps({"process": {"env": list(env)}})
    )
    return subprocess.run(
        [
            sys.executable,
            "-ISc",
            f"{code}; sys.exit(main())",
            "--root",
            str(engine.root),
            "--lock",
            str(engine.lock),
            "--log",
            str(engine.log),
            "--proc",
            str(engine.proc),
            "--dev",
            engine.dev,
            *args,
        ],
        input=json.dumps(engine.state()).encode(),
        capture_output=True,
        check=False,
    )


def test_the_command_with_two_logs(engine: Any) -> None:
    second = engine.directory / "nvidia-egpu-prestart-hook.log"
    result = launch(engine, "--log", str(second), "prestart", env=["CGPU_MEM=1G", "CGPU_GPU=0"])
    assert (result.returncode, result.stderr) == (0, b"")
    assert engine.log.read_text() == second.read_text()


@pytest.mark.parametrize("args", [["--what"], ["create"], ["prestart", "poststop"], ["--log"]])
def test_a_wrong_argument_is_a_usage_error(engine: Any, args: Any) -> None:
    assert launch(engine, *args).returncode == 2


def test_no_heavy_module_is_imported_on_the_hooks_path(engine: Any) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r});"
        " import pycgpu.oci.hook, pycgpu.dialects.ctyun_egpu;"
        " print(*sorted(m for m in sys.modules if '.' not in m))"
    )
    out = subprocess.run([sys.executable, "-ISc", code], capture_output=True, check=True).stdout
    heavy = {"dataclasses", "inspect", "pathlib", "subprocess", "logging", "typer", "rich", "ast"}
    assert not heavy & set(out.decode().split())


ENTRY = st.one_of(
    st.text(max_size=30),
    st.builds(
        "{}={}".format,
        st.sampled_from(
            ["CGPU_MEM", "EGPU", "ALIYUN_COM_GPU_MEM_CONTAINER", "NVIDIA_VISIBLE_DEVICES"]
        ),
        st.text(max_size=20),
    ),
    st.integers(),
    st.none(),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ENTRY, max_size=4), st.one_of(st.none(), st.integers(-1, 5)))
def test_whatever_the_environment_no_unlimited_container_starts(
    engine: Any, env: Any, pid: Any
) -> None:
    """Whoever names a limit is registered or refused, and nothing crashes."""
    os.truncate(engine.root / "inst_ctl", 0)
    status = engine.call(*env, state=engine.state(pid=pid))
    assert status in (0, 1)
    limits = ("CGPU_MEM=", "EGPU=")
    if status == 0 and any(isinstance(entry, str) and entry.startswith(limits) for entry in env):
        assert engine.written.startswith(f"create {CID} pid=")


def node(minor: int, path: str = "") -> dict[str, object]:
    path = path or f"/dev/nvidia{minor}"
    return {"path": path, "type": "c", "major": 195, "minor": minor}


#: What Docker allows every container; the last line makes nobody privileged.
RULES = [{"allow": False, "access": "rwm"}, {"allow": True, "type": "c", "access": "m"}]
MIB_1024 = "mem=1073741824"


@pytest.mark.parametrize(
    ("env", "nodes", "cards"),
    [
        # podman run --device nvidia.com/gpu=2, with the specification that nvidia-ctk writes
        (["NVIDIA_VISIBLE_DEVICES=void"], [node(2), node(255, "/dev/nvidiactl")], [2]),
        (["NVIDIA_VISIBLE_DEVICES=void", "CGPU_GPU=2"], [node(2)], [2]),
        # docker run --device /dev/nvidia1, of an image of CUDA's
        (["NVIDIA_VISIBLE_DEVICES=all"], [node(1)], [1]),
        # … --device /dev/nvidia3:/dev/card: the node's number counts and not its name
        ([], [node(3, "/dev/card"), node(1)], [3, 1]),
        (["NVIDIA_VISIBLE_DEVICES=0"], [node(0), node(1)], [0]),
        ([], [node(255, "/dev/nvidiactl")], [0, 1, 2, 3]),
    ],
)
def test_cards_that_come_as_devices_are_those_that_are_limited(
    engine: Any, env: Any, nodes: Any, cards: Any
) -> None:
    config = {
        "process": {"env": ["CGPU_MEM=1GiB", *env]},
        "linux": {"devices": nodes, "resources": {"devices": RULES}},
    }
    assert engine.call(config=config) == 0
    given = " ".join(f"gpu={card},{MIB_1024}" for card in cards)
    assert engine.written == f"create {CID} pid=4711 {given}\n"


@pytest.mark.parametrize(
    "images",
    [
        ["NVIDIA_VISIBLE_DEVICES=1"],
        ["NVIDIA_VISIBLE_DEVICES=GPU-1111"],
        ["NVIDIA_VISIBLE_DEVICES=0,1"],
        ["CGPU_GPU=1"],
        ["CGPU_GPU=0,1"],
        # what the device cgpu.io/gpu=0 sets, and what goes on as if it had set it
        ["CGPU_CARD_0=1", "CGPU_CARD_1=1"],
        ["CGPU_CARD_0=1", "NVIDIA_VISIBLE_DEVICES=1"],
    ],
)
def test_no_image_names_other_cards_than_come_as_devices(
    engine: Any, images: list[str], capsys: Any
) -> None:
    config = {
        "process": {"env": ["CGPU_MEM=1GiB", *images]},
        "linux": {"devices": [node(0)], "resources": {"devices": RULES}},
    }
    assert engine.call(config=config) == 1
    assert engine.written == ""
    said = "cards 1 are asked for, but the container is given the device nodes of 0,"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 3])
def test_a_number_of_cards_is_chosen_among_those_that_come_as_devices(
    engine: Any, count: int, capsys: Any
) -> None:
    """The fullest that has room is not one of them."""
    put(engine.root / "2", memory=memory(32510 * MIB, allocated=8192 * MIB))
    config = {
        "process": {"env": [f"nvidia.com/gpu={count}", "nvidia.com/gpumem=1024"]},
        "linux": {"devices": [node(0), node(3)], "resources": {"devices": RULES}},
    }
    assert engine.call(config=config) == (count == 3)
    if count == 1:
        assert engine.written == f"create {CID} pid=4711 gpu=0,{MIB_1024}\n"
    else:
        assert engine.written == ""
        assert "3 of 2 cards asked, 2 fit" in capsys.readouterr().err


def test_a_privileged_containers_nodes_choose_no_card(engine: Any) -> None:
    """It has all of them, and one that wants one card is given one."""
    mgpu = {"emr.serverless.mgpu.core": "30", "emr.serverless.mgpu.memory": "1024"}
    config = {
        "process": {"env": [f"{key}={text}" for key, text in mgpu.items()]},
        "linux": {
            "devices": [node(card) for card in range(4)],
            "resources": {"devices": [{"allow": True, "access": "rwm"}]},
        },
    }
    assert engine.call(config=config) == 0
    assert engine.written.count("gpu=") == 1


@pytest.mark.parametrize(
    ("asked", "rules", "refused"),
    [
        ("CGPU_MEM=1GiB", RULES, True),
        ("CGPU_QUOTA=30", RULES, True),
        ("CGPU_MEM=max", RULES, False),
        ("CGPU_MEM=1GiB", [{"allow": True, "access": "rwm"}], False),
    ],
)
def test_no_limited_container_starts_with_a_node_past_its_limits(
    engine: Any, asked: str, rules: Any, refused: bool, capsys: Any
) -> None:
    """As CDI gives it to the hook alone; privileged it is given all."""
    caps = {"path": "/dev/nvidia-caps/nvidia-cap1", "type": "c", "major": 240, "minor": 1}
    nodes = [node(0), node(254, "/dev/nvidia-modeset"), caps]
    config = {
        "process": {"env": [asked, "CGPU_GPU=0"]},
        "linux": {"devices": nodes, "resources": {"devices": rules}},
    }
    assert engine.call(config=config) == refused
    said = capsys.readouterr().err
    assert said.startswith("cgpu: /dev/nvidia-modeset, /dev/nvidia-caps/nvidia-cap1: ") == refused
    assert (engine.written == "") == refused


def test_void_without_a_node_names_no_card(engine: Any, capsys: Any) -> None:
    assert engine.call("CGPU_MEM=1GiB", "NVIDIA_VISIBLE_DEVICES=void") == 1
    assert "no card is named" in capsys.readouterr().err
    assert engine.written == ""


def share(engine: Engine, stage: str = "createRuntime", **options: Any) -> int:
    """The hook of a container that shares the tenant ``claim-a``, with 4 GiB of card 2."""
    env = ["CGPU_MEM=4GiB", "CGPU_GPU=2", "CGPU_QUOTA=30"]
    config = {"process": {"env": env}}
    (engine.directory / "bundle" / "config.json").write_text(json.dumps(config))
    return hook.run(
        stage,
        json.dumps(engine.state(**options)),
        log=HookLog((str(engine.log),)),
        root=str(engine.root),
        lock=str(engine.lock),
        proc=str(engine.proc),
        dev=engine.dev,
        policy=str(engine.directory / "policy.toml"),
        shared="claim-a",
        tenants=str(engine.directory / "tenants"),
    )


@pytest.fixture
def tenants(engine: Engine) -> Path:
    """A hierarchy of cgroups without a process."""
    path = Path(engine.directory) / "tenants"
    path.mkdir()
    (path / "cgroup.procs").write_text("")
    return path


def test_containers_of_one_tenant_are_known_by_its_cgroup(engine: Engine, tenants: Path) -> None:
    assert share(engine) == 0
    assert (tenants / "claim-a/cgroup.procs").read_text() == "4711"
    path = tenants / "claim-a"
    assert (
        engine.written == f"create claim-a cgroup={path} gpu=2,mem=4294967296,quota=30,policy=6\n"
    )


def test_a_tenant_that_is_there_does_not_stand_in_its_own_way(
    engine: Engine, tenants: Path
) -> None:
    total = 32510 * MIB
    put(engine.root / "2", memory=memory(total, allocated=30 * 1024 * MIB), free_weight="0")
    nodes = {"memsize": str(4096 * MIB), "quota": "30"}
    add_container(engine.root, 2, "claim-a", **nodes)
    add_container(engine.root, 2, CID, memsize=str(26 * 1024 * MIB), quota="70")
    assert share(engine) == 0
    assert engine.written.startswith("create claim-a cgroup=")


def test_a_tenant_ends_with_its_last_container(engine: Engine, tenants: Path) -> None:
    assert share(engine) == 0
    put(engine.root, inst_ctl="")
    assert share(engine, "poststop", pid=0) == 0
    assert engine.written == "\n"
    (tenants / "claim-a/cgroup.procs").write_text("")
    assert share(engine, "poststop", pid=0) == 0
    assert engine.written == "destroy claim-a\n"


def test_a_container_is_of_one_tenant(engine: Engine, tenants: Path, capsys: Any) -> None:
    engine.process("NSpid:\t4711\t1\n", cgroup="3:freezer,name=cgpu:/claim-b\n0::/a\n")
    assert share(engine) == 1
    assert (
        "has a part already, as claim-b, and asks for another as claim-a" in capsys.readouterr().err
    )
    assert engine.written == ""


def test_no_text_of_our_own_errors_is_escaped_where_engines_show_it() -> None:
    """What an image wrote is; a form that we name must be readable."""
    escaped = []
    for folder in ("dialects", "request", "oci", "tree"):
        for path in sorted(Path(pycgpu.__file__).with_name(folder).glob("*.py")):
            tree = ast.parse(path.read_text())
            raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
            constants = {
                target.id: node.value
                for node in tree.body
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for part in (part for one in raised if one is not None for part in ast.walk(one)):
                text = constants.get(part.id, part) if isinstance(part, ast.Name) else part
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    said = shown(text.value)
                    escaped += [said] if "\\x" in said or "\\U" in said else []
    assert escaped == []


OFF = (
    ["ALIYUN_COM_GPU_MEM_CONTAINER=0", "NVIDIA_VISIBLE_DEVICES=all"],
    ["ALIYUN_COM_GPU_MEM_CONTAINER=1,0,0", "NVIDIA_VISIBLE_DEVICES=0,1,2"],
    ["GPU_MEM_PER_DEVICE=2000000000", "NVIDIA_VISIBLE_DEVICES=0"],
    ["AMP_VGPU_ENABLE=0", "NVIDIA_VISIBLE_DEVICES=0"],
    ["CGPU_DISABLE=1", "NVIDIA_VISIBLE_DEVICES=all"],
    ["CUDA_DISABLE_CONTROL=1", "NVIDIA_VISIBLE_DEVICES=all"],
    ["nvidia.com/gpu=1"],
)


@pytest.mark.parametrize("env", OFF, ids=lambda env: env[0])
def test_who_is_to_have_a_card_and_asks_for_no_part_is_told_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], env: list[str]
) -> None:
    """Vendors' documents start it with the whole card; here it would start without any."""
    engine = Engine(tmp_path)
    assert engine.call(*env) == 1
    name, _, text = env[0].partition("=")
    said = capsys.readouterr().err
    assert f"{name}='{text}' asks for no part" in said and "CGPU_MEM=max" in said
    # what is said to do does it
    assert engine.call("CGPU_MEM=max", *env[1:]) == 0
    assert engine.call("NVIDIA_VISIBLE_DEVICES=none") == 0
    if len(env) > 1:
        assert engine.call(env[0], "NVIDIA_VISIBLE_DEVICES=none") == 0


@pytest.mark.parametrize(
    "brought",
    [
        {"hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}},
        {"hooks": {"createContainer": [{"path": "/usr/bin/nvidia-ctk"}]}},
        {"linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]}},
        {"linux": {"resources": {"devices": [{"allow": True, "access": "rwm"}]}}},
    ],
    ids=["toolkit", "cdi", "node", "privileged"],
)
def test_who_is_brought_a_card_by_others_and_asks_for_no_part_starts(
    tmp_path: Path, brought: dict[str, Any]
) -> None:
    env = ["ALIYUN_COM_GPU_MEM_CONTAINER=0", "NVIDIA_VISIBLE_DEVICES=all"]
    assert Engine(tmp_path).call(config={"process": {"env": env}} | brought) == 0


@pytest.mark.parametrize("env", [["GPU_IDX=0", "NVIDIA_VISIBLE_DEVICES=all"], ["nvidia.com/gpu=0"]])
def test_who_names_no_card_in_our_words_starts_without(tmp_path: Path, env: list[str]) -> None:
    assert Engine(tmp_path).call(*env) == 0


def crowded(engine: Engine) -> list[str]:
    """Leave 1790 MiB of each card, and return what asks for 2048 of three, CTyun's case 7."""
    for card in range(3):
        held = memory(32510 * MIB, allocated=30720 * MIB)
        put(engine.root / str(card), memory=held)
        add_container(engine.root, card, "0" * 64, memsize=f"{30720 * MIB}\n")
    parts = [f"PGPU={card},MEM=2048,WEIGHT=10" for card in range(3)]
    return ["EGPU=POLICY=0,ONLINE=0,TYPE=DOCKER:" + ":".join(parts)]


def test_who_starts_a_container_is_told_what_it_has_less_than_it_asked_for(engine: Engine) -> None:
    standard_error = engine.proc / "4711/fd/2"
    standard_error.parent.mkdir()
    os.mkfifo(standard_error)
    reader = os.open(standard_error, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert engine.call(*crowded(engine)) == 0
        said = os.read(reader, 10000).decode()
    finally:
        os.close(reader)
    assert said.startswith("cgpu: card 0: 2048 MiB asked, the last 1790 MiB of the card granted")
    assert "of its 32510 MiB 1 container holds 30720 MiB, card 1: 2048" in said
    assert said.count("\n") == 1


def test_a_file_that_stands_for_a_containers_standard_error_is_not_written_to(
    engine: Engine,
) -> None:
    standard_error = engine.proc / "4711/fd/2"
    standard_error.parent.mkdir()
    standard_error.write_text("its own\n")
    assert engine.call(*crowded(engine)) == 0
    assert standard_error.read_text() == "its own\n"


def test_who_is_given_a_terminal_is_told_when_it_has_one(engine: Engine) -> None:
    """The runtime makes it after the hook, before anything of the image runs."""
    controller, terminal = os.openpty()
    (engine.proc / "4711/fd").mkdir()
    standard_error = engine.proc / "4711/fd/2"
    os.mkfifo(standard_error)  # what the runtime itself writes to
    reader = os.open(standard_error, os.O_RDONLY | os.O_NONBLOCK)
    process = {"env": crowded(engine), "terminal": True}
    try:
        assert engine.call(config={"process": process}) == 0
        later = engine.proc / "terminal"
        later.symlink_to(os.ttyname(terminal))
        os.rename(later, standard_error)
        assert os.read(controller, 1000).startswith(b"cgpu: card 0: 2048 MiB asked, the last 1790")
        assert os.read(reader, 1) == b""
    finally:
        for fd in (controller, terminal, reader):
            os.close(fd)
