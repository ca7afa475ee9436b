# SPDX-License-Identifier: MIT
"""
The device plugin: a socket for each family's anchor, registered with the kubelet.

Its ids are virtual: any of them stands for any card until the container's cards are chosen
(:mod:`pycgpu.kubernetes.node`). So the kubelet may take any free id without advice.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from ..errors import CgpuError, ModuleNotLoaded
from . import messages
from .families import Family
from .kubelet import KubeletError
from .node import Node
from .wire import decode, encode

#: How soon a kubelet that was started anew is noticed.
KUBELET_S = 1.0
#: How often the node's status is looked at: another may have written it.
PUBLISH_S = 10.0
#: A kubelet that follows no list of ours for so long has forgotten us, and will not ask again.
FORGOTTEN_S = 10.0
#: Threads for calls that wait for their turn: a kubelet starts many containers at once.
_WORKERS = 64

log = logging.getLogger(__name__)


class Endpoint:
    """The gRPC service of one family, from its creation to :meth:`stop`."""

    def __init__(self, node: Node, family: Family, forgotten_s: float = FORGOTTEN_S) -> None:
        self.node = node
        self.family = family
        self.name = f"cgpu-{family.name}.sock"
        self.stopped = False
        self._forgotten_s = forgotten_s
        self._streams = 0
        #: Since when no list has been followed.
        self._since_s = time.monotonic()
        socket = node.kubelet.plugins / self.name
        socket.unlink(missing_ok=True)
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(_WORKERS))
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self._server.add_insecure_port(f"unix://{socket}")
        self._server.start()
        try:
            node.kubelet.register(self.name, family.anchor_name)
        except BaseException:
            self.stop()
            raise

    def is_forgotten(self) -> bool:
        """Tell whether the kubelet follows the list no more, and has to be told of us again."""
        return not self._streams and time.monotonic() - self._since_s > self._forgotten_s

    def stop(self) -> None:
        """End the service, and the streams of its list."""
        self.stopped = True
        self.node.tell()
        self._server.stop(grace=None).wait()

    def _handlers(self) -> Any:
        return grpc.method_handlers_generic_handler(
            messages.DEVICE_PLUGIN,
            {
                "GetDevicePluginOptions": _unary(self._options, messages.Empty),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    request_deserializer=_reader(messages.Empty),
                    response_serializer=encode,
                ),
                "Allocate": _unary(self._allocate, messages.AllocateRequest),
                "PreStartContainer": _unary(self._prestart, messages.ContainerRequest),
            },
        )

    def _options(self, request: messages.Empty, context: Any) -> messages.Options:
        return messages.Options(pre_start_required=True)

    def _list_and_watch(
        self, request: messages.Empty, context: Any
    ) -> Iterator[messages.ListAndWatchResponse]:
        self._streams += 1
        try:
            yield from self._lists(context)
        finally:
            self._since_s = time.monotonic()
            self._streams -= 1

    def _lists(self, context: Any) -> Iterator[messages.ListAndWatchResponse]:
        shown: list[messages.Device] | None = None
        said = ""
        while context.is_active() and not self.stopped:
            devices = shown or []
            why = ""
            try:
                devices = self.node.devices(self.family)
            except CgpuError as error:
                # The module is gone, and with it every card; or it has not come yet.
                why, devices = str(error), []
            except Exception as error:  # with the stream the kubelet would take all cards for lost
                why = repr(error)
            if why and why != said:
                log.warning("%s: %s", self.family.anchor_name, why)
            said = why
            if devices != shown:
                shown = devices
                yield messages.ListAndWatchResponse(devices)
            with self.node.changed:
                self.node.changed.wait(KUBELET_S if why else PUBLISH_S)

    def _allocate(
        self, request: messages.AllocateRequest, context: Any
    ) -> messages.AllocateResponse:
        return messages.AllocateResponse(
            [
                messages.ContainerResponse(
                    cdi_devices=[messages.CdiDevice(self.node.device(self.family, one.ids))]
                )
                for one in request.containers
            ]
        )

    def _prestart(self, request: messages.ContainerRequest, context: Any) -> messages.Empty:
        try:
            self.node.prepare(self.family, request.ids, context.is_active)
        except CgpuError as error:
            log.warning("%s", error)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"cgpu: {error}")
        return messages.Empty()


def _reader(kind: type) -> Callable[[bytes], Any]:
    return lambda raw: decode(kind, raw)


def _unary(method: Callable[[Any, Any], object], request: type) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=_reader(request), response_serializer=encode
    )


class Plugin:
    """All endpoints of a node, kept registered until :attr:`ended` is set."""

    def __init__(self, node: Node, forgotten_s: float = FORGOTTEN_S) -> None:
        self.node = node
        self.ended = threading.Event()
        self._endpoints: dict[str, Endpoint] = {}
        self._forgotten_s = forgotten_s

    def run(self) -> None:
        """
        Serve until :attr:`ended`; a door that is not open yet is waited for, as the kubelet is.

        Raises:
            CgpuError: a family has more ids than a kubelet takes, or another plugin runs here.
        """
        with self.node.mapping.owned():
            self._run()

    def _run(self) -> None:
        try:
            self.node.overcommit.keep(self.node.root())
            for family in self.node.config.families:
                self.node.devices(family)
            self.node.verify()
        except ModuleNotLoaded as error:
            log.warning("no card is offered yet: %s", error)
        threads = [
            threading.Thread(target=self.node.health.follow, args=(self._uuids,)),
            threading.Thread(target=self._publish),
        ]
        for thread in threads:
            thread.start()
        try:
            self._stay_registered()
        finally:
            self.ended.set()
            self.node.health.ended.set()
            self._stop()
            for thread in threads:
                while thread.is_alive():
                    # A thread that was about to wait has missed the first notice of the end.
                    self.node.tell()
                    thread.join(0.1)

    def _stay_registered(self) -> None:
        known = None
        while not self.ended.is_set():
            now = self.node.kubelet.incarnation()
            if now is not None and now != known:
                # A new kubelet has removed all sockets in its directory, and the registrations.
                self._stop()
                known = now
            if now is not None:
                for family in self.node.config.families:
                    self._register(family)
            self.ended.wait(KUBELET_S)

    def _register(self, family: Family) -> None:
        """Have the kubelet know a family, if it does not."""
        endpoint = self._endpoints.get(family.name)
        if endpoint is not None and not endpoint.is_forgotten():
            return
        if endpoint is not None:
            log.warning("%s: the kubelet does not follow the list any more", family.anchor_name)
            self._endpoints.pop(family.name).stop()
        try:
            self._endpoints[family.name] = Endpoint(self.node, family, self._forgotten_s)
            log.info("%s: registered with the kubelet", family.anchor_name)
        except KubeletError as error:
            log.warning("%s: %s", family.anchor_name, error)

    def _stop(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.stop()
        self._endpoints = {}

    def _publish(self) -> None:
        said = ""
        while not self.ended.is_set():
            try:
                if self.node.publish():
                    log.info("the node's status is up to date")
                said = ""
            except Exception as error:  # whatever it is, the next time may go well
                if str(error) != said:
                    said = str(error)
                    log.warning("the node's status is not written: %s", error)
            with self.node.changed:
                self.node.changed.wait(KUBELET_S if said else PUBLISH_S)

    def _uuids(self) -> list[str]:
        return [card.uuid for card in self.node.cards()]
