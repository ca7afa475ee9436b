# SPDX-License-Identifier: MIT
"""
The DRA driver: a node's cards as devices, and claims that the kubelet has it prepare.

A prepared claim is a file with CDI devices, made from the claim's allocation at the API server.
Nothing else is kept. The same claim makes the same file, so a restart of this driver or of the
kubelet loses and changes nothing.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from ..errors import CgpuError, ModuleNotLoaded
from ..oci import cdi
from ..request.model import MIB, Card
from ..tree import procfs, tenant
from . import apiserver, claims, messages
from .families import room
from .health import MIG, Health
from .kubelet import DIRECTORY
from .node import Place
from .overcommit import Overcommit
from .wire import decode, encode

#: How often the slice is looked at: the kubelet removes it after a restart of either.
PUBLISH_S = 10.0
RETRY_S = 1.0
UNGRANTED = "sys/module/cgpu_km/parameters/ungranted"
_WORKERS = 8

log = logging.getLogger(__name__)


class Claims:
    """The claims of one node; each call is complete when it returns."""

    def __init__(self, access: apiserver.Access, place: Place) -> None:
        self.access = access
        self.place = place

    def root(self) -> str:
        return self.place.root or procfs.find_root()

    def prepare(self, claim: messages.Claim) -> list[messages.PreparedDevice]:
        """
        Write the devices of a claim; the same again, however often it is asked.

        Raises:
            CgpuError: it is no longer that claim, or a card is not here.
        """
        found = apiserver.claim(self.access, claim.namespace, claim.name)
        if found["metadata"]["uid"] != claim.uid:
            raise CgpuError(f"claim {claim.namespace}/{claim.name} is another one by now")
        parts = claims.parts(found)
        here = {claims.device_name(card): card for card in procfs.find_cards(self.root())}
        missing = [part.device for part in parts if part.device not in here]
        if missing:
            raise CgpuError(f"claim {claim.namespace}/{claim.name}: no card {missing[0]} here")
        for device, asked_bytes in claims.repeated(parts).items():
            self._check_size(claim, here[device], asked_bytes)
        names = [f"{claim.uid}-{number}" for number in range(len(parts))]
        devices = {name: here[part.device] for name, part in zip(names, parts, strict=True)}
        shared = self._is_shared(found)
        if shared and not self._refuses():
            raise CgpuError(
                f"claim {claim.namespace}/{claim.name}: containers may share it, and a program of"
                " `kubectl exec` would not be held to it: cgpu install --ungranted refuse"
            )
        settings = claims.settings(parts) | claims.parameters(found)
        self._write(claim.uid, tenant_name(claim.uid) if shared else None, devices, settings)
        return [
            messages.PreparedDevice(
                # Of a request with alternatives containers name the request.
                [part.request.partition("/")[0]],
                part.pool,
                part.device,
                [f"{cdi.CLAIM_KIND}={name}"],
                part.share,
            )
            for name, part in zip(names, parts, strict=True)
        ]

    def unprepare(self, claim: messages.Claim) -> None:
        """
        Forget a claim, and the tenant of its containers if the last one's hook could not.

        Raises:
            CgpuError: processes of it still hold a card.
        """
        with contextlib.suppress(ModuleNotLoaded):
            procfs.destroy(tenant_name(claim.uid), self.root())
        tenant.remove(tenant_name(claim.uid))
        self._file(claim.uid).unlink(missing_ok=True)

    def _check_size(self, claim: messages.Claim, card: Card, asked_bytes: int) -> None:
        """Raise CgpuError if the parts that a claim has of a card are more than the card itself."""
        most_mib = room(procfs.read_card(card.index, self.root(), tenants=False)).one_mib
        if asked_bytes > most_mib * MIB:
            raise CgpuError(
                f"claim {claim.namespace}/{claim.name}: its requests have {asked_bytes // MIB} MiB"
                f" of card {claims.device_name(card)} together, and a tenant has at most its"
                f" {most_mib} MiB: make a claim of each"
            )

    def _is_shared(self, found: Mapping[str, Any]) -> bool:
        """Tell whether more than one container may have the claim, now or later."""
        owner = claims.owner(found)
        if owner is None:
            return True
        pod = apiserver.pod(self.access, found["metadata"]["namespace"], owner)
        return not claims.sole_user(found, pod)

    def _refuses(self) -> bool:
        """Tell whether this node refuses cards to containers without a grant."""
        path = Path(self.place.prefix, UNGRANTED)
        return path.exists() and path.read_text().strip() in ("refuse", "asked")

    def _file(self, uid: str) -> Path:
        if not uid or "/" in uid:
            raise CgpuError(f"claim uid {uid!r} is none")
        return Path(self.place.cdi_directory) / f"cgpu-claim-{uid}.json"

    def _write(
        self, uid: str, name: str | None, devices: dict[str, Card], settings: dict[str, str]
    ) -> None:
        text = cdi.render(
            cdi.of_claim(
                name,
                devices,
                settings,
                self.place.hook,
                libraries=self.place.libraries,
            )
        )
        path = self._file(uid)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Engines read every *.json there, whenever one changes.
        draft = path.with_suffix(f".{threading.get_ident()}")
        draft.write_text(text)
        os.replace(draft, path)


def tenant_name(uid: str) -> str:
    """Return the name in the tree of a claim's tenant."""
    return f"claim-{uid}"


class Driver:
    """
    The driver of a node, registered and its slice published until :attr:`ended` is set.

    Args:
        evict: have Kubernetes end the pods of a failed card, which otherwise go on.
    """

    def __init__(
        self, node: str, held: Claims, kubelet: str = DIRECTORY, *, evict: bool = False
    ) -> None:
        self.node = node
        self.claims = held
        self.effect = claims.NO_EXECUTE if evict else claims.NO_SCHEDULE
        #: Whether the API server keeps a driver's taints of failed devices.
        self._taints = True
        self.registry = Path(kubelet) / "plugins_registry" / f"{claims.DRIVER}-reg.sock"
        self.socket = Path(kubelet) / "plugins" / claims.DRIVER / "dra.sock"
        self.ended = threading.Event()
        self._news = threading.Condition()
        self._told = 0
        self.overcommit = Overcommit(held.place.overcommit_ratio, held.place.prefix)
        self.health = Health(self._tell)

    def end(self) -> None:
        """Have :meth:`run` return."""
        self.ended.set()
        self._tell()

    def _tell(self) -> None:
        """Wake the threads that wait for news."""
        with self._news:
            self._told += 1
            self._news.notify_all()

    def _await(self, known: int, timeout_s: float) -> None:
        """Wait until something was told after the *known* news, or for so long."""
        with self._news:
            self._news.wait_for(lambda: self._told != known or self.ended.is_set(), timeout_s)

    def run(self) -> None:
        """Serve until :meth:`end`."""
        watcher = threading.Thread(target=self.health.follow, args=(self._uuids,))
        watcher.start()
        servers = [
            _serve(
                self.socket,
                {
                    messages.DRA_PLUGIN: {
                        "NodePrepareResources": _unary(self._prepare, messages.ClaimsRequest),
                        "NodeUnprepareResources": _unary(self._unprepare, messages.ClaimsRequest),
                    },
                    **{
                        service: {"NodeWatchResources": _stream(self._watched, messages.Empty)}
                        for service in messages.DRA_HEALTH
                    },
                },
            ),
            # This socket comes last, because the kubelet calls as soon as it finds it.
            _serve(
                self.registry,
                {
                    messages.PLUGIN_REGISTRATION: {
                        "GetInfo": _unary(self._info, messages.Empty),
                        "NotifyRegistrationStatus": _unary(
                            self._registered, messages.RegistrationStatus
                        ),
                    }
                },
            ),
        ]
        try:
            self._stay_published()
        finally:
            self.end()
            self.health.ended.set()
            for server in reversed(servers):
                server.stop(grace=None).wait()
            watcher.join()

    def publish(self) -> bool:
        """Update the node's slice; False: it is right already."""
        self.overcommit.keep(self.claims.root())
        devices = self._devices()

        def wanted(uid: str) -> dict[str, Any]:
            return claims.resource_slice(self.node, uid, devices)

        made = apiserver.publish_slice(self.claims.access, self.node, wanted, claims.renewed)
        if made is None:
            return False
        if claims.drops_taints(made, wanted("")):
            self._taints = False
            log.warning(
                "the API server keeps no taints (its feature DRADeviceTaints is off): a card that"
                " has failed is left out of the slice"
            )
            self.publish()
        return True

    def _devices(self) -> list[dict[str, Any]]:
        """
        Return the node's cards; of those that have failed the scheduler gives nothing.

        A card that the driver divides itself is none of ours, whatever a claim tolerates.
        """
        found = []
        for card in procfs.read_cards(self.claims.root(), tenants=False):
            failure = self.health.failure(card.uuid)
            if card.mig or (failure is not None and failure.cause == MIG):
                continue
            if failure is None:
                found.append(claims.device(card))
            elif self._taints:
                found.append(claims.device(card, failure.cause, self.effect))
        return found

    def _stay_published(self) -> None:
        said = ""
        while not self.ended.is_set():
            known = self._told
            try:
                if self.publish():
                    log.info("the node's ResourceSlice is up to date")
                said = ""
            except CgpuError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("the node's ResourceSlice is not written: %s", error)
            self._await(known, RETRY_S if said else PUBLISH_S)

    def _uuids(self) -> list[str]:
        return [card.uuid for card in procfs.find_cards(self.claims.root())]

    # ---- the kubelet's calls

    def _info(self, request: messages.Empty, context: Any) -> messages.PluginInfo:
        return messages.PluginInfo(
            messages.DRA_TYPE,
            claims.DRIVER,
            str(self.socket),
            [messages.DRA_VERSION, *messages.DRA_HEALTH],
        )

    def _registered(self, request: messages.RegistrationStatus, context: Any) -> messages.Empty:
        if request.plugin_registered:
            log.info("registered with the kubelet")
        else:
            log.error("the kubelet does not take the driver: %s", request.error)
        return messages.Empty()

    def _watched(self, request: messages.Empty, context: Any) -> Iterator[messages.HealthResponse]:
        while context.is_active() and not self.ended.is_set():
            known = self._told
            yield self._report()
            # A kubelet takes a device without a report for 30 s as unknown.
            self._await(known, PUBLISH_S)

    def _report(self) -> messages.HealthResponse:
        """Return how the node's cards are; of those that are not listened to that is unknown."""
        now = int(time.time())
        devices = []
        with contextlib.suppress(CgpuError):
            for card in procfs.find_cards(self.claims.root()):
                failure = self.health.failure(card.uuid)
                heard = self.health.is_heard(card.uuid)
                well = messages.DEVICE_HEALTHY if heard else messages.DEVICE_UNKNOWN
                devices.append(
                    messages.DeviceHealth(
                        [messages.DeviceIdentifier(self.node, claims.device_name(card))],
                        well if failure is None else messages.DEVICE_UNHEALTHY,
                        now,
                        "" if failure is None else failure.message,
                    )
                )
        return messages.HealthResponse(devices)

    def _prepare(self, request: messages.ClaimsRequest, context: Any) -> messages.PrepareResponse:
        entries = []
        for claim in request.claims:
            answer = messages.Prepared()
            try:
                answer.devices = self.claims.prepare(claim)
                log.info("claim %s/%s is prepared", claim.namespace, claim.name)
            except (CgpuError, OSError) as error:
                log.warning("claim %s/%s: %s", claim.namespace, claim.name, error)
                answer.error = f"cgpu: {error}"
            entries.append(messages.PreparedEntry(claim.uid, [answer]))
        return messages.PrepareResponse(entries)

    def _unprepare(
        self, request: messages.ClaimsRequest, context: Any
    ) -> messages.UnprepareResponse:
        entries = []
        for claim in request.claims:
            answer = messages.Unprepared()
            try:
                self.claims.unprepare(claim)
                log.info("claim %s/%s is given back", claim.namespace, claim.name)
            except (CgpuError, OSError) as error:
                log.warning("claim %s/%s: %s", claim.namespace, claim.name, error)
                answer.error = f"cgpu: {error}"
            entries.append(messages.UnpreparedEntry(claim.uid, [answer]))
        return messages.UnprepareResponse(entries)


def _unary(method: Callable[[Any, Any], object], request: type) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=lambda raw: decode(request, raw), response_serializer=encode
    )


def _stream(method: Callable[[Any, Any], object], request: type) -> Any:
    return grpc.unary_stream_rpc_method_handler(
        method, request_deserializer=lambda raw: decode(request, raw), response_serializer=encode
    )


def _serve(socket: Path, services: dict[str, dict[str, Any]]) -> grpc.Server:
    socket.parent.mkdir(parents=True, exist_ok=True)
    # Of a driver before this one: the kubelet takes a socket that is made anew for a new driver.
    socket.unlink(missing_ok=True)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(_WORKERS))
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(*one) for one in services.items())
    )
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server
