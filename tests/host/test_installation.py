# SPDX-License-Identifier: MIT
"""Installing and taking it back on a host made of files; only the commands' effects are missing."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

import pycgpu
from pycgpu.cli import main
from pycgpu.errors import InstallError
from pycgpu.install import early, installation, journal, launcher
from pycgpu.install.host import Host, execute
from pycgpu.install.installation import Options
from pycgpu.tree import authority
from tests.host import engine_programs, filehost, program
from tests.host.coretree import CoreTree
from tests.host.filehost import CORE, RELEASE, state
from tests.vm.loaded import until

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLKIT = "nvidia-container-runtime"
#: Docker's configuration as NVIDIA's container toolkit leaves it.
TOOLKITS = {"runtimes": {"nvidia": {"args": [], "path": TOOLKIT}}}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return filehost.make(tmp_path / "host")


@pytest.fixture
def prefix(host: Host) -> Path:
    return host.prefix


@pytest.fixture
def options(prefix: Path) -> Options:
    return Options(modules=str(prefix / "modules"), exporter=True, usage=True)


def test_what_is_installed_is_taken_back_to_the_last_directory(
    host: Host, options: Options
) -> None:
    before = state(host.prefix)
    advice = installation.install(options, host)
    assert "now run: systemctl restart docker" in advice
    placed = host.prefix / f"lib/modules/{RELEASE}/updates/cgpu"
    assert sorted(path.name for path in placed.iterdir()) == [
        f"{CORE}.ko",
        "cgpu_km.ko",
        "cgpu_rm.ko",
    ]
    assert (host.prefix / "etc/modules-load.d/cgpu.conf").read_text() == "cgpu_km\n"
    parameters = host.prefix / "etc/modprobe.d/cgpu.conf"
    assert parameters.read_text() == "options cgpu_km ungranted=refuse\n"
    assert any(line.startswith("--runtime=nvidia starts cgpu's runtime") for line in advice)
    assert any("with CGPU_MEM=max a container has all" in line for line in advice)
    (order,) = [
        line
        for line in (host.prefix / "etc/systemd/system/cgpu.service").read_text().splitlines()
        if line.startswith("Before=")
    ]
    for engine in ("docker", "containerd", "k3s-agent", "rke2-server", "k0sworker"):
        assert f"{engine}.service" in order
    assert "snap.docker.dockerd.service" in order
    unit = (host.prefix / "etc/systemd/system/cgpu-usage.service").read_text()
    assert "ExecStart=/usr/local/bin/cgpu usage --record\n" in unit
    unit = (host.prefix / "etc/systemd/system/cgpu-parkd.service").read_text()
    assert "ExecStart=/usr/local/bin/cgpu parkd\n" in unit
    assert "systemctl enable --now cgpu-parkd.service" in filehost.kernel(host).ran
    assert host.loaded == {"nvidia", "cgpu_km", CORE, "cgpu_rm"}
    assert (host.prefix / "usr/lib/cgpu/cgpu-hook").exists()
    # Traces of use.
    for path in (
        "var/log/cgpu-prestart-hook.log",
        "var/log/cgpu-prestart-hook.log.1",
        "var/log/nvidia-egpu-prestart-hook.log",
    ):
        (host.prefix / path).write_text("x")
    (host.prefix / "run/cgpu").mkdir()
    (host.prefix / "run/cgpu/admission.lock").touch()
    installation.uninstall(host)
    assert state(host.prefix) == before


@pytest.mark.parametrize("how", ["docker", "containerd", "program"])
def test_the_name_nvidia_is_left_to_the_toolkit_that_is_here(
    host: Host, options: Options, how: str
) -> None:
    path, text = {
        "docker": ("etc/docker/daemon.json", json.dumps(TOOLKITS)),
        "containerd": (
            "etc/containerd/config.toml",
            'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
            'runtime_type = "io.containerd.runc.v2"\n',
        ),
        "program": ("usr/bin/nvidia-container-runtime", ""),
    }[how]
    (host.prefix / path).parent.mkdir(parents=True, exist_ok=True)
    (host.prefix / path).write_text(text)
    if how == "program":
        (host.prefix / path).chmod(0o755)
    if how == "containerd":
        engine_programs.install(
            host.prefix, "usr/bin/containerd", engine_programs.containerd("1.7")
        )
    advice = installation.install(options, host)
    assert any("`cgpu install-runtime --name cgpu --name nvidia`" in line for line in advice)
    named = json.loads((host.prefix / "etc/docker/daemon.json").read_text())["runtimes"]
    assert "cgpu" in named
    assert named.get("nvidia", {}).get("path") == (TOOLKIT if how == "docker" else None)


def test_the_name_nvidia_is_said_to_be_taken_from_the_toolkit_and_given_back(
    host: Host, options: Options
) -> None:
    config = host.prefix / "etc/docker/daemon.json"
    config.write_text(json.dumps(TOOLKITS))
    before = config.read_text()
    advice = installation.install(options._replace(names=("cgpu", "nvidia")), host)
    assert any(line.startswith("--runtime=nvidia starts cgpu's runtime") for line in advice)
    assert json.loads(config.read_text())["runtimes"]["nvidia"]["path"].startswith("/usr/lib/cgpu")
    installation.uninstall(host)
    assert config.read_text() == before


def test_what_an_engine_does_not_take_is_seen_before_anything_is_built(
    host: Host, options: Options
) -> None:
    (host.prefix / "usr/sbin/runc").unlink()
    with pytest.raises(InstallError, match="docker: our runtime has none to start"):
        installation.plan(options, host)


def test_a_link_in_the_place_of_a_file_stays_one(host: Host, options: Options) -> None:
    link, target = host.prefix / "etc/modprobe.d/cgpu.conf", host.prefix / "srv/cgpu.conf"
    for path in (link, target):
        path.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("# mine\n")
    link.symlink_to("../../srv/cgpu.conf")
    installation.install(options, host)
    assert target.read_text() == "options cgpu_km ungranted=refuse\n"
    installation.uninstall(host)
    assert (link.is_symlink(), target.read_text()) == (True, "# mine\n")


def test_without_an_engine_nothing_is_installed_unless_none_is_wanted(
    host: Host, options: Options
) -> None:
    (host.prefix / "usr/bin/dockerd").unlink()
    before = state(host.prefix)
    with pytest.raises(InstallError, match=r"no container engine is here.*--no-runtimes"):
        installation.install(options, host)
    assert state(host.prefix) == before
    advice = installation.install(options._replace(runtimes=False), host)
    assert not any("--runtime" in line for line in advice)
    # CDI's devices name it.
    assert os.access(host.prefix / launcher.HOOK, os.X_OK)
    installation.uninstall(host)
    assert state(host.prefix) == before


@pytest.mark.parametrize("said", ["maybe", "0%", "101%", "10", "asked unknown_driver=newest"])
def test_what_the_module_would_not_take_is_refused_before_anything_is_changed(
    host: Host, options: Options, said: str
) -> None:
    before = state(host.prefix)
    with pytest.raises(InstallError, match="write refuse, asked, allow, or 1% to 100%"):
        installation.install(options._replace(ungranted=said), host)
    assert state(host.prefix) == before


def test_without_systemd_an_agent_is_installed_and_how_it_starts_is_said(host: Host) -> None:
    shutil.rmtree(host.prefix / "run/systemd")
    before = state(host.prefix)
    options = Options(agent=True, exporter=True, cgpu="/opt/cgpu")
    advice = installation.install(options, host)
    assert any("start `/opt/cgpu agent` at boot" in line for line in advice)
    assert any("`cgpu run` starts one itself" in line for line in advice)
    assert any("`/opt/cgpu exporter`" in line for line in advice)
    assert not (host.prefix / "etc/systemd/system/cgpud.service").exists()
    assert (host.prefix / "usr/lib/cgpu/cgpu-hook").exists()
    installation.uninstall(host)
    assert state(host.prefix) == before


def test_what_stood_there_before_comes_back(host: Host, options: Options) -> None:
    unit = host.prefix / "etc/systemd/system/cgpu.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("another's")
    installation.install(options, host)
    assert unit.read_text() != "another's"
    installation.uninstall(host)
    assert unit.read_text() == "another's"


def test_what_somebody_changed_since_is_left_to_him(host: Host, options: Options) -> None:
    installation.install(options, host)
    file = host.prefix / "etc/modules-load.d/cgpu.conf"
    file.write_text("cgpu_km\nmine\n")
    installation.uninstall(host)
    assert file.read_text() == "cgpu_km\nmine\n"


@pytest.mark.parametrize(
    "refused",
    ["depmod", "daemon-reload", "enable cgpu.service", "enable --now", "modprobe cgpu_km"],
)
def test_a_failure_at_any_step_leaves_everything_as_it_was(
    host: Host, options: Options, refused: Any
) -> None:
    before = state(host.prefix)
    filehost.kernel(host).refuse = refused
    with pytest.raises(InstallError, match="refused") as failure:
        installation.install(options, host)
    assert "\n" not in str(failure.value)
    filehost.kernel(host).refuse = None
    assert state(host.prefix) == before


def test_a_bridge_that_does_not_load_is_said_and_is_no_failure(
    host: Host, options: Options
) -> None:
    filehost.kernel(host).refuse = "modprobe cgpu_rm"
    advice = installation.install(options, host)
    assert any(line.startswith("without compute limits") for line in advice)


def test_dkms_gets_the_sources_without_products_and_without_the_simulated_driver(
    host: Host,
) -> None:
    shutil.which("make") or pytest.skip("no package: make")
    before = state(host.prefix)
    options = Options()
    sources = host.prefix / f"usr/src/cgpu-{pycgpu.__version__}"
    try:
        installation.install(options, host)
    except InstallError as error:
        # DKMS itself may be absent where this runs: then that is what must be said.
        assert shutil.which("dkms") is None and "--no-dkms" in str(error)
        assert state(host.prefix) == before
        return
    assert (sources / "core/memory/ledger.c").exists() and (sources / "VERSION").exists()
    assert not (sources / "sim").exists() and not list(sources.rglob("*.o"))
    assert f"dkms install -m cgpu -v {pycgpu.__version__} -k {RELEASE}" in filehost.kernel(host).ran
    installation.uninstall(host)
    assert state(host.prefix) == before


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({f"lib/modules/{RELEASE}/build/Makefile": None}, f"apt install linux-headers-{RELEASE}"),
        ({"proc/modules": "cgpu_km 1 0\n"}, "rmmod it first"),
        ({"proc/cgpu_km/policy": ""}, "another product's"),
        ({"sys/firmware/efi/efivars/SecureBoot-1": "\6\0\0\0\1"}, "Secure Boot is on"),
        ({"var/lib/cgpu/installation.json": '{"version": "9", "steps": []}'}, "cgpu upgrade"),
        ({"var/lib/cgpu/installation.json": "garbage"}, "cannot be read"),
    ],
)
def test_what_would_fail_is_said_before_anything_changes(
    host: Host, change: Any, text: Any
) -> None:
    for path, content in change.items():
        target = host.prefix / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink() if content is None else target.write_text(content)
    before = state(host.prefix)
    with pytest.raises(InstallError, match=re.escape(text)):
        installation.install(Options(dkms=False), host)
    assert state(host.prefix) == before
    assert not [line for line in filehost.kernel(host).ran if not line.startswith("mokutil")]


@pytest.mark.parametrize("agent", [False, True])
def test_a_dry_run_that_would_be_refused_shows_its_steps_and_is_a_failure(
    host: Host, prefix: Path, monkeypatch: pytest.MonkeyPatch, agent: Any
) -> None:
    monkeypatch.setattr("pycgpu.cli.install.this_host", lambda: host)
    words = ["--agent"] if agent else ["--modules", str(prefix / "modules")]
    shown = program.run(main.app, "install", "--dry-run", *words)
    assert (shown.returncode, shown.stderr) == (0, "")
    (prefix / "proc/modules").write_text("cgpu_km 1 0\n")
    before = state(host.prefix)
    refused = program.run(main.app, "install", "--dry-run", *words)
    assert refused.returncode == 1
    assert refused.stdout == shown.stdout and "would: " in shown.stdout
    assert "would be refused: cgpu_km is loaded" in refused.stderr
    assert state(host.prefix) == before


def test_what_would_be_refused_is_seen_without_the_tools(host: Host, prefix: Path) -> None:
    """By the sources and the standard library: the scripts look before they build for long."""
    early.check(["install", "--no-dkms"], host)
    early.check(["install", "--modules", str(prefix / "modules"), "--name", "x"], host)
    (prefix / f"lib/modules/{RELEASE}/build/Makefile").unlink()
    early.check(["install", "--modules", str(prefix / "modules")], host)
    with pytest.raises(InstallError, match=f"apt install linux-headers-{RELEASE}"):
        early.check(["install", "--exporter"], host)


@pytest.mark.parametrize("command", ["install", "upgrade"])
def test_what_is_looked_at_early_has_the_commands_own_options(command: str) -> None:
    module = importlib.import_module(f"pycgpu.cli.{command}")
    params = typer.main.get_command(module.app).params
    words = {word for one in params for word in (*one.opts, *one.secondary_opts)} - {"--help"}
    assert {*early.FLAGS[command], *early.WITH_VALUE[command]} == words
    flags = {
        word
        for one in params
        if getattr(one, "is_flag", False)
        for word in (*one.opts, *one.secondary_opts)
    }
    assert {*early.FLAGS[command]} == flags - {"--help"}


@pytest.mark.parametrize("words", [("--dryrun",), ("--dry-run", "all"), ("--modules",)])
def test_a_mistyped_option_is_named_before_anything_is_built(words: tuple[str, ...]) -> None:
    script = REPOSITORY / "scripts/install"
    for run in ([script, *words, "--dry-run"], ["sh", script, *words, "--dry-run"]):
        done = subprocess.run([str(word) for word in run], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert words[-1] in done.stderr and "options are --agent, --default" in done.stderr


def test_an_upgrade_that_would_be_refused_is_seen_without_the_tools(
    host: Host, options: Options, prefix: Path
) -> None:
    installation.install(options, host)
    early.check(["upgrade", "--modules", options.modules or ""], host)
    CoreTree(host.tree).create("job", "gpu=0,mem=1048576")
    with pytest.raises(InstallError, match="1 container uses a GPU"):
        early.check(["upgrade", "--modules", options.modules or "", "--cold"], host)


def test_installing_twice_is_refused(host: Host, options: Options) -> None:
    installation.install(options, host)
    before = state(host.prefix)
    with pytest.raises(InstallError, match="is installed already"):
        installation.install(options, host)
    assert state(host.prefix) == before


# ---- uninstall


def test_uninstalling_what_is_not_installed_says_so(host: Host) -> None:
    with pytest.raises(InstallError, match="is not installed here"):
        installation.uninstall(host)


def test_uninstalling_is_refused_while_a_container_uses_a_gpu_and_names_it(
    host: Host, options: Options
) -> None:
    installation.install(options, host)
    tree = CoreTree(host.prefix / "proc/cgpu_km")
    tree.create("0123456789abcdef" * 4, "gpu=0,mem=1048576")
    before, ran = state(host.prefix), len(filehost.kernel(host).ran)
    with pytest.raises(InstallError, match="1 container uses a GPU: 0123456789ab: stop"):
        installation.uninstall(host)
    assert state(host.prefix) == before
    assert len(filehost.kernel(host).ran) == ran


def test_a_module_that_does_not_unload_leaves_everything_installed(
    host: Host, options: Options
) -> None:
    installation.install(options, host)
    before = state(host.prefix)
    filehost.kernel(host).refuse = "rmmod"
    with pytest.raises(InstallError, match="nothing was changed"):
        installation.uninstall(host)
    assert state(host.prefix) == before
    assert filehost.kernel(host).ran[-1] == "systemctl enable --now cgpu-usage.service"


def test_an_uninstallation_that_was_cut_short_goes_on(
    host: Host, options: Options, prefix: Path
) -> None:
    before = state(prefix)
    installation.install(options, host)
    filehost.kernel(host).refuse = "depmod"
    with pytest.raises(InstallError, match="left behind: copy cgpu_km"):
        installation.uninstall(host)
    filehost.kernel(host).refuse = None
    installation.uninstall(host)
    assert state(prefix) == before


# ---- what belongs together


def test_the_version_is_the_same_everywhere() -> None:
    conf = (REPOSITORY / "kmod/dkms.conf").read_text()
    (told,) = re.findall(r'^PACKAGE_VERSION="(.*)"$', conf, re.MULTILINE)
    module = (REPOSITORY / "kmod/VERSION").read_text().strip()
    assert told == module == pycgpu.__version__


def test_the_configuration_of_dkms_names_all_modules() -> None:
    script = '. kmod/dkms.conf; printf \'%s\\n\' "${BUILT_MODULE_NAME[@]}" "${MAKE[0]}"'
    shown = subprocess.run(
        ["bash", "-uc", script],
        cwd=REPOSITORY,
        env={"kernel_source_dir": "/headers", "dkms_tree": "/dkms", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown[:3] == ["cgpu_km", CORE, "cgpu_rm"]
    assert shown[3].count("KDIR=/headers") == 2
    symbols = f"/dkms/cgpu/{pycgpu.__version__}/build/Module.symvers"
    assert f"KBUILD_EXTRA_SYMBOLS={symbols}" in shown[3]


def test_a_command_that_outlives_a_killed_installation_keeps_the_next_one_out(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo, started = tmp_path / "fifo", tmp_path / "started"
    os.mkfifo(fifo)
    child = os.fork()
    if not child:
        with journal.alone(host):
            execute(["sh", "-c", f": >{started}; read line <{fifo}"])
        os._exit(0)
    until(started.exists, "the command")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    monkeypatch.setattr(journal, "PATIENCE_S", 0.2)
    with pytest.raises(InstallError, match="by somebody else: try again"), journal.alone(host):
        pass
    fifo.write_text("\n")
    monkeypatch.setattr(journal, "PATIENCE_S", 30)
    with journal.alone(host):
        pass


@pytest.mark.parametrize(
    ("change", "refused", "why"),
    [
        ({f"lib/modules/{RELEASE}/build/Makefile": None}, None, "linux-headers"),
        ({"sys/firmware/efi/efivars/SecureBoot-1": "\6\0\0\0\1"}, None, "Secure Boot is on"),
        ({}, "modprobe cgpu_km", "refused"),
    ],
)
def test_where_no_module_is_built_or_loaded_the_agent_is_installed_and_the_reason_kept(
    host: Host, change: Any, refused: str | None, why: str
) -> None:
    """`--or-agent`; the engines that go on meanwhile are restarted."""
    for path, content in change.items():
        target = host.prefix / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink() if content is None else target.write_text(content)
    containerd = engine_programs.containerd("1.7")
    engine_programs.install(host.prefix, "usr/bin/containerd", containerd)
    before = state(host.prefix)
    kernel = filehost.kernel(host)
    kernel.refuse = refused
    said: list[str] = []
    modules = str(host.prefix / "modules") if refused else None
    options = Options(dkms=False, modules=modules, or_agent=True, restart=True)
    advice = installation.install(options, host, said.append)
    kernel.refuse = None
    (reason,) = [line for line in said if line.startswith("no module: ")]
    assert why in reason and "nothing was changed" not in reason
    assert authority.because(str(host.prefix)) == reason.removeprefix("no module: ")
    assert (host.prefix / "etc/systemd/system/cgpud.service").exists()
    assert not (host.prefix / "etc/modules-load.d/cgpu.conf").exists()
    assert "systemctl restart containerd" in kernel.ran
    # Its containers would end.
    assert "systemctl restart docker" not in kernel.ran
    assert "now run: systemctl restart docker" in advice
    installation.uninstall(host)
    assert state(host.prefix) == before


def test_where_a_module_loads_no_agent_is_installed_in_its_place(
    host: Host, options: Options
) -> None:
    installation.install(options._replace(or_agent=True), host)
    assert not (host.prefix / "etc/systemd/system/cgpud.service").exists()
    assert authority.because(str(host.prefix)) == ""


def test_what_is_installed_already_is_no_reason_for_the_agent(host: Host, options: Options) -> None:
    installation.install(options, host)
    before = state(host.prefix)
    with pytest.raises(InstallError, match="is installed already"):
        installation.install(options._replace(or_agent=True), host)
    assert state(host.prefix) == before
