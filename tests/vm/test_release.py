# SPDX-License-Identifier: MIT
"""
A release's own scripts on a whole machine: install, upgrade under a container, uninstall.

Offline, from the wheels that a release carries. DKMS has a test of its own (test_dkms.py): to
compile in an emulated machine takes longer than all others together.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vm import installed
from tests.vm.loaded import loaded_modules as names_of_modules
from tests.vm.test_operate import everything

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("km", "km:0.1.1", "release:0.1.0", "release:0.1.1", "bridge"),
    pytest.mark.vm(memory="3G", timeout_s=2400),
]

OLD, NEW = "0.1.0", "0.1.1"
HOME = Path("/opt/cgpu")


#: As root has it who logs in: nothing that leads Python elsewhere.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
#: pip need not compile a thousand files of others, of which a few are used: that would be half of
#: the test's time. (The option's sense is turned round: `no` is what switches compiling off.)
PIP = {"PIP_NO_COMPILE": "no"}
#: of which a virtual environment is made, as on a customer's host
BASE_PYTHON: str = sys._base_executable  # type: ignore[attr-defined]  # undocumented


def script(root: Path, name: str, *options: object) -> str:
    """Run one of a release's scripts; return what it says, in which a failure ends the test."""
    run = subprocess.run(
        [root / "scripts" / name, *map(str, options)],
        env={**ENVIRONMENT, **PIP, "PYTHON": BASE_PYTHON},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    return str(run.stdout)


def tool(*words: object) -> str:
    """Return what the installed `cgpu` prints, whatever its exit status."""
    return subprocess.run(
        ["/usr/local/bin/cgpu", *map(str, words)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def machine() -> dict[str, object]:
    """What the scripts could change, beside what `cgpu install` could."""
    found = everything()
    for top in ("/usr/local/bin", "/usr/local/share/man/man1", "/etc/bash_completion.d", "/opt"):
        if Path(top).exists():
            found[top] = sorted(path.name for path in Path(top).iterdir())
    return found


def test_a_machine_is_installed_upgraded_under_a_container_and_left_as_it_was(
    sim: Any, container: Any, made: Callable[[str], Path], loaded_modules: Any, tmp_path: Path
) -> None:
    driver = sim(model="t4")
    old = installed.modules(made, "km", tmp_path / OLD)
    new = installed.modules(made, f"km:{NEW}", tmp_path / NEW)
    with installed.few_modules(tmp_path / "few"):
        subprocess.run(["depmod", "-a"], check=True)
        before, modules = machine(), names_of_modules()
        said = script(made(f"release:{OLD}"), "install", "--modules", old)
        assert "installed; `cgpu doctor`" in said
        assert HOME.readlink() == Path(f"{HOME}-{OLD}")
        assert tool("--version") == f"cgpu {OLD}\n"
        page = Path("/usr/local/share/man/man1/cgpu.1")
        assert ".SH COMMANDS" in page.read_text()
        hook = Path("/usr/lib/cgpu/cgpu-hook").read_text()
        assert f"'{HOME}/lib/" in hook

        one = container("job", programs={"/bin/simcuda": driver.programs / "simcuda"})
        Path("/proc/cgpu_km/inst_ctl").write_text(f"create job pid={one.pid} gpu=0,mem=268435456")
        said = script(made(f"release:{NEW}"), "install", "--modules", new)
        assert f"cgpu {OLD} is now {NEW} (hot)" in said
        assert re.search(r"longest pause of a call was \d+\.\d+ ms", said)
        assert HOME.readlink() == Path(f"{HOME}-{NEW}")
        assert not Path(f"{HOME}-{OLD}").exists()
        assert tool("--version") == f"cgpu {NEW}\n"
        assert page.resolve().is_relative_to(f"{HOME}-{NEW}")
        assert "cgpu_core_0_1_1; hot upgrade" in tool("doctor")
        assert "268435456" in Path("/proc/cgpu_km/0/job/memsize").read_text()
        assert one.exec("simcuda", "info").returncode == 0

        refused = subprocess.run(
            [made(f"release:{NEW}") / "scripts/uninstall"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode and "1 container uses a GPU: job" in refused.stderr
        one.delete()
        script(made(f"release:{NEW}"), "uninstall")
        assert names_of_modules() == modules
        assert machine() == before
