# SPDX-License-Identifier: MIT
"""
What kubelet and plugin say to each other, numbered as in Kubernetes' public API.

``deviceplugin/v1beta1/api.proto`` and ``podresources/v1/api.proto`` of k8s.io/kubelet: the messages
and fields that are used here, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass

from .wire import many, pairs, switch, text, texts

VERSION = "v1beta1"
REGISTRATION = "v1beta1.Registration"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"
POD_RESOURCES = "v1.PodResourcesLister"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


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


@dataclass
class PodResources:
    name: str = text(1)
    namespace: str = text(2)
    containers: list[ContainerResources] = many(3, ContainerResources)


@dataclass
class PodResourcesList:
    pods: list[PodResources] = many(1, PodResources)
