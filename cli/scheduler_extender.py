# SPDX-License-Identifier: MIT
"""``cgpu scheduler-extender``: what a kube-scheduler asks about pods that want parts of cards."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Annotated

import typer

from pycgpu.errors import CgpuError
from pycgpu.kubernetes import apiserver, extender, families

from . import _number
from ._pod import Api, Ca, Token, follow_upgrades

app = typer.Typer(add_completion=False)
PORT = 9401


@app.command("scheduler-extender")
def scheduler_extender(
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS:PORT", help="Where the scheduler asks.")
    ] = f"127.0.0.1:{PORT}",
    config: Annotated[
        str, typer.Option(help="Families of resources, and the placement: binpack or spread.")
    ] = families.PATH,
    api: Api = None,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Answer a kube-scheduler until a signal."""
    address, port = _number.listening(listen, PORT)
    access = apiserver.access(api, token, ca)
    found = families.load(config)
    logging.basicConfig(format="cgpu: %(message)s", level=logging.INFO)
    cluster = extender.Cluster(found.families, found.placement)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    follow_upgrades()
    extender.follow(cluster, access, ended)
    try:
        server = extender.server(cluster, access, address, port)
    except OSError as error:
        raise CgpuError(f"cannot listen on {listen}: {error.strerror}") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    logging.getLogger(__name__).info("serving")
    try:
        ended.wait()
    except KeyboardInterrupt:
        ended.set()
    server.shutdown()
