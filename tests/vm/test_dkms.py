# SPDX-License-Identifier: MIT
"""
The real DKMS builds, installs, replaces and removes the modules, for a real kernel's headers.

On this machine, in trees of its own: what is loaded is not touched.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pycgpu.install import installation, journal, kernel_door, upgrade_plan
from pycgpu.install.host import Host, execute
from pycgpu.install.step import Step, dkms_modules, do, foresee, take_back
from tests.host.filehost import state
from tests.vm import kernels, release

pytestmark = [
    pytest.mark.on_host,
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.long,
]

OLD, NEW = "0.1.0", "0.1.1"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A root of its own with the headers of a kernel that does not run here."""
    shutil.which("dkms", path="/usr/sbin:/usr/bin") or pytest.skip("no package: dkms")
    kernel = kernels.fetch("6.1")
    prefix = tmp_path / "root"
    modules = prefix / "lib/modules" / kernel.release
    modules.mkdir(parents=True)
    for directory in ("run", "usr/src", "var/lib/dkms", "proc"):
        (prefix / directory).mkdir(parents=True)
    (prefix / "var/lib/dkms/dkms_dbversion").write_text("3.0.0\n")
    (modules / "build").symlink_to(kernel.headers)
    (modules / "modules.builtin").touch()
    (modules / "modules.order").touch()

    def run(command: list[str]) -> str:
        if command[0] == "dkms":
            trees = {
                "dkmstree": "var/lib/dkms",
                "sourcetree": "usr/src",
                "installtree": "lib/modules",
            }
            command = [
                *command,
                *(w for k, v in trees.items() for w in (f"--{k}", str(prefix / v))),
            ]
            # It would make the tables of the machine that this runs on.
            command += [
                "--no-depmod",
                *(["--kernelsourcedir", str(kernel.headers)] if "build" in command else []),
            ]
        if command[0] == "depmod":
            command = ["depmod", "-b", str(prefix), kernel.release]
        return execute(command)

    return Host(prefix, kernel.release, run)


def take(steps: list[Step], host: Host) -> list[Step]:
    for step in steps:
        foresee(host, step)
        do(host, step)
    return steps


def modules(host: Host) -> list[str]:
    return sorted(path.stem for path in (host.prefix / "lib/modules").glob("*/updates/dkms/*.ko"))


def test_dkms_takes_two_versions_to_and_fro_and_leaves_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(host.prefix)

    def steps(version: str) -> list[Step]:
        sources = release.build(version) / "kmod"
        path = installation.SOURCES.format(version=version)
        return [
            Step("tree", "", {"path": path, "source": str(sources)}),
            Step("dkms_build", "", {"version": version}),
        ]

    first = take([steps(OLD)[0], Step("dkms", "", {"version": OLD})], host)
    assert modules(host) == [kernel_door.core_name(OLD), "cgpu_km", "cgpu_rm"]
    held = journal.Journal(OLD, (), first)
    built = take(steps(NEW), host)
    found = kernel_door.find(dkms_modules(host, NEW))
    told = kernel_door.inspect(found, host.run)
    assert (told.core, told.release) == (kernel_door.core_name(NEW), host.release)
    # Nothing of it is in use before it is installed.
    assert modules(host) == [kernel_door.core_name(OLD), "cgpu_km", "cgpu_rm"]
    placing = Step("dkms_install", "", {"version": NEW, "former": OLD})
    installed = take([placing], host)
    assert modules(host) == [kernel_door.core_name(NEW), "cgpu_km", "cgpu_rm"]
    # The way back.
    assert take_back(host, [*built, *installed]) == []
    assert modules(host) == [kernel_door.core_name(OLD), "cgpu_km", "cgpu_rm"]
    # Again, and for good.
    layer = journal.Layer(NEW, "hot", journal.PLACED, take([*steps(NEW), placing], host))
    held = upgrade_plan.united(held._replace(layer=layer))
    assert take_back(host, list(held.retired)) == []
    assert modules(host) == [kernel_door.core_name(NEW), "cgpu_km", "cgpu_rm"]
    assert sorted(path.name for path in (host.prefix / "usr/src").iterdir()) == [f"cgpu-{NEW}"]
    assert take_back(host, held.steps) == []
    left = {path for path in set(state(host.prefix)) - set(before) if "/modules." not in path}
    assert left == set()
