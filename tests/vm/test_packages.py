# SPDX-License-Identifier: MIT
"""
The Debian package on a whole machine: dpkg installs it, upgrades it under a container, removes it.

``scripts/test-fresh`` installs the package, and the rpm, on systems that have never seen the tree.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm import installed
from tests.vm.loaded import loaded_modules as names_of_modules
from tests.vm.test_operate import everything

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("km", "km:0.1.1", "deb:0.1.0", "deb:0.1.1", "bridge"),
    pytest.mark.vm(memory="3G", timeout_s=2400),
    # Python compiles a thousand files in an emulated machine.
    pytest.mark.long,
]

OLD, NEW = "0.1.0", "0.1.1"
OPTIONS = Path("/etc/default/cgpu")
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "DEBIAN_FRONTEND": "noninteractive",
}


def run(*words: object, fails: bool = False) -> str:
    """Run a command as root has it who logs in; return all that it says."""
    done = subprocess.run(
        [str(word) for word in words],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert bool(done.returncode) == fails, done.stdout
    return done.stdout


def machine() -> dict[str, object]:
    """What `cgpu install` could change, and where the package puts its files."""
    found = everything()
    for place in ("/usr/bin/cgpu", "/usr/bin/cgpu-smi", "/usr/lib/cgpu", "/usr/share/doc/cgpu"):
        found[place] = Path(place).exists()
    return found


@pytest.fixture
def options() -> Iterator[Callable[..., None]]:
    """``options(install, upgrade)`` are words for /etc/default/cgpu."""

    def write(install: str, upgrade: str = "") -> None:
        OPTIONS.write_text(f'CGPU_INSTALL="{install}"\nCGPU_UPGRADE="{upgrade}"\n')

    yield write
    OPTIONS.unlink(missing_ok=True)


def test_a_package_installs_upgrades_under_a_container_and_leaves_the_machine_as_it_was(
    sim: Any,
    container: Any,
    made: Callable[[str], Path],
    loaded_modules: Any,
    tmp_path: Path,
    options: Callable[..., None],
) -> None:
    driver = sim(model="t4")
    old = installed.modules(made, "km", tmp_path / OLD)
    new = installed.modules(made, f"km:{NEW}", tmp_path / NEW)
    with installed.few_modules(tmp_path / "few"):
        run("depmod", "-a")
        before, modules = machine(), names_of_modules()
        options(f"--modules {old} --no-runtimes", f"--modules {new}")
        said = run("dpkg", "--force-confold", "-i", made(f"deb:{OLD}"))
        assert "installed; `cgpu doctor`" in said
        assert run("cgpu", "--version") == f"cgpu {OLD}\n"
        assert run("dpkg", "-V", "cgpu").strip() in ("", f"??5?????? c {OPTIONS}")
        assert "cgpu_km" in names_of_modules()

        one = container("job", programs={"/bin/simcuda": driver.programs / "simcuda"})
        Path("/proc/cgpu_km/inst_ctl").write_text(f"create job pid={one.pid} gpu=0,mem=268435456")
        said = run("dpkg", "--force-confold", "-i", made(f"deb:{NEW}"))
        assert f"cgpu {OLD} is now {NEW} (hot)" in said
        assert run("cgpu", "--version") == f"cgpu {NEW}\n"
        assert "268435456" in Path("/proc/cgpu_km/0/job/memsize").read_text()
        assert one.exec("simcuda", "info").returncode == 0

        said = run("dpkg", "-r", "cgpu", fails=True)
        assert "1 container uses a GPU: job" in said
        assert run("cgpu", "--version") == f"cgpu {NEW}\n"
        one.delete()
        run("dpkg", "-r", "cgpu")
        assert names_of_modules() == modules
        assert machine() == before
        run("dpkg", "-P", "cgpu")
        assert not OPTIONS.exists()


def test_a_machine_that_cannot_have_the_module_has_the_tools_and_is_told_why(
    made: Callable[[str], Path], options: Callable[..., None]
) -> None:
    options("--modules /nonexistent --no-runtimes")
    said = run("dpkg", "--force-confold", "-i", made(f"deb:{OLD}"))
    assert "/nonexistent" in said
    assert "run `cgpu install --modules /nonexistent --no-runtimes`" in said
    assert run("cgpu", "--version") == f"cgpu {OLD}\n"
    assert not Path("/var/lib/cgpu/installation.json").exists()
    run("dpkg", "-P", "cgpu")
    assert not Path("/usr/lib/cgpu").exists()
