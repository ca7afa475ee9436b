# SPDX-License-Identifier: MIT
"""Registering with container engines, under another root directory, and taking it back."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pycgpu.errors import InstallError
from pycgpu.install import registration
from pycgpu.install.launcher import RUNTIME
from pycgpu.install.registration import (
    Options,
    apply,
    engines_here,
    left_out,
    need_engines,
    plan,
    plan_undo,
    register,
    undo,
)
from tests.host import engine_programs
from tests.host.engine_programs import OLD_DOCKERD, put

ALL = Options(("docker", "podman", "crio"))
BOTH = ALL._replace(names=("cgpu", "nvidia"))
#: In CRI-O's place, of which Debian has no package: of two tables of one name the later holds.
CRIO = f"""#!{sys.executable}
import pathlib, sys, tomlkit
main, folder = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[4])
runtime = {{"runtimes": {{}}}}
for path in (main, *sorted(folder.glob("*"))):
    said = tomlkit.parse(path.read_text() if path.exists() else "").get("crio", {{}})
    said = said.get("runtime", {{}}).unwrap() if said else {{}}
    runtime["runtimes"] |= said.pop("runtimes", {{}})
    runtime |= said
print(tomlkit.dumps({{"crio": {{"runtime": runtime}}}}))
"""
#: As CRI-O's own packages ship it.
CRIO_SHIPS = """[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_type = "oci"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/libexec/crio/runc"
"""
DAEMON = {"data-root": "/data", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}


@pytest.fixture
def host(tmp_path: Path) -> Any:
    put(tmp_path, "etc/docker/daemon.json", json.dumps(DAEMON))
    put(tmp_path, "usr/bin/dockerd", OLD_DOCKERD, 0o755)
    put(tmp_path, "usr/bin/podman", "#!/bin/sh\n", 0o755)
    put(tmp_path, "usr/bin/crio", CRIO, 0o755)
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    return tmp_path


def files(root: Any) -> Any:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and path.parent.name != "bin"
    }


def install(root: Any, options: Any = ALL) -> None:
    register(options, root)


def test_engines_are_those_whose_programs_are_here(host: Any) -> None:
    assert engines_here(host) == ("docker", "podman", "crio")
    (host / "usr/bin/dockerd").unlink()
    assert engines_here(host) == ("podman", "crio"), "what a removed package leaves is no engine"


def test_no_engine_is_an_error_that_says_where_was_looked(tmp_path: Path) -> None:
    (tmp_path / "etc/docker").mkdir(parents=True)
    with pytest.raises(InstallError, match=r"no container engine is here.*/usr/bin.*rancher/k3s"):
        need_engines(tmp_path)


def test_a_docker_of_a_snap_is_seen_and_left_out_with_the_reason(host: Any) -> None:
    (host / "snap/docker/current").mkdir(parents=True)
    put(host, "var/snap/docker/current/config/daemon.json", "{}")
    (line,) = left_out(("docker",), host)
    assert line.startswith("left out: docker of a snap: it is confined")
    for program in ("dockerd", "podman", "crio"):
        (host / "usr/bin" / program).unlink()
    with pytest.raises(InstallError, match=r"no container engine.*of a snap: it is confined"):
        need_engines(host)


def test_an_engine_that_is_not_here_is_named(host: Any) -> None:
    with pytest.raises(InstallError, match="k3s is not here"):
        plan(Options(("k3s",)), host)


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


def test_what_crio_names_is_what_is_started_with_its_settings(host: Any) -> None:
    """Its packages have crun and conmon where no PATH leads."""
    put(host, "etc/crio/crio.conf.d/10-crio.conf", CRIO_SHIPS)
    put(host, "usr/libexec/crio/crun", "#!/bin/sh\n", 0o755)
    (host / "usr/sbin/runc").unlink()
    with pytest.raises(InstallError, match=r"docker: our runtime has none .*runc, crun is"):
        install(host)
    install(host, Options(("crio",)))
    own = tomllib.loads((host / "etc/crio/crio.conf.d/99-zz-cgpu.conf").read_text())
    assert own["crio"]["runtime"]["runtimes"]["cgpu"] == {
        "runtime_path": "/usr/lib/cgpu/crio/cgpu-container-runtime",
        "runtime_type": "oci",
        "runtime_root": "/run/crun",
        "monitor_path": "/usr/libexec/crio/conmon",
    }
    launcher = (host / "usr/lib/cgpu/crio/cgpu-container-runtime").read_text()
    assert "/usr/libexec/crio/crun /usr/" in launcher.partition("for runtime in ")[2]
    assert (host / RUNTIME).exists()
    assert plan(Options(("crio",)), host) == []


def test_a_runtime_of_crios_that_is_nowhere_is_an_error_at_once(host: Any) -> None:
    put(host, "etc/crio/crio.conf.d/10-crio.conf", CRIO_SHIPS)
    (host / "usr/sbin/runc").unlink()
    before = files(host)
    with pytest.raises(InstallError, match=r"crio: our runtime has none .*/usr/libexec/crio/crun"):
        install(host, Options(("crio",)))
    assert files(host) == before


def test_a_link_to_dockers_file_stays_one(host: Any) -> None:
    put(host, "srv/docker.json", (host / "etc/docker/daemon.json").read_text())
    (host / "etc/docker/daemon.json").unlink()
    (host / "etc/docker/daemon.json").symlink_to("../../srv/docker.json")
    before = files(host)
    install(host)
    assert RUNTIME in (host / "srv/docker.json").read_text()
    undo(plan_undo(host), host)
    assert files(host) == before
    assert os.readlink(host / "etc/docker/daemon.json") == "../../srv/docker.json"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a Docker that checks its own file."""
    dockerd = engine_programs.dockerd("26.1")
    engine_programs.install(tmp_path, "usr/bin/dockerd", dockerd)
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    # its proxy, which it looks for, is in the same package
    monkeypatch.setenv("PATH", f"{dockerd.parent}:{os.environ['PATH']}")
    return tmp_path


def test_a_docker_that_cannot_be_asked_is_registered_with_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", engine_programs.libraries("libdevmapper1.02.1"))
    engine_programs.install(tmp_path, "usr/bin/dockerd", engine_programs.dockerd("20.10"))
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    install(tmp_path, Options(("docker",)))
    named = json.loads((tmp_path / "etc/docker/daemon.json").read_text())["runtimes"]
    assert named == {"cgpu": {"path": f"/{RUNTIME}"}}


def test_docker_checks_what_was_written(docker: Path) -> None:
    put(docker, "etc/docker/daemon.json", json.dumps(DAEMON))
    before = files(docker)
    install(docker, Options(("docker",), ("cgpu", "nvidia"), default=True))
    undo(plan_undo(docker), docker)
    assert files(docker) == before


def test_a_file_with_which_docker_would_not_start_is_put_back(docker: Path) -> None:
    put(docker, "etc/docker/daemon.json", json.dumps({**DAEMON, "no-such-setting": 1}))
    before = files(docker)
    with pytest.raises(InstallError, match=r"docker: .*no-such-setting.*; nothing was changed"):
        install(docker, Options(("docker",)))
    assert files(docker) == before


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
    undo(plan_undo(host), host)
    assert json.loads(path.read_text()) == DAEMON | {"debug": True}


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("etc/docker/daemon.json", "{", "daemon.json: not JSON"),
        ("etc/docker/daemon.json", "[]", "daemon.json: not a JSON object"),
        ("etc/docker/daemon.json", '{"runtimes": []}', "'runtimes' is not an object"),
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
    assert registration.restart_commands(plan(ALL, host), host) == [
        "systemctl restart docker",
        "systemctl restart crio",
    ]


def test_what_an_earlier_version_registered_is_taken_back(host: Any) -> None:
    """Its record has what was there alone, and its block in containerd's file stands in marks."""
    table = 'plugins."io.containerd.grpc.v1.cri".containerd'
    original = f'version = 2\n[{table}]\n  default_runtime_name = "runc"\n'
    written = (
        f'version = 2\n[{table}]\n  default_runtime_name = "cgpu"  # cgpu\n'
        '# cgpu put aside:   default_runtime_name = "runc"\n'
        "# BEGIN cgpu (written by `cgpu install-runtime`)\n"
        f'[{table}.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
        f'[{table}.runtimes.cgpu]\n  runtime_type = "io.containerd.runc.v2"\n'
        f'[{table}.runtimes.cgpu.options]\n  BinaryName = "/{RUNTIME}"\n# END cgpu\n'
    )
    put(host, "etc/containerd/config.toml", written)
    put(host, RUNTIME, "#!/bin/sh\n", 0o755)
    record = {"etc/containerd/config.toml": original, RUNTIME: None}
    put(host, registration.RECORD, json.dumps(record))
    undo(plan_undo(host), host)
    assert (host / "etc/containerd/config.toml").read_text() == original
    assert not (host / RUNTIME).exists() and not (host / registration.RECORD).exists()
