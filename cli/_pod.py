# SPDX-License-Identifier: MIT
"""A command of the node's that runs in a pod of a DaemonSet or a Deployment."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

_LOOK_S = 1

#: What each asks the API server by.
Api = Annotated[
    str | None, typer.Option(metavar="URL", help="The API server; default: the pod's own.")
]
Token = Annotated[str | None, typer.Option(help="File with the token for it.")]
Ca = Annotated[str | None, typer.Option(help="File with its authority's certificate.")]


def follow_upgrades(
    environment: Mapping[str, str] = os.environ, tools: Path = Path(sys.prefix)
) -> None:
    """
    In a pod, end as by SIGTERM once *tools* are gone, which an upgrade of the node has replaced.

    The kubelet starts the container anew, and with it the new ones. Elsewhere nothing happens:
    services are started anew by the upgrade itself.
    """
    # The kubelet sets it for every container.
    if "KUBERNETES_SERVICE_HOST" in environment:
        threading.Thread(target=_follow, args=(tools,), daemon=True).start()


def _follow(tools: Path) -> None:
    while tools.exists():
        time.sleep(_LOOK_S)
    logging.getLogger(__name__).warning("%s is gone: cgpu was upgraded", tools)
    os.kill(os.getpid(), signal.SIGTERM)
