# SPDX-License-Identifier: MIT
"""
``cgpu-container-runtime`` as pip installs it; ``cgpu install-runtime`` writes a leaner one.

No typer here: the arguments are runc's, and every start of a container waits for this.
"""

from __future__ import annotations

import sys

from pycgpu.oci.runtime import main


def run() -> None:
    """Become the container runtime behind this one."""
    sys.exit(main())


if __name__ == "__main__":
    run()
