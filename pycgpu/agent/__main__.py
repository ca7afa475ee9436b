# SPDX-License-Identifier: MIT
"""
What ``cgpu run`` starts on demand: the agent, in the background, without the command line.

The process that was started ends once the agent answers, or has failed; the agent is a child of
nobody, for the process that starts it becomes a tenant.
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
    """Let the process that was started end."""
    os.write(tell, b"r")
    # Not closed: the number would be free for what the next agent needs by the same number.
    os.dup2(0, tell, inheritable=False)


logging.basicConfig(format="cgpud: %(message)s", level=logging.INFO)
try:
    # There is no service that would start another while its tenants are at work.
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
