# SPDX-License-Identifier: MIT
"""
What runs in a guest whose process 1 is the distribution's systemd, with nothing but our services.

``python -m tests.vm.boot install`` is the unit of the first boot, ``… look`` of the second; what a
disk would keep goes from one to the other as an archive in the share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.vm import installed, loaded
from tests.vm.vm import REPOSITORY, SHARE

DISK = SHARE / "disk.tar"
KEPT = ("etc/cgpu", "etc/modprobe.d", "etc/modules-load.d", "etc/systemd/system", "var/lib/cgpu")
CARDS = '[default]\npolicy = "average"\nmax_inst = 8\ntimeslice_us = 12000\n'
SET = ("policy", "max_inst", "timeslice_us")

# Services of the machine that the tests run on are no part of it, nor is a login; and what empties
# /tmp would take minutes over that machine's.
_PROLOGUE = """
rm -rf /etc/systemd/system/*.wants /etc/fstab
mkdir -p /run/systemd/system /run/few
for unit in systemd-logind.service getty.target systemd-tmpfiles-setup.service; do
    ln -s /dev/null /run/systemd/system/$unit
done
mount --bind /run/few /lib/modules/$(uname -r)
[ ! -e {disk} ] || tar -C / -xf {disk}
cat >/run/systemd/system/nvidia-persistenced.service <<'UNIT'
[Service]
Type=oneshot
RemainAfterExit=yes
WorkingDirectory={repository}
ExecStart={python} -m tests.vm.boot driver {sim}
UNIT
cat >/run/systemd/system/cgpu-test.service <<'UNIT'
[Unit]
Requires=multi-user.target nvidia-persistenced.service
After=multi-user.target nvidia-persistenced.service
[Service]
WorkingDirectory={repository}
StandardOutput=append:{share}/output
StandardError=append:{share}/output
ExecStart={python} -m {program} {step} {modules}
ExecStopPost=/bin/sh -c 'dmesg >{share}/dmesg; echo "$EXIT_STATUS" >{share}/status; sync; echo o >/proc/sysrq-trigger'
UNIT
exec /lib/systemd/systemd --unit=cgpu-test.service
"""  # noqa: E501


def command(step: str, sim: Path, modules: Path, program: str = "tests.vm.boot") -> list[str]:
    """Return what a VM's process 1 becomes for *step* of *program*."""
    script = _PROLOGUE.format(
        disk=DISK,
        repository=REPOSITORY,
        python=sys.executable,
        share=SHARE,
        sim=sim,
        modules=modules,
        step=step,
        program=program,
    )
    return ["exec", "/bin/bash", "-c", script]


def _insert(directory: Path) -> None:
    for name in ("nvidia", "nvidia-uvm"):
        subprocess.run(["insmod", str(directory / f"{name}.ko")], check=True)
    loaded.make_nodes()


def _install(modules: Path) -> None:
    cgpu = Path("/etc/cgpu/cgpu")
    cgpu.parent.mkdir()
    cgpu.write_text(f'#!/bin/sh\ncd {REPOSITORY}\nexec {sys.executable} -m pycgpu.cli.main "$@"\n')
    cgpu.chmod(0o755)
    (cgpu.parent / "cards.toml").write_text(CARDS)
    installed.install(modules, cgpu=str(cgpu), runtimes=False)
    kept = [*KEPT, f"lib/modules/{os.uname().release}"]
    subprocess.run(["tar", "-C", "/", "-cf", str(DISK), *kept], check=True)


def _look() -> None:
    found = {name: Path(f"/proc/cgpu_km/0/{name}").read_text().strip() for name in SET}
    parameter = Path("/sys/module/cgpu_km/parameters/ungranted")
    state = subprocess.run(
        ["systemctl", "show", "-p", "ActiveState", "-p", "Result", "cgpu.service"],
        capture_output=True,
        text=True,
        check=True,
    )
    first = Path("/proc/1/comm").read_text().strip()
    print(json.dumps([first, sorted(state.stdout.split()), found, parameter.read_text().strip()]))


def main(step: str, directory: str) -> None:
    """Do one step of a boot."""
    if step == "driver":
        _insert(Path(directory))
    elif step == "install":
        _install(Path(directory))
    else:
        _look()


if __name__ == "__main__":
    main(*sys.argv[1:])
