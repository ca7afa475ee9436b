# SPDX-License-Identifier: MIT
"""
``cgpu run`` starts this on demand: the agent, in the background, without the command line.

The started process ends once the agent answers, or has failed. The agent is then no child of the
process that starts it, because that becomes a tenant.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys

from pycgpu.agent import server
from pycgpu.errors import CgpuError

parser = argparse.ArgumentParser(prog="cgpud")
parser.add_argument("--idle", type=float, default=None)
parser.add_argument("--unknown-driver", choices=("refused", "newest"), default="refused")
options = parser.parse_args()
told, tell = os.pipe()
if os.fork():
    os.close(tell)
    sys.exit(0 if os.read(told, 1) else 1)
os.close(told)


def ready() -> None:
    """Let the started process end."""
    os.write(tell, b"r")
    # Kept open: a descriptor that the next agent needs by its number could get this one.
    os.dup2(0, tell, inheritable=False)


logging.basicConfig(format="cgpud: %(message)s", level=logging.INFO)
try:
    # No service would start another agent while its tenants are at work.
    keeping = dataclasses.replace(
        server.KEEPING,
        successor=(sys.executable, "-m", "pycgpu.agent", *sys.argv[1:]),
        log=server.LOG,
    )
    server.main(
        unknown_driver=options.unknown_driver,
        idle_s=options.idle,
        keeping=keeping,
        ready=ready,
    )
except CgpuError as error:
    sys.exit(f"cgpu: {error}")
