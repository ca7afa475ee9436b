# SPDX-License-Identifier: MIT
"""
``python -m pycgpu.install.early install|upgrade [options]``: what would be refused, said at once.

For scripts/install and scripts/upgrade.sh, before they build the tools: from the sources, by the
standard library alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import CgpuError
from . import installation, journal, upgrade_plan
from .host import Host, this_host


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("command", choices=("install", "upgrade"))
    parser.add_argument("--no-dkms", action="store_true")
    parser.add_argument("--modules")
    parser.add_argument("--agent", action="store_true")
    parser.add_argument("--cold", action="store_true")
    return parser


def check(arguments: Sequence[str], host: Host) -> None:
    """
    Look for what would make the command fail, as far as it can be seen without building.

    Options that it has beyond these are left to the command itself.
    """
    given, _ = _parser().parse_known_args(arguments)
    if given.command == "install":
        options = installation.Options(
            dkms=not given.no_dkms, modules=given.modules, agent=given.agent
        )
        installation.check(options, host)
        return
    held = journal.read(host)
    if held.layer is not None:
        # One that was cut short is first gone on with, or taken back, whatever is missing now.
        return
    options = upgrade_plan.options_of(held, given.modules)
    if not options.agent:
        installation.check_modules(options, host)
    if given.cold:
        installation.refuse_while_used(host)


def main(arguments: Sequence[str]) -> int:
    """Check this machine; the status is 1 and the reason on stderr where it would be refused."""
    try:
        check(arguments, this_host())
    except CgpuError as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
