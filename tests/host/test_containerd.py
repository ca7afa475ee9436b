# SPDX-License-Identifier: MIT
"""
Registering with containerd 1.6, 1.7 and 2.1: what counts is what each says of its files after.

The hosts are directories, the programs Debian's own.
"""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pycgpu.errors import InstallError
from pycgpu.install import containerd, registration
from pycgpu.install.launcher import RUNTIME
from pycgpu.install.registration import Options, left_out, plan, plan_undo, register, undo
from tests.host.engine_programs import CONTAINERD, install, put
from tests.host.engine_programs import containerd as program

MAIN = "etc/containerd/config.toml"
OURS = "/usr/lib/cgpu/cgpu-container-runtime"
CRI = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
SYSTEMD = {"SystemdCgroup": True}
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
#: Docker CE's package ships it, comments and all.
DOCKERS = """#   Copyright 2018-2022 Docker Inc.

#   Licensed under the Apache License, Version 2.0 (the "License");

disabled_plugins = ["cri"]

#root = "/var/lib/containerd"
#[grpc]
#  address = "/run/containerd/containerd.sock"
"""


def runc_of(version: int, name: str = "runc", **options: Any) -> str:
    """Return a runtime's table in a file of *version*."""
    plugin = CRI.get(version, "cri")
    table = f'plugins."{plugin}".containerd.runtimes.{name}'
    lines = [f"[{table}]", 'runtime_type = "io.containerd.runc.v2"', f"[{table}.options]"]
    for key, value in options.items():
        lines.append(f"{key} = {str(value).lower() if value is True else repr(value)}")
    return "\n".join(lines) + "\n"


@pytest.fixture(params=CONTAINERD)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(version: str, tmp_path: Path) -> Path:
    return make(tmp_path, version)


def make(root: Path, version: str) -> Path:
    install(root, "usr/bin/containerd", program(version))
    put(root, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    return root


def files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o111 == 0
    }


def said(root: Path, config: str = MAIN, path: str = "usr/bin/containerd") -> containerd.Said:
    """What this containerd makes of its files, in words of its own."""
    return containerd.ask(str(root / path), root / config)


def register_here(root: Path, **options: Any) -> list[str]:
    names = registration.engines_here(root)
    register(Options(names, **options), root)
    return left_out(names, root)


def options_of(entry: dict[str, Any]) -> dict[str, Any]:
    found = containerd.settings(entry.get("options", {}))
    return {key: value for key, value in found.items() if key in ("BinaryName", "SystemdCgroup")}


def newest(version: str) -> int:
    return 3 if version.startswith("2") else 2


# ---- what people's files look like


def test_dockers_own_file_has_nothing_to_register_with(host: Path) -> None:
    """Its containerd serves Docker alone; with our tables in that file it would not start."""
    put(host, MAIN, DOCKERS)
    before = files(host)
    (line,) = register_here(host)
    assert "switches its Kubernetes plugin off (disabled_plugins)" in line
    after = files(host)
    assert after[MAIN] == before[MAIN]
    assert set(after) - set(before) == {"var/lib/cgpu/runtime_install.json"}
    said(host)


def test_debians_own_file_gets_our_runtime_and_keeps_what_it_says(host: Path, version: str) -> None:
    shipped = program(version).parents[2] / MAIN
    if not shipped.exists():
        pytest.skip(f"no package: this release's containerd {version} brings no {MAIN}")
    put(host, MAIN, shipped.read_text())
    before, had = files(host), said(host)
    register_here(host)
    now = said(host)
    assert options_of(now.runtimes["cgpu"]) == {"BinaryName": OURS}
    for name, entry in had.runtimes.items():
        assert containerd.settings(now.runtimes[name]) == containerd.settings(entry)
    section = CRI[newest(version)]
    assert now.plugins[section]["cni"] == had.plugins[section]["cni"]
    undo(plan_undo(host), host)
    assert files(host) == before


@pytest.mark.parametrize(
    "text", ["# nothing but a comment\n", "", None], ids=["comments", "empty", "missing"]
)
def test_a_file_that_says_nothing_gets_our_runtime_and_keeps_runc(
    host: Path, text: str | None
) -> None:
    if text is not None:
        put(host, MAIN, text)
    before = files(host)
    assert register_here(host) == []
    now = said(host)
    assert options_of(now.runtimes["cgpu"]) == {"BinaryName": OURS}
    assert now.runtimes["runc"]["runtime_type"] == "io.containerd.runc.v2"
    assert now.default == "runc"
    undo(plan_undo(host), host)
    assert files(host) == before


def test_a_file_of_version_1_gets_our_runtime_or_is_left_alone(host: Path, version: str) -> None:
    put(host, MAIN, "version = 1\n" + runc_of(1, SystemdCgroup=True))
    before = files(host)
    if newest(version) == 2:
        register_here(host)
        assert options_of(said(host).runtimes["cgpu"]) == {"BinaryName": OURS, **SYSTEMD}
        assert options_of(said(host).runtimes["runc"]) == SYSTEMD
        undo(plan_undo(host), host)
    else:
        # What it makes of runc's table there is nothing, and ours is as its runc is.
        register_here(host)
        assert options_of(said(host).runtimes["cgpu"]) == {"BinaryName": OURS}
        undo(plan_undo(host), host)
    assert files(host) == before


def test_files_imported_in_two_steps_leave_our_runtime_in_force(host: Path, version: str) -> None:
    number = newest(version)
    put(
        host,
        MAIN,
        f'version = {number}\nimports = ["{host}/etc/step.d/*.toml"]\n'
        + runc_of(number, SystemdCgroup=True),
    )
    further = f"{host}/etc/containerd/conf.d/99-nvidia.toml"
    put(host, "etc/step.d/50-further.toml", f'version = {number}\nimports = ["{further}"]\n')
    toolkits = f"version = {number}\n" + runc_of(
        number, "nvidia", BinaryName="/usr/bin/nvidia-container-runtime"
    )
    put(host, "etc/containerd/conf.d/99-nvidia.toml", toolkits)
    before, had = files(host), said(host).runtimes
    register_here(host)
    now = said(host).runtimes
    assert options_of(now["cgpu"])["BinaryName"] == OURS
    assert {name: now[name] for name in had} == had, "the others are what they were"
    undo(plan_undo(host), host)
    assert files(host) == before


def test_settings_of_runc_are_those_that_containerd_has_wherever_they_stand(
    host: Path, version: str
) -> None:
    number = newest(version)
    table = {2: "cni", 3: "cni"}[number]
    put(
        host,
        MAIN,
        f'version = {number}\nimports = ["{host}/etc/containerd/conf.d/*.toml"]\n'
        + runc_of(number, SystemdCgroup=True),
    )
    put(
        host,
        "etc/containerd/conf.d/10-cni.toml",
        f'version = {number}\n[plugins."{CRI[number]}".{table}]\nbin_dir = "/elsewhere"\n',
    )
    before = files(host)
    runc = options_of(said(host).runtimes["runc"])
    register_here(host)
    now = said(host)
    assert options_of(now.runtimes["cgpu"]) == {"BinaryName": OURS, **runc}
    assert options_of(now.runtimes["runc"]) == runc
    if number == 3:
        assert runc == SYSTEMD
    elsewhere = containerd.table(now.plugins, CRI[number], "cni")
    assert elsewhere["bin_dir"] == "/elsewhere"
    undo(plan_undo(host), host)
    assert files(host) == before


def test_where_files_add_up_only_one_of_our_own_is_written(tmp_path: Path) -> None:
    host = make(tmp_path, "2.1")
    main = 'version = 3\nimports = ["/nowhere/*.toml", "conf.d/*.toml"]\n'
    put(host, MAIN, main + runc_of(3, SystemdCgroup=True))
    put(host, "etc/containerd/conf.d/10.toml", 'version = 3\n[debug]\nlevel = "info"\n')
    before = files(host)
    register_here(host, default=True)
    changed = {path for path, text in files(host).items() if before.get(path) != text}
    assert changed == {
        "etc/containerd/conf.d/99-zz-cgpu.toml",
        "var/lib/cgpu/runtime_install.json",
    }
    assert said(host).default == "cgpu"


def test_a_file_that_imports_nothing_gets_one_line(tmp_path: Path) -> None:
    host = make(tmp_path, "2.1")
    main = "# mine\nversion = 3\n" + runc_of(3, SystemdCgroup=True)
    put(host, MAIN, main)
    register_here(host)
    assert (host / MAIN).read_text() == 'imports = ["conf.d/99-zz-cgpu.toml"]\n' + main
    (host / MAIN).write_text((host / MAIN).read_text() + "[metrics]\n")
    undo(plan_undo(host), host)
    assert (host / MAIN).read_text().strip() == (main + "[metrics]").strip()


# ---- names and defaults


BOTH = ("cgpu", "nvidia")


def test_the_toolkits_name_is_taken_over_and_given_back(host: Path) -> None:
    """`--runtime=nvidia` starts ours, which goes on to what it started before."""
    put(host, MAIN, TOOLKITS)
    before = files(host)
    assert registration.names_free(host) == ("cgpu",)
    register_here(host, names=BOTH)
    now = said(host)
    assert now.default == "runc"
    for name in BOTH:
        assert options_of(now.runtimes[name]) == {"BinaryName": OURS, **SYSTEMD}
    for key in ("pod_annotations", "container_annotations"):
        patterns = now.runtimes["cgpu"][key]
        for annotation in ("cgpu.io/CGPU_MEM", "vke.volcengine.com/mgpu-core", "nvidia.com/gpumem"):
            assert any(fnmatch.fnmatch(annotation, pattern) for pattern in patterns)
    assert now.runtimes["nvidia"]["container_annotations"][0] == "nvidia.cdi.k8s.io/*"
    assert options_of(now.runtimes["runc"]) == SYSTEMD
    launcher = (host / RUNTIME).read_text()
    first = launcher.partition("for runtime in ")[2].split()[0]
    assert first == "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    assert plan(Options(("containerd",), names=BOTH), host) == []
    undo(plan_undo(host), host)
    assert files(host) == before


def test_the_default_runtime_is_replaced_and_given_back(host: Path) -> None:
    put(host, MAIN, TOOLKITS)
    before = files(host)
    register_here(host, names=BOTH, default=True)
    assert said(host).default == "cgpu"
    undo(plan_undo(host), host)
    assert files(host) == before
    assert said(host).default == "runc"


def test_what_wrote_the_file_anew_since_loses_ours_and_keeps_its_own(tmp_path: Path) -> None:
    """As `nvidia-ctk` does: values stay, comments are gone."""
    host = make(tmp_path, "1.7")
    put(host, MAIN, TOOLKITS)
    register_here(host, names=BOTH, default=True)
    path = host / MAIN
    lines = [line.partition("#")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n[metrics]\n")
    undo(plan_undo(host), host)
    assert "cgpu" not in path.read_text()
    assert tomllib.loads(path.read_text()) == {**tomllib.loads(TOOLKITS), "metrics": {}}


def test_anothers_runtime_that_is_no_runc_keeps_its_name(host: Path, version: str) -> None:
    number = newest(version)
    text = runc_of(number, "cgpu").replace("runc.v2", "kata.v2")
    put(host, MAIN, f"version = {number}\n{text}")
    before = files(host)
    with pytest.raises(
        InstallError, match=r"'cgpu' is there already, and is a 'io.containerd.kata"
    ):
        register_here(host)
    assert files(host) == before


# ---- refusals


def test_a_file_that_containerd_does_not_take_is_named(host: Path) -> None:
    put(host, MAIN, "version = 2\nimports = 7\n")
    before = files(host)
    with pytest.raises(InstallError, match=r"config dump.*(imports|type|string)"):
        register_here(host)
    assert files(host) == before


def test_what_containerd_does_not_have_afterwards_is_put_back(tmp_path: Path) -> None:
    """A file that is read after ours says otherwise: nothing is registered, and nothing is left."""
    host = make(tmp_path, "2.1")
    put(host, MAIN, f'version = 3\nimports = ["{host}/etc/step.d/*.toml"]\n')
    later = f"{host}/etc/later.toml"
    put(host, "etc/step.d/50.toml", f'version = 3\nimports = ["{later}"]\n')
    put(host, "etc/later.toml", "version = 3\n" + runc_of(3, "nvidia", BinaryName="/opt/other"))
    before = files(host)
    with pytest.raises(InstallError, match=r"no runtime 'nvidia' of ours.*nothing was changed"):
        register_here(host, names=BOTH)
    assert files(host) == before


# ---- what stands behind


def test_what_containerd_names_is_what_is_started(host: Path, version: str) -> None:
    number = newest(version)
    put(host, "opt/bin/runc", "#!/bin/sh\n", 0o755)
    put(host, MAIN, f"version = {number}\n" + runc_of(number, BinaryName="/opt/bin/runc"))
    register_here(host)
    own = "usr/lib/cgpu/containerd/cgpu-container-runtime"
    assert options_of(said(host).runtimes["cgpu"])["BinaryName"] == f"/{own}"
    launcher = (host / own).read_text()
    paths = launcher.partition("for runtime in ")[2].partition(";")[0].split()
    low = [path for path in paths if "nvidia" not in path]
    assert low[0] == "/opt/bin/runc"
    assert plan(Options(("containerd",)), host) == []


def test_nothing_behind_ours_is_an_error_at_once(host: Path) -> None:
    put(host, MAIN, "version = 2\n")
    (host / "usr/sbin/runc").unlink()
    before = files(host)
    with pytest.raises(InstallError, match=r"our runtime has none to start.*install runc"):
        register_here(host)
    assert files(host) == before


# ---- Kubernetes distributions


K3S = "var/lib/rancher/k3s/agent/etc/containerd"
K3S_PROGRAM = "var/lib/rancher/k3s/data/current/bin/containerd"
#: What k3s makes of its base template, without what does not matter here.
GENERATED = """# File generated by k3s. DO NOT EDIT. Use config.toml.tmpl instead.
version = {version}
{imports}
root = "/var/lib/rancher/k3s/agent/containerd"
state = "/run/k3s/containerd"

[plugins."{plugin}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."{plugin}".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""


def k3s(root: Path, version: str, *, imports: bool = False) -> Path:
    number = newest(version)
    install(root, K3S_PROGRAM, program(version))
    put(root, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    put(root, "etc/systemd/system/k3s-agent.service", "")
    name = "config-v3.toml.d" if number == 3 else "config.toml.d"
    line = f'imports = ["{root}/{K3S}/{name}/*.toml"]' if imports else ""
    put(
        root,
        f"{K3S}/config.toml",
        GENERATED.format(version=number, plugin=CRI[number], imports=line),
    )
    return root


def test_k3s_is_found_and_has_our_runtime_by_its_template(version: str, tmp_path: Path) -> None:
    host = k3s(tmp_path, version)
    before = files(host)
    assert registration.engines_here(host) == ("k3s",)
    changes = register(Options(("k3s",)), host)
    assert registration.restart_commands(changes, host) == ["systemctl restart k3s-agent"]
    name = "config-v3.toml.tmpl" if newest(version) == 3 else "config.toml.tmpl"
    template = (host / K3S / name).read_text()
    assert template.startswith('{{ template "base" . }}\n')
    assert (host / K3S / "config.toml").read_text() == before[f"{K3S}/config.toml"]
    # as k3s does at its start
    base = before[f"{K3S}/config.toml"]
    put(host, f"{K3S}/config.toml", template.replace('{{ template "base" . }}', base))
    now = said(host, f"{K3S}/config.toml", K3S_PROGRAM)
    assert options_of(now.runtimes["cgpu"]) == {"BinaryName": OURS, **SYSTEMD}
    assert options_of(now.runtimes["runc"]) == SYSTEMD
    assert plan(Options(("k3s",)), host) == []
    put(host, f"{K3S}/config.toml", base)
    undo(plan_undo(host), host)
    assert files(host) == before


def test_a_k3s_that_reads_further_files_gets_one(tmp_path: Path) -> None:
    host = k3s(tmp_path, "2.1", imports=True)
    before = files(host)
    register_here(host)
    made = set(files(host)) - set(before)
    assert made == {
        f"{K3S}/config-v3.toml.d/99-zz-cgpu.toml",
        "var/lib/cgpu/runtime_install.json",
    }
    now = said(host, f"{K3S}/config.toml", K3S_PROGRAM)
    assert options_of(now.runtimes["cgpu"]) == {"BinaryName": OURS, **SYSTEMD}


def test_a_template_of_the_users_keeps_what_it_says(tmp_path: Path) -> None:
    host = k3s(tmp_path, "1.7")
    own = '{{ template "base" . }}\n[debug]\n  level = "{{ .NodeConfig.Level }}"\n'
    put(host, f"{K3S}/config.toml.tmpl", own)
    register_here(host)
    made = (host / K3S / "config.toml.tmpl").read_text()
    assert made.startswith(own) and "cgpu-container-runtime" in made
    undo(plan_undo(host), host)
    assert (host / K3S / "config.toml.tmpl").read_text() == own


def test_a_k3s_that_was_never_started_is_left_out_with_the_reason(tmp_path: Path) -> None:
    host = k3s(tmp_path, "2.1")
    (host / K3S / "config.toml").unlink()
    (line,) = register_here(host)
    assert line.startswith("left out: k3s: ") and "start it once" in line


def test_the_default_runtime_of_k3s_is_its_own_option(tmp_path: Path) -> None:
    host = k3s(tmp_path, "1.7")
    with pytest.raises(InstallError, match="--default-runtime=cgpu"):
        register_here(host, default=True)


def test_rke2_is_k3s_elsewhere(tmp_path: Path) -> None:
    at = "var/lib/rancher/rke2/agent/etc/containerd"
    install(tmp_path, "var/lib/rancher/rke2/bin/containerd", program("2.1"))
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    text = GENERATED.format(version=3, plugin=CRI[3], imports="")
    put(tmp_path, f"{at}/config.toml", text)
    register_here(tmp_path)
    assert (tmp_path / at / "config-v3.toml.tmpl").exists()


def test_microk8s_has_it_in_the_template_that_it_ships(tmp_path: Path) -> None:
    at = "var/snap/microk8s/current/args"
    template = (
        'version = 2\noom_score = 0\nroot = "${SNAP_COMMON}/var/lib/containerd"\n'
        '[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "pause"\n'
        '  [plugins."io.containerd.grpc.v1.cri".containerd]\n    snapshotter = "${SNAPSHOTTER}"\n'
        '    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
        '      runtime_type = "${RUNTIME_TYPE}"\n'
    )
    install(tmp_path, "snap/microk8s/current/bin/containerd", program("1.6"))
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    put(tmp_path, f"{at}/containerd-template.toml", template)
    generated = template.replace("${RUNTIME_TYPE}", "io.containerd.runc.v2")
    put(tmp_path, f"{at}/containerd.toml", generated)
    before = files(tmp_path)
    changes = register(Options(("microk8s",)), tmp_path)
    assert registration.restart_commands(changes, tmp_path) == [
        "systemctl restart snap.microk8s.daemon-containerd"
    ]
    made = (tmp_path / at / "containerd-template.toml").read_text()
    assert "${SNAPSHOTTER}" in made and OURS in made
    undo(plan_undo(tmp_path), tmp_path)
    assert files(tmp_path) == before


def test_k0s_has_it_in_its_folder_of_further_files(tmp_path: Path) -> None:
    install(tmp_path, "var/lib/k0s/bin/containerd", program("1.7"))
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    put(
        tmp_path,
        "etc/k0s/containerd.toml",
        "# k0s_managed=true\nversion = 2\n" + runc_of(2, SystemdCgroup=True),
    )
    before = files(tmp_path)
    register_here(tmp_path)
    made = tomllib.loads((tmp_path / "etc/k0s/containerd.d/99-zz-cgpu.toml").read_text())
    entry = made["plugins"][CRI[2]]["containerd"]["runtimes"]["cgpu"]
    assert entry["options"] == {"BinaryName": OURS, **SYSTEMD}
    undo(plan_undo(tmp_path), tmp_path)
    assert files(tmp_path) == before


#: Ubuntu 24.04's 2.2.1 shows this pattern as an import of a file that names none, and reads it not.
SHOWN = "/etc/containerd/conf.d/*.toml"
AS_UBUNTUS = """#!/bin/sh
{program} "$@" >{said}.toml || exit
sed "s|^imports = \\[\\]$|imports = ['{shown}']|" {said}.toml
"""


@pytest.mark.parametrize("named", ["", f'imports = ["{SHOWN}"]\n'])
def test_an_import_that_is_shown_and_not_read_is_none(tmp_path: Path, named: str) -> None:
    shown = f"{tmp_path}{SHOWN}"
    script = AS_UBUNTUS.format(program=program("2.1"), said=tmp_path / "said", shown=shown)
    put(tmp_path, "usr/bin/containerd", script, 0o755)
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    main = f"{named.replace(SHOWN, shown)}version = 2\n{runc_of(2, SystemdCgroup=True)}"
    put(tmp_path, MAIN, main)
    assert said(tmp_path).imports == (shown,)
    register_here(tmp_path)
    assert options_of(said(tmp_path).runtimes["cgpu"]) == {"BinaryName": OURS, **SYSTEMD}
    text = (tmp_path / MAIN).read_text()
    assert text == main if named else text == 'imports = ["conf.d/99-zz-cgpu.toml"]\n' + main
    undo(plan_undo(tmp_path), tmp_path)
    assert (tmp_path / MAIN).read_text() == main
