# SPDX-License-Identifier: MIT
"""cgpu-container-runtime: what it adds to a bundle, and that it becomes the runtime behind it."""

import copy
import errno
import json
import os
import platform
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pycgpu.errors import CgpuError, HookError
from pycgpu.oci import runtime
from pycgpu.request.model import GIB, Grant
from pycgpu.tree import procfs

from . import bpf
from .devices import make_devices
from .tree import make_tree, memory, put

REPOSITORY = Path(__file__).parents[2]
HOOK = ("/usr/lib/cgpu/cgpu-hook",)
#: bit of the x32 entries
X32 = 0x40000000
LINUX = {"devices": [], "resources": {"devices": []}}


@pytest.mark.parametrize(
    ("args", "bundle"),
    [
        (["create", "--bundle", "/b", "id"], "/b"),
        (["create", "--bundle=/b", "id"], "/b"),
        (["create", "-b", "/b", "--pid-file", "/p", "id"], "/b"),
        (["run", "-b", "/b", "id"], "/b"),
        (["restore", "--image-path", "/i", "--bundle", "/b", "id"], "/b"),
        (["--root", "create", "--log", "/l", "--systemd-cgroup", "create", "-b", "/b", "i"], "/b"),
        (["--root=/r", "--log-format=json", "create", "-b", "/b", "id"], "/b"),
        (["--cgroup-manager", "run", "create", "-b", "/b", "id"], "/b"),
        (["create", "id"], os.getcwd()),
        (["create", "id", "--", "-b", "/x"], os.getcwd()),
        (["start", "create"], None),
        (["--root", "create", "state", "id"], None),
        (["--version"], None),
        (["--root"], None),
        ([], None),
    ],
)
def test_the_bundle_is_found_as_runc_and_crun_write_it(args: Any, bundle: Any) -> None:
    assert runtime.find_bundle(args) == bundle


@given(st.lists(st.sampled_from(["--root", "--log", "create", "-b", "--bundle=", "x", "--"])))
def test_no_command_line_breaks_the_search(args: Any) -> None:
    assert isinstance(runtime.find_bundle(args), str | None)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(make_tree(tmp_path / "cgpu_km", cards=4))


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """Where the driver's nodes and numbers are: ``dev`` and ``proc``."""
    return make_devices(tmp_path)


def bundle_of(tmp_path: Path, *env: Any, **fields: Any) -> str:
    bundle = tmp_path / "bundle"
    bundle.mkdir(exist_ok=True)
    config = {"ociVersion": "1.0.2", "process": {"env": list(env)}} | fields
    (bundle / "config.json").write_text(json.dumps(config))
    return str(bundle)


def prepared(tmp_path: Path, *env: Any, fields: Any = None, **options: Any) -> Any:
    bundle = bundle_of(tmp_path, *env, **(fields or {}))
    changed = runtime.prepare(bundle, **options)
    return changed, json.loads((tmp_path / "bundle" / "config.json").read_text())


def test_a_container_that_asks_for_nothing_is_left_as_it_is(tmp_path: Path, root: Any) -> None:
    bundle = bundle_of(tmp_path, "PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all")
    before = os.stat(f"{bundle}/config.json")
    assert not runtime.prepare(bundle, root=root)
    assert os.stat(f"{bundle}/config.json") == before


def test_who_would_have_no_card_and_is_to_have_one_is_refused_but_beside_the_toolkit(
    tmp_path: Path, root: Any
) -> None:
    """NVIDIA's runtime brings a card to a container that a vendor's switch leaves alone."""
    bundle = bundle_of(tmp_path, "ALIYUN_COM_GPU_MEM_CONTAINER=0", "NVIDIA_VISIBLE_DEVICES=all")
    with pytest.raises(CgpuError, match=r"CONTAINER='0' asks for no part .* CGPU_MEM=max in its"):
        runtime.prepare(bundle, root=root)
    assert not runtime.prepare(bundle, root=root, toolkit=True)


def test_a_container_with_a_request_maps_no_card_by_a_file(
    tmp_path: Path, root: Any, host: Any
) -> None:
    sysfs = tmp_path / "sys"
    card = sysfs / "bus/pci/devices/0000:01:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    (card / "resource1").write_text("")
    for env, masked in (("CGPU_MEM=1G", [str(card / "resource1")]), ("PATH=/bin", None)):
        _, config = prepared(tmp_path, env, root=root, sysfs=str(sysfs), **host)
        assert config.get("linux", {}).get("maskedPaths") == masked


def test_a_container_that_wants_one_card_is_shown_the_one_that_is_chosen(
    tmp_path: Path, root: Any, host: Any
) -> None:
    put(Path(root) / "2", memory=memory(14 * GIB, allocated=GIB))
    env = ("emr.serverless.mgpu.core=30", "emr.serverless.mgpu.memory=1024")
    _, config = prepared(tmp_path, *env, "NVIDIA_VISIBLE_DEVICES=all", root=root, **host)
    paths = [device["path"] for device in config["linux"]["devices"]]
    assert paths == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia2"]
    assert config["process"]["env"][-1] == f"NVIDIA_VISIBLE_DEVICES={procfs.read_uuid(2, root)}"


@pytest.mark.parametrize(
    ("images", "left"),
    [
        (["NVIDIA_DRIVER_CAPABILITIES=compute,utility"], "compute,utility"),
        (["NVIDIA_DRIVER_CAPABILITIES=all"], "compute,compat32,utility,video,ngx"),
        (["NVIDIA_DRIVER_CAPABILITIES=graphics, utility,display"], "utility"),
        (["NVIDIA_DRIVER_CAPABILITIES=display"], "compute,utility"),
        (["CUDA_VERSION=8.0.61"], "compute,compat32,utility,video,ngx"),
        (["CUDA_VERSION=12", "NVIDIA_DRIVER_CAPABILITIES=compute"], "compute"),
        (["NVIDIA_IMEX_CHANNELS=0", "NVIDIA_MIG_CONFIG_DEVICES=all"], None),
        (["NVIDIA_MIG_MONITOR_DEVICES=all"], None),
    ],
)
def test_no_image_gets_nodes_that_reach_memory_past_the_door(
    tmp_path: Path, root: Any, host: Any, images: Any, left: str | None
) -> None:
    """NVIDIA's toolkit, which is next in line, brings them by these variables."""
    env = ("CGPU_MEM=1GiB", "CGPU_GPU=0", *images)
    _, config = prepared(tmp_path, *env, root=root, **host)
    found = dict(entry.split("=", 1) for entry in config["process"]["env"])
    assert found.get("NVIDIA_DRIVER_CAPABILITIES") == left
    assert not {"NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_CONFIG_DEVICES"} & found.keys()
    assert "NVIDIA_MIG_MONITOR_DEVICES" not in found


@pytest.mark.parametrize("feature", ["GDS", "GDRCOPY", "NVSWITCH", "MOFED", "OF_TOMORROW"])
def test_no_image_turns_on_a_feature_of_the_toolkits(
    tmp_path: Path, root: Any, host: Any, feature: str
) -> None:
    """Each brings nodes: of the host's network and switches, of drivers that map cards' memory."""
    env = ("CGPU_MEM=1GiB", "CGPU_GPU=0", "NVIDIA_PRODUCT_NAME=CUDA", f"NVIDIA_{feature}=enabled")
    _, config = prepared(tmp_path, *env, root=root, **host)
    assert f"NVIDIA_{feature}=enabled" not in config["process"]["env"]
    assert "NVIDIA_PRODUCT_NAME=CUDA" in config["process"]["env"]


def test_nodes_past_the_limits_that_cdi_has_brought_are_taken_out(
    tmp_path: Path, root: Any, host: Any
) -> None:
    def node(minor: int) -> dict[str, object]:
        return {"type": "c", "major": 195, "minor": minor}

    devices = [{"path": "/dev/nvidia0", **node(0)}, {"path": "/dev/nvidia-modeset", **node(254)}]
    allowed = [{"allow": True, **node(minor), "access": "rwm"} for minor in (0, 254)]
    given = {"devices": devices, "resources": {"devices": allowed}}
    env = ("CGPU_MEM=1GiB", "NVIDIA_VISIBLE_DEVICES=void")
    _, config = prepared(tmp_path, *env, fields={"linux": given}, root=root, **host)
    assert devices[0] in config["linux"]["devices"]
    assert "/dev/nvidia-modeset" not in [one["path"] for one in config["linux"]["devices"]]
    assert allowed[0] in config["linux"]["resources"]["devices"]
    assert allowed[1] not in config["linux"]["resources"]["devices"]


def test_hook_devices_and_visible_cards_are_added(tmp_path: Path, root: Any, host: Any) -> None:
    env = ("PATH=/bin", "CGPU_MEM=1GiB", "CGPU_GPU=2,0", "NVIDIA_VISIBLE_DEVICES=all")
    changed, config = prepared(tmp_path, *env, root=root, **host)
    assert changed
    assert config["hooks"] == {
        stage: [{"path": HOOK[0], "args": ["cgpu-hook", stage]}]
        for stage in ("createRuntime", "poststop")
    }
    paths = [device["path"] for device in config["linux"]["devices"]]
    assert paths == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia2", "/dev/nvidia0"]
    urandom = os.stat("/dev/urandom").st_rdev
    assert config["linux"]["resources"]["devices"][2] == {
        "allow": True,
        "type": "c",
        "major": os.major(urandom),
        "minor": os.minor(urandom),
        "access": "rw",
    }
    uuids = [procfs.read_uuid(card, root) for card in (2, 0)]
    assert config["process"]["env"][-1] == "NVIDIA_VISIBLE_DEVICES=" + ",".join(uuids)
    assert "NVIDIA_VISIBLE_DEVICES=all" not in config["process"]["env"]


def test_the_hook_understands_what_the_runtime_leaves_behind(
    tmp_path: Path, root: Any, host: Any
) -> None:
    _, config = prepared(
        tmp_path,
        "ALIYUN_COM_GPU_MEM_CONTAINER=3,4",
        "ALIYUN_COM_GPU_MEM_DEV=15",
        "NVIDIA_VISIBLE_DEVICES=3,1",
        root=root,
        **host,
    )
    from pycgpu.oci.bundle import request_of
    from pycgpu.request.admission import admit

    request = request_of(config)
    assert request is not None
    grant = admit(request, procfs.read_cards(root))
    assert isinstance(grant, Grant)
    assert [card.index for card in grant.cards] == [3, 1]


def test_what_engines_have_put_there_stays(tmp_path: Path, root: Any, host: Any) -> None:
    fields: dict[str, Any] = {
        "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]},
        "linux": {
            "devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "seccomp": {"defaultAction": "SCMP_ACT_ERRNO"},
        },
    }
    _, config = prepared(tmp_path, "CGPU_MEM=1G", "CGPU_GPU=0", fields=fields, root=root, **host)
    assert config["hooks"]["prestart"] == fields["hooks"]["prestart"]
    assert config["linux"]["devices"][0] == fields["linux"]["devices"][0]
    assert [d["path"] for d in config["linux"]["devices"]].count("/dev/nvidia0") == 1
    assert config["linux"]["resources"]["devices"][0] == {"allow": False, "access": "rwm"}
    assert config["linux"]["seccomp"] == {"defaultAction": "SCMP_ACT_ERRNO"}


def test_what_cdi_has_brought_is_not_asked_of_the_runtime_behind_again(
    tmp_path: Path, root: Any, host: Any
) -> None:
    """The toolkit's specification says void, and nvidia-container-runtime leaves it alone."""
    card = {"path": "/dev/nvidia3", "type": "c", "major": 195, "minor": 3}
    void = "NVIDIA_VISIBLE_DEVICES=void"
    _, config = prepared(
        tmp_path, "CGPU_MEM=1G", void, fields={"linux": {"devices": [card]}}, root=root, **host
    )
    assert config["process"]["env"] == ["CGPU_MEM=1G", void]
    paths = [device["path"] for device in config["linux"]["devices"]]
    assert paths == ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert config["hooks"]["createRuntime"][0]["path"] == HOOK[0]


def test_a_container_without_a_node_of_its_cards_is_not_created(
    tmp_path: Path, root: Any, host: Any
) -> None:
    Path(host["dev"], "nvidia-uvm").unlink()
    Path(host["proc"], "devices").write_text("Character devices:\n195 nvidia\n")
    bundle = bundle_of(tmp_path, "CGPU_MEM=1G", "CGPU_GPU=0")
    before = Path(bundle, "config.json").read_text()
    with pytest.raises(CgpuError, match=r"nvidia-uvm is missing.*modprobe nvidia-uvm"):
        runtime.prepare(bundle, root=root, **host)
    assert Path(bundle, "config.json").read_text() == before


def test_systemd_finds_what_it_is_told_of_the_devices(tmp_path: Path, root: Any, host: Any) -> None:
    """runc leaves a device out of the unit's DeviceAllow that has no link in /dev/char."""
    _, config = prepared(tmp_path, "CGPU_MEM=1G", "CGPU_GPU=1", root=root, **host)
    rules = config["linux"]["resources"]["devices"]
    assert len(rules) == 3
    for rule in rules:
        found = os.stat(f"{host['dev']}/char/{rule['major']}:{rule['minor']}").st_rdev
        assert found == os.makedev(rule["major"], rule["minor"])


@pytest.mark.parametrize("stage", ["createRuntime", "prestart"])
def test_a_hook_that_hooks_d_has_added_is_not_added_again(
    tmp_path: Path, root: Any, host: Any, stage: Any
) -> None:
    entry = {"path": "/usr/lib/cgpu/cgpu-hook", "args": ["cgpu-hook", stage]}
    _, config = prepared(
        tmp_path, "CGPU_MEM=1G", fields={"hooks": {stage: [entry]}}, root=root, **host
    )
    hooks = config["hooks"]
    assert len([e for s in ("createRuntime", "prestart") for e in hooks.get(s, [])]) == 1


@pytest.mark.parametrize(
    "env", [("CGPU_MEM=lots",), ("CGPU_MEM=1G", "CGPU_GPU=9"), ("EGPU=",), ("CGPU_DISABLE=x",)]
)
def test_a_request_that_cannot_be_met_still_gets_the_hook_that_refuses_it(
    tmp_path: Path, root: Any, env: Any
) -> None:
    changed, config = prepared(tmp_path, *env, root=root)
    assert changed
    assert config["hooks"]["createRuntime"][0]["path"] == HOOK[0]
    assert "devices" not in config.get("linux", {})


def test_without_a_tree_the_hook_is_left_to_refuse(tmp_path: Path) -> None:
    _, config = prepared(tmp_path, "CGPU_MEM=1G", root=str(tmp_path / "none"))
    assert config["hooks"]["createRuntime"]


@pytest.mark.parametrize("entry", ["CGPU_MEM=1GiB", "CGPU_`touch /x`=1"])
@pytest.mark.parametrize("name", ["run.oci.hooks.stderr", "run.oci.hooks.stdout"])
def test_crun_is_not_started_to_write_hooks_words_to_a_file_of_the_tenants_choice(
    tmp_path: Path, root: Any, name: str, entry: str
) -> None:
    bundle = bundle_of(tmp_path, entry, annotations={name: "/root/.bashrc"})
    before = Path(bundle, "config.json").read_text()
    with pytest.raises(HookError, match=f"the annotation {name} has crun write"):
        runtime.prepare(bundle, root=root)
    assert Path(bundle, "config.json").read_text() == before
    bundle = bundle_of(tmp_path, "PATH=/bin", annotations={name: "/root/.bashrc"})
    assert not runtime.prepare(bundle, root=root)


def test_mode_and_owner_of_the_config_stay(tmp_path: Path, root: Any, host: Any) -> None:
    bundle = bundle_of(tmp_path, "CGPU_MEM=1G", "CGPU_GPU=0")
    os.chmod(f"{bundle}/config.json", 0o600)
    runtime.prepare(bundle, root=root, **host)
    assert stat.S_IMODE(os.stat(f"{bundle}/config.json").st_mode) == 0o600
    assert os.listdir(bundle) == ["config.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"process": [], "hooks": 7}'])
def test_a_config_that_cannot_be_read_is_an_error(tmp_path: Path, text: Any) -> None:
    bundle = bundle_of(tmp_path)
    Path(bundle, "config.json").write_text(text)
    if text.startswith('{"'):
        config = json.loads(text) | {"process": {"env": ["CGPU_MEM=1G"]}}
        Path(bundle, "config.json").write_text(json.dumps(config))
    with pytest.raises(HookError):
        runtime.prepare(bundle, root="/nonexistent")


def masked(mask: Any, value: Any, index: int = 1) -> Any:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


RULES = {
    "listenerPath": "/run/cgpu/seccomp.sock",
    "listenerMetadata": "cgpu",
    "architectures": ["SCMP_ARCH_X86_64"],
    "syscalls": [
        {"names": ["ioctl"], "action": "SCMP_ACT_NOTIFY", "args": [masked(0xFE, 0x2A)]},
        {"names": ["ioctl"], "action": "SCMP_ACT_NOTIFY", "args": [masked(0xFFFFFFFF, 0x30)]},
    ],
}


def test_the_engines_rule_for_the_same_call_holds_for_the_rest_of_its_arguments(
    tmp_path: Path,
) -> None:
    (tmp_path / "seccomp.json").write_text(json.dumps(RULES))
    conditional = {"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "args": [masked(0xFFFF, 0x5412)]}
    config: dict[str, Any] = {
        "linux": {
            "seccomp": {
                "defaultAction": "SCMP_ACT_ERRNO",
                "architectures": ["SCMP_ARCH_X86"],
                "syscalls": [
                    {"names": ["read", "ioctl"], "action": "SCMP_ACT_ALLOW"},
                    conditional,
                ],
            }
        }
    }
    runtime.add_seccomp(config, str(tmp_path / "seccomp.json"))
    allow = {"action": "SCMP_ACT_ALLOW"}
    assert config["linux"]["seccomp"] == {
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X86_64"],
        "syscalls": [
            *RULES["syscalls"],
            {"names": ["read"], **allow},
            {"names": ["ioctl"], **allow, "args": [masked(2, 0)]},
            {"names": ["ioctl"], **allow, "args": [masked(2, 2)]},
            conditional,
        ],
        "listenerPath": "/run/cgpu/seccomp.sock",
        "listenerMetadata": "cgpu",
    }


@pytest.mark.parametrize(
    "args", [[masked(1, 0), masked(2, 0)], [masked(1, 0), masked(1, 0, index=2)], []]
)
def test_rules_without_a_common_bit_cannot_be_merged(tmp_path: Path, args: Any) -> None:
    rules = [{"names": ["ioctl"], "action": "SCMP_ACT_NOTIFY", "args": [arg]} for arg in args]
    rules = rules or [{"names": ["ioctl"], "action": "SCMP_ACT_NOTIFY"}]
    (tmp_path / "seccomp.json").write_text(json.dumps(RULES | {"syscalls": rules}))
    profile: dict[str, Any] = {"syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_ALLOW"}]}
    with pytest.raises(HookError, match="rules for ioctl"):
        runtime.add_seccomp({"linux": {"seccomp": profile}}, str(tmp_path / "seccomp.json"))


def test_the_agents_own_rules_go_with_an_engines_profile(tmp_path: Path) -> None:
    from pycgpu.agent.filter import oci_fragment

    (tmp_path / "seccomp.json").write_text(json.dumps(oci_fragment("/run/cgpu/seccomp.sock")))
    profile: dict[str, Any] = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [{"names": ["ioctl", "mmap"], "action": "SCMP_ACT_ALLOW"}],
    }
    config: dict[str, object] = {"linux": {"seccomp": profile}}
    runtime.add_seccomp(config, str(tmp_path / "seccomp.json"))
    allowed = [rule for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    assert [rule["names"] for rule in allowed] == [["ioctl"]] * 2 + [["mmap"]] * 2


#: As engines write it: an unconditional rule for most calls, and the entries of a 32-bit program.
ENGINES: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "syscalls": [
        {
            "names": ["ioctl", "mmap", "mmap2", "read", "seccomp"],
            "action": "SCMP_ACT_ALLOW",
        }
    ],
}
OPEN: dict[str, Any] = {**ENGINES, "defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}


@pytest.fixture(params=[ENGINES, OPEN], ids=["engine's", "open"])
def merged(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    """The filter of a container under runc and crun, of a profile and the agent's rules."""
    from pycgpu.agent.filter import oci_fragment

    if platform.machine() != "x86_64":
        pytest.skip("no package: 32-bit entries of this machine")
    (tmp_path / "seccomp.json").write_text(json.dumps(oci_fragment("/run/cgpu/seccomp.sock")))
    config: dict[str, Any] = {"linux": {"seccomp": copy.deepcopy(request.param)}}
    runtime.add_seccomp(config, str(tmp_path / "seccomp.json"))
    return bpf.of_profile(config["linux"]["seccomp"])


@pytest.mark.parametrize(("nr", "arch"), [(317, bpf.X86_64), (354, bpf.I386), (X32 | 317, None)])
@pytest.mark.parametrize("rest", [0, 1, 0xFF << 32])
def test_in_a_container_another_listener_is_refused(
    merged: bytes, nr: int, arch: int | None, rest: int
) -> None:
    refused = bpf.ERRNO | errno.EBUSY
    assert bpf.run(merged, nr, (1, 8 | rest), arch or bpf.X86_64) == refused
    assert bpf.run(merged, nr, (1, rest), arch or bpf.X86_64) == bpf.ALLOW


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=6, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_agent_hears_of_every_mapping_whose_arguments_no_filter_sees(
    merged: bytes, args: list[int]
) -> None:
    """i386's old mmap has one argument, a pointer."""
    assert bpf.run(merged, 90, tuple(args), bpf.I386) == bpf.NOTIFY


@given(st.lists(st.integers(0, (1 << 48) - 1), min_size=6, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_in_a_container_shared_file_mappings_alone_are_heard_of(
    merged: bytes, args: list[int]
) -> None:
    answer = bpf.NOTIFY if args[3] & 0x21 == 1 else bpf.ALLOW
    # A descriptor is a number of 32 bits, or -1.
    for fd in (args[4] & 0xFFFFFFFF, (1 << 64) - 1):
        assert bpf.run(merged, 9, (*args[:4], fd, args[5])) == answer
    assert bpf.run(merged, 192, tuple(args), bpf.I386) == answer


@pytest.mark.parametrize(("nr", "arch"), [(16, bpf.X86_64), (54, bpf.I386), (X32 | 514, None)])
def test_in_a_container_the_drivers_ioctls_are_heard_of_by_every_entry(
    merged: bytes, nr: int, arch: int | None
) -> None:
    assert bpf.run(merged, nr, (3, 0xC020462A), arch or bpf.X86_64) == bpf.NOTIFY
    assert bpf.run(merged, nr, (3, 0x5401), arch or bpf.X86_64) == bpf.ALLOW


def test_a_container_without_a_profile_gets_one_that_allows_the_rest(tmp_path: Path) -> None:
    (tmp_path / "seccomp.json").write_text(json.dumps(RULES))
    config: dict[str, Any] = {}
    runtime.add_seccomp(config, str(tmp_path / "seccomp.json"))
    assert config["linux"]["seccomp"]["defaultAction"] == "SCMP_ACT_ALLOW"


def test_without_the_agents_rules_nothing_starts_under_the_user_door(tmp_path: Path) -> None:
    with pytest.raises(HookError, match="cannot read the agent's rules"):
        runtime.add_seccomp({}, str(tmp_path / "none"))


def test_a_foreign_listener_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "seccomp.json").write_text(json.dumps(RULES))
    config: dict[str, object] = {"linux": {"seccomp": {"listenerPath": "/other"}}}
    with pytest.raises(HookError, match="listener of its own"):
        runtime.add_seccomp(config, str(tmp_path / "seccomp.json"))


BESIDE = {"namespaces": [{"type": "network", "path": "/proc/1/ns/net"}]}


def test_a_container_beside_one_with_a_part_takes_nothing_by_its_files(tmp_path: Path) -> None:
    """Whatever its profile allows, and without the agent having to be asked."""
    (tmp_path / "seccomp.json").write_text(json.dumps(RULES))
    profile = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["ioctl", "read"], "action": "SCMP_ACT_ALLOW"},
    ]}  # fmt: skip
    changed, config = prepared(
        tmp_path,
        fields={"linux": BESIDE | {"seccomp": profile}},
        seccomp=str(tmp_path / "seccomp.json"),
    )
    assert not changed
    ours, *kept = config["linux"]["seccomp"]["syscalls"]
    refused = [rule for rule in (ours, *kept) if rule["action"] == "SCMP_ACT_ERRNO"]
    numbers = {rule["args"][0]["valueTwo"] for rule in refused}
    # RM_ALLOC by its two structures, RM_CONTROL, UVM_INITIALIZE
    assert {0x30002B, 0x20002B, 0x20002A, 0x30000001} <= numbers
    assert {rule["errnoRet"] for rule in refused} == {errno.ENOTTY}
    assert {"names": ["read"], "action": "SCMP_ACT_ALLOW"} in kept
    # what a shell asks of its terminal passes
    assert not any(0x5413 & rule["args"][0]["value"] == rule["args"][0]["valueTwo"]
                   for rule in refused)  # fmt: skip
    assert "listenerPath" not in config["linux"]["seccomp"]
    assert "hooks" not in config


@pytest.mark.parametrize(
    "fields",
    [
        {"linux": {"namespaces": [{"type": "network"}]}},
        {"linux": BESIDE | {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195}]}},
        {"linux": BESIDE | {"resources": {"devices": [{"allow": True, "access": "rwm"}]}}},
        {"linux": BESIDE, "mounts": [{"source": "/dev/nvidiactl", "destination": "/dev/x"}]},
        {"linux": BESIDE, "process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}},
        {"linux": BESIDE, "process": {"capabilities": {"effective": ["CAP_SYS_ADMIN"]}}},
    ],
)
def test_who_meets_nobody_or_has_a_card_or_is_an_administrator_is_left_as_it_is(
    tmp_path: Path, fields: Any
) -> None:
    (tmp_path / "seccomp.json").write_text(json.dumps(RULES))
    _, config = prepared(tmp_path, fields=fields, seccomp=str(tmp_path / "seccomp.json"))
    assert "seccomp" not in config["linux"]


def test_without_the_agent_no_container_is_kept_off(tmp_path: Path) -> None:
    _, config = prepared(tmp_path, fields={"linux": BESIDE}, seccomp=str(tmp_path / "none"))
    assert "seccomp" not in config["linux"]


def start(tmp_path: Path, *args: Any, script: str = '#!/bin/sh\necho "$0 $*"\n') -> Any:
    behind = tmp_path / "runc"
    behind.write_text(script)
    behind.chmod(0o755)
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r});"
        f" from pycgpu.oci.runtime import main; sys.exit(main(runtimes=({str(behind)!r},)))"
    )
    return subprocess.run(
        [sys.executable, "-ISc", code, *args], capture_output=True, text=True, check=False
    )


def test_other_commands_become_the_runtime_behind_with_the_same_arguments(tmp_path: Path) -> None:
    result = start(tmp_path, "--root", "/r", "state", "a b")
    assert result.stdout == f"{tmp_path}/runc --root /r state a b\n"


def test_the_runtime_behind_ignores_no_signal_that_python_does(tmp_path: Path) -> None:
    """crun hands it on to the container, where `yes | head` would never end."""
    result = start(tmp_path, "state", script="#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    ignored = int(result.stdout.split()[1], 16)
    # whoever starts the tests may ignore others, as `nohup` does
    assert not any(ignored & 1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ)), result


#: As NVIDIA's from 1.18 on: it adds nodes, whatever is asked for, and becomes the runc of its PATH.
TOOLKIT_SCRIPT = """\
#!{python}
import json, os, sys
path = sys.argv[sys.argv.index("-b") + 1] + "/config.json"
with open(path) as file:
    config = json.load(file)
node = {{"type": "c", "major": 195, "minor": 254}}
config["linux"]["devices"].append({{"path": "/dev/nvidia-modeset", **node}})
config["linux"]["resources"]["devices"].append({{"allow": True, **node, "access": "rw"}})
with open(path, "w") as file:
    json.dump(config, file)
os.execvp("{runc}", ["{runc}", *sys.argv[1:]])
"""


@pytest.mark.parametrize("runc", ["runc", "crun"])
@pytest.mark.parametrize("asks", [True, False])
def test_what_nvidias_runtime_adds_behind_it_is_taken_out_before_runc_starts(
    tmp_path: Path, root: Any, host: Any, runc: str, asks: bool
) -> None:
    toolkit, behind, others = (tmp_path / name for name in ("nvidia", "behind", "bin"))
    for folder in (toolkit, others):
        folder.mkdir()
    (toolkit / runtime.TOOLKIT).write_text(TOOLKIT_SCRIPT.format(python=sys.executable, runc=runc))
    runtimes = [str(toolkit / runtime.TOOLKIT), str(others / "runc"), str(others / "crun")]
    for path in runtimes[1:]:
        Path(path).write_text('#!/bin/sh\necho "$0 $* $PATH"\n')
    own = tmp_path / "cgpu-container-runtime"
    own.write_text(
        f"#!{sys.executable} -IS\n"
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from pycgpu.oci.runtime import main\n"
        f"sys.exit(main(runtimes={tuple(runtimes)!r}, root={root!r}, behind={str(behind)!r},"
        f" **{host!r}))\n"
    )
    for program in (own, *map(Path, runtimes)):
        program.chmod(0o755)
    bundle = bundle_of(tmp_path, *["CGPU_MEM=1GiB", "CGPU_GPU=0"] * asks, linux=LINUX)
    search = f"{others}:/usr/bin:/bin"
    result = subprocess.run(
        [own, "create", "-b", bundle, "id"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": search},
    )
    assert result.stdout == f"{others}/{runc} create -b {bundle} id {search}\n", result.stderr
    given = json.loads((Path(bundle) / "config.json").read_text())["linux"]
    found = ["/dev/nvidia-modeset" in [one["path"] for one in given["devices"]]]
    found.append(254 in [rule.get("minor") for rule in given["resources"]["devices"]])
    assert found == [not asks] * 2
    assert behind.exists() == asks


def test_where_the_links_cannot_be_made_the_toolkit_starts_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = runtime.step_behind("/bin/sh", str(tmp_path / "file" / "behind"))
    assert environment == dict(os.environ)


def test_links_lead_to_the_program_that_is_there_now(tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    for program in ("/bin/true", "/bin/sh"):
        runtime.step_behind(program, str(behind))
        assert os.path.realpath(behind / "runc") == os.path.realpath(program)
    assert sorted(os.listdir(behind)) == ["crun", "runc"]


def test_a_failure_is_told_where_containerd_reads_it(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    result = start(tmp_path, "--log", str(log), "create", "-b", "/nonexistent", "id")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "cgpu: /nonexistent/config.json: No such file or directory\n"
    assert json.loads(log.read_text())["level"] == "error"


def test_without_any_runtime_the_remedy_is_named() -> None:
    with pytest.raises(HookError, match="install runc"):
        runtime.find_runtime(("no-such-runtime",))


def test_passing_on_imports_next_to_nothing() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import pycgpu.oci.runtime;"
        " print(*sorted(m for m in sys.modules if '.' not in m))"
    )
    out = subprocess.run([sys.executable, "-ISc", code], capture_output=True, check=True).stdout
    assert not {"json", "re", "typing", "enum", "collections"} & set(out.decode().split())
