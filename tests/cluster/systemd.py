# SPDX-License-Identifier: MIT
"""
In systemd's place on a node: ``systemctl`` for whoever has the node's root, and who carries it out.

What a pod starts by it is no process of the pod's: it goes on when the pod ends, outside of the
pod's mounts and cgroup.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

#: By this an installation knows that systemd runs.
RUNS = Path("/run/systemd/system")
UNITS = Path("/etc/systemd/system")
ASKED = Path("/run/systemd/asked")
PROGRAM = Path("/usr/local/sbin/systemctl")
POLL_S = 0.1
#: It asks, and ends as it is answered.
SYSTEMCTL = f"""\
#!/bin/sh
echo "$*" >{ASKED}/new.$$
mv {ASKED}/new.$$ {ASKED}/ask.$$
until [ -e {ASKED}/answer.$$ ]; do sleep {POLL_S}; done
read -r status said <{ASKED}/answer.$$
rm {ASKED}/answer.$$
[ -z "$said" ] || echo "$said" >&2
exit "$status"
"""


class Daemons(Protocol):
    """Who has the daemons of a node, by name."""

    def start(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None: ...

    def restart(self, name: str) -> None: ...

    def stop(self, name: str) -> None: ...


class Systemd(threading.Thread):
    """Answers ``systemctl``: what an installation asks of it, and refuses anything else."""

    def __init__(self, daemons: Daemons) -> None:
        super().__init__(daemon=True)
        self._daemons = daemons
        for directory in (RUNS, UNITS, ASKED):
            directory.mkdir(parents=True, exist_ok=True)
        PROGRAM.write_text(SYSTEMCTL)
        PROGRAM.chmod(0o755)

    def run(self) -> None:
        while True:
            for path in ASKED.glob("ask.*"):
                try:
                    self._obey(shlex.split(path.read_text()))
                    answer = "0"
                except Exception as error:  # it is whose who asked
                    answer = f"1 {error!r}"
                path.unlink()
                draft = path.with_suffix(".draft")
                draft.write_text(f"{answer}\n")
                draft.rename(ASKED / f"answer{path.suffix}")
            time.sleep(POLL_S)

    def _obey(self, words: Sequence[str]) -> None:
        match list(words):
            case ["daemon-reload"] | ["enable", _]:
                pass
            case ["enable", "--now", unit]:
                lines = (UNITS / unit).read_text().splitlines()
                (command,) = (one for one in lines if one.startswith("ExecStart="))
                program = shlex.split(command.partition("=")[2])
                self._daemons.start(unit.removesuffix(".service"), program, {})
            case ["disable", "--now", unit]:
                self._daemons.stop(unit.removesuffix(".service"))
            case ["restart", unit]:
                self._daemons.restart(unit.removesuffix(".service"))
            case _:
                raise ValueError(f"systemctl {shlex.join(words)}")
