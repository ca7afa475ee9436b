# SPDX-License-Identifier: MIT
"""
``python -m pycgpu.install.early install|upgrade [options]``: refuse early what would fail later.

scripts/install and scripts/upgrade.sh run it from the sources before they build the tools, so it
uses the standard library only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..errors import CgpuError
from . import installation, journal, upgrade_plan
from .host import Host, this_host

#: The options of ``cgpu install`` and ``cgpu upgrade``, with a value and without. The commands
#: declare them with a library that is not installed yet.
WITH_VALUE = {
    "install": ("--modules", "--name", "--ungranted"),
    "upgrade": ("--modules", "--trial", "--prove", "--tools"),
}
FLAGS = {
    "install": ("--dkms", "--no-dkms", "--runtimes", "--no-runtimes", "--default", "--no-default")
    + ("--exporter", "--usage", "--agent", "--or-agent", "--restart")
    + ("--load", "--no-load", "--dry-run"),
    "upgrade": ("--check", "--cold", "--dry-run"),
}


class UsageError(CgpuError):
    """A word that the command does not take."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        options = sorted(option for option in self._option_string_actions)
        raise UsageError(f"{message}; options are {', '.join(options)}")


def _parse(command: str, words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for option in WITH_VALUE[command]:
        parser.add_argument(option)
    for option in FLAGS[command]:
        parser.add_argument(option, action="store_true")
    return parser.parse_args(words)


def check(arguments: Sequence[str], host: Host) -> None:
    """
    Look for what would make the command fail, as far as that is visible without building.

    Values are left to the command itself.

    Raises:
        UsageError: it has no such option.
    """
    command, *words = arguments
    given = _parse(command, words)
    if command == "install":
        options = installation.Options(
            dkms=not given.no_dkms,
            modules=given.modules,
            agent=given.agent,
            or_agent=given.or_agent,
        )
        installation.check(installation.settled(options, host, lambda line: None), host)
        return
    held = journal.read(host)
    if held.layer is not None:
        # An interrupted upgrade is first completed or undone, whatever is missing now.
        return
    options = upgrade_plan.options_of(held, given.modules)
    if not options.agent:
        installation.check_modules(options, host)
    if given.cold:
        installation.refuse_while_used(host)


def main(arguments: Sequence[str]) -> int:
    """Check this machine; 1 where the command would be refused, 2 where it is mistyped, and why."""
    try:
        check(arguments, this_host())
    except CgpuError as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
