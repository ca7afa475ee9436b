# SPDX-License-Identifier: MIT
"""
Docker, Podman, containerd and its CRI with the runtime that ``cgpu install-runtime`` registers.

The image is a busybox made here; networks are left out, which the guest's kernel has no part in.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.install import containerds, hook_files, pods, registration, stranded
from pycgpu.install.host import this_host
from pycgpu.oci import cdi
from pycgpu.tree import procfs
from tests.vm import engines, mps
from tests.vm.container import as_volumes, with_libraries
from tests.vm.cri import Cri, CriError, Pod, archive
from tests.vm.customer import HOOK, LOGS, RUNTIME
from tests.vm.loaded import until

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("km", "sim", "rootfs", "engines"),
    pytest.mark.vm(append="apparmor=0", memory="3G", timeout_s=1500),
]

GIB = 1 << 30
IMAGE = "localhost/cgpu-test:latest"


def need(program: str) -> str:
    """Return the path of an engine's program, or skip."""
    path = shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin")
    if path is None:
        pytest.skip(f"no package: {program} is not installed")
    return path


@pytest.fixture
def host(sim: Any, km: Any) -> Any:
    sim(cards=2, model="t4")
    return km()


@pytest.fixture
def install(host: Any, made: Any) -> Iterator[Any]:
    """``install("docker")`` registers runtime and hook with the engine; taken back after."""

    def apply(*names: str, **options: Any) -> None:
        chosen = registration.Options(names, logs=(str(LOGS[0]),), **options)
        with engines.in_path(made("engines")):
            registration.register(chosen)

    yield apply
    registration.undo(registration.plan_undo())


@pytest.fixture(scope="module")
def image(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tar file of the root file system."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    subprocess.run(["tar", "-C", str(made("rootfs")), "-cf", str(path), "."], check=True)
    return path


@pytest.fixture
def volumes(made: Any) -> list[str]:
    """simcuda and what it is linked with, as -v arguments."""
    return as_volumes(with_libraries("/bin/simcuda", made("sim") / "simcuda" / "simcuda"))


def call(*words: object, check: bool = True, timeout_s: float = 300) -> Any:
    done = subprocess.run(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    if check and done.returncode:
        raise AssertionError(f"{words[0]}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def board_bytes(done: Any) -> int:
    """The card's size as the program in the container was told."""
    return int(json.loads(done.stdout.strip().splitlines()[-1])["board"])


def gone(host: Any) -> None:
    until(lambda: not procfs.container_ids(str(host.root)), "the container's removal")
    assert sum(card.allocated_bytes for card in procfs.read_cards(str(host.root))) == 0


def judge(host: Any, run: Any, *, tells: bool = True) -> None:
    """
    What every engine must do: a limit holds, a wrong one refuses, all is given back.

    tells: the engine shows what the hook said; crun keeps it to itself, and the log has it.
    """
    asked = ("-e", "CGPU_MEM=1GiB", "-e", "CGPU_GPU=0")
    assert board_bytes(run(asked, "simcuda", "--json", "info")) == GIB
    gone(host)
    assert run(asked, "simcuda", "alloc", "2G", check=False).returncode == 2
    refused = run(("-e", "CGPU_MEM=64GiB", "-e", "CGPU_GPU=0"), "true", check=False)
    assert refused.returncode != 0
    said = refused.stdout + refused.stderr if tells else LOGS[0].read_text()
    assert "65536 MiB asked, 15360 MiB on the card" in said
    gone(host)
    # Nothing asked: the engine's own business, untouched.
    assert run((), "echo", "plain").stdout.strip().endswith("plain")


@pytest.fixture(scope="module")
def store(image: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Podman's command with a storage that has the image."""
    # Podman takes no runroot of more than 50 characters.
    base = [
        need("podman"),
        *("--root", str(tmp_path_factory.mktemp("podman")), "--runroot", "/run/cgpu-podman"),
        *("--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"),
    ]
    call(*base, "import", image, IMAGE)
    return base


@pytest.fixture
def podman(store: list[str]) -> Iterator[list[str]]:
    """Podman's command; what a test leaves behind is removed."""
    yield store
    call(*store, "rm", "--all", "--force", check=False)


@pytest.mark.parametrize("behind", ["runc", pytest.param("crun", marks=pytest.mark.long)])
def test_podman_with_the_runtime(
    host: Any, install: Any, podman: list[str], volumes: list[str], behind: Any
) -> None:
    install("podman", runtimes=(need(behind),), hooks_d=False)

    def run(env: Any, *command: Any, check: bool = True) -> Any:
        options = ["--runtime", RUNTIME, "run", "--rm", "--network", "none"]
        return call(*podman, *options, *volumes, *env, IMAGE, *command, check=check)

    judge(host, run, tells=behind == "runc")


@pytest.mark.parametrize("behind", [pytest.param("runc", marks=pytest.mark.long), "crun"])
def test_podman_with_hooks_d_and_cdi_needs_no_runtime_of_ours(
    host: Any, install: Any, podman: list[str], volumes: list[str], behind: Any
) -> None:
    """The hook comes by hooks.d to every container; the card by --device."""
    install("podman")
    nodes = [
        word
        for path in sorted(Path("/dev").glob("nvidia*"))
        for word in ("--device", str(path))
        if path.name != "nvidia1"
    ]

    def run(env: Any, *command: Any, check: bool = True) -> Any:
        options = ["--runtime", need(behind), "--hooks-dir", "/" + hook_files.HOOKS_D]
        options += ["run", "--rm", "--network", "none", *nodes]
        return call(*podman, *options, *volumes, *env, IMAGE, *command, check=check)

    judge(host, run, tells=behind == "runc")


@pytest.mark.parametrize(
    "annotation", ["cgpu.io/CGPU_WEIGHT=9", "io.kubernetes.cri.container-type=sandbox"]
)
def test_podmans_images_have_no_annotation_that_counts(
    host: Any, install: Any, podman: list[str], volumes: list[str], tmp_path: Path, annotation: str
) -> None:
    """A weight for itself, or none of the operator's limits: Podman 4 and 5 hand both on."""
    install("podman", runtimes=(need("runc"),), hooks_d=False)
    (tmp_path / "Containerfile").write_text(f"FROM {IMAGE}\n")
    call(*podman, "build", "--annotation", annotation, "-t", "localhost/annotated", tmp_path)
    words = [*podman, "--runtime", RUNTIME, "run", "--rm", "--network", "none", *volumes]
    words += ["-e", "CGPU_MEM=1GiB", "-e", "CGPU_GPU=0"]
    info = ("simcuda", "--json", "info")
    done = call(*words, "localhost/annotated", *info, check=False)
    if done.returncode:
        assert f"{annotation.partition('=')[0]}=" in done.stderr
        assert "is the image's own" in done.stderr
    else:
        assert board_bytes(done) == GIB
        assert "weight 9" not in LOGS[0].read_text()
    gone(host)
    given = ("--annotation", "cgpu.io/CGPU_WEIGHT=2")
    assert board_bytes(call(*words, *given, IMAGE, *info)) == GIB
    gone(host)


def test_podman_with_a_cdi_device(
    host: Any, install: Any, podman: list[str], volumes: list[str]
) -> None:
    """`--device cgpu.io/gpu=1` alone brings node and hook; the limit is in the environment."""
    install("podman", hooks_d=False)
    specification = cdi.specification(procfs.read_cards(str(host.root)), (str(HOOK),))
    directory = Path(cdi.DIRECTORIES[0])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / cdi.FILE).write_text(cdi.render(specification))
    try:
        options = ["--runtime", need("runc"), "run", "--rm", "--network", "none"]
        options += ["--device", "cgpu.io/gpu=1", "-e", "CGPU_MEM=1GiB", *volumes, IMAGE]
        assert (
            board_bytes(call(*podman, *options, "simcuda", "--json", "--gpu", "1", "info")) == GIB
        )
        gone(host)
    finally:
        (directory / cdi.FILE).unlink()


#: What `nvidia-ctk cdi generate` writes, but for the driver's libraries and its own hooks.
TOOLKITS_CDI = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": str(card), "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{card}"}]}}
        for card in range(2)
    ],
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": f"/dev/{name}"} for name in ("nvidiactl", "nvidia-uvm")],
    },
}


@pytest.mark.parametrize("way", ["hooks.d", pytest.param("runtime", marks=pytest.mark.long)])
def test_podman_with_the_toolkits_cdi_device(
    host: Any, install: Any, podman: list[str], volumes: list[str], way: str
) -> None:
    """`--device nvidia.com/gpu=1`: the card that it brings is the one that is limited."""
    install("podman", runtimes=(need("runc"),), hooks_d=way == "hooks.d")
    path = Path(cdi.DIRECTORIES[1]) / "nvidia.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(TOOLKITS_CDI))
    ours = ("--hooks-dir", "/" + hook_files.HOOKS_D, "--runtime", need("runc"))
    words = [*podman, *(ours if way == "hooks.d" else ("--runtime", RUNTIME)), "run", "--rm"]
    words += ["--network", "none", *volumes, "--device", "nvidia.com/gpu=1"]
    info = ("simcuda", "--json", "--gpu", "1", "info")
    try:
        assert board_bytes(call(*words, "-e", "CGPU_MEM=1GiB", IMAGE, *info)) == GIB
        gone(host)
        refused = call(*words, "-e", "CGPU_MEM=64GiB", IMAGE, *info, check=False)
        assert "card 1: 65536 MiB asked" in refused.stderr and "card 0" not in refused.stderr
        # Somebody asked: who asks for nothing gets nothing of what CDI has brought.
        assert call(*words, IMAGE, *info, check=False).returncode
        # The node alone, as the guides of older toolkits print it, under another name.
        node = [*words[:-2], "--device", "/dev/nvidia1:/dev/card1", "-e", "CGPU_MEM=64GiB", IMAGE]
        refused = call(*node, *info, check=False)
        assert "card 1: 65536 MiB asked" in refused.stderr and "card 0" not in refused.stderr
    finally:
        path.unlink()


def test_docker_with_the_runtime(
    host: Any, install: Any, made: Any, image: Path, volumes: list[str], tmp_path: Path
) -> None:
    need("runc")
    install("docker", runtimes=("runc",))
    with engines.docker(made("engines"), tmp_path) as base:
        call(*base, "import", image, IMAGE)

        def run(env: Any, *command: Any, check: bool = True) -> Any:
            options = ["run", "--rm", "--runtime", "cgpu", "--network", "none"]
            return call(*base, *options, *volumes, *env, IMAGE, *command, check=check)

        judge(host, run)


def test_dockers_containers_join_a_group_where_the_operator_lets_them(
    host: Any,
    install: Any,
    made: Any,
    image: Path,
    tmp_path: Path,
    node_policy: Callable[[str], None],
) -> None:
    """Docker 20 has no annotations: the variable counts by the operator's word alone."""
    need("runc")
    install("docker", runtimes=("runc",))
    asked = ("-e", "CGPU_MEM=1GiB", "-e", "CGPU_GPU=0", "-e", "CGPU_GROUP=chat")
    with engines.docker(made("engines"), tmp_path) as base, mps.control():
        call(*base, "import", image, IMAGE)

        def run(*words: str, check: bool = True) -> Any:
            options = ("--rm", "--runtime", "cgpu", "--network", "none", *asked)
            return call(*base, "run", *options, *words, check=check)

        refused = run(IMAGE, "true", check=False)
        assert refused.returncode and "CGPU_GROUP='chat': an image could set it" in refused.stderr
        node_policy('[environment]\nallow = ["group"]\n')
        one = run("--detach", IMAGE, "sleep", "1000000").stdout.strip()
        assert run(IMAGE, "ls", "/run/cgpu/groups/chat/pipe").stdout.split() == ["control"]
        assert set(procfs.container_ids(str(host.root))) >= {one, "chat"}
        other = run("--user", "7", IMAGE, "true", check=False)
        assert "it belongs to containers of user 0" in other.stderr
        call(*base, "kill", one)
        gone(host)


def test_containerd_with_the_runtime(host: Any, install: Any, made: Any, tmp_path: Path) -> None:
    install("containerd", runtimes=(need("runc"),))
    config = tmp_path / "config.toml"
    config.write_text(f"version = 2\n{engines.WITHOUT_CRI}\n")
    program = made("sim") / "simcuda" / "simcuda"
    pairs = with_libraries("/bin/simcuda", program)
    mounts = [
        word
        for inside, path in pairs.items()
        for word in ("--mount", f"type=bind,src={path.resolve()},dst={inside},options=rbind:ro")
    ]
    rootfs = tmp_path / "rootfs"
    shutil.copytree(made("rootfs"), rootfs, symlinks=True)
    numbers = iter(range(100))
    with engines.containerd(made("engines"), tmp_path, config) as socket:
        base = [made("engines") / "bin/ctr", "--address", socket]

        def run(env: Any, *command: Any, check: bool = True) -> Any:
            options = ["run", "--rm", "--runc-binary", RUNTIME]
            options += ["--env" if word == "-e" else word for word in ("-e", "PATH=/bin", *env)]
            name = f"ctr{next(numbers)}"
            return call(*base, *options, *mounts, "--rootfs", rootfs, name, *command, check=check)

        judge(host, run)


@pytest.fixture
def pods_config() -> Iterator[Path]:
    """containerd's configuration for pods of our image, after NVIDIA's toolkit was there."""
    path = Path("/") / containerds.PLACES[0].config
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    plugin = 'plugins."io.containerd.grpc.v1.cri"'
    path.write_text(
        f'version = 2\n[{plugin}]\n  sandbox_image = "{IMAGE}"\n'
        f'[{plugin}.containerd]\n  snapshotter = "native"\n'
        f'[{plugin}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
        f'[{plugin}.containerd.runtimes.nvidia]\n  runtime_type = "io.containerd.runc.v2"\n'
        f"[{plugin}.containerd.runtimes.nvidia.options]\n"
        '  BinaryName = "/usr/bin/nvidia-container-runtime"\n'
    )
    yield path
    if before is None:
        path.unlink()
    else:
        path.write_bytes(before)


def test_a_kubelets_pods_by_containerds_cri(
    pods_config: Path, host: Any, install: Any, made: Any, image: Path, tmp_path: Path
) -> None:
    """
    A pod whose runtime class is ours, under either name: its container has the limit that its own
    annotations, its pod's or its environment ask for, and its sandbox none. Another is untouched.
    """
    need("curl")
    need("runc")
    install("containerd", names=("cgpu", "nvidia"), runtimes=("runc",))
    program = made("sim") / "simcuda" / "simcuda"
    mounts = with_libraries("/bin/simcuda", program)
    with engines.containerd(made("engines"), tmp_path, pods_config) as socket:
        cri = Cri(socket, tmp_path)
        until(cri.answers, "containerd's CRI", deadline_s=engines.START_S)
        archive(image, IMAGE, tmp_path / "image.docker")
        call(
            *(made("engines") / "bin/ctr", "--address", socket, "-n", "k8s.io"),
            # containerd 2.2 unpacks for its default snapshotter alone: its CRI does it
            *("images", "import", "--no-unpack", tmp_path / "image.docker"),
        )
        asked = {"CGPU_MEM": "1GiB", "CGPU_GPU": "0"}
        operators = {f"cgpu.io/{key}": value for key, value in asked.items()}
        mgpu = {f"vke.volcengine.com/mgpu-{k}": v for k, v in (("core", "30"), ("memory", "1024"))}
        for name, handler, of_pod, environment, of_container in (
            ("podded", "nvidia", operators, {}, {}),
            ("annotated", "cgpu", {}, {"NVIDIA_VISIBLE_DEVICES": "0"}, mgpu),
            ("limited", "nvidia", {}, asked, {}),
        ):
            LOGS[0].unlink(missing_ok=True)
            with Pod(cri, name, handler, of_pod) as pod:
                command = ["simcuda", "--json", "info"]
                status, text = pod.run(IMAGE, command, environment, mounts, of_container)
                assert status == 0, text
                # A line of a pod's log is: time, stream, F, text.
                assert json.loads(text.splitlines()[-1].split(" ", 3)[3])["board"] == GIB
            gone(host)
            assert LOGS[0].read_text().count("asks for a share") == 1
        # As `kubectl debug --target` does: among another's processes it is held to that one's.
        with Pod(cri, "debugged", "cgpu") as pod:
            main = pod.start(IMAGE, ["sleep", "1000000"], asked, mounts)
            more = {**asked, "CGPU_MEM": "2GiB"}
            pod.start(IMAGE, ["simcuda", "--json", "info"], more, mounts, name="debug", target=main)
            log = pod.logs / "debug.log"
            until(lambda: log.exists() and "board" in log.read_text(), "what it was told")
            told = log.read_text().splitlines()[-1].split(" ", 3)[3]
            assert json.loads(told)["board"] == GIB
        gone(host)
        standard = Path("/run/containerd/containerd.sock")
        standard.parent.mkdir(exist_ok=True)
        standard.symlink_to(socket)
        with Pod(cri, "held", "cgpu") as pod, engines.in_path(made("engines")):
            pod.start(IMAGE, ["sleep", "1000000"], asked, mounts)
            # its sandbox, too; a kubelet would have named both by the pod
            found = pods.held(this_host(), stranded.PROGRAM)
            assert [(one.engine, one.running) for one in found] == [("containerd", True)] * 2
            pod.start(IMAGE, ["sleep", "1000000"], {}, mounts, name="more")
            assert len(pods.held(this_host(), stranded.PROGRAM)) == 3
        with Pod(cri, "runcs", "") as pod, engines.in_path(made("engines")):
            pod.start(IMAGE, ["sleep", "1000000"], {}, {})
            assert pods.held(this_host(), stranded.PROGRAM) == []
        standard.unlink()
        gone(host)
        refused = pytest.raises(CriError, match="65536 MiB asked, 15360 MiB on the card")
        with Pod(cri, "greedy", "cgpu") as pod, refused:
            pod.run(IMAGE, ["true"], {**asked, "CGPU_MEM": "64GiB"}, mounts)
        gone(host)
        joins = {**operators, "cgpu.io/group": "chat"}
        with mps.control(), Pod(cri, "first", "cgpu", joins) as first:
            one = first.start(IMAGE, ["sleep", "1000000"], {}, mounts).decode()
            with Pod(cri, "second", "cgpu", joins) as second:
                look = ["ls", "/run/cgpu/groups/default.chat/pipe"]
                status, text = second.run(IMAGE, look, {}, mounts)
                assert status == 0 and text.rstrip().endswith("F control"), text
            assert set(procfs.container_ids(str(host.root))) == {one, "default.chat"}
            far = {**joins, "cgpu.io/CGPU_GPU": "1"}
            refused = pytest.raises(CriError, match=r"group default\.chat: it is on card 0")
            with Pod(cri, "far", "cgpu", far) as pod, refused:
                pod.run(IMAGE, ["true"], {}, mounts)
        gone(host)
        for name, handler in (("other", "cgpu"), ("usual", "")):
            with Pod(cri, name, handler) as pod:
                assert pod.run(IMAGE, ["true"], {}, {})[0] == 0
