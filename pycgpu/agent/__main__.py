# SPDX-License-Identifier: MIT
"""The agent without the command line's packages: what ``cgpu run`` starts on demand."""

from __future__ import annotations

import argparse
import logging
import sys

from pycgpu.agent import server
from pycgpu.errors import CgpuError

parser = argparse.ArgumentParser(prog="cgpud")
parser.add_argument("--idle", type=float, default=None)
parser.add_argument("--force-branch", action="store_true")
options = parser.parse_args()
logging.basicConfig(format="cgpud: %(message)s", level=logging.INFO)
try:
    server.main(force_branch=options.force_branch, idle_s=options.idle)
except CgpuError as error:
    sys.exit(f"cgpu: {error}")
