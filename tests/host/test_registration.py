# SPDX-License-Identifier: MIT
"""Registering with container engines, under another root directory, and taking it back."""

import fnmatch
import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pycgpu.errors import InstallError
from pycgpu.install import registration
from pycgpu.install.registration import (
    Options,
    apply,
    engines_here,
    plan,
    plan_undo,
    undo,
)

ALL = Options(registration.ENGINES)
DAEMON = {"data-root": "/data", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
BEGIN = "# BEGIN cgpu (written by `cgpu install-runtime`)\n"
RUNTIMES = 'plugins."io.containerd.grpc.v1.cri".containerd.runtimes'
#: As `nvidia-ctk runtime configure` writes it over `containerd config default`.
TOOLKITS = """version = 2

[plugins]

  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "pause"

    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"
      snapshotter = "overlayfs"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          container_annotations = [
            "nvidia.cdi.k8s.io/*",
          ]
          privileged_without_host_devices = false
          runtime_engine = ""
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
            SystemdCgroup = true

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            SystemdCgroup = true
"""
TOML = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "pause"\n'


@pytest.fixture
def host(tmp_path: Path) -> Any:
    put(tmp_path, "etc/docker/daemon.json", json.dumps(DAEMON))
    put(tmp_path, "etc/containerd/config.toml", TOML)
    return tmp_path


def put(root: Any, path: Any, text: Any) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def files(root: Any) -> Any:
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


def install(root: Any, options: Any = ALL) -> None:
    apply(plan(options, root), root)


def test_engines_are_those_with_a_configuration(host: Any) -> None:
    assert engines_here(host) == ("docker", "containerd")


def test_planning_changes_nothing(host: Any) -> None:
    before = files(host)
    assert plan(ALL, host)
    assert files(host) == before


def test_docker_gets_a_runtime_beside_the_others(host: Any) -> None:
    install(host)
    config = json.loads((host / "etc/docker/daemon.json").read_text())
    assert config["runtimes"] == {
        "nvidia": {"path": "nvidia-container-runtime"},
        "cgpu": {"path": "/usr/lib/cgpu/cgpu-container-runtime"},
    }
    assert config["data-root"] == "/data"
    assert "default-runtime" not in config


def test_containerd_gets_a_runtime_that_its_parser_reads(host: Any) -> None:
    install(host, ALL._replace(default=True))
    config = tomllib.loads((host / "etc/containerd/config.toml").read_text())
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "pause"
    assert cri["containerd"]["default_runtime_name"] == "cgpu"
    assert cri["containerd"]["runtimes"]["cgpu"]["options"]["BinaryName"].startswith("/usr/lib")
    for key in ("pod_annotations", "container_annotations"):
        patterns = cri["containerd"]["runtimes"]["cgpu"][key]
        for name in (
            "cgpu.io/CGPU_MEM",
            "vke.volcengine.com/mgpu-core",
            "emr.serverless.mgpu.core",
            "nvidia.com/gpumem",
        ):
            assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


@pytest.mark.parametrize("names", [("cgpu",), ("cgpu", "runc")])
def test_containerd_keeps_the_runtime_that_it_has_by_itself(host: Any, names: Any) -> None:
    """Any table of runtimes replaces its own, and without runc its CRI plugin does not load."""
    install(host, ALL._replace(names=names))
    config = tomllib.loads((host / "etc/containerd/config.toml").read_text())
    runtimes = config["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert set(runtimes) == {"cgpu", "runc"}
    assert runtimes["runc"]["runtime_type"] == "io.containerd.runc.v2"
    assert ("options" in runtimes["runc"]) == ("runc" in names)


def test_containerd_runtimes_that_are_there_are_left_as_they_are(host: Any) -> None:
    own = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata]\n  runtime_type = "k"\n'
    put(host, "etc/containerd/config.toml", TOML + own)
    install(host)
    config = tomllib.loads((host / "etc/containerd/config.toml").read_text())
    runtimes = config["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert set(runtimes) == {"cgpu", "kata"}
    assert runtimes["kata"] == {"runtime_type": "k"}


def test_containerd_2_keeps_its_runtimes_elsewhere(host: Any) -> None:
    put(host, "etc/containerd/config.toml", "version = 3\n")
    install(host)
    config = tomllib.loads((host / "etc/containerd/config.toml").read_text())
    assert "cgpu" in config["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]


def containerds(root: Any, path: str = "etc/containerd/config.toml") -> Any:
    """What containerd reads of runtimes."""
    config = tomllib.loads((root / path).read_text())
    return config["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]


BOTH = ALL._replace(names=("cgpu", "nvidia"))


def test_the_toolkits_name_is_taken_over_and_given_back(host: Any) -> None:
    """`--runtime=nvidia` starts ours, which goes on to what it started before."""
    put(host, "etc/containerd/config.toml", TOOLKITS)
    before = files(host)
    install(host, BOTH)
    after = containerds(host)
    assert after["default_runtime_name"] == "runc"
    own = {"BinaryName": "/usr/lib/cgpu/cgpu-container-runtime", "SystemdCgroup": True}
    for name in ("cgpu", "nvidia"):
        assert after["runtimes"][name]["options"] == own, "the node's way with cgroups"
        assert after["runtimes"][name]["runtime_type"] == "io.containerd.runc.v2"
    assert after["runtimes"]["nvidia"]["privileged_without_host_devices"] is False
    assert after["runtimes"]["nvidia"]["container_annotations"][0] == "nvidia.cdi.k8s.io/*"
    assert "cgpu.io/*" in after["runtimes"]["nvidia"]["container_annotations"]
    assert after["runtimes"]["runc"]["options"] == {"SystemdCgroup": True}
    launcher = (host / registration.RUNTIME).read_text()
    first = launcher.partition("for runtime in ")[2].split()[0]
    assert first == "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    assert plan(BOTH, host) == []
    undo(plan_undo(host), host)
    assert files(host) == before


def test_the_default_runtime_is_replaced_where_its_table_is(host: Any) -> None:
    put(host, "etc/containerd/config.toml", TOOLKITS)
    before = files(host)
    install(host, BOTH._replace(default=True))
    assert containerds(host)["default_runtime_name"] == "cgpu"
    assert containerds(host)["snapshotter"] == "overlayfs"
    assert plan(BOTH._replace(default=True), host) == []
    install(host, BOTH)
    assert containerds(host)["default_runtime_name"] == "runc"
    undo(plan_undo(host), host)
    assert files(host) == before


def test_a_file_that_containerds_own_imports_decides(host: Any) -> None:
    """The toolkit writes one from 1.18 on; its plugin replaces the one in config.toml."""
    main = 'imports = ["/etc/containerd/conf.d/*.toml"]\n' + TOML
    put(host, "etc/containerd/config.toml", main)
    put(host, "etc/containerd/conf.d/10-debug.toml", 'version = 2\n[debug]\nlevel = "info"\n')
    put(host, "etc/containerd/conf.d/99-nvidia.toml", TOOLKITS)
    before = files(host)
    assert registration.names_free(host) == ("cgpu",)
    install(host, BOTH)
    found = containerds(host, "etc/containerd/conf.d/99-nvidia.toml")["runtimes"]
    assert found["nvidia"]["options"]["BinaryName"].startswith("/usr/lib/cgpu")
    assert (host / "etc/containerd/config.toml").read_text() == main
    assert "systemctl restart containerd" in registration.restart_commands(plan_undo(host))
    undo(plan_undo(host), host)
    assert files(host) == before


def test_what_wrote_the_file_anew_since_loses_ours_and_keeps_its_own(host: Any) -> None:
    """As `nvidia-ctk` does: values stay, comments, and with them our marks, are gone."""
    put(host, "etc/containerd/config.toml", TOOLKITS)
    install(host, BOTH._replace(default=True))
    path = host / "etc/containerd/config.toml"
    lines = [line.partition("#")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n[metrics]\n")
    undo(plan_undo(host), host)
    assert "cgpu" not in path.read_text()
    assert tomllib.loads(path.read_text()) == {**tomllib.loads(TOOLKITS), "metrics": {}}


def test_podman_and_crio_get_files_of_their_own(host: Any) -> None:
    install(host)
    for stage in ("createRuntime", "poststop"):
        text = (host / f"etc/containers/oci/hooks.d/90-cgpu-{stage.lower()}.json").read_text()
        definition = json.loads(text)
        assert definition["stages"] == [stage]
        assert definition["hook"] == {
            "path": "/usr/lib/cgpu/cgpu-hook",
            "args": ["cgpu-hook", stage],
        }
    for path in (
        "etc/containers/containers.conf.d/90-cgpu.conf",
        "etc/crio/crio.conf.d/99-zz-cgpu.conf",
    ):
        tomllib.loads((host / path).read_text())


def test_of_two_files_of_crio_ours_is_read_after_the_toolkits(host: Any) -> None:
    put(host, "etc/crio/crio.conf.d/99-nvidia.conf", "[crio.runtime.runtimes.nvidia]\n")
    install(host, BOTH)
    names = sorted(path.name for path in (host / "etc/crio/crio.conf.d").iterdir())
    assert names[0] == "99-nvidia.conf" and len(names) == 2


def test_installing_twice_changes_nothing_more(host: Any) -> None:
    install(host)
    assert plan(ALL, host) == []


def test_undo_gives_every_byte_back(host: Any) -> None:
    before = files(host)
    install(host, ALL._replace(names=("cgpu", "nvidia"), default=True))
    assert files(host) != before
    undo(plan_undo(host), host)
    assert files(host) == before
    assert plan_undo(host) == []


def test_undo_after_two_different_installations_gives_the_first_state_back(host: Any) -> None:
    before = files(host)
    install(host)
    install(host, ALL._replace(names=("nvidia",), logs=("/l",)))
    undo(plan_undo(host), host)
    assert files(host) == before


def test_undo_keeps_what_others_changed_meanwhile(host: Any) -> None:
    install(host)
    path = host / "etc/docker/daemon.json"
    config = json.loads(path.read_text())
    config["debug"] = True
    path.write_text(json.dumps(config))
    toml = host / "etc/containerd/config.toml"
    toml.write_text(toml.read_text() + "[metrics]\n")
    undo(plan_undo(host), host)
    assert json.loads(path.read_text()) == DAEMON | {"debug": True}
    assert toml.read_text() == TOML + "[metrics]\n"


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("etc/docker/daemon.json", "{", "daemon.json: not JSON"),
        ("etc/docker/daemon.json", "[]", "daemon.json: not a JSON object"),
        ("etc/docker/daemon.json", '{"runtimes": []}', "'runtimes' is not an object"),
        ("etc/containerd/config.toml", "x", "config.toml: "),
        ("etc/containerd/config.toml", "version = 1\n", "version 1"),
        (
            "etc/containerd/config.toml",
            TOML + f'[{RUNTIMES}.cgpu]\nruntime_type = "io.containerd.kata.v2"\n',
            "runtime 'cgpu' is there already, and is a 'io.containerd.kata.v2'",
        ),
        (
            "etc/containerd/config.toml",
            TOML + f"[{RUNTIMES}]\ncgpu = {{}}\n",
            "runtime 'cgpu' is there already, and not in a table of its own",
        ),
        ("etc/containerd/config.toml", TOML + BEGIN, "a line '# END cgpu' is missing"),
    ],
)
def test_a_configuration_that_cannot_be_extended_is_left_alone(
    host: Any, path: Any, text: Any, message: Any
) -> None:
    put(host, path, text)
    before = files(host)
    with pytest.raises(InstallError, match=message):
        plan(ALL, host)
    assert files(host) == before


@pytest.mark.parametrize("options", [Options(("lxc",)), ALL._replace(names=("a b",))])
def test_a_wrong_option_is_refused(host: Any, options: Any) -> None:
    with pytest.raises(InstallError):
        plan(options, host)


def test_a_failure_half_way_puts_back_what_was_written(host: Any) -> None:
    before = files(host)
    changes = plan(ALL, host)
    (host / "etc/containers").write_text("in the way")
    with pytest.raises(InstallError, match="nothing was changed"):
        apply(changes, host)
    (host / "etc/containers").unlink()
    assert {path: text for path, text in files(host).items() if path in before} == before
    assert set(files(host)) == set(before)


def test_the_installed_programs_run(host: Any) -> None:
    install(host, ALL._replace(logs=(str(host / "log"),)))
    hook = subprocess.run(
        [host / "usr/lib/cgpu/cgpu-hook", "createRuntime"], input=b"{}", capture_output=True
    )
    assert hook.returncode == 1
    assert hook.stderr == b"cgpu: the container's state has no id\n"
    assert "refused" in (host / "log").read_text()
    runtime = subprocess.run(
        [host / "usr/lib/cgpu/cgpu-container-runtime", "create", "-b", "/nonexistent", "x"],
        capture_output=True,
    )
    assert runtime.returncode == 1
    assert b"/nonexistent/config.json" in runtime.stderr


def test_the_programs_take_nothing_from_the_environment(host: Any) -> None:
    install(host, ALL._replace(logs=(str(host / "log"),)))
    for module in ("os", "sys", "pycgpu", "sitecustomize"):
        put(host, f"evil/{module}.py", "raise SystemExit(99)\n")
    put(host, "evil/sh", "exit 99\n")
    env = {name: str(host / "evil") for name in ("PYTHONPATH", "PYTHONHOME")}
    env |= {"ENV": str(host / "evil/sh"), "PYTHONSTARTUP": str(host / "evil/os.py")}
    for program in ("cgpu-hook createRuntime", "cgpu-container-runtime create -b /nonexistent x"):
        words = program.split()
        done = subprocess.run(
            [host / "usr/lib/cgpu" / words[0], *words[1:]], input=b"{}", env=env, cwd=host / "evil"
        )
        assert done.returncode == 1


def test_other_modes_of_files_stay(host: Any) -> None:
    (host / "etc/docker/daemon.json").chmod(0o600)
    install(host)
    assert os.stat(host / "etc/docker/daemon.json").st_mode & 0o777 == 0o600


def test_engines_that_must_restart_are_named(host: Any) -> None:
    assert registration.restart_commands(plan(ALL, host)) == [
        "systemctl restart docker",
        "systemctl restart containerd",
        "systemctl restart crio",
    ]
