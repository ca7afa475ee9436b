# SPDX-License-Identifier: MIT
"""
The messages between kubelet and plugin, numbered as in Kubernetes' public API.

``deviceplugin/v1beta1``, ``podresources/v1``, ``pluginregistration/v1``, ``dra/v1`` and
``dra-health`` (``v1`` as ``v1alpha1``) of k8s.io/kubelet: the messages and fields that are used
here, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass

from .wire import amount, many, pairs, switch, text, texts

VERSION = "v1beta1"
REGISTRATION = "v1beta1.Registration"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"
POD_RESOURCES = "v1.PodResourcesLister"
PLUGIN_REGISTRATION = "pluginregistration.Registration"
DRA_PLUGIN = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
#: The type and version that a DRA plugin registers with.
DRA_TYPE, DRA_VERSION = "DRAPlugin", "v1.DRAPlugin"
#: The health service under both its names, of which a kubelet of 1.36 knows one.
DRA_HEALTH = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
#: ``HealthStatus`` of a claim's device.
DEVICE_UNKNOWN, DEVICE_HEALTHY, DEVICE_UNHEALTHY = range(3)


@dataclass
class Empty:
    """Nothing is said."""


@dataclass
class Options:
    """``DevicePluginOptions``."""

    pre_start_required: bool = switch(1)


@dataclass
class RegisterRequest:
    version: str = text(1)
    endpoint: str = text(2)
    resource_name: str = text(3)
    options: list[Options] = many(4, Options)


@dataclass
class Device:
    id: str = text(1)
    health: str = text(2)


@dataclass
class ListAndWatchResponse:
    devices: list[Device] = many(1, Device)


@dataclass
class ContainerRequest:
    """``ContainerAllocateRequest``, and ``PreStartContainerRequest``, which is the same."""

    ids: list[str] = texts(1)


@dataclass
class AllocateRequest:
    containers: list[ContainerRequest] = many(1, ContainerRequest)


@dataclass
class CdiDevice:
    name: str = text(1)


@dataclass
class ContainerResponse:
    """``ContainerAllocateResponse``."""

    environment: dict[str, str] = pairs(1)
    cdi_devices: list[CdiDevice] = many(5, CdiDevice)


@dataclass
class AllocateResponse:
    containers: list[ContainerResponse] = many(1, ContainerResponse)


@dataclass
class ContainerDevices:
    resource: str = text(1)
    ids: list[str] = texts(2)


@dataclass
class ContainerResources:
    name: str = text(1)
    devices: list[ContainerDevices] = many(2, ContainerDevices)

    def ids(self) -> dict[str, set[str]]:
        """Return the ids of each resource: a kubelet from 1.37 on has an entry for each id."""
        found: dict[str, set[str]] = {}
        for one in self.devices:
            found.setdefault(one.resource, set()).update(one.ids)
        return found


@dataclass
class PodResources:
    name: str = text(1)
    namespace: str = text(2)
    containers: list[ContainerResources] = many(3, ContainerResources)


@dataclass
class PodResourcesList:
    pods: list[PodResources] = many(1, PodResources)


@dataclass
class PluginInfo:
    type: str = text(1)
    name: str = text(2)
    endpoint: str = text(3)
    supported_versions: list[str] = texts(4)


@dataclass
class RegistrationStatus:
    plugin_registered: bool = switch(1)
    error: str = text(2)


@dataclass
class Claim:
    namespace: str = text(1)
    uid: str = text(2)
    name: str = text(3)


@dataclass
class ClaimsRequest:
    """``NodePrepareResourcesRequest``, and ``NodeUnprepareResourcesRequest``, which is the same."""

    claims: list[Claim] = many(1, Claim)


@dataclass
class PreparedDevice:
    """``Device``."""

    request_names: list[str] = texts(1)
    pool_name: str = text(2)
    device_name: str = text(3)
    cdi_device_ids: list[str] = texts(4)
    share_id: str = text(5)


@dataclass
class Prepared:
    """``NodePrepareResourceResponse``."""

    devices: list[PreparedDevice] = many(1, PreparedDevice)
    error: str = text(2)


@dataclass
class PreparedEntry:
    """Of the map by uid; a map is a list of pairs."""

    uid: str = text(1)
    prepared: list[Prepared] = many(2, Prepared)


@dataclass
class PrepareResponse:
    claims: list[PreparedEntry] = many(1, PreparedEntry)


@dataclass
class Unprepared:
    """``NodeUnprepareResourceResponse``."""

    error: str = text(1)


@dataclass
class UnpreparedEntry:
    uid: str = text(1)
    unprepared: list[Unprepared] = many(2, Unprepared)


@dataclass
class UnprepareResponse:
    claims: list[UnpreparedEntry] = many(1, UnpreparedEntry)


@dataclass
class DeviceIdentifier:
    pool_name: str = text(1)
    device_name: str = text(2)


@dataclass
class DeviceHealth:
    device: list[DeviceIdentifier] = many(1, DeviceIdentifier)
    health: int = amount(2)
    last_updated_time: int = amount(3)
    message: str = text(5)


@dataclass
class HealthResponse:
    """``NodeWatchResourcesResponse``: all devices of the driver."""

    devices: list[DeviceHealth] = many(1, DeviceHealth)
