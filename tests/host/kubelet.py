# SPDX-License-Identifier: MIT
"""
The other side of device plugin and DRA driver: a kubelet by its protocols, and an API server.

Both speak to the plugin over real sockets. The kubelet hands out ids as the real one does: of those
that are healthy and free, in no order that a plugin could count on.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from pycgpu.kubernetes import messages
from pycgpu.kubernetes.wire import decode, encode
from tests.host.json_http import JsonHandler, serving

RESOURCES = "/apis/resource.k8s.io/v1"


class Refused(Exception):
    """The plugin said no; the text is its reason."""


def call(socket: Path, method: str, request: object, answer: type) -> Any:
    """Ask whoever serves *socket*."""
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        asked = channel.unary_unary(
            f"/{method}",
            request_serializer=encode,
            response_deserializer=lambda raw: decode(answer, raw),
        )
        try:
            return asked(request, timeout=30)
        except grpc.RpcError as error:
            raise Refused(error.details()) from None


def _handler(method: Any, request: type) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        lambda asked, context: method(asked),
        request_deserializer=lambda raw: decode(request, raw),
        response_serializer=encode,
    )


class KubeletPeer:
    """A kubelet below *directory*; :meth:`restart` is one that was killed and came again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registered: dict[str, str] = {}
        self.pods: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
        #: Init containers that end: they have ids, and its list has none of them.
        self.unlisted: set[tuple[str, str, str]] = set()
        self.news = threading.Condition()
        self.lists = 0
        #: Resources of whose plugins it wants to hear nothing.
        self.refused: set[str] = set()
        self.registrations: collections.Counter[str] = collections.Counter()
        #: The last list of each plugin that is followed.
        self.followed: dict[str, dict[str, str]] = {}
        self._streams: dict[str, Any] = {}
        self._start()

    def _start(self) -> None:
        self.servers = []
        for folder, service, method, request in (
            ("device-plugins", messages.REGISTRATION, "Register", messages.RegisterRequest),
            ("pod-resources", messages.POD_RESOURCES, "List", messages.Empty),
        ):
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
            for socket in (self.directory / folder).glob("*.sock"):
                socket.unlink()
            server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
            answer = self._register if method == "Register" else self._list
            handlers = {method: _handler(answer, request)}
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, handlers),)
            )
            server.add_insecure_port(f"unix://{self.directory}/{folder}/kubelet.sock")
            server.start()
            self.servers.append(server)

    def stop(self) -> None:
        for stream in self._streams.values():
            stream.cancel()
        for server in self.servers:
            server.stop(None).wait()

    def restart(self) -> None:
        self.stop()
        self.registered = {}
        self._start()

    def _register(self, request: messages.RegisterRequest) -> messages.Empty:
        assert request.version == "v1beta1"
        assert request.options[0].pre_start_required
        if request.resource_name in self.refused:
            raise RuntimeError(f"{request.resource_name} is refused")
        with self.news:
            self.registered[request.resource_name] = request.endpoint
            self.registrations[request.resource_name] += 1
            self.news.notify_all()
        self._follow(request.resource_name, self.directory / "device-plugins" / request.endpoint)
        return messages.Empty()

    def _follow(self, resource: str, socket: Path) -> None:
        """Follow the list of a plugin until it ends it, or :meth:`drop`; never again by itself."""
        channel = grpc.insecure_channel(f"unix://{socket}")
        stream = channel.unary_stream(
            f"/{messages.DEVICE_PLUGIN}/ListAndWatch",
            request_serializer=encode,
            response_deserializer=lambda raw: decode(messages.ListAndWatchResponse, raw),
        )(messages.Empty(), wait_for_ready=True)

        def read() -> None:
            with contextlib.suppress(grpc.RpcError), channel:
                for listed in stream:
                    with self.news:
                        self.followed[resource] = {one.id: one.health for one in listed.devices}
                        self.news.notify_all()
            with self.news:
                if self._streams.get(resource) is stream:
                    # All its devices are unhealthy to the kubelet from now on.
                    self.followed.pop(resource, None)
                    self.news.notify_all()

        self._streams[resource] = stream
        threading.Thread(target=read).start()

    def drop(self, resource: str) -> None:
        """Break off the following of a plugin's list, as when a message cannot be read."""
        self._streams[resource].cancel()

    def await_list(self, condition: Callable[[dict[str, str]], bool], resource: str) -> None:
        """Wait until the list that is followed is such."""
        with self.news:
            assert self.news.wait_for(
                lambda: resource in self.followed and condition(self.followed[resource]), 30
            ), self.followed

    def _list(self, request: messages.Empty) -> messages.PodResourcesList:
        self.lists += 1
        return messages.PodResourcesList(
            [
                messages.PodResources(
                    name,
                    namespace,
                    [
                        messages.ContainerResources(
                            container,
                            # As 1.37's: an entry for each id, in no order.
                            [
                                messages.ContainerDevices(resource, [one])
                                for resource, ids in devices.items()
                                for one in ids[::-1]
                            ],
                        )
                        for container, devices in containers.items()
                        if (namespace, name, container) not in self.unlisted
                    ],
                )
                for (namespace, name), containers in self.pods.items()
            ]
        )

    def await_plugin(self, resource: str) -> None:
        with self.news:
            assert self.news.wait_for(lambda: resource in self.registered, 30), resource

    def call(self, resource: str, method: str, request: object, answer: type) -> Any:
        socket = self.directory / "device-plugins" / self.registered[resource]
        return call(socket, f"{messages.DEVICE_PLUGIN}/{method}", request, answer)

    def devices(self, resource: str) -> dict[str, str]:
        """The first list that the plugin streams."""
        socket = self.directory / "device-plugins" / self.registered[resource]
        with grpc.insecure_channel(f"unix://{socket}") as channel:
            stream = channel.unary_stream(
                f"/{messages.DEVICE_PLUGIN}/ListAndWatch",
                request_serializer=encode,
                response_deserializer=lambda raw: decode(messages.ListAndWatchResponse, raw),
            )(messages.Empty(), timeout=30)
            listed = next(stream)
            stream.cancel()
        return {one.id: one.health for one in listed.devices}

    def admit_pod(self, pod: Any, resource: str) -> None:
        """
        Give each container of a pod ids, in the order of the pod.

        An init container's go on to those after it, unless it is a sidecar.
        """
        name, spec = pod["metadata"]["name"], pod["spec"]
        reusable: list[str] = []
        for part in (*spec["initContainers"], *spec["containers"]):
            count = int(part["resources"]["limits"].get(resource, 0))
            if not count:
                continue
            self.admit(name, part["name"], resource, count, reusable)
            ids = self.pods["default", name][part["name"]][resource]
            if part in spec["initContainers"] and part.get("restartPolicy") != "Always":
                self.unlisted.add(("default", name, part["name"]))
                reusable += [one for one in ids if one not in reusable]
            else:
                reusable = [one for one in reusable if one not in ids]

    def admit(
        self,
        name: str,
        container: str,
        resource: str,
        count: int,
        reusable: Sequence[str] = (),
    ) -> list[str]:
        """Give a container ids, and ask for them; return the names of its CDI devices."""
        held = {
            one
            for containers in self.pods.values()
            for devices in containers.values()
            for one in devices.get(resource, [])
        }
        free = [
            one
            for one, health in self.devices(resource).items()
            if health == messages.HEALTHY and one not in held
        ]
        ids = [*reusable, *sorted(free, key=lambda one: one[::-1])][:count]
        if len(ids) < count:
            raise Refused(f"{len(ids)} of {resource}")
        answer = self.call(
            resource,
            "Allocate",
            messages.AllocateRequest([messages.ContainerRequest(ids)]),
            messages.AllocateResponse,
        )
        pod = self.pods.setdefault(("default", name), {})
        pod.setdefault(container, {})[resource] = ids
        return [one.name for one in answer.containers[0].cdi_devices]

    def start(self, name: str, container: str, resource: str) -> None:
        """Be about to make a container."""
        ids = self.pods["default", name][container][resource]
        request = messages.ContainerRequest(ids)
        self.call(resource, "PreStartContainer", request, messages.Empty)


class ApiPeer:
    """An API server with pods and one node, ``node``; it keeps what is patched."""

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}
        self.node: dict[str, Any] = {
            "metadata": {"uid": "uid-node"},
            "status": {"capacity": {"cpu": "4"}},
        }
        self.claims: dict[str, Any] = {}
        self.slices: dict[str, Any] = {}
        #: As an API server with the feature DRADeviceTaints.
        self.taints = True
        self.patches = 0
        self.conditions: dict[str, Any] = {}
        #: By which somebody has asked for pods.
        self.connections: set[object] = set()
        peer = self

        class Handler(JsonHandler):
            # The object is the connection's, for as many calls as come by it.
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path == "/api/v1/nodes/node":
                    return self.answer(200, peer.node)
                folder, _, last = self.path.rpartition("/")
                kept = {
                    f"{RESOURCES}/resourceslices": peer.slices,
                    f"{RESOURCES}/namespaces/default/resourceclaims": peer.claims,
                }.get(folder, {})
                if last in kept:
                    return self.answer(200, kept[last])
                peer.connections.add(self)
                name = self.path.removeprefix("/api/v1/namespaces/default/pods/")
                if name in peer.pods:
                    return self.answer(200, peer.pods[name])
                return self.answer(404, {"message": f'pods "{name}" not found'})

            def do_POST(self) -> None:
                assert self.path == f"{RESOURCES}/resourceslices"
                assert self.headers["Content-Type"] == "application/json"
                self.keep(self.body(), 1)

            def do_PUT(self) -> None:
                body = self.body()
                name = body["metadata"]["name"]
                assert self.path == f"{RESOURCES}/resourceslices/{name}"
                version = int(peer.slices[name]["metadata"]["resourceVersion"])
                if body["metadata"]["resourceVersion"] != str(version):
                    self.answer(409, {"message": "the object has been modified"})
                else:
                    self.keep(body, version + 1)

            def keep(self, body: Any, version: int) -> None:
                body["metadata"]["resourceVersion"] = str(version)
                for device in body["spec"]["devices"]:
                    for taint in device.get("taints", ()):
                        taint.setdefault("timeAdded", f"2026-11-30T00:00:{version:02}Z")
                    if not peer.taints:
                        device.pop("taints", None)
                peer.slices[body["metadata"]["name"]] = body
                self.answer(200, body)

            def do_PATCH(self) -> None:
                assert self.path == "/api/v1/nodes/node/status"
                assert self.headers["Content-Type"] == "application/strategic-merge-patch+json"
                body = self.body()
                conditions = body["status"].pop("conditions")
                peer.conditions |= {one["type"]: one for one in conditions}
                peer.node["status"]["conditions"] = list(peer.conditions.values())
                for part, maps in body.items():
                    for name, values in maps.items():
                        peer.node[part].setdefault(name, {}).update(values)
                peer.patches += 1
                self.answer(200, peer.node)

        self.server, self.url = serving(Handler)

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def add(self, name: str, uid: str | None = None, **containers: Mapping[str, object]) -> None:
        """
        A pod whose containers have these limits.

        One named ``init…`` is an init container, and one named ``sidecar…`` one that restarts.
        """
        parts: list[dict[str, Any]] = [
            {"name": container, "resources": {"limits": dict(limits)}}
            for container, limits in containers.items()
        ]
        for one in parts:
            if one["name"].startswith("sidecar"):
                one["restartPolicy"] = "Always"
        first = ("init", "sidecar")
        self.pods[name] = {
            "metadata": {"name": name, "uid": uid or f"uid-{name}"},
            "spec": {
                "containers": [one for one in parts if not one["name"].startswith(first)],
                "initContainers": [one for one in parts if one["name"].startswith(first)],
            },
        }
