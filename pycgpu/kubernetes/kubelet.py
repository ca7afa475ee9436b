# SPDX-License-Identifier: MIT
"""The kubelet of this node, by its sockets: the ids of each container, and our registration."""

from __future__ import annotations

import os
from pathlib import Path

import grpc

from ..errors import CgpuError
from . import messages
from .wire import decode, encode

DIRECTORY = "/var/lib/kubelet"
PLUGINS = "device-plugins"
SOCKET = "kubelet.sock"
TIMEOUT_S = 10.0
#: A node's list of ids can be longer than gRPC's 4 MiB.
_MAX_BYTES = 64 << 20


class KubeletError(CgpuError):
    """The kubelet does not answer, or refuses."""


class Kubelet:
    """A kubelet whose files are in *directory*."""

    def __init__(self, directory: str = DIRECTORY) -> None:
        self.directory = Path(directory)

    @property
    def plugins(self) -> Path:
        """Where plugins have their sockets."""
        return self.directory / PLUGINS

    def incarnation(self) -> tuple[int, int] | None:
        """Return a key that changes when the kubelet restarts; None while it does not run."""
        try:
            status = os.stat(self.plugins / SOCKET)
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns

    def register(self, endpoint: str, resource: str) -> None:
        """Tell the kubelet which socket in :attr:`plugins` serves a resource."""
        request = messages.RegisterRequest(
            messages.VERSION, endpoint, resource, [messages.Options(pre_start_required=True)]
        )
        self._call(
            self.plugins / SOCKET, f"{messages.REGISTRATION}/Register", request, messages.Empty
        )

    def pods(self) -> list[messages.PodResources]:
        """Return which containers have which ids: those that run, and those about to."""
        listed = self._call(
            self.directory / "pod-resources" / SOCKET,
            f"{messages.POD_RESOURCES}/List",
            messages.Empty(),
            messages.PodResourcesList,
        )
        assert isinstance(listed, messages.PodResourcesList)
        return listed.pods

    def _call(self, socket: Path, method: str, request: object, answer: type) -> object:
        options = [("grpc.max_receive_message_length", _MAX_BYTES)]
        with grpc.insecure_channel(f"unix://{socket}", options=options) as channel:
            call = channel.unary_unary(
                f"/{method}",
                request_serializer=encode,
                response_deserializer=lambda raw: decode(answer, raw),
            )
            try:
                return call(request, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                raise KubeletError(f"{socket}: {error.details() or error.code()}") from None
