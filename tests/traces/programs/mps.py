# SPDX-License-Identifier: MIT
"""NVIDIA's MPS: its daemon, its server, and two clients at once that allocate, compute and end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

CLIENTS = (["./context"], ["./graphs"])


def main() -> int:
    folder = tempfile.mkdtemp(prefix="mps")
    env = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
    try:
        # One of the two begins while the server starts, the other while it serves.
        clients = [subprocess.Popen(command, env=env) for command in CLIENTS]
        status = max(abs(one.wait()) for one in clients)
        status = max(status, abs(subprocess.run(["./ladder"], env=env, check=False).returncode))
    finally:
        subprocess.run(
            ["nvidia-cuda-mps-control"], input="quit -t 1\n", text=True, env=env, check=False
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
