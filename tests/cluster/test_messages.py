# SPDX-License-Identifier: MIT
"""Our messages beside Kubernetes' own descriptions of them, compiled by protoc. No cluster runs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from pycgpu.kubernetes import messages as ours

HERE = Path(__file__).parent
Field = descriptor_pb2.FieldDescriptorProto
V1BETA1, PODS = "v1beta1", "v1"
REGISTRATION, DRA = "pluginregistration", "k8s.io.kubelet.pkg.apis.dra.v1"
FILES = (
    *("deviceplugin/v1beta1", "podresources/v1", "pluginregistration/v1", "dra/v1"),
    *("dra-health/v1", "dra-health/v1alpha1"),
)
#: Ours, and what Kubernetes calls it: one of ours may stand for two that are the same.
SAME: list[tuple[Any, str]] = [
    (ours.Empty, f"{V1BETA1}.Empty"),
    (ours.Options, f"{V1BETA1}.DevicePluginOptions"),
    (ours.RegisterRequest, f"{V1BETA1}.RegisterRequest"),
    (ours.Device, f"{V1BETA1}.Device"),
    (ours.ListAndWatchResponse, f"{V1BETA1}.ListAndWatchResponse"),
    (ours.ContainerRequest, f"{V1BETA1}.ContainerAllocateRequest"),
    (ours.ContainerRequest, f"{V1BETA1}.PreStartContainerRequest"),
    (ours.AllocateRequest, f"{V1BETA1}.AllocateRequest"),
    (ours.CdiDevice, f"{V1BETA1}.CDIDevice"),
    (ours.ContainerResponse, f"{V1BETA1}.ContainerAllocateResponse"),
    (ours.AllocateResponse, f"{V1BETA1}.AllocateResponse"),
    (ours.ContainerDevices, f"{PODS}.ContainerDevices"),
    (ours.ContainerResources, f"{PODS}.ContainerResources"),
    (ours.PodResources, f"{PODS}.PodResources"),
    (ours.PodResourcesList, f"{PODS}.ListPodResourcesResponse"),
    (ours.PluginInfo, f"{REGISTRATION}.PluginInfo"),
    (ours.RegistrationStatus, f"{REGISTRATION}.RegistrationStatus"),
    (ours.Claim, f"{DRA}.Claim"),
    (ours.ClaimsRequest, f"{DRA}.NodePrepareResourcesRequest"),
    (ours.ClaimsRequest, f"{DRA}.NodeUnprepareResourcesRequest"),
    (ours.PreparedDevice, f"{DRA}.Device"),
    (ours.Prepared, f"{DRA}.NodePrepareResourceResponse"),
    (ours.PreparedEntry, f"{DRA}.NodePrepareResourcesResponse.ClaimsEntry"),
    (ours.PrepareResponse, f"{DRA}.NodePrepareResourcesResponse"),
    (ours.Unprepared, f"{DRA}.NodeUnprepareResourceResponse"),
    (ours.UnpreparedEntry, f"{DRA}.NodeUnprepareResourcesResponse.ClaimsEntry"),
    (ours.UnprepareResponse, f"{DRA}.NodeUnprepareResourcesResponse"),
    *(
        (mine, f"{one.partition('.')[0]}.{name}")
        for one in ours.DRA_HEALTH
        for mine, name in (
            (ours.DeviceIdentifier, "DeviceIdentifier"),
            (ours.DeviceHealth, "DeviceHealth"),
            (ours.HealthResponse, "NodeWatchResourcesResponse"),
        )
    ),
]
#: Where our word for a field is another one.
WORDS = {
    "ids": {"devices_ids", "device_ids"},
    "containers": {"container_requests", "container_responses"},
    "environment": {"envs"},
    "pods": {"pod_resources"},
    "resource": {"resource_name"},
    "prepared": {"value"},
    "unprepared": {"value"},
    "uid": {"key"},
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Kubernetes' messages by their full names, and its services' methods."""
    # The kubelet's own module, of the release that go.mod names.
    told = subprocess.run(
        ["go", "mod", "download", "-json", "k8s.io/kubelet"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    )
    apis = Path(json.loads(told.stdout)["Dir"]) / "pkg/apis"
    found: dict[str, Any] = {}

    def walk(prefix: str, messages: Any) -> None:
        for one in messages:
            found[f"{prefix}.{one.name}"] = one
            walk(f"{prefix}.{one.name}", one.nested_type)

    for number, name in enumerate(FILES):
        out = tmp_path_factory.mktemp("protoc") / f"{number}.bin"
        subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", f"-I{apis / name}"),
                *(f"--descriptor_set_out={out}", str(apis / name / "api.proto")),
            ],
            check=True,
        )
        described = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
        for file in described.file:
            walk(file.package, file.message_type)
            for service in file.service:
                for method in service.method:
                    found[f"{file.package}.{service.name}/{method.name}"] = method
    return found


def test_every_message_of_ours_has_its_own() -> None:
    declared = {one for one in vars(ours).values() if dataclasses.is_dataclass(one)}
    assert declared == {one for one, _ in SAME}


@pytest.mark.parametrize(("mine", "name"), SAME, ids=[name for _, name in SAME])
def test_a_field_has_the_number_the_type_and_the_name(
    mine: Any, name: str, theirs: dict[str, Any]
) -> None:
    fields = {one.number: one for one in theirs[name].field}
    for one in dataclasses.fields(mine):
        field = fields[one.metadata["number"]]
        words = {one.name, *WORDS.get(one.name, ())}
        assert field.name.lower() in words, (one.name, field.name)
        kind, repeated = one.metadata["kind"], field.label == Field.LABEL_REPEATED
        if kind is int:
            assert (field.type, repeated) in (
                (Field.TYPE_INT64, False),
                (Field.TYPE_ENUM, False),
            ), one.name
        elif kind is str or kind is bool:
            wanted = Field.TYPE_STRING if kind is str else Field.TYPE_BOOL
            assert (field.type, repeated) == (wanted, one.metadata["many"]), one.name
        elif kind is dict:
            entry = theirs[field.type_name.removeprefix(".")]
            assert entry.options.map_entry
            assert [part.type for part in entry.field] == [Field.TYPE_STRING] * 2
        else:
            # A message that is there once at most is a list to us, of one or none.
            inner = {full for one_of_ours, full in SAME if one_of_ours is kind}
            assert field.type_name.removeprefix(".") in inner, one.name


@pytest.mark.parametrize(
    "method",
    [
        f"{ours.REGISTRATION}/Register",
        *(f"{ours.DEVICE_PLUGIN}/{one}" for one in ("ListAndWatch", "Allocate")),
        f"{ours.POD_RESOURCES}/List",
        *(f"{ours.PLUGIN_REGISTRATION}/{one}" for one in ("GetInfo", "NotifyRegistrationStatus")),
        *(f"{ours.DRA_PLUGIN}/Node{one}Resources" for one in ("Prepare", "Unprepare")),
        *(f"{one}/NodeWatchResources" for one in ours.DRA_HEALTH),
    ],
)
def test_a_method_has_its_name(method: str, theirs: dict[str, Any]) -> None:
    assert method in theirs
