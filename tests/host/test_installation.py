# SPDX-License-Identifier: MIT
"""Installing and taking it back on a host made of files; only the commands' effects are missing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import pycgpu
from pycgpu import install_step, installation, journal
from pycgpu.errors import InstallError
from pycgpu.install_step import Host
from pycgpu.installation import Options
from tests.host import filehost
from tests.host.coretree import CoreTree
from tests.host.filehost import CORE, RELEASE, state
from tests.vm.loaded import until

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return filehost.make(tmp_path / "host")


@pytest.fixture
def prefix(host: Host) -> Path:
    return host.prefix


@pytest.fixture
def options(prefix: Path) -> Options:
    return Options(modules=str(prefix / "modules"), exporter=True)


def test_what_is_installed_is_taken_back_to_the_last_directory(host, options):
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
    assert "Before=docker.service" in (host.prefix / "etc/systemd/system/cgpu.service").read_text()
    assert host.loaded == {"nvidia", "cgpu_km", CORE, "cgpu_rm"}
    assert (host.prefix / "usr/lib/cgpu/cgpu-hook").exists()
    # Traces of use.
    for path in ("var/log/cgpu-prestart-hook.log", "var/log/cgpu-prestart-hook.log.1"):
        (host.prefix / path).write_text("x")
    (host.prefix / "run/cgpu").mkdir()
    (host.prefix / "run/cgpu/admission.lock").touch()
    installation.uninstall(host)
    assert state(host.prefix) == before


def test_what_stood_there_before_comes_back(host, options):
    unit = host.prefix / "etc/systemd/system/cgpu.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("another's")
    installation.install(options, host)
    assert unit.read_text() != "another's"
    installation.uninstall(host)
    assert unit.read_text() == "another's"


def test_what_somebody_changed_since_is_left_to_him(host, options):
    installation.install(options, host)
    file = host.prefix / "etc/modules-load.d/cgpu.conf"
    file.write_text("cgpu_km\nmine\n")
    installation.uninstall(host)
    assert file.read_text() == "cgpu_km\nmine\n"


@pytest.mark.parametrize(
    "refused",
    ["depmod", "daemon-reload", "enable cgpu.service", "enable --now", "modprobe cgpu_km"],
)
def test_a_failure_at_any_step_leaves_everything_as_it_was(host, options, refused):
    before = state(host.prefix)
    host.run.refuse = refused
    with pytest.raises(InstallError, match="refused") as failure:
        installation.install(options, host)
    assert "\n" not in str(failure.value)
    host.run.refuse = None
    assert state(host.prefix) == before


def test_a_bridge_that_does_not_load_is_said_and_is_no_failure(host, options):
    host.run.refuse = "modprobe cgpu_rm"
    advice = installation.install(options, host)
    assert any(line.startswith("without compute limits") for line in advice)


def test_dkms_gets_the_sources_without_products_and_without_the_simulated_driver(host):
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
    assert (sources / "core/ledger.c").exists() and (sources / "VERSION").exists()
    assert not (sources / "sim").exists() and not list(sources.rglob("*.o"))
    assert f"dkms install -m cgpu -v {pycgpu.__version__} -k {RELEASE}" in host.run.ran
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
def test_what_would_fail_is_said_before_anything_changes(host, change, text):
    for path, content in change.items():
        target = host.prefix / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink() if content is None else target.write_text(content)
    before = state(host.prefix)
    with pytest.raises(InstallError, match=re.escape(text)):
        installation.install(Options(dkms=False), host)
    assert state(host.prefix) == before
    assert not [line for line in host.run.ran if not line.startswith("mokutil")]


def test_installing_twice_is_refused(host, options):
    installation.install(options, host)
    before = state(host.prefix)
    with pytest.raises(InstallError, match="is installed already"):
        installation.install(options, host)
    assert state(host.prefix) == before


# ---- uninstall


def test_uninstalling_what_is_not_installed_says_so(host):
    with pytest.raises(InstallError, match="is not installed here"):
        installation.uninstall(host)


def test_uninstalling_is_refused_while_a_container_uses_a_gpu_and_names_it(host, options):
    installation.install(options, host)
    tree = CoreTree(host.prefix / "proc/cgpu_km")
    tree.create("0123456789abcdef" * 4, "gpu=0,mem=1")
    before, ran = state(host.prefix), len(host.run.ran)
    with pytest.raises(InstallError, match="1 container uses a GPU: 0123456789ab: stop"):
        installation.uninstall(host)
    assert state(host.prefix) == before
    assert len(host.run.ran) == ran


def test_a_module_that_does_not_unload_leaves_everything_installed(host, options):
    installation.install(options, host)
    before = state(host.prefix)
    host.run.refuse = "rmmod"
    with pytest.raises(InstallError, match="nothing was changed"):
        installation.uninstall(host)
    assert state(host.prefix) == before
    assert host.run.ran[-1] == "systemctl enable --now cgpu-exporter.service"


def test_an_uninstallation_that_was_cut_short_goes_on(host, options, prefix):
    before = state(prefix)
    installation.install(options, host)
    host.run.refuse = "depmod"
    with pytest.raises(InstallError, match="left behind: copy cgpu_km"):
        installation.uninstall(host)
    host.run.refuse = None
    installation.uninstall(host)
    assert state(prefix) == before


# ---- what belongs together


def test_the_version_is_the_same_everywhere():
    conf = (REPOSITORY / "kmod/dkms.conf").read_text()
    (told,) = re.findall(r'^PACKAGE_VERSION="(.*)"$', conf, re.MULTILINE)
    module = (REPOSITORY / "kmod/VERSION").read_text().strip()
    assert told == module == pycgpu.__version__


def test_the_configuration_of_dkms_names_all_modules():
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
    host, tmp_path, monkeypatch
):
    fifo, started = tmp_path / "fifo", tmp_path / "started"
    os.mkfifo(fifo)
    child = os.fork()
    if not child:
        with journal.alone(host):
            install_step.execute(["sh", "-c", f": >{started}; read line <{fifo}"])
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
